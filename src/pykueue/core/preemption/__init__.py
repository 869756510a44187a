"""Preemption targets: which reservations to evict so that a Workload fits (rules PR without fair sharing, rules FS with
it).

`find` searches, and leaves the snapshot as it was. `may_find` is a quick test whether a search has candidates at all.
"""

from __future__ import annotations

from pykueue.core.amounts import Amount
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.preemption import classical, fair
from pykueue.core.preemption.search import PreemptionTarget, TargetSearch, may_take_any
from pykueue.core.queue import FlavorResourceNumber
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import WorkloadInfo

__all__ = ["PreemptionTarget", "TargetSearch", "find", "may_find"]


def find(search: TargetSearch) -> list[PreemptionTarget]:
    """The targets whose eviction makes the Workload fit; empty if no permitted set of targets does."""
    if search.policy.is_fair:
        return fair.find(search)
    return classical.find(search)


def may_find(
    policy: SchedulingPolicy,
    snapshot: Snapshot,
    workload: WorkloadInfo,
    queue: Queue,
    number: FlavorResourceNumber,
    amount: Amount,
) -> bool:
    """Whether the search for an amount of one flavor-resource may have candidates. False: it finds no targets."""
    if may_take_any(queue.spec.preemption.within_cluster_queue, workload, queue):
        return True
    reclaims = queue.spec.preemption.reclaim_within_cohort
    paths = (fair if policy.is_fair else classical).reclaimable_queues(queue, number, amount)
    return any(may_take_any(reclaims, workload, snapshot.queues[node.name]) for node in paths)
