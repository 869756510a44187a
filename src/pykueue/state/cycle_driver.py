"""The cycle driver: takes the heads of each scheduling scope, runs a cycle, and applies its decisions to the state.

Heads that were not admitted return to their queues; reservations are assumed. The API is written elsewhere:
`refuse` and `set_aside` record that a write failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from kubemachinery.meta import Nanoseconds, format_time
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import QueueingStrategy
from pykueue.core import cycle
from pykueue.core.cycle import Head
from pykueue.core.decision import Admit, Decision, Evict, Preempt, Requeue, SecondPassFailed, TargetWorkload, Wait
from pykueue.core.workload import Reservation, WorkloadInfo
from pykueue.state import scheduling_scope
from pykueue.state.parts import WorldParts
from pykueue.state.pending_queue import PendingQueue
from pykueue.state.planning import Planning
from pykueue.state.replaced_pods import PodLikeness
from pykueue.state.scheduling_scope import HeadSet, SchedulingScope

Firsts: TypeAlias = list[tuple[PendingQueue, WorkloadInfo]]
"""The first Workload of each queue of a scope."""


class CycleDriver:
    """Runs scheduling cycles on the parts of a World."""

    def __init__(self, parts: WorldParts, *, explains: bool = True) -> None:
        self.cycles = 0  # that decided anything
        self._explains = explains or parts.planning is not None
        self._parts = parts
        self._policy = parts.policy
        self._structure = parts.structure
        self._snapshot = parts.snapshot
        self._pending = parts.pending
        self._scopes = parts.scopes
        self._consumed = parts.consumed
        self._reservations = parts.reservations
        self._second_passes = parts.second_passes
        self._namespaces = parts.namespaces
        self._loops = parts.loops
        self._preemption_order = parts.preemption_order
        self._planning = parts.planning
        self._plans = parts.planning.plans if parts.planning is not None else cycle.NO_PLANS

    def decide(self, now: Nanoseconds, enough: int | None) -> list[Decision]:
        """Run one cycle in every scope where something changed; see `World.decide`."""
        self._parts.settle(now)
        for workload in self._second_passes.due(now):
            # That its backoff has ended changes no fact: heads that were tried are not tried with it again.
            self._scopes.mark_ready(workload.cluster_queue)
        for cluster_queue in self._loops.take_due(now):
            self._scopes.invalidate(cluster_queue)
        decisions: list[Decision] = []
        most = None if enough is None else scheduling_scope.SCOPES_AT_ONCE
        for scope in islice(self._scopes.due(lambda: enough is None or len(decisions) < enough), most):
            heads = self._take_heads(scope, now)
            if heads:
                self._scopes.mark_ready(scope.queues[0])  # until every head has been tried
                restricted = {head.workload.key for head in heads if head.spared}
                for decided in cycle.run(
                    self._snapshot, heads, self._policy, now, self._plans, explains=self._explains
                ):
                    decision = self._guarded(decided, scope.queues, now) if self._policy.loop_guard else decided
                    self._compare_preemption(decision, scope.queues, now)
                    if self._planning is not None:
                        self._plan(self._planning, decision, now)
                    self._apply(decision, now, is_restricted=decision.workload in restricted)
                    decisions.append(decision)
        self.cycles += bool(decisions)
        # Stable: decisions without a rank stay behind, in their order. With fair sharing none has a rank.
        return sorted(decisions, key=lambda decision: (not decision.rank, decision.rank))

    def admit_first(self, key: str, now: Nanoseconds) -> list[Decision]:
        """Run a cycle with one pending Workload as its only head; see `World.admit_first`."""
        self._parts.settle(now)
        workload = self._pending.pending(key)
        queue = self._pending.queues.get(workload.cluster_queue) if workload is not None else None
        if workload is None or queue is None or key not in queue:
            return []
        if not workload.may_compete(now) or not self._structure.is_active(queue.name):
            return []
        scope = self._scopes.scope_of(queue.name)
        head = self._head(workload, scope, is_preemptor=queue.is_preemptor(workload))
        # A cycle changes neither the snapshot nor the Workload, so a decision that is dropped has no effect.
        decisions = cycle.run(self._snapshot, [head], self._policy, now, self._plans, explains=self._explains)
        if not isinstance(decisions[0], Admit):
            return []
        queue.take(key)
        if self._planning is not None:
            self._plan(self._planning, decisions[0], now)
        self._apply(decisions[0], now, is_restricted=bool(head.spared))
        self.cycles += 1
        return decisions

    def retry_all(self) -> None:
        """Retry every pending Workload without a cause; see `World.retry_all`."""
        self._scopes.release(self._pending.queues)
        for name in sorted(self._pending.queues):
            self._scopes.invalidate(name)

    def _take_heads(self, scope: SchedulingScope, now: Nanoseconds) -> list[Head]:
        """Take the second passes that are due, then one head of every queue that takes part, by name [QU7]. The heads
        are left out if the same ones were tried on the same facts before: a second pass that fails again and again
        would otherwise have the head of a StrictFIFO queue tried, and its status written, each time."""
        again = [head for head in self._second_passes.due(now) if head.cluster_queue in scope.queues]
        pending = self._pending.queues
        queues = [
            queue
            for name in scope.queues
            if (queue := pending.get(name)) is not None and len(queue) and self._structure.is_active(name)
        ]
        if self._policy.is_fair:
            # One entry per queue takes part, and of a second pass and a head it is the head. A second pass that failed
            # once gets its queue for itself, or the head of a StrictFIFO queue would keep it from its nodes for ever.
            failed = {workload.cluster_queue for workload in again if self._second_passes.has_failed(workload.key)}
            queues = [queue for queue in queues if queue.name not in failed]
        firsts = _heads(queues)
        head_set = _head_set(firsts)
        if not again:
            while head_set in scope.tried and self._leave_scan_cycle(firsts, scope):
                firsts = _heads(queues)
                head_set = _head_set(firsts)
        if head_set in scope.tried:
            queues, firsts = [], []
        elif head_set:
            scope.tried.add(head_set)
        for queue in queues:
            queue.pop()
        return [
            *(self._head(workload, scope) for workload in again),
            *(self._head(head, scope, is_preemptor=queue.is_preemptor(head)) for queue, head in firsts),
        ]

    def _head(self, workload: WorkloadInfo, scope: SchedulingScope, *, is_preemptor: bool = False) -> Head:
        order = self._preemption_order
        spared = order.spared(scope.queues, workload.key) if order is not None else frozenset[str]()
        return Head(workload, is_preemptor, self._namespaces.refusal(workload), spared)

    def _leave_scan_cycle(self, firsts: Firsts, scope: SchedulingScope) -> bool:
        """End the scan of a head that has come back to a position that was tried on the same facts; whether there was
        one. The positions of several pod sets may alternate for ever, each with untried flavors of another one. Such
        a head is tried once from the first flavors; if that was in vain, the next Workload has its turn (decision
        0020)."""
        for queue, head in firsts if self._policy.departures else ():
            if head.resumes_at:
                head.scan_position = None
                if _head_set(firsts) in scope.tried and queue.strategy is QueueingStrategy.BEST_EFFORT_FIFO:
                    queue.park(head)
                return True
        return False

    # Decisions.

    def _apply(self, decision: Decision, now: Nanoseconds, *, is_restricted: bool) -> None:
        """Apply a decision to the state. `is_restricted`: its head had to spare Workloads ([FS22])."""
        # The result of such a head does not hold for its equivalence class.
        parks_class = self._policy.equivalence_hashing and not is_restricted
        match decision:
            case Admit():
                self._assume(decision, now)
            case Preempt():
                self._mark_victims(decision.targets)
                requeue = Requeue.PENDING_MIGRATION if decision.migrates else Requeue.PENDING_PREEMPTION
                if decision.migrates and not self._reservations.held[decision.migrates].evicted:
                    # Marked once: every mark invalidates the scope, and the head would be decided for ever.
                    self._reservations.mark_evicted(decision.migrates)
                self._requeue(decision, requeue, now, parks_class=parks_class)
            case Wait():
                if decision.requeue is Requeue.SET_ASIDE:
                    self._pending.queues[decision.cluster_queue].in_flight[decision.workload].set_aside = True
                self._requeue(decision, decision.requeue, now, parks_class=parks_class)
            case SecondPassFailed():
                self._mark_victims(decision.targets)
                self._second_passes.try_later(decision.workload, now, decision.scan_position)
            case Evict():
                self._reservations.mark_evicted(decision.workload)
                self._second_passes.drop(decision.workload)

    def _plan(self, planning: Planning, decision: Decision, now: Nanoseconds) -> None:
        queue = self._pending.queues.get(decision.cluster_queue)
        planning.decided(decision, queue.in_flight.get(decision.workload) if queue is not None else None, now)

    def _compare_preemption(self, decision: Decision, queues: tuple[str, ...], now: Nanoseconds) -> None:
        """Let the loop detector compare a decision that evicts Workloads which were not being evicted before."""
        if isinstance(decision, Preempt | SecondPassFailed):
            targets = tuple(sorted(victim.key for victim in decision.targets if not victim.already_evicted))
            if targets:
                held = [self._reservations.held[key] for key in targets]
                pods = [(each.key, each.cluster_queue, _likeness(each)) for each in held if _is_pod(each)]
                self._loops.preempted(queues, decision.cluster_queue, decision.workload, targets, now, pods)
                if self._parts.thrashing is not None:
                    for reservation in held:
                        self._parts.thrashing.preempted(reservation, now)
                if self._preemption_order is not None:
                    self._preemption_order.preempted(queues, decision.workload, targets)

    def _guarded(self, decision: Decision, queues: tuple[str, ...], now: Nanoseconds) -> Decision:
        """The decision, without preemptions that would begin another round of a loop [LG6]. The Workload waits in its
        place, as one that waits for its targets to stop does."""
        if not isinstance(decision, Preempt | SecondPassFailed):
            return decision
        if isinstance(decision, Preempt) and decision.migrates:
            return decision  # to a better flavor; a migration ends by itself
        targets = tuple(sorted(victim.key for victim in decision.targets if not victim.already_evicted))
        until = self._loops.delayed_until(queues, decision.workload, targets, now) if targets else None
        if until is None:
            return decision
        if isinstance(decision, SecondPassFailed):
            return replace(decision, targets=tuple(victim for victim in decision.targets if victim.already_evicted))
        loop = self._loops.loop_of(decision.workload)
        return Wait(
            workload=decision.workload,
            cluster_queue=decision.cluster_queue,
            explanation=decision.explanation,
            scan_position=decision.scan_position,
            rank=decision.rank,
            reason=decision.reason,
            requeue=Requeue.PENDING_PREEMPTION,
            message=(
                f"Preemption of {', '.join(targets)} is delayed until {format_time(until)}"
                f" by a {loop.title() if loop is not None else 'preemption loop'}"
                + (f": {loop.sentence()}" if loop is not None else "")
            ),
        )

    def _mark_victims(self, targets: Iterable[TargetWorkload]) -> None:
        for victim in targets:
            if not victim.already_evicted:
                self._reservations.mark_evicted(victim.key)

    def _requeue(self, decision: Preempt | Wait, requeue: Requeue, now: Nanoseconds, *, parks_class: bool) -> None:
        queue = self._pending.queues[decision.cluster_queue]
        workload = queue.in_flight[decision.workload]
        has_plans = self._planning is not None and self._planning.has_plans(decision.cluster_queue)
        # One that has no planned start because of windows must not hold back the queue, either.
        is_refused = requeue is Requeue.PLANNED and self._structure.read[queue.name].spec.backfill is not None
        queue.requeue(
            workload,
            requeue,
            decision.reason,
            now,
            scan=decision.scan_position,
            # An equal Workload behind it would otherwise be planned only after those that are behind both.
            parks_class=parks_class and not (self._planning is not None and self._planning.has_places(queue.name)),
            as_best_effort=has_plans or is_refused,
        )

    def _assume(self, decision: Admit, now: Nanoseconds) -> None:
        """Count the reservation from now on, before it is written to the API."""
        if decision.is_second_pass:
            workload = self._second_passes.pop(decision.workload)
        else:
            queue = self._pending.queues[decision.cluster_queue]
            workload = queue.in_flight[decision.workload]
            if (preemptor := queue.preemptor_record(decision.workload)) is not None:
                self._parts.assumed_preemptors[decision.workload] = preemptor
            self._charge(workload, decision, now)
            self._parts.starts.started(workload, now)
            self._pending.forget(decision.workload)
        self._reservations.assume(workload, decision, now)
        self._parts.assumed.assume(workload.key, self._parts.revisions.get(workload.key, ""))
        if decision.replaces:
            self._parts.replace_slice(decision.replaces, by=decision.workload)

    def _charge(self, workload: WorkloadInfo, decision: Admit, now: Nanoseconds) -> None:
        """Charge the LocalQueue the entry penalty of an admission, where the ClusterQueue orders by usage [AF5]."""
        spec = self._structure.read[decision.cluster_queue].spec
        if self._consumed is None or not spec.is_usage_based:
            return
        covered = spec.covered
        requested = [
            (resource, amount)
            for pod_set in workload.shape.pod_sets
            for resource, amount in pod_set.requests
            if not self._policy.ignore_undeclared or resource in covered
        ]
        self._consumed.charge(f"{workload.namespace}/{workload.local_queue}", workload.key, requested, now)

    # Results of writes.

    def refuse(self, key: str) -> None:
        """Release an assumed reservation that was not stored; see `World.refuse`."""
        self._parts.assumed.end(key)
        preemptor = self._parts.assumed_preemptors.pop(key, None)
        held = self._reservations.held.get(key)
        if held is None:
            return
        queue = self._pending.queues.get(held.cluster_queue)
        if preemptor is not None and queue is not None:
            queue.restore_preemptor(key, preemptor)
        if self._consumed is not None:
            self._consumed.forgive(f"{held.namespace}/{held.local_queue}", key)
        self._parts.end_reservation(key)

    def set_aside(self, key: str, why: str, now: Nanoseconds) -> Wait | None:
        """Exclude a pending Workload from scheduling until it changes; see `World.set_aside`."""
        workload = self._pending.pending(key)
        if workload is None:
            return None
        self._pending.set_aside(workload, now)
        return Wait(
            workload=key,
            cluster_queue=workload.cluster_queue,
            reason=QuotaReservedReason.PENDING_EVALUATION,
            requeue=Requeue.SET_ASIDE,
            message=f"{why}; it is left out until it changes",
        )


def _likeness(reservation: Reservation) -> PodLikeness:
    return PodLikeness.of(reservation.key, reservation.local_queue, reservation.shape)


def _is_pod(reservation: Reservation) -> bool:
    """Whether a reservation may be that of a single pod: it has one pod. Its replacement is checked when it arrives."""
    return len(reservation.pod_sets) == 1 and reservation.pod_sets[0].count == 1


def _heads(queues: Iterable[PendingQueue]) -> Firsts:
    return [(queue, head) for queue in queues if (head := queue.head()) is not None]


def _head_set(firsts: Firsts) -> HeadSet:
    return tuple((queue.name, head, queue.is_preemptor(head), head.resumes_at) for queue, head in firsts)
