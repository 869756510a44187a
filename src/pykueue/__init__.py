"""pykueue: job queueing for Kubernetes, compatible with the Kueue API.

`api` holds the types, `core` the scheduler, `state` its cache and queues, `lifecycle` and `jobs` the rules of Workloads
and jobs, `controllers` the reconcilers, `cli` the commands. ARCHITECTURE.md has the layers.
"""

from typing import TYPE_CHECKING, Any

from pykueue.version import __version__

if TYPE_CHECKING:
    from pykueue.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the clients on first use: they load most of the package."""
    if name in ("AsyncClient", "Client"):
        from pykueue.client import client

        return getattr(client, name)
    raise AttributeError(f"module 'pykueue' has no attribute {name!r}")
