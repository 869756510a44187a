"""The events of live watches over the network, sent in rounds [AS50].

What a change costs its writer must not grow with the number of watches. So events are not sent one by one: a round
sends each watch all that is pending for it, encoded once for all the watches with the same selection, and after a round
the next one waits twice as long as the last one worked, but no longer than `PAUSE_MAX_SECONDS`. A round of one watch
takes microseconds, so its events come at once. Work is measured in processor time: a round that other processes
interrupted has cost no more, and a pause after it would only let events of several writes come together.

Clients create one object after another and expect controllers to see them in this order, although watches of several
resources promise none: a Namespace before the Job in it. So a round comes last to the resource that changed last.

A watch whose client does not take its events is left out of the rounds until it does; it blocks no other watch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, Protocol

from kubemachinery.http_messages import SharedChunk
from kubeserver.storage.entries import StoreChange
from kubeserver.storage.objects import Objects

log = logging.getLogger(__name__)

# The pause after a round, as a multiple of the processor time of the round; and the longest pause.
PAUSE_FACTOR: Final = 2.0
PAUSE_MAX_SECONDS: Final = 0.1
# The processor time that a round takes before it lets the loop continue: requests are answered in between.
SLICE_SECONDS: Final = 0.002
# Encoded events that are kept for watches that are behind. Beyond that they are encoded again.
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024


class EncodedEvents(NamedTuple):
    """The events of one selection from one revision until another, as they are sent; None: there are none."""

    until: int
    chunk: SharedChunk | None


class LiveWatch(Protocol):
    """A watch that has received everything until `delivered`, and receives what follows in rounds."""

    delivered: int
    # Rounds leave it out: its client takes nothing at present, or its own task is writing.
    is_held: bool

    @property
    def resource(self) -> str: ...

    @property
    def selection(self) -> Hashable:
        """Watches of one resource with an equal selection receive the same bytes for the same changes."""

    def encode(self, until: int) -> EncodedEvents:
        """Return the next events after `delivered`: all until a revision, or as many as fit into one chunk."""

    def send(self, chunk: SharedChunk) -> bool:
        """Send events without waiting; False: the client takes no more at present."""

    def interrupt(self) -> None:
        """Leave the rounds: the watch continues by itself, and finds there what went wrong."""


class FanOut:
    """The rounds of one server."""

    def __init__(
        self,
        objects: Objects,
        clock: Callable[[], float] = time.perf_counter,
        processor_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._processor_time = processor_time
        self._live: dict[str, dict[LiveWatch, None]] = {}
        # By resource and selection, then by the revision after which the events begin.
        self._encoded: dict[tuple[str, Hashable], dict[int, EncodedEvents]] = {}
        # The resources with changes that no round has begun to send, in the order of their last changes.
        self._due: dict[str, None] = {}
        self._round: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0

    def join(self, watch: LiveWatch) -> None:
        """Send a watch everything after its `delivered`, which is the present."""
        live = self._live.setdefault(watch.resource, {})
        if not live:
            self._objects.collection(watch.resource).listeners[self._notice] = None
        live[watch] = None

    def leave(self, watch: LiveWatch) -> None:
        live = self._live.get(watch.resource, {})
        live.pop(watch, None)
        if not live:
            self._live.pop(watch.resource, None)
            self._due.pop(watch.resource, None)
            self._objects.collection(watch.resource).listeners.pop(self._notice, None)
        if not self._live and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _notice(self, change: StoreChange) -> None:
        self.request(change.entry.key.resource)

    def request(self, resource: str) -> None:
        """Send what is pending for the watches of a resource in the next round."""
        self._due.pop(resource, None)
        self._due[resource] = None
        if self._round is None and self._timer is None:
            self._schedule()

    def _schedule(self) -> None:
        loop, pause = asyncio.get_running_loop(), self._not_before - self._clock()
        if pause > 0:
            self._timer = loop.call_later(pause, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        self._timer = None
        self._round = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            worked = await self._send_all()
            self._not_before = self._clock() + min(worked * PAUSE_FACTOR, PAUSE_MAX_SECONDS)
        finally:
            self._round = None
        if self._due:
            self._schedule()

    async def _send_all(self) -> float:
        """Send each watch what is pending for it; return its processor time, without that of other tasks."""
        # One end for all: watches that were together before the round are together after it, and share what is encoded.
        until = self._objects.revision
        watches = [watch for resource in self._due for watch in self._live.get(resource, ())]
        self._due.clear()
        worked, since = 0.0, self._processor_time()
        for watch in watches:
            self._deliver(watch, until, self._shared)
            if (now := self._processor_time()) - since > SLICE_SECONDS:
                worked += now - since
                await asyncio.sleep(0)
                since = self._processor_time()
        self._forget(watches, until)
        return worked + self._processor_time() - since

    def deliver(self, watch: LiveWatch) -> None:
        """Send one watch what is pending for it now, outside of the rounds: before a bookmark, and at its end."""
        self._deliver(watch, self._objects.revision, lambda watch, until: watch.encode(until))

    def _deliver(self, watch: LiveWatch, until: int, encode: Callable[[LiveWatch, int], EncodedEvents]) -> None:
        if watch not in self._live.get(watch.resource, ()):
            return
        try:
            while watch.delivered < until and not watch.is_held:
                events = encode(watch, until)
                if events.chunk is not None and not watch.send(events.chunk):
                    return
                watch.delivered = events.until
        except Exception as error:
            # The watch itself meets the same error again and answers for it; the others receive their events.
            log.debug("a watch of %s leaves the rounds: %s", watch.resource, error)
            watch.interrupt()

    def _shared(self, watch: LiveWatch, until: int) -> EncodedEvents:
        shared = self._encoded.setdefault((watch.resource, watch.selection), {})
        events = shared.get(watch.delivered)
        if events is None:
            events = shared[watch.delivered] = watch.encode(until)
        return events

    def _forget(self, watches: list[LiveWatch], until: int) -> None:
        """Keep encoded events only for the watches that have not received them."""
        behind: dict[tuple[str, Hashable], int] = {}
        for watch in watches:
            if watch.delivered < until and watch in self._live.get(watch.resource, ()):
                place = (watch.resource, watch.selection)
                behind[place] = min(watch.delivered, behind.get(place, until))
        self._encoded = {
            place: {since: events for since, events in self._encoded[place].items() if since >= first}
            for place, first in behind.items()
            if place in self._encoded
        }
        kept = (events.chunk for row in self._encoded.values() for events in row.values())
        if sum(len(chunk.data) for chunk in kept if chunk is not None) > KEPT_BYTES_MAX:
            self._encoded = {}
