"""The scheduler: wakes when something changed, runs cycles on the memory, and carries the decisions out.

A decision is in the memory before it is written, so the next cycle counts with it; `Bookings` keeps it there until the
server has answered and the watch has caught up. Writes go out side by side, up to a bound; the loop does not wait for
them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine
from contextlib import suppress
from typing import Any, Final

from pykueue.api import conditions, kueue
from pykueue.api.conditions import (
    EvictedReason,
    FinishedReason,
    PreemptedReason,
    QuotaReservedReason,
    WorkloadCondition,
)
from pykueue.api.meta import SECOND
from pykueue.clock import Clock
from pykueue.controllers.writing import NotLeading, Writer, revision
from pykueue.core.decision import Admit, Decision, Evict, Preempt, Requeue, Retry, Victim, Wait
from pykueue.core.recheck import Holds, HoldsAfter, Lost
from pykueue.kube.errors import ApiError, Conflict, KubeError, NotFound, Unanswered
from pykueue.kube.informer import Change, Informer, Key
from pykueue.lifecycle import checks, ending, eviction, reservation, states, waiting
from pykueue.lifecycle.change import Changes, EventType, Tell
from pykueue.lifecycle.facts import ClusterQueueFacts, Options
from pykueue.observe import explaining
from pykueue.observe.reporting import SCHEDULER
from pykueue.state import admission
from pykueue.state.world import World

log = logging.getLogger(__name__)

_WRITES_AT_ONCE: Final = 64
_LOST_ANSWER_PAUSE_SECONDS: Final = 0.2
_SHORTEST_PAUSE_SECONDS: Final = 0.01
_BROKEN_PAUSE_SECONDS: Final = 1.0

FactsOf = Callable[[str], ClusterQueueFacts | None]


class Scheduler:
    """One owner of the memory: every watched object comes in through `seen`, every decision goes out from here."""

    def __init__(
        self,
        world: World,
        workloads: Informer[kueue.Workload],
        writer: Writer,
        options: Options,
        clock: Clock,
        cluster_queue_facts: FactsOf,
        *,
        blocks_admission: bool = False,
    ) -> None:
        self.world = world
        # Told whenever a booking is settled or what it waits for has gone, so that whoever left its Workload alone
        # meanwhile looks again.
        self.on_settled: list[Callable[[Key], None]] = []
        self._workloads = workloads
        self._writer = writer
        self._options = options
        self._clock = clock
        self._cluster_queue_facts = cluster_queue_facts
        self._blocks_admission = blocks_admission
        self._wake = asyncio.Event()
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._evicting: set[str] = set()
        workloads.subscribe(self._workload_seen)

    # --- What is seen -------------------------------------------------------------------------------------------------

    def seen(self, change: Change[Any]) -> None:
        """Let an object of any kind that shapes queues reach the memory."""
        if change.new is not None:
            self._put(change.key, change.new)
        elif change.old is not None:
            self.world.drop(change.old, self._clock.now())
        self._read_again()
        self.wake()

    def _workload_seen(self, change: Change[kueue.Workload]) -> None:
        """News about a Workload. The memory's ledger holds back what is older than a reservation on its way."""
        if change.new is not None:
            self._put(change.key, change.new)
        elif change.old is not None:
            self.world.drop(change.old, self._clock.now())
        unblocked, self.world.unblocked = self.world.unblocked, set()
        for key in sorted(unblocked):
            self._settled(key_of(key))
        self.wake()

    def _put(self, key: Key, thing: Any) -> None:
        """One object that the memory cannot make sense of stops nobody else."""
        try:
            self.world.put(thing, self._clock.now())
        except Exception:
            log.exception("%s %s: left out", type(thing).__name__, key)

    def _read_again(self) -> None:
        """Workloads whose requests read differently now, because a LimitRange or the like has changed."""
        for key in sorted(self.world.outdated):
            if key not in self.world.ledger:
                self._put_current(key_of(key))
        self.world.outdated.clear()

    def wake(self) -> None:
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decide and nothing on its way."""
        return not self._wake.is_set() and not self._under_way

    # --- Cycles -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide until cancelled. Writes under way are cancelled with it: the next leader looks for itself."""
        try:
            while True:
                await self._woken()
                self._wake.clear()
                try:
                    await self._cycles()
                except Exception:
                    # A promise was broken. Those who were being decided go back to their queues, and life goes on.
                    log.exception("a cycle failed")
                    self._put_back()
                    await asyncio.sleep(_BROKEN_PAUSE_SECONDS)
                    self.wake()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _put_back(self) -> None:
        for queue in self.world.queues.values():
            for name in sorted(queue.in_flight):
                queue.drop(name)
                self._put_current(key_of(name))

    async def _woken(self) -> None:
        """Return when something has changed, or a pause that the memory keeps is over."""
        at = self.world.next_wake()
        pause = None if at is None else max(_SHORTEST_PAUSE_SECONDS, (at - self._clock.now()) / SECOND)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()

    async def _cycles(self) -> None:
        """Cycle after cycle until one of them would only say again what the last one said."""
        said: list[Decision] = []
        while True:
            decisions = self.world.decide(self._clock.now())
            blocked = self._carry_out_all(decisions)
            if blocked:
                await self._until_pods_ready(blocked)
                said = []
                continue
            if not decisions or decisions == said:
                return
            said = decisions
            # Let watches and answers in between two cycles; and never run ahead of the writes by more than their bound.
            await asyncio.sleep(0)
            async with self._writes:
                pass

    def _carry_out_all(self, decisions: list[Decision]) -> list[Admit]:
        """What is left over: with waitForPodsReady.blockAdmission, nobody is let in before the pods of everybody who
        was are ready."""
        blocked: list[Admit] = []
        fresh = {each.workload for each in decisions if isinstance(each, Admit) and not each.is_second_pass}
        waits = self._blocks_admission and bool(fresh) and self._waits_for_pods(fresh)
        for decision in decisions:
            if waits and isinstance(decision, Admit) and decision.workload in fresh:
                blocked.append(decision)
                continue
            self._carry_out(decision)
            waits = waits or (self._blocks_admission and decision.workload in fresh)
        return blocked

    async def _until_pods_ready(self, blocked: list[Admit]) -> None:
        """Those who were to be admitted go back to their queues. Nothing is decided before all pods are ready."""
        self._start(self._tell_blocked(blocked[0]))
        for decision in blocked:
            self._free(key_of(decision.workload))
        while self._waits_for_pods():
            self._wake.clear()
            await self._wake.wait()

    def _waits_for_pods(self, besides: Container[str] = ()) -> bool:
        for name in self.world.reservations:
            workload = self._writer.current(key_of(name)) if name not in besides else None
            if workload is not None and not states.has(workload, WorkloadCondition.PODS_READY):
                return True
        return False

    async def _tell_blocked(self, decision: Decision) -> None:
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is not None and not states.is_reserved(workload):
                reason, message = QuotaReservedReason.WAITING_FOR_PODS_READY, "Waits for the pods of others to be ready"
                asked = workload.status.resource_requests
                changes = waiting.wait(workload, reason, message, asked, self._options, now, tell=False)
                await self._writer.workload(workload, changes, SCHEDULER, now)

    # --- Carrying out -------------------------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Admit():
                decided_on = self._writer.current(key_of(decision.workload))
                if decided_on is not None:
                    self._start(self._admit(decision, decided_on))
            case Preempt():
                for victim in decision.victims:
                    self._evict(victim, decision)
                self._start(self._wait(decision, decision.reason, explaining.sentence(decision)))
            case Wait():
                gated = decision.requeue is Requeue.PREEMPTION_GATED
                self._start(self._wait(decision, decision.reason, explaining.sentence(decision), gated=gated))
            case Retry():
                for victim in decision.victims:
                    self._evict(victim, decision)
                self._tell_failed_second_pass(decision)
            case Evict():
                self._start(self._evict_for_nodes(decision.workload, explaining.sentence(decision)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._bounded(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _bounded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._writes:
                await work
        except (Conflict, NotFound) as error:
            log.debug("a decision came too late: %s", error)
        except NotLeading as error:
            log.warning("%s", error)
        except KubeError as error:
            log.warning("a decision could not be written: %s", error)
        except Exception:
            # A promise was broken. The story goes to the log, and the other Workloads go on.
            log.exception("carrying out a decision failed")
        finally:
            work.close()

    # --- Reservations -------------------------------------------------------------------------------------------------

    async def _admit(self, decision: Admit, decided_on: kueue.Workload) -> None:
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None or decision.workload not in self.world.ledger or not _is_same(workload, decided_on):
                self._free(key)
                return
            await self._book(key, workload, self._given(decision, workload))
        if decision.replaces:
            await self._finish_replaced(key_of(decision.replaces), decision.workload)

    def _given(self, decision: Admit, workload: kueue.Workload) -> Changes:
        given = admission.typed(decision.cluster_queue, decision.pod_sets)
        if decision.is_second_pass:
            return reservation.repair(workload, given)
        facts = self._cluster_queue_facts(decision.cluster_queue)
        required = checks.required(facts, given) if facts is not None else ()
        note = explaining.left_out(
            self.world.exclusions(workload), self.world.skipped(workload, decision.cluster_queue)
        )
        if note:
            log.info("%s: %s", decision.workload, note)
        return reservation.reserve(workload, given, required, self._options, self._clock.now(), note=note)

    async def _book(self, key: Key, workload: kueue.Workload, changes: Changes) -> None:
        """Write a reservation. A lost answer is settled by sending the same conditional write until it is answered."""
        name = str(key)
        # The memory may have decided on an older revision than the one that this write is for.
        self.world.ledger.assume(name, workload.metadata.resource_version)
        while True:
            try:
                made = await self._writer.workload(workload, changes, SCHEDULER, self._clock.now())
            except Conflict:
                if await self._was_carried_out(key, workload):
                    return
                self._free(key)
                raise
            except (Exception, asyncio.CancelledError) as error:
                if not _may_have_been_carried_out(error):
                    self._free(key)
                    raise
                if name not in self.world.ledger:
                    return  # settled by a read, or deleted meanwhile
                self.world.ledger.lost(name)
                log.info("%s: no answer to its reservation; asking again", name)
                await asyncio.sleep(_LOST_ANSWER_PAUSE_SECONDS)
            else:
                self._booked(key, made)
                return

    async def _was_carried_out(self, key: Key, decided_on: kueue.Workload) -> bool:
        """After a conflict: is the revision that beat us our own earlier attempt, whose answer was lost?

        Nothing is freed before that is known, however long it takes.
        """
        while True:
            try:
                found = await self._writer.read(key)
                break
            except KubeError as error:
                log.info("%s: cannot be read: %s", key, error)
                await asyncio.sleep(_LOST_ANSWER_PAUSE_SECONDS)
        if found is None or found.metadata.uid != decided_on.metadata.uid or found.status.admission is None:
            return False
        self._booked(key, revision(found))
        return True

    def _booked(self, key: Key, made: int) -> None:
        """It stands. The watch may have been faster than the answer: news that was held back passes now."""
        name = str(key)
        if name in self.world.ledger:
            self.world.ledger.written(name, str(made))
            shown = self._workloads.get(key.name, key.namespace)
            if shown is not None and revision(shown) >= made:
                self._put(key, shown)
                self.wake()
        self._settled(key)

    def _free(self, key: Key) -> None:
        """What was decided did not happen: the memory goes back to what the object says."""
        if str(key) in self.world.ledger:
            self.world.refuse(str(key))
        self._put_current(key)
        self.wake()
        self._settled(key)

    def _settled(self, key: Key) -> None:
        for told in self.on_settled:
            told(key)

    def _put_current(self, key: Key) -> None:
        current = self._writer.current(key)
        if current is not None:
            self._put(key, current)

    def holds(self, name: str) -> bool | None:
        """Whether a reservation would be given again today. None: its victims are told to go, and are not gone."""
        if name not in self.world.reservations:
            return None
        match self.world.recheck(name, self._clock.now()):
            case Holds():
                return True
            case HoldsAfter(victims):
                decision = Decision(workload=name, cluster_queue=self.world.reservations[name].cluster_queue)
                for victim in victims:
                    self._evict(victim, decision)
                return None
            case Lost():
                return False

    async def _finish_replaced(self, key: Key, by: str) -> None:
        async with self._writer.turn(key):
            replaced = self._writer.current(key)
            if replaced is not None:
                message = f"Replaced by {by}"
                changes = ending.finish(replaced, FinishedReason.WORKLOAD_SLICE_REPLACED, message, self._clock.now())
                told = Tell(EventType.NORMAL, "WorkloadSliceReplaced", message)
                await self._writer.workload(replaced, (*changes, told), SCHEDULER, self._clock.now())

    # --- Evictions ----------------------------------------------------------------------------------------------------

    def _evict(self, victim: Victim, decision: Decision) -> None:
        if victim.already_evicted or victim.key in self._evicting:
            return
        self._evicting.add(victim.key)
        self._start(self._preempt(victim, decision))

    async def _preempt(self, victim: Victim, decision: Decision) -> None:
        try:
            preemptor = self._writer.current(key_of(decision.workload))
            uid = preemptor.metadata.uid if preemptor is not None else ""
            message = f"Preempted to make room for {decision.workload} (UID: {uid}) in {decision.cluster_queue}"
            reason = PreemptedReason(victim.reason.value)
            if await self._take_away(
                key_of(victim.key), lambda workload, now: eviction.preempt(workload, reason, message, now)
            ):
                note = f"Preempted {victim.key} in {victim.cluster_queue}"
                if preemptor is not None:
                    self._writer.tell(preemptor, Tell(EventType.NORMAL, "PreemptedWorkload", note), SCHEDULER)
        finally:
            self._evicting.discard(victim.key)

    async def _evict_for_nodes(self, name: str, message: str) -> None:
        await self._take_away(
            key_of(name), lambda workload, now: eviction.evict(workload, EvictedReason.NODE_FAILURES, message, now)
        )

    async def _take_away(self, key: Key, changes: Callable[[kueue.Workload, int], Changes]) -> bool:
        """Write an eviction; whether there was anything to evict."""
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is None or not (made := changes(workload, now)):
                return False
            try:
                await self._writer.workload(workload, made, SCHEDULER, now)
            except KubeError:
                self._put_current(key)
                self.wake()
                raise
        return True

    def _tell_failed_second_pass(self, decision: Retry) -> None:
        workload = self._writer.current(key_of(decision.workload))
        if workload is not None:
            news = Tell(EventType.WARNING, "SecondPassFailed", explaining.sentence(decision))
            self._writer.tell(workload, news, SCHEDULER)

    # --- Waiting ------------------------------------------------------------------------------------------------------

    async def _wait(self, decision: Decision, reason: str, message: str, *, gated: bool = False) -> None:
        key = key_of(decision.workload)
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            pending = self.world.pending(decision.workload)
            if (
                workload is None
                or pending is None
                or states.is_reserved(workload)
                or decision.workload in self.world.ledger
            ):
                return
            asked = admission.requests(pending.shape)
            said = QuotaReservedReason(reason)
            changes = waiting.wait(
                workload, said, conditions.truncated(message), asked, self._options, now, gated=gated
            )
            await self._writer.workload(workload, changes, SCHEDULER, now)


def key_of(name: str) -> Key:
    """The key of a Workload that the memory knows as `namespace/name`."""
    namespace, _, name = name.rpartition("/")
    return Key(namespace, name)


def _may_have_been_carried_out(error: BaseException) -> bool:
    """Whether nobody knows: no answer came, or one from a server that gave up waiting for itself (504 and friends)."""
    if isinstance(error, Unanswered):
        return error.applied is not False
    return isinstance(error, ApiError) and error.code >= 500


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
