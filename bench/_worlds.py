"""Small random worlds: cohorts, ClusterQueues and Workloads that arrive and finish one after the other; with `changes`
also edits of all three.

Each world has objects of its own, so that many of them can share a server without meeting.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench._load import NAMESPACE

Tree = dict[str, Any]

FLAVORS = ("f0", "f1", "f2")
TOPOLOGY = "racks"
LEVELS = ("block", "rack", "kubernetes.io/hostname")
_API_VERSION = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Change:
    """A merge patch of the specification of an object; none deletes the object."""

    kind: str
    name: str
    spec: Tree | None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {'deleted' if self.spec is None else self.spec}"


@dataclass(frozen=True)
class Step:
    """A Workload that arrives, or the name of one that finishes if it is admitted by then, or a change."""

    arrival: Tree | None = None
    finishes: str = ""
    change: Change | None = None

    def __str__(self) -> str:
        if self.change is not None:
            return str(self.change)
        if self.arrival is None:
            return f"{self.finishes} finishes"
        spec = self.arrival["spec"]
        pods = ", ".join(
            f"{each['count']}{f' (at least {least})' if (least := each.get('minCount')) else ''} x "
            + " ".join(f"{name} {amount}" for name, amount in _requests(each).items())
            + "".join(f", {how} {level}" for how, level in each.get("topologyRequest", {}).items())
            for each in spec["podSets"]
        )
        return f"{self.arrival['metadata']['name']} arrives in {spec['queueName']}, priority {spec['priority']}: {pods}"


@dataclass
class RandomWorld:
    """World number `number` of a seed: the same for the same arguments."""

    seed: str
    number: int
    length: int
    fair: bool = False
    topology: bool = False  # flavors with nodes, and pods that are to be near each other
    changes: bool = False  # steps that change queues, cohorts and Workloads
    groups: bool = False  # a resource group for each resource, flavors with labels and taints
    anywhere: bool = False  # with `topology`: also pods without a topology request
    objects: list[Tree] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.seed}/{self.number}")
        self._flavors = FLAVORS[: self._rng.choice((1, 1, 2, 2, 3))]
        self._resources: tuple[str, ...] = self._rng.choice((("cpu",), ("cpu",), ("cpu", "memory")))
        if self.topology:
            self._resources = ("cpu",)
            self._flavors = tuple(f"{self.name}-{flavor}" for flavor in self._flavors[:2])
            for flavor in self._flavors:
                self._add_nodes(flavor)
        elif self.groups:
            self._resources = ("cpu", "memory", "example.com/gpu")[: self._rng.randint(2, 3)]
            self._flavors = tuple(f"{self.name}-{flavor}" for flavor in FLAVORS[: self._rng.randint(2, 3)])
            for flavor in self._flavors:
                self._add_flavor(flavor)
        cohorts = list(self._cohorts())
        queues = [self._queue(number, cohorts) for number in range(self._rng.randint(1, 4))]
        arrived: list[str] = []
        for number in range(self.length):
            if self.changes and number > 3 and self._rng.random() < 0.35:
                self.steps.append(Step(change=self._change(arrived, queues, cohorts)))
            elif number > 3 and self._rng.random() < 0.3:
                self.steps.append(Step(finishes=self._rng.choice(arrived)))
            else:
                arrived.append(f"{self.name}-{number:02}")
                self.steps.append(Step(self._workload(arrived[-1], queues)))

    @property
    def name(self) -> str:
        return f"w{self.number:03}"

    def _cohorts(self) -> Iterator[str]:
        """One cohort without an object, or a tree of up to three."""
        rng = self._rng
        if rng.random() >= 0.85:
            return
        names = [f"{self.name}-c0"]
        if rng.random() < 0.5:
            names += [f"{self.name}-c{number}" for number in range(1, rng.choice((2, 3)))]
            for number, name in enumerate(names):
                spec: Tree = {}
                if number:
                    spec["parentName"] = names[0] if number == 1 else rng.choice(names[:number])
                if rng.random() < 0.4:
                    spec["resourceGroups"] = self._quota(is_child=bool(number), most=4)
                if self.fair and rng.random() < 0.4:
                    spec["fairSharing"] = {"weight": rng.choice(("0.5", "1", "2"))}
                self.objects.append(_object("Cohort", name, spec))
        yield from names

    def _queue(self, number: int, cohorts: list[str]) -> str:
        rng, name = self._rng, f"{self.name}-q{number}"
        cohort = rng.choice(cohorts) if cohorts and rng.random() < 0.92 else ""
        preemption: Tree = {
            "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any", "Any")),
        }
        if preemption["reclaimWithinCohort"] != "Never" and not self.fair and rng.random() < 0.15:
            preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
            if rng.random() < 0.5:
                preemption["borrowWithinCohort"]["maxPriorityThreshold"] = rng.randint(0, 2)
        spec: Tree = {
            "namespaceSelector": {},
            "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
            "resourceGroups": self._quota(is_child=bool(cohort), most=12 if self.topology else 6),
            "preemption": preemption,
        }
        if cohort:
            spec["cohortName"] = cohort
        if rng.random() < 0.4:
            choices = ("MayStopSearch", "TryNextFlavor")
            spec["flavorFungibility"] = {
                "whenCanBorrow": rng.choice(choices),
                "whenCanPreempt": rng.choice(choices),
            }
        if self.fair and rng.random() < 0.5:
            spec["fairSharing"] = {"weight": rng.choice(("0.5", "1", "2", "3"))}
        self.objects.append(_object("ClusterQueue", name, spec))
        self.objects.append(_object("LocalQueue", name, {"clusterQueue": name}, NAMESPACE))
        return name

    def _change(self, arrived: list[str], queues: list[str], cohorts: list[str]) -> Change:
        rng, queue, workload = self._rng, self._rng.choice(queues), self._rng.choice(arrived)
        stop = {"stopPolicy": rng.choice(("None", "None", "Hold", "HoldAndDrain"))}
        quota = {"resourceGroups": self._quota(is_child=False, most=12 if self.topology else 6)}
        choices = [
            Change("ClusterQueue", queue, quota),
            Change("ClusterQueue", queue, quota),
            Change("ClusterQueue", queue, {"cohortName": rng.choice([*cohorts, None]), **quota}),
            Change("ClusterQueue", queue, stop),
            Change("LocalQueue", queue, stop),
            Change("Workload", workload, {"active": False}),
            Change("Workload", workload, {"active": True}),
            Change("Workload", workload, {"priority": rng.randint(0, 4)}),
            Change("Workload", workload, None),
        ]
        trees = [each["metadata"]["name"] for each in self.objects if each["kind"] == "Cohort"]
        if trees:
            choices.append(Change("Cohort", rng.choice(trees), {"resourceGroups": self._quota(is_child=False, most=4)}))
        return rng.choice(choices)

    def _quota(self, *, is_child: bool, most: int) -> list[Tree]:
        def quota(resource: str) -> Tree:
            nominal = self._rng.randint(0, most)
            found: Tree = {"name": resource, "nominalQuota": str(nominal)}
            if is_child and self._rng.random() < 0.35:
                found["borrowingLimit"] = str(self._rng.randint(0, 5))
            if is_child and self._rng.random() < 0.3:
                found["lendingLimit"] = str(self._rng.randint(0, nominal))
            return found

        def group(resources: Sequence[str], names: Sequence[str]) -> Tree:
            flavors = [{"name": name, "resources": [quota(each) for each in resources]} for name in names]
            return {"coveredResources": list(resources), "flavors": flavors}

        if not self.groups or self.topology:
            return [group(self._resources, self._flavors)]
        # The same groups in all queues of a world: a flavor belongs to one group of a ClusterQueue.
        return [group(self._resources[:1], self._flavors[:1]), group(self._resources[1:], self._flavors[1:])]

    def _add_flavor(self, flavor: str) -> None:
        spec: Tree = {"nodeLabels": {"kind": flavor}}
        if self._rng.random() < 0.4:
            spec["nodeTaints"] = [{"key": "kind", "value": flavor, "effect": "NoSchedule"}]
            if self._rng.random() < 0.3:
                spec["tolerations"] = [{"key": "kind", "operator": "Exists"}]
        self.objects.append(_object("ResourceFlavor", flavor, spec))

    def _add_nodes(self, flavor: str) -> None:
        """A flavor of two blocks with one or two racks, each with one to three nodes."""
        spec = {"nodeLabels": {"flavor": flavor}, "topologyName": TOPOLOGY}
        self.objects.append(_object("ResourceFlavor", flavor, spec))
        for block in range(2):
            for rack in range(self._rng.randint(1, 2)):
                for number in range(self._rng.randint(1, 3)):
                    self.objects.append(self._node(flavor, f"b{block}", f"b{block}-r{rack}", number))

    def _node(self, flavor: str, block: str, rack: str, number: int) -> Tree:
        name = f"{flavor}-{rack}-{number}"
        amounts = {"cpu": str(self._rng.randint(1, 4)), "memory": "64Gi", "pods": "110"}
        labels = dict(zip(LEVELS, (block, rack, name), strict=True)) | {"flavor": flavor}
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "ready"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }

    def _workload(self, name: str, queues: list[str]) -> Tree:
        rng = self._rng
        pod_sets = []
        for number in range(rng.choice((1, 1, 1, 2))):
            count = rng.randint(1, 6 if self.topology else 3)
            requests = {
                each: str(rng.choice((1, 1, 1, 2, 3) if each == "cpu" else (0, 1, 1, 2, 3))) for each in self._resources
            }
            container = {"name": "main", "image": "none", "resources": {"requests": requests}}
            pod: Tree = {"restartPolicy": "Never", "containers": [container]}
            if self.groups and not self.topology:
                self._restrict(pod)
            template = {"spec": pod}
            pod_set: Tree = {"name": f"s{number}", "count": count, "template": template}
            if self.topology:
                pod_set["topologyRequest"] = {rng.choice(("required", "preferred")): rng.choice(LEVELS)}
            elif count > 1 and not number and rng.random() < 0.3:
                pod_set["minCount"] = rng.randint(1, count - 1)
            pod_sets.append(pod_set)
        if self.topology and self.groups:
            self._slice(pod_sets)
        if self.topology and self.anywhere:
            self._drop_requests(pod_sets)
        spec = {"queueName": rng.choice(queues), "priority": rng.choice((0, 0, 1, 1, 2, 3)), "podSets": pod_sets}
        return _object("Workload", name, spec, NAMESPACE)

    def _restrict(self, pod: Tree) -> None:
        """Let some pods tolerate taints, or ask for flavors by a node selector or an affinity."""
        rng, flavor = self._rng, self._rng.choice(self._flavors)
        if rng.random() < 0.5:
            pod["tolerations"] = [{"key": "kind", "value": flavor, "effect": "NoSchedule"}]
        draw = rng.random()
        if draw < 0.15:
            pod["nodeSelector"] = {"kind": flavor}
        elif draw < 0.3:
            expression = {"key": "kind", "operator": rng.choice(("In", "NotIn")), "values": [flavor]}
            terms = [{"matchExpressions": [expression]}]
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            pod["affinity"] = {"nodeAffinity": required}

    def _slice(self, pod_sets: list[Tree]) -> None:
        """Let some pods come in slices, or two pod sets be placed together."""
        rng = self._rng
        if len(pod_sets) == 2 and rng.random() < 0.7:
            pod_sets[0]["count"] = 1
            request = {"required": rng.choice(LEVELS[:2]), "podSetGroupName": "together"}
            for each in pod_sets:
                each["topologyRequest"] = dict(request)
        elif len(pod_sets) == 1 and rng.random() < 0.6:
            size = rng.randint(1, 3)
            pod_sets[0]["count"] = size * rng.randint(1, 3)
            level = rng.randint(0, 2)
            pod_sets[0]["topologyRequest"] = {
                rng.choice(("required", "preferred")): LEVELS[rng.randint(0, level)],
                "podSetSliceRequiredTopology": LEVELS[level],
                "podSetSliceSize": size,
            }

    def _drop_requests(self, pod_sets: list[Tree]) -> None:
        """Let some pod sets have no topology request; those that are placed together need theirs."""
        for each in pod_sets:
            if "podSetGroupName" not in each["topologyRequest"] and self._rng.random() < 0.5:
                del each["topologyRequest"]


def _requests(pod_set: Tree) -> dict[str, str]:
    found: dict[str, str] = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
    return found


def _object(kind: str, name: str, spec: Tree, namespace: str = "") -> Tree:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
