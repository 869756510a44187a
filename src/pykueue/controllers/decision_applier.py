"""Decisions carried out: quota written down, victims evicted, and those who wait told why.

A decision is in the memory before it is written, so the next cycle counts with it; the memory's ledger keeps it there
until the server has answered and the watch has caught up. Writes go out side by side, up to a bound.

Admissions come first. Why somebody waits is written while nobody is being admitted, or after a while: in a rush most of
those reasons are outdated before anybody could read them, and only the last one about each Workload is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from kubemachinery import conditions, meta
from kubemachinery.client.errors import ApiError, Conflict, Fenced, Invalid, KubeError, NotFound, Unanswered
from kubemachinery.client.informer import Informer, ObjectKey
from kubemachinery.clock import Clock
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, FinishedReason, QuotaReservedReason
from pykueue.controllers.workload_writer import Writer, revision
from pykueue.core.decision import Admit, Decision, Evict, Preempt, Requeue, SecondPassFailed, TargetWorkload, Wait
from pykueue.lifecycle import checks, eviction, finishing, pending_status, reservation, states
from pykueue.lifecycle.facts import ClusterQueueFacts, LifecycleOptions
from pykueue.lifecycle.workload_changes import Changes, EmitEvent, EventType
from pykueue.observe import decision_messages
from pykueue.observe.events import SCHEDULER
from pykueue.state import admission
from pykueue.state.world import World

log = logging.getLogger(__name__)

# A real server asks our own webhooks about each of them, and keeps no more than 25 connections for that.
_WRITES_AT_ONCE: Final = 24
_REASONS_AT_ONCE: Final = 16
_REASON_PATIENCE_SECONDS: Final = 3.0
_REASON_BREATH_SECONDS: Final = 0.005
_REASON_PAUSE_SECONDS: Final = 0.1
_LONGEST_REASON_PAUSE_SECONDS: Final = 5.0
_LOST_ANSWER_PAUSE_SECONDS: Final = 0.2
_REFUSED_PAUSE_SECONDS: Final = 1.0
# Workloads whose resources that are not counted were reported, newest last; for a forgotten one it is reported again.
_REPORTED_MAX: Final = 10_000

# How an API server reports that our webhook for Workloads denied a write.
_DENIED_BY_US: Final = 'admission webhook "vworkload.kb.io" denied the request'

FactsOf = Callable[[str], ClusterQueueFacts | None]


class DecisionApplier:
    """Every decision goes out through here. `wake` has the scheduler look again."""

    def __init__(
        self,
        world: World,
        workloads: Informer[kueue.Workload],
        writer: Writer,
        options: LifecycleOptions,
        clock: Clock,
        cluster_queue_facts: FactsOf,
        wake: Callable[[], None],
    ) -> None:
        # Told whenever a reservation on its way is settled or what it waits for has gone, so that whoever left its
        # Workload alone meanwhile looks again.
        self.on_settled: list[Callable[[ObjectKey], None]] = []
        self._world = world
        self._workloads = workloads
        self._writer = writer
        self._options = options
        self._clock = clock
        self._cluster_queue_facts = cluster_queue_facts
        self._wake = wake
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._evicting: set[str] = set()
        self._admitting = 0
        self._no_admission_in_flight = asyncio.Event()
        self._no_admission_in_flight.set()
        self._reported_not_counted: OrderedDict[str, str] = OrderedDict()  # by UID
        self._pending_status: dict[str, Preempt | Wait] = {}  # why they wait, by Workload, as decided last
        self._writing_status: dict[str, Preempt | Wait] = {}  # what is being written about them
        self._status_writers = 0

    @property
    def idle(self) -> bool:
        return not self._under_way

    async def write_slot(self) -> None:
        """Return when there is room for one more write."""
        async with self._writes:
            pass

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = tuple(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def apply(self, decision: Decision) -> None:
        match decision:
            case Admit():
                decided_on = self._writer.current(key_of(decision.workload))
                if decided_on is not None:
                    self._emit_superseded(decision)
                    self._admitting += 1
                    self._no_admission_in_flight.clear()
                    self._start(self._admit(decision, decided_on)).add_done_callback(self._admission_ended)
            case Preempt():
                for victim in decision.targets:
                    self.evict(victim, decision.workload, decision.cluster_queue)
                if decision.migrates and decision.migrates not in self._evicting:
                    self._evicting.add(decision.migrates)
                    self._start(self._migrate(decision))
                self._queue_status(decision)
            case Wait():
                self._queue_status(decision)
            case SecondPassFailed():
                for victim in decision.targets:
                    self.evict(victim, decision.workload, decision.cluster_queue)
                self._emit_second_pass_failed(decision)
            case Evict():
                self._start(self._evict_for_node_failure(decision.workload, decision_messages.sentence(decision)))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._track(self._bounded(work))

    def _track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way[task] = None
        task.add_done_callback(self._under_way.pop)
        return task

    def _admission_ended(self, admitted: asyncio.Task[None]) -> None:
        self._admitting -= 1
        if not self._admitting:
            self._no_admission_in_flight.set()

    async def _bounded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._writes:
                await self._logging_errors(work)
        finally:
            work.close()

    async def _logging_errors(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong with one Workload stops nobody else."""
        try:
            await work
        except (Conflict, NotFound) as error:
            log.debug("a decision came too late: %s", error)
        except KubeError as error:
            log.warning("a decision could not be written: %s", error)
        except Exception:
            # A promise was broken. The story goes to the log, and the other Workloads go on.
            log.exception("carrying out a decision failed")

    # --- Reservations -------------------------------------------------------------------------------------------------

    async def _admit(self, decision: Admit, decided_on: kueue.Workload) -> None:
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None or not self._world.is_assumed(decision.workload) or not _is_same(workload, decided_on):
                self.free(key)
                return
            await self._write_reservation(key, workload, self._reservation_changes(decision, workload))
        if decision.replaces:
            await self._finish_replaced(key_of(decision.replaces), decision.workload)

    def _reservation_changes(self, decision: Admit, workload: kueue.Workload) -> Changes:
        by_prefix = self._options.encode_by_hostname_prefix
        given = admission.typed(decision.cluster_queue, decision.pod_sets, by_hostname_prefix=by_prefix)
        if decision.is_second_pass:
            return reservation.repair(workload, given)
        facts = self._cluster_queue_facts(decision.cluster_queue)
        required = checks.required(facts, given) if facts is not None else ()
        note = decision_messages.reserved(decision, self._not_counted(workload, decision.cluster_queue))
        return reservation.reserve(workload, given, required, self._options, self._clock.now(), note=note)

    def _not_counted(self, workload: kueue.Workload, cluster_queue: str) -> str:
        """Which of its resources quota does not count. It is logged, and added to an Event, once for each Workload and
        each list: one that is evicted and reserves quota again gets it again only if something else is left out."""
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

    async def _write_reservation(self, key: ObjectKey, workload: kueue.Workload, changes: Changes) -> None:
        """Write a reservation. A lost answer is settled by sending the same conditional write until it is answered."""
        name = str(key)
        # The memory may have decided on an older revision than the one that this write is for.
        self._world.writing(name, workload.metadata.resource_version)
        while True:
            try:
                made = await self._writer.workload(workload, changes, SCHEDULER, self._clock.now())
            except Conflict:
                if await self._was_applied(key, workload):
                    return
                self.free(key)
                raise
            except (Exception, asyncio.CancelledError) as error:
                if _is_lasting(error):
                    self.free(key)
                    self._set_aside(name, error)
                    raise
                if not _may_have_been_applied(error):
                    if _is_repeatable(error):
                        # Freed at once, it would be decided at once, too.
                        await asyncio.sleep(_REFUSED_PAUSE_SECONDS)
                    self.free(key)
                    raise
                if not self._world.is_assumed(name):
                    return  # settled by a read, or deleted meanwhile
                self._world.lost(name)
                log.info("%s: no answer to its reservation; asking again", name)
                await asyncio.sleep(_LOST_ANSWER_PAUSE_SECONDS)
            else:
                self._confirm(key, made)
                return

    async def _was_applied(self, key: ObjectKey, decided_on: kueue.Workload) -> bool:
        """After a conflict: is the revision that beat us our own earlier attempt, whose answer was lost?

        Nothing is freed before that is known, however long it takes.
        """
        found = await self._read_uncached(key)
        if found is None or found.metadata.uid != decided_on.metadata.uid or found.status.admission is None:
            return False
        self._confirm(key, revision(found))
        return True

    async def _read_uncached(self, key: ObjectKey) -> kueue.Workload | None:
        """What beat us, however long it takes to hear of it. Who decides next decides on that."""
        while True:
            try:
                found = await self._writer.read(key)
                break
            except KubeError as error:
                log.info("%s: cannot be read: %s", key, error)
                await asyncio.sleep(_LOST_ANSWER_PAUSE_SECONDS)
        if found is not None:
            self._writer.learn(found)
        return found

    def _confirm(self, key: ObjectKey, made: int) -> None:
        """It stands. The watch may have been faster than the answer: news that was held back passes now."""
        name = str(key)
        if self._world.is_assumed(name):
            self._world.written(name, str(made))
            shown = self._workloads.get(key.name, key.namespace)
            if shown is not None and revision(shown) >= made:
                self.put(key, shown)
                self._wake()
        self.settled(key)

    def free(self, key: ObjectKey) -> None:
        """What was decided did not happen: the memory goes back to what the object says."""
        if self._world.is_assumed(str(key)):
            self._world.refuse(str(key))
        workload = self._writer.current(key)
        if workload is not None:
            self._reported_not_counted.pop(workload.metadata.uid, None)  # its Event was not emitted
        self.put_current(key)
        self._wake()
        self.settled(key)

    def _set_aside(self, name: str, error: BaseException) -> None:
        """The server will never take this reservation: trying again at once would keep its queue from moving on."""
        told = self._world.set_aside(name, f"its reservation is refused by the server: {error}", self._clock.now())
        if told is not None:
            self._queue_status(told)

    def settled(self, key: ObjectKey) -> None:
        for told in self.on_settled:
            told(key)

    def put(self, key: ObjectKey, thing: Any) -> None:
        """One object that the memory cannot make sense of stops nobody else."""
        try:
            self._world.put(thing, self._clock.now())
        except Exception:
            log.exception("%s %s: left out", type(thing).__name__, key)

    def put_current(self, key: ObjectKey) -> None:
        current = self._writer.current(key)
        if current is not None:
            self.put(key, current)

    async def _finish_replaced(self, key: ObjectKey, by: str) -> None:
        async with self._writer.turn(key):
            replaced = self._writer.current(key)
            if replaced is not None:
                newer = self._writer.current(key_of(by))
                message = f"{_replacement_message(newer)} due to workload slice aggregation"
                changes = finishing.finish(replaced, FinishedReason.WORKLOAD_SLICE_REPLACED, message, self._clock.now())
                told = EmitEvent(EventType.NORMAL, "WorkloadSliceReplaced", message)
                await self._writer.workload(replaced, (*changes, told), SCHEDULER, self._clock.now())

    # --- Evictions ----------------------------------------------------------------------------------------------------

    def evict(self, victim: TargetWorkload, preemptor: str, cluster_queue: str) -> None:
        """Evict a preemption target for a Workload of a ClusterQueue, once."""
        if victim.already_evicted or victim.key in self._evicting:
            return
        self._evicting.add(victim.key)
        self._start(self._preempt(victim, preemptor, cluster_queue))

    async def _preempt(self, victim: TargetWorkload, name: str, cluster_queue: str) -> None:
        try:
            preemptor = self._writer.current(key_of(name))
            paths = (self._world.cohort_path(queue) for queue in (cluster_queue, victim.cluster_queue))
            message = eviction.preemption_message(preemptor, victim.reason, *paths)
            target = self._writer.current(key_of(victim.key))
            priorities = "; ".join(
                f"{role} effective priority: {self._priority(workload)}"
                for role, workload in (("preemptor", preemptor), ("preemptee", target))
            )

            def preempted(workload: kueue.Workload, now: int) -> Changes:
                return eviction.preempt(workload, victim.reason, message, now, note=f"{message}; {priorities}")

            if await self._write_eviction(key_of(victim.key), preempted) and preemptor is not None:
                uid = target.metadata.uid if target is not None else ""
                what = f"Preempted workload {victim.key} (UID: {uid}) in ClusterQueue {victim.cluster_queue}"
                note = f"{what}; {priorities}"
                self._writer.tell(preemptor, EmitEvent(EventType.NORMAL, "PreemptedWorkload", note), SCHEDULER)
        finally:
            self._evicting.discard(victim.key)

    def _priority(self, workload: kueue.Workload | None) -> str:
        """The priority that counts, with its two parts."""
        base = (workload.spec.priority or 0) if workload is not None else 0
        counts = self._world.priority(workload) if workload is not None else 0
        return f"{counts} (base: {base}, boost: {counts - base})"

    async def _migrate(self, decision: Preempt) -> None:
        """Evict the admitted variant on a less favorable flavor (ConcurrentAdmission)."""
        try:
            better = self._writer.current(key_of(decision.workload))
            uid = better.metadata.uid if better is not None else ""
            why = "due to migration to more favorable resource flavor"
            message = f"Evicted to accommodate a workload (UID: {uid}) {why}"

            def evicted(workload: kueue.Workload, now: int) -> Changes:
                if states.is_evicted(workload):
                    return ()
                return eviction.evict(workload, EvictedReason.FLAVOR_MIGRATION, message, now)

            await self._write_eviction(key_of(decision.migrates), evicted)
        finally:
            self._evicting.discard(decision.migrates)

    async def _evict_for_node_failure(self, name: str, message: str) -> None:
        await self._write_eviction(
            key_of(name), lambda workload, now: eviction.evict(workload, EvictedReason.NODE_FAILURES, message, now)
        )

    async def _write_eviction(self, key: ObjectKey, changes: Callable[[kueue.Workload, int], Changes]) -> bool:
        """Write an eviction; whether there was anything to evict.

        Until the memory is told otherwise it counts as evicted, and nobody decides it again. So it is told when there
        is news to decide on, or after a while: on the same copy the same would be decided, and refused, at once.
        """
        try:
            async with self._writer.turn(key):
                workload, now = self._writer.current(key), self._clock.now()
                # Its own reservation may have come to nothing, or it may have ended, while this waited for its turn.
                if workload is None or not states.is_reserved(workload) or states.is_finished(workload):
                    return False
                if not (made := changes(workload, now)):
                    return False
                await self._writer.workload(workload, made, SCHEDULER, now)
                return True
        except Exception as error:
            if not isinstance(error, Conflict) or await self._read_uncached(key) is None:
                await asyncio.sleep(_REFUSED_PAUSE_SECONDS)
            self.put_current(key)
            self._wake()
            raise

    def _emit_second_pass_failed(self, decision: SecondPassFailed) -> None:
        workload = self._writer.current(key_of(decision.workload))
        if workload is not None:
            news = EmitEvent(EventType.WARNING, "SecondPassFailed", decision_messages.sentence(decision))
            self._writer.tell(workload, news, SCHEDULER)

    # --- Waiting ------------------------------------------------------------------------------------------------------

    def _queue_status(self, decision: Preempt | Wait) -> None:
        """Have it written why this one waits, when there is time."""
        self._emit_superseded(decision)
        self._pending_status[decision.workload] = decision
        if self._status_writers < min(_REASONS_AT_ONCE, len(self._pending_status)):
            self._status_writers += 1
            self._track(self._write_statuses())

    def _emit_superseded(self, newer: Decision) -> None:
        """A search that goes on at the next flavor says two things in a row. The first, that there was no place of the
        flavor before, is not worth a write, but people are told what was tried."""
        before = self._pending_status.pop(newer.workload, None)
        workload = self._writer.current(key_of(newer.workload))
        if before is None or workload is None or (isinstance(newer, Wait) and newer.reason is before.reason):
            return
        if before.reason is QuotaReservedReason.TOPOLOGY_PLACEMENT_FAILED:
            news = pending_status.failed_attempt_event(
                before.reason, conditions.truncated(decision_messages.sentence(before)), self._options
            )
            self._writer.tell(workload, news, SCHEDULER)

    async def _write_statuses(self) -> None:
        try:
            # A search that goes on at the next flavor says two things in a row, of which the last one counts.
            await asyncio.sleep(_REASON_BREATH_SECONDS)
            while self._pending_status:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REASON_PATIENCE_SECONDS):
                        await self._no_admission_in_flight.wait()
                if self._pending_status:
                    await self._logging_errors(
                        self._write_status_with_retry(self._pending_status.pop(next(iter(self._pending_status))))
                    )
        finally:
            self._status_writers -= 1

    async def _write_status_with_retry(self, decision: Preempt | Wait) -> None:
        """Write why it waits. Nobody decides about it again before something changes, so a write that fails is made
        again, unless there is something newer to say."""
        self._writing_status[decision.workload] = decision
        pause = _REASON_PAUSE_SECONDS
        try:
            while (
                self._writing_status.get(decision.workload) is decision
                and decision.workload not in self._pending_status
            ):
                try:
                    return await self._write_status(decision)
                except (Fenced, NotFound, Invalid):
                    raise
                except KubeError as error:
                    log.info("%s: why it waits is not written yet: %s", decision.workload, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_REASON_PAUSE_SECONDS)
        finally:
            if self._writing_status.get(decision.workload) is decision:
                del self._writing_status[decision.workload]

    async def _write_status(self, decision: Preempt | Wait) -> None:
        gated = isinstance(decision, Wait) and decision.requeue is Requeue.PREEMPTION_GATED
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            pending = self._world.pending_workload(decision.workload)
            if (
                workload is None
                or pending is None
                or states.is_reserved(workload)
                or self._world.is_assumed(decision.workload)
            ):
                return
            asked = admission.requests(pending.shape)
            message = conditions.truncated(decision_messages.sentence(decision))
            changes = pending_status.wait(workload, decision.reason, message, asked, self._options, now, gated=gated)
            await self._writer.workload(workload, changes, SCHEDULER, now, low_priority=True)

    def block(self, decision: Decision) -> None:
        """Tell somebody that it waits for the pods of others."""
        self._start(self._write_blocked(decision))

    async def _write_blocked(self, decision: Decision) -> None:
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is not None and not states.is_reserved(workload):
                reason, message = (
                    QuotaReservedReason.WAITING_FOR_PODS_READY,
                    "waiting for all admitted workloads to be in PodsReady condition",
                )
                asked = workload.status.resource_requests
                changes = pending_status.wait(workload, reason, message, asked, self._options, now, emit_event=False)
                await self._writer.workload(workload, changes, SCHEDULER, now)


def key_of(name: str) -> ObjectKey:
    """The key of a Workload that the memory knows as `namespace/name`."""
    namespace, _, name = name.rpartition("/")
    return ObjectKey(namespace, name)


def _replacement_message(newer: kueue.Workload | None) -> str:
    """The start of the message of an elastic slice that another one replaces."""
    metadata = newer.metadata if newer is not None else meta.ObjectMeta()
    uid, job_uid = metadata.uid, metadata.labels.get(labels.JOB_UID, "")
    return f"Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid})"


def _may_have_been_applied(error: BaseException) -> bool:
    """Whether nobody knows: no answer came, or one from a server that gave up waiting for itself (504 and friends)."""
    if isinstance(error, Unanswered):
        return error.applied is not False
    return isinstance(error, ApiError) and error.code >= 500


def _is_lasting(error: BaseException) -> bool:
    """Whether the server will refuse this reservation until the Workload changes: its schema does not allow it, or our
    own webhook denied it, which reads nothing but the Workload. Permissions and other webhooks may change; a code of
    500 and above says that no decision was made."""
    if isinstance(error, Invalid):
        return True
    return isinstance(error, ApiError) and error.code < 500 and str(error).startswith(_DENIED_BY_US)


def _is_repeatable(error: BaseException) -> bool:
    """Whether the next attempt would only find the same: the server refused, or a promise was broken."""
    if isinstance(error, ApiError):
        return error.code < 500
    return not isinstance(error, KubeError | asyncio.CancelledError)


def _is_same(workload: kueue.Workload, decided_on: kueue.Workload) -> bool:
    """Whether what was decided still is about this object: nobody has changed what it asks for, or ended it."""
    return (
        workload.metadata.uid == decided_on.metadata.uid
        and workload.metadata.generation == decided_on.metadata.generation
        and states.is_reserved(workload) == states.is_reserved(decided_on)
        and states.is_evicted(workload) == states.is_evicted(decided_on)
        and not states.is_finished(workload)
        and states.is_active(workload)
    )
