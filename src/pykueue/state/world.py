"""The memory: what the API said, as the brain sees it, kept up by differences.

`put` and `drop` take watched objects in any order; `decide` runs one cycle and writes its outcome into the memory:
heads go back to their queues, reservations are assumed. What shapes trees is only noted; the next question builds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kubemachinery.meta import Nanoseconds
from pykueue.api import kube, kueue
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import cycle, requests, topology
from pykueue.core.cycle import Head
from pykueue.core.decision import Admit, Decision, Evict, Preempt, Requeue, SecondPassFailed, TargetWorkload, Wait
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.requests import Exclusion
from pykueue.core.reservation_check import Holds, HoldsAfter, Lost
from pykueue.core.snapshot import Snapshot
from pykueue.core.topology import Fleet, PlacementOptions
from pykueue.core.workload import Reservation, WorkloadInfo
from pykueue.lifecycle import states
from pykueue.state import assumed, specs, workload_info
from pykueue.state.assumed import AssumedReservations, ReadOutcome
from pykueue.state.namespaces import Namespaces
from pykueue.state.non_tas_usage import NonTASUsage, UsageDelta
from pykueue.state.pending_index import LocalQueue, PendingIndex
from pykueue.state.pending_queue import PendingQueue, PreemptorMemory
from pykueue.state.pod_set_requests import Demands
from pykueue.state.preemption_loops import LoopDetector, PreemptionLoop
from pykueue.state.reservations import Reservations
from pykueue.state.scheduling_scope import SchedulingScope, SchedulingScopes
from pykueue.state.second_pass import SecondPasses
from pykueue.state.structure import Structure
from pykueue.state.usage_history import ConsumedResources


class World:
    """One owner, no I/O, no clock of its own."""

    def __init__(
        self,
        policy: SchedulingPolicy = SchedulingPolicy(),  # noqa: B008 - frozen
        *,
        accounting: requests.Accounting = requests.PLAIN,
        profile: PlacementOptions | None = None,
    ) -> None:
        self.policy = policy
        self.snapshot = Snapshot(Fleet() if profile is None else Fleet(profile))
        self.structure = Structure(policy, self.snapshot)
        self.waking = SchedulingScopes()
        self.lines = PendingIndex(self.waking)
        self.usage_history = ConsumedResources(policy.usage_history) if policy.usage_history is not None else None
        self.ledger = (
            AssumedReservations()
        )  # reservations whose writing is under way; the writer tells it what came of it
        self.cycles = 0
        # Pending Workloads whose requests may read differently now; whoever has the objects puts them again.
        self.outdated: set[str] = set()
        self._demands = Demands(policy, accounting)
        self._loops = LoopDetector()
        self._reservations = Reservations(self.structure, self.waking, self._loops)
        self._second_passes = SecondPasses()
        self._non_tas_usage = NonTASUsage(self.snapshot.fleet)
        self._namespaces = Namespaces(self.structure)
        self._revisions: dict[str, str] = {}
        # Preemptors whose reservation is not confirmed. A queue clears its memory when the Workload leaves it; a
        # reservation that is refused must bring the memory back, as in Kueue, which clears it on the confirming read.
        self._assumed_preemptors: dict[str, PreemptorMemory] = {}

    @property
    def queues(self) -> Mapping[str, PendingQueue]:
        """Who waits, by ClusterQueue."""
        return self.lines.queues

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """Who holds quota."""
        return self._reservations.held

    @property
    def second_passes(self) -> Mapping[str, WorkloadInfo]:
        """Who of them has to be looked at once more."""
        return self._second_passes.heads

    # Objects.

    def put(self, thing: object, now: Nanoseconds = 0) -> None:
        """A watched object appeared or changed. A kind that does not matter here is ignored."""
        handler = _PUT.get(type(thing))
        if handler is not None:
            handler(self, thing, now)

    def drop(self, thing: object, now: Nanoseconds = 0) -> None:
        """A watched object is gone; its last known state."""
        handler = _DROP.get(type(thing))
        if handler is not None:
            handler(self, thing, now)

    def _put_cluster_queue(self, cluster_queue: kueue.ClusterQueue, now: Nanoseconds) -> None:
        name = cluster_queue.metadata.name
        excluded = self._excluded_by(name)
        if not self.structure.put_cluster_queue(cluster_queue):
            return
        if self._excluded_by(name) != excluded:
            self.outdated.update(self.lines.waiting_for(name))
        self.lines.open(name, now)
        self.waking.release((name,))

    def _drop_cluster_queue(self, cluster_queue: kueue.ClusterQueue, now: Nanoseconds) -> None:
        name = cluster_queue.metadata.name
        self.waking.release(self.structure.companions(name))
        self.structure.drop_cluster_queue(name)
        self.lines.close(name)

    def _put_cohort(self, cohort: kueue.Cohort, now: Nanoseconds) -> None:
        if self.structure.put_cohort(specs.cohort_spec(cohort)):
            self._regrow()
            self.waking.release(self.structure.queues_under(cohort.metadata.name))

    def _drop_cohort(self, cohort: kueue.Cohort, now: Nanoseconds) -> None:
        """Its quota and its place in the tree vanish at once; whoever was under it, or beside it, may fit now (W13)."""
        self.waking.release(self.structure.queues_under(cohort.metadata.name))
        self.structure.drop_cohort(cohort.metadata.name)

    def _put_flavor(self, flavor: kueue.ResourceFlavor, now: Nanoseconds) -> None:
        self._release_for(self.structure.put_flavor(flavor))

    def _drop_flavor(self, flavor: kueue.ResourceFlavor, now: Nanoseconds) -> None:
        self._release_for(self.structure.drop_flavor(flavor.metadata.name))

    def _put_topology(self, found: kueue.Topology, now: Nanoseconds) -> None:
        self._release_for(self.structure.put_topology(found))

    def _drop_topology(self, found: kueue.Topology, now: Nanoseconds) -> None:
        self.structure.drop_topology(found.metadata.name)

    def _put_check(self, check: kueue.AdmissionCheck, now: Nanoseconds) -> None:
        self._release_for(self.structure.put_check(check))

    def _release_for(self, queues: Iterable[str]) -> None:
        """Release the queues that an object of another kind concerns, if there are any: the object has changed."""
        concerned = tuple(queues)
        if concerned:
            self._loops.changed()
            self.waking.release(concerned)

    def _drop_check(self, check: kueue.AdmissionCheck, now: Nanoseconds) -> None:
        self.structure.drop_check(check.metadata.name)

    def _put_local_queue(self, local_queue: kueue.LocalQueue, now: Nanoseconds) -> None:
        key, spec = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}", local_queue.spec
        leads = LocalQueue(spec.cluster_queue or "", spec.stop_policy != kueue.StopPolicy.NONE)
        if self.usage_history is not None:
            self.usage_history.weights[key] = specs.weight(spec.fair_sharing)
            past = specs.past_usage(local_queue)
            if past is not None:
                self.usage_history.seed(key, past.consumed, past.at or now)
            read = self.structure.read.get(leads.cluster_queue)
            if read is None or read.spec.is_usage_based:  # elsewhere a new sample changes no order
                self.waking.invalidate(leads.cluster_queue)
        if self.lines.put_local_queue(key, leads, now):
            self._loops.changed()

    def _drop_local_queue(self, local_queue: kueue.LocalQueue, now: Nanoseconds) -> None:
        key = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}"
        self._loops.changed()
        self.lines.drop_local_queue(key)
        if self.usage_history is not None:
            self.usage_history.close(key)

    def _put_namespace(self, namespace: kube.Namespace, now: Nanoseconds) -> None:
        taken_by = self._namespaces.put(namespace)
        if taken_by is not None:
            self.waking.release(taken_by)
            self._invalidate_queues_of(namespace.metadata.name)

    def _drop_namespace(self, namespace: kube.Namespace, now: Nanoseconds) -> None:
        self._namespaces.drop(namespace.metadata.name)
        self._invalidate_queues_of(namespace.metadata.name)

    def _invalidate_queues_of(self, namespace: str) -> None:
        """Where Workloads of the namespace wait, they may be refused now, or not any more."""
        self._loops.changed()
        for queue in self.lines.targets(namespace):
            self.waking.invalidate(queue)

    def _put_limit_range(self, limit_range: kube.LimitRange, now: Nanoseconds) -> None:
        self._demands.put_limit_range(limit_range)
        self.outdated.update(self.lines.waiting(limit_range.metadata.namespace))

    def _drop_limit_range(self, limit_range: kube.LimitRange, now: Nanoseconds) -> None:
        self._demands.drop_limit_range(limit_range)
        self.outdated.update(self.lines.waiting(limit_range.metadata.namespace))

    def _put_runtime_class(self, runtime_class: kube.RuntimeClass, now: Nanoseconds) -> None:
        self._demands.put_runtime_class(runtime_class)
        self.outdated.update(self.lines.waiting())

    def _drop_runtime_class(self, runtime_class: kube.RuntimeClass, now: Nanoseconds) -> None:
        self._demands.drop_runtime_class(runtime_class)
        self.outdated.update(self.lines.waiting())

    def _put_node(self, node: kube.Node, now: Nanoseconds) -> None:
        if not self.policy.topology:
            return
        read = topology.topology_node_of(node)
        if read is None:
            self._drop_node(node, now)
        elif self.snapshot.fleet.put_node(read):
            self._release_for(self.structure.on_nodes())

    def _drop_node(self, node: kube.Node, now: Nanoseconds) -> None:
        """Pods that were to go there may fit elsewhere now."""
        if self.snapshot.fleet.drop_node(node.metadata.name):
            self._release_for(self.structure.on_nodes())

    def _put_pod(self, pod: kube.Pod, now: Nanoseconds) -> None:
        if self.policy.topology:
            self._apply_usage_delta(self._non_tas_usage.put(pod))

    def _drop_pod(self, pod: kube.Pod, now: Nanoseconds) -> None:
        self._apply_usage_delta(self._non_tas_usage.drop(pod))

    def _apply_usage_delta(self, delta: UsageDelta) -> None:
        if delta is not UsageDelta.NONE:
            self._loops.changed()
            for name in self.structure.on_nodes():
                self.waking.invalidate(name)
        if delta is UsageDelta.RELEASED:
            self.waking.release(self.structure.on_nodes())

    # Workloads.

    def _put_workload(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        key = states.key(workload)
        if assumed.is_older(workload.metadata.resource_version, self._revisions.get(key, "")):
            return  # a watch that is behind what was read past it must not give back what that read has shown
        self.outdated.discard(key)
        if key not in self._revisions:
            self._loops.changed(self._target_of(workload))
        is_news = self._revisions.get(key) != workload.metadata.resource_version
        self._revisions[key] = workload.metadata.resource_version
        # A parent shows the admission of its variant, which holds the quota.
        holds_quota = workload_info.holds_quota(workload) and not workload_info.has_variants(workload, self.policy)
        if key in self.ledger:
            is_over = states.is_finished(workload) or not states.is_active(workload)
            if is_over:
                self.ledger.end(key)
            elif self.ledger.read(key, workload.metadata.resource_version, shows_it=holds_quota) is ReadOutcome.KEEP:
                return  # older than our own write: what we decided stands
        if holds_quota:
            self._assumed_preemptors.pop(key, None)
            self.lines.forget(key)
            self._put_reservation(workload)
            return
        if key in self.reservations:
            if not workload_info.was_preempted(workload, self.reservations[key]):
                self._loops.changed(self.reservations[key].cluster_queue)
            self._end(key)
        if workload_info.may_queue(workload, self.policy):
            waited = self.lines.pending(key) is not None
            self._put_pending(workload, now)
            if waited and is_news:
                self.lines.count(key)
        elif self.lines.pending(key) is not None:
            self._loops.changed(self._target_of(workload))
            self.lines.forget(key)

    def _drop_workload(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        key = states.key(workload)
        self.ledger.end(key)
        self._loops.changed(self._target_of(workload))
        self._revisions.pop(key, None)
        self._assumed_preemptors.pop(key, None)
        pending = self.lines.pending(key)
        if key in self.reservations:
            self._end(key)
        elif pending is not None:
            self.waking.release((self.lines.target(f"{pending.namespace}/{pending.local_queue}"),))
        self.lines.forget(key)

    def _put_pending(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        cluster_queue = self._target_of(workload)
        shape = self._demands.shape(workload, self._excluded_by(cluster_queue))
        pending = workload_info.pending(workload, shape, cluster_queue, self.policy)
        before = self.lines.pending(pending.key)
        if before is not None and pending.differs_from(before):
            self._loops.changed(cluster_queue)
        self.lines.put(pending, now)

    def _put_reservation(self, workload: kueue.Workload) -> None:
        shape = self._demands.shape(workload, self._excluded_by(self._target_of(workload)))
        reservation = self._reservations.put(workload_info.reservation(workload, shape, self.policy))
        if workload_info.needs_second_pass(workload):
            head = workload_info.pending(workload, shape, reservation.cluster_queue, self.policy)
            self._second_passes.put(head, reservation)
        else:
            self._second_passes.end(reservation.key)

    def _end(self, key: str) -> None:
        self._second_passes.drop(key)
        self._reservations.end(key)

    def _target_of(self, workload: kueue.Workload) -> str:
        return self.lines.target(f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")

    def _excluded_by(self, cluster_queue: str) -> tuple[str, ...]:
        """What the queue's own list leaves out, where such lists count."""
        found = self.structure.cluster_queues.get(cluster_queue) if self._demands.by_queue else None
        return found.spec.exclude_resource_prefixes if found is not None else ()

    # Questions.

    def settle(self, now: Nanoseconds) -> None:
        """Bring trees and queues up to date with everything that was put and dropped."""
        self._regrow()
        self.lines.wake(now)
        released = self.waking.take_released()

        def may_return(workload: WorkloadInfo) -> bool:
            return workload.may_compete(now) and self._namespaces.are_right_for(workload)

        for name in sorted({companion for one in released for companion in self.structure.companions(one)}):
            if name in self.queues:
                self.queues[name].release(may_return)
                self.waking.invalidate(name)

    def _regrow(self) -> None:
        """Build the trees that changed, and have their queues in the order that they ask for."""
        changed = self.structure.settle()
        if changed:
            self._loops.changed()
            self.waking.regroup(self.structure.scopes())
            # Also those whom a queue or a cohort has left behind: what it had borrowed is room for them.
            self.waking.release(changed)
        for name in sorted(changed):
            self.waking.invalidate(name)
            queue, read = self.queues.get(name), self.structure.read.get(name)
            if queue is None or read is None:
                continue
            history = self.usage_history if read.spec.is_usage_based else None
            usage = history.usage if history is not None else None
            queue.relist(usage, read.spec.strategy)
            seat = self.snapshot.queues.get(name)
            if seat is not None:
                seat.local_usage = usage

    def in_cohort_cycle(self, now: Nanoseconds) -> frozenset[str]:
        """The ClusterQueues whose cohorts are their own ancestors."""
        self.settle(now)
        return self.structure.in_cohort_cycle

    def cohort_path(self, cluster_queue: str) -> str:
        """The ClusterQueue below its cohorts, from the root: `/root/team/queue`. Empty where it does not exist."""
        node = self.structure.node(cluster_queue)
        if node is None:
            return ""
        return "/" + "/".join(reversed((node.name, *(above.name for above in node.ancestors))))

    def priority(self, workload: kueue.Workload) -> int:
        """The priority that counts for a Workload, its boost included."""
        return workload_info.priority(workload, self.policy)

    def problem(self, key: str) -> str:
        """What makes a waiting Workload impossible to admit, whatever is free; empty when nothing does."""
        workload = self.lines.pending(key)
        refusal = self._namespaces.refusal(workload) if workload is not None else None
        return refusal.message if refusal is not None else ""

    def inadmissible_class_reason(self, key: str) -> QuotaReservedReason | None:
        """[QU13] Why a Workload of the same kind did not get in, where that verdict still stands."""
        workload = self.lines.pending(key)
        queue = self.queues.get(workload.cluster_queue) if workload is not None else None
        verdict = (
            queue.inadmissible_classes.get(workload.equivalence_class)
            if queue is not None and workload is not None
            else None
        )
        return verdict.reason if verdict is not None else None

    def exclusions(self, workload: kueue.Workload) -> tuple[Exclusion, ...]:
        """What a Workload asks for and is not charged, and which list leaves it out (KEP-5800)."""
        return self._demands.exclusions(workload, self._excluded_by(self._target_of(workload)))

    def excluded_from_checks(self, workload: kueue.Workload) -> frozenset[str]:
        """The resources that admission checks do not look at: what either list excludes, where ClusterQueues have lists
        of their own (KEP-5800). Without them the global list concerns quota alone, as in Kueue."""
        if not self._demands.by_queue:
            return frozenset()
        return frozenset(each.resource for each in self.exclusions(workload))

    def skipped(self, workload: kueue.Workload, cluster_queue: str) -> tuple[str, ...]:
        """What a Workload asks for and nobody looks at, because the ClusterQueue does not declare it (KEP-7513)."""
        read = self.structure.read.get(cluster_queue)
        if not self.policy.ignore_undeclared or read is None:
            return ()
        covered, shape = read.spec.covered, self._demands.shape(workload)
        asked = (requests.undeclared(pod_set.requests, covered) for pod_set in shape.pod_sets)
        return tuple(sorted({resource for of_one in asked for resource, _ in of_one}))

    def pending_keys(self) -> Iterable[str]:
        """The Workloads that wait, in any queue or in none."""
        return self.lines.waiting()

    def take_new_loops(self) -> list[PreemptionLoop]:
        """The preemption loops that were found since the last call."""
        return self._loops.take_new()

    def loop_of(self, key: str) -> PreemptionLoop | None:
        """The preemption loop that a Workload is in, if it is in one."""
        return self._loops.loop_of(key)

    def next_wake(self) -> Nanoseconds | None:
        """When something happens without any event: the earliest end of a back-off."""
        times = [queue.next_wake for queue in self.queues.values()]
        return min((time for time in (*times, *self._second_passes.pauses()) if time is not None), default=None)

    def recheck(self, key: str, now: Nanoseconds) -> Holds | HoldsAfter | Lost:
        """Whether a reservation still holds, and which targets it needs gone; asked when preemptions that were deferred
        are due, and when the last check has passed."""
        self.settle(now)
        return self._reservations.recheck(key, self.policy, now)

    def take_unblocked(self) -> set[str]:
        """Reservations one of whose assumed victims has gone since the last time; who waited with them looks again."""
        return self._reservations.take_unblocked()

    # Cycles.

    def decide(self, now: Nanoseconds, *, enough: int | None = None) -> list[Decision]:
        """One cycle wherever something changed: what it decided, already written into the memory.

        After `enough` decisions the other districts are left for the next call, so that nobody holds up everybody.
        Nothing is decided where everybody would only hear again what they heard. The decisions are in scheduling order:
        without fair sharing over all districts, as one cycle over all queues would process them; with fair sharing,
        which compares entries of one tree only, district by district.
        """
        self.settle(now)
        for workload in self._second_passes.due(now):
            self.waking.invalidate(workload.cluster_queue)
        decisions: list[Decision] = []
        for scope in self.waking.due(lambda: enough is None or len(decisions) < enough):
            heads = self._heads(scope, now)
            if heads:
                self.waking.mark_ready(scope.queues[0])  # until nobody is left who has not been tried
                for decision in cycle.run(self.snapshot, heads, self.policy, now):
                    self._compare_preemption(decision, scope.queues, now)
                    self._carry_out(decision, now)
                    decisions.append(decision)
        self.cycles += bool(decisions)
        # Stable: what has no rank stays behind, in its order. With fair sharing nothing has one.
        return sorted(decisions, key=lambda decision: (not decision.rank, decision.rank))

    def retry_all(self) -> None:
        """Try all who wait once more, for no cause: the safety net. Nobody should get in who was not woken before."""
        self.waking.release(self.queues)
        for name in sorted(self.queues):
            self.waking.invalidate(name)

    def _heads(self, scope: SchedulingScope, now: Nanoseconds) -> list[Head]:
        """[QU7] Second passes that are due, then one head of every queue that takes part, by name. None at all where
        all of them have been tried on the facts as they are."""
        again = [head for head in self._second_passes.due(now) if head.cluster_queue in scope.queues]
        queues = self.queues
        lines = [
            queue
            for name in scope.queues
            if (queue := queues.get(name)) is not None and len(queue) and self.structure.is_open(name)
        ]
        if self.policy.is_fair:
            # Of a queue one takes part, and of a second pass and a head it is the head. A second pass that has lost
            # once has its queue for itself, or the head of a strict queue would keep it from its nodes for ever.
            lost = {workload.cluster_queue for workload in again if self._second_passes.has_failed(workload.key)}
            lines = [queue for queue in lines if queue.name not in lost]
        firsts = [(queue, head) for queue in lines if (head := queue.head()) is not None]
        front = tuple((head, queue.is_preemptor(head), head.resumes_at) for queue, head in firsts)
        if not again:
            if not front or front in scope.tried:
                return []
            scope.tried.add(front)
        for queue in lines:
            queue.pop()
        return [
            *(Head(workload, refusal=self._namespaces.refusal(workload)) for workload in again),
            *(Head(head, queue.is_preemptor(head), self._namespaces.refusal(head)) for queue, head in firsts),
        ]

    def _carry_out(self, decision: Decision, now: Nanoseconds) -> None:
        match decision:
            case Admit():
                self._assume(decision, now)
            case Preempt():
                self._evict(decision.targets)
                requeue = Requeue.PENDING_MIGRATION if decision.migrates else Requeue.PENDING_PREEMPTION
                if decision.migrates and not self.reservations[decision.migrates].evicted:
                    # Marked once: every mark has the queues evaluated again, and the head would be decided for ever.
                    self._reservations.mark_evicted(decision.migrates)
                self._requeue(decision, requeue, now)
            case Wait():
                if decision.requeue is Requeue.SET_ASIDE:
                    self.queues[decision.cluster_queue].in_flight[decision.workload].set_aside = True
                self._requeue(decision, decision.requeue, now)
            case SecondPassFailed():
                self._evict(decision.targets)
                self._second_passes.try_later(decision.workload, now, decision.scan_position)
            case Evict():
                self._reservations.mark_evicted(decision.workload)
                self._second_passes.drop(decision.workload)

    def _compare_preemption(self, decision: Decision, queues: tuple[str, ...], now: Nanoseconds) -> None:
        """Let the loop detector compare a decision that evicts Workloads which were not being evicted before."""
        if isinstance(decision, Preempt | SecondPassFailed):
            targets = tuple(sorted(victim.key for victim in decision.targets if not victim.already_evicted))
            if targets:
                self._loops.preempted(queues, decision.cluster_queue, decision.workload, targets, now)

    def _evict(self, victims: Iterable[TargetWorkload]) -> None:
        for victim in victims:
            if not victim.already_evicted:
                self._reservations.mark_evicted(victim.key)

    def _requeue(self, decision: Preempt | Wait, requeue: Requeue, now: Nanoseconds) -> None:
        queue = self.queues[decision.cluster_queue]
        workload = queue.in_flight[decision.workload]
        parks_class = self.policy.equivalence_hashing
        queue.requeue(workload, requeue, decision.reason, now, scan=decision.scan_position, parks_class=parks_class)

    def _assume(self, decision: Admit, now: Nanoseconds) -> None:
        """The reservation counts from now on, before the API has heard of it."""
        if decision.is_second_pass:
            workload = self._second_passes.pop(decision.workload)
        else:
            queue = self.queues[decision.cluster_queue]
            workload = queue.in_flight[decision.workload]
            if (memory := queue.remembered(decision.workload)) is not None:
                self._assumed_preemptors[decision.workload] = memory
            self._charge(workload, decision, now)
            self.lines.forget(decision.workload)
        self._reservations.assume(workload, decision, now)
        self.ledger.assume(workload.key, self._revisions.get(workload.key, ""))
        if decision.replaces and decision.replaces in self.reservations:
            self._end(decision.replaces)

    def _charge(self, workload: WorkloadInfo, decision: Admit, now: Nanoseconds) -> None:
        """[AF5]"""
        spec = self.structure.read[decision.cluster_queue].spec
        if self.usage_history is None or not spec.is_usage_based:
            return
        covered = spec.covered
        asked = [
            (resource, amount)
            for pod_set in workload.shape.pod_sets
            for resource, amount in pod_set.requests
            if not self.policy.ignore_undeclared or resource in covered
        ]
        self.usage_history.charge(f"{workload.namespace}/{workload.local_queue}", workload.key, asked, now)

    # What came of a decision.

    def mark_evicted(self, key: str) -> None:
        """The eviction of a Workload is on its way outside a cycle; it counts as evicted from now on."""
        if key in self.reservations:
            self._reservations.mark_evicted(key)

    def refuse(self, key: str) -> None:
        """The write of a reservation came to nothing: it is over. Whoever has the object puts it again."""
        self.ledger.end(key)
        memory = self._assumed_preemptors.pop(key, None)
        held = self.reservations.get(key)
        if held is not None:
            if memory is not None and held.cluster_queue in self.queues:
                self.queues[held.cluster_queue].remember(key, memory)
            if self.usage_history is not None:
                self.usage_history.forgive(f"{held.namespace}/{held.local_queue}", key)
            self._end(key)

    def set_aside(self, key: str, why: str, now: Nanoseconds) -> Wait | None:
        """What was decided for a Workload that waits again can never be written: leave it out until it changes. What to
        tell about it; nothing where it does not wait any more."""
        workload = self.lines.pending(key)
        if workload is None:
            return None
        self.lines.set_aside(workload, now)
        return Wait(
            workload=key,
            cluster_queue=workload.cluster_queue,
            reason=QuotaReservedReason.PENDING_EVALUATION,
            requeue=Requeue.SET_ASIDE,
            message=f"{why}; it is left out until it changes",
        )


_Handler = Callable[[World, Any, Nanoseconds], None]

_PUT: Final[Mapping[type, _Handler]] = {
    kueue.ClusterQueue: World._put_cluster_queue,
    kueue.Cohort: World._put_cohort,
    kueue.LocalQueue: World._put_local_queue,
    kueue.ResourceFlavor: World._put_flavor,
    kueue.Topology: World._put_topology,
    kueue.AdmissionCheck: World._put_check,
    kueue.Workload: World._put_workload,
    kube.Namespace: World._put_namespace,
    kube.LimitRange: World._put_limit_range,
    kube.RuntimeClass: World._put_runtime_class,
    kube.Node: World._put_node,
    kube.Pod: World._put_pod,
}

_DROP: Final[Mapping[type, _Handler]] = {
    kueue.ClusterQueue: World._drop_cluster_queue,
    kueue.Cohort: World._drop_cohort,
    kueue.LocalQueue: World._drop_local_queue,
    kueue.ResourceFlavor: World._drop_flavor,
    kueue.Topology: World._drop_topology,
    kueue.AdmissionCheck: World._drop_check,
    kueue.Workload: World._drop_workload,
    kube.Namespace: World._drop_namespace,
    kube.LimitRange: World._drop_limit_range,
    kube.RuntimeClass: World._drop_runtime_class,
    kube.Node: World._drop_node,
    kube.Pod: World._drop_pod,
}
