"""What RayCluster, RayJob and RayService share: a head, worker groups, and containers that are only counted.

Each of the three contains the spec of a RayCluster, at `cluster_path`. KubeRay adds containers when it creates pods:
the autoscaler, and the submitter in SidecarMode. They are part of the pod sets, so that quota is charged for them, and
are never written into the object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from kubemachinery import quantity, unstructured
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import field_error
from pykueue.jobs import podsets
from pykueue.jobs.interface import GenericJob, PodSetTemplate, RelatedObject
from pykueue.jobs.operator_kinds import RAY_CLUSTER
from pykueue.jobs.options import IntegrationOptions

HEAD: Final = "head"
OPERATOR: Final = "ray.io/kuberay-operator"
POD_SETS_MAX: Final = podsets.COUNT_MAX

_FAULT_TOLERANCE: Final = "ray.io/ft-enabled"
GATE: Final = {"name": labels.ELASTIC_JOB_GATE}
# What KubeRay requests for the Job that deletes the data of a cluster from Redis.
_REDIS_CLEANUP: Final = {"cpu": "200m", "memory": "256Mi"}
# What KubeRay gives the autoscaler where `autoscalerOptions.resources` is absent.
_AUTOSCALER: Final[Tree] = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
_NOT_ELASTIC: Final = (
    "requires an elastic job: the feature gate ElasticJobsViaWorkloadSlices and the annotation"
    f" {labels.ELASTIC_JOB}: true"
)


class RayKind(GenericJob):
    """An object that contains the spec of a RayCluster."""

    cluster_path: ClassVar[unstructured.Path] = ("spec",)

    @property
    def cluster(self) -> Mapping[str, Any]:
        """The spec of the RayCluster."""
        return unstructured.mapping(unstructured.get(self.tree, *self.cluster_path))

    @property
    def autoscales(self) -> bool:
        return self.cluster.get("enableInTreeAutoscaling") is True

    def is_elastic(self, options: IntegrationOptions) -> bool:
        return options.elastic and self.annotations.get(labels.ELASTIC_JOB) == "true"

    def is_managed(self, options: IntegrationOptions) -> bool:
        """Whether the rules for managed objects apply. As in Kueue, the namespace does not matter for them."""
        return bool(self.queue_name) or options.manage_without_queue

    @classmethod
    def find_related(cls, tree: Tree) -> tuple[RelatedObject, ...]:
        """The objects that decide about its pod sets."""
        return ()

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def templates(self) -> tuple[PodSetTemplate, ...]:
        head = PodSetTemplate(HEAD, (*self.cluster_path, "headGroupSpec", "template"), 1)
        workers = (
            PodSetTemplate(group_name(group), (*self.cluster_path, "workerGroupSpecs", i, "template"), pods(group))
            for i, group in unstructured.entries(self.cluster, "workerGroupSpecs")
        )
        return (head, *workers)

    def counted(self, pod_set: Tree) -> Tree:
        """The pod set with what KubeRay adds to the head."""
        if pod_set["name"] != HEAD:
            return pod_set
        if self.is_fault_tolerant():
            pod_set = _with_redis_cleanup(pod_set)
        if self.autoscales:
            given = unstructured.get(self.cluster, "autoscalerOptions", "resources")
            resources = given if isinstance(given, dict) else _AUTOSCALER
            pod_set = with_container(pod_set, {"name": "autoscaler", "resources": resources})
        return pod_set

    def is_fault_tolerant(self) -> bool:
        """Whether the cluster keeps its state in Redis, which KubeRay cleans up after the cluster."""
        annotated = self.annotations.get(_FAULT_TOLERANCE, "").lower() == "true"
        return annotated or self.cluster.get("gcsFaultToleranceOptions") is not None

    # --- The webhook --------------------------------------------------------------------------------------------------

    def prepared(self, options: IntegrationOptions) -> Tree:
        """An elastic object with the elastic gate on all its templates, managed or not: the RayCluster of a managed
        RayJob is not managed itself, and its pods have to be gated [RY10]."""
        tree = self.tree
        for template in self.templates() if self.is_elastic(options) else ():
            gates = unstructured.sequence(unstructured.get(template.at(tree), "spec", "schedulingGates"))
            if GATE not in gates:
                tree = podsets.put_at(tree, (*template.spot, "spec", "schedulingGates"), [*gates, GATE])
        return tree

    def is_validated(self, old: GenericJob | None, options: IntegrationOptions) -> bool:
        """Whether it is managed, or was before the update: the queue name of a running job cannot be removed."""
        if old is None or self.is_managed(options):
            return True
        return options.validate_ray_and_spark_updates and bool(old.queue_name)

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if self.is_managed(options):
            yield from self.managed_errors(options)
        yield from self.validate_topology(options, groups=True)

    def managed_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """Errors of a managed object in its RayCluster spec."""
        path = ".".join(self.cluster_path)
        if self.autoscales and not self.is_elastic(options):
            yield field_error.invalid(f"{path}.enableInTreeAutoscaling", True, _NOT_ELASTIC)
        count = len(self.templates())
        if count > POD_SETS_MAX:
            message = f"must have at most {POD_SETS_MAX} items"
            yield FieldError(f"{path}.workerGroupSpecs", ErrorType.TOO_MANY, message, count)
        for i, group in unstructured.entries(self.cluster, "workerGroupSpecs"):
            if group_name(group) == HEAD:
                place = f"{path}.workerGroupSpecs[{i}].groupName"
                yield field_error.forbidden(place, f'"{HEAD}" is the name of the head group')


class RayClusterOwner(RayKind):
    """An object for which KubeRay creates a RayCluster. The autoscaler of an elastic one changes the RayCluster and
    not the object, so that the counts of the worker groups are those of the RayCluster, once it exists."""

    # The field of the status that names the RayCluster.
    cluster_name_path: ClassVar[unstructured.Path]

    @classmethod
    def find_related(cls, tree: Tree) -> tuple[RelatedObject, ...]:
        """The RayCluster of an elastic object, which may not exist yet."""
        view = ObjectView(tree)
        name = unstructured.text(unstructured.get(tree, *cls.cluster_name_path))
        if not name or view.annotations.get(labels.ELASTIC_JOB) != "true":
            return ()
        return (RelatedObject(RAY_CLUSTER, view.namespace, name, required=False),)

    @property
    def live_cluster(self) -> ObjectView | None:
        """The RayCluster of an elastic object, if it exists."""
        return next(map(ObjectView, self.related.values()), None)

    def live_counts(self, options: IntegrationOptions) -> Mapping[str, int]:
        """The pods of the worker groups of the RayCluster, by the name of the pod set; groups without `replicas` are
        left out. Empty unless the object is elastic and its cluster is scaled by Ray."""
        live = self.live_cluster
        if live is None or not self.autoscales or not self.is_elastic(options):
            return {}
        groups = [group for _, group in unstructured.entries(live.spec, "workerGroupSpecs")]
        return {group_name(group).lower(): pods(group) for group in groups if _has_replicas(group)}

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        counts = self.live_counts(options)
        found = super().pod_sets(options)
        return tuple({**each, "count": counts.get(each["name"], each["count"])} for each in found)

    def pod_sets_problem(self, options: IntegrationOptions) -> str:
        names = {template.name.lower() for template in self.templates()}
        foreign = [name for name in self.live_counts(options) if name not in names]
        if not foreign:
            return super().pod_sets_problem(options)
        assert self.live_cluster is not None
        return (
            f"RayCluster {self.live_cluster.name} has the worker group {foreign[0]},"
            f" which {self.row.kind.kind} {self.name} does not have"
        )

    def kept_annotations(self, options: IntegrationOptions) -> Mapping[str, str]:
        """The generation of the RayCluster, which distinguishes the slices of one generation of the object."""
        if not self.is_elastic(options):
            return {}
        live = self.live_cluster
        return {labels.RAYCLUSTER_GENERATION: "" if live is None else str(live.generation)}

    def name_extra(self) -> str:
        generation = self.annotations.get(labels.RAYCLUSTER_GENERATION, "")
        return f"{self.generation}_{generation}" if generation else str(self.generation)


# --- Worker groups ----------------------------------------------------------------------------------------------------


def group_name(group: Mapping[str, Any]) -> str:
    return unstructured.text(group.get("groupName"))


def pods(group: Mapping[str, Any]) -> int:
    """How many pods a worker group has: replicas, of `numOfHosts` pods each."""
    replicas = unstructured.integer(group.get("replicas"))
    hosts = unstructured.integer(group.get("numOfHosts")) or 1
    return (1 if replicas is None else replicas) * max(hosts, 1)


def _has_replicas(group: Mapping[str, Any]) -> bool:
    return unstructured.integer(group.get("replicas")) is not None


# --- The status of a RayCluster ---------------------------------------------------------------------------------------


def is_ready(status: object) -> bool:
    return bool(unstructured.get(status, "state") == "ready")


def has_pods(status: object) -> bool:
    """Whether a RayCluster may have pods. KubeRay reports `suspended` when the last is gone, and `ready` only when all
    of them run, so that a cluster that is starting or has failed is recognized by its head and its workers."""
    if unstructured.get(status, "state") == "suspended":
        return False
    counts = (unstructured.integer(unstructured.get(status, name)) or 0 for name in _WORKER_COUNTS)
    return is_ready(status) or bool(unstructured.get(status, "head", "podName")) or any(count > 0 for count in counts)


_WORKER_COUNTS: Final = ("readyWorkerReplicas", "availableWorkerReplicas")


# --- Containers that are only counted ---------------------------------------------------------------------------------


def with_container(pod_set: Tree, container: Tree) -> Tree:
    """The pod set with one more container."""
    path = ("template", "spec", "containers")
    return unstructured.put(pod_set, path, [*unstructured.sequence(unstructured.get(pod_set, *path)), container])


def _with_redis_cleanup(pod_set: Tree) -> Tree:
    """The pod set of the head with enough requests for the Job that cleans up Redis after the head is gone."""
    path = ("template", "spec", "containers")
    containers = unstructured.sequence(unstructured.get(pod_set, *path))
    if not containers:
        return pod_set
    first, *others = containers
    resources = unstructured.mapping(unstructured.get(first, "resources"))
    # A container requests its limits where it has no requests.
    asked = {**unstructured.mapping(resources.get("limits")), **unstructured.mapping(resources.get("requests"))}
    requests = dict(unstructured.mapping(resources.get("requests")))
    for name, needed in _REDIS_CLEANUP.items():
        requests[name] = _larger(asked.get(name, needed), needed)
    return unstructured.put(pod_set, path, [{**first, "resources": {**resources, "requests": requests}}, *others])


def _larger(asked: Any, needed: str) -> Any:
    try:
        return asked if quantity.parse(asked) >= quantity.parse(needed) else needed
    except (quantity.QuantityError, TypeError):
        return asked  # the webhook of Workloads refuses it
