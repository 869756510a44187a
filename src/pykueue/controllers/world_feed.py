"""Puts API objects into the scheduler's state. An object that raises an exception is logged and left out."""

from __future__ import annotations

import logging
from typing import Any

from kubemachinery.client.informer import ObjectKey
from kubemachinery.clock import Clock
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.state.world import World

log = logging.getLogger(__name__)


class WorldFeed:
    def __init__(self, world: World, writer: WorkloadWriter, clock: Clock) -> None:
        self._world = world
        self._writer = writer
        self._clock = clock

    def put(self, key: ObjectKey, thing: Any) -> None:
        """Put an object that was created or changed."""
        try:
            self._world.put(thing, self._clock.now())
        except Exception:
            log.exception("%s %s: left out", type(thing).__name__, key)

    def put_current(self, key: ObjectKey) -> None:
        """Put the newest version of a Workload that this process has, if there is one."""
        current = self._writer.current(key)
        if current is not None:
            self.put(key, current)


def key_of(name: str) -> ObjectKey:
    """Return the key of a Workload that the scheduler's state names `namespace/name`."""
    namespace, _, name = name.rpartition("/")
    return ObjectKey(namespace, name)
