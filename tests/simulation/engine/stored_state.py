"""What is stored at one moment of a history, folded from its first revision. Read from bytes and words alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from simulation.engine import job_kinds
from simulation.engine.job_kinds import SimulatedKind, SimulatedParent
from simulation.engine.quota_tree import Cell, Place, QuotaTree, milli
from simulation.engine.revisions import Stored, Tree

# A change may take this long to reach a manager: it stands still, or its watch is broken.
GRACE_SECONDS: Final = 60.0
# Time until another manager may lead, when the leader vanished without releasing its lease.
LEASE_SECONDS: Final = 20.0
_GROUP: Final = ".kueue.x-k8s.io"
_SHAPES_TREES: Final = ("clusterqueues", "cohorts")
_KEPT: Final = (
    *_SHAPES_TREES,
    "localqueues",
    "admissionchecks",
    "resourceflavors",
    "nodes",
    "namespaces",
    *job_kinds.BY_RESOURCE,
    *job_kinds.PARENTS_BY_RESOURCE,
    "pods",
    "provisioningrequests.autoscaling.x-k8s.io",
)
_PARENT: Final = "kueue.x-k8s.io/concurrent-admission-parent"
_ALLOWED: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
_REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
_DEFERS: Final = "AfterCheckPassedOrOnDemand"
_HOST: Final = "kubernetes.io/hostname"
# Fields of a pod, beside its requests, that decide where it may run.
_CHOOSES_FLAVORS: Final = ("nodeSelector", "tolerations", "affinity", "runtimeClassName")

Usage = Counter[tuple[str, Cell]]  # (ClusterQueue, what) -> thousandths


class StoredWorkload:
    """One state of a Workload, in the few words that count."""

    __slots__ = ("checks", "conditions", "is_active", "key", "name", "reservation", "seconds", "spec", "tree", "uid")

    def __init__(self, tree: Tree, seconds: float = 0.0) -> None:
        status, metadata = tree.get("status", {}), tree["metadata"]
        self.tree = tree
        self.spec: Tree = tree["spec"]
        self.seconds = seconds  # when it was stored
        self.name: str = metadata["name"]
        self.key = f"{metadata['namespace']}/{self.name}"
        self.uid: str = metadata["uid"]
        self.conditions: dict[str, Tree] = {each["type"]: each for each in status.get("conditions", ())}
        self.reservation: Tree | None = status.get("admission")
        self.checks: dict[str, str] = {each["name"]: each["state"] for each in status.get("admissionChecks", ())}
        self.is_active = self.spec.get("active", True) is not False

    def has_condition(self, condition: str) -> bool:
        return bool(self.conditions.get(condition, {}).get("status") == "True")

    def reason(self, condition: str) -> str:
        found: str = self.conditions.get(condition, {}).get("reason", "")
        return found

    def words(self) -> object:
        """What it has and what is true of it; without the pending message, which may differ between managers."""
        return (
            self.reservation,
            self.checks,
            [(type_, self.reason(type_)) for type_ in self.conditions if self.has_condition(type_)],
        )

    @property
    def is_parent(self) -> bool:
        """Whether variants hold quota and wait in its place."""
        return bool(self.tree["metadata"].get("labels", {}).get(_PARENT) == "true")

    @property
    def variant_of(self) -> str:
        """The UID of the parent of a variant; empty for any other."""
        owners = self.tree["metadata"].get("ownerReferences", ())
        return next((each["uid"] for each in owners if each["kind"] == "Workload"), "")

    def may_use(self, flavor: str) -> bool:
        allowed = self.tree["metadata"].get("annotations", {}).get(_ALLOWED)
        return allowed is None or flavor in allowed.split(",")

    @property
    def holds(self) -> bool:
        return (
            not self.is_parent
            and self.has_condition("QuotaReserved")
            and not self.has_condition("Finished")
            and self.is_active
        )

    @property
    def waits(self) -> bool:
        if self.has_condition("QuotaReserved") or self.has_condition("Finished"):
            return False
        return self.is_active and not self.is_on_hold and not self.is_parent

    @property
    def is_on_hold(self) -> bool:
        """Whether its owner needs no quota for now, such as a StatefulSet of no replicas."""
        return not self.has_condition("QuotaReserved") and self.reason("QuotaReserved") == "OnHold"

    @property
    def is_over(self) -> bool:
        return self.has_condition("Finished")

    @property
    def priority(self) -> int:
        found: int = self.spec.get("priority", 0)
        return found

    @property
    def is_going(self) -> bool:
        return "deletionTimestamp" in self.tree["metadata"]

    @property
    def is_strange(self) -> bool:
        """A poison object; no guarantee applies to it."""
        return self.name.startswith("poison-")

    @property
    def owners(self) -> tuple[str, ...]:
        """The UIDs of the job, or of the pods, that it stands for; none for a bare one."""
        return tuple(each["uid"] for each in self.tree["metadata"].get("ownerReferences", ()))

    @property
    def replaces(self) -> str:
        """The slice whose place this one takes, when its job is elastic."""
        found: str = self.tree["metadata"].get("annotations", {}).get(_REPLACES, "")
        return found

    @property
    def lost_nodes(self) -> set[str]:
        return {each["name"] for each in self.tree.get("status", {}).get("unhealthyNodes", ())}

    @property
    def local_queue(self) -> str:
        return f"{self.tree['metadata']['namespace']}/{self.spec.get('queueName', '')}"

    def done(self, pod_set: str) -> int:
        """Pods of a set that are done and that no other pod will follow."""
        conditions = self.tree.get("status", {}).get("reclaimablePods", ())
        return sum(each["count"] for each in conditions if each["name"] == pod_set)

    def usage(self) -> Usage:
        """What it holds; pods that an elastic job has given back hold nothing, nor those that are done."""
        found: Usage = Counter()
        if self.holds and self.reservation is not None:
            left_of = {each["name"]: each["count"] - self.done(each["name"]) for each in self.spec["podSets"]}
            for given in self.reservation.get("podSetAssignments", ()):
                left = max(0, min(given["count"], left_of[given["name"]]))
                for resource, flavor in given.get("flavors", {}).items():
                    amount = milli(given["resourceUsage"][resource]) * left // given["count"] if left else 0
                    found[self.reservation["clusterQueue"], Cell(flavor, resource)] += amount
        return found

    def hosts(self) -> Counter[str]:
        """Milli CPUs by host, where it was placed."""
        found: Counter[str] = Counter()
        if self.holds and self.reservation is not None:
            for given in self.reservation.get("podSetAssignments", ()):
                pod_set = next(each for each in self.spec["podSets"] if each["name"] == given["name"])
                for host, pods in _placed(given.get("topologyAssignment") or {"slices": ()}):
                    found[host] += pods * asked_by_pod(pod_set).get("cpu", 0)
        return found

    def least(self) -> Iterator[tuple[Tree, int]]:
        """Its pod sets, each with the fewest pods that it would run with."""
        for pod_set in self.spec["podSets"]:
            count = pod_set["count"]
            yield pod_set, min(pod_set.get("minCount", count), count - self.done(pod_set["name"]))

    def shape(self) -> bytes:
        """What it asks for; not what its pods are called and run, nor what keeps them from starting."""
        return msgspec.json.encode(
            [
                {
                    **{key: value for key, value in each.items() if key != "template"},
                    **{key: each["template"]["spec"].get(key) for key in _CHOOSES_FLAVORS},
                    "asked": asked_by_pod(each),
                }
                for each in self.spec["podSets"]
            ],
            order="deterministic",
        )


def asked_by_pod(pod_set: Tree) -> Counter[str]:
    found: Counter[str] = Counter()
    for container in pod_set["template"]["spec"]["containers"]:
        for resource, amount in container["resources"]["requests"].items():
            found[resource] += milli(amount)
    return found


def _placed(assignment: Tree) -> Iterator[tuple[str, int]]:
    """(host, pods) of a placement; the host is the last level."""
    for part in assignment["slices"]:
        hosts, counts = part["valuesPerLevel"][-1], part["podCounts"]
        for number in range(part["domainCount"]):
            if "universal" in hosts:
                host = hosts["universal"]
            else:
                own = hosts["individual"]
                host = f"{own.get('prefix', '')}{own['roots'][number]}{own.get('suffix', '')}"
            yield host, counts["universal"] if "universal" in counts else counts["individual"][number]


@dataclass(slots=True)
class StoredState:
    configuration: Tree
    seconds: float = 0.0
    objects: dict[str, dict[str, Tree]] = field(default_factory=lambda: {kind: {} for kind in _KEPT})
    workloads: dict[str, StoredWorkload] = field(default_factory=dict)
    reserved: Usage = field(default_factory=Counter)  # what all reservations take together
    counted: Usage = field(default_factory=Counter)  # the same without those that wait for others to go
    hosts: Counter[str] = field(default_factory=Counter)  # milli CPUs on each, without those either
    trees: list[QuotaTree] = field(default_factory=lambda: [QuotaTree.read({}, {})])
    came_at: dict[str, float] = field(default_factory=dict)  # when a Workload was made
    decided_at: dict[str, float] = field(default_factory=dict)  # when QuotaReserved was first set
    # When others first and last passed a Workload that fits; and the longest time that one was overtaken.
    passed: dict[str, tuple[float, float]] = field(default_factory=dict)
    longest_wait_seconds: float = 0.0
    # The Workloads before one that a strict queue admitted: by which and when.
    overtook: dict[str, tuple[str, float]] = field(default_factory=dict)
    lost_at: dict[str, float] = field(default_factory=dict)  # when a node was last seen ill, or went
    old_flavors: dict[str, list[tuple[float, Tree]]] = field(default_factory=dict)  # until when one was so
    old_priorities: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # by UID: until when it was so
    submitted: dict[str, list[Tree]] = field(default_factory=dict)  # the pods of a job as it came, by UID
    # Where a LocalQueue led when it was last there.
    led_to: dict[str, str] = field(default_factory=dict)
    # What was asked for and refused with a reason, by LocalQueue: equal requests get no further condition.
    reported: dict[str, set[bytes]] = field(default_factory=dict)
    # When a Workload was activated before it released its quota: what it holds counts from then on.
    revived: dict[str, float] = field(default_factory=dict)
    # When a Workload of this job, or of this pod, was last seen admitted.
    admitted: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)  # since when a pod runs, by UID
    # Objects made of pods, by UID, that were scaled without being empty in between, which only a webhook refuses.
    rescaled: set[str] = field(default_factory=set)

    @property
    def gates(self) -> dict[str, bool]:
        found: dict[str, bool] = self.configuration.get("featureGates", {})
        return found

    def jobs(self) -> Iterator[tuple[str, SimulatedKind, Tree]]:
        """Every job that no other one controls, with its key and its kind."""
        for resource, row in job_kinds.BY_RESOURCE.items():
            for key, tree in self.objects[resource].items():
                if not job_kinds.controller(tree):
                    yield key, row, tree

    def parents(self) -> Iterator[tuple[str, SimulatedParent, Tree]]:
        """Every object made of pods, with its key and its kind."""
        for resource, row in job_kinds.PARENTS_BY_RESOURCE.items():
            for key, tree in self.objects[resource].items():
                yield key, row, tree

    def read_structure(self, kind: str, stored: Stored) -> tuple[Tree | None, Tree | None]:
        """An object that is no Workload: before and after."""
        known, key = self.objects[kind], f"{stored.namespace}/{stored.name}"
        before = known.get(key)
        after = None if stored.op == "DELETED" else msgspec.json.decode(stored.body)
        if after is None:
            known.pop(key, None)
        else:
            known[key] = after
        if kind in job_kinds.PARENTS_BY_RESOURCE and before is not None and after is not None:
            self._scaled(after["metadata"]["uid"], before["spec"]["replicas"], after["spec"]["replicas"])
        if kind == "pods" and after is not None:
            if after.get("status", {}).get("phase") == "Running":
                self.running.setdefault(after["metadata"]["uid"], stored.seconds)
            else:
                self.running.pop(after["metadata"]["uid"], None)
        if kind == "nodes" and (after is None or not is_well(after)):
            self.lost_at[stored.name] = stored.seconds
        if kind == "resourceflavors" and before is not None:
            self.old_flavors.setdefault(stored.name, []).append((stored.seconds, before.get("spec", {})))
        if kind in job_kinds.BY_RESOURCE and before is None and after is not None:
            templates = job_kinds.BY_RESOURCE[kind].templates(after)
            self.submitted[after["metadata"]["uid"]] = [template["spec"] for template in templates]
        if kind == "localqueues" and after is not None:
            self.led_to[key] = after["spec"].get("clusterQueue", "")
        if kind in _SHAPES_TREES and (before or {}).get("spec") != (after or {}).get("spec"):
            self.trees[-1].until = stored.seconds
            self.trees = [tree for tree in self.trees if tree.until >= stored.seconds - GRACE_SECONDS]
            self.trees.append(QuotaTree.read(self.specs("clusterqueues"), self.specs("cohorts")))
        return before, after

    def _scaled(self, uid: str, before: int, after: int) -> None:
        if after == 0:
            self.rescaled.discard(uid)
        elif before not in (0, after):
            self.rescaled.add(uid)

    def read_workload(self, stored: Stored) -> tuple[StoredWorkload | None, StoredWorkload | None]:
        """A Workload: before and after."""
        key = f"{stored.namespace}/{stored.name}"
        before = self.workloads.pop(key, None)
        after = None if stored.op == "DELETED" else StoredWorkload(msgspec.json.decode(stored.body), stored.seconds)
        if before is not None:
            self._count(before, -1)
            if after is not None and after.priority != before.priority:
                self.old_priorities.setdefault(before.uid, []).append((stored.seconds, before.priority))
            if after is not None and after.holds and not before.holds and before.has_condition("QuotaReserved"):
                self.revived[key] = stored.seconds
        if after is not None:
            self.workloads[key] = after
            self.came_at.setdefault(after.uid, stored.seconds)
            if "QuotaReserved" in after.conditions:
                self.decided_at.setdefault(after.uid, stored.seconds)
            self._count(after, 1)
            if after.waits and after.reason("QuotaReserved"):
                self.reported.setdefault(after.local_queue, set()).add(after.shape())
        for workload in (before, after):
            if workload is not None and workload.has_condition("Admitted"):
                self.admitted.update(dict.fromkeys(workload.owners, stored.seconds))
        return before, after

    def _count(self, workload: StoredWorkload, sign: int) -> None:
        is_deferred = self.is_deferred(workload)
        for pair, amount in workload.usage().items():
            self.reserved[pair] += sign * amount
            if not is_deferred:
                self.counted[pair] += sign * amount
        for host, amount in workload.hosts().items():
            if not is_deferred:
                self.hosts[host] += sign * amount

    def returned(self) -> Usage:
        """What came back with those who were made active again, which no manager can have foreseen."""
        found: Usage = Counter()
        for key, seconds in self.revived.items():
            workload = self.workloads.get(key)
            if workload is not None and seconds >= self.seconds - GRACE_SECONDS and not self.is_deferred(workload):
                found.update(workload.usage())
        return found

    def overtaken(self) -> Usage:
        """What slices hold whose successors hold quota too: it is the same, and about to be given back."""
        found: Usage = Counter()
        for workload in self.workloads.values():
            old = self.workloads.get(workload.replaces) if workload.replaces and workload.holds else None
            if old is not None:
                found.update(old.usage())
        return found

    def is_deferred(self, workload: StoredWorkload) -> bool:
        """Whether it may hold what others have not given back yet: it is not admitted before they have (KEP-993)."""
        checks = self.objects["admissionchecks"]
        return not workload.has_condition("Admitted") and any(
            checks.get(f"/{name}", {"spec": {}})["spec"].get("preemptionPolicy") == _DEFERS for name in workload.checks
        )

    def specs(self, kind: str) -> dict[str, Tree]:
        """By name alone; for kinds without namespaces."""
        return {key.removeprefix("/"): tree.get("spec", {}) for key, tree in self.objects[kind].items()}

    def recent_trees(self) -> Iterator[QuotaTree]:
        return (tree for tree in self.trees if tree.until >= self.seconds - GRACE_SECONDS)

    def mixed_trees(self) -> Iterator[QuotaTree]:
        """ClusterQueues of one recent time with Cohorts of another: a manager watches the two kinds on two streams."""
        recent = list(self.recent_trees())
        for queues, cohorts in itertools.permutations(recent, 2):
            if queues.specs != cohorts.specs and queues.cohorts != cohorts.cohorts:
                yield QuotaTree.read(queues.specs, cohorts.cohorts)

    # --- Questions ----------------------------------------------------------------------------------------------------

    def queue_of(self, workload: StoredWorkload) -> str | None:
        """The ClusterQueue that a Workload waits for; None while something on the way there is stopped or missing."""
        local_queue = self.objects["localqueues"].get(workload.local_queue)
        if local_queue is None or not _works(local_queue):
            return None
        name: str = local_queue["spec"]["clusterQueue"]
        queue = self.objects["clusterqueues"].get(f"/{name}")
        if queue is None or not _works(queue) or Place("queue", name) in self.trees[-1].lost:
            return None
        if not self.takes(queue, workload.tree["metadata"]["namespace"]):
            return None
        listed = queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", ())
        checks = [self.objects["admissionchecks"].get(f"/{rule['name']}") for rule in listed]
        if not all(check is not None and _is_active(check) for check in checks):
            return None
        flavors = self.trees[-1].flavors(name)
        return name if all(f"/{flavor}" in self.objects["resourceflavors"] for flavor in flavors) else None

    def takes(self, queue: Tree, namespace: str) -> bool:
        """Whether a ClusterQueue is for those of a namespace; these worlds choose by labels alone."""
        wanted = queue["spec"].get("namespaceSelector", {}).get("matchLabels", {})
        labels = self.objects["namespaces"].get(f"/{namespace}", {"metadata": {}})["metadata"].get("labels", {})
        return bool(wanted.items() <= labels.items())

    def fits_instead(self, workload: StoredWorkload, queue: str, other: StoredWorkload) -> bool:
        """Whether it would fit without the admission of the other."""
        self._count(other, -1)
        try:
            return self.fits(workload, queue)
        finally:
            self._count(other, 1)

    def fits(self, workload: StoredWorkload, queue: str) -> bool:
        """Whether it fits now, without preemption. A pod set is never split over flavors.

        Pod sets are given flavors one after the other. So of several it is only certain that they fit when there is one
        flavor that would do for all: whichever of them takes another leaves that much more of it.
        """
        groups = self.trees[-1].groups(queue)
        asked: Counter[str] = Counter()
        for pod_set, count in workload.least():
            asked.update({resource: amount * count for resource, amount in asked_by_pod(pod_set).items()})
        declared = {resource for group in groups for resource in group["coveredResources"]}
        if not all(resource in declared or self.is_free(resource, queue) for resource in asked):
            return False
        return all(
            any(
                workload.may_use(flavor["name"]) and self._has_quota(workload, queue, flavor["name"], wanted)
                for flavor in group["flavors"]
            )
            for group in groups
            if (wanted := {name: asked[name] for name in group["coveredResources"] if asked[name]})
        )

    def _has_quota(self, workload: StoredWorkload, queue: str, flavor: str, asked: Mapping[str, int]) -> bool:
        tree, pod_sets = self.trees[-1], list(workload.least())
        if not all(_suits(self.flavor(flavor), pod_set) for pod_set, _ in pod_sets):
            return False
        if any(amount > tree.available(queue, Cell(flavor, name), self.reserved) for name, amount in asked.items()):
            return False
        if len(pod_sets) > 1 or "cpu" not in asked:
            return not self._has_nodes(flavor) and not any("topologyRequest" in pod_set for pod_set, _ in pod_sets)
        pod_set, count = pod_sets[0]
        return self._can_be_placed(pod_set, count, asked_by_pod(pod_set)["cpu"], flavor)

    def recently_suited(self, flavor: str, pod_set: Tree) -> bool:
        """Whether a manager could think that a flavor suits these pods."""
        known = self.old_flavors.get(flavor, ())
        lately = [spec for until, spec in known if until >= self.seconds - GRACE_SECONDS]
        return any(_suits(spec, pod_set) for spec in (self.flavor(flavor), *lately))

    def priorities(self, workload: StoredWorkload) -> list[int]:
        """Every priority that a manager could take for the Workload's."""
        known = self.old_priorities.get(workload.uid, ())
        return [workload.priority, *(priority for until, priority in known if until >= self.seconds - GRACE_SECONDS)]

    def with_uid(self, uid: str) -> StoredWorkload | None:
        return next((workload for workload in self.workloads.values() if workload.uid == uid), None)

    def flavor(self, name: str) -> Tree:
        found: Tree = self.objects["resourceflavors"].get(f"/{name}", {}).get("spec", {})
        return found

    def _has_nodes(self, flavor: str) -> bool:
        return "topologyName" in self.flavor(flavor)

    def waits_for_nodes(self, workload: StoredWorkload) -> bool:
        """Whether it has quota for pods that find no place yet; it is looked for once the other checks have passed."""
        pod_sets = {each["name"]: each for each in workload.spec["podSets"]}
        for given in (workload.reservation or {}).get("podSetAssignments", ()):
            pod_set = pod_sets[given["name"]]
            asked = (given["count"], asked_by_pod(pod_set)["cpu"], given["flavors"]["cpu"])
            is_pending = given.get("delayedTopologyRequest") == "Pending"
            if is_pending and (workload.is_strange or not self._can_be_placed(pod_set, *asked)):
                return True
        return False

    def is_free(self, resource: str, queue: str) -> bool:
        """Whether quota does not ask for a resource that the queue does not declare (KEP-5800, KEP-7513)."""
        conditions = self.configuration.get("resources", {}).get("quotaCheck")
        if self.gates.get("QuotaCheck") and conditions == "OnlyDeclared":
            return True
        spec = self.specs("clusterqueues").get(queue, {})
        prefixes = (
            spec.get("excludeResourcePrefixes", ()) if self.gates.get("ClusterQueueExcludeResourcePrefixes") else ()
        )
        return any(resource.startswith(prefix) for prefix in prefixes)

    def _can_be_placed(self, pod_set: Tree, count: int, cpu: int, flavor: str) -> bool:
        request = pod_set.get("topologyRequest")
        if not self._has_nodes(flavor):
            return not request
        fitting: Counter[str] = Counter()
        for node in filter(is_well, self.objects["nodes"].values()):
            labels = node["metadata"]["labels"]
            free = milli(node["status"]["allocatable"]["cpu"]) - self.hosts[labels[_HOST]]
            level = (request or {}).get("required")
            fitting[labels[level] if level else ""] += max(0, free) // cpu
        return max(fitting.values(), default=0) >= count


def _suits(flavor: Tree, pod_set: Tree) -> bool:
    """Whether pods stand the taints of a flavor, and do not ask for other labels than it has."""
    pods, labels = pod_set["template"]["spec"], flavor.get("nodeLabels", {})
    stood = {each["key"] for each in (*pods.get("tolerations", ()), *flavor.get("tolerations", ()))}
    return stood.issuperset(each["key"] for each in flavor.get("nodeTaints", ())) and all(
        labels.get(key, value) == value for key, value in pods.get("nodeSelector", {}).items()
    )


def _works(queue: Tree) -> bool:
    return queue["spec"].get("stopPolicy", "None") == "None" and "deletionTimestamp" not in queue["metadata"]


def is_well(node: Tree) -> bool:
    """Whether pods may run there."""
    conditions = node.get("status", {}).get("conditions", ())
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and not node["spec"].get("taints")


def _is_active(tree: Tree) -> bool:
    conditions: list[Any] = tree.get("status", {}).get("conditions", [])
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)
