"""Preemptions that are put off until admission checks have passed (KEP-993).

A check may ask for preemptions to wait until it is Ready, or until some check asks for them. Until then the Workload
has its quota on the assumption that its victims will go. They and it count together, as the larger of the two, so that
no quota is given twice and none lies idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykueue.api.kueue import CheckState
from pykueue.core.queue import FlavorResource
from pykueue.core.snapshot import Queue
from pykueue.core.workload import AssignedPodSet, Reservation, WorkloadInfo


def required_checks(queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> frozenset[str]:
    """The checks of the queue that apply to any of the flavors assigned."""
    flavors = {flavor for pod_set in pod_sets for flavor in pod_set.flavors.values()}
    return frozenset(check for check, applies_to in queue.spec.checks.items() if not flavors.isdisjoint(applies_to))


def may_wait(workload: WorkloadInfo, queue: Queue, pod_sets: Sequence[AssignedPodSet]) -> bool:
    """Whether some check that the flavors require asks for preemptions to wait, and none asks for them now."""
    if not queue.spec.deferring_checks or workload.reservation is not None:
        return False
    states = {check.name: check.state for check in workload.details.checks}
    waiting = required_checks(queue, pod_sets) & queue.spec.deferring_checks
    if CheckState.PREEMPTION_REQUIRED in states.values():
        return False
    return any(states.get(name) != CheckState.READY for name in waiting)


def hide(
    queue: Queue, usage: Mapping[int, int], victims: Sequence[Reservation]
) -> list[tuple[Reservation, dict[FlavorResource, int]]]:
    """What of the victims' usage counts as that of their successor: as much of it as the successor will take itself."""
    pairs = queue.node.tree.pairs
    rest = {pairs[number]: amount for number, amount in usage.items()}
    hidden = []
    for victim in victims:
        mine: dict[FlavorResource, int] = {}
        for pair, amount in victim.usage:
            part = min(rest.get(pair, 0), victim.counted(pair, amount))
            if part > 0:
                rest[pair] -= part
                mine[pair] = part
        hidden.append((victim, mine))
    return hidden
