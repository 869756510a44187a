"""ray.io/v1 RayCluster: a head and worker groups that run until they are deleted."""

from __future__ import annotations

from collections.abc import Iterator

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from pykueue.api import labels
from pykueue.api.validation import field_error
from pykueue.jobs import ray
from pykueue.jobs.interface import JobOutcome
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.ray import RayKind


class RayCluster(RayKind):
    """A RayCluster. It is never finished: one that failed keeps its quota until it is deleted."""

    def outcome(self) -> JobOutcome | None:
        return None

    def is_active(self) -> bool:
        return ray.has_pods(self.status)

    def are_pods_ready(self) -> bool:
        return ray.is_ready(self.status)

    def managed_errors(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if self.is_elastic(options):
            yield from self._elastic_errors()
        yield from super().managed_errors(options)

    def _elastic_errors(self) -> Iterator[FieldError]:
        head, *workers = self.templates()
        for template in (*workers, head):
            gates = unstructured.get(template.at(self.tree), "spec", "schedulingGates")
            if ray.GATE not in unstructured.sequence(gates):
                path = f"{template.place}.spec.schedulingGates"
                yield field_error.invalid(path, gates, f"must have {labels.ELASTIC_JOB_GATE}, as the job is elastic")
        if self.autoscales and self.spec.get("managedBy") == labels.MULTIKUEUE_CONTROLLER:
            message = "is not supported for an elastic RayCluster that MultiKueue manages"
            yield field_error.forbidden("spec.enableInTreeAutoscaling", message)
