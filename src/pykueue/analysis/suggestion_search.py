"""The smallest changes that admit a Workload.

Each kind of suggestion (quota, borrowing, priority, waiting, …) starts from a generous set of changes that works and
is reduced until no change can be left out and no amount can be smaller. The scheduler verifies every step: with the
result the Workload is admitted, and with any less it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from pykueue.analysis import object_changes as parts
from pykueue.analysis.object_changes import (
    AddToleration,
    DeclareQuota,
    FinishWorkload,
    ObjectChange,
    Objects,
    RaisePriority,
    RaiseQuota,
    RelaxTopology,
    RemoveAffinity,
    RemoveNodeSelector,
    WithdrawWorkload,
)
from pykueue.analysis.planner import SchedulingPlan
from pykueue.analysis.trial import Trial
from pykueue.api import kueue, nodes
from pykueue.core import amounts
from pykueue.core.workload import WorkloadInfo
from pykueue.state import workload_info

# Bounds of the search: trials cost time, and long lists are of no use.
_FLAVOR_CHOICES: Final = 4
_HOLDERS_TRIED: Final = 64
_GENEROUS: Final = 2**60
# Amounts are mostly multiples of these, so the smallest sufficient amount mostly is, too.
_GRAINS: Final = {amounts.CPU: 1000, "memory": 2**20}


class Suggestion(msgspec.Struct, frozen=True):
    """Changes that admit the Workload. All of them are needed.

    `warning` is what is still missing after the changes, such as a node that fits; empty if nothing is.
    """

    changes: tuple[ObjectChange, ...]
    kind: str
    warning: str = ""

    def sentence(self) -> str:
        return "; and ".join(part.sentence() for part in self.changes)


def suggestions(trial: Trial, objects: Objects, opening: Sequence[ObjectChange]) -> Iterator[Suggestion]:
    """Yield suggestions, each kind at most once. `opening` are the changes that remove its blockers: they are tried
    first, and added to the others where needed.

    Raises SearchBudgetExhausted when the budget is spent; suggestions yielded before are verified all the same.
    """
    if opening and trial.admits(opening):
        yield Suggestion(tuple(smallest(trial, opening)), "gates")
        return
    suggested: list[tuple[ObjectChange, ...]] = []
    for way, change in _ways(trial, objects, opening):
        found = tuple(smallest(trial, change))
        if found and found not in suggested:
            suggested.append(found)
            yield Suggestion(found, way)


def ordered(found: Sequence[Suggestion]) -> list[Suggestion]:
    """Suggestions without a warning first, then those with fewer changes, then in the order of kinds."""
    return sorted(found, key=lambda suggestion: (bool(suggestion.warning), len(suggestion.changes)))


# --- Making it smaller ------------------------------------------------------------------------------------------------


def smallest(trial: Trial, generous: Sequence[ObjectChange]) -> list[ObjectChange]:
    """A minimal subset of changes that works, with minimal amounts."""
    kept = list(generous)
    while True:
        kept = _without_spare(trial, kept)
        shrunk = _shrunk(trial, kept)
        if shrunk == kept or len(kept) == 1:  # only if one change was reduced may another be unnecessary or too large
            return shrunk
        kept = shrunk


def _without_spare(trial: Trial, kept: list[ObjectChange]) -> list[ObjectChange]:
    """Remove unnecessary changes, several at a time, so that a long list needs few trials."""
    size = len(kept)
    while size:
        before, start = kept, 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if rest != kept and (rest or not kept[size:]) and trial.admits(rest):
                kept = rest
            else:
                start += size
        if size > 1:
            size = (size + 1) // 2
        elif kept == before:  # else a change that was needed with the removed ones may be unnecessary now
            size = 0
    return kept


def _shrunk(trial: Trial, kept: list[ObjectChange]) -> list[ObjectChange]:
    """Reduce each amount until one unit less would not suffice."""
    for n, part in enumerate(kept):
        if isinstance(part, (RaiseQuota, DeclareQuota)):
            kept = [*kept[:n], _least_amount(trial, kept, n, part), *kept[n + 1 :]]
        elif isinstance(part, RaisePriority):
            kept = [*kept[:n], _least_priority(trial, kept, n, part), *kept[n + 1 :]]
    return kept


def _least_amount(
    trial: Trial, kept: list[ObjectChange], n: int, part: RaiseQuota | DeclareQuota
) -> RaiseQuota | DeclareQuota:
    """The smallest sufficient amount: first without the quota left over after admission, then by bisection."""

    def works(amount: int) -> bool:
        return trial.admits([*kept[:n], part.smaller(amount), *kept[n + 1 :]])

    enough, short = part.amount, 0  # 0 is known to be too little: the change could not be left out
    for guess in (part.amount - spare for spare in trial.spare(kept, part.flavor, part.resource)):
        if short < guess < enough:
            if works(guess):
                enough = guess
                break
            short = guess
    if enough == 1 or not works(enough - 1):
        return part.smaller(enough)
    for step in (_GRAINS.get(part.resource, 1), 1):
        while enough - short > step:
            middle = short + max(step, (enough - short) // 2 // step * step)
            if works(middle):
                enough = middle
            else:
                short = middle
        if enough > 1 and not works(enough - 1):
            break
    return part.smaller(enough)


def _least_priority(trial: Trial, kept: list[ObjectChange], n: int, part: RaisePriority) -> RaisePriority:
    """The lowest sufficient priority, among those of the other Workloads and the values just above them."""
    others = {
        workload_info.priority(thing, trial.case.configured.policy)
        for thing in trial.case.objects
        if isinstance(thing, kueue.Workload)
    }
    steps = sorted(value for other in others for value in (other, other + 1) if part.before < value < part.priority)
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        candidate = RaisePriority(part.workload, part.before, steps[middle])
        if trial.admits([*kept[:n], candidate, *kept[n + 1 :]]):
            high = middle
        else:
            low = middle + 1
    return RaisePriority(part.workload, part.before, steps[low]) if low < len(steps) else part


# --- The ways ---------------------------------------------------------------------------------------------------------


def _ways(trial: Trial, objects: Objects, opening: Sequence[ObjectChange]) -> Iterator[tuple[str, list[ObjectChange]]]:
    """Yield working changes that are not yet minimal, one kind each.

    Each is searched without other pending Workloads, which is fast. The result mostly holds with them; if they would
    take what it frees, the whole set is tried; a set that does not suffice even there is not tried.
    """
    alone = trial.alone()
    for way, generous in _generous(trial, objects, opening, fits_alone=alone.admits(opening)):
        change = [*opening, *generous]
        if not generous or not alone.admits(change):
            continue
        for candidate in (smallest(alone, change), change):
            if trial.admits(candidate):
                yield way, candidate
                break


def _generous(
    trial: Trial, objects: Objects, opening: Sequence[ObjectChange], *, fits_alone: bool
) -> Iterator[tuple[str, list[ObjectChange]]]:
    """More than could be needed, by kind."""
    made, _ = trial.begin(opening)
    workload = made.world.pending_workload(trial.target)
    queue = objects.get((kueue.ClusterQueue, "", workload.cluster_queue)) if workload is not None else None
    if workload is None or not isinstance(queue, kueue.ClusterQueue):
        return
    asked = sorted({resource for pod_set in workload.shape.pod_sets for resource, _ in pod_set.requests})
    choices = list(_flavor_choices(queue, asked))
    fitting = _fitting(objects, queue, workload)
    of_others = [("priority", _preferred(made, workload)), ("waiting", _ends(made, workload))]
    of_others += [("order", _ahead(made, workload))]
    of_quota = [("quota", _quota(queue, flavors, asked)) for flavors in choices]
    of_quota += [("borrowing", _raised(queue, flavors, asked, "borrowing_limit")) for flavors in choices]
    # If only other Workloads block it, changes to them come first.
    yield from (*of_others, *of_quota) if fits_alone else (*of_quota, *of_others)
    if fitting:
        yield "pods", fitting
        for flavors in choices:
            yield "pods and quota", [*fitting, *_quota(queue, flavors, asked)]


def _flavor_choices(queue: kueue.ClusterQueue, asked: Sequence[str]) -> Iterator[list[str]]:
    """One flavor of each requested resource group: the first of each, the second of each, and so on."""
    groups = [group for group in queue.spec.resource_groups if set(asked) & set(group.covered_resources)]
    groups = groups or [group for group in queue.spec.resource_groups if group.flavors][:1]
    rows = zip_longest(*([flavor.name for flavor in group.flavors] for group in groups))
    for n, row in enumerate(rows):
        if n < _FLAVOR_CHOICES:
            yield [flavor or groups[g].flavors[-1].name for g, flavor in enumerate(row)]


def _quota(queue: kueue.ClusterQueue, flavors: Sequence[str], asked: Sequence[str]) -> list[ObjectChange]:
    """More quota for all requested resources in these flavors; resources that the queue does not cover are declared."""
    covered = {resource for group in queue.spec.resource_groups for resource in group.covered_resources}
    missing = [
        DeclareQuota(queue.metadata.name, flavors[0], resource, _GENEROUS)
        for resource in asked
        if resource not in covered
    ]
    return [*missing, *_raised(queue, flavors, asked, "nominal_quota")]


def _raised(queue: kueue.ClusterQueue, flavors: Sequence[str], asked: Sequence[str], field: str) -> list[ObjectChange]:
    return [
        part.smaller(_GENEROUS)
        for flavor in flavors
        for part in parts.raises(kueue.ClusterQueue, queue, flavor, asked, field)
    ]


def _preferred(made: SchedulingPlan, workload: WorkloadInfo) -> list[ObjectChange]:
    policy = made.world.policy
    object_ = made.workloads[workload.key]
    highest = max(workload_info.priority(other, policy) for other in made.workloads.values())
    if highest < workload.priority or workload_info.priority(object_, policy) != (object_.spec.priority or 0):
        return []  # no Workload has a higher priority, or a boost decides
    return [RaisePriority(workload.key, workload.priority, highest + 1)]


def _ends(made: SchedulingPlan, workload: WorkloadInfo) -> list[ObjectChange]:
    """Workloads that hold requested resources in its cohort tree finish; those to keep come last."""
    near = set(made.world.tree_queues(workload.cluster_queue)) or {workload.cluster_queue}
    asked = {resource for pod_set in workload.shape.pod_sets for resource, _ in pod_set.requests}
    held = [
        (max((amount for pair, amount in reservation.usage if pair.resource in asked), default=0), key)
        for key, reservation in made.world.reservations.items()
        if reservation.cluster_queue in near or reservation.placed
    ]
    # Unnecessary changes are removed from the front, so those to keep come last.
    return [FinishWorkload(key) for _, key in sorted(sorted(held, reverse=True)[:_HOLDERS_TRIED])]


def _ahead(made: SchedulingPlan, workload: WorkloadInfo) -> list[ObjectChange]:
    """Pending Workloads that are ahead of it or take its quota are deactivated."""
    near = set(made.world.tree_queues(workload.cluster_queue)) or {workload.cluster_queue}
    waiting = [
        other
        for name in sorted(near & made.world.queues.keys())
        for other in (*made.world.queues[name].active(), *made.world.queues[name].parked())
        if other.key != workload.key
    ]
    waiting.sort(key=lambda other: (other.cluster_queue == workload.cluster_queue, other.priority, other.key))
    return [WithdrawWorkload(other.key) for other in waiting[-_HOLDERS_TRIED:]]


def _fitting(objects: Objects, queue: kueue.ClusterQueue, workload: WorkloadInfo) -> list[ObjectChange]:
    """Constraints of its pods that exclude flavors, removed."""
    found: list[ObjectChange] = []
    thing = objects[kueue.Workload, *_split(workload.key)]
    assert isinstance(thing, kueue.Workload)
    flavors = [
        flavor
        for group in queue.spec.resource_groups
        for quotas in group.flavors
        if isinstance(flavor := objects.get((kueue.ResourceFlavor, "", quotas.name)), kueue.ResourceFlavor)
    ]
    for pod_set in thing.spec.pod_sets:
        request, spec = pod_set.topology_request, pod_set.template.spec
        if request is not None and (request.required or request.preferred):
            found.append(RelaxTopology(workload.key, pod_set.name))
        for flavor in flavors:
            taint = nodes.untolerated(flavor.spec.node_taints, (*spec.tolerations, *flavor.spec.tolerations))
            if taint is not None:
                found.append(AddToleration(workload.key, pod_set.name, taint))
        found += [RemoveNodeSelector(workload.key, pod_set.name, key) for key in spec.node_selector]
        if spec.affinity is not None:
            found.append(RemoveAffinity(workload.key, pod_set.name))
    return list(dict.fromkeys(found))


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name
