"""pykueue: job queueing for Kubernetes, compatible with the Kueue API.

The rooms, from the ground up: `api` is the words, `core` the brain, `state` the memory; `apiserver` is a
Kubernetes-compatible server that has not heard of queueing; `cli` is the door. ARCHITECTURE.md draws the arrows.
"""

from typing import TYPE_CHECKING, Any

from pykueue.version import __version__

if TYPE_CHECKING:
    from pykueue.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    """The clients bring half of the house with them, so they are loaded when somebody asks."""
    if name in ("AsyncClient", "Client"):
        from pykueue.client import client

        return getattr(client, name)
    raise AttributeError(f"module 'pykueue' has no attribute {name!r}")
