"""When somebody sets the clock, whatever waits for a time by it is looked at anew.

Else a back-off that began on a clock that was an hour slow would last an hour longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubemachinery.client.controller import Controller
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND

# Often, so that a clock that is set wrong and soon right again is seen to have been wrong: somebody may have asked it.
_LOOK_SECONDS: Final = 1.0
_ERROR_SECONDS: Final = 1.0


class ClockWatch:
    def __init__(self, clock: Clock, loops: Sequence[Controller[Any]], wake: Callable[[], None]) -> None:
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
