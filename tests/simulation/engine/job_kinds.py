"""The job kinds of operators, as far as a run and its checkers know them: where a kind has its suspend field, its pod
templates and its end. Read from bytes and words alone; nothing here is imported from the product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulation.engine.revisions import Tree

ELASTIC: Final = "kueue.x-k8s.io/elastic-job"


@dataclass(frozen=True, slots=True)
class SimulatedKind:
    """One kind of job."""

    kind: str
    api_version: str
    plural: str
    framework: str
    # The pod templates, in the order of the pod sets.
    templates: Callable[[Tree], list[Tree]]
    # How many pods it asks for.
    pods: Callable[[Tree], int]
    is_over: Callable[[Tree], bool]
    # Whether its operator reports pods.
    has_pods: Callable[[Tree], bool]
    suspend_path: tuple[str, ...] = ("spec", "suspend")

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """As a history names it."""
        return f"{self.plural}.{self.group}"

    def is_suspended(self, tree: Tree) -> bool:
        found: Any = tree
        for key in self.suspend_path:
            found = found.get(key, {})
        return found is True


def is_elastic(tree: Tree) -> bool:
    return ELASTIC in tree["metadata"].get("annotations", {})


def controller(tree: Tree) -> str:
    """The UID of the object that controls it; empty for one that is a job by itself."""
    owners = tree["metadata"].get("ownerReferences", ())
    return next((each["uid"] for each in owners if each.get("controller")), "")


def _has_condition(*types: str) -> Callable[[Tree], bool]:
    def is_over(tree: Tree) -> bool:
        conditions = tree.get("status", {}).get("conditions", ())
        return any(each["type"] in types and each["status"] == "True" for each in conditions)

    return is_over


def ray_groups(spec: Tree) -> list[Tree]:
    found: list[Tree] = spec.get("workerGroupSpecs", [])
    return found


def _ray_templates(spec: Tree) -> list[Tree]:
    return [spec["headGroupSpec"]["template"], *(group["template"] for group in ray_groups(spec))]


def ray_pods(spec: Tree) -> int:
    workers: int = sum(group["replicas"] * group.get("numOfHosts", 1) for group in ray_groups(spec))
    return 1 + workers


def _ray_job_templates(tree: Tree) -> list[Tree]:
    submitter = [tree["spec"]["submitterPodTemplate"]] if "submitterPodTemplate" in tree["spec"] else []
    return [*_ray_templates(tree["spec"]["rayClusterSpec"]), *submitter]


def _job_set_templates(tree: Tree) -> list[Tree]:
    return [each["template"]["spec"]["template"] for each in tree["spec"]["replicatedJobs"]]


def _job_set_pods(tree: Tree) -> int:
    return sum(each["replicas"] * each["template"]["spec"]["parallelism"] for each in tree["spec"]["replicatedJobs"])


JOB: Final = SimulatedKind(
    "Job",
    "batch/v1",
    "jobs",
    "batch/job",
    templates=lambda tree: [tree["spec"]["template"]],
    pods=lambda tree: min(tree["spec"]["parallelism"], tree["spec"]["completions"]),
    is_over=_has_condition("Complete", "Failed"),
    has_pods=lambda tree: bool(tree.get("status", {}).get("active")),
)
JOB_SET: Final = SimulatedKind(
    "JobSet",
    "jobset.x-k8s.io/v1alpha2",
    "jobsets",
    "jobset.x-k8s.io/jobset",
    templates=_job_set_templates,
    pods=_job_set_pods,
    is_over=_has_condition("Completed", "Failed"),
    has_pods=lambda tree: any(row["active"] for row in tree.get("status", {}).get("replicatedJobsStatus", ())),
)
RAY_CLUSTER: Final = SimulatedKind(
    "RayCluster",
    "ray.io/v1",
    "rayclusters",
    "ray.io/raycluster",
    templates=lambda tree: _ray_templates(tree["spec"]),
    pods=lambda tree: ray_pods(tree["spec"]),
    is_over=lambda tree: False,
    has_pods=lambda tree: bool(tree.get("status", {}).get("head", {}).get("podName")),
)
RAY_JOB: Final = SimulatedKind(
    "RayJob",
    "ray.io/v1",
    "rayjobs",
    "ray.io/rayjob",
    templates=_ray_job_templates,
    pods=lambda tree: ray_pods(tree["spec"]["rayClusterSpec"]) + ("submitterPodTemplate" in tree["spec"]),
    is_over=lambda tree: tree.get("status", {}).get("jobDeploymentStatus") in ("Complete", "Failed"),
    has_pods=lambda tree: tree.get("status", {}).get("jobDeploymentStatus", "") not in ("", "Suspended"),
)
_REPLICAS: Final = "pytorchReplicaSpecs"
PYTORCH_JOB: Final = SimulatedKind(
    "PyTorchJob",
    "kubeflow.org/v1",
    "pytorchjobs",
    "kubeflow.org/pytorchjob",
    templates=lambda tree: [each["template"] for each in tree["spec"][_REPLICAS].values()],
    pods=lambda tree: sum(each["replicas"] for each in tree["spec"][_REPLICAS].values()),
    is_over=_has_condition("Succeeded", "Failed"),
    has_pods=lambda tree: any(
        each.get("active") for each in tree.get("status", {}).get("replicaStatuses", {}).values()
    ),
    suspend_path=("spec", "runPolicy", "suspend"),
)


@dataclass(frozen=True, slots=True)
class SimulatedParent:
    """One kind made of pods."""

    kind: str
    api_version: str
    plural: str
    framework: str
    # How many Workloads it has, and how many pods are in each.
    workloads: Callable[[Tree], int]
    pods: Callable[[Tree], int]

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """As a history names it."""
        return f"{self.plural}.{self.group}"


DEPLOYMENT: Final = SimulatedParent(
    "Deployment",
    "apps/v1",
    "deployments",
    "deployment",
    workloads=lambda tree: int(tree["spec"]["replicas"]),
    pods=lambda tree: 1,
)
STATEFUL_SET: Final = SimulatedParent(
    "StatefulSet",
    "apps/v1",
    "statefulsets",
    "statefulset",
    workloads=lambda tree: int(tree["spec"]["replicas"] > 0),
    pods=lambda tree: int(tree["spec"]["replicas"]),
)
LEADER_WORKER_SET: Final = SimulatedParent(
    "LeaderWorkerSet",
    "leaderworkerset.x-k8s.io/v1",
    "leaderworkersets",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    workloads=lambda tree: int(tree["spec"]["replicas"]),
    pods=lambda tree: int(tree["spec"]["leaderWorkerTemplate"]["size"]),
)
PARENTS: Final[Mapping[str, SimulatedParent]] = {
    each.kind: each for each in (DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)
}
PARENTS_BY_RESOURCE: Final[Mapping[str, SimulatedParent]] = {each.resource: each for each in PARENTS.values()}

# The kinds whose CRDs a run installs.
OF_OPERATORS: Final = (JOB_SET, RAY_CLUSTER, RAY_JOB, PYTORCH_JOB)
CAN_BE_ELASTIC: Final = (RAY_CLUSTER, RAY_JOB)
KINDS: Final[Mapping[str, SimulatedKind]] = {each.kind: each for each in (JOB, *OF_OPERATORS)}
BY_RESOURCE: Final[Mapping[str, SimulatedKind]] = {each.resource: each for each in KINDS.values()}


def definitions(*kinds: SimulatedKind | SimulatedParent) -> Iterator[Tree]:
    """The CRDs of kinds: everything in an object is kept, and it has a status of its own."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for each in kinds:
        version = {
            "name": each.api_version.rpartition("/")[2],
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
        }
        names = {"kind": each.kind, "listKind": f"{each.kind}List", "plural": each.plural}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": each.resource},
            "spec": {
                "group": each.group,
                "scope": "Namespaced",
                "names": {**names, "singular": each.kind.lower()},
                "versions": [version],
            },
        }
