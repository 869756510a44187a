"""Re-evaluates everything that waits for a time when the system clock is set.

Delays are measured by the monotonic clock: it does not follow a clock that is set, and stands still while the machine
is suspended. Otherwise a backoff that began on a clock that was an hour slow would last an hour longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubemachinery.client.controller import Controller
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND

# Short, so that a clock that is wrong for a moment only is noticed: a time may have been computed from it.
_LOOK_SECONDS: Final = 1.0
_ERROR_SECONDS: Final = 1.0


class ClockWatch:
    """Queues every delayed key of some controllers when the clock was set, then calls `wake`."""

    def __init__(self, clock: Clock, loops: Sequence[Controller[Any]], wake: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._loops = loops
        self._wake = wake

    async def run(self) -> None:
        ahead = self._ahead_seconds()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if abs(self._ahead_seconds() - ahead) > _ERROR_SECONDS:
                ahead = self._ahead_seconds()
                for loop in self._loops:
                    loop.queue.flush_delayed()
                self._wake()

    def _ahead_seconds(self) -> float:
        return self._clock.now() / SECOND - self._clock.monotonic()
