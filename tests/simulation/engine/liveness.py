"""What must hold when faults are over and nothing is written any more.

    S7     no job and no pod runs whose Workload is not admitted
    S8     the queues' own figures are those of the history
    L1     every Workload that could be admitted is; every other has a reason
    L2     a new manager admits nothing new
    L3     no evicted Workload holds quota
    L4     a manager that takes over decides within seconds, and its state equals one built from a fresh list
    L5     what was deleted is gone
    L6     a new manager writes nothing
    nodes  no admitted Workload is placed on a lost node; no ProvisioningRequest is left that no Workload needs
    flavor running jobs have the node selectors of their flavors; stopped ones have their original ones
    groups an object made of pods has a Workload for each group, of its size; running pods have the node labels of their flavors
    done   what pods had that are done and that no other will follow is given back
    kept   nothing is retained longer than configured
    slice  of the slices of an elastic job one has quota, and it is as large as the job
    limit  no Workload runs longer than its limit, or without its pods
    check  no Workload with a check in Retry or Rejected holds quota (KEP-993)
    7610   every namespace that a ClusterQueue selects has its default LocalQueue, with the gate alone
    3589   jobs that name no queue are managed in the selected namespaces only

`name` is the rest that is looked at: `healed`, `restarted` or `ended`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from simulation.engine import job_kinds
from simulation.engine.job_kinds import SimulatedKind
from simulation.engine.quota_tree import Cell, QuotaTree, milli
from simulation.engine.revisions import Stored, Tree
from simulation.engine.stored_state import LEASE_SECONDS, StoredState, StoredWorkload, is_well

Found = Iterator[tuple[str, str]]  # object, violation
Law = Callable[[StoredState, str], Found]


def _waiting(store: StoredState) -> dict[str, list[StoredWorkload]]:
    """Those who wait, by ClusterQueue; not those whose way there is closed."""
    found: dict[str, list[StoredWorkload]] = {}
    for workload in store.workloads.values():
        if workload.waits and (queue := store.queue_of(workload)) is not None:
            found.setdefault(queue, []).append(workload)
    return found


# --- L1 ---------------------------------------------------------------------------------------------------------------


def pending_have_a_reason(store: StoredState, name: str) -> Found:
    """The reason of one Workload holds for its equivalence class. In a strict queue only the head has one."""
    for queue, workloads in _waiting(store).items():
        reported = [
            workload for workload in workloads if workload.shape() in store.reported.get(workload.local_queue, ())
        ]
        silent = sorted(workload.name for workload in workloads if workload not in reported)
        if silent and (not reported or not _is_strict(store.trees[-1], queue)):
            yield queue, f"{silent} are pending without a reason"


def admitted_if_possible(store: StoredState, name: str) -> Found:
    waiting, tree = _waiting(store), store.trees[-1]
    strict = [queue for queue in waiting if _is_strict(tree, queue)]
    for queue, workloads in waiting.items():
        if any(other != queue and tree.root(other) == tree.root(queue) for other in strict):
            continue  # the head of a strict queue may block quota that no other Workload gets
        fitting = [workload for workload in workloads if store.fits(workload, queue) and not workload.is_strange]
        if queue in strict and len(fitting) < len(workloads):
            continue  # the first one may not fit
        if fitting and _is_blocked(store):
            continue
        for workload in fitting:
            why = workload.conditions.get("QuotaReserved", {}).get("message", "")
            yield workload.name, f"fits into {queue} and waits: {why}"


def _is_strict(tree: QuotaTree, queue: str) -> bool:
    return bool(tree.specs[queue].get("queueingStrategy") == "StrictFIFO")


def _is_blocked(store: StoredState) -> bool:
    """No Workload is admitted before the pods of all others are ready."""
    blocks = store.configuration.get("waitForPodsReady", {}).get("blockAdmission")
    return bool(blocks) and any(
        workload.holds and not workload.has_condition("PodsReady") for workload in store.workloads.values()
    )


def comes_to_its_end(store: StoredState, name: str) -> Found:
    """A placement that was delayed is found in a scheduling cycle; a queue that is closed takes part in none."""
    for workload in store.workloads.values() if name == "ended" else ():
        is_closed = not workload.has_condition("Admitted") and store.queue_of(workload) is None
        is_over = not workload.holds or workload.has_condition("Evicted")
        if not is_over and not is_closed and not store.waits_for_nodes(workload):
            yield workload.name, "has quota and never came to its end"


def checks_were_asked(store: StoredState, name: str) -> Found:
    """All checks are Ready by now: every Workload with quota is admitted."""
    for workload in store.workloads.values():
        if workload.has_condition("Admitted") or not workload.holds or store.queue_of(workload) is None:
            continue
        if not store.waits_for_nodes(workload):
            yield workload.name, f"has quota and is not admitted, its checks are {workload.checks}"


def time_is_kept(store: StoredState, name: str) -> Found:
    """The limits of these worlds are shorter than any rest: who runs into one does not run any more."""
    watches_pods = "waitForPodsReady" in store.configuration
    for workload in store.workloads.values():
        if not workload.holds or workload.has_condition("Evicted"):
            continue
        if workload.has_condition("Admitted") and "maximumExecutionTimeSeconds" in workload.spec:
            yield workload.name, f"runs longer than {workload.spec['maximumExecutionTimeSeconds']} seconds"
        if workload.has_condition("Admitted") and watches_pods and not workload.has_condition("PodsReady"):
            yield workload.name, "its pods are not ready, and it was not evicted"


def failed_checks_release_quota(store: StoredState, name: str) -> Found:
    for workload in store.workloads.values():
        if workload.holds and {"Retry", "Rejected"} & set(workload.checks.values()):
            yield workload.name, f"has quota although its checks are {workload.checks}"


# --- Others -----------------------------------------------------------------------------------------------------------


def evictions_end(store: StoredState, name: str) -> Found:
    for workload in store.workloads.values():
        if (
            workload.has_condition("QuotaReserved")
            and workload.has_condition("Evicted")
            and not workload.has_condition("Finished")
        ):
            yield workload.name, "is evicted and still holds quota"


# The lease apart, which has to run out first.
DECIDED_SECONDS: Final = 5.0


def decides_soon(store: StoredState, name: str) -> Found:
    """A Workload is created after a time without a leader."""
    elects = store.configuration["leaderElection"]["leaderElect"]
    bound = DECIDED_SECONDS + (LEASE_SECONDS if elects else 0.0)
    for workload in store.workloads.values():
        if name == "ended" and workload.name == "probe" and not _is_blocked(store):
            seconds = store.decided_at.get(workload.uid, store.seconds) - store.came_at[workload.uid]
            if seconds > bound:
                yield workload.name, f"was decided on after {seconds:.1f} seconds"


def deleted_is_gone(store: StoredState, name: str) -> Found:
    in_use = {
        (workload.reservation or {}).get("clusterQueue") for workload in store.workloads.values() if workload.holds
    }
    for workload in store.workloads.values():
        if workload.is_going:
            yield workload.name, "was deleted and is still there"
    for kind, known in store.objects.items():
        for key, tree in known.items():
            if "deletionTimestamp" in tree["metadata"] and tree["metadata"]["name"] not in in_use:
                yield f"{kind} {key}", "was deleted, is not in use, and still exists"


def jobs_run_admitted(store: StoredState, name: str) -> Found:
    admitted = {
        owner
        for workload in store.workloads.values()
        if workload.has_condition("Admitted")
        for owner in workload.owners
    }
    for key, row, job in store.jobs():
        runs = not row.is_suspended(job) and not row.is_over(job)
        if runs and _is_managed(store, job) and job["metadata"]["uid"] not in admitted:
            yield key, "runs though its Workload is not admitted"
    for key, cluster in store.objects[job_kinds.RAY_CLUSTER.resource].items():
        parent = job_kinds.controller(cluster)
        if parent and parent not in admitted and not job_kinds.RAY_CLUSTER.is_suspended(cluster):
            yield key, "runs though the Workload of its RayJob is not admitted"
    for key, pod in store.objects["pods"].items():
        runs = "nodeName" in pod["spec"] and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        if runs and pod["metadata"]["uid"] not in admitted:
            yield key, "runs though its Workload is not admitted"


def parents_have_their_workloads(store: StoredState, name: str) -> Found:
    """An object made of pods has as many Workloads as it has groups, each as large as a group; its
    pods know the flavors they run on."""
    for key, row, tree in store.parents():
        if "deletionTimestamp" in tree["metadata"]:
            continue
        pods = [pod for pod in store.objects["pods"].values() if job_kinds.controller(pod) == tree["metadata"]["uid"]]
        uids = {tree["metadata"]["uid"], *(pod["metadata"]["uid"] for pod in pods if not _has_ended(pod))}
        own = [each for each in store.workloads.values() if uids & set(each.owners) and not each.is_over]
        wanted = [each for each in own if not each.is_on_hold]
        if len(wanted) != row.workloads(tree):
            yield key, f"has {len(wanted)} Workloads for {row.workloads(tree)} groups of pods"
        is_rescaled = tree["metadata"]["uid"] in store.rescaled
        sized = [workload for workload in wanted if workload.waits or not is_rescaled]
        sizes = {sum(each["count"] for each in workload.spec["podSets"]) for workload in sized}
        if sizes - {row.pods(tree)}:
            yield key, f"has groups of {row.pods(tree)} pods, and Workloads of {sorted(sizes)}"
        for pod in pods:
            yield from _knows_its_flavors(store, pod, own)


def _has_ended(pod: Tree) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _knows_its_flavors(store: StoredState, pod: Tree, workloads: list[StoredWorkload]) -> Found:
    """A pod that runs is where its Workload has quota; one that waits asks for nothing of it."""
    metadata, selector = pod["metadata"], pod["spec"].get("nodeSelector", {})
    admitted = [each for each in workloads if metadata["uid"] in each.owners and each.has_condition("Admitted")]
    if "nodeName" not in pod["spec"] or _has_ended(pod) or "deletionTimestamp" in metadata:
        return
    for workload in admitted:
        for assignment in (workload.reservation or {}).get("podSetAssignments", ()):
            for flavor in map(store.flavor, sorted(assignment.get("flavors", {}).values())):
                if not flavor.get("nodeLabels", {}).items() <= selector.items():
                    yield metadata["name"], f"runs with {selector}, not with {flavor['nodeLabels']}"


def no_workload_is_on_lost_nodes(store: StoredState, name: str) -> Found:
    for workload in store.workloads.values():
        if workload.has_condition("Admitted") and workload.holds and not workload.has_condition("Evicted"):
            hosts = {host: store.objects["nodes"].get(f"/{host}") for host in workload.hosts()}
            lost = sorted(host for host, node in hosts.items() if node is None or not is_well(node))
            if lost:
                yield workload.name, f"is placed on {lost}, which are lost"


def jobs_know_their_flavors(store: StoredState, name: str) -> Found:
    owned = {
        owner: workload
        for workload in store.workloads.values()
        if workload.has_condition("Admitted")
        for owner in workload.owners
    }
    for key, row, job in store.jobs():
        templates = [_about_nodes(template["spec"]) for template in row.templates(job)]
        came = [_about_nodes(pods) for pods in store.submitted[job["metadata"]["uid"]]]
        workload = owned.get(job["metadata"]["uid"])
        if row.is_over(job) or "deletionTimestamp" in job["metadata"]:
            continue
        if row.is_suspended(job):
            if templates != came:
                yield key, f"does not run, and its pods ask for {templates}, not {came}"
        elif workload is not None and workload.reservation is not None:
            given = workload.reservation["podSetAssignments"]
            for (labels, tolerations), assignment in zip(templates, given, strict=True):
                for flavor in map(store.flavor, sorted(assignment.get("flavors", {}).values())):
                    if not flavor.get("nodeLabels", {}).items() <= labels.items():
                        yield key, f"runs with {labels}, not with {flavor['nodeLabels']}"
                    if any(each not in tolerations for each in flavor.get("tolerations", ())):
                        yield key, f"runs without {flavor['tolerations']}"


def _about_nodes(pods: Tree) -> tuple[Tree, list[Tree]]:
    return pods.get("nodeSelector", {}), pods.get("tolerations", [])


def requests_are_needed(store: StoredState, name: str) -> Found:
    """A Workload that lost its quota without an eviction, in a stopped queue, keeps its ProvisioningRequest."""
    needing = {
        workload.uid
        for workload in store.workloads.values()
        if not workload.is_over and not workload.has_condition("Evicted")
    }
    for key, request in store.objects["provisioningrequests.autoscaling.x-k8s.io"].items():
        if not any(each["uid"] in needing for each in request["metadata"].get("ownerReferences", ())):
            yield key, "requests nodes that no Workload needs any more"


def slices_agree(store: StoredState, name: str) -> Found:
    for workload in store.workloads.values():
        old = store.workloads.get(workload.replaces)
        if workload.holds and old is not None and old.holds:
            yield workload.name, f"has quota, and so has {old.name}, whose place it has taken"
    for key, row, job in store.jobs():
        if not job_kinds.is_elastic(job) or row.is_over(job):
            continue
        own = [
            workload
            for workload in store.workloads.values()
            if job["metadata"]["uid"] in workload.owners and not workload.is_over
        ]
        sizes = [sum(each["count"] for each in workload.spec["podSets"]) for workload in own]
        asked = _pods(store, key, row, job)
        if own and asked not in sizes:
            yield key, f"asks for {asked} pods, its Workloads for {sizes}"


def _pods(store: StoredState, key: str, row: SimulatedKind, job: Tree) -> int:
    """The pods that an elastic job asks for. Those of a RayJob that is scaled by Ray are in its RayCluster."""
    found = row.pods(job)
    cluster = store.objects[job_kinds.RAY_CLUSTER.resource].get(f"{key}-cluster")
    if row is job_kinds.RAY_JOB and cluster is not None:
        found += job_kinds.ray_pods(cluster["spec"]) - job_kinds.ray_pods(job["spec"]["rayClusterSpec"])
    return found


def done_is_given_back(store: StoredState, name: str) -> Found:
    """A Job that has fewer pods left than it could run at once needs no more than these."""
    for workload in store.workloads.values():
        for job in store.objects["jobs.batch"].values():
            if job["metadata"]["uid"] not in workload.owners or not workload.holds or _is_over(job):
                continue
            asked, done = job["spec"]["parallelism"], job.get("status", {}).get("succeeded", 0)
            least = max(0, asked - (job["spec"]["completions"] - done)) if done else 0
            if not least <= workload.done("main") <= done:
                yield (
                    workload.name,
                    f"gives back {workload.done('main')} pods, {done} are done, {least} of them for good",
                )


def nothing_is_kept_too_long(store: StoredState, name: str) -> Found:
    """All that is done at rest has been so for longer than these configurations allow."""
    if "objectRetentionPolicies" not in store.configuration:
        return
    for workload in store.workloads.values():
        if workload.is_over:
            yield workload.name, "is finished, and still there"
        elif workload.owners and not workload.is_active and workload.reason("Evicted").startswith("DeactivatedDueTo"):
            yield workload.name, "was given up, and its job is still there"


def figures_are_right(store: StoredState, name: str) -> Found:
    waiting = _waiting(store)
    for key, queue in store.objects["clusterqueues"].items():
        queue_name, status = key.removeprefix("/"), queue.get("status", {})
        own = [
            workload
            for workload in store.workloads.values()
            if workload.holds and (workload.reservation or {}).get("clusterQueue") == queue_name
        ]
        figures = {
            "reservingWorkloads": len(own),
            "admittedWorkloads": sum(workload.has_condition("Admitted") for workload in own),
        }
        if any(store.queue_of(workload) == queue_name for workload in waiting.get(queue_name, ())):
            figures["pendingWorkloads"] = len(waiting[queue_name])
        for figure, expected in figures.items():
            if status.get(figure, 0) != expected:
                yield queue_name, f"{figure} is {status.get(figure, 0)}, there are {expected}"
        for flavor in status.get("flavorsReservation", ()):
            for each in flavor["resources"]:
                cell, shown = Cell(flavor["name"], each["name"]), milli(each.get("total", 0))
                used = store.reserved[queue_name, cell]
                if shown != used:
                    yield queue_name, f"shows {shown}m {cell.resource} of {cell.flavor}, not {used}m"


# --- Proposals --------------------------------------------------------------------------------------------------------


def default_queues_are_there(store: StoredState, name: str) -> Found:
    is_on = store.gates.get("DefaultLocalQueue", False)
    local_queues = store.objects["localqueues"]
    for key, tree in local_queues.items():
        if not is_on and "kueue.x-k8s.io/auto-generated" in tree["metadata"].get("labels", {}):
            yield key, "was made though the gate is off"
    for key, queue in store.objects["clusterqueues"].items():
        wanted = queue["spec"].get("defaultLocalQueue", {}).get("name")
        if is_on and wanted and "deletionTimestamp" not in queue["metadata"]:
            chosen = [place for place in store.specs("namespaces") if store.takes(queue, place)]
            missing = [place for place in chosen if f"{place}/{wanted}" not in local_queues]
            if missing:
                yield key, f"has no LocalQueue {wanted} in {missing}"


def unnamed_jobs_are_managed(store: StoredState, name: str) -> Found:
    owned = {owner for workload in store.workloads.values() for owner in workload.owners}
    for key, row, job in store.jobs():
        if row.is_over(job) or "deletionTimestamp" in job["metadata"]:
            continue
        has_workload = job["metadata"]["uid"] in owned
        if not has_workload and _prebuilt(job):
            continue
        if has_workload != _is_managed(store, job):
            yield key, "has a Workload and should have none" if has_workload else "is managed and has no Workload"


def _prebuilt(job: Tree) -> str:
    """The prebuilt Workload of a job."""
    found: str = job["metadata"].get("labels", {}).get("kueue.x-k8s.io/prebuilt-workload-name", "")
    return found


def prebuilt_is_taken(store: StoredState, name: str) -> Found:
    for key, job in store.objects["jobs.batch"].items():
        if not _prebuilt(job) or _is_over(job) or not _is_managed(store, job):
            continue
        workload = store.workloads.get(f"{job['metadata']['namespace']}/{_prebuilt(job)}")
        if workload is not None and not workload.owners:
            yield key, f"{workload.name} was made for it, and it has not taken it"


def _is_managed(store: StoredState, job: Tree) -> bool:
    selector = store.configuration.get("managedJobsNamespaceSelector")
    selected = selector is None or job["metadata"]["namespace"] in selector["matchExpressions"][0]["values"]
    if "kueue.x-k8s.io/queue-name" in job["metadata"].get("labels", {}):
        return selected or not store.gates.get("ManagedJobsNamespaceSelectorAlwaysRespected", False)
    return selected and bool(store.configuration.get("manageJobsWithoutQueueName", False))


def _is_over(job: Tree) -> bool:
    return job_kinds.JOB.is_over(job)


AT_REST: Final[tuple[tuple[str, Law], ...]] = (
    ("S7", jobs_run_admitted),
    ("S8", figures_are_right),
    ("L1", pending_have_a_reason),
    ("L1", admitted_if_possible),
    ("L1", checks_were_asked),
    ("L1", comes_to_its_end),
    ("L1", prebuilt_is_taken),
    ("nodes", no_workload_is_on_lost_nodes),
    ("nodes", requests_are_needed),
    ("flavor", jobs_know_their_flavors),
    ("groups", parents_have_their_workloads),
    ("done", done_is_given_back),
    ("kept", nothing_is_kept_too_long),
    ("slice", slices_agree),
    ("limit", time_is_kept),
    ("check", failed_checks_release_quota),
    ("L3", evictions_end),
    ("L4", decides_soon),
    ("L5", deleted_is_gone),
    ("7610", default_queues_are_there),
    ("3589", unnamed_jobs_are_managed),
)


# --- After a restart --------------------------------------------------------------------------------------------------


def restart_changes(before: StoredWorkload | None, after: StoredWorkload | None) -> Iterator[tuple[str, str]]:
    """A Workload is written though all was at rest. The message of its pending reason may differ between managers; that
    it waits, and for what, may not change."""
    if after is None or before is None or before.words() != after.words():
        admits = after is not None and after.holds and not (before is not None and before.holds)
        yield ("L2" if admits else "L6"), "a new manager changes it though all was at rest"


def restart_writes(store: StoredState, stored: Stored) -> Iterator[tuple[str, str]]:
    """Something else is. Usage that is sampled over time is the only thing that may be."""
    if stored.resource.startswith("localqueues.") and "admissionFairSharing" in store.configuration:
        return
    yield "L6", f"a new manager writes {stored.op} {stored.resource} though all was at rest"
