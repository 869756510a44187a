"""A kind of another package that uses every part of the contract: pods that a Plan counts, a submitter that the job may
not have yet, a container that only counts, an annotation that is kept, rules that apply only sometimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.samples import metadata, template
from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.unstructured import Tree, get
from pykueue.api.validation import field_error
from pykueue.jobs.integration import JobIntegration
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, RelatedObject
from pykueue.jobs.options import IntegrationOptions


def _kind(name: str, scope: Scope = Scope.NAMESPACED) -> Kind:
    return Kind("example.com", name, f"{name.lower()}s", (Version("v1", storage=True),), scope)


PLAN, STAGE = _kind("Plan", Scope.CLUSTER), _kind("Stage")
SIDECAR = {"name": "sidecar", "resources": {"requests": {"cpu": "1"}}}


def _plan_of(tree: Tree) -> tuple[RelatedObject, ...]:
    name = unstructured.text(get(tree, "spec", "plan"))
    return (RelatedObject(PLAN, "", name),) if name else ()


class Batch(GenericJob):
    """Pods that a Plan counts, and a submitter that the job may not have yet."""

    def templates(self) -> tuple[PodSetTemplate, ...]:
        plans = [get(tree, "spec", "pods") for tree in self.related.values()]
        return (
            PodSetTemplate("main", ("spec", "template"), sum(plans) if plans else 1, path="spec.pods[main]"),
            PodSetTemplate("submitter", ("spec", "submitter"), 1, otherwise=template(name="submit")),
        )

    def counted(self, pod_set: Tree) -> Tree:
        if pod_set["name"] != "main":
            return pod_set
        path = ("template", "spec", "containers")
        return unstructured.put(pod_set, path, [*get(pod_set, *path), SIDECAR])

    def outcome(self) -> JobOutcome | None:
        return JobOutcome("done", success=True) if self.status.get("done") else None

    def is_active(self) -> bool:
        return bool(self.status.get("active"))

    def are_pods_ready(self) -> bool:
        return False

    def kept_annotations(self, options: IntegrationOptions) -> Mapping[str, str]:
        return {"example.com/seen": str(self.status.get("generation", ""))} if "generation" in self.status else {}

    def defaulted_update(self, old: GenericJob, options: IntegrationOptions) -> Tree:
        return self.with_annotations({"example.com/before": old.name})

    def is_validated(self, old: GenericJob | None, options: IntegrationOptions) -> bool:
        return bool(self.queue_name or (old is not None and old.queue_name))

    def applies_shared_rules(self) -> bool:
        return not self.spec.get("free")

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        yield from self.validate_topology(options)
        if self.spec.get("wrong"):
            yield field_error.forbidden("spec.wrong", "is wrong")
            yield field_error.forbidden("spec.alpha", "is wrong, too")


ROW = JobIntegration(
    "example.com/batch",
    _kind("Batch"),
    Batch,
    related=_plan_of,
    triggered_by=(STAGE,),
    reads=(PLAN,),
    defaults_on_update=True,
)

A_PLAN: Tree = {"apiVersion": "example.com/v1", "kind": "Plan", "metadata": {"name": "three"}, "spec": {"pods": 3}}


def batch(**spec: Any) -> Tree:
    fields = {"suspend": True, "template": template(), **spec}
    return {"apiVersion": "example.com/v1", "kind": "Batch", "metadata": metadata("b"), "spec": fields}
