"""ray.io/v1 RayService: a RayCluster that serves applications until it is deleted."""

from __future__ import annotations

from kubemachinery import unstructured
from pykueue.jobs import ray
from pykueue.jobs.interface import JobOutcome
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

    def is_active(self) -> bool:
        """Whether it serves, or one of its RayClusters may have pods: during an upgrade there are two."""
        statuses = (self.status.get(name) for name in ("activeServiceStatus", "pendingServiceStatus"))
        return self.are_pods_ready() or any(
            ray.has_pods(unstructured.get(status, "rayClusterStatus")) for status in statuses
        )

    def are_pods_ready(self) -> bool:
        conditions = unstructured.entries(self.status, "conditions")
        return any(each.get("type") == "Ready" and each.get("status") == "True" for _, each in conditions)
