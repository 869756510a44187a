"""Writes reservations, and settles writes whose answer was lost.

A reservation is assumed before it is written, so the next cycle counts it. It stays assumed until the server has
answered and the watch has caught up (`state.assumed`): releasing it on a lost answer could give its quota twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kubemachinery import meta
from kubemachinery.client.errors import ApiError, Conflict, Invalid, KubeError, Unanswered
from kubemachinery.client.informer import Informer, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.meta import Nanoseconds
from pykueue.api import kueue, labels
from pykueue.api.conditions import FinishedReason
from pykueue.controllers.workload_writer import WorkloadWriter, revision
from pykueue.controllers.world_feed import WorldFeed, key_of
from pykueue.core.decision import Admit, Wait
from pykueue.lifecycle import checks, finishing, reservation, states
from pykueue.lifecycle.facts import ClusterQueueFacts, LifecycleOptions
from pykueue.lifecycle.workload_changes import Changes, EmitEvent, EventType
from pykueue.observe import decision_messages
from pykueue.observe.events import SCHEDULER
from pykueue.state import admission
from pykueue.state.world import World

log = logging.getLogger(__name__)

_LOST_ANSWER_PAUSE_SECONDS: Final = 0.2
_REFUSED_PAUSE_SECONDS: Final = 1.0
# Workloads whose uncounted resources were reported, or whose admission was taken back, newest last; for one that was
# dropped it happens again.
_REPORTED_MAX: Final = 10_000

# How an API server reports that our webhook for Workloads denied a write.
_DENIED_BY_OUR_WEBHOOK: Final = 'admission webhook "vworkload.kb.io" denied the request'

FactsOf = Callable[[str], ClusterQueueFacts | None]


class ReservationWriter:
    """Writes admissions. `wake` starts another cycle; `report` writes why a Workload is pending."""

    def __init__(
        self,
        world: World,
        feed: WorldFeed,
        workloads: Informer[kueue.Workload],
        writer: WorkloadWriter,
        options: LifecycleOptions,
        clock: Clock,
        cluster_queue_facts: FactsOf,
        wake: Callable[[], None],
        report: Callable[[Wait], None],
    ) -> None:
        # Called when an assumed reservation is settled, or when a preemption target that it waits for is gone.
        self.on_settled: list[Callable[[ObjectKey], None]] = []
        self._world = world
        self._feed = feed
        self._workloads = workloads
        self._writer = writer
        self._options = options
        self._clock = clock
        self._cluster_queue_facts = cluster_queue_facts
        self._wake = wake
        self._report = report
        self._reported_not_counted: OrderedDict[str, str] = OrderedDict()  # by UID
        # By Workload, the version of the object whose admission was taken back.
        self._taken_back: OrderedDict[str, str] = OrderedDict()

    async def admit(self, decision: Admit, decided_on: kueue.Workload) -> None:
        """Write the reservation of an admission, unless the Workload changed since the decision."""
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None or not self._world.is_assumed(decision.workload) or not _is_same(workload, decided_on):
                self.release(key)
                return
            if self._takes_back(decision.workload, workload):
                self.release(key)
                return
            await self._write(key, workload, self._changes(decision, workload), self._decided_at(decision))
        # A larger slice that was deactivated or deleted before its write was answered has no quota.
        if decision.replaces and decision.workload in self._world.reservations:
            await self._finish_replaced(key_of(decision.replaces), decision.workload)

    def _takes_back(self, name: str, workload: kueue.Workload) -> bool:
        """Whether an admission is taken back, because another Workload has preempted this one before it was sent: the
        quota is free at once, and no job is started and stopped [CY24]. A version of the object is taken back once, so
        that Workloads that preempt each other come to a write. With fair sharing nothing is taken back: its preemption
        loops are to be seen."""
        if self._world.policy.is_fair:
            return False
        held = self._world.reservations.get(name)
        if held is None or not held.evicted or states.is_reserved(workload):
            self._taken_back.pop(name, None)
            return False
        version = workload.metadata.resource_version
        is_first = self._taken_back.pop(name, "") != version
        if is_first:
            self._taken_back[name] = version
            if len(self._taken_back) > _REPORTED_MAX:
                self._taken_back.popitem(last=False)
            log.debug("%s: preempted before its admission was written", name)
        return is_first

    def release(self, key: ObjectKey) -> None:
        """Release an assumed reservation that was not stored: the Workload is put again as its object shows it."""
        if self._world.is_assumed(str(key)):
            self._world.refuse(str(key))
        workload = self._writer.current(key)
        if workload is not None:
            self._reported_not_counted.pop(workload.metadata.uid, None)  # its Event was not emitted
        self._feed.put_current(key)
        self._wake()
        self.settled(key)

    def settled(self, key: ObjectKey) -> None:
        for observer in self.on_settled:
            observer(key)

    def _changes(self, decision: Admit, workload: kueue.Workload) -> Changes:
        by_prefix = self._options.encode_by_hostname_prefix
        given = admission.typed(decision.cluster_queue, decision.pod_sets, by_hostname_prefix=by_prefix)
        if decision.is_second_pass:
            return reservation.repair(workload, given)
        facts = self._cluster_queue_facts(decision.cluster_queue)
        required = checks.required(facts, given) if facts is not None else ()
        note = decision_messages.reserved(decision, self._not_counted(workload, decision.cluster_queue))
        return reservation.reserve(workload, given, required, self._options, self._clock.now(), note=note)

    def _not_counted(self, workload: kueue.Workload, cluster_queue: str) -> str:
        """Return which of the Workload's resources quota does not count. It is logged, and added to an Event, once per
        Workload and list: after an eviction only if the list has changed."""
        exclusions, skipped = self._world.exclusions(workload), self._world.skipped(workload, cluster_queue)
        note = decision_messages.left_out(decision_messages.not_counted(exclusions, skipped))
        uid = workload.metadata.uid
        if not note or self._reported_not_counted.get(uid) == note:
            return ""
        self._reported_not_counted[uid] = note
        if len(self._reported_not_counted) > _REPORTED_MAX:
            self._reported_not_counted.popitem(last=False)
        log.info("%s: %s", states.key(workload), note)
        return note

    def _decided_at(self, decision: Admit) -> Nanoseconds:
        """Return the time of the conditions of an admission: that of the decision, as in Kueue [CY28]. With the time of
        the write, the watch would show another reservation than the assumed one, which makes another cycle due."""
        assumed = self._world.reservations.get(decision.workload)
        if assumed is None or assumed.reserved_at is None or decision.is_second_pass:
            return self._clock.now()
        return assumed.reserved_at

    async def _write(self, key: ObjectKey, workload: kueue.Workload, changes: Changes, at: Nanoseconds) -> None:
        """Write a reservation. A lost answer is settled by sending the same conditional write until it is answered."""
        name = str(key)
        # The cycle may have decided on an older revision than the one that this write is conditional on.
        self._world.writing(name, workload.metadata.resource_version)
        while True:
            try:
                made = await self._writer.workload(workload, changes, SCHEDULER, at)
            except Conflict:
                if await self._was_applied(key, workload):
                    return
                self.release(key)
                raise
            except (Exception, asyncio.CancelledError) as error:
                if _is_lasting(error):
                    self.release(key)
                    self._set_aside(name, error)
                    raise
                if not _may_have_been_applied(error):
                    if _would_repeat(error):
                        # Released at once, it would be decided again at once.
                        await asyncio.sleep(_REFUSED_PAUSE_SECONDS)
                    self.release(key)
                    raise
                if not self._world.is_assumed(name):
                    return  # settled by a read, or deleted meanwhile
                self._world.lost(name)
                log.info("%s: the write of its reservation got no answer; it is sent again", name)
                await asyncio.sleep(_LOST_ANSWER_PAUSE_SECONDS)
            else:
                self._confirm(key, made)
                return

    async def _was_applied(self, key: ObjectKey, decided_on: kueue.Workload) -> bool:
        """After a conflict: whether the conflicting revision is our own earlier attempt, whose answer was lost.

        Nothing is released before that is known, however long it takes.
        """
        found = await self._writer.read_until_answered(key)
        if found is None or found.metadata.uid != decided_on.metadata.uid or found.status.admission is None:
            return False
        self._confirm(key, revision(found))
        return True

    def _confirm(self, key: ObjectKey, made: int) -> None:
        """Record that a reservation is stored. If the watch was faster than the answer, its event is applied now."""
        name = str(key)
        if self._world.is_assumed(name):
            self._world.written(name, str(made))
            shown = self._workloads.find(key)
            if shown is not None and revision(shown) >= made:
                self._feed.put(key, shown)
                self._wake()
        self.settled(key)

    def _set_aside(self, name: str, error: BaseException) -> None:
        """Exclude a Workload whose reservation the server always refuses: retried at once, it would block its queue."""
        wait = self._world.set_aside(name, f"its reservation is refused by the server: {error}", self._clock.now())
        if wait is not None:
            self._report(wait)

    async def _finish_replaced(self, key: ObjectKey, by: str) -> None:
        """Finish the elastic slice that the admitted one replaces."""
        async with self._writer.turn(key):
            replaced = self._writer.current(key)
            if replaced is not None:
                message = f"{_replacement_message(self._writer.current(key_of(by)))} due to workload slice aggregation"
                changes = finishing.finish(replaced, FinishedReason.WORKLOAD_SLICE_REPLACED, message, self._clock.now())
                event = EmitEvent(EventType.NORMAL, "WorkloadSliceReplaced", message)
                await self._writer.workload(replaced, (*changes, event), SCHEDULER, self._clock.now())


def _replacement_message(newer: kueue.Workload | None) -> str:
    """Return the start of the message of an elastic slice that another one replaces."""
    metadata = newer.metadata if newer is not None else meta.ObjectMeta()
    uid, job_uid = metadata.uid, metadata.labels.get(labels.JOB_UID, "")
    return f"Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid})"


def _may_have_been_applied(error: BaseException) -> bool:
    """Whether the write may have been applied: it got no answer, or a server error such as 504."""
    if isinstance(error, Unanswered):
        return error.applied is not False
    return isinstance(error, ApiError) and error.code >= 500


def _is_lasting(error: BaseException) -> bool:
    """Whether the server will refuse this reservation until the Workload changes: its schema does not allow it, or our
    own webhook denied it, which reads nothing but the Workload. Permissions and other webhooks may change; a code of
    500 and above means that the server did not decide."""
    if isinstance(error, Invalid):
        return True
    return isinstance(error, ApiError) and error.code < 500 and str(error).startswith(_DENIED_BY_OUR_WEBHOOK)


def _would_repeat(error: BaseException) -> bool:
    """Whether the next attempt would fail in the same way: the server refused, or an invariant is broken."""
    if isinstance(error, ApiError):
        return error.code < 500
    return not isinstance(error, KubeError | asyncio.CancelledError)


def _is_same(workload: kueue.Workload, decided_on: kueue.Workload) -> bool:
    """Whether the decision still applies to this object: its spec has not changed, and it has not ended."""
    return (
        workload.metadata.uid == decided_on.metadata.uid
        and workload.metadata.generation == decided_on.metadata.generation
        and states.is_reserved(workload) == states.is_reserved(decided_on)
        and states.is_evicted(workload) == states.is_evicted(decided_on)
        and not states.is_finished(workload)
        and states.is_active(workload)
    )
