"""Nomination of one head alone ([CY10]): the best assignment, with the preemption targets that make it possible.

Nothing is decided here. Every what-if is undone before the result is returned, and the Workload is not changed: where
the next scan of its flavors continues is part of the assignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.core import amounts, flavor_assigner, preemption, quota, topology, topology_request
from pykueue.core.amounts import Amount
from pykueue.core.assignment import Assignment, AssignmentInputs, FlavorAssignmentMode, assigned_of
from pykueue.core.decision import PreemptionMode
from pykueue.core.flavor_assigner import scaled
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import PreemptionTarget, TargetSearch
from pykueue.core.queue import FlavorResourceNumber, UsageByNumber
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import PlacementRequest
from pykueue.core.workload import Reservation, ScanPosition, WorkloadInfo


class Nominator(msgspec.Struct, frozen=True):
    """Nominates the heads of one cycle."""

    snapshot: Snapshot
    policy: SchedulingPolicy
    now: Nanoseconds

    def find(
        self,
        workload: WorkloadInfo,
        queue: Queue,
        scan_position: ScanPosition | None,
        pinned: Mapping[str, Mapping[str, str]] | None = None,
        spared: frozenset[str] = frozenset(),
    ) -> tuple[Assignment, list[PreemptionTarget]]:
        """The best assignment, with the targets that make it possible. `scan_position` is where the last scan of the
        flavors stopped; `pinned` restricts the flavors ([CY6]); `spared` Workloads are no targets ([FS22])."""
        if scan_position is not None and self._is_outdated(scan_position, workload, queue):
            scan_position = None
        replaced = self._replaced(workload, queue)
        search = _Targets(self, workload, queue, spared)
        inputs = AssignmentInputs(
            snapshot=self.snapshot,
            policy=self.policy,
            workload=workload,
            queue=queue,
            simulate=search.simulate,
            scan_position=scan_position,
            replaced=replaced,
            pinned=pinned,
        )
        assignment, targets = self._assign(inputs, search)
        self._reserve_places(inputs, assignment, targets)
        return assignment, targets

    def _assign(self, inputs: AssignmentInputs, search: _Targets) -> tuple[Assignment, list[PreemptionTarget]]:
        """The full counts if they fit or find targets, then reduced counts, else the full counts without targets."""
        old = [PreemptionTarget(inputs.replaced, None)] if inputs.replaced is not None else []
        full = flavor_assigner.assign(inputs)
        if full.mode is FlavorAssignmentMode.FIT:
            return full, old
        targets = search.of(inputs, full)
        if targets:
            return full, old + targets
        if self.policy.partial_admission and any(p.can_shrink for p in inputs.workload.shape.pod_sets):
            partial = self._assign_reduced(inputs, search)
            if partial is not None:
                return partial[0], old + partial[1]
        return full, []

    def _assign_reduced(
        self, inputs: AssignmentInputs, search: _Targets
    ) -> tuple[Assignment, list[PreemptionTarget]] | None:
        """The largest counts that fit or find targets, by binary search over the number of pods left out ([FL27])."""
        pod_sets = inputs.workload.shape.pod_sets
        cuts = [p.spec_count - (p.spec_count if p.min_count is None else p.min_count) for p in pod_sets]
        deepest = sum(cuts)
        if deepest <= 0:
            return None
        best: tuple[Assignment, list[PreemptionTarget]] | None = None
        low, high = 0, deepest + 1
        while low < high:
            step = (low + high) // 2
            counts = [p.spec_count - cut * step // deepest for p, cut in zip(pod_sets, cuts, strict=True)]
            assignment = flavor_assigner.assign(inputs, counts)
            targets = search.of(inputs, assignment)
            if assignment.mode is FlavorAssignmentMode.FIT or targets:
                best, high = (assignment, targets), step
            else:
                low = step + 1
        return best if low <= deepest else None

    def _is_outdated(self, scan_position: ScanPosition, workload: WorkloadInfo, queue: Queue) -> bool:
        """Whether the next scan starts at the first flavor again: the Workload is in another equivalence class, or the
        position is older than the preceding pop cycle of the ClusterQueue and quota may have been released since
        ([FL23])."""
        if self.policy.preserve_scan_progress:
            if scan_position.shape is not None and scan_position.shape is not workload.shape:
                return True
            if workload.pop_cycle - scan_position.pop_cycle <= 1:
                return False
        return queue.generation > scan_position.queue_generation

    def _replaced(self, workload: WorkloadInfo, queue: Queue) -> Reservation | None:
        """The elastic slice that the Workload replaces, if it still holds quota in the same ClusterQueue ([FL28])."""
        key = workload.details.replaces
        if not self.policy.elastic_slices or not key or key in self.snapshot.ended:
            return None
        old = queue.reservations.get(key)
        return old if old is not None and old.namespace == workload.namespace else None

    def _reserve_places(
        self, inputs: AssignmentInputs, assignment: Assignment, targets: Sequence[PreemptionTarget]
    ) -> None:
        """Record where an entry that preempts would be placed: with its targets removed or, without targets, in an
        emptied cluster. A later entry of the cycle then does not take that capacity ([CY10])."""
        workload, queue = inputs.workload, inputs.queue
        if not self.policy.topology or assignment.mode is not FlavorAssignmentMode.PREEMPT:
            return
        if not (workload.shape.requests_topology or queue.spec.is_topology_only) or has_lost_node(workload):
            return
        requests = topology_request.placement_requests(inputs, assignment)
        if not requests:
            return
        if targets:
            mark = self.snapshot.mark()
            for target in targets:
                self.snapshot.remove(target.reservation)
            outcome = topology.place(self.snapshot.topology_cache, requests)
            self.snapshot.undo(mark)
        else:
            outcome = topology.place(self.snapshot.topology_cache, requests, emptied=True)
        topology_request.record_placements(assignment, outcome)


_Question: TypeAlias = tuple[frozenset[FlavorResourceNumber], frozenset[tuple[FlavorResourceNumber, Amount]]]
"""Contested flavor-resources, and the requests: two equal ones have the same targets within one nomination."""


class _Targets:
    """The preemption targets for one head, with the results of earlier searches. Most Workloads request one resource,
    so that the search for the whole Workload is the one that already graded its flavor."""

    def __init__(self, nominator: Nominator, workload: WorkloadInfo, queue: Queue, spared: frozenset[str]) -> None:
        self._nominator = nominator
        self._workload = workload
        self._queue = queue
        self._spared = spared
        self._found: dict[_Question, list[PreemptionTarget]] = {}

    def of(self, inputs: AssignmentInputs, assignment: Assignment) -> list[PreemptionTarget]:
        policy = self._nominator.policy
        if assignment.mode is not FlavorAssignmentMode.PREEMPT:
            return []
        requests = requested(self._workload, assignment, with_pods=policy.departures)
        placements = topology_request.placement_requests(inputs, assignment) if policy.topology else ()
        if placements:
            return preemption.find(self._search(assignment.contested, requests, placements))
        return self._find(assignment.contested, requests)

    def simulate(self, number: FlavorResourceNumber, amount: Amount) -> tuple[PreemptionMode, int]:
        """What preemption could do for one flavor-resource alone, without topology: the mode, and the borrowing level
        once the targets are removed ([FL15])."""
        snapshot, queue = self._nominator.snapshot, self._queue
        targets = self._find(frozenset((number,)), {number: amount})
        if not targets:
            return PreemptionMode.NO_CANDIDATES, quota.level(queue.node, number, amount)[0]
        mark = snapshot.mark()
        for target in targets:
            snapshot.remove(target.reservation)
        level, _ = quota.level(queue.node, number, amount)
        snapshot.undo(mark)
        is_own = any(target.reservation.cluster_queue == queue.name for target in targets)
        return (PreemptionMode.PREEMPT if is_own else PreemptionMode.RECLAIM), level

    def _find(self, contested: frozenset[FlavorResourceNumber], requests: UsageByNumber) -> list[PreemptionTarget]:
        question = contested, frozenset(requests.items())
        if question not in self._found:
            self._found[question] = preemption.find(self._search(contested, requests))
        return self._found[question]

    def _search(
        self,
        contested: frozenset[FlavorResourceNumber],
        requests: UsageByNumber,
        placements: Sequence[PlacementRequest] = (),
    ) -> TargetSearch:
        nominator = self._nominator
        return TargetSearch(
            nominator.snapshot,
            nominator.policy,
            nominator.now,
            self._workload,
            self._queue,
            contested,
            requests,
            placements,
            spared=self._spared,
        )


def requested(workload: WorkloadInfo, assignment: Assignment, *, with_pods: bool) -> dict[FlavorResourceNumber, Amount]:
    """The amounts that targets have to release: the Workload's totals at the counts assigned, and its pods where the
    ClusterQueue counts pods (W1). For an elastic slice only what it has more than the one it replaces."""
    total: dict[FlavorResourceNumber, Amount] = {}
    for choice in assignment.pod_sets:
        assigned = assigned_of(workload, choice.pod_set)
        requests, count = (
            (assigned.requests, assigned.count)
            if assigned is not None
            else (choice.pod_set.requests, choice.pod_set.count)
        )
        wanted = choice.count
        if assignment.replaced is not None:
            old = assignment.replaced.pod_set(choice.name)
            wanted = count - (old.count if old is not None else 0)
        if assigned is None or assigned.placement is None:
            requests, _ = scaled(requests, count, wanted)
        if with_pods and assigned is None and amounts.PODS in choice.flavors:
            requests = (*requests, (amounts.PODS, wanted))
        for resource, amount in requests:
            chosen = choice.flavors.get(resource)
            if amount != 0 and chosen is not None:
                total[chosen.number] = amounts.add(total.get(chosen.number, 0), amount)
    return total


def has_lost_node(workload: WorkloadInfo) -> bool:
    """Whether an admitted Workload has pods placed on a node that is unhealthy."""
    reservation = workload.reservation
    if reservation is None or not reservation.admitted or not workload.details.unhealthy_nodes:
        return False
    lost = set(workload.details.unhealthy_nodes)
    return any(
        domain.values[-1] in lost
        for assigned in reservation.pod_sets
        if assigned.placement is not None
        for domain in assigned.placement.domains
    )
