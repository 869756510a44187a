"""Doing again what can be done again: a read, and a write that is conditional on it; and outlasting an absence."""

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

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
# How long whoever waits anyway waits for a server, too: long enough to replace one.
_ABSENCE_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 1.0


async def retry_transient(attempt: Callable[[], Awaitable[T]], *, attempts: int = 10) -> T:
    """The outcome of the first attempt that is answered for good.

    For what looks before it writes: after a conflict, a lost answer or a server in trouble the next attempt finds what
    became of the last one. What the server refuses is refused at once, and what never works raises in the end.
    """
    pause = _FIRST_PAUSE_SECONDS
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except KubeError as error:
            if not is_transient(error):
                raise
            log.info("trying again: %s", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
    return await attempt()


async def create_or_update(client: ApiClient, kind: Kind, wanted: Tree, field: str) -> bool:
    """Whether the object had to be created or changed. Only `field` is ours; labels and the like are not."""
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
    """Whether the same may work later: nobody answered, somebody was quicker, or the server is in trouble."""
    if isinstance(error, Unanswered | Conflict | AlreadyExists):
        return True
    return isinstance(error, ApiError) and (error.code >= 500 or error.code == 429)


class RetryThroughOutage:
    """Asks a server, and goes on asking while it is away, because it starts again or the way to it is broken.

    A server that has never answered is not waited for. `told` hears once of each absence, and how long it may last;
    several may ask at the same time.
    """

    def __init__(self, told: Callable[[str], None], limit_seconds: float = _ABSENCE_SECONDS) -> None:
        self._told = told
        self._limit_seconds = limit_seconds
        self._has_answered = False
        self._away_since: float | None = None

    async def __call__(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                answer = await ask()
            except KubeError as error:
                if not (self._has_answered and is_transient(error) and self._may_last(error)):
                    raise
            else:
                self._has_answered, self._away_since = True, None
                return answer
            await asyncio.sleep(_LOOK_SECONDS)

    def _may_last(self, error: KubeError) -> bool:
        now = asyncio.get_running_loop().time()
        if self._away_since is None:
            self._away_since = now
            self._told(f"{error}; waiting up to {self._limit_seconds / 60:g} min for it to come back")
        return now - self._away_since < self._limit_seconds
