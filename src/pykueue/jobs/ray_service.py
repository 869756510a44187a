"""ray.io/v1 RayService: a RayCluster that serves applications until it is deleted."""

from __future__ import annotations

from kubemachinery import unstructured
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.jobs import ray
from pykueue.jobs.interface import JobOutcome, RelatedObject
from pykueue.jobs.operator_kinds import RAY_CLUSTER
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.ray import RayClusterOwner


class RayService(RayClusterOwner):
    """A RayService. Its suspend field is that of its RayCluster spec, and it is never finished."""

    cluster_path = ("spec", "rayClusterConfig")
    suspend_path = ("spec", "rayClusterConfig", "suspend")
    cluster_name_path = ("status", "activeServiceStatus", "rayClusterName")

    def is_skipped(self, options: IntegrationOptions) -> bool:
        """One that is deleted while its Redis is cleaned up keeps its Workload, and with it its quota, until it is
        gone: the clean-up runs in a Job below it, which would be suspended for ever otherwise."""
        return options.defer_ray_service_finalization and self.is_deleting and self.is_fault_tolerant()

    def outcome(self) -> JobOutcome | None:
        return None

    @classmethod
    def find_related(cls, tree: Tree) -> tuple[RelatedObject, ...]:
        """Its RayClusters: the one that serves, and the next one during an upgrade. They may be gone."""
        fields = ("activeServiceStatus", "pendingServiceStatus")
        found = (unstructured.text(unstructured.get(tree, "status", field, "rayClusterName")) for field in fields)
        namespace = ObjectView(tree).namespace
        return tuple(
            RelatedObject(RAY_CLUSTER, namespace, name, required=False) for name in dict.fromkeys(found) if name
        )

    @property
    def live_cluster(self) -> ObjectView | None:
        name = unstructured.text(unstructured.get(self.tree, *self.cluster_name_path))
        return next((each for each in self._clusters if each.name == name), None)

    @property
    def _clusters(self) -> list[ObjectView]:
        return [ObjectView(tree) for tree in self.related.values()]

    def is_active(self) -> bool:
        """Whether one of its RayClusters may have pods: during an upgrade there are two.

        The RayClusters decide where they exist. KubeRay takes a suspended RayService for an upgrade, and writes neither
        its condition Ready nor the copied status of the old RayCluster while the new, suspended one has no head.
        """
        if self._clusters:
            return any(ray.has_pods(each.status) for each in self._clusters)
        statuses = (self.status.get(name) for name in ("activeServiceStatus", "pendingServiceStatus"))
        return self.are_pods_ready() or any(
            ray.has_pods(unstructured.get(status, "rayClusterStatus")) for status in statuses
        )

    def are_pods_ready(self) -> bool:
        conditions = unstructured.entries(self.status, "conditions")
        return any(each.get("type") == "Ready" and each.get("status") == "True" for _, each in conditions)
