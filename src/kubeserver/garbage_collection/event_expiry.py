"""The expiry of Events: they are kept for an hour, up to a maximum number."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import msgspec

from kubemachinery import meta, status, turns
from kubemachinery.clock import Clock
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import StoreKey
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
        dated: list[tuple[int, StoreKey]] = []
        async for entry in turns.in_turns(list(self._objects.collection(RESOURCE))):
            dated.append((_last_seen(entry), entry.key))
        dated.sort()
        limit = self._clock.now() - AGE_MAX
        excess = max(0, len(dated) - COUNT_MAX)
        await self._client.delete_all(key for index, (seen, key) in enumerate(dated) if seen < limit or index < excess)


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: Any = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: Any = None


class _Times(msgspec.Struct, frozen=True, rename="camel"):
    """The times of an Event, without what takes long to decode."""

    metadata: _Metadata
    series: _Series | None = None
    last_timestamp: Any = None
    event_time: Any = None


_read_times: Final = msgspec.json.Decoder(_Times).decode
# These times do not recur: thousands of them would replace those in the cache of `parse_time`.
_parse_uncached: Final = meta.parse_time.__wrapped__


def _last_seen(entry: ObjectEntry) -> int:
    times = _read_times(entry.body)
    observed = times.series.last_observed_time if times.series is not None else None
    found = 0
    for time in (observed, times.last_timestamp, times.event_time, times.metadata.creation_timestamp):
        try:
            found = max(found, _parse_uncached(time) if isinstance(time, str) else 0)
        except meta.TimeError:
            continue
    return found
