"""Turns on an event loop: tasks with much to do let the loop continue every few milliseconds.

All such tasks of a loop share one turn, so that together they do not block it for longer. On a virtual clock, whose
time stands still between two iterations of the loop, a turn is never used up; `limit` changes that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

TURN_SECONDS: Final = 0.005

T = TypeVar("T")


class Turn:
    """The time since its loop last continued, as far as tasks have asked."""

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self._seconds = seconds
        self._since: float | None = None

    async def end_if_used_up(self) -> None:
        """Let the loop continue if it was blocked for long enough."""
        loop = asyncio.get_running_loop()
        if self._since is None:
            self._since = loop.time()
            loop.call_soon(self._continued)
        elif loop.time() - self._since > self._seconds:
            await asyncio.sleep(0)

    def _continued(self) -> None:
        self._since = None


# A turn does not refer to its loop: a loop that is closed and not used any more is freed.
_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turn]] = WeakKeyDictionary()


def current() -> Turn:
    """Return the turn of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _turns.get(loop)
    if found is None:
        found = _turns[loop] = Turn()
    return found


def limit(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Set how long the tasks of a loop may block it; a negative number makes them let it continue whenever they can."""
    _turns[loop] = Turn(seconds)


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; between them, let the loop continue when the turn is used up."""
    turn = current()
    for item in items:
        yield item
        await turn.end_if_used_up()
