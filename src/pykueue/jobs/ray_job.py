"""ray.io/v1 RayJob: a RayCluster, and the pod that submits the job to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.validation import field_error
from pykueue.jobs import ray
from pykueue.jobs.interface import JobOutcome, PodSetTemplate, first_time
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.ray import RayClusterOwner

SUBMITTER: Final = "submitter"

_SUBMITTER_CONTAINER: Final = "ray-job-submitter"
# What KubeRay gives the submitter where the job has no template for it.
_SUBMITTER_RESOURCES: Final[Tree] = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_K8S_JOB_MODE: Final = "K8sJobMode"


class RayJob(RayClusterOwner):
    """A RayJob. One that selects an existing cluster needs no quota of its own, and is not managed."""

    cluster_path = ("spec", "rayClusterSpec")
    cluster_name_path = ("status", "rayClusterName")
    may_be_on_hold = True

    @property
    def deployment_status(self) -> str:
        return unstructured.text(self.status.get("jobDeploymentStatus"))

    @property
    def submission_mode(self) -> str:
        """How the job is submitted; the default is that of its CRD, which objects in files do not have."""
        return unstructured.text(self.spec.get("submissionMode")) or _K8S_JOB_MODE

    @property
    def selects_cluster(self) -> bool:
        return bool(unstructured.mapping(self.spec.get("clusterSelector")))

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def templates(self) -> tuple[PodSetTemplate, ...]:
        found = super().templates()
        if self.submission_mode != _K8S_JOB_MODE:
            return found
        spot = ("spec", "submitterPodTemplate")
        return (*found, PodSetTemplate(SUBMITTER, spot, 1, otherwise=self._made_submitter()))

    def _made_submitter(self) -> Tree:
        """The submitter's template that KubeRay would make. It is written into the job at the start, since the pod of
        a template that KubeRay makes would lack the node selector."""
        container: Tree = {"name": _SUBMITTER_CONTAINER, "resources": _SUBMITTER_RESOURCES}
        image = self._head_image()
        return {
            "spec": {"containers": [container | ({"image": image} if image else {})], "restartPolicy": "Never"},
        }

    def _head_image(self) -> Any:
        for _, container in unstructured.entries(self.cluster, "headGroupSpec", "template", "spec", "containers"):
            return container.get("image")
        return None

    def counted(self, pod_set: Tree) -> Tree:
        pod_set = super().counted(pod_set)
        if pod_set["name"] != ray.HEAD or self.submission_mode != "SidecarMode":
            return pod_set
        return ray.with_container(pod_set, {"name": _SUBMITTER_CONTAINER, "resources": _SUBMITTER_RESOURCES})

    # --- State --------------------------------------------------------------------------------------------------------

    def is_skipped(self, options: IntegrationOptions) -> bool:
        return self.selects_cluster

    def is_active(self) -> bool:
        return self.deployment_status not in ("", "Suspended")

    def is_on_hold(self) -> bool:
        return self.deployment_status == "ValidationFailed"

    def outcome(self) -> JobOutcome | None:
        if self.deployment_status not in ("Complete", "Failed"):
            return None
        success = self.status.get("jobStatus") == "SUCCEEDED"
        return JobOutcome(
            unstructured.text(self.status.get("message")), success, first_time(self.status.get("endTime"))
        )

    def are_pods_ready(self) -> bool:
        return ray.is_ready(self.status.get("rayClusterStatus"))

    # --- The webhook --------------------------------------------------------------------------------------------------

    def prepared(self, options: IntegrationOptions) -> Tree:
        """The gate is on its RayCluster: the submitter creates no pods later, and is never scaled."""
        return self.tree

    def defaulted(self, options: IntegrationOptions) -> Tree:
        """Suspended, unless it selects an existing cluster: nothing would start it again."""
        return self.tree if self.selects_cluster else super().defaulted(options)

    def applies_shared_rules(self) -> bool:
        """Not for a managed job that is refused for its cluster, or needs none."""
        return not self.selects_cluster and self.spec.get("rayClusterSpec") is not None

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if not self.is_managed(options):
            yield from super().validate_create(options)
        elif self.selects_cluster:
            if self.spec.get("rayClusterSpec") is not None:
                selector = self.spec["clusterSelector"]
                yield field_error.invalid("spec.clusterSelector", selector, "cannot be used with spec.rayClusterSpec")
        elif self.spec.get("rayClusterSpec") is None:
            yield field_error.required("spec.rayClusterSpec", "is required where spec.clusterSelector is not set")
        else:
            yield from super().validate_create(options)

    def managed_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if self.spec.get("shutdownAfterJobFinishes") is not True:
            message = "must be true: the RayCluster of a managed job is deleted when the job finishes"
            yield field_error.invalid("spec.shutdownAfterJobFinishes", False, message)
        yield from super().managed_errors(options)
