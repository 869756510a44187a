"""What must hold when faults are over and nothing is written any more.

    S7     no job runs whose Workload is not admitted
    S8     the queues' own figures are those of the history
    L1     whoever could be admitted is; everybody else has been told why not
    L2     a new manager admits nothing new
    L3     nobody is evicted and still holds quota
    L5     what was deleted is gone
    L6     a new manager writes nothing
    limit  nobody runs longer than he may, or without his pods
    check  nobody has quota whom a check has sent away (KEP-993)
    7610   every namespace that a ClusterQueue selects has its default LocalQueue, with the gate alone
    3589   jobs that name no queue are managed where the operator said so, and nowhere else

`name` is the rest that is looked at: `healed`, `restarted` or `ended`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pykueue.simulate.picture import Life, Picture
from pykueue.simulate.quota_tree import QuotaTree, milli
from pykueue.simulate.revisions import Stored, Tree

Found = Iterator[tuple[str, str]]  # about whom, and what
Law = Callable[[Picture, str], Found]


def _waiting(picture: Picture) -> dict[str, list[Life]]:
    """Those who wait, by ClusterQueue; not those whose way there is closed."""
    found: dict[str, list[Life]] = {}
    for life in picture.lives.values():
        if life.waits and (queue := picture.queue_of(life)) is not None:
            found.setdefault(queue, []).append(life)
    return found


# --- L1 ---------------------------------------------------------------------------------------------------------------


def told_why(picture: Picture, name: str) -> Found:
    """What was said to one counts for all who ask for the same. In a strict queue only the first is looked at."""
    for queue, lives in _waiting(picture).items():
        told = [life for life in lives if life.shape() in picture.told.get(life.local_queue, ())]
        silent = sorted(life.name for life in lives if life not in told)
        if silent and (not told or not _is_strict(picture.trees[-1], queue)):
            yield queue, f"{silent} wait and have not been told why"


def admitted_if_possible(picture: Picture, name: str) -> Found:
    waiting, tree = _waiting(picture), picture.trees[-1]
    strict = [queue for queue in waiting if _is_strict(tree, queue)]
    for queue, lives in waiting.items():
        if any(other != queue and tree.root(other) == tree.root(queue) for other in strict):
            continue  # the head of a strict queue may keep room for itself that nobody else gets
        fitting = [life for life in lives if picture.fits(life, queue) and not life.is_strange]
        if queue in strict and len(fitting) < len(lives):
            continue  # whoever is first may be one that does not fit
        if fitting and _is_blocked(picture):
            continue
        for life in fitting:
            why = life.conditions.get("QuotaReserved", {}).get("message", "")
            yield life.name, f"fits into {queue} and waits: {why}"


def _is_strict(tree: QuotaTree, queue: str) -> bool:
    return bool(tree.specs[queue].get("queueingStrategy") == "StrictFIFO")


def _is_blocked(picture: Picture) -> bool:
    """Nobody is let in before the pods of everybody else are ready."""
    blocks = picture.configuration.get("waitForPodsReady", {}).get("blockAdmission")
    return bool(blocks) and any(life.holds and not life.says("PodsReady") for life in picture.lives.values())


def comes_to_its_end(picture: Picture, name: str) -> Found:
    if name == "ended":
        for life in picture.lives.values():
            if life.holds and not life.says("Evicted"):
                yield life.name, "has quota and never came to its end"


def checks_were_asked(picture: Picture, name: str) -> Found:
    """Checks say Ready by now: who has quota is admitted."""
    for life in picture.lives.values():
        if life.holds and not life.says("Admitted") and picture.queue_of(life) is not None:
            yield life.name, f"has quota and is not admitted, its checks are {life.checks}"


def time_is_kept(picture: Picture, name: str) -> Found:
    """The limits of these worlds are shorter than any rest: who runs into one does not run any more."""
    watches_pods = "waitForPodsReady" in picture.configuration
    for life in picture.lives.values():
        if not life.holds or life.says("Evicted"):
            continue
        if life.says("Admitted") and "maximumExecutionTimeSeconds" in life.spec:
            yield life.name, f"runs longer than {life.spec['maximumExecutionTimeSeconds']} seconds"
        if life.says("Admitted") and watches_pods and not life.says("PodsReady"):
            yield life.name, "its pods are not ready, and it was not evicted"


def checks_are_heard(picture: Picture, name: str) -> Found:
    for life in picture.lives.values():
        if life.holds and {"Retry", "Rejected"} & set(life.checks.values()):
            yield life.name, f"has quota although its checks are {life.checks}"


# --- Others -----------------------------------------------------------------------------------------------------------


def evictions_end(picture: Picture, name: str) -> Found:
    for life in picture.lives.values():
        if life.says("QuotaReserved") and life.says("Evicted") and not life.says("Finished"):
            yield life.name, "is evicted and still holds quota"


def deleted_is_gone(picture: Picture, name: str) -> Found:
    in_use = {(life.reservation or {}).get("clusterQueue") for life in picture.lives.values() if life.holds}
    for life in picture.lives.values():
        if life.is_going:
            yield life.name, "was deleted and is still there"
    for kind, known in picture.objects.items():
        for key, tree in known.items():
            if "deletionTimestamp" in tree["metadata"] and tree["metadata"]["name"] not in in_use:
                yield f"{kind} {key}", "was deleted, nobody uses it, and it is still there"


def jobs_run_admitted(picture: Picture, name: str) -> Found:
    admitted = {life.owner for life in picture.lives.values() if life.says("Admitted")}
    for key, job in picture.objects["jobs.batch"].items():
        runs = not job["spec"].get("suspend") and not _is_over(job)
        if runs and _is_managed(picture, job) and job["metadata"]["uid"] not in admitted:
            yield key, "runs though its Workload is not admitted"


def figures_are_right(picture: Picture, name: str) -> Found:
    waiting = _waiting(picture)
    for key, queue in picture.objects["clusterqueues"].items():
        queue_name, status = key.removeprefix("/"), queue.get("status", {})
        own = [
            life
            for life in picture.lives.values()
            if life.holds and (life.reservation or {}).get("clusterQueue") == queue_name
        ]
        figures = {
            "reservingWorkloads": len(own),
            "admittedWorkloads": sum(life.says("Admitted") for life in own),
        }
        if any(picture.queue_of(life) == queue_name for life in waiting.get(queue_name, ())):
            figures["pendingWorkloads"] = len(waiting[queue_name])
        for figure, expected in figures.items():
            if status.get(figure, 0) != expected:
                yield queue_name, f"{figure} is {status.get(figure, 0)}, there are {expected}"
        for flavor in status.get("flavorsReservation", ()):
            shown = sum(milli(each.get("total", 0)) for each in flavor["resources"])
            used = picture.reserved[queue_name, flavor["name"]]
            if shown != used:
                yield queue_name, f"shows {shown}m of {flavor['name']}, not {used}m"


# --- Proposals --------------------------------------------------------------------------------------------------------


def default_queues_are_there(picture: Picture, name: str) -> Found:
    is_on = picture.gates.get("DefaultLocalQueue", False)
    local_queues = picture.objects["localqueues"]
    for key, tree in local_queues.items():
        if not is_on and "kueue.x-k8s.io/auto-generated" in tree["metadata"].get("labels", {}):
            yield key, "was made though the gate is off"
    for key, queue in picture.objects["clusterqueues"].items():
        wanted = queue["spec"].get("defaultLocalQueue", {}).get("name")
        if is_on and wanted and "deletionTimestamp" not in queue["metadata"]:
            missing = [place for place in picture.specs("namespaces") if f"{place}/{wanted}" not in local_queues]
            if missing:
                yield key, f"has no LocalQueue {wanted} in {missing}"


def unnamed_jobs_are_managed(picture: Picture, name: str) -> Found:
    owned = {life.owner for life in picture.lives.values()}
    for key, job in picture.objects["jobs.batch"].items():
        if _is_over(job) or "deletionTimestamp" in job["metadata"]:
            continue
        has_workload = job["metadata"]["uid"] in owned
        if has_workload != _is_managed(picture, job):
            yield key, "has a Workload and should have none" if has_workload else "is managed and has no Workload"


def _is_managed(picture: Picture, job: Tree) -> bool:
    selector = picture.configuration.get("managedJobsNamespaceSelector")
    selected = selector is None or job["metadata"]["namespace"] in selector["matchExpressions"][0]["values"]
    if "kueue.x-k8s.io/queue-name" in job["metadata"].get("labels", {}):
        return selected or not picture.gates.get("ManagedJobsNamespaceSelectorAlwaysRespected", False)
    return selected and bool(picture.configuration.get("manageJobsWithoutQueueName", False))


def _is_over(job: Tree) -> bool:
    said = job.get("status", {}).get("conditions", ())
    return any(each["type"] == "Complete" and each["status"] == "True" for each in said)


AT_REST: Final[tuple[tuple[str, Law], ...]] = (
    ("S7", jobs_run_admitted),
    ("S8", figures_are_right),
    ("L1", told_why),
    ("L1", admitted_if_possible),
    ("L1", checks_were_asked),
    ("L1", comes_to_its_end),
    ("limit", time_is_kept),
    ("check", checks_are_heard),
    ("L3", evictions_end),
    ("L5", deleted_is_gone),
    ("7610", default_queues_are_there),
    ("3589", unnamed_jobs_are_managed),
)


# --- After a restart --------------------------------------------------------------------------------------------------


def restart_changes(before: Life | None, after: Life | None) -> Iterator[tuple[str, str]]:
    """A Workload is written though all was at rest. Why it waits may be said in other words by another manager; that
    it waits, and for what, may not change."""
    if after is None or before is None or before.words() != after.words():
        admits = after is not None and after.holds and not (before is not None and before.holds)
        yield ("L2" if admits else "L6"), "a new manager changes it though all was at rest"


def restart_writes(picture: Picture, stored: Stored) -> Iterator[tuple[str, str]]:
    """Something else is. Usage that is sampled over time is the only thing that may be."""
    if stored.resource.startswith("localqueues.") and "admissionFairSharing" in picture.configuration:
        return
    yield "L6", f"a new manager writes {stored.op} {stored.resource} though all was at rest"
