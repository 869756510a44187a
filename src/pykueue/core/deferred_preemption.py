"""Preemptions that are deferred until admission checks have passed (KEP-993).

A check may defer preemptions until it is Ready, or until some check requires them. Until then the Workload holds its
quota on the assumption that its targets will be evicted. They and it count together, as the larger of the two, so that
no quota is given twice and none is left unused.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykueue.api.kueue import CheckState
from pykueue.core.queue import FlavorResource, UsageByNumber
from pykueue.core.snapshot import Queue
from pykueue.core.workload import AssignedPodSet, Reservation, WorkloadInfo


def required_checks(queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> frozenset[str]:
    """The checks of the ClusterQueue that apply to any of the flavors assigned."""
    flavors = {flavor for pod_set in pod_sets for flavor in pod_set.flavors.values()}
    return frozenset(check for check, applies_to in queue.spec.checks.items() if not flavors.isdisjoint(applies_to))


def may_wait(workload: WorkloadInfo, queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> bool:
    """Whether some check that the flavors require defers preemption, and no check requires it now."""
    if not queue.spec.deferring_checks or workload.reservation is not None:
        return False
    states = {check.name: check.state for check in workload.details.checks}
    waiting = required_checks(queue, pod_sets) & queue.spec.deferring_checks
    if CheckState.PREEMPTION_REQUIRED in states.values():
        return False
    return any(states.get(name) != CheckState.READY for name in waiting)


def hide(
    queue: Queue, usage: UsageByNumber, targets: Sequence[Reservation]
) -> list[tuple[Reservation, dict[FlavorResource, int]]]:
    """The part of each target's usage that counts as usage of the preemptor: as much of it as the preemptor will
    use."""
    pairs = queue.node.tree.pairs
    rest = {pairs[number]: amount for number, amount in usage.items()}
    hidden = []
    for target in targets:
        shared: dict[FlavorResource, int] = {}
        for pair, amount in target.usage:
            part = min(rest.get(pair, 0), target.counted(pair, amount))
            if part > 0:
                rest[pair] -= part
                shared[pair] = part
        hidden.append((target, shared))
    return hidden
