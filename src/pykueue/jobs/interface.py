"""What a job is to us: the questions that every kind of job answers.

A kind is a class, an object of it one job that was read. Everything here is pure: answers are read off the tree that
the API server sent, and a change is another tree. Who carries changes out is `executor`.

Most kinds have a flag that suspends them and pod templates somewhere below; such a kind says where these stand
(`suspend_path`, `templates`) and when it is finished, active and ready, and is done. `batch_job` is an example. A kind
that has no flag, such as a pod, says how it starts and stops itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.errors import PykueueError
from pykueue.jobs import podsets
from pykueue.jobs.actions import Actions, DeleteObject, EmitJobEvent, ReplaceObject
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo, PodSetTemplate
from pykueue.lifecycle.workload_changes import Changes

__all__ = ["GenericJob", "JobIntegration", "JobOutcome", "PodSetTemplate", "Stop", "StopReason", "UnknownFramework"]


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended."""

    message: str
    success: bool


class StopReason(StrEnum):
    """Why a job is stopped. A pod carries it in its condition TerminationTarget."""

    WORKLOAD_DELETED = "WorkloadDeleted"
    WORKLOAD_EVICTED = "WorkloadEvicted"
    NO_MATCHING_WORKLOAD = "NoMatchingWorkload"
    NOT_ADMITTED = "NotAdmitted"


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to stop: why, in words, and what its pods were like before they were started, where that is known."""

    reason: StopReason
    message: str
    now: meta.Nanoseconds
    restore: tuple[PodSetInfo, ...] | None = None
    # The reason of the eviction, where that is why.
    eviction: str = ""


class GenericJob(ABC):
    """One job."""

    suspend_path: ClassVar[unstructured.Path] = ("spec", "suspend")
    # Made of several objects, which share one Workload and of which none controls it.
    is_group: ClassVar[bool] = False

    def __init__(self, row: JobIntegration, tree: Tree) -> None:
        self.row: Final = row
        self.tree: Final = tree

    # --- Identity -----------------------------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        return unstructured.text(unstructured.get(self.tree, "metadata", "namespace"))

    @property
    def name(self) -> str:
        return unstructured.text(unstructured.get(self.tree, "metadata", "name"))

    @property
    def uid(self) -> str:
        return unstructured.text(unstructured.get(self.tree, "metadata", "uid"))

    @property
    def labels(self) -> Mapping[str, str]:
        return unstructured.texts(unstructured.get(self.tree, "metadata", "labels"))

    @property
    def annotations(self) -> Mapping[str, str]:
        return unstructured.texts(unstructured.get(self.tree, "metadata", "annotations"))

    @property
    def gated_by(self) -> str | None:
        """Those who have to let it go before it may be admitted."""
        return self.annotations.get(labels.ADMISSION_GATED_BY)

    @property
    def queue_name(self) -> str:
        return self.labels.get(labels.QUEUE_NAME, "")

    @property
    def is_deleting(self) -> bool:
        return unstructured.get(self.tree, "metadata", "deletionTimestamp") is not None

    @property
    def objects(self) -> tuple[Tree, ...]:
        """The objects that make up the job: itself, or the pods of a group."""
        return (self.tree,)

    @property
    def follows_queue(self) -> bool:
        """Whether its Workload goes to another queue when the job names another one."""
        return True

    # --- Questions every kind answers ---------------------------------------------------------------------------------

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
        """Whether all of its pods are ready or done."""

    # --- Questions with a usual answer --------------------------------------------------------------------------------

    def is_suspended(self) -> bool:
        return unstructured.find(self.tree, self.suspend_path) is True

    def is_stopping(self) -> bool:
        """Whether a stop was begun and has more to write; only kinds that need several writes for it know of that."""
        return False

    def is_skipped(self, options: IntegrationOptions) -> bool:
        """Whether this object is none of our business although its kind is."""
        return False

    def is_on_hold(self) -> bool:
        """Whether it cannot use quota for now, and should not be tried."""
        return False

    def conditions(self, workload: kueue.Workload) -> Changes:
        """What the kind itself has to say in the status of the Workload."""
        return ()

    def reclaimable(self) -> Mapping[str, int]:
        """Pods of each set that are done and will not be needed again."""
        return {}

    def priority_class(self) -> str | None:
        """The PriorityClass of its pods, where the kind has a word of its own for it."""
        return None

    def workload_name(self) -> str:
        """What its Workload is called, where that is not derived from kind, name and UID."""
        return ""

    def name_extra(self) -> str:
        """What tells the Workloads of one elastic job apart."""
        return ""

    def workload_annotations(self) -> Mapping[str, str]:
        """Annotations that the Workload gets beside the usual ones."""
        return {}

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """What is wrong with the job beyond what is wrong with any."""
        return iter(())

    def validate_new(self, options: IntegrationOptions) -> Iterator[FieldError]:
        """What is wrong with a new job, and not asked again whenever it changes."""
        return iter(())

    def validate_update(self, old: GenericJob, options: IntegrationOptions) -> Iterator[FieldError]:
        """What is wrong with this job in place of `old`. `validate_create` is asked as well."""
        return iter(())

    def warnings(self, options: IntegrationOptions) -> Iterator[str]:
        return iter(())

    def cautions(self) -> tuple[EmitJobEvent, ...]:
        """Events that go with the creation of its Workload and with its start: why it will not do what was meant."""
        return ()

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        """The pod sets of its Workload."""
        return tuple(podsets.build(self.tree, template, options) for template in self.templates())

    # --- Changes in memory --------------------------------------------------------------------------------------------

    def defaulted(self, options: IntegrationOptions) -> Tree:
        """What the kind adds to a new job of ours that is being suspended."""
        return self.suspended()

    def suspended(self) -> Tree:
        return unstructured.put(self.tree, self.suspend_path, True)

    def resumed(self) -> Tree:
        return unstructured.put(self.tree, self.suspend_path, False)

    def started(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        """The job with what its pods need, and running. A conflict is for good: trying again changes nothing."""
        templates = self.templates()
        if len(infos) != len(templates):
            return PodSetConflict(f"there are {len(infos)} assignments for {len(templates)} pod sets")
        tree = self.resumed()
        for template, info in zip(templates, infos, strict=True):
            found = podsets.injected(podsets.at(tree, template.spot), info)
            if isinstance(found, PodSetConflict):
                return PodSetConflict(f"pod set {template.name}: {found.message}")
            tree = podsets.put_at(tree, template.spot, found)
        return tree

    def restored(self, infos: Sequence[PodSetInfo]) -> Tree:
        """The job with its pods as they were before it was started."""
        templates = self.templates()
        if len(infos) != len(templates):
            return self.tree
        tree = self.tree
        for template, info in zip(templates, infos, strict=True):
            tree = podsets.put_at(tree, template.spot, podsets.restored(podsets.at(tree, template.spot), info))
        return tree

    # --- Changes to carry out -----------------------------------------------------------------------------------------

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        after = self.started(infos)
        if isinstance(after, PodSetConflict):
            return after
        return (ReplaceObject(self.row.kind, self.tree, after), EmitJobEvent(self.tree, "Started", note))

    def stop(self, order: Stop) -> Actions:
        """Suspend it, and put back what it was like."""
        after = self.with_tree(self.suspended())
        tree = after.restored(order.restore) if order.restore is not None else after.tree
        writes = () if tree == self.tree else (ReplaceObject(self.row.kind, self.tree, tree),)
        return writes + self.stopped(order)

    def stopped(self, order: Stop) -> Actions:
        """The Event about a stop; a job that had not been running does not tell it."""
        return () if self.is_suspended() else (EmitJobEvent(self.tree, "Stopped", order.message),)

    def delete(self) -> Actions:
        return (DeleteObject(self.row.kind, self.tree),)

    def finalize(self) -> Actions:
        """Let go of the job, which is over or whose Workload is."""
        return ()

    def with_tree(self, tree: Tree) -> GenericJob:
        return type(self)(self.row, tree)


@dataclass(frozen=True, slots=True)
class JobIntegration:
    """One kind of job."""

    framework: str  # as `integrations.frameworks` names it
    kind: Kind
    # None: the kind is known as an owner of others, and nothing of this program runs it.
    implementation: type[GenericJob] | None = None
    takes_prebuilt: bool = False
    takes_elastic: bool = False
    # Whether the rules that all new jobs obey are asked again when one of this kind is changed.
    repeats_rules: bool = True
    # Objects of the kind are never looked at as somebody's child when they are reconciled.
    top_level: bool = False
    # Made of pods: `integrations.podOptions` of configuration v1beta1 concerns it.
    of_pods: bool = False

    @property
    def controller(self) -> str:
        """Who reports Events: `batch/job-kueue-controller`."""
        return f"{self.framework}-kueue-controller"

    def job(self, tree: Tree) -> GenericJob:
        if self.implementation is None:
            raise UnknownFramework(f"the framework {self.framework} is not implemented")
        return self.implementation(self, tree)


class UnknownFramework(PykueueError):
    """A framework that this program cannot run."""
