"""The expiry of Events: they are kept for an hour, up to a maximum number."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from kubemachinery import meta, status
from kubemachinery.clock import Clock
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.objects import Objects
from kubeserver.write.loopback_client import LoopbackClient

log = logging.getLogger(__name__)

RESOURCE: Final = "events"
LOOK_SECONDS: Final = 60.0
AGE_MAX: Final = meta.HOUR
COUNT_MAX: Final = 20_000


class EventExpiry:
    """Deletes expired Events."""

    def __init__(self, objects: Objects, client: LoopbackClient, clock: Clock) -> None:
        self._objects = objects
        self._client = client
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.drop()
            except status.StatusError as error:
                log.debug("old events will be dropped later: %s", error)

    async def drop(self) -> None:
        dated = sorted((_last_seen(entry), entry.key) for entry in self._objects.collection(RESOURCE))
        limit = self._clock.now() - AGE_MAX
        excess = max(0, len(dated) - COUNT_MAX)
        await self._client.delete_all(key for index, (seen, key) in enumerate(dated) if seen < limit or index < excess)


def _last_seen(entry: ObjectEntry) -> int:
    tree = msgspec.json.decode(entry.body)
    series = tree.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        tree.get("lastTimestamp"),
        tree.get("eventTime"),
        tree["metadata"].get("creationTimestamp"),
    )
    found = 0
    for time in times:
        try:
            found = max(found, meta.parse_time(time) if isinstance(time, str) else 0)
        except meta.TimeError:
            continue
    return found
