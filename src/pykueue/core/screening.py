"""A quick test of heads for cycles whose reasons are not read: runs ahead decide the same heads many times.

Most heads of a full cohort tree wait again and again. `can_only_wait` finds most of those without an assignment, an
explanation and an entry of the cycle. It answers True only where the whole evaluation ends with a `Wait` that parks the
equivalence class and affects no other entry; every case that is out of the ordinary is left to the whole evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubemachinery.meta import Nanoseconds
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import amounts, preemption, quota
from pykueue.core.amounts import Amount
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import TargetSearch, classical
from pykueue.core.queue import FlavorResourceNumber
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import Requests, WorkloadInfo


class HeadScreen:
    """The test of the heads of one cycle, on the snapshot that they are nominated against."""

    __slots__ = ("_now", "_policy", "_snapshot")

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, now: Nanoseconds) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._now = now

    def can_only_wait(self, workload: WorkloadInfo, queue: Queue, *, is_preemptor: bool) -> bool:
        """Whether some resource that the Workload requests is short on every flavor, and preemption releases too little
        of it."""
        requests = self._requests(workload, queue, is_preemptor=is_preemptor)
        if not requests:
            return False
        columns = queue.group_flavors[queue.group_of[requests[0][0]]]
        for resource, amount in requests:
            if all(
                self._is_short(workload, queue, column.numbers[resource], amount, requests, column.numbers)
                for column in columns
            ):
                return True
        return False

    def _requests(self, workload: WorkloadInfo, queue: Queue, *, is_preemptor: bool) -> Requests:
        """The requests of an ordinary Workload; none if it is to be evaluated as a whole.

        Ordinary is a Workload of one pod set whose resources are in one resource group: its walk over the flavors then
        ends at the end of the list, so that no flavor is left to be tried. Its ClusterQueue must keep no capacity for
        it: that would count for other entries of the cycle ([CY8]).
        """
        policy, pod_sets = self._policy, workload.shape.pod_sets
        if (
            len(pod_sets) != 1
            or workload.reservation is not None
            or workload.details.replaces
            or policy.concurrent_admission
            or not policy.flavor_fungibility
            or (policy.partial_admission and pod_sets[0].can_shrink)
            or amounts.PODS in queue.group_of
        ):
            return ()
        keeps_capacity = not queue.spec.preemption.can_always_reclaim or (policy.preemptors_first and is_preemptor)
        if keeps_capacity and queue.node.parent is not None:
            return ()
        requests = pod_sets[0].requests
        groups = [queue.group_of.get(resource) for resource, _ in requests]
        return requests if all(group is not None and group is groups[0] for group in groups) else ()

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
        node, rules = queue.node, queue.spec.preemption
        if amount <= quota.available(node, number):
            return False
        never = PreemptionPolicy.NEVER
        if rules.within_cluster_queue is never and rules.reclaim_within_cohort is never:
            return True
        is_single = len(requests) == 1
        contested = frozenset((number,) if is_single else (numbers[resource] for resource, _ in requests))
        search = TargetSearch(self._snapshot, self._policy, self._now, workload, queue, contested, {number: amount})
        if is_single:
            return not preemption.find(search)
        # The search for the whole Workload may contest more than this one: of other candidates, so that only their
        # sum can be compared.
        return not self._policy.is_fair and classical.is_hopeless(search)
