"""What must hold of every write, whatever faults occur.

    S1     no write raises usage above what the tree of cohorts allows, nor above what a node has
    S2     a reservation names the queue that its LocalQueue leads to, flavors of it that suit, and its own pod sets
    S3     conditions change only as the lifecycle allows; Finished is final
    S4     no reservation vanishes or changes without eviction, end, hold, or deletion
    S5     a Workload that is preempted held quota, and the policy of the preemptor's queue allows it as a target
    S6     a strict queue never admits a Workload before an older one, or one of a higher priority
    S7     a job or a pod starts only while its Workload is admitted, which asks for what it asks for
    S9     a job has one Workload, unless it is elastic and grows; a part of another job has none
    family a variant keeps its quota until its parent has lost its own
    pods   an evicted job keeps its quota while its operator reports pods, or while pods of its group run
    L7     no Workload that fits is overtaken forever by later ones
    S11    revisions grow, and an object comes and goes in order
    nodes  no Workload is admitted before the nodes of its ProvisioningRequest are provided

Quota may be lowered under running work, and a manager cannot know at once. So growth is judged by the trees that stood
within the last `GRACE_SECONDS`, and by ClusterQueues and Cohorts of two such times: it is wrong only when it is wrong
under each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from simulation.engine import job_kinds
from simulation.engine.job_kinds import SimulatedKind
from simulation.engine.quota_tree import Cell, Place, milli
from simulation.engine.revisions import BY_HAND, Tree
from simulation.engine.stored_state import GRACE_SECONDS, StoredState, StoredWorkload, Usage, asked_by_pod, is_well


@dataclass(frozen=True, slots=True)
class Move:
    """One write of a Workload."""

    store: StoredState  # after it
    before: StoredWorkload | None
    after: StoredWorkload
    counted_before: Usage

    def rises(self, condition: str) -> bool:
        return self.after.has_condition(condition) and not (
            self.before is not None and self.before.has_condition(condition)
        )

    def falls(self, condition: str) -> bool:
        return (
            self.before is not None and self.before.has_condition(condition) and not self.after.has_condition(condition)
        )


Law = Callable[[Move], Iterator[str]]
_NODES_CHECK: Final = "nodes"
_GROUPED: Final = "kueue.x-k8s.io/is-group-workload"
# By then a manager has seen that a pod runs, unless it stands still.
SEEN_SECONDS: Final = 35.0


# --- S1 ---------------------------------------------------------------------------------------------------------------


def within_quota(move: Move) -> Iterator[str]:
    store = move.store
    counted = store.counted - store.returned() if store.revived else store.counted
    overtaken = store.overtaken()
    if overtaken:
        counted = counted - overtaken
    for queue, cell in move.after.usage():
        trees = store.recent_trees()
        found = [tree.overrun(queue, cell, move.counted_before, counted) for tree in trees]
        if found and all(found):
            mixed = (tree.overrun(queue, cell, move.counted_before, counted) for tree in store.mixed_trees())
            if all(mixed):
                yield found[-1]


def within_nodes(move: Move) -> Iterator[str]:
    for host in move.after.hosts():
        node = move.store.objects["nodes"].get(f"/{host}")
        if move.store.lost_at.get(host, -GRACE_SECONDS) > move.store.seconds - GRACE_SECONDS:
            continue  # Workloads placed there are updated later
        free = milli(node["status"]["allocatable"]["cpu"]) if node is not None and is_well(node) else 0
        counts = not move.store.is_deferred(move.after)
        counted = move.before is not None and move.before.hosts() and not move.store.is_deferred(move.before)
        if counts and not counted and move.store.hosts[host] > free:
            yield f"node {host} is given {move.store.hosts[host]}m of {free}m"


# --- S2 ---------------------------------------------------------------------------------------------------------------


def reservation_is_its_own(move: Move) -> Iterator[str]:
    workload, store = move.after, move.store
    if not move.rises("QuotaReserved") or workload.reservation is None:
        return
    queue = workload.reservation.get("clusterQueue")
    if queue != store.led_to.get(workload.local_queue):
        yield f"reserved in {queue}, its queue is {store.led_to.get(workload.local_queue)}"
    given = {each["name"]: each for each in workload.reservation.get("podSetAssignments", ())}
    asked = {each["name"]: (each, least) for each, least in workload.least()}
    if given.keys() != asked.keys():
        yield f"is given {sorted(given)}, asked for {sorted(asked)}"
        return
    for name, (pod_set, least) in asked.items():
        if not least <= given[name]["count"] <= pod_set["count"]:
            yield f"is given {given[name]['count']} pods of {least} to {pod_set['count']}"
        asked_of_each = asked_by_pod(pod_set)
        for resource in sorted({"cpu", *given[name].get("flavors", {})}):
            expected = given[name]["count"] * asked_of_each[resource]
            charged = milli(given[name]["resourceUsage"].get(resource, 0))
            if charged != expected and not workload.is_strange:
                yield f"is charged {charged}m for {expected}m {resource} of {name}"
    yield from _is_placed_whole(workload, given)
    cells = {Cell(flavor, resource) for each in given.values() for resource, flavor in each.get("flavors", {}).items()}
    place = Place("queue", queue or "")
    if not any(all((place, cell) in tree.quotas for cell in cells) for tree in store.recent_trees()):
        yield f"is given {sorted(cells)}, which {queue} does not have"
    for name, (pod_set, _) in asked.items():
        for flavor in sorted(set(given[name].get("flavors", {}).values())):
            if not store.recently_suited(flavor, pod_set):
                yield f"is given {flavor}, which does not suit {name}"


def _is_placed_whole(workload: StoredWorkload, given: Mapping[str, Tree]) -> Iterator[str]:
    """Once pods are placed, all of a set are."""
    placed = [
        given[pod_set["name"]]["count"] * asked_by_pod(pod_set)["cpu"]
        for pod_set in workload.spec["podSets"]
        if given[pod_set["name"]].get("topologyAssignment") is not None
    ]
    found = sum(workload.hosts().values())
    if found != sum(placed) and not workload.is_strange and not workload.is_parent:
        yield f"is placed with {found}m of {sum(placed)}m"


# --- S3 ---------------------------------------------------------------------------------------------------------------


def conditions_agree(move: Move) -> Iterator[str]:
    workload = move.after
    if workload.has_condition("QuotaReserved") != (workload.reservation is not None):
        yield "QuotaReserved and status.admission differ"
    if workload.has_condition("Admitted") and not workload.has_condition("QuotaReserved"):
        yield "admitted without a reservation"


def finished_is_final(move: Move) -> Iterator[str]:
    if move.before is None or not move.before.has_condition("Finished"):
        return
    for condition in ("QuotaReserved", "Admitted", "Evicted", "Requeued"):
        if move.rises(condition):
            yield f"{condition} after it was finished"
    if move.falls("Finished"):
        yield "is not finished any more"


def admitted_passed_its_checks(move: Move) -> Iterator[str]:
    if move.rises("Admitted"):
        if move.after.has_condition("Evicted"):
            yield "admitted while it is evicted"
        open_ = sorted(name for name, state in move.after.checks.items() if state != "Ready")
        if open_:
            yield f"admitted though {open_} are not Ready"


def admitted_got_its_nodes(move: Move) -> Iterator[str]:
    if not move.rises("Admitted") or _NODES_CHECK not in move.after.checks:
        return
    requests = move.store.objects["provisioningrequests.autoscaling.x-k8s.io"].values()
    if not any(move.after.uid in _owners(each) and _is_provided(each) for each in requests):
        yield "admitted before its nodes were provided"


def _owners(tree: Tree) -> set[str]:
    return {each["uid"] for each in tree["metadata"].get("ownerReferences", ())}


def _is_provided(request: Tree) -> bool:
    conditions = request.get("status", {}).get("conditions", ())
    return any(each["type"] == "Provisioned" and each["status"] == "True" for each in conditions)


def quota_is_for_the_living(move: Move) -> Iterator[str]:
    if move.rises("QuotaReserved"):
        if move.after.has_condition("Evicted"):
            yield "has quota again and still counts as evicted"
        if not move.after.is_active:
            yield "is given quota though it is not active"


def evicted_checks_are_reset(move: Move) -> Iterator[str]:
    """An eviction resets the check states."""
    if move.rises("Evicted") and "Ready" in move.after.checks.values():
        yield f"evicted, and its checks are {move.after.checks}"


def eviction_ends_with_quota(move: Move) -> Iterator[str]:
    if move.falls("Evicted") and not move.rises("QuotaReserved"):
        yield "its eviction is forgotten before it has quota again"


# --- S4 ---------------------------------------------------------------------------------------------------------------


def reservation_stays(move: Move) -> Iterator[str]:
    before, after = move.before, move.after
    if before is None:
        return
    is_admitted = before.has_condition("Admitted") and not before.has_condition("Evicted")
    if move.falls("QuotaReserved") and is_admitted and not after.is_on_hold:
        yield "its reservation was removed without an eviction"
    both = before.has_condition("QuotaReserved") and after.has_condition("QuotaReserved")
    if both and before.reservation != after.reservation and not _may_change(before, after):
        yield "its assignment changed under it"


def _may_change(before: StoredWorkload, after: StoredWorkload) -> bool:
    """A place is found for it only now, or another one for what was on a lost node; or it gives pods back."""
    given = (before.reservation or {}).get("podSetAssignments", ())
    is_placed_late = any(each.get("delayedTopologyRequest") == "Pending" for each in given)
    return is_placed_late or bool(before.lost_nodes) or _shrinks(before, after)


def _shrinks(before: StoredWorkload, after: StoredWorkload) -> bool:
    """An elastic job gives pods back, and what they had with them."""
    counts = [[each["count"] for each in workload.spec["podSets"]] for workload in (before, after)]
    usage = before.usage()
    return counts[0] != counts[1] and all(amount <= usage[pair] for pair, amount in after.usage().items())


def waits_out_its_time(move: Move) -> Iterator[str]:
    """No Workload has quota before its requeueAt."""
    at = (move.before.tree.get("status", {}).get("requeueState") or {}).get("requeueAt") if move.before else None
    # A parent follows its variant when the time is over, by the clock of its manager: also before it is removed.
    if move.rises("QuotaReserved") and at is not None and not move.after.is_parent:
        yield f"has quota although it was to wait until {at}"


# --- S5 ---------------------------------------------------------------------------------------------------------------


def preempted_had_something(move: Move) -> Iterator[str]:
    if not move.rises("Evicted") or move.after.reason("Evicted") != "Preempted":
        return
    if move.before is None or not move.before.has_condition("QuotaReserved"):
        yield "preempted without having anything"
        return
    queue = (move.before.reservation or {}).get("clusterQueue", "")
    if move.after.reason("Preempted") == "InClusterQueue":
        policies = {_preemption(tree.specs.get(queue, {})) for tree in move.store.recent_trees()}
        if policies <= {"Never"}:
            yield f"preempted within {queue}, which has no such Workload"


def _preemption(spec: Tree, field: str = "withinClusterQueue") -> str:
    found: str = spec.get("preemption", {}).get(field, "Never")
    return found


_BY_UID: Final = re.compile(r"UID: ([\w-]+)")


def preempted_is_a_legal_target(move: Move) -> Iterator[str]:
    """By the policies and priorities of the last `GRACE_SECONDS`: also where the preemption was decided long ago, and
    deferred until admission checks had passed (KEP-993)."""
    store, victim = move.store, move.before
    if victim is None or not move.rises("Evicted") or move.after.reason("Evicted") != "Preempted":
        return
    named = _BY_UID.search(str(move.after.conditions.get("Preempted", {}).get("message", "")))
    preemptor = store.with_uid(named[1]) if named is not None else None
    queue = (preemptor.reservation or {}).get("clusterQueue") or store.queue_of(preemptor) if preemptor else None
    if preemptor is None or queue is None:
        return
    is_own = move.after.reason("Preempted") == "InClusterQueue"
    field = "withinClusterQueue" if is_own else "reclaimWithinCohort"
    policies = {_preemption(tree.specs.get(queue, {}), field) for tree in store.recent_trees()}
    lowest, highest = min(store.priorities(victim)), max(store.priorities(preemptor))
    if policies <= {"Never"}:
        yield f"preempted for {preemptor.name}, though {field} of {queue} is Never"
    elif policies <= {"Never", "LowerPriority"} and lowest >= highest:
        yield f"preempted for {preemptor.name}, whose priority {highest} is not above its own, {lowest}"
    elif "Any" not in policies and lowest > highest:
        yield f"preempted for {preemptor.name}, whose priority {highest} is below its own, {lowest}"


# --- S6 ---------------------------------------------------------------------------------------------------------------


# Decisions of one cycle are written at the same time, and may arrive in another order.
ARRIVED_SECONDS: Final = 5.0


def strict_queues_keep_order(move: Move) -> Iterator[str]:
    store = move.store
    for key, (by, seconds) in list(store.overtook.items()):
        other = store.workloads.get(key)
        if other is None or not other.waits:
            del store.overtook[key]
        elif seconds < store.seconds - ARRIVED_SECONDS:
            del store.overtook[key]
            yield f"{other.name} waits, and {by} was let in, which is newer or of a lower priority"
    for other in _overtaken(move):
        store.overtook.setdefault(other.key, (move.after.name, store.seconds))


def _overtaken(move: Move) -> Iterator[StoredWorkload]:
    """The Workloads before one that a strict queue admits."""
    workload, store = move.after, move.store
    if not move.rises("QuotaReserved") or workload.reservation is None or _is_usage_based(store, workload):
        return
    queue = workload.reservation["clusterQueue"]
    if any(tree.specs.get(queue, {}).get("queueingStrategy") != "StrictFIFO" for tree in store.recent_trees()):
        return
    for other in store.workloads.values():
        if (
            other.waits
            and not other.is_strange
            and store.queue_of(other) == queue
            and _rank(other) < _rank(workload)
            # Both have stood there for a while and were never sent away: nothing keeps the other from being the first.
            and "Evicted" not in other.conditions
            and all(each is not None and each.seconds < store.seconds - GRACE_SECONDS for each in (other, move.before))
        ):
            yield other


def _rank(workload: StoredWorkload) -> tuple[int, str]:
    return -workload.spec.get("priority", 0), workload.tree["metadata"]["creationTimestamp"]


def _is_usage_based(store: StoredState, workload: StoredWorkload) -> bool:
    queue = (workload.reservation or {}).get("clusterQueue", "")
    return "admissionScope" in store.specs("clusterqueues").get(queue, {})


# --- L7 ---------------------------------------------------------------------------------------------------------------

# Overtaking once is a race; for longer than this it is a rule.
PASSED_SECONDS: Final = 60.0


def no_workload_is_overtaken_forever(move: Move) -> Iterator[str]:
    """An admitted Workload overtakes those before it in its queue that would have fit as well."""
    workload, store = move.after, move.store
    if not move.rises("QuotaReserved") or workload.reservation is None or _is_usage_based(store, workload):
        return
    store.passed.pop(workload.uid, None)  # it has its turn; evicted, it queues behind others again
    queue = workload.reservation["clusterQueue"]
    for other in store.workloads.values():
        if store.queue_of(other) != queue or not _may_be_passed(other) or _rank(other) >= _rank(workload):
            continue
        if not store.fits_instead(other, queue, workload):
            store.passed.pop(other.uid, None)
            continue
        first, last = store.passed.get(other.uid, (store.seconds, store.seconds))
        if store.seconds - last > PASSED_SECONDS / 2:
            first = store.seconds  # it was not overtaken for so long: another race
        store.passed[other.uid] = (first, store.seconds)
        seconds = store.seconds - first
        store.longest_wait_seconds = max(store.longest_wait_seconds, seconds)
        if seconds > PASSED_SECONDS:
            yield f"overtakes {other.name}, as others have for {seconds:.0f} seconds, though it fits"


def _may_be_passed(workload: StoredWorkload) -> bool:
    """False for one that could not have been admitted: it waits for its requeueAt, or for missing pods."""
    is_out = workload.conditions.get("Requeued", {}).get("status") == "False" or workload.has_condition(
        "WaitingForReplacementPods"
    )
    return workload.waits and not workload.is_strange and not is_out


# --- S9 ---------------------------------------------------------------------------------------------------------------


def one_workload_for_a_job(move: Move) -> Iterator[str]:
    workload = move.after
    if workload.owners and not workload.variant_of and not (move.before is not None and move.before.owners):
        # An object made of pods may have several; each of its pods has one.
        parents = {tree["metadata"]["uid"] for _, _, tree in move.store.parents()}
        others = [
            other.name
            for other in move.store.workloads.values()
            if set(other.owners) & set(workload.owners) - parents
            and other is not workload
            and workload.replaces != other.key
            and not other.has_condition("Finished")
            and not other.is_going
        ]
        if others:
            yield f"its job has {others} already"
        jobs = [tree for resource in job_kinds.BY_RESOURCE for tree in move.store.objects[resource].values()]
        uids = {tree["metadata"]["uid"] for tree in jobs}
        for tree in jobs:
            # A part of a job that is gone is a job by itself, until the garbage collector finds it.
            if tree["metadata"]["uid"] in workload.owners and job_kinds.controller(tree) in uids:
                yield f"is made for {tree['metadata']['name']}, which is part of another job"


def quota_is_kept_while_pods_run(move: Move) -> Iterator[str]:
    """An evicted job releases its quota when its operator reports no pods any more. A user may start one by hand."""
    if not move.falls("QuotaReserved") or not move.after.has_condition("Evicted") or move.after.is_over:
        return
    for resource, row in job_kinds.BY_RESOURCE.items():
        for key, tree in move.store.objects[resource].items():
            is_by_hand = _mark(tree) is not None
            if tree["metadata"]["uid"] in move.after.owners and row.has_pods(tree) and not is_by_hand:
                yield f"releases its quota while {resource} {key} has pods"


def quota_is_kept_while_grouped_pods_run(move: Move) -> Iterator[str]:
    """The Workload of an object made of pods releases its quota when none of its pods runs any more: evicted, scaled
    to none or deleted."""
    if move.after.is_over or _GROUPED not in move.after.tree["metadata"].get("annotations", {}):
        return
    if not move.falls("QuotaReserved"):
        return
    for key, pod in move.store.objects["pods"].items():
        if pod["metadata"]["uid"] in move.after.owners and _runs_long(move.store, pod):
            yield f"releases its quota while pod {key} runs"


def _runs_long(store: StoredState, pod: Tree) -> bool:
    """Whether a pod was seen running by every manager; not on a node that may be lost."""
    since = store.running.get(pod["metadata"]["uid"])
    return since is not None and since < store.seconds - SEEN_SECONDS and "deletionTimestamp" not in pod["metadata"]


ON_WORKLOADS: Final[tuple[tuple[str, Law], ...]] = (
    ("S1", within_quota),
    ("S1", within_nodes),
    ("S2", reservation_is_its_own),
    ("S3", conditions_agree),
    ("S3", finished_is_final),
    ("S3", admitted_passed_its_checks),
    ("nodes", admitted_got_its_nodes),
    ("S3", quota_is_for_the_living),
    ("S3", evicted_checks_are_reset),
    ("S3", eviction_ends_with_quota),
    ("S4", reservation_stays),
    ("S4", waits_out_its_time),
    ("S5", preempted_had_something),
    ("S5", preempted_is_a_legal_target),
    ("S6", strict_queues_keep_order),
    ("L7", no_workload_is_overtaken_forever),
    ("S9", one_workload_for_a_job),
    ("pods", quota_is_kept_while_pods_run),
    ("pods", quota_is_kept_while_grouped_pods_run),
)


# --- S7 ---------------------------------------------------------------------------------------------------------------

# A job may start a little after its Workload has lost its quota.
START_SECONDS: Final = 45.0


def starts_admitted(row: SimulatedKind, store: StoredState, before: Tree | None, after: Tree | None) -> Iterator[str]:
    if before is None or after is None or job_kinds.controller(after):
        return
    if not row.is_suspended(before) or row.is_suspended(after):
        return
    is_by_hand = _mark(before) != _mark(after)  # which the manager undoes: at rest, it does not run
    if not is_by_hand and not _was_admitted(store, after):
        yield "starts though its Workload is not admitted"
    for workload in store.workloads.values():
        if after["metadata"]["uid"] in workload.owners and workload.has_condition("Admitted"):
            asked = [asked_by_pod({"template": template}) for template in row.templates(after)]
            pairs = zip(row.templates(after), workload.spec["podSets"], strict=False)
            given = [asked_by_pod(_without_additions(pod_set, template)) for template, pod_set in pairs]
            if asked != given and not is_by_hand:
                shown = [dict(each) for each in asked], [dict(each) for each in given]
                yield f"starts pods that ask for {shown[0]}, {workload.name} for {shown[1]}"


def _without_additions(pod_set: Tree, template: Tree) -> Tree:
    """A pod set without the containers that only an operator adds."""
    names = {each["name"] for each in template["spec"]["containers"]}
    containers = [each for each in pod_set["template"]["spec"]["containers"] if each["name"] in names]
    return {"template": {"spec": {"containers": containers}}}


def _mark(tree: Tree) -> object:
    return tree["metadata"].get("annotations", {}).get(BY_HAND)


def passes_admitted(store: StoredState, before: Tree | None, after: Tree | None) -> Iterator[str]:
    """The same of a pod, which starts when its gate is gone."""
    if before is None or after is None or not _is_gated(before) or _is_gated(after):
        return
    if not _was_admitted(store, after):
        yield "passes its gate though its Workload is not admitted"


def _was_admitted(store: StoredState, tree: Tree) -> bool:
    uid = tree["metadata"]["uid"]
    if any(uid in workload.owners and workload.has_condition("Admitted") for workload in store.workloads.values()):
        return True
    return store.admitted.get(uid, -START_SECONDS) >= store.seconds - START_SECONDS


def _is_gated(pod: Tree) -> bool:
    return any(each["name"] == "kueue.x-k8s.io/admission" for each in pod["spec"].get("schedulingGates", ()))


def runs_with_a_variant(
    store: StoredState, before: StoredWorkload | None, after: StoredWorkload | None
) -> Iterator[str]:
    """A variant keeps its quota until its parent has lost its own: the pods of the job use it. A parent without an owner
    has no job [LC101]."""
    if before is None or not before.variant_of or not before.has_condition("QuotaReserved"):
        return
    parent = store.with_uid(before.variant_of)
    if (
        parent is None
        or not parent.owners
        or parent.is_going
        or parent.is_over
        or not parent.has_condition("QuotaReserved")
    ):
        return
    left = (after, *store.workloads.values())
    if not any(
        each is not None and each.variant_of == parent.uid and each.has_condition("QuotaReserved") for each in left
    ):
        yield f"has no quota any more, and {parent.name} has"


Started = Callable[[StoredState, Tree | None, Tree | None], Iterator[str]]
ON_OTHERS: Final[Mapping[str, tuple[str, Started]]] = {
    **{resource: ("S7", partial(starts_admitted, row)) for resource, row in job_kinds.BY_RESOURCE.items()},
    "pods": ("S7", passes_admitted),
}
