"""Loads of Workloads: queues, classes of Workloads and how they arrive. Shared by the measurements that drain one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kubemachinery.kinds import Kind
from pykueue.api import kueue, registry

NAMESPACE = "drain"
WORKLOAD = registry.KUEUE.of(kueue.Workload)
CLUSTER_QUEUE = registry.KUEUE.of(kueue.ClusterQueue)
_BLOCK = "cloud.provider.com/topology-block"
_RACK = "cloud.provider.com/topology-rack"
_HOST = "kubernetes.io/hostname"
_NODES_PER_RACK = 64
_NODE_CPUS = 96


@dataclass(frozen=True)
class WorkloadClass:
    """Workloads of one class: how many come to each ClusterQueue, when, and what each requests.

    One is created every `every_seconds`; 0 creates them at once. A class of a later wave arrives when the wave before
    it has been admitted; the Workloads of all waves but the last run at least until the last one has been admitted.
    `to` limits the class to ClusterQueues with an even or odd number.
    """

    name: str
    count: int
    every_seconds: float
    runtime_seconds: float
    priority: int
    cpu: int  # of the whole Workload
    pods: int = 1
    wave: int = 0
    to: str = "all"  # all, even or odd
    rack: str = ""  # required or preferred: the pods of a Workload go to nodes of one rack


BASELINE_CLASSES = (
    WorkloadClass("small", 350, 0.1, 0.2, 50, 1),
    WorkloadClass("medium", 100, 0.5, 0.5, 100, 5),
    WorkloadClass("large", 50, 1.2, 1.0, 200, 20),
)


@dataclass(frozen=True)
class Load:
    """Cohorts of equal ClusterQueues, and the Workloads that each ClusterQueue gets.

    Scale 0.1 has a tenth of the Workloads in each ClusterQueue; with `scales_queues` it has fewer ClusterQueues with as
    many Workloads in each, so that the first wave fills the quota at every scale.
    """

    name: str = "baseline"
    classes: tuple[WorkloadClass, ...] = BASELINE_CLASSES
    scale: float = 1.0
    cohorts: int = 5
    queues: int = 6  # ClusterQueues of each cohort
    nominal: int = 20  # CPUs of each ClusterQueue
    borrowing: int = 100
    is_tree: bool = False  # the cohorts have one parent
    nodes: int = 0  # with a topology of racks and hosts
    is_held: bool = False  # created while the ClusterQueues are on hold; the measurement begins when the hold ends
    enough: int = 0  # the run ends when so many have finished; 0: all
    scales_queues: bool = False
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def scaled(self, scale: float) -> Load:
        if not self.scales_queues:
            return replace(self, scale=scale)
        # At least two cohorts, with an even number of ClusterQueues each: classes may be limited to every second one.
        cohorts = max(2, round(self.cohorts * scale))
        pairs = round(self.cohorts * self.queues * scale / cohorts / 2)
        return replace(self, cohorts=cohorts, queues=min(self.queues, max(2, 2 * pairs)))

    def count(self, each: WorkloadClass) -> int:
        return max(1, round(each.count * self.scale))

    @property
    def to_finish(self) -> int:
        return min(self.total, max(1, round(self.enough * self.scale))) if self.enough else self.total

    @property
    def total(self) -> int:
        return sum(self.count(each) for _, each in self.streams())

    @property
    def waves(self) -> int:
        return 1 + max(each.wave for each in self.classes)

    @property
    def quota_cpus(self) -> int:
        return self.cohorts * self.queues * self.nominal

    @property
    def floor_seconds(self) -> float:
        """What no scheduler can beat: the last creation and its run time, or all work divided by all quota."""
        work = sum(self.count(each) * each.cpu * each.runtime_seconds for _, each in self.streams())
        last = max(self.count(each) * each.every_seconds + each.runtime_seconds for each in self.classes)
        return max(work * self.to_finish / self.total / self.quota_cpus, 0.0 if self.is_held else last)

    def queue_names(self) -> list[str]:
        return [f"cq-{cohort}-{number}" for cohort in range(self.cohorts) for number in range(self.queues)]

    def streams(self) -> Iterator[tuple[str, WorkloadClass]]:
        """Each ClusterQueue with each class that comes to it."""
        for number, queue in enumerate(self.queue_names()):
            for each in self.classes:
                if each.to == "all" or (each.to == "even") == (number % 2 == 0):
                    yield queue, each

    def objects(self) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """What has to exist before the first Workload is created."""
        yield _object("Namespace", NAMESPACE, {})
        if self.nodes:
            yield from self._topology()
        flavor = {"nodeLabels": {"node-group": "drain"}, "topologyName": "default"} if self.nodes else {}
        yield _object("ResourceFlavor", "default", flavor)
        if self.is_tree:
            yield _object("Cohort", "root", {})
            for cohort in range(self.cohorts):
                yield _object("Cohort", f"cohort-{cohort}", {"parentName": "root"})
        for queue in self.queue_names():
            yield _object("ClusterQueue", queue, self._cluster_queue(f"cohort-{queue.split('-')[1]}"))
            yield _object("LocalQueue", queue, {"clusterQueue": queue}, NAMESPACE)

    def _cluster_queue(self, cohort: str) -> dict[str, Any]:
        quota = {"name": "cpu", "nominalQuota": str(self.nominal), "borrowingLimit": str(self.borrowing)}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}]
        held = {"stopPolicy": "Hold"} if self.is_held else {}
        return {
            "cohortName": cohort,
            "namespaceSelector": {},
            "resourceGroups": groups,
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            **held,
        }

    def _topology(self) -> Iterator[tuple[Kind, dict[str, Any]]]:
        levels = [{"nodeLabel": label} for label in (_BLOCK, _RACK, _HOST)]
        yield _object("Topology", "default", {"levels": levels})
        for number in range(self.nodes):
            kind, node = _object("Node", f"node-{number:04}", {})
            rack = f"rack-{number // _NODES_PER_RACK}"
            node["metadata"]["labels"] = {
                "node-group": "drain",
                _BLOCK: "block",
                _RACK: rack,
                _HOST: node["metadata"]["name"],
            }
            amounts = {"cpu": str(_NODE_CPUS), "memory": "256Gi", "pods": "110"}
            ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "ready"}
            node["status"] = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
            yield kind, node


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> tuple[Kind, dict[str, Any]]:
    row = next(row for row in registry.ALL if row.kind == kind)
    metadata: dict[str, Any] = {"name": name} | ({"namespace": namespace} if namespace else {})
    return row, {"apiVersion": row.api_version, "kind": kind, "metadata": metadata, "spec": spec}


def workload(name: str, queue: str, each: WorkloadClass) -> dict[str, Any]:
    """The Workload of one job of a class."""
    requests = {"cpu": f"{each.cpu * 1000 // each.pods}m"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    topology = {"topologyRequest": {each.rack: _RACK}} if each.rack else {}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queueName": queue,
            "priority": each.priority,
            "podSets": [{"name": "main", "count": each.pods, "template": template, **topology}],
        },
    }


BOTH_STRATEGIES = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}

LOADS: Mapping[str, Load] = {
    load.name: load
    for load in (
        Load(),
        Load(
            "large",
            (
                WorkloadClass("small", 35, 0.06, 0.15, 50, 1),
                WorkloadClass("medium", 11, 0.3, 0.35, 100, 5),
                WorkloadClass("large", 4, 0.7, 0.7, 200, 20),
            ),
            cohorts=10,
            queues=100,
        ),
        Load(
            "topology",
            tuple(
                WorkloadClass(f"{size}-{rack}", count, every, runtime, priority, cpu, pods, rack=rack)
                for size, count, every, runtime, priority, cpu, pods in (
                    ("small", 175, 0.1, 0.2, 50, 1, 2),
                    ("medium", 50, 0.5, 0.5, 100, 5, 4),
                    ("large", 25, 1.2, 1.0, 200, 20, 8),
                )
                for rack in ("required", "preferred")
            ),
            nodes=640,
        ),
        Load("burst", (WorkloadClass("small", 10, 0.0, 0.2, 50, 1),)),
        Load(
            "deep", (WorkloadClass("small", 20_000, 0.0, 0.2, 50, 1),), cohorts=1, queues=1, is_held=True, enough=1000
        ),
        Load(
            "storm",
            (
                WorkloadClass("low", 20, 0.0, 3.0, 50, 1),
                WorkloadClass("high", 10, 0.05, 0.5, 200, 2, wave=1),
            ),
            scales_queues=True,
        ),
        Load(
            "fair",
            (
                WorkloadClass("early", 40, 0.0, 3.0, 50, 1, to="even"),
                WorkloadClass("late", 20, 0.05, 1.0, 50, 1, wave=1, to="odd"),
            ),
            is_tree=True,
            scales_queues=True,
            configuration={"fairSharing": BOTH_STRATEGIES},
        ),
    )
}
