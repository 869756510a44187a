"""trainer.kubeflow.org TrainJob: a training runtime that it refers to, rendered to a JobSet [TJ1].

The pod templates are in the runtime, an object of its own that many TrainJobs share. Admission is therefore written
into the TrainJob as a patch of the runtime, which its operator merges. The operator accepts changes of the patch only
while the TrainJob is suspended and inactive: a start and a stop need two writes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import structs

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.validation import topology_annotations
from pykueue.jobs import podsets, training_runtime
from pykueue.jobs.actions import Actions, EmitJobEvent, ReplaceObject, RetryWithBackoff
from pykueue.jobs.interface import GenericJob, JobOutcome, PodSetTemplate, RelatedObject, Stop, first_time
from pykueue.jobs.jobset import JOB_INDEX, pods_per_replica
from pykueue.jobs.operator_kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import PodSetConflict, PodSetInfo
from pykueue.jobs.training_runtime import PATCH_MANAGER

_GROUP: Final = "trainer.kubeflow.org"
_RUNTIMES: Final = {kind.kind: kind for kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)}

_HINT: Final = "The annotations are those of the training runtime and of spec.runtimePatches of the TrainJob"


def runtime_of(tree: Tree) -> tuple[RelatedObject, ...]:
    """The runtime that a TrainJob refers to; none if the reference is of a kind that is no runtime."""
    reference = unstructured.mapping(unstructured.get(tree, "spec", "runtimeRef"))
    kind = _RUNTIMES.get(unstructured.text(reference.get("kind")) or CLUSTER_TRAINING_RUNTIME.kind)
    name = unstructured.text(reference.get("name"))
    if kind is None or not name or (reference.get("apiGroup") or _GROUP) != _GROUP:
        return ()
    namespace = ObjectView(tree).namespace if kind.namespaced else ""
    return (RelatedObject(kind, namespace, name),)


class TrainJob(GenericJob):
    """A job of Kubeflow Trainer."""

    # --- Pod sets -----------------------------------------------------------------------------------------------------

    @cached_property
    def _job_set(self) -> Tree | None:
        """The JobSet that its operator creates; None if the runtime is not known."""
        found = [self.related[each] for each in runtime_of(self.tree) if each in self.related]
        return training_runtime.render(self.tree, found[0]) if found else None

    def _replicated_jobs(self) -> list[tuple[int, Mapping[str, Any]]]:
        return list(unstructured.entries(self._job_set, "spec", "replicatedJobs"))

    def templates(self) -> tuple[PodSetTemplate, ...]:
        """The templates of the rendered JobSet. Their spots are in that, not in the TrainJob."""
        return tuple(
            PodSetTemplate(
                name := unstructured.text(job.get("name")),
                ("spec", "replicatedJobs", number, "template", "spec", "template"),
                _replicas(job) * pods_per_replica(job),
                pod_index_label=labels.JOB_COMPLETION_INDEX,
                sub_group_index_label=JOB_INDEX,
                sub_group_count=_replicas(job),
                path=f"job[{name}]",
            )
            for number, job in self._replicated_jobs()
        )

    def pod_sets(self, options: IntegrationOptions) -> tuple[Tree, ...]:
        rendered = self._job_set or {}
        return tuple(podsets.build(rendered, template, options) for template in self.templates())

    def pod_sets_problem(self, options: IntegrationOptions) -> str:
        if not (self.queue_name or options.manage_without_queue):
            return ""
        if not runtime_of(self.tree):
            reference = unstructured.mapping(self.spec.get("runtimeRef"))
            kind, name = reference.get("kind"), reference.get("name")
            return f"{self.row.kind.kind} {self.name} refers to {kind} {name}, which is no training runtime"
        return super().pod_sets_problem(options)

    def has_fixed_pod_sets(self) -> bool:
        """While it runs, the operator goes on with its copy of the runtime, and the fields of the TrainJob that pods
        depend on cannot change: a runtime that was edited meanwhile does not change its pods [TJ11]."""
        return not super().is_suspended() or self.is_stopping() or self.is_active()

    # --- State --------------------------------------------------------------------------------------------------------

    def is_suspended(self) -> bool:
        """False while a stop has writes left, so that it is completed."""
        return super().is_suspended() and not self.is_stopping()

    def is_stopping(self) -> bool:
        return self.annotations.get(labels.STOPPING) == "true"

    def is_active(self) -> bool:
        return any(_number(job, "active") > 0 for _, job in unstructured.entries(self.status, "jobsStatus"))

    def outcome(self) -> JobOutcome | None:
        conditions = [condition for _, condition in unstructured.entries(self.status, "conditions")]
        for type_, success in (("Complete", True), ("Failed", False)):
            for condition in conditions:
                if condition.get("type") == type_ and condition.get("status") == "True":
                    message = unstructured.text(condition.get("message"))
                    return JobOutcome(
                        message or f"TrainJob {'finished successfully' if success else 'failed'}",
                        success,
                        first_time(condition.get("lastTransitionTime")),
                    )
        return None

    def are_pods_ready(self) -> bool:
        if self._job_set is None:
            return False
        jobs = [job for _, job in unstructured.entries(self.status, "jobsStatus")]
        ready = sum(_number(job, "ready") + _number(job, "succeeded") for job in jobs)
        return ready == sum(_replicas(job) for _, job in self._replicated_jobs())

    def reclaimable(self) -> Mapping[str, int]:
        succeeded = {
            unstructured.text(job.get("name")): _number(job, "succeeded")
            for _, job in unstructured.entries(self.status, "jobsStatus")
        }
        found: dict[str, int] = {}
        for _, job in self._replicated_jobs():
            name = unstructured.text(job.get("name"))
            if 0 < succeeded.get(name, 0) <= _replicas(job):
                found[name.lower()] = succeeded[name] * pods_per_replica(job)
        return found

    # --- Starting and stopping ----------------------------------------------------------------------------------------

    def started(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        tree = self._admitted(infos)
        return tree if isinstance(tree, PodSetConflict) else unstructured.put(tree, self.suspend_path, False)

    def restored(self, infos: Sequence[PodSetInfo]) -> Tree:
        return self._with_patch([]) if self._has_patch() else self.tree

    def start(self, infos: Sequence[PodSetInfo], note: str) -> Actions | PodSetConflict:
        """The runtime patch while it is suspended, then the flag [TJ5]."""
        admitted = self._admitted(infos)
        if isinstance(admitted, PodSetConflict):
            return admitted
        resumed = unstructured.put(admitted, self.suspend_path, False)
        writes = ((self.tree, admitted), (admitted, resumed))
        return (
            *(ReplaceObject(self.row.kind, before, after) for before, after in writes if before != after),
            EmitJobEvent(self.tree, "Started", note),
        )

    def stop(self, order: Stop) -> Actions:
        """Suspend it; once it is inactive, empty the runtime patch [TJ6].

        The annotation records that the second write is left. Whatever follows a stop, above all the release of quota,
        waits for it.
        """
        actions: list[ReplaceObject] = []
        tree = self.tree
        if not super().is_suspended():
            before, tree = tree, ObjectView(self.suspended()).with_annotations({labels.STOPPING: "true"})
            actions.append(ReplaceObject(self.row.kind, before, tree))
        if self.is_active():
            return (*actions, RetryWithBackoff(f"TrainJob {self.name} is being stopped, and jobs of it are active"))
        after = self.with_tree(ObjectView(tree).without_annotation(labels.STOPPING)).restored(())
        if after != tree:
            actions.append(ReplaceObject(self.row.kind, tree, after))
        return (*actions, *self.stopped(order))

    def _admitted(self, infos: Sequence[PodSetInfo]) -> Tree | PodSetConflict:
        jobs = self._replicated_jobs()
        if len(infos) != len(jobs):
            return PodSetConflict(f"there are {len(infos)} assignments for {len(jobs)} pod sets")
        return self._with_patch([_patch_of(job, info) for (_, job), info in zip(jobs, infos, strict=True)])

    def _has_patch(self) -> bool:
        return any(patch.get("manager") == PATCH_MANAGER for _, patch in self._patches())

    def _patches(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return unstructured.entries(self.spec, "runtimePatches")

    def _with_patch(self, jobs: list[Tree]) -> Tree:
        """The TrainJob with these replicated jobs in the patch of this manager, which is added if it is missing."""
        spec: Tree = {"replicatedJobs": jobs} if jobs else {}
        path = ("trainingRuntimeSpec", "template", "spec")
        patches: list[Any] = [
            unstructured.put(dict(patch), path, spec) if patch.get("manager") == PATCH_MANAGER else dict(patch)
            for _, patch in self._patches()
        ]
        if not self._has_patch():
            patches.append(unstructured.put({"manager": PATCH_MANAGER}, path, spec))
        return unstructured.put(self.tree, ("spec", "runtimePatches"), patches)

    # --- The webhook --------------------------------------------------------------------------------------------------

    def defaulted(self, options: IntegrationOptions) -> Tree:
        tree = self.suspended()
        return tree if self._has_patch() else TrainJob(self.row, tree)._with_patch([])

    def validate_create(self, options: IntegrationOptions) -> Iterator[FieldError]:
        if not options.topology:
            return
        for template in self.templates():
            metadata = template.at(self._job_set or {}).get("metadata")
            for error in (
                *topology_annotations.validate(metadata, template.place, options.validation),
                *topology_annotations.validate_size(metadata, template.place, template.count),
            ):
                yield structs.replace(error, message=f"{error.message}. {_HINT}")


def _patch_of(job: Mapping[str, Any], info: PodSetInfo) -> Tree:
    """The patch of a replicated job. The operator replaces the whole list of tolerations, so that those of the template
    are repeated; everything else is merged [TJ5]."""
    written = unstructured.sequence(unstructured.get(job, "template", "spec", "template", "spec", "tolerations"))
    tolerations = list(podsets.with_tolerations(written, info.tolerations)) if info.tolerations else []
    metadata = {"labels": dict(info.labels), "annotations": dict(info.annotations)}
    spec = {
        "nodeSelector": dict(info.node_selector),
        "tolerations": tolerations,
        "schedulingGates": list(info.scheduling_gates),
    }
    template = {
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {key: value for key, value in spec.items() if value},
    }
    return {"name": unstructured.text(job.get("name")), "template": {"spec": {"template": template}}}


def _number(status: Mapping[str, Any], name: str) -> int:
    return max(unstructured.integer(status.get(name)) or 0, 0)


def _replicas(job: Mapping[str, Any]) -> int:
    found = unstructured.integer(job.get("replicas"))
    return 1 if found is None else max(found, 0)
