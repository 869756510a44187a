"""Compares the scheduler's state from time to time with one that is rebuilt from the objects: both must be equal.

A state that is updated incrementally can drift, unnoticed until quota is given twice or never. A difference is a bug of
this program; it is logged and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kubemachinery import turns
from kubemachinery.clock import Clock
from pykueue.controllers.informers import Informers
from pykueue.state import audit
from pykueue.state.world import World

log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 60.0
# A Workload takes less than 0.1 ms: under one hundredth of the time of a processor.
_WORKLOADS_PER_SECOND: Final = 100


class StateAuditor:
    def __init__(
        self, informers: Informers, world: World, empty: Callable[[], World], clock: Clock, count: Callable[[int], None]
    ) -> None:
        self._informers = informers
        self._world = world
        self._empty = empty
        self._clock = clock
        self._count = count

    async def run(self) -> None:
        """Audit every minute until cancelled; with many Workloads less often, so that it takes little time in all."""
        while True:
            await asyncio.sleep(max(_EVERY_SECONDS, len(self._informers.workloads) / _WORKLOADS_PER_SECOND))
            await self.look()

    async def look(self) -> list[str] | None:
        """Return the differences, which are logged and counted; None if something changed meanwhile."""
        before = self._moment()
        rebuilt, now = self._empty(), self._clock.now()
        for informer in (*self._informers.scheduling, self._informers.workloads):
            async for thing in turns.in_turns(informer.unordered()):
                rebuilt.put(thing, now)
        if self._moment() != before:
            return None
        rebuilt.set_windows(self._world.windows.schedules, now)
        rebuilt.settle(now)
        self._world.settle(now)
        found: list[str] = []
        async for difference in turns.in_turns(audit.compared(self._world, rebuilt)):
            if self._moment() != before:
                return None
            if difference is not None:
                found.append(difference)
        self._count(len(found))
        for difference in found:
            log.error("the scheduler's state differs from the objects: %s", difference)
        return found

    def _moment(self) -> tuple[int, ...]:
        """Return a mark that changes with every event and cycle."""
        watched = (*self._informers.shaping, self._informers.workloads)
        return (self._world.cycles, self._world.assumed_count, *(informer.revision for informer in watched))
