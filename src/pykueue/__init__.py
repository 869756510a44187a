"""pykueue: job queueing for Kubernetes, compatible with the Kueue API.

The rooms, from the ground up: `api` is the words, `core` the brain, `state` the memory; `apiserver` is a
Kubernetes-compatible server that has not heard of queueing; `cli` is the door. ARCHITECTURE.md draws the arrows.
"""

from pykueue.version import __version__

__all__ = ["__version__"]
