"""What must hold when faults are over and nothing is written any more.

    S7     no job and no pod runs whose Workload is not admitted
    S8     the queues' own figures are those of the history
    L1     whoever could be admitted is; everybody else has been told why not
    L2     a new manager admits nothing new
    L3     nobody is evicted and still holds quota
    L4     a manager that takes over decides within seconds, and knows what one knows that reads everything anew
    L5     what was deleted is gone
    L6     a new manager writes nothing
    nodes  nobody who is admitted is placed on a node that is lost; no autoscaler is asked for nodes that nobody needs
    flavor jobs that run have what their flavors say of nodes; those that do not have what they came with
    done   what pods had that are done and that no other will follow is given back
    kept   nothing is kept longer than the operator said
    slice  of the slices of an elastic job one has quota, and it is as large as the job
    limit  nobody runs longer than he may, or without his pods
    check  nobody has quota whom a check has sent away (KEP-993)
    7610   every namespace that a ClusterQueue selects has its default LocalQueue, with the gate alone
    3589   jobs that name no queue are managed where the operator said so, and nowhere else

`name` is the rest that is looked at: `healed`, `restarted` or `ended`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from simulation.engine.quota_tree import Cell, QuotaTree, milli
from simulation.engine.revisions import Stored, Tree
from simulation.engine.stored_state import LEASE_SECONDS, Life, Picture, is_well

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
            if life.holds and not life.says("Evicted") and not picture.waits_for_room_on_nodes(life):
                yield life.name, "has quota and never came to its end"


def checks_were_asked(picture: Picture, name: str) -> Found:
    """Checks say Ready by now: who has quota is admitted."""
    for life in picture.lives.values():
        if life.says("Admitted") or not life.holds or picture.queue_of(life) is None:
            continue
        if not picture.waits_for_room_on_nodes(life):
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


# The lease apart, which has to run out first.
DECIDED_SECONDS: Final = 5.0


def decides_soon(picture: Picture, name: str) -> Found:
    """Somebody comes when nobody has led for a while yet."""
    elects = picture.configuration["leaderElection"]["leaderElect"]
    bound = DECIDED_SECONDS + (LEASE_SECONDS if elects else 0.0)
    for life in picture.lives.values():
        if name == "ended" and life.name == "probe" and not _is_blocked(picture):
            seconds = picture.told_at.get(life.uid, picture.seconds) - picture.came_at[life.uid]
            if seconds > bound:
                yield life.name, f"was decided on after {seconds:.1f} seconds"


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
    admitted = {owner for life in picture.lives.values() if life.says("Admitted") for owner in life.owners}
    for key, job in picture.objects["jobs.batch"].items():
        runs = not job["spec"].get("suspend") and not _is_over(job)
        if runs and _is_managed(picture, job) and job["metadata"]["uid"] not in admitted:
            yield key, "runs though its Workload is not admitted"
    for key, pod in picture.objects["pods"].items():
        runs = "nodeName" in pod["spec"] and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        if runs and pod["metadata"]["uid"] not in admitted:
            yield key, "runs though its Workload is not admitted"


def nobody_is_on_lost_nodes(picture: Picture, name: str) -> Found:
    for life in picture.lives.values():
        if life.says("Admitted") and life.holds and not life.says("Evicted"):
            hosts = {host: picture.objects["nodes"].get(f"/{host}") for host in life.hosts()}
            lost = sorted(host for host, node in hosts.items() if node is None or not is_well(node))
            if lost:
                yield life.name, f"is placed on {lost}, which are lost"


def jobs_know_their_flavors(picture: Picture, name: str) -> Found:
    owned = {owner: life for life in picture.lives.values() if life.says("Admitted") for owner in life.owners}
    for key, job in picture.objects["jobs.batch"].items():
        pods, came = job["spec"]["template"]["spec"], picture.submitted[job["metadata"]["uid"]]
        life = owned.get(job["metadata"]["uid"])
        if _is_over(job) or "deletionTimestamp" in job["metadata"]:
            continue
        if job["spec"].get("suspend"):
            if _about_nodes(pods) != _about_nodes(came):
                yield key, f"does not run, and its pods ask for {_about_nodes(pods)}, not {_about_nodes(came)}"
        elif life is not None and life.reservation is not None:
            labels, tolerations = _about_nodes(pods)
            for given in life.reservation["podSetAssignments"]:
                for flavor in map(picture.flavor, sorted(given["flavors"].values())):
                    if not flavor.get("nodeLabels", {}).items() <= labels.items():
                        yield key, f"runs with {labels}, not with {flavor['nodeLabels']}"
                    if any(each not in tolerations for each in flavor.get("tolerations", ())):
                        yield key, f"runs without {flavor['tolerations']}"


def _about_nodes(pods: Tree) -> tuple[Tree, list[Tree]]:
    return pods.get("nodeSelector", {}), pods.get("tolerations", [])


def requests_are_needed(picture: Picture, name: str) -> Found:
    """Whoever lost his quota without being evicted, in a queue that was stopped, keeps his nodes for later."""
    needing = {life.uid for life in picture.lives.values() if not life.is_over and not life.says("Evicted")}
    for key, request in picture.objects["provisioningrequests.autoscaling.x-k8s.io"].items():
        if not any(each["uid"] in needing for each in request["metadata"].get("ownerReferences", ())):
            yield key, "asks for nodes that nobody needs any more"


def slices_agree(picture: Picture, name: str) -> Found:
    for life in picture.lives.values():
        old = picture.lives.get(life.replaces)
        if life.holds and old is not None and old.holds:
            yield life.name, f"has quota, and so has {old.name}, whose place it has taken"
    for key, job in picture.objects["jobs.batch"].items():
        if "kueue.x-k8s.io/elastic-job" not in job["metadata"].get("annotations", {}) or _is_over(job):
            continue
        own = [life for life in picture.lives.values() if job["metadata"]["uid"] in life.owners and not life.is_over]
        sizes = [sum(each["count"] for each in life.spec["podSets"]) for life in own]
        asked = min(job["spec"]["parallelism"], job["spec"]["completions"])
        if own and asked not in sizes:
            yield key, f"asks for {asked} pods, its Workloads for {sizes}"


def done_is_given_back(picture: Picture, name: str) -> Found:
    """A Job that has fewer pods left than it could run at once needs no more than these."""
    for life in picture.lives.values():
        for job in picture.objects["jobs.batch"].values():
            if job["metadata"]["uid"] not in life.owners or not life.holds or _is_over(job):
                continue
            asked, done = job["spec"]["parallelism"], job.get("status", {}).get("succeeded", 0)
            least = max(0, asked - (job["spec"]["completions"] - done)) if done else 0
            if not least <= life.done("main") <= done:
                yield life.name, f"gives back {life.done('main')} pods, {done} are done, {least} of them for good"


def nothing_is_kept_too_long(picture: Picture, name: str) -> Found:
    """All that is done at rest has been so for longer than these configurations allow."""
    if "objectRetentionPolicies" not in picture.configuration:
        return
    for life in picture.lives.values():
        if life.is_over:
            yield life.name, "is finished, and still there"
        elif life.owners and not life.is_active and life.reason("Evicted").startswith("DeactivatedDueTo"):
            yield life.name, "was given up, and its job is still there"


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
            for each in flavor["resources"]:
                cell, shown = Cell(flavor["name"], each["name"]), milli(each.get("total", 0))
                used = picture.reserved[queue_name, cell]
                if shown != used:
                    yield queue_name, f"shows {shown}m {cell.resource} of {cell.flavor}, not {used}m"


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
            chosen = [place for place in picture.specs("namespaces") if picture.takes(queue, place)]
            missing = [place for place in chosen if f"{place}/{wanted}" not in local_queues]
            if missing:
                yield key, f"has no LocalQueue {wanted} in {missing}"


def unnamed_jobs_are_managed(picture: Picture, name: str) -> Found:
    owned = {owner for life in picture.lives.values() for owner in life.owners}
    for key, job in picture.objects["jobs.batch"].items():
        if _is_over(job) or "deletionTimestamp" in job["metadata"]:
            continue
        has_workload = job["metadata"]["uid"] in owned
        if not has_workload and _prebuilt(job):
            continue
        if has_workload != _is_managed(picture, job):
            yield key, "has a Workload and should have none" if has_workload else "is managed and has no Workload"


def _prebuilt(job: Tree) -> str:
    """The Workload that people make for it."""
    found: str = job["metadata"].get("labels", {}).get("kueue.x-k8s.io/prebuilt-workload-name", "")
    return found


def prebuilt_is_taken(picture: Picture, name: str) -> Found:
    for key, job in picture.objects["jobs.batch"].items():
        if not _prebuilt(job) or _is_over(job) or not _is_managed(picture, job):
            continue
        life = picture.lives.get(f"{job['metadata']['namespace']}/{_prebuilt(job)}")
        if life is not None and not life.owners:
            yield key, f"{life.name} was made for it, and it has not taken it"


def _is_managed(picture: Picture, job: Tree) -> bool:
    selector = picture.configuration.get("managedJobsNamespaceSelector")
    selected = selector is None or job["metadata"]["namespace"] in selector["matchExpressions"][0]["values"]
    if "kueue.x-k8s.io/queue-name" in job["metadata"].get("labels", {}):
        return selected or not picture.gates.get("ManagedJobsNamespaceSelectorAlwaysRespected", False)
    return selected and bool(picture.configuration.get("manageJobsWithoutQueueName", False))


def _is_over(job: Tree) -> bool:
    said = job.get("status", {}).get("conditions", ())
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in said)


AT_REST: Final[tuple[tuple[str, Law], ...]] = (
    ("S7", jobs_run_admitted),
    ("S8", figures_are_right),
    ("L1", told_why),
    ("L1", admitted_if_possible),
    ("L1", checks_were_asked),
    ("L1", comes_to_its_end),
    ("L1", prebuilt_is_taken),
    ("nodes", nobody_is_on_lost_nodes),
    ("nodes", requests_are_needed),
    ("flavor", jobs_know_their_flavors),
    ("done", done_is_given_back),
    ("kept", nothing_is_kept_too_long),
    ("slice", slices_agree),
    ("limit", time_is_kept),
    ("check", checks_are_heard),
    ("L3", evictions_end),
    ("L4", decides_soon),
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
