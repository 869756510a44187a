"""A quick nomination of heads for cycles whose reasons are not read: runs ahead decide the same heads many times.

Most heads of a full cohort tree wait again and again, and most of the others fit. `HeadScreen.nominate` finds both
without a walk over the flavors and without an explanation. Its results are exactly those of the whole evaluation; every
case that is out of the ordinary is left to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeAlias

from kubemachinery.meta import Nanoseconds
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import amounts, eligibility, preemption, quota
from pykueue.core.amounts import Amount
from pykueue.core.assignment import Assignment, FlavorAssignment, FlavorAssignmentMode, PodSetFlavorAssignment
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import TargetSearch, classical
from pykueue.core.queue import FlavorResourceNumber
from pykueue.core.snapshot import GroupFlavor, Queue, Snapshot
from pykueue.core.workload import Requests, ScanPosition, WorkloadInfo


class Screened(Enum):
    """The results of a quick nomination without an assignment."""

    CAN_ONLY_WAIT = auto()  # the evaluation ends with a `Wait` that parks the equivalence class
    UNKNOWN = auto()  # the head is to be evaluated as a whole


ScreenedNomination: TypeAlias = Assignment | Screened


class HeadScreen:
    """The quick nomination of the heads of one cycle, on the snapshot that they are nominated against."""

    __slots__ = ("_is_ordinary", "_now", "_policy", "_snapshot")

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, now: Nanoseconds) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._now = now
        self._is_ordinary = policy.flavor_fungibility and not policy.concurrent_admission

    def nominate(self, workload: WorkloadInfo, queue: Queue, *, is_preemptor: bool) -> ScreenedNomination:
        """The assignment of an ordinary Workload that fits on the only flavor of its resource group; or whether some
        resource is short on every flavor, and preemption releases too little of it."""
        requests = self._requests(workload, queue)
        if not requests:
            return Screened.UNKNOWN
        columns = queue.group_flavors[queue.group_of[requests[0][0]]]
        if len(columns) == 1:
            assignment = self._fitting(workload, queue, columns[0], requests)
            if assignment is not None:
                return assignment
        if self._keeps_capacity(queue, is_preemptor=is_preemptor):
            return Screened.UNKNOWN
        for resource, amount in requests:
            for column in columns:
                if not self._is_short(workload, queue, column.numbers[resource], amount, requests, column.numbers):
                    break
            else:
                return Screened.CAN_ONLY_WAIT
        return Screened.UNKNOWN

    def _requests(self, workload: WorkloadInfo, queue: Queue) -> Requests:
        """The requests of an ordinary Workload; none if it is to be evaluated as a whole.

        Ordinary is a Workload of one pod set whose resources are in one resource group: its walk over the flavors then
        ends at the end of the list, so that no flavor is left to be tried.
        """
        policy, pod_sets, group_of = self._policy, workload.shape.pod_sets, queue.group_of
        if (
            not self._is_ordinary
            or len(pod_sets) != 1
            or workload.reservation is not None
            or workload.details.replaces
            or (policy.partial_admission and pod_sets[0].can_shrink)
            or amounts.PODS in group_of
        ):
            return ()
        requests = pod_sets[0].requests
        group = group_of.get(requests[0][0]) if requests else None
        if group is None:
            return ()
        for resource, _ in requests[1:]:
            if group_of.get(resource) is not group:
                return ()
        return requests

    def _keeps_capacity(self, queue: Queue, *, is_preemptor: bool) -> bool:
        """Whether capacity is kept for a head that waits, which counts for the other entries of the cycle ([CY8])."""
        if queue.node.parent is None:
            return False
        return not queue.spec.preemption.can_always_reclaim or (is_preemptor and self._policy.preemptors_first)

    def _fitting(
        self, workload: WorkloadInfo, queue: Queue, column: GroupFlavor, requests: Requests
    ) -> Assignment | None:
        """The assignment of a Workload that fits on a flavor without topology; None if it does not, or is not
        eligible."""
        pod_sets, scan, policy = workload.shape.pod_sets, workload.scan_position, self._policy
        if scan is not None and scan.next_index(0, requests[0][0]):
            return None
        if policy.topology and (workload.shape.requests_topology or queue.spec.is_topology_only):
            return None
        node, flavors = queue.node, dict[str, FlavorAssignment]()
        made = Assignment()
        for resource, amount in requests:
            number = column.numbers[resource]
            if amount > node.potential[number] or amount > quota.available(node, number):
                return None
            level, _ = quota.level(node, number, amount)
            flavors[resource] = FlavorAssignment(column.flavor, number, FlavorAssignmentMode.FIT, level, -1)
            made.usage[number] = amount
            made.level = max(made.level, level)
        group = queue.group_of[requests[0][0]]
        if eligibility.obstacle(self._snapshot, policy, queue, column.flavor, group, pod_sets) is not None:
            return None
        made.pod_sets.append(PodSetFlavorAssignment(pod_sets[0], pod_sets[0].count, requests, flavors))
        made.scan_position = ScanPosition(
            stopped_at=(dict.fromkeys(flavors, -1),),
            queue_generation=queue.generation,
            pop_cycle=workload.pop_cycle,
            shape=workload.shape if policy.equivalence_hashing else None,
        )
        return made

    def _is_short(
        self,
        workload: WorkloadInfo,
        queue: Queue,
        number: FlavorResourceNumber,
        amount: Amount,
        requests: Requests,
        numbers: Mapping[str, FlavorResourceNumber],
    ) -> bool:
        """Whether a flavor-resource has too little quota for the request, and no targets release enough ([FL12] to
        [FL15])."""
        if amount <= quota.available(queue.node, number):
            return False
        is_single = len(requests) == 1
        if is_single and not preemption.may_find(self._policy, self._snapshot, workload, queue, number, amount):
            return True
        rules, never = queue.spec.preemption, PreemptionPolicy.NEVER
        if rules.within_cluster_queue is never and rules.reclaim_within_cohort is never:
            return True
        contested = frozenset((number,) if is_single else (numbers[resource] for resource, _ in requests))
        search = TargetSearch(self._snapshot, self._policy, self._now, workload, queue, contested, {number: amount})
        if is_single:
            return not preemption.find(search)
        # The search for the whole Workload may contest more than this one: of other candidates, so that only their
        # sum can be compared.
        return not self._policy.is_fair and classical.is_hopeless(search)
