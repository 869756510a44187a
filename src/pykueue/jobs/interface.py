"""The interface of job integrations: what every kind of job implements.

A kind is a class; an instance is one job that was read. Everything here is pure: a job is a view of the tree that the
API server sent, and a change is another tree. `executor` applies changes.

Most kinds have a suspend field and pod templates. Such a kind states where these are (`suspend_path`, `templates`) and
when it is finished, active and ready; `batch_job` is an example. A kind without a suspend field, such as a pod,
implements how it starts and stops.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, Protocol, TypeAlias

import msgspec

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.kinds import Kind
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.api.validation import topology_annotations
from pykueue.api.validation.topology_annotations import AnnotatedPodSet
from pykueue.jobs import podsets
from pykueue.jobs.actions import Actions, DeleteObject, EmitJobEvent, ReplaceObject
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo, PodSetTemplate
from pykueue.jobs.queued_object import QueuedObject
from pykueue.lifecycle.workload_changes import Changes

__all__ = [
    "GenericJob",
    "JobOutcome",
    "JobRow",
    "Matched",
    "PodSetTemplate",
    "RelatedObject",
    "RelatedObjects",
    "Stop",
    "StopReason",
    "first_time",
    "last_time",
]


class RelatedObject(msgspec.Struct, frozen=True):
    """A reference to another object that decides about the pod sets of a job, such as the runtime of a TrainJob."""

    kind: Kind
    namespace: str
    name: str
    # Whether pod sets cannot be built without it. The job is retried until the object exists.
    required: bool = True

    @property
    def title(self) -> str:
        """The object as users name it: `TrainingRuntime main/torch`."""
        return f"{self.kind.kind} {self.namespace + '/' if self.kind.namespaced else ''}{self.name}"


# The related objects of a job that exist. Trees are never changed in place.
RelatedObjects: TypeAlias = Mapping[RelatedObject, Tree]
NO_RELATED: Final[RelatedObjects] = MappingProxyType({})


class JobOutcome(msgspec.Struct, frozen=True):
    """How a job ended, and when; `ended` is None if the object does not have the time."""

    message: str
    success: bool
    ended: Nanoseconds | None = None


def first_time(*found: object) -> Nanoseconds | None:
    """The first of some values of a status that is a time."""
    for each in found:
        if isinstance(each, str) and each:
            with contextlib.suppress(meta.TimeError):
                return meta.parse_time(each)
    return None


def last_time(times: Iterable[Nanoseconds | None]) -> Nanoseconds | None:
    """The last of some times; None if there is none, or if one is not known, since that may be the last."""
    last: Nanoseconds | None = None
    for each in times:
        if each is None:
            return None
        last = each if last is None else max(last, each)
    return last


class StopReason(StrEnum):
    """Why a job is stopped. A pod carries it in its condition TerminationTarget."""

    WORKLOAD_DELETED = "WorkloadDeleted"
    WORKLOAD_EVICTED = "WorkloadEvicted"
    NO_MATCHING_WORKLOAD = "NoMatchingWorkload"
    NOT_ADMITTED = "NotAdmitted"


class Stop(msgspec.Struct, frozen=True):
    """Why a job is stopped, and its pod templates as they were before it was started, where these are known."""

    reason: StopReason
    message: str
    now: meta.Nanoseconds
    restore: tuple[PodSetInfo, ...] | None = None
    # The reason of the eviction, where the Workload was evicted.
    eviction: str = ""


class Matched(msgspec.Struct, frozen=True):
    """The Workload of a job; None if it has to be created."""

    workload: kueue.Workload | None
    # The part of the job that the Workload is for, where that is not all of it.
    job: GenericJob | None = None
    # Events about the rest; they do not end the pass.
    events: tuple[EmitJobEvent, ...] = ()


class JobRow(Protocol):
    """The row of the table that a job belongs to (`integration.JobIntegration`)."""

    @property
    def framework(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def takes_prebuilt(self) -> bool: ...

    @property
    def takes_elastic(self) -> bool: ...

    @property
    def top_level(self) -> bool: ...

    @property
    def of_pods(self) -> bool: ...

    @property
    def related(self) -> Callable[[Tree], tuple[RelatedObject, ...]]: ...

    @property
    def managed_by_path(self) -> unstructured.Path: ...

    @property
    def deadline_path(self) -> unstructured.Path: ...


class GenericJob(QueuedObject, ABC):
    """One job."""

    suspend_path: ClassVar[unstructured.Path] = ("spec", "suspend")
    # Made of several objects, which share one Workload and of which none controls it.
    is_group: ClassVar[bool] = False
    # Whether `is_on_hold` decides about its Workload. That of a group may be on hold for its parent.
    may_be_on_hold: ClassVar[bool] = False

    def __init__(self, row: JobRow, tree: Tree, related: RelatedObjects = NO_RELATED) -> None:
        super().__init__(tree)
        self.row: Final = row
        # What was found of `row.related(tree)`.
        self.related: Final = related

    # --- Metadata -----------------------------------------------------------------------------------------------------

    @property
    def follows_queue(self) -> bool:
        """Whether its Workload moves to another LocalQueue when the queue name of the job changes."""
        return True

    # --- What every kind implements -----------------------------------------------------------------------------------

    @abstractmethod
    def templates(self) -> tuple[PodSetTemplate, ...]:
        """The pod templates, always in the same order."""

    @abstractmethod
    def outcome(self) -> JobOutcome | None:
        """How it ended; None while it has not."""

    @abstractmethod
    def is_active(self) -> bool:
        """Whether some of its pods may still run, so that their quota is still in use."""

    @abstractmethod
    def are_pods_ready(self) -> bool:
        """Whether all of its pods are ready or have succeeded."""

    # --- What a kind may override -------------------------------------------------------------------------------------

    def is_suspended(self) -> bool:
        return unstructured.find(self.tree, self.suspend_path) is True

    def is_stopping(self) -> bool:
        """Whether a stop was begun and has writes left; only kinds that need several writes to stop override this."""
        return False

    def is_skipped(self, options: IntegrationOptions) -> bool:
        """Whether this object is not reconciled although its kind is."""
        return False

    def is_on_hold(self) -> bool:
        """Whether it cannot use quota for now, and should not be scheduled."""
        return False

    def conditions(self, workload: kueue.Workload) -> Changes:
        """Conditions that the kind itself sets on the Workload."""
        return ()

    def reclaimable(self) -> Mapping[str, int]:
        """Pods of each pod set that have finished and will not be replaced."""
        return {}

    def priority_class(self) -> str | None:
        """The PriorityClass of its pods, where the kind has a field for it."""
        return None

    def workload_name(self) -> str:
        """The name of its Workload, where that is not derived from kind, name and UID."""
        return ""

    def name_extra(self) -> str:
        """What distinguishes the names of the Workloads of one elastic job."""
        return str(self.generation)

    def workload_annotations(self) -> Mapping[str, str]:
        """Annotations that the Workload gets in addition to the common ones."""
        return {}

    def kept_annotations(self, options: IntegrationOptions) -> Mapping[str, str]:
        """Annotations that the reconciler keeps at these values on a managed job, before it looks at its Workloads."""
        return {}

    def pod_sets_problem(self, options: IntegrationOptions) -> str:
        """Why the pod sets cannot be built, as a sentence about the job without a full stop; empty if they can. The
        webhook refuses the job with it, the reconciler retries."""
        missing = [each.title for each in self.row.related(self.tree) if each.required and each not in self.related]
        return f"{self.row.kind.kind} {self.name} refers to {missing[0]}, which does not exist" if missing else ""

    def has_fixed_pod_sets(self) -> bool:
        """Whether its pods are still those of its Workload although the objects that they depend on may have changed.
        The pod sets of such a job are not compared with those of a Workload that has a reservation."""
        return False

    def is_validated(self, old: GenericJob | None, options: IntegrationOptions) -> bool:
        """Whether any rule applies to the job in place of `old`, which is None for a new job."""
        return True

    def applies_shared_rules(self) -> bool:
        """Whether the rules for new jobs of every kind apply."""
        return True

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """Errors of the job under the rules of its kind."""
        return iter(())

    def validate_new(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """Errors of a new job that are not checked again on update."""
        return iter(())

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        """Errors of this job in place of `old`, in addition to those of `validate_create`."""
        return iter(())

    def validate_topology(self, options: IntegrationOptions, *, groups: bool = False) -> Iterator[FieldError]:
        """Errors in the topology annotations of its templates, for the `validate_create` of a kind; with the rules
        about pod set groups where Kueue has them for the kind."""
        if not options.topology:
            return
        sets: list[AnnotatedPodSet] = []
        for template in self.templates():
            metadata, path = template.at(self.tree).get("metadata"), f"{template.place}.metadata"
            yield from topology_annotations.validate(metadata, path, options.validation)
            yield from topology_annotations.validate_size(metadata, path, template.count)
            annotations = unstructured.texts(unstructured.get(metadata, "annotations"))
            sets.append(AnnotatedPodSet(f"{path}.annotations", template.count, annotations))
        if groups:
            yield from topology_annotations.validate_groups(sets)

    def warnings(self, options: IntegrationOptions) -> Iterator[str]:
        if self.is_for_multikueue and (self.queue_name or options.manage_without_queue):
            yield self._not_run_here

    def cautions(self) -> tuple[EmitJobEvent, ...]:
        """Warning Events emitted with the creation of its Workload and with its start. Only for MultiKueue: any other
        value of managedBy names a controller that runs the job in this cluster."""
        if not self.is_for_multikueue:
            return ()
        note = f"The {self.row.kind.kind}'s {self._not_run_here}"
        return (EmitJobEvent(self.tree, "MultiKueueNotImplemented", note, warning=True),)

    # --- MultiKueue ---------------------------------------------------------------------------------------------------

    @property
    def is_for_multikueue(self) -> bool:
        path = self.row.managed_by_path
        return bool(path) and unstructured.find(self.tree, path) == labels.MULTIKUEUE_CONTROLLER

    @property
    def _not_run_here(self) -> str:
        return (
            f"{'.'.join(self.row.managed_by_path)} is {labels.MULTIKUEUE_CONTROLLER}, and MultiKueue is not implemented"
            f" in this version: the {self.row.kind.kind} is queued and holds quota once admitted, but no controller"
            " creates its pods"
        )

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        """The pod sets of its Workload."""
        return tuple(self.counted(podsets.build(self.tree, template, options)) for template in self.templates())

    def counted(self, pod_set: Tree) -> Tree:
        """A pod set with what its operator adds to the pods, such as a sidecar: it needs quota, and is never written
        into the job."""
        return pod_set

    # --- Changed trees ------------------------------------------------------------------------------------------------

    def prepared(self, options: IntegrationOptions) -> Tree:
        """A new object of the kind as it is stored, managed or not."""
        return self.tree

    def defaulted(self, options: IntegrationOptions) -> Tree:
        """A new managed job as it is stored: suspended, with what the kind adds."""
        return self.suspended()

    def defaulted_update(self, old: GenericJob, options: IntegrationOptions) -> Tree:
        """An updated job as it is stored. Asked only of kinds with `defaults_on_update`, managed or not."""
        return self.tree

    def suspended(self) -> Tree:
        return unstructured.put(self.tree, self.suspend_path, True)

    def resumed(self) -> Tree:
        return unstructured.put(self.tree, self.suspend_path, False)

    def started(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        """The job resumed, with the admission in its pod templates. A conflict is permanent: a retry would not help."""
        templates = self.templates()
        if len(infos) != len(templates):
            return PodSetConflict(f"there are {len(infos)} assignments for {len(templates)} pod sets")
        tree = self.resumed()
        for template, info in zip(templates, infos, strict=True):
            found = podsets.injected(template.at(tree), info)
            if isinstance(found, PodSetConflict):
                return PodSetConflict(f"pod set {template.name}: {found.message}")
            tree = podsets.put_at(tree, template.spot, found)
        return tree

    def restored(self, infos: Sequence[PodSetInfo]) -> Tree:
        """The job with its pod templates as they were before it was started."""
        templates = self.templates()
        if len(infos) != len(templates):
            return self.tree
        tree = self.tree
        for template, info in zip(templates, infos, strict=True):
            if template.is_written(tree):
                tree = podsets.put_at(tree, template.spot, podsets.restored(template.at(tree), info))
        return tree

    # --- Actions ------------------------------------------------------------------------------------------------------

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        after = self.started(infos)
        if isinstance(after, PodSetConflict):
            return after
        return (ReplaceObject(self.row.kind, self.tree, after), EmitJobEvent(self.tree, "Started", note))

    def stop(self, order: Stop) -> Actions:
        """Suspend it, and restore its pod templates."""
        after = self.with_tree(self.suspended())
        tree = after.restored(order.restore) if order.restore is not None else after.tree
        writes = () if tree == self.tree else (ReplaceObject(self.row.kind, self.tree, tree),)
        return writes + self.stopped(order)

    def stopped(self, order: Stop) -> Actions:
        """The Event about a stop; none for a job that was suspended before."""
        return () if self.is_suspended() else (EmitJobEvent(self.tree, "Stopped", order.message),)

    def delete(self) -> Actions:
        return (DeleteObject(self.row.kind, self.tree),)

    def finalize(self) -> Actions:
        """Remove the finalizers of a job that is finished, or of which the Workload is."""
        return ()

    # --- Its Workload -------------------------------------------------------------------------------------------------

    def find_workload(
        self, facts: JobFacts, options: IntegrationOptions, now: meta.Nanoseconds
    ) -> Matched | Actions | None:
        """The Workload of the job, or what has to be done before there is one. None: the rules for a job of one object
        apply (`workload_matching`)."""
        return None

    def with_tree(self, tree: Tree) -> GenericJob:
        return type(self)(self.row, tree, self.related)
