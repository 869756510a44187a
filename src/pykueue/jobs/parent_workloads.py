"""The Workloads of parents: built from their templates, kept equal to them, put on hold, released and replaced.

A Workload of a parent is that of a pod group with a name known beforehand: the pods join it (`parent_pods`), and the
group starts and stops them (`pod_group`). Here is what the group cannot do, because a parent may have no pods: create
the Workload, follow the queue and the class of the parent, and release quota of an evicted Workload without pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubemachinery import codec, conditions
from kubemachinery.meta import SECOND, Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.jobs import parent_pods, workload_sync, workloads
from pykueue.jobs.actions import (
    Actions,
    ChangeWorkload,
    CreateWorkload,
    EmitJobEvent,
    PatchWorkload,
    RequeueAfter,
)
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod import PodView
from pykueue.jobs.pod_parent import ParentFacts, PodParent
from pykueue.lifecycle import eviction, readiness, states
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer

# How soon pods that still run are looked at again; their end is an event, the end of a grace period is none.
AGAIN: Final[Nanoseconds] = 10 * SECOND


# --- Building ---------------------------------------------------------------------------------------------------------


def created(
    parent: PodParent,
    name: str,
    pod_sets: tuple[Tree, ...],
    facts: ParentFacts,
    options: IntegrationOptions,
    annotations: Mapping[str, str],
) -> Actions:
    """Create a Workload of the parent, or report that its priority class does not exist."""
    rank = workloads.priority(parent, pod_sets, facts)
    if isinstance(rank, workloads.MissingClass):
        return workload_sync.missing_class(parent, rank)
    tree = _built(parent, name, pod_sets, rank, options, annotations)
    note = f"Created Workload: {parent.namespace}/{name}"
    return (CreateWorkload(tree, parent.tree), EmitJobEvent(parent.tree, "CreatedWorkload", note))


def _built(
    parent: PodParent,
    name: str,
    pod_sets: tuple[Tree, ...],
    rank: workloads.Priority,
    options: IntegrationOptions,
    annotations: Mapping[str, str],
) -> Tree:
    copied = workloads.measured_annotations(parent, options)
    copied |= {key: value for key, value in parent.annotations.items() if key.startswith(labels.PROVISIONING_PREFIX)}
    if options.lifecycle.admission_gated_by and parent.gated_by is not None:
        copied[labels.ADMISSION_GATED_BY] = parent.gated_by
    metadata: Tree = {
        "name": name,
        "namespace": parent.namespace,
        "finalizers": [labels.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": [owner_reference(parent)],
        "annotations": {**copied, labels.IS_GROUP_WORKLOAD: "true", **owner_annotations(parent), **annotations},
    }
    marks = workloads.copied_labels(parent, options) | workloads.uid_label(parent.uid)
    if marks:
        metadata["labels"] = marks
    spec = workloads.spec(parent, pod_sets, rank)
    return {"apiVersion": workloads.KIND.api_version, "kind": workloads.KIND.kind, "metadata": metadata, "spec": spec}


def owner_reference(parent: PodParent) -> Tree:
    """A plain reference: the pods of the group own the Workload too, and none of the owners controls it."""
    kind = parent.row.kind
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": parent.name, "uid": parent.uid}


def owner_annotations(parent: PodParent) -> dict[str, str]:
    kind = parent.row.kind
    return {
        labels.JOB_OWNER_GVK: f"{kind.api_version}, Kind={kind.kind}",
        labels.JOB_OWNER_NAME: parent.name,
    }


def is_owned(parent: PodParent, workload: kueue.Workload) -> bool:
    """Whether the parent, by its UID, is an owner of the Workload."""
    return any(owner.uid == parent.uid for owner in workload.metadata.owner_references)


# --- Ending -----------------------------------------------------------------------------------------------------------


def removed(workload: kueue.Workload) -> Actions:
    """Delete a Workload that the parent has no use for, without an Event."""
    return (ChangeWorkload(workload, (RemoveFinalizer(), DeleteWorkload())),)


def without_finalizer(workload: kueue.Workload) -> Actions:
    held = labels.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers
    return (ChangeWorkload(workload, (RemoveFinalizer(),)),) if held else ()


def unattended(
    workload: kueue.Workload, members: Sequence[PodView], options: IntegrationOptions, now: Nanoseconds
) -> Actions | None:
    """The actions that the pod group would take, for a Workload of which no pod exists [PP10]: release the quota of
    an evicted one, and let go of a deleted one. None if there is nothing of the kind to do."""
    if members:
        return None
    if workloads.is_deleting(workload):
        return without_finalizer(workload)
    if states.is_evicted(workload) and states.is_reserved(workload) and not states.is_finished(workload):
        released = (*eviction.release(workload, options.lifecycle, now), *readiness.not_started(workload))
        return (ChangeWorkload(workload, released),)
    return None


def is_replaceable(workload: kueue.Workload, members: Sequence[PodView]) -> bool:
    """Whether a finished Workload gives way to a new one [PP13]: a parent runs until it is deleted, so its Workload
    has no reason to be finished. One that failed to start, or whose pods have roles it does not know, would only
    fail again."""
    if not states.is_finished(workload):
        return False
    end = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
    if end is not None and end.reason == FinishedReason.FAILED_TO_START:
        return False
    known = {pod_set.name for pod_set in workload.spec.pod_sets}
    return all(pod.role in known for pod in members)


def is_stopping(members: Sequence[PodView], options: IntegrationOptions, now: Nanoseconds) -> tuple[RequeueAfter, ...]:
    """Look again later, while pods still use the quota; nothing if none does."""
    return (RequeueAfter(AGAIN),) if parent_pods.are_active(members, options, now) else ()


def adopted(parent: PodParent, workload: kueue.Workload, annotations: Mapping[str, str] | None = None) -> Actions:
    """Make the parent an owner of a Workload that it uses, unless it is one."""
    if is_owned(parent, workload):
        return ()
    owners = [codec.to_tree(owner) for owner in workload.metadata.owner_references]
    metadata: Tree = {
        "ownerReferences": [*owners, owner_reference(parent)],
        "annotations": {**owner_annotations(parent), **(annotations or {})},
        "labels": workloads.uid_label(parent.uid),
    }
    return (PatchWorkload(workload, {"metadata": metadata}),)


def is_alike(workload: kueue.Workload, pod_sets: Sequence[Tree]) -> bool:
    """Whether a Workload has these pod sets, but for the counts: quota and placement are decided by the same fields."""
    if [each.name for each in workload.spec.pod_sets] != [each["name"] for each in pod_sets]:
        return False
    for theirs, ours in zip(map(codec.to_tree, workload.spec.pod_sets), pod_sets, strict=True):
        if theirs.get("topologyRequest") != ours.get("topologyRequest"):
            return False
        if any(parent_pods.shape_changes(theirs["template"]["spec"], ours["template"]["spec"], "spec")):
            return False
    return True
