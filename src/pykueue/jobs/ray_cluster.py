"""ray.io/v1 RayCluster: a head and worker groups that run until they are deleted."""

from __future__ import annotations

from collections.abc import Iterator

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from pykueue.api import labels
from pykueue.api.validation import field_error
from pykueue.jobs import ray
from pykueue.jobs.interface import GenericJob, JobOutcome
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import Spot
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
        yield from super().managed_errors(options)
        is_elsewhere = self.spec.get("managedBy") == labels.MULTIKUEUE_CONTROLLER
        if self.is_elastic(options) and self.autoscales and is_elsewhere:
            message = "is not supported for an elastic RayCluster that MultiKueue manages"
            yield field_error.forbidden("spec.enableInTreeAutoscaling", message)

    def validate_new(self, options: IntegrationOptions) -> Iterator[FieldError]:
        return self._gate_errors(frozenset(), options)

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        """A template that had no gate before may stay without one: the RayCluster was created while the webhook was
        absent, and the manager has to be able to suspend it."""
        return self._gate_errors(frozenset(_without_gate(old)), options)

    def _gate_errors(self, allowed: frozenset[Spot], options: IntegrationOptions) -> Iterator[FieldError]:
        """Errors of a managed elastic RayCluster without the elastic gate on a template [RC3]."""
        if not self.is_managed(options) or not self.is_elastic(options):
            return
        head, *workers = self.templates()
        bare = set(_without_gate(self)) - allowed
        for template in (*workers, head):
            if template.spot in bare:
                gates = unstructured.get(template.at(self.tree), "spec", "schedulingGates")
                path = f"{template.place}.spec.schedulingGates"
                yield field_error.invalid(path, gates, f"must have {labels.ELASTIC_JOB_GATE}, as the job is elastic")


def _without_gate(job: GenericJob) -> Iterator[Spot]:
    """The templates of a RayCluster that do not have the elastic gate."""
    for template in job.templates():
        gates = unstructured.get(template.at(job.tree), "spec", "schedulingGates")
        if ray.GATE not in unstructured.sequence(gates):
            yield template.spot
