"""The memory is asked now and then whether it still says what the objects say: one built anew must equal it.

A memory that is kept up by differences can drift, and nobody would notice until quota is given twice or never. A
difference is a fault of this program; it is told in the log, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kubemachinery.clock import Clock
from pykueue.controllers.informers import Informers
from pykueue.state import audit
from pykueue.state.world import World

log = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 60.0
_AT_A_TIME: Final = 200


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
        """Look every minute, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await self.look()

    async def look(self) -> list[str] | None:
        """The differences, told and counted; None when something changed meanwhile, so that nothing can be said."""
        before = self._moment()
        rebuilt, now = self._empty(), self._clock.now()
        for informer in (*self._informers.scheduling, self._informers.workloads):
            for number, thing in enumerate(list(informer.values())):
                rebuilt.put(thing, now)
                if number % _AT_A_TIME == _AT_A_TIME - 1:
                    await asyncio.sleep(0)
        if self._moment() != before:
            return None
        rebuilt.settle(now)
        self._world.settle(now)
        found = audit.differences(self._world, rebuilt)
        self._count(len(found))
        for difference in found:
            log.error("the memory differs from the objects: %s", difference)
        return found

    def _moment(self) -> tuple[int, ...]:
        """Everything that has been seen and decided so far."""
        watched = (*self._informers.shaping, self._informers.workloads)
        return (self._world.cycles, self._world.assumed_count, *(informer.revision for informer in watched))
