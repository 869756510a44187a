"""Retries: of a read followed by a conditional write, and through an outage of the API server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kubemachinery.client.client import ApiClient, Tree
from kubemachinery.client.errors import AlreadyExists, ApiError, Conflict, KubeError, Unanswered
from kubemachinery.kinds import Kind

log = logging.getLogger(__name__)

T = TypeVar("T")

_INITIAL_BACKOFF_SECONDS: Final = 0.1
_MAX_BACKOFF_SECONDS: Final = 5.0
# How long a command that waits anyway also waits for an unreachable server: long enough to replace it.
_OUTAGE_SECONDS: Final = 300.0
_RETRY_SECONDS: Final = 1.0


async def retry_transient(attempt: Callable[[], Awaitable[T]], *, attempts: int = 10) -> T:
    """Return the result of the first attempt without a transient error; other errors are raised at once.

    For attempts that read before they write: after a conflict, a lost response or a server error, the next attempt
    finds the outcome of the last one. The error of the last attempt is raised.
    """
    backoff = _INITIAL_BACKOFF_SECONDS
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except KubeError as error:
            if not is_transient(error):
                raise
            log.info("retrying: %s", error)
        await asyncio.sleep(backoff)
        backoff = min(backoff * 2, _MAX_BACKOFF_SECONDS)
    return await attempt()


async def create_or_update(client: ApiClient, kind: Kind, wanted: Tree, field: str) -> bool:
    """Create the object, or update its `field` only; labels and the rest stay. Return whether a write was needed."""
    metadata = wanted["metadata"]
    found = await client.find(kind, metadata["name"], metadata.get("namespace", ""))
    if found is None:
        await client.create(kind, wanted)
        return True
    if found.get(field) == wanted[field]:
        return False
    await client.replace(kind, {**found, field: wanted[field]})
    return True


def is_transient(error: KubeError) -> bool:
    """Whether a retry may succeed: no response, a conflict, or a server error."""
    if isinstance(error, Unanswered | Conflict | AlreadyExists):
        return True
    return isinstance(error, ApiError) and (error.code >= 500 or error.code == 429)


class RetryThroughOutage:
    """Calls a server and retries while it is unreachable, because it restarts or the network is down.

    A server that has never responded is not waited for. `report` is called once per outage, with the error and the time
    limit; several calls may be in progress at the same time.
    """

    def __init__(self, report: Callable[[str], None], limit_seconds: float = _OUTAGE_SECONDS) -> None:
        self._report = report
        self._limit_seconds = limit_seconds
        self._has_responded = False
        self._unreachable_since: float | None = None

    async def __call__(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                result = await call()
            except KubeError as error:
                if not (self._has_responded and is_transient(error) and self._may_retry(error)):
                    raise
            else:
                self._has_responded, self._unreachable_since = True, None
                return result
            await asyncio.sleep(_RETRY_SECONDS)

    def _may_retry(self, error: KubeError) -> bool:
        now = asyncio.get_running_loop().time()
        if self._unreachable_since is None:
            self._unreachable_since = now
            self._report(f"{error}; waiting up to {self._limit_seconds / 60:g} min for the server")
        return now - self._unreachable_since < self._limit_seconds
