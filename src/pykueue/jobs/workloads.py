"""The Workload of a job: how it is built, its priority, and whether it still matches the job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from kubemachinery import codec, meta, unstructured
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels, names, registry, workload_owners
from pykueue.api.validation import job_metadata
from pykueue.jobs import hints, podsets
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod_parent import ParentFacts, PodParent
from pykueue.lifecycle import states

KIND: Final = registry.KUEUE.of(kueue.Workload)

_INT32_MAX: Final = 2**31 - 1
_SECONDS: Final = re.compile(r"[+]?[0-9]{1,10}")


# --- What a job asks for ----------------------------------------------------------------------------------------------


def maximum_execution_time(job: GenericJob | PodParent) -> int | None:
    """The limit of the job in seconds; None if the label is absent or not a number above 0."""
    written = job.labels.get(labels.MAX_EXEC_TIME_SECONDS, "")
    seconds = int(written) if _SECONDS.fullmatch(written) else 0
    return seconds if 0 < seconds <= _INT32_MAX else None


def prebuilt_name(job: GenericJob, options: IntegrationOptions) -> str:
    """The name of the prebuilt Workload of the job."""
    return job_metadata.prebuilt_name(job.tree, options.validation) if job.row.takes_prebuilt else ""


def is_elastic(job: GenericJob, options: IntegrationOptions) -> bool:
    return options.elastic and job.row.takes_elastic and job.annotations.get(labels.ELASTIC_JOB) == "true"


# --- Priority ---------------------------------------------------------------------------------------------------------


class Priority(msgspec.Struct, frozen=True):
    value: int
    # The class that defines it, as `spec.priorityClassRef`.
    source: Tree | None = None


class MissingClass(msgspec.Struct, frozen=True):
    """The job names a priority class that does not exist."""

    name: str
    kind: kueue.PriorityClassKind

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def priority(
    job: GenericJob | PodParent, pod_sets: tuple[Tree, ...], facts: JobFacts | ParentFacts
) -> Priority | MissingClass:
    """The WorkloadPriorityClass of the job, else the PriorityClass of its pods, else the global default, else 0."""
    asked = job.labels.get(labels.PRIORITY_CLASS, "")
    if asked:
        return _workload_class(asked, facts.workload_priority_classes)
    name = job.priority_class()
    if name is None:
        named = (
            unstructured.text(unstructured.get(pod_set, "template", "spec", "priorityClassName"))
            for pod_set in pod_sets
        )
        name = next(filter(None, named), "")
    if not name:
        return _default_class(facts.priority_classes)
    found = facts.priority_classes.get(name)
    return MissingClass(name, kueue.PriorityClassKind.PRIORITY_CLASS) if found is None else _pod_class(name, found)


def _workload_class(name: str, classes: Mapping[str, kueue.WorkloadPriorityClass]) -> Priority | MissingClass:
    found = classes.get(name)
    if found is None:
        return MissingClass(name, kueue.PriorityClassKind.WORKLOAD_PRIORITY_CLASS)
    return Priority(found.value, _reference(kueue.PriorityClassGroup.KUEUE, "WorkloadPriorityClass", name))


def _pod_class(name: str, found: kube.PriorityClass) -> Priority:
    return Priority(found.value, _reference(kueue.PriorityClassGroup.KUBERNETES, "PriorityClass", name))


def _default_class(classes: Mapping[str, kube.PriorityClass]) -> Priority:
    # Of several global defaults the lowest counts, as for pods.
    defaults = [(found.value, name) for name, found in classes.items() if found.global_default]
    if not defaults:
        return Priority(0)
    _, name = min(defaults)
    return _pod_class(name, classes[name])


def _reference(group: str, kind: str, name: str) -> Tree:
    return {"group": str(group), "kind": kind, "name": name}


# --- Building ---------------------------------------------------------------------------------------------------------


def build(
    job: GenericJob,
    pod_sets: tuple[Tree, ...],
    rank: Priority,
    options: IntegrationOptions,
    existing: Collection[kueue.Workload] = (),
) -> Tree:
    """A new Workload. `existing`: those of the job, of which a slice may have the name that is derived first."""
    elastic = is_elastic(job, options)
    derived = _derived_name(job, options, existing) if elastic else _name(job, options)
    metadata: Tree = {
        "name": job.workload_name() or derived,
        "namespace": job.namespace,
        "finalizers": [labels.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": [owner_reference(job, each) for each in job.objects],
    }
    copied = copied_labels(job, options) | ({} if job.is_group else uid_label(job.uid))
    if copied:
        metadata["labels"] = copied
    annotations = copied_annotations(job, options)
    if elastic:
        # The first of its slices; a later one has the name of the slice that it replaces (`slices`).
        annotations[labels.WORKLOAD_SLICE_NAME] = metadata["name"]
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": metadata,
        "spec": spec(job, pod_sets, rank),
    }


def _name(job: GenericJob, options: IntegrationOptions, extra: str = "") -> str:
    kind = job.row.kind
    return names.workload_name(kind.kind, kind.group, job.name, job.uid, extra=extra, short=options.short_names)


def _derived_name(job: GenericJob, options: IntegrationOptions, existing: Collection[kueue.Workload]) -> str:
    """The name of a new slice [RJ11]. The RayCluster that replaces another one in an upgrade, or after a retry, begins
    with generation 1 again, and a slice for the earlier one may have the name."""
    taken = {each.metadata.name for each in existing}
    tries = (job.name_extra(), *(f"{job.name_extra()}_{number}" for number in range(1, len(taken) + 1)))
    return next(name for extra in tries if (name := _name(job, options, extra)) not in taken)


def spec(job: GenericJob | PodParent, pod_sets: tuple[Tree, ...], rank: Priority) -> Tree:
    found: Tree = {"podSets": list(pod_sets), "priority": rank.value, "active": True}
    if job.queue_name:
        found["queueName"] = job.queue_name
    if rank.source is not None:
        found["priorityClassRef"] = rank.source
    limit = maximum_execution_time(job)
    if limit is not None:
        found["maximumExecutionTimeSeconds"] = limit
    return found


def copied_labels(job: GenericJob | PodParent, options: IntegrationOptions) -> dict[str, str]:
    """The labels of `labelKeysToCopy` and those that metrics read. The pods of a group have the same values."""
    return _chosen((each.labels for each in job.objects), options.label_keys_to_copy)


def measured_annotations(job: GenericJob | PodParent, options: IntegrationOptions) -> dict[str, str]:
    """The annotations that metrics read (`metrics.customLabels`). The pods of a group have the same values."""
    return _chosen((each.annotations for each in job.objects), options.annotation_keys_to_copy)


def _chosen(maps: Iterable[Mapping[str, str]], keys: tuple[str, ...]) -> dict[str, str]:
    """These keys of all maps."""
    return {key: each[key] for each in maps for key in keys if key in each}


def uid_label(uid: str) -> dict[str, str]:
    """The label by which the Workloads of a job are found; none for a UID that is not a valid label value."""
    return {} if not uid or meta.check_label_value(uid) else {labels.JOB_UID: uid}


def copied_annotations(job: GenericJob, options: IntegrationOptions) -> dict[str, str]:
    copied = measured_annotations(job, options)
    copied |= {key: value for key, value in job.annotations.items() if key.startswith(labels.PROVISIONING_PREFIX)}
    if options.lifecycle.admission_gated_by and job.gated_by is not None:
        copied[labels.ADMISSION_GATED_BY] = job.gated_by
    if is_elastic(job, options):
        copied[labels.ELASTIC_JOB] = "true"
    return copied | hints.on_workload(job, enabled=options.workload_hints) | dict(job.workload_annotations())


def owner_reference(job: GenericJob, owner: ObjectView) -> Tree:
    """A job controls its Workload; the pods of a group own theirs together, and none of them controls it."""
    reference: Tree = {
        "apiVersion": job.row.kind.api_version,
        "kind": job.row.kind.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    return reference if job.is_group else reference | {"controller": True, "blockOwnerDeletion": True}


# --- Comparing --------------------------------------------------------------------------------------------------------


def is_equivalent(job: GenericJob, workload: kueue.Workload, options: IntegrationOptions) -> bool:
    """Whether a Workload requests what its job requests.

    A partially admitted job that runs has the granted pod counts; a suspended one may have either, since it may be
    about to start or have just been stopped.
    """
    if maximum_execution_time(job) != workload.spec.maximum_execution_time_seconds:
        return False
    if job.has_fixed_pod_sets() and states.is_reserved(workload):
        return True
    try:
        built = [codec.from_json_tree(pod_set, kueue.PodSet) for pod_set in job.pod_sets(options)]
    except codec.DecodeError:
        return False  # pod sets that cannot be decoded are not those of the Workload
    stored = workload.spec.pod_sets
    asked = [pod_set.count for pod_set in stored]
    tolerations = not states.is_admitted(workload)
    if states.is_reserved(workload):
        granted = _granted(workload)
        running = [
            granted.get(pod_set.name, pod_set.count) if pod_set.min_count is not None else pod_set.count
            for pod_set in stored
        ]
        if podsets.equivalent(built, stored, counts=running, tolerations=tolerations):
            return True
        if not job.is_suspended():
            return False
    return podsets.equivalent(built, stored, counts=asked, tolerations=tolerations)


def _granted(workload: kueue.Workload) -> dict[str, int]:
    admission = workload.status.admission
    assignments = admission.pod_set_assignments if admission else ()
    return {found.name: found.count for found in assignments if found.count is not None}


def is_owned(job: GenericJob, workload: kueue.Workload, options: IntegrationOptions) -> bool:
    """Whether the job controls the Workload: by name, and by UID with the gate FinishOrphanedWorkloads."""
    owner = workload_owners.controller(workload)
    return owner is not None and owner.name == job.name and (not options.finish_orphaned or owner.uid == job.uid)


def is_deleting(workload: kueue.Workload) -> bool:
    return workload.metadata.deletion_timestamp is not None
