"""What must hold of every write, whatever goes wrong around it.

    S1     no write raises usage above what the tree of cohorts allows, nor above what a node has
    S2     a reservation names the queue that its LocalQueue leads to, flavors of it that suit, and its own pod sets
    S3     conditions move only as the life of a Workload allows; Finished is final
    S4     no reservation vanishes or changes without eviction, end, or deletion
    S5     a Workload that is preempted held quota, and the policy of the preemptor's queue allows it as a target
    S6     a strict queue never lets somebody in before an older one, or one of a higher priority
    S7     a job or a pod starts only while its Workload is admitted, which asks for what it asks for
    S9     a job has one Workload, unless it is elastic and grows
    L7     nobody for whom there is room is passed for ever by those who come after him
    S11    revisions grow, and an object comes and goes in order
    nodes  whoever waits for nodes of an autoscaler is not admitted before they were provided

Quota may be lowered under running work, and a manager cannot know at once. So growth is judged by the trees that stood
within the last `GRACE_SECONDS`: it is wrong only when it is wrong under each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from simulation.engine.quota_tree import Cell, Place, milli
from simulation.engine.revisions import BY_HAND, Tree
from simulation.engine.stored_state import GRACE_SECONDS, Life, Picture, Usage, asked_by_pod, is_well


@dataclass(frozen=True, slots=True)
class Move:
    """One write of a Workload."""

    picture: Picture  # after it
    before: Life | None
    after: Life
    counted_before: Usage

    def rises(self, condition: str) -> bool:
        return self.after.says(condition) and not (self.before is not None and self.before.says(condition))

    def falls(self, condition: str) -> bool:
        return self.before is not None and self.before.says(condition) and not self.after.says(condition)


Law = Callable[[Move], Iterator[str]]
_NODES_CHECK: Final = "nodes"


# --- S1 ---------------------------------------------------------------------------------------------------------------


def within_quota(move: Move) -> Iterator[str]:
    picture = move.picture
    counted = picture.counted - picture.returned() if picture.revived else picture.counted
    overtaken = picture.overtaken()
    if overtaken:
        counted = counted - overtaken
    for queue, cell in move.after.usage():
        trees = picture.recent_trees()
        found = [tree.overrun(queue, cell, move.counted_before, counted) for tree in trees]
        if found and all(found):
            yield found[-1]


def within_nodes(move: Move) -> Iterator[str]:
    for host in move.after.hosts():
        node = move.picture.objects["nodes"].get(f"/{host}")
        if move.picture.lost_at.get(host, -GRACE_SECONDS) > move.picture.seconds - GRACE_SECONDS:
            continue  # whoever is placed there learns of it later
        room = milli(node["status"]["allocatable"]["cpu"]) if node is not None and is_well(node) else 0
        counts = not move.picture.is_deferred(move.after)
        counted = move.before is not None and move.before.hosts() and not move.picture.is_deferred(move.before)
        if counts and not counted and move.picture.hosts[host] > room:
            yield f"node {host} is given {move.picture.hosts[host]}m of {room}m"


# --- S2 ---------------------------------------------------------------------------------------------------------------


def reservation_is_its_own(move: Move) -> Iterator[str]:
    life, picture = move.after, move.picture
    if not move.rises("QuotaReserved") or life.reservation is None:
        return
    queue = life.reservation.get("clusterQueue")
    if queue != picture.led_to.get(life.local_queue):
        yield f"reserved in {queue}, its queue is {picture.led_to.get(life.local_queue)}"
    given = {each["name"]: each for each in life.reservation.get("podSetAssignments", ())}
    asked = {each["name"]: (each, least) for each, least in life.least()}
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
            if charged != expected and not life.is_strange:
                yield f"is charged {charged}m for {expected}m {resource} of {name}"
    yield from _is_placed_whole(life, given)
    cells = {Cell(flavor, resource) for each in given.values() for resource, flavor in each.get("flavors", {}).items()}
    place = Place("queue", queue or "")
    if not any(all((place, cell) in tree.quotas for cell in cells) for tree in picture.recent_trees()):
        yield f"is given {sorted(cells)}, which {queue} does not have"
    for name, (pod_set, _) in asked.items():
        for flavor in sorted(set(given[name].get("flavors", {}).values())):
            if not picture.suited_lately(flavor, pod_set):
                yield f"is given {flavor}, which does not suit {name}"


def _is_placed_whole(life: Life, given: Mapping[str, Tree]) -> Iterator[str]:
    """Once pods are placed, all of a set are."""
    placed = [
        given[pod_set["name"]]["count"] * asked_by_pod(pod_set)["cpu"]
        for pod_set in life.spec["podSets"]
        if given[pod_set["name"]].get("topologyAssignment") is not None
    ]
    found = sum(life.hosts().values())
    if found != sum(placed) and not life.is_strange:
        yield f"is placed with {found}m of {sum(placed)}m"


# --- S3 ---------------------------------------------------------------------------------------------------------------


def conditions_agree(move: Move) -> Iterator[str]:
    life = move.after
    if life.says("QuotaReserved") != (life.reservation is not None):
        yield "QuotaReserved and status.admission say different things"
    if life.says("Admitted") and not life.says("QuotaReserved"):
        yield "admitted without a reservation"


def finished_is_final(move: Move) -> Iterator[str]:
    if move.before is None or not move.before.says("Finished"):
        return
    for condition in ("QuotaReserved", "Admitted", "Evicted", "Requeued"):
        if move.rises(condition):
            yield f"{condition} after it was finished"
    if move.falls("Finished"):
        yield "is not finished any more"


def admitted_passed_its_checks(move: Move) -> Iterator[str]:
    if move.rises("Admitted"):
        if move.after.says("Evicted"):
            yield "admitted while it is evicted"
        open_ = sorted(name for name, state in move.after.checks.items() if state != "Ready")
        if open_:
            yield f"admitted though {open_} have not said Ready"


def admitted_got_its_nodes(move: Move) -> Iterator[str]:
    if not move.rises("Admitted") or _NODES_CHECK not in move.after.checks:
        return
    requests = move.picture.objects["provisioningrequests.autoscaling.x-k8s.io"].values()
    if not any(move.after.uid in _owners(each) and _is_provided(each) for each in requests):
        yield "admitted before its nodes were provided"


def _owners(tree: Tree) -> set[str]:
    return {each["uid"] for each in tree["metadata"].get("ownerReferences", ())}


def _is_provided(request: Tree) -> bool:
    said = request.get("status", {}).get("conditions", ())
    return any(each["type"] == "Provisioned" and each["status"] == "True" for each in said)


def quota_is_for_the_living(move: Move) -> Iterator[str]:
    if move.rises("QuotaReserved"):
        if move.after.says("Evicted"):
            yield "has quota again and still counts as evicted"
        if not move.after.is_active:
            yield "is given quota though it is not active"


def evicted_is_asked_anew(move: Move) -> Iterator[str]:
    """An eviction clears what checks have said."""
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
    if move.falls("QuotaReserved") and before.says("Admitted") and not before.says("Evicted"):
        yield "its reservation is gone, and nobody evicted it"
    both = before.says("QuotaReserved") and after.says("QuotaReserved")
    if both and before.reservation != after.reservation and not _may_change(before, after):
        yield "its assignment changed under it"


def _may_change(before: Life, after: Life) -> bool:
    """A place is found for it only now, or another one for what was on a lost node; or it gives pods back."""
    given = (before.reservation or {}).get("podSetAssignments", ())
    is_placed_late = any(each.get("delayedTopologyRequest") == "Pending" for each in given)
    return is_placed_late or bool(before.lost_nodes) or _shrinks(before, after)


def _shrinks(before: Life, after: Life) -> bool:
    """An elastic job gives pods back, and what they had with them."""
    counts = [[each["count"] for each in life.spec["podSets"]] for life in (before, after)]
    usage = before.usage()
    return counts[0] != counts[1] and all(amount <= usage[pair] for pair, amount in after.usage().items())


def waits_out_its_time(move: Move) -> Iterator[str]:
    """Nobody has quota before the time that was set for him."""
    at = (move.before.tree.get("status", {}).get("requeueState") or {}).get("requeueAt") if move.before else None
    if move.rises("QuotaReserved") and at is not None:
        yield f"has quota although it was to wait until {at}"


# --- S5 ---------------------------------------------------------------------------------------------------------------


def preempted_had_something(move: Move) -> Iterator[str]:
    if not move.rises("Evicted") or move.after.reason("Evicted") != "Preempted":
        return
    if move.before is None or not move.before.says("QuotaReserved"):
        yield "preempted without having anything"
        return
    queue = (move.before.reservation or {}).get("clusterQueue", "")
    if move.after.reason("Preempted") == "InClusterQueue":
        policies = {_preemption(tree.specs.get(queue, {})) for tree in move.picture.recent_trees()}
        if policies <= {"Never"}:
            yield f"preempted within {queue}, where nobody is"


def _preemption(spec: Tree, field: str = "withinClusterQueue") -> str:
    found: str = spec.get("preemption", {}).get(field, "Never")
    return found


_BY_UID: Final = re.compile(r"UID: ([\w-]+)")


def preempted_is_a_legal_target(move: Move) -> Iterator[str]:
    """By the policies and priorities of the last `GRACE_SECONDS`: also where the preemption was decided long ago, and
    deferred until admission checks had passed (KEP-993)."""
    picture, victim = move.picture, move.before
    if victim is None or not move.rises("Evicted") or move.after.reason("Evicted") != "Preempted":
        return
    named = _BY_UID.search(str(move.after.conditions.get("Preempted", {}).get("message", "")))
    preemptor = picture.with_uid(named[1]) if named is not None else None
    queue = (preemptor.reservation or {}).get("clusterQueue") or picture.queue_of(preemptor) if preemptor else None
    if preemptor is None or queue is None:
        return
    is_own = move.after.reason("Preempted") == "InClusterQueue"
    field = "withinClusterQueue" if is_own else "reclaimWithinCohort"
    policies = {_preemption(tree.specs.get(queue, {}), field) for tree in picture.recent_trees()}
    lowest, highest = min(picture.priorities(victim)), max(picture.priorities(preemptor))
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
    picture = move.picture
    for key, (by, seconds) in list(picture.overtook.items()):
        other = picture.lives.get(key)
        if other is None or not other.waits:
            del picture.overtook[key]
        elif seconds < picture.seconds - ARRIVED_SECONDS:
            del picture.overtook[key]
            yield f"{other.name} waits, and {by} was let in, which is newer or of a lower priority"
    for other in _overtaken(move):
        picture.overtook.setdefault(other.key, (move.after.name, picture.seconds))


def _overtaken(move: Move) -> Iterator[Life]:
    """Who stands before somebody that is let in by a strict queue."""
    life, picture = move.after, move.picture
    if not move.rises("QuotaReserved") or life.reservation is None or _is_usage_based(picture, life):
        return
    queue = life.reservation["clusterQueue"]
    if any(tree.specs.get(queue, {}).get("queueingStrategy") != "StrictFIFO" for tree in picture.recent_trees()):
        return
    for other in picture.lives.values():
        if (
            other.waits
            and not other.is_strange
            and picture.queue_of(other) == queue
            and _rank(other) < _rank(life)
            # Both have stood there for a while and were never sent away: nothing keeps the other from being the first.
            and "Evicted" not in other.conditions
            and all(
                each is not None and each.seconds < picture.seconds - GRACE_SECONDS for each in (other, move.before)
            )
        ):
            yield other


def _rank(life: Life) -> tuple[int, str]:
    return -life.spec.get("priority", 0), life.tree["metadata"]["creationTimestamp"]


def _is_usage_based(picture: Picture, life: Life) -> bool:
    queue = (life.reservation or {}).get("clusterQueue", "")
    return "admissionScope" in picture.specs("clusterqueues").get(queue, {})


# --- L7 ---------------------------------------------------------------------------------------------------------------

# Passing somebody once is a race; doing so for longer than this is a rule.
PASSED_SECONDS: Final = 60.0


def nobody_is_passed_for_ever(move: Move) -> Iterator[str]:
    """Whoever is let in passes those who stand before him in his queue, and for whom there was room as well."""
    life, picture = move.after, move.picture
    if not move.rises("QuotaReserved") or life.reservation is None or _is_usage_based(picture, life):
        return
    queue = life.reservation["clusterQueue"]
    for other in picture.lives.values():
        if picture.queue_of(other) != queue or not _may_be_passed(other) or _rank(other) >= _rank(life):
            continue
        if not picture.fits_instead(other, queue, life):
            picture.passed.pop(other.uid, None)
            continue
        first, last = picture.passed.get(other.uid, (picture.seconds, picture.seconds))
        if picture.seconds - last > PASSED_SECONDS / 2:
            first = picture.seconds  # nobody passed him for so long: it is another race
        picture.passed[other.uid] = (first, picture.seconds)
        seconds = picture.seconds - first
        picture.longest_wait_seconds = max(picture.longest_wait_seconds, seconds)
        if seconds > PASSED_SECONDS:
            yield f"passes {other.name}, as others have for {seconds:.0f} seconds, though there is room for it"


def _may_be_passed(life: Life) -> bool:
    """Not one who could not have been let in: he waits for his time, or for pods that are to come."""
    is_out = life.conditions.get("Requeued", {}).get("status") == "False" or life.says("WaitingForReplacementPods")
    return life.waits and not life.is_strange and not is_out


# --- S9 ---------------------------------------------------------------------------------------------------------------


def one_workload_for_a_job(move: Move) -> Iterator[str]:
    life = move.after
    if life.owners and not (move.before is not None and move.before.owners):
        others = [
            other.name
            for other in move.picture.lives.values()
            if set(other.owners) & set(life.owners)
            and other is not life
            and life.replaces != other.key
            and not other.says("Finished")
            and not other.is_going
        ]
        if others:
            yield f"its job has {others} already"


ON_WORKLOADS: Final[tuple[tuple[str, Law], ...]] = (
    ("S1", within_quota),
    ("S1", within_nodes),
    ("S2", reservation_is_its_own),
    ("S3", conditions_agree),
    ("S3", finished_is_final),
    ("S3", admitted_passed_its_checks),
    ("nodes", admitted_got_its_nodes),
    ("S3", quota_is_for_the_living),
    ("S3", evicted_is_asked_anew),
    ("S3", eviction_ends_with_quota),
    ("S4", reservation_stays),
    ("S4", waits_out_its_time),
    ("S5", preempted_had_something),
    ("S5", preempted_is_a_legal_target),
    ("S6", strict_queues_keep_order),
    ("L7", nobody_is_passed_for_ever),
    ("S9", one_workload_for_a_job),
)


# --- S7 ---------------------------------------------------------------------------------------------------------------

# A job that was told to start may do so a little after its Workload has lost its place.
START_SECONDS: Final = 45.0


def starts_admitted(picture: Picture, before: Tree | None, after: Tree | None) -> Iterator[str]:
    if before is None or after is None or not before["spec"].get("suspend") or after["spec"].get("suspend"):
        return
    is_by_hand = _mark(before) != _mark(after)  # which the manager undoes: at rest, it does not run
    if not is_by_hand and not _was_admitted(picture, after):
        yield "starts though its Workload is not admitted"
    for life in picture.lives.values():
        if after["metadata"]["uid"] in life.owners and life.says("Admitted"):
            asked, given = asked_by_pod(after["spec"]), asked_by_pod(life.spec["podSets"][0])
            if asked != given and not is_by_hand:
                yield f"starts pods that ask for {dict(asked)}, {life.name} for {dict(given)}"


def _mark(tree: Tree) -> object:
    return tree["metadata"].get("annotations", {}).get(BY_HAND)


def passes_admitted(picture: Picture, before: Tree | None, after: Tree | None) -> Iterator[str]:
    """The same of a pod, which starts when its gate is gone."""
    if before is None or after is None or not _is_gated(before) or _is_gated(after):
        return
    if not _was_admitted(picture, after):
        yield "passes its gate though its Workload is not admitted"


def _was_admitted(picture: Picture, tree: Tree) -> bool:
    uid = tree["metadata"]["uid"]
    if any(uid in life.owners and life.says("Admitted") for life in picture.lives.values()):
        return True
    return picture.admitted.get(uid, -START_SECONDS) >= picture.seconds - START_SECONDS


def _is_gated(pod: Tree) -> bool:
    return any(each["name"] == "kueue.x-k8s.io/admission" for each in pod["spec"].get("schedulingGates", ()))


Started = Callable[[Picture, Tree | None, Tree | None], Iterator[str]]
ON_OTHERS: Final[Mapping[str, tuple[str, Started]]] = {
    "jobs.batch": ("S7", starts_admitted),
    "pods": ("S7", passes_admitted),
}
