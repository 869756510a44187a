"""An event loop without waiting: when nothing is ready, its time jumps to the next timer.

Everything that waits by the loop's own time, which is everything in this program, goes through an hour in a moment.
There are no sockets, no signals and no threads, so what happens next depends on nothing but what happened before.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pykueue.api.meta import SECOND

# When the stories begin; any moment would do, as long as it is always the same.
BEGINNING: Final = 1_900_000_000 * SECOND
# A system that does this many things without a moment passing goes round in circles.
_TURNS_MAX: Final = 200_000


class Stuck(Exception):
    """Nothing will ever happen again, or time does not pass any more."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Time that passes only when nobody has anything to do."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._selector = _Jump(self)

    def time(self) -> float:
        return self._moment

    def jump(self, seconds: float | None) -> None:
        """Nothing is ready for so long: go to the moment when something is."""
        timers: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - unknown to the type checker
        if seconds is None:
            raise Stuck("nobody is ready, and nobody waits for a time")
        if timers:
            self._moment = max(self._moment, timers[0].when())

    def _process_events(self, events: list[Any]) -> None:
        """There are no files to be ready."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class _Jump:
    """Stands where a loop asks the system what is ready."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._turns = 0
            self._loop.jump(timeout)
        else:
            self._turns += 1
            if self._turns > _TURNS_MAX:
                raise Stuck(f"{_TURNS_MAX} turns of the loop at second {self._loop.time()}")
        return []


class VirtualClock:
    """The clock that reads such a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> int:
        return BEGINNING + round(self._loop.time() * 1_000_000) * 1_000

    def monotonic(self) -> float:
        return self._loop.time()
