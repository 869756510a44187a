"""Flavors for a whole Workload, and the reason where there are none (rules FL).

Pod sets are handled group by group, and a group's requests resource group by resource group: `flavor_fit` finds one
flavor for all resources of the group that are requested together. `topology_request` then places the pod sets that
request topology.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykueue.api.conditions import QuotaReservedReason
from pykueue.core import amounts, topology_request
from pykueue.core.assignment import (
    Assignment,
    AssignmentInputs,
    FlavorAssignment,
    FlavorAssignmentMode,
    PodSetFlavorAssignment,
    assigned_of,
)
from pykueue.core.decision import Cause, FlavorAttempt, FlavorFinding, PreemptionMode
from pykueue.core.flavor_fit import SEVERITY, FlavorSearch, merge_attempts
from pykueue.core.resource_order import in_visiting_order
from pykueue.core.snapshot import Queue
from pykueue.core.workload import PodSetResources, Requests, Reservation, ScanPosition

_ONE_GROUP: Final[Sequence[Sequence[int]]] = ((0,),)


def assign(inputs: AssignmentInputs, counts: Sequence[int] | None = None) -> Assignment:
    """Assign flavors to every pod set, then a placement to those that request topology. `counts` are the pods of each
    pod set, for partial admission; without them the full counts."""
    assignment = Assignment(replaced=inputs.replaced)
    pod_sets = inputs.workload.shape.pod_sets
    choices = [_start(inputs, index, pod_set, counts) for index, pod_set in enumerate(pod_sets)]
    # [FL5] The first group that fails ends the assignment: `all` does not look at later groups.
    all_given = all(_assign_group(inputs, assignment, choices, indices) for indices in _groups(pod_sets))
    assignment.scan_position = ScanPosition(
        stopped_at=tuple(
            {resource: chosen.stopped_at for resource, chosen in choice.flavors.items()}
            for choice in assignment.pod_sets
        ),
        queue_generation=inputs.queue.generation,
        pop_cycle=inputs.workload.pop_cycle,
        shape=inputs.workload.shape if inputs.policy.equivalence_hashing else None,
    )
    if all_given and assignment.mode is not FlavorAssignmentMode.NO_FIT and inputs.policy.topology:
        topology_request.place(inputs, assignment)
    if assignment.mode is FlavorAssignmentMode.NO_FIT:
        assignment.reason = _reason(assignment, inputs.queue)
    return assignment


def _start(
    inputs: AssignmentInputs, index: int, pod_set: PodSetResources, counts: Sequence[int] | None
) -> PodSetFlavorAssignment:
    """The pod set with its counts and, in a second pass, the flavors it was given already ([FL6])."""
    assigned = assigned_of(inputs.workload, pod_set)
    if assigned is not None:
        count, requests = assigned.count, assigned.requests
    else:
        count, requests = pod_set.count, pod_set.requests
    if counts is not None and (assigned is None or assigned.placement is None):
        requests, count = scaled(requests, count, counts[index])
    if amounts.PODS in inputs.queue.group_of:
        others = {resource: amount for resource, amount in requests if resource != amounts.PODS}
        requests = in_visiting_order({**others, amounts.PODS: count})
    choice = PodSetFlavorAssignment(pod_set, count, requests)
    if assigned is not None and inputs.policy.topology:
        tree = inputs.queue.node.tree
        choice.flavors = {
            resource: FlavorAssignment(flavor, tree.number(flavor, resource), FlavorAssignmentMode.FIT)
            for resource, flavor in assigned.flavors.items()
        }
        choice.delayed = assigned.delayed
        choice.placement = assigned.placement
    return choice


def _assign_group(
    inputs: AssignmentInputs, assignment: Assignment, choices: list[PodSetFlavorAssignment], indices: Sequence[int]
) -> bool:
    """Choose flavors for the pod sets of one group together; whether all of them got what they request ([FL2])."""
    group = [choices[index] for index in indices]
    requests = _total(group)
    found: dict[str, FlavorAssignment] = {}
    for choice in group:
        found.update(choice.flavors)
    attempts: dict[str, FlavorAttempt] = {}
    findings: list[FlavorFinding] = []
    error = ""
    for resource, amount in requests:
        resource_group = inputs.queue.group_of.get(resource)
        if resource_group is None and (amount == 0 or inputs.policy.ignore_undeclared):
            continue
        if resource in found:
            continue  # [FL3] given together with another resource of its resource group
        if resource_group is None:
            found = {}
            findings = [FlavorFinding(Cause.UNDECLARED, resource=resource, requested=amount)]
            break
        search = FlavorSearch(inputs, indices, requests, resource_group, resource, assignment.usage)
        search.run()
        merge_attempts(attempts, search.attempts, resource_group)
        if search.error or not search.best:
            # One resource group without a flavor takes the flavors of all others away: the pod set needs them all.
            found, findings, error = {}, search.findings, search.error
            break
        found.update(search.best)
        if search.grade.preemption_mode is not PreemptionMode.FIT:
            findings += search.findings
    succeeded = True
    tried = tuple(attempts[flavor] for flavor in sorted(attempts)) if len(attempts) > 1 else tuple(attempts.values())
    for choice in group:
        choice.flavors = _own_flavors(inputs, choice, found)
        choice.findings = list(findings)
        choice.error = error
        choice.attempts = tried
        _append(inputs, assignment, choice)
        if error or (choice.requests and not choice.flavors):
            succeeded = False
    return succeeded


def _own_flavors(
    inputs: AssignmentInputs, choice: PodSetFlavorAssignment, found: Mapping[str, FlavorAssignment]
) -> dict[str, FlavorAssignment]:
    """The flavors of what the pod set itself requests. A pod set that requests nothing, but is placed together with
    others, takes their topology flavors, so that it can be placed ([FL2])."""
    if not found:
        return {}
    if choice.requests:
        return {
            resource: FlavorAssignment(c.flavor, c.number, c.mode, c.level, c.stopped_at)
            for resource, _ in choice.requests
            if (c := found.get(resource)) is not None
        }
    if choice.pod_set.group is not None:
        return {
            resource: FlavorAssignment(c.flavor, c.number, c.mode, c.level, c.stopped_at)
            for resource, c in found.items()
            if inputs.snapshot.topology_cache.has_flavor(c.flavor)
        }
    return {}


def _append(inputs: AssignmentInputs, assignment: Assignment, choice: PodSetFlavorAssignment) -> None:
    """Add the pod set to the assignment, with its usage beyond that of the slice it replaces."""
    assignment.pod_sets.append(choice)
    if not choice.flavors:
        return
    requested = dict(choice.requests)
    old = _requests_of(inputs.replaced, choice.name)
    for resource, chosen in choice.flavors.items():
        assignment.level = max(assignment.level, chosen.level)
        amount = requested.get(resource, 0) - old.get(resource, 0)
        assignment.usage[chosen.number] = amounts.add(assignment.usage.get(chosen.number, 0), amount)


def _groups(pod_sets: Sequence[PodSetResources]) -> Sequence[Sequence[int]]:
    """The indices of pod sets that get their flavors together, in the order of the first of each group ([FL1])."""
    if len(pod_sets) == 1:
        return _ONE_GROUP
    groups: dict[str | int, list[int]] = {}
    for index, pod_set in enumerate(pod_sets):
        groups.setdefault(index if pod_set.group is None else pod_set.group, []).append(index)
    return list(groups.values())


def _total(group: Sequence[PodSetFlavorAssignment]) -> Requests:
    if len(group) == 1:
        return group[0].requests
    total: dict[str, int] = {}
    for choice in group:
        for resource, amount in choice.requests:
            total[resource] = amounts.add(total.get(resource, 0), amount)
    return in_visiting_order(total)


def scaled(requests: Requests, count: int, to: int) -> tuple[Requests, int]:
    """The requests of `count` pods scaled to another number of pods; those of no pods cannot be scaled ([AM17])."""
    if count in (0, to):
        return requests, count
    return tuple((resource, amounts.multiply(amount // count, to)) for resource, amount in requests), to


def _requests_of(replaced: Reservation | None, pod_set: str) -> dict[str, int]:
    if replaced is None:
        return {}
    old = replaced.pod_set(pod_set)
    return dict(old.requests) if old is not None else {}


def _reason(assignment: Assignment, queue: Queue) -> QuotaReservedReason:
    """Why the assignment is NoFit: the mildest reason over the flavors of a resource group, because they are
    alternatives, and the most severe over resource groups and pod sets, because all are needed ([FL35]). Without any
    reason, no flavor matched (W15: an empty reason would be invalid)."""
    overall: QuotaReservedReason | None = None
    for choice in assignment.pod_sets:
        if choice.mode is not FlavorAssignmentMode.NO_FIT:
            continue
        if not choice.attempts:
            overall = QuotaReservedReason.NO_MATCHING_FLAVOR
            continue
        mildest: dict[int, QuotaReservedReason | None] = {}
        for attempt in choice.attempts:
            if attempt.mode is not PreemptionMode.NO_FIT:
                continue
            for index, group in enumerate(queue.spec.groups):
                if attempt.flavor in group.flavors and (
                    index not in mildest or SEVERITY[attempt.reason] < SEVERITY[mildest[index]]
                ):
                    mildest[index] = attempt.reason
        overall = max((overall, *mildest.values()), key=SEVERITY.__getitem__)
    return overall or QuotaReservedReason.NO_MATCHING_FLAVOR
