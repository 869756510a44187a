"""The Event recorder (`events.k8s.io/v1`): Events are written in the background, repetitions counted in a `series`.

Two Events are of one series when the fields are equal that client-go's recorder of this API compares, which Kueue uses:
type, action, reason, controller and the two objects with their revisions, but not the note. Eight preemptions by one
Workload give one Event with a count of eight and the note of the first. Recorders that stand in for components of
Kubernetes, which use the older API, also compare the note.

`emit` never waits and never fails. A server keeps every Event for an hour, so they are written at a limited rate with a
burst. When less than half of the burst is left, redundant Events are dropped; when the queue is full, the oldest
routine Event is, or the oldest of all if none is routine. While writes that are more urgent take what the server can
do, each Event waits until `may_write` returns that it may be written; while `leaves_out` returns that they take it for
long, routine Events are dropped, and the burst is used up. Dropped Events are counted in `dropped`. The time of an
Event is that of `emit`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.client.client import METADATA, ApiClient, RateLimiter
from kubemachinery.client.errors import ApiError, KubeError
from kubemachinery.clock import Clock
from kubemachinery.kinds import Kind, Scope, Version

log = logging.getLogger(__name__)

EVENTS: Final = Kind(
    group="events.k8s.io",
    kind="Event",
    plural="events",
    scope=Scope.NAMESPACED,
    versions=(Version("v1", storage=True),),
)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
MAX_NOTE_LENGTH: Final = 1024
_CUT: Final = " ..."

# Written without a limit, the Events of a burst of admissions would double the load of the server.
_EVENTS_PER_SECOND: Final = 10.0
_EVENTS_AT_ONCE: Final = 100
# Behind more Events than this, the oldest is dropped.
_QUEUE_MAX: Final = 300
# How often an Event that gives way to other writes asks whether it may be written.
_LOOK_SECONDS: Final = 0.1
# How long an Event stays in its series after the last repetition, and how often the count is written.
_SERIES_SECONDS: Final = 360.0
_SERIES_WRITE_SECONDS: Final = 30.0
_SERIES_MAX: Final = 4096

_encode: Final = msgspec.json.Encoder().encode


class EventReference(msgspec.Struct, frozen=True):
    """The object that an Event regards."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    def tree(self) -> dict[str, str]:
        found = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in found.items() if value}


class PendingEvent(msgspec.Struct, frozen=True):
    """An Event to be written."""

    regarding: EventReference
    type: str
    reason: str
    note: str
    controller: str
    action: str = ""
    related: EventReference | None = None
    # Dropped under load: another Event of the same object contains the same information.
    redundant: bool = False
    # Written before all others and never dropped: the others only repeat it.
    important: bool = False
    # The status of its object contains the same: written after all others, and dropped before them.
    routine: bool = False


class _Emitted(NamedTuple):
    event: PendingEvent
    time: int


class _Series(msgspec.Struct, gc=False):
    """What is kept of a series, for some minutes after its last Event: the Event that counts it."""

    name: str
    namespace: str
    last: float
    count: int = 1
    written: int = 1
    written_at: float = 0.0
    last_time: int = 0


class EventRecorder(msgspec.Struct):
    """Writes Events in the background."""

    client: ApiClient
    clock: Clock
    instance: str
    # Whether Events with different notes are different, as with the recorder of core/v1.
    compares_notes: bool = False
    # Whether an Event may be written beside writes that are more urgent; it is then counted as written.
    may_write: Callable[[], bool] = lambda: True
    # Whether writes that are more urgent leave no place for routine Events.
    leaves_out: Callable[[], bool] = lambda: False
    dropped: int = 0
    _rate_limiter: RateLimiter = msgspec.field(default_factory=lambda: RateLimiter(_EVENTS_PER_SECOND, _EVENTS_AT_ONCE))
    # In the order in which they are written.
    _important: deque[_Emitted] = msgspec.field(default_factory=deque)
    _others: deque[_Emitted] = msgspec.field(default_factory=deque)
    _routine: deque[_Emitted] = msgspec.field(default_factory=deque)
    _emitted: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _writing: int = 0
    # By `_series_key`; those of the latest Events last.
    _series: OrderedDict[bytes, _Series] = msgspec.field(default_factory=OrderedDict)
    _last_stamp: int = 0

    def emit(self, event: PendingEvent) -> None:
        """Queue the Event to be written."""
        if event.routine and self.leaves_out():
            self.dropped += 1 + len(self._routine)
            self._routine.clear()
            self._rate_limiter.use_up()
            return
        if not event.important:
            waiting = len(self._others) + len(self._routine)
            if event.redundant and self._rate_limiter.left - waiting < _EVENTS_AT_ONCE / 2:
                self.dropped += 1
                return
            if waiting >= _QUEUE_MAX:
                self.dropped += 1
                if event.routine and not self._routine:
                    return
                (self._routine or self._others).popleft()
        queue = self._important if event.important else self._routine if event.routine else self._others
        queue.append(_Emitted(event, self.clock.now()))
        self._emitted.set()

    @property
    def idle(self) -> bool:
        """Whether all emitted Events are written."""
        return not self._waits and not self._writing

    @property
    def _waits(self) -> bool:
        return bool(self._important or self._others or self._routine)

    async def run(self, writers: int = 1) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(self._write_all())

    async def _write_all(self) -> None:
        while True:
            while not self._waits:
                self._emitted.clear()
                await self._emitted.wait()
            if not self._important and not self.may_write():
                # What `may_write` depends on is the owner's; it has no event to wait for.
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            self._writing += 1
            try:
                await self._try_to_write((self._important or self._others or self._routine).popleft())
            finally:
                self._writing -= 1

    async def _try_to_write(self, emitted: _Emitted) -> None:
        try:
            await self._write(emitted)
        except KubeError as error:
            # No decision depends on an Event and no caller waits for it: drop it.
            self.dropped += 1
            event = emitted.event
            log.debug("event %s on %s not written: %s", event.reason, event.regarding.name, error)

    async def _write(self, emitted: _Emitted) -> None:
        event = emitted.event
        now = asyncio.get_running_loop().time()
        key = self._series_key(event)
        series = self._series.get(key)
        if series is not None and now - series.last <= _SERIES_SECONDS:
            series.last, series.last_time = now, emitted.time
            series.count += 1
            self._series.move_to_end(key)
            if series.written == 1 or now - series.written_at >= _SERIES_WRITE_SECONDS:
                await self._count(series, now)
            return
        namespace = event.regarding.namespace or "default"
        name = f"{event.regarding.name[:230]}.{self._stamp():x}"
        # Stored before it is written: two writers must not both create the first Event of a series.
        self._series[key] = _Series(name, namespace, now, written_at=now)
        self._series.move_to_end(key)
        self._drop_series(now)
        tree = self._tree(emitted, name, namespace)
        await self._rate_limiter.take()
        await self.client.create(EVENTS, tree, accept=METADATA)

    def _drop_series(self, now: float) -> None:
        while self._series:
            oldest = next(iter(self._series.values()))
            if len(self._series) <= _SERIES_MAX and now - oldest.last <= _SERIES_SECONDS:
                return
            self._series.popitem(last=False)

    def _series_key(self, event: PendingEvent) -> bytes:
        """A digest of the fields that Events of one series share: thousands of series are kept. Important Events also
        compare the note, so that none is lost."""
        keeps_note = self.compares_notes or event.important
        # Where the note is compared, a new revision alone starts no new series.
        about = replace(event.regarding, resource_version="") if keeps_note else event.regarding
        text = event.note if keeps_note else ""
        shared = (about, event.related, event.type, event.action or event.reason, event.reason, event.controller, text)
        return blake2b(_encode(shared), digest_size=16).digest()

    async def _count(self, series: _Series, now: float) -> None:
        series.written, series.written_at = series.count, now
        patch = {"series": {"count": series.count, "lastObservedTime": meta.format_micro_time(series.last_time)}}
        await self._rate_limiter.take()
        try:
            await self.client.patch_revision(EVENTS, series.name, patch, series.namespace)
        except ApiError as error:
            log.debug("the count of event %s not written: %s", series.name, error)

    def _stamp(self) -> int:
        """A number close to the current time, unique among the Events of this recorder."""
        self._last_stamp = max(self.clock.now(), self._last_stamp + 1)
        return self._last_stamp

    def _tree(self, emitted: _Emitted, name: str, namespace: str) -> dict[str, Any]:
        event = emitted.event
        tree: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": meta.format_micro_time(emitted.time),
            "reportingController": event.controller,
            "reportingInstance": self.instance,
            "action": event.action or event.reason,
            "reason": event.reason,
            "regarding": event.regarding.tree(),
            "note": truncate_note(event.note),
            "type": event.type,
        }
        if event.related is not None:
            tree["related"] = event.related.tree()
        return tree


def truncate_note(text: str) -> str:
    """The text, cut to the maximum length of an Event's note."""
    return text if len(text) <= MAX_NOTE_LENGTH else text[: MAX_NOTE_LENGTH - len(_CUT)] + _CUT
