"""Publishes planned starts: the annotation of the Workload, Events and metrics (gate PlannedBackfill, rules BF).

The annotation keeps a date over a restart. It is written when a start is planned or withdrawn, and when its date moves
by more than a minute and more than a tenth of the time that is left ([BF10]).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.client.priority import LOW
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import backfill, kueue
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WORKLOAD, WorkloadWriter
from pykueue.controllers.world_feed import key_of
from pykueue.core.planned_starts import WithdrawalCause, differs_noticeably
from pykueue.lifecycle import states
from pykueue.lifecycle.workload_changes import EmitEvent, EventType
from pykueue.observe.events import SCHEDULER, Reporter
from pykueue.state.planning import PlanChange, PlanEvent
from pykueue.state.world import World

_EVENT_PAUSE: Final[Nanoseconds] = 60 * SECOND
_AFTER_RESERVATION_SECONDS: Final = 1.0

_CAUSES: Final = {
    WithdrawalCause.AHEAD_IN_ORDER: "a workload ahead of it in the order of its ClusterQueue takes precedence",
    WithdrawalCause.NOMINAL_USE: "another ClusterQueue uses its nominal quota",
    WithdrawalCause.PREEMPTION: "a workload was admitted by preemption",
    WithdrawalCause.QUOTA_CHANGED: "quota or flavors changed",
    WithdrawalCause.LIMIT_EXCEEDED: "a workload still holds quota after its run-time limit",
    WithdrawalCause.OWNER_CHANGED: "the workload itself changed",
    WithdrawalCause.USAGE_CHANGED: "usage changed outside of a scheduling cycle",
}


class PlannedStartController:
    """Keys are Workloads. The date is read from the scheduler's state, so that a retry writes the newest."""

    def __init__(
        self,
        client: ApiClient,
        world: World,
        informers: Informers,
        writer: WorkloadWriter,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._world = world
        self._informers = informers
        self._writer = writer
        self._clock = clock
        # When and with which date the last Event was emitted, and the change that waits for the end of the pause.
        self._emitted: dict[str, tuple[Nanoseconds, Nanoseconds | None]] = {}
        self._waiting: dict[str, PlanChange] = {}
        self.loop: Controller[ObjectKey] = Controller("planned-start", self._reconcile, rng)
        # Called with every change, for the metrics.
        self.on_change: list[Callable[[PlanChange], None]] = []
        informers.workloads.add_handler(self._seen)

    def publish(self, change: PlanChange) -> None:
        """Emit the Event of a change, and write the annotation.

        There is at most one Event per Workload and minute. The last change of a minute is emitted at its end: without
        it, the last Event would promise a date that has moved."""
        for observer in self.on_change:
            observer(change)
        if change.event is PlanEvent.BACKFILLED:
            return
        key = key_of(change.workload)
        self.loop.add(key, priority=LOW)
        if change.event is PlanEvent.KEPT:
            self._forget(change.workload)
            self._emit(change)
        elif self._pause(change.workload):
            self._waiting[change.workload] = _merged(self._waiting.get(change.workload), change)
        else:
            self._emitted[change.workload] = self._clock.now(), change.date
            self._emit(change)

    def _emit(self, change: PlanChange) -> None:
        workload = self._writer.current(key_of(change.workload))
        if workload is not None:
            self._writer.emit(workload, event_of(change), SCHEDULER)

    def _forget(self, workload: str) -> None:
        self._emitted.pop(workload, None)
        self._waiting.pop(workload, None)

    def _pause(self, workload: str) -> Nanoseconds:
        """The time until the next Event of a Workload may be emitted."""
        if workload not in self._emitted:
            return 0
        pause = self._emitted[workload][0] + _EVENT_PAUSE - self._clock.now()
        return pause if 0 < pause <= _EVENT_PAUSE else 0  # longer if the clock was put back since [CS6]

    def _emit_waiting(self, workload: str) -> float | None:
        """Emit the change that waits, or return the seconds until it can be."""
        if workload not in self._waiting:
            return None
        if pause := self._pause(workload):
            return pause / SECOND
        change = self._waiting.pop(workload)
        shown = self._emitted[workload][1]
        self._emitted[workload] = self._clock.now(), change.date
        if change.date is not None and shown is not None and change.date < shown:
            change = change._replace(cause=None)  # only a later start has one
        if change.event is PlanEvent.WITHDRAWN or change.date != shown:
            self._emit(change)
        return None

    def _seen(self, change: InformerEvent[kueue.Workload]) -> None:
        if change.new is None:
            self._forget(str(change.key))
        elif change.initial and backfill.PLANNED_START in change.new.metadata.annotations:
            self.loop.add(change.key, priority=LOW)  # it may have been admitted, or lost its plan, meanwhile

    async def _reconcile(self, key: ObjectKey) -> float | None:
        workload = self._informers.workloads.get(key.name, key.namespace)
        if workload is None:
            return None
        if self._world.is_assumed(str(key)):
            # Its reservation is being written on the condition that nothing else is; and if it is refused, the
            # annotation has the date to plan it for again.
            return _AFTER_RESERVATION_SECONDS
        await self._write(workload, key)
        return self._emit_waiting(str(key))

    async def _write(self, workload: kueue.Workload, key: ObjectKey) -> None:
        """Write the date to the annotation, or take it away, if it is outdated."""
        plan = self._world.planned_start(str(key))
        date = plan.date if plan is not None else None
        shown = workload.metadata.annotations.get(backfill.PLANNED_START)
        if not _is_outdated(shown, date, self._clock.now()):
            return
        patch = {
            "metadata": {
                "resourceVersion": workload.metadata.resource_version,
                "annotations": {backfill.PLANNED_START: None if date is None else meta.format_time(date)},
            }
        }
        await self._client.patch_revision(WORKLOAD, key.name, patch, key.namespace)


def _merged(before: PlanChange | None, change: PlanChange) -> PlanChange:
    """The change that is reported for two within a minute: the newer one, with the cause of the older one if it has
    none. A start that was withdrawn and planned again has moved."""
    if before is None:
        return change
    event = PlanEvent.REPLANNED if change.event is PlanEvent.PLANNED else change.event
    return change._replace(event=event, cause=change.cause or before.cause)


def _is_outdated(shown: str | None, date: Nanoseconds | None, now: Nanoseconds) -> bool:
    """Whether the annotation is to be written: there is another date, and the difference matters."""
    before = states.moment(shown)
    if date is None or before is None:
        return (shown is None) is not (date is None)
    return differs_noticeably(date, before, now)


def event_of(change: PlanChange) -> EmitEvent:
    """Return the Event of a change of a planned start."""
    word = "expected" if change.is_expected else "planned"
    when = f"{word} for {meta.format_time(change.date)} at the latest" if change.date is not None else "not dated"
    match change.event:
        case PlanEvent.KEPT:
            reason, note = "PlanKept", "The workload got its quota; later workloads did not delay it"
        case PlanEvent.PLANNED:
            undated = "" if change.date is not None else ": a workload in its way has no run-time limit"
            reason, note = "StartPlanned", f"The start of the workload is {when}{undated}"
        case PlanEvent.WITHDRAWN:
            reason, note = "StartReplanned", "The workload has no planned start any more"
        case _:
            reason, note = "StartReplanned", f"The start of the workload is {when}"
    because = f", because {_CAUSES[change.cause]}" if change.cause is not None else ""
    return EmitEvent(EventType.NORMAL, reason, note + because)


class BackfillAnnotations:
    """Emits an Event on a ClusterQueue whose backfill annotations are invalid and count as absent. The webhook refuses
    them; a ClusterQueue may have been created without it."""

    def __init__(self, informers: Informers, reporter: Reporter) -> None:
        self._reporter = reporter
        informers.cluster_queues.add_handler(self._seen)

    def _seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        new, old = change.new, change.old
        if new is None or (old is not None and old.metadata.annotations == new.metadata.annotations):
            return
        for problem in backfill.problems(new.metadata.annotations):
            note = f"annotation {problem.annotation}: {problem.value!r} {problem.message}; backfill is off"
            self._reporter.event(new, EventType.WARNING, "InvalidBackfill", note, SCHEDULER)
