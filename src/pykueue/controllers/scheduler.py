"""The scheduler: wakes when something changed, runs cycles on the memory, and carries the decisions out.

A decision is in the memory before it is written, so the next cycle counts with it; `Bookings` keeps it there until the
server has answered and the watch has caught up. Writes go out side by side, up to a bound; the loop does not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, QuotaReservedReason
from pykueue.clock import Clock
from pykueue.controllers.writing import NotLeading, Writer
from pykueue.core.decision import Admit, Decision, Evict, Preempt, Retry, Victim, Wait
from pykueue.kube.errors import Conflict, KubeError, NotFound, Unanswered
from pykueue.kube.informer import Change, Informer, Key
from pykueue.lifecycle import checks, eviction, reservation, waiting
from pykueue.lifecycle.change import Changes, EventType, Tell
from pykueue.lifecycle.facts import ClusterQueueFacts, Options
from pykueue.observe.reporting import SCHEDULER
from pykueue.state import admission
from pykueue.state.bookings import Bookings
from pykueue.state.world import World

log = logging.getLogger(__name__)

_WRITES_AT_ONCE: Final = 64
# A second pass that failed is tried again after a second, then after twice as long, up to half a minute.
_SECOND_PASS_SECONDS: Final = 1.0
_SECOND_PASS_LONGEST_SECONDS: Final = 30.0
_LOST_ANSWER_PAUSE_SECONDS: Final = 0.2


class Scheduler:
    """One owner of the memory: every watched object comes in through `seen`, every decision goes out from here."""

    def __init__(
        self,
        world: World,
        workloads: Informer[kueue.Workload],
        writer: Writer,
        options: Options,
        clock: Clock,
        cluster_queue_facts: Callable[[str], ClusterQueueFacts | None],
    ) -> None:
        self.world = world
        self.bookings = Bookings()
        self._workloads = workloads
        self._writer = writer
        self._options = options
        self._clock = clock
        self._cluster_queue_facts = cluster_queue_facts
        self._wake = asyncio.Event()
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()
        self._evicting: set[str] = set()
        self._second_passes: dict[str, float] = {}

    # --- What is seen -------------------------------------------------------------------------------------------------

    def watch(self, informer: Informer[object]) -> None:
        """Have every object of a kind reach the memory."""
        informer.subscribe(self.seen)

    def seen(self, change: Change[object]) -> None:
        now = self._clock.now()
        if change.new is not None:
            self.world.put(change.new, now)
        elif change.old is not None:
            self.world.drop(change.old, now)
        self.wake()

    def workload_seen(self, change: Change[kueue.Workload]) -> None:
        """News about a Workload passes unless it is older than what is booked for it."""
        key, now = str(change.key), self._clock.now()
        if change.new is None:
            self.bookings.gone(key)
            self._second_passes.pop(key, None)
            if change.old is not None:
                self.world.drop(change.old, now)
        elif self.bookings.may_pass(key, change.new.metadata.uid, _revision(change.new)):
            self.world.put(change.new, now)
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decide and nothing on its way."""
        return not self._wake.is_set() and not self._under_way

    # --- Cycles -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide until cancelled. Writes that are under way then are cancelled with it: the next leader looks for itself."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._cycles()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _cycles(self) -> None:
        """Cycle after cycle until one of them would only say again what the last one said."""
        said: list[Decision] = []
        while True:
            decisions = self.world.decide(self._clock.now())
            for decision in decisions:
                self._carry_out(decision)
            if not decisions or decisions == said:
                return
            said = decisions
            # Let watches and answers in between two cycles; and never run ahead of the writes by more than their bound.
            await asyncio.sleep(0)
            async with self._writes:
                pass

    # --- Carrying out -------------------------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Admit():
                self._start(self._admit(decision))
            case Preempt():
                for victim in decision.victims:
                    self._evict(victim, decision)
                self._start(self._wait(decision, decision.reason, "waits for the Workloads that give way"))
            case Wait():
                self._start(self._wait(decision, decision.reason, decision.message))
            case Retry():
                for victim in decision.victims:
                    self._evict(victim, decision)
                self._start(self._failed_second_pass(decision))
            case Evict():
                message = f"no replacement for {', '.join(decision.nodes)}"
                self._start(self._evict_for_nodes(decision.workload, message))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._bounded(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _bounded(self, work: Awaitable[None]) -> None:
        async with self._writes:
            try:
                await work
            except (Conflict, NotFound) as error:
                log.debug("a decision came too late: %s", error)
            except NotLeading as error:
                log.warning("%s", error)
            except KubeError as error:
                log.warning("a decision could not be written: %s", error)
            except Exception:
                log.exception("carrying out a decision failed")

    def _current(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.rpartition("/")
        return self._workloads.get(name, namespace)

    def _restore(self, key: str) -> None:
        """What was decided did not happen: the memory goes back to what the object says."""
        current = self._current(key)
        if current is not None:
            self.world.put(current, self._clock.now())
        self.wake()

    async def _admit(self, decision: Admit) -> None:
        workload, now = self._current(decision.workload), self._clock.now()
        if workload is None:
            return
        given = admission.typed(decision.cluster_queue, decision.pod_sets)
        if decision.is_second_pass:
            self._second_passes.pop(decision.workload, None)
            changes = reservation.repair(workload, given)
        else:
            facts = self._cluster_queue_facts(decision.cluster_queue)
            required = checks.required(facts, given) if facts is not None else ()
            changes = reservation.reserve(workload, given, required, self._options, now)
        await self._book(decision.workload, workload, changes)
        if decision.replaces:
            await self._finish_replaced(decision.replaces, decision.workload)

    async def _book(self, key: str, workload: kueue.Workload, changes: Changes) -> None:
        """Write a reservation. A lost answer is settled by sending the same conditional write until it is answered."""
        self.bookings.assume(key, workload.metadata.uid, _revision(workload))
        while True:
            try:
                revision = await self._writer.workload(workload, changes, SCHEDULER, self._clock.now())
            except Unanswered as error:
                if error.applied is False:
                    self._free(key)
                    raise
                self.bookings.lost(key)
                log.info("%s: no answer to its reservation; asking again", key)
                await asyncio.sleep(_LOST_ANSWER_PAUSE_SECONDS)
            except Conflict:
                if not await self._was_carried_out(key, workload):
                    self._free(key)
                    raise
                return
            except (KubeError, asyncio.CancelledError):
                self._free(key)
                raise
            else:
                if key in self.bookings:
                    self.bookings.answered(key, revision)
                    self._catch_up(key)
                return

    async def _was_carried_out(self, key: str, decided_on: kueue.Workload) -> bool:
        """After a conflict: is the revision that beat us our own earlier attempt, whose answer was lost?"""
        if self.bookings.standing(key) is None:
            return False
        found = await self._writer.read(decided_on)
        if found is None or found.metadata.uid != decided_on.metadata.uid or found.status.admission is None:
            return False
        if key in self.bookings:
            self.bookings.answered(key, _revision(found))
            self._catch_up(key)
        return True

    def _catch_up(self, key: str) -> None:
        """The watch may have been faster than the answer: news that was held back passes now."""
        current = self._current(key)
        if current is not None and self.bookings.may_pass(key, current.metadata.uid, _revision(current)):
            self.world.put(current, self._clock.now())
            self.wake()

    def _free(self, key: str) -> None:
        if key in self.bookings:
            self.bookings.refused(key)
        self._restore(key)

    async def _finish_replaced(self, key: str, by: str) -> None:
        from pykueue.api.conditions import FinishedReason
        from pykueue.lifecycle import ending

        replaced = self._current(key)
        if replaced is not None:
            message = f"replaced by {by}"
            changes = ending.finish(replaced, FinishedReason.WORKLOAD_SLICE_REPLACED, message, self._clock.now())
            told = Tell(EventType.NORMAL, "WorkloadSliceReplaced", message)
            await self._writer.workload(replaced, (*changes, told), SCHEDULER, self._clock.now())

    def _evict(self, victim: Victim, decision: Decision) -> None:
        if victim.already_evicted or victim.key in self._evicting:
            return
        self._evicting.add(victim.key)
        self._start(self._preempt(victim, decision))

    async def _preempt(self, victim: Victim, decision: Decision) -> None:
        try:
            workload = self._current(victim.key)
            if workload is None:
                return
            preemptor = self._current(decision.workload)
            uid = preemptor.metadata.uid if preemptor is not None else ""
            message = f"preempted to make room for {decision.workload} (UID: {uid}) in {decision.cluster_queue}"
            reason = PreemptedReason(victim.reason.value)
            changes = eviction.preempt(workload, reason, message, self._clock.now())
            if not changes:
                return
            try:
                await self._writer.workload(workload, changes, SCHEDULER, self._clock.now())
            except KubeError:
                self._restore(victim.key)
                raise
            if preemptor is not None:
                note = f"preempted {victim.key} in {victim.cluster_queue}"
                self._writer.tell(preemptor, Tell(EventType.NORMAL, "PreemptedWorkload", note), SCHEDULER)
        finally:
            self._evicting.discard(victim.key)

    async def _evict_for_nodes(self, key: str, message: str) -> None:
        workload = self._current(key)
        if workload is not None:
            changes = eviction.evict(workload, EvictedReason.NODE_FAILURES, message, self._clock.now())
            try:
                await self._writer.workload(workload, changes, SCHEDULER, self._clock.now())
            except KubeError:
                self._restore(key)
                raise

    async def _failed_second_pass(self, decision: Retry) -> None:
        key = decision.workload
        workload = self._current(key)
        if workload is not None:
            note = decision.message or "no placement was found"
            self._writer.tell(workload, Tell(EventType.WARNING, "SecondPassFailed", note), SCHEDULER)
        pause = self._second_passes.get(key, _SECOND_PASS_SECONDS)
        self._second_passes[key] = min(pause * 2, _SECOND_PASS_LONGEST_SECONDS)
        asyncio.get_running_loop().call_later(pause, self.wake)

    async def _wait(self, decision: Decision, reason: str, message: str) -> None:
        workload = self._current(decision.workload)
        if workload is None:
            return
        pending = self.world.pending(decision.workload)
        asked = admission.requests(pending.shape) if pending is not None else ()
        changes = waiting.wait(
            workload, QuotaReservedReason(reason), message or reason, asked, self._options, self._clock.now()
        )
        await self._writer.workload(workload, changes, SCHEDULER, self._clock.now())


def _revision(workload: kueue.Workload) -> int:
    return int(workload.metadata.resource_version or 0)


def key_of(key: Key) -> str:
    """The memory's name of a Workload: `namespace/name`."""
    return f"{key.namespace}/{key.name}"
