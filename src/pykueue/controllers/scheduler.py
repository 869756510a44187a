"""The scheduler: wakes when something changed, runs cycles on its state, and has the decisions applied.

It does not wait for writes: a decision is in the state before it is written (`decision_applier`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND
from pykueue.api import kueue
from pykueue.api.conditions import WorkloadCondition
from pykueue.controllers.decision_applier import DecisionApplier
from pykueue.controllers.reservation_writer import FactsOf
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.controllers.world_feed import WorldFeed, key_of
from pykueue.core.decision import Admit, Decision, TargetWorkload
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.core.workload import WorkloadInfo
from pykueue.lifecycle import states
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import EmitEvent, EventType
from pykueue.observe.events import SCHEDULER
from pykueue.state.planning import PlanChange
from pykueue.state.preemption_loops import PreemptionLoop
from pykueue.state.quota_windows import ScheduledWindows
from pykueue.state.quota_withdrawal import Withdrawal
from pykueue.state.world import World

log = logging.getLogger(__name__)

_SHORTEST_PAUSE_SECONDS: Final = 0.01
_BROKEN_PAUSE_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 300
_DECISIONS_AT_ONCE: Final = 20  # some milliseconds; then watch events and answers are processed
# What a socket has received passes through the event loop, the TLS protocol and the informer's task: so many steps.
_STEPS_OF_EVENTS: Final = 3
# Members of a preemption loop that get an Event; a loop of more has its pairs in the log.
_LOOP_EVENTS_MAX: Final = 10


class _WaitingWorkload(NamedTuple):
    """A Workload that blockAdmission made wait. With another value it is another object, or its spec has changed, or
    its LocalQueue points elsewhere: it is considered with the others."""

    key: str
    uid: str
    generation: int
    cluster_queue: str


class Scheduler:
    """The owner of the World: `handle` applies every watched object to it, and every decision is made here."""

    def __init__(
        self,
        world: World,
        workloads: Informer[kueue.Workload],
        writer: WorkloadWriter,
        options: LifecycleOptions,
        clock: Clock,
        cluster_queue_facts: FactsOf,
        *,
        blocks_admission: bool = False,
    ) -> None:
        self.world = world
        self._feed = WorldFeed(world, writer, clock)
        self.applier = DecisionApplier(
            world, self._feed, workloads, writer, options, clock, cluster_queue_facts, self.wake
        )
        self._writer = writer
        self._clock = clock
        self._blocks_admission = blocks_admission
        # With blockAdmission: the rest of a cycle, Workloads that are to be admitted one after the other [CY29].
        self._waiting: deque[_WaitingWorkload] = deque()
        # Called with the decisions of every cycle, and how many seconds it took.
        self.on_cycle: list[Callable[[list[Decision], float], None]] = []
        # Called with how many Workloads a sweep admitted that no event had retried.
        self.on_sweep: list[Callable[[int], None]] = []
        # Called with the ClusterQueue of every preemption loop that is found.
        self.on_loop: list[Callable[[PreemptionLoop], None]] = []
        # Called with every change of a planned start.
        self.on_plan_change: list[Callable[[PlanChange], None]] = []
        self._sweep_at = clock.now() + _SWEEP_SECONDS * SECOND
        self._wake = asyncio.Event()
        self._is_deciding = False
        workloads.add_handler(self.handle)

    # --- Events -------------------------------------------------------------------------------------------------------

    def handle(self, event: InformerEvent[Any]) -> None:
        """Apply an event of a watched kind to the state. An assumed reservation is not undone by an older event."""
        if event.new is not None:
            self._feed.put(event.key, event.new)
        elif event.old is not None:
            self.world.drop(event.old)
        if self.world.has_follow_ups:
            # Workloads whose requests may have changed, because a LimitRange or the like changed.
            for key in sorted(self.world.take_outdated()):
                if not self.world.is_assumed(key):
                    self._feed.put_current(key_of(key))
            for key in sorted(self.world.take_unblocked()):
                self.applier.settled(key_of(key))
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def set_windows(self, schedules: Iterable[ScheduledWindows]) -> None:
        """Replace the windows of QuotaSchedules in the state."""
        self.world.set_windows(tuple(schedules), self._clock.now())
        self.wake()

    def withdraw(self, withdrawal: Withdrawal, message: str) -> None:
        """Evict a Workload whose quota a window takes."""
        self.applier.withdraw(withdrawal.workload, message)
        self.world.mark_evicted(withdrawal.workload)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decide and nothing is being written."""
        return not self._is_deciding and not self._wake.is_set() and self.applier.idle

    # --- Cycles -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Decide until cancelled. Running writes are cancelled with it: the next leader reads the objects itself."""
        try:
            while True:
                await self._woken()
                self._is_deciding = True
                await _received_events()
                is_sweep = not self._wake.is_set() and self._clock.now() >= self._sweep_at
                self._wake.clear()
                try:
                    await (self._sweep() if is_sweep else self._cycles())
                except Exception:
                    # A broken invariant: the traceback is logged, the heads return to their queues, and it goes on.
                    log.exception("a scheduling cycle failed")
                    self.world.requeue_in_flight(self._clock.now())
                    await asyncio.sleep(_BROKEN_PAUSE_SECONDS)
                    self.wake()
                self._is_deciding = False
        finally:
            await self.applier.close()

    async def _woken(self) -> None:
        """Return when something has changed, a backoff has ended, or a sweep is due."""
        if self._wake.is_set():
            return
        at = min(self._sweep_at, self.world.next_wake() or self._sweep_at)
        pause = max(_SHORTEST_PAUSE_SECONDS, (at - self._clock.now()) / SECOND)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()

    async def _sweep(self) -> None:
        """Retry every pending Workload, as a safety net. A Workload that is admitted now should have been retried
        before, unless something changed during the sweep."""
        self._sweep_at = self._clock.now() + _SWEEP_SECONDS * SECOND
        self.world.retry_all()
        admitted = await self._cycles()
        if not self._wake.is_set():
            for observer in self.on_sweep:
                observer(admitted)

    async def _cycles(self) -> int:
        """Run cycles until every head has been tried; return how many Workloads were admitted."""
        admitted = 0
        while True:
            decisions = self._decide_waiting() or self._decide_all()
            blocked = self._apply_all(decisions)
            admitted += sum(isinstance(decision, Admit) for decision in decisions) - len(blocked)
            if blocked:
                await self._until_pods_ready(blocked)
                continue
            if not decisions and not self.world.has_due_scopes:
                return admitted
            # Never run ahead of the writes by more than their bound, and decide on all that has been received by then.
            await self.applier.wait_for_slot()
            await _received_events()

    def _decide_waiting(self) -> list[Decision]:
        """Decide about the Workloads that blockAdmission made wait, in the order of their cycle, before any other is
        considered; return the first admission. One that would not be admitted on the current facts is considered with
        the others. Second passes that are due while pods are not ready come first, or they would never be tried."""
        if self._waiting and self._is_second_pass_due() and self._waits_for_pods():
            return []
        while self._waiting:
            first = self._waiting[0]
            admit = partial(self.world.admit_first, first.key, self._clock.now())
            if first == self._read(first.key) and (decisions := self._observed(admit)):
                return decisions
            self._waiting.popleft()
        return []

    def _decide_all(self) -> list[Decision]:
        """Run cycles until every head has been tried, or enough is decided. Nothing is written between them: what one
        of them admits and a later one preempts is never written [CY24]."""
        decisions = found = self._decide()
        while found and not self._blocks_admission and len(decisions) < _DECISIONS_AT_ONCE:
            found = self._decide()
            decisions = [*decisions, *found]
        return decisions

    def _decide(self) -> list[Decision]:
        # With blockAdmission one Workload is admitted at a time, so the first of all queues has to be known.
        enough = None if self._blocks_admission else _DECISIONS_AT_ONCE
        return self._observed(partial(self.world.decide, self._clock.now(), enough=enough))

    def _observed(self, decide: Callable[[], list[Decision]]) -> list[Decision]:
        """Run a cycle, log what failed in it, and call the observers."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        decisions = decide()
        for decision in decisions:
            if decision.failure is not None:
                log.error(
                    "Workload %s: evaluation in ClusterQueue %s failed; it is set aside until it changes",
                    decision.workload,
                    decision.cluster_queue,
                    exc_info=decision.failure,
                )
        for observer in self.on_cycle:
            observer(decisions, loop.time() - started)
        for change in self.world.take_plan_changes():
            for publish in self.on_plan_change:
                publish(change)
        for found in self.world.take_new_loops():
            self._report_loop(found)
        return decisions

    def _report_loop(self, loop: PreemptionLoop) -> None:
        """Log and count a preemption loop, and emit an Event on its members. Detection changes no decision."""
        log.warning(
            "%s in ClusterQueue %s, repeated %d times without another change: %s",
            loop.title(),
            loop.cluster_queue,
            loop.rounds,
            loop.sentence(),
        )
        for number, step in enumerate(loop.preemptions, start=1):
            log.info("preemption loop, decision %d of the last round: %s preempts %s", number, *step)
        for observer in self.on_loop:
            observer(loop)
        for member in loop.members[:_LOOP_EVENTS_MAX]:
            workload = self._writer.current(key_of(member))
            if workload is not None:
                self._writer.emit(workload, loop_event(loop), SCHEDULER)

    def _apply_all(self, decisions: list[Decision]) -> list[Admit]:
        """Apply the decisions and return the admissions that are left over: with waitForPodsReady.blockAdmission only
        the first Workload in scheduling order is admitted, and none while the pods of another are not ready."""
        blocked: list[Admit] = []
        fresh = {each.workload for each in decisions if isinstance(each, Admit) and not each.is_second_pass}
        waits = self._blocks_admission and bool(fresh) and self._waits_for_pods(fresh)
        for decision in decisions:
            if waits and isinstance(decision, Admit) and decision.workload in fresh:
                blocked.append(decision)
                continue
            self.applier.apply(decision)
            if self._waiting and decision.workload == self._waiting[0].key:
                self._waiting.popleft()
            waits = waits or (self._blocks_admission and decision.workload in fresh)
        return blocked

    async def _until_pods_ready(self, blocked: list[Admit]) -> None:
        """Return blocked admissions to their queues. Nothing but a second pass is decided, and no sweep runs, before
        the pods of all admitted Workloads are ready, as in Kueue. Then the Workloads that wait are admitted first."""
        for decision in blocked:
            self.applier.release(key_of(decision.workload))
        if not self._waiting:
            read = (self._read(decision.workload) for decision in blocked)
            self._waiting.extend(each for each in read if each is not None)
        if self._waiting and blocked[0].workload == self._waiting[0].key:
            self.applier.block(blocked[0])
        while self._waits_for_pods():
            if self._is_second_pass_due():
                break
            due = self.world.next_second_pass
            pause = None if due is None else (due - self._clock.now()) / SECOND
            self._wake.clear()
            self._is_deciding = False
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
        self._is_deciding = True

    def _read(self, key: str) -> _WaitingWorkload | None:
        """Return what is compared of a pending Workload; None if it is not pending."""
        pending = self.world.pending_workload(key)
        return (
            _WaitingWorkload(key, pending.uid, pending.generation, pending.cluster_queue)
            if pending is not None
            else None
        )

    def _is_second_pass_due(self) -> bool:
        due = self.world.next_second_pass
        return due is not None and due <= self._clock.now()

    def _waits_for_pods(self, besides: Container[str] = ()) -> bool:
        """Whether an admitted Workload, besides the given ones, has pods that are not ready. Those whose placement was
        deferred have none yet and do not count. Scans all reservations per event."""
        deferred = {key for key, head in self.world.second_passes.items() if not _is_admitted(head)}
        for name in self.world.reservations.keys() - deferred:
            workload = self._writer.current(key_of(name)) if name not in besides else None
            if workload is not None and not states.has(workload, WorkloadCondition.PODS_READY):
                return True
        return False

    # --- Reservations -------------------------------------------------------------------------------------------------

    def recheck(self, name: str) -> Holds | HoldsAfter | Lost | None:
        """Evaluate whether a reservation still holds; None if the Workload has none."""
        return self.world.recheck(name, self._clock.now()) if name in self.world.reservations else None

    def preempt(self, name: str, targets: Iterable[TargetWorkload]) -> None:
        """Evict the preemption targets that a reservation needs gone. Those that are being evicted are left alone."""
        cluster_queue = self.world.reservations[name].cluster_queue
        for target in targets:
            self.applier.preempt((target,), name, cluster_queue)
            self.world.mark_evicted(target.key)


def _is_admitted(head: WorkloadInfo) -> bool:
    return head.reservation is not None and head.reservation.admitted


async def _received_events() -> None:
    """Return when the watch events that have reached this process are in the state: a Workload that has finished must
    not be preempted, and one that has arrived takes part in the next cycle."""
    for _ in range(_STEPS_OF_EVENTS):
        await asyncio.sleep(0)


def loop_event(loop: PreemptionLoop) -> EmitEvent:
    """Return the Event on every member of a preemption loop: which Workload preempts which."""
    note = (
        f"{loop.title().capitalize()}: {loop.sentence()}; repeated {loop.rounds} times without any other change. "
        "A change of priorities, quota or preemption policy ends it"
    )
    return EmitEvent(EventType.WARNING, "EvictionLoop", note, important=True)
