"""The interface of kinds made of pods: Deployment, StatefulSet, LeaderWorkerSet.

Such an object has no suspend field and is no job itself. Its controller creates pods from a template at any time, so
the webhook marks the template with the annotation `kueue.x-k8s.io/pod-suspending-parent`, and the pod webhook gates
every pod that carries it [PP1]. What is queued are the pods: each by itself, or in groups whose Workloads the parent
creates (`reconcile`).

Everything here is pure, as in `interface`: a parent is a view of its tree, and a change is another tree. `executor`
reads the facts and applies the actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final, Protocol, TypeAlias

import msgspec

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels
from pykueue.api.validation import admission_gates, field_error, job_metadata, workload_status
from pykueue.jobs.actions import Actions
from pykueue.jobs.facts import Ancestry
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.queued_object import QueuedObject

# Independent parts of one pass. Each is applied in its order; one that fails does not keep the others from being
# applied, and the pass is retried.
Branches: TypeAlias = tuple[Actions, ...]


class ParentFacts(msgspec.Struct, frozen=True):
    """The facts about one parent, read before the decision."""

    # The object; None if it does not exist.
    tree: Tree | None = None
    # The Workloads with an owner of this kind and name, of any UID; oldest first.
    workloads: tuple[kueue.Workload, ...] = ()
    # The Workloads with the names that the parent may use (`PodParent.workload_names`).
    named: Mapping[str, kueue.Workload] = msgspec.field(default_factory=dict)
    # The Workloads of the groups that its pods belong to, under other names than these.
    joined: tuple[kueue.Workload, ...] = ()
    # The pods that carry the parent's annotation, by name; managed or not.
    pods: tuple[Tree, ...] = ()
    # How many Workloads may be created; None: as many as the kind creates in one pass.
    creates_max: int | None = None
    # The labels of the namespace; None if the namespace does not exist.
    namespace: Mapping[str, str] | None = msgspec.field(default_factory=dict)
    # Whether the object is managed by its queue name and its namespace, without regard to its ancestors.
    is_managed: bool = False
    ancestry: Ancestry = msgspec.field(default_factory=Ancestry)
    # The topmost managed owner, and its Workloads.
    ancestor: ObjectView | None = None
    ancestor_workloads: tuple[kueue.Workload, ...] = ()
    workload_priority_classes: Mapping[str, kueue.WorkloadPriorityClass] = msgspec.field(default_factory=dict)
    priority_classes: Mapping[str, kube.PriorityClass] = msgspec.field(default_factory=dict)


class ParentRow(Protocol):
    """The row of the table that a parent belongs to (`integration.JobIntegration`)."""

    @property
    def framework(self) -> str: ...

    @property
    def kind(self) -> Kind: ...


class PodParent(QueuedObject, ABC):
    """One object that is made of pods."""

    is_pod_parent = True
    # Whether the kind is reconciled. A kind of which each pod is a job by itself needs only the webhook.
    is_reconciled: ClassVar[bool] = True

    def __init__(self, row: ParentRow, tree: Tree) -> None:
        super().__init__(tree)
        self.row: Final = row

    # --- Metadata -----------------------------------------------------------------------------------------------------

    @property
    def owner_uid(self) -> str:
        """The UID from which names of Workloads are derived: its own, or that of the object it is a copy of in a
        worker cluster."""
        origin = self.annotations.get(labels.MULTIKUEUE_ORIGIN_UID) if self.is_remote else None
        return self.uid if origin is None else origin

    @property
    def is_remote(self) -> bool:
        """Whether a manager cluster created it here: then it also creates the Workloads."""
        return labels.MULTIKUEUE_ORIGIN in self.labels

    @property
    def replicas(self) -> int:
        """The number of its pods, or of its groups of pods."""
        found = unstructured.integer(self.spec.get("replicas"))
        return 1 if found is None else found

    @property
    def workload_count(self) -> int:
        """How many Workloads it has at most."""
        return self.replicas

    @property
    def is_ready(self) -> bool:
        """Whether some of its pods are ready, by its status."""
        return (unstructured.integer(self.status.get("readyReplicas")) or 0) > 0

    @property
    def is_of_another(self) -> bool:
        """Whether a parent of another kind made it and decides about its pods."""
        return False

    def priority_class(self) -> str | None:
        """None: the kind has no field for the PriorityClass of its pods."""
        return None

    # --- Webhook ------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_marked(self) -> bool:
        """Whether its pod templates carry the mark that gates its pods."""

    @abstractmethod
    def defaulted(self, options: IntegrationOptions) -> Tree:
        """The managed object as it is stored: its pod templates marked, so that its pods are gated. Called on CREATE
        and on UPDATE."""

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """Errors of a new object [DP4]."""
        yield from job_metadata.queue_name(self.tree)
        if workload_status.is_elastic(self.tree, options.validation):
            path = job_metadata.annotation_path(labels.ELASTIC_JOB)
            yield field_error.forbidden(path, "this kind of job cannot be elastic")
        if options.validation.admission_gated_by:
            yield from admission_gates.validate_create(self.tree)

    def validate_update(self, old: PodParent, options: IntegrationOptions, *, managed: bool) -> Iterator[FieldError]:
        """Errors of this object in place of `old`, besides those of `validate_create` [DP5]. `managed`: whether this
        object is managed by itself."""
        if (old.is_ready or not self.queue_name) and self.queue_name != old.queue_name:
            yield field_error.immutable(job_metadata.label_path(labels.QUEUE_NAME), self.queue_name)
        yield from job_metadata.priority_class_change(self.tree, old.tree, suspended=not old.is_ready)
        if options.validation.admission_gated_by:
            yield from admission_gates.validate_update(self.tree, old.tree)

    # --- Reconciler ---------------------------------------------------------------------------------------------------

    def workload_names(self, options: IntegrationOptions, owned: Collection[kueue.Workload] = ()) -> tuple[str, ...]:
        """The names under which Workloads of the parent are looked up, whether it owns them or not. `owned`: those of
        which it is an owner by name."""
        return ()

    @classmethod
    def parent_of(cls, pod: ObjectView) -> str:
        """The name of the parent of a pod that carries the annotation of this kind; empty if it has none."""
        return ""

    def reconcile(self, facts: ParentFacts, options: IntegrationOptions, now: Nanoseconds) -> Branches:
        """What keeps the Workloads and the pods of a managed parent as it requests them."""
        return ()


def stamped(template: object, marks: Mapping[str, str], annotations: Mapping[str, str]) -> Tree:
    """A pod template with these labels and annotations; empty values are left out."""
    tree = dict(unstructured.mapping(template))
    for path, added in (("labels", marks), ("annotations", annotations)):
        given = {key: value for key, value in added.items() if value}
        if given:
            before = unstructured.mapping(unstructured.get(tree, "metadata", path))
            tree = unstructured.put(tree, ("metadata", path), {**before, **given})
    return tree
