"""Events (`events.k8s.io/v1`): reported at once, written in the background; repetitions are counted in a `series`.

What counts as repeated is what client-go's recorder of this API compares, which Kueue uses: type, action, reason,
controller and the two objects with their revisions, but not the note. Of eight preemptions by one Workload there is one
Event with a count of eight and the note of the first. Recorders that stand for components of Kubernetes, which use the
older API, also compare the note.

Telling never waits and never fails. A server keeps every Event for an hour, so they are written at a bounded pace; a
rush uses up what has been saved. When half of that is gone, notes that another one makes redundant are left out, and
when the line is full, the oldest go; both are counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubemachinery import meta
from kubemachinery.client.client import ApiClient, RateLimiter
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

# Told one by one in a rush, admissions would cost the server twice.
_EVENTS_PER_SECOND: Final = 10.0
_EVENTS_AT_ONCE: Final = 100
# What waits longer than so many others is old news.
_LINE_MAX: Final = 300
# How long the same note counts as the same story, and how often its count is written.
_SERIES_SECONDS: Final = 360.0
_SERIES_WRITE_SECONDS: Final = 30.0
_REMEMBERED_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class EventReference:
    """The object that an event is about."""

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


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """Something worth telling."""

    regarding: EventReference
    type: str
    reason: str
    note: str
    controller: str
    action: str = ""
    related: EventReference | None = None
    # Left out when there is a rush: another note about the same object says it as well.
    redundant: bool = False
    # Written before all others, and never left out: it says what the others only repeat.
    important: bool = False


@dataclass(slots=True)
class _Series:
    name: str
    namespace: str
    last: float
    count: int = 1
    written: int = 1
    written_at: float = 0.0
    last_time: int = 0


@dataclass(slots=True)
class EventRecorder:
    """Notes in, Events out."""

    client: ApiClient
    clock: Clock
    instance: str
    # Whether Events with different notes are different, as with the recorder of core/v1.
    compares_notes: bool = False
    dropped: int = 0
    _pace: RateLimiter = field(default_factory=lambda: RateLimiter(_EVENTS_PER_SECOND, _EVENTS_AT_ONCE))
    _line: asyncio.Queue[PendingEvent] = field(default_factory=asyncio.Queue)
    _important: deque[PendingEvent] = field(default_factory=deque)  # only while others wait in the line
    _writing: int = 0
    _remembered: OrderedDict[tuple[object, ...], _Series] = field(default_factory=OrderedDict)
    _last_stamp: int = 0

    def emit(self, note: PendingEvent) -> None:
        """Have it written soon."""
        waiting = self._line.qsize()
        if note.important and waiting:
            self._important.append(note)
            return
        if note.redundant and self._pace.left - waiting < _EVENTS_AT_ONCE / 2:
            self.dropped += 1
            return
        if waiting >= _LINE_MAX:
            self._line.get_nowait()
            self.dropped += 1
        self._line.put_nowait(note)

    @property
    def idle(self) -> bool:
        """Whether all that was told is written."""
        return self._line.empty() and not self._writing

    async def run(self, writers: int = 4) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(self._write_all())

    async def _write_all(self) -> None:
        while True:
            next_in_line = await self._line.get()
            self._writing += 1
            try:
                while self._important:
                    await self._try_to_write(self._important.popleft())
                await self._try_to_write(next_in_line)
            finally:
                self._writing -= 1

    async def _try_to_write(self, note: PendingEvent) -> None:
        try:
            await self._write(note)
        except KubeError as error:
            # An Event is a courtesy: no decision depends on it, and no caller waits for it.
            self.dropped += 1
            log.debug("event %s on %s not written: %s", note.reason, note.regarding.name, error)

    async def _write(self, note: PendingEvent) -> None:
        now = asyncio.get_running_loop().time()
        key = self._series_key(note)
        series = self._remembered.get(key)
        if series is not None and now - series.last <= _SERIES_SECONDS:
            series.last, series.last_time = now, self.clock.now()
            series.count += 1
            if series.written == 1 or now - series.written_at >= _SERIES_WRITE_SECONDS:
                await self._count(series, now)
            return
        namespace = note.regarding.namespace or "default"
        name = f"{note.regarding.name[:230]}.{self._stamp():x}"
        # Remembered before it is written: two writers must not both tell the first of the same thing.
        self._remembered[key] = _Series(name, namespace, now, written_at=now)
        self._remembered.move_to_end(key)
        while len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        tree = self._tree(note, name, namespace)
        await self._pace.take()
        await self.client.create(EVENTS, tree)

    def _series_key(self, note: PendingEvent) -> tuple[object, ...]:
        """What two Events of one series have in common. An important one is not counted away with others."""
        keeps_note = self.compares_notes or note.important
        # With the note, a new revision alone makes no new Event.
        about = replace(note.regarding, resource_version="") if keeps_note else note.regarding
        text = note.note if keeps_note else ""
        return (about, note.related, note.type, note.action or note.reason, note.reason, note.controller, text)

    async def _count(self, series: _Series, now: float) -> None:
        series.written, series.written_at = series.count, now
        patch = {"series": {"count": series.count, "lastObservedTime": meta.format_micro_time(series.last_time)}}
        await self._pace.take()
        try:
            await self.client.patch(EVENTS, series.name, patch, series.namespace)
        except ApiError as error:
            log.debug("the count of event %s not written: %s", series.name, error)

    def _stamp(self) -> int:
        """A number that no earlier event of this recorder has, close to the time."""
        self._last_stamp = max(self.clock.now(), self._last_stamp + 1)
        return self._last_stamp

    def _tree(self, note: PendingEvent, name: str, namespace: str) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": meta.format_micro_time(self.clock.now()),
            "reportingController": note.controller,
            "reportingInstance": self.instance,
            "action": note.action or note.reason,
            "reason": note.reason,
            "regarding": note.regarding.tree(),
            "note": truncate_note(note.note),
            "type": note.type,
        }
        if note.related is not None:
            tree["related"] = note.related.tree()
        return tree


def truncate_note(text: str) -> str:
    """Text as long as an Event may carry."""
    return text if len(text) <= MAX_NOTE_LENGTH else text[: MAX_NOTE_LENGTH - len(_CUT)] + _CUT
