"""What is kept equal on a job and its Workload."""

from __future__ import annotations

from typing import Final

from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.kueue import PriorityClassKind, Workload
from pykueue.jobs import workloads
from pykueue.jobs.actions import Actions, EmitJobEvent, PatchWorkload, RetryWithBackoff
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.pod_parent import ParentFacts, PodParent
from pykueue.lifecycle import states

_UPDATED: Final = "UpdatedWorkload"


def missing_class(job: GenericJob | PodParent, missing: workloads.MissingClass) -> Actions:
    """Retry until the class exists. A missing PriorityClass emits no Event, as in Kueue."""
    message = f'{missing.kind} "{missing.name}" not found'
    if missing.kind is PriorityClassKind.PRIORITY_CLASS:
        return (RetryWithBackoff(message),)
    return (EmitJobEvent(job.tree, f"{missing.kind}NotFound", message, warning=True), RetryWithBackoff(message))


def updated(job: GenericJob, workload: Workload) -> EmitJobEvent:
    """The Event of a Workload whose spec was rewritten, which happens to suspended jobs only."""
    return EmitJobEvent(job.tree, _UPDATED, f"Updated not matching Workload for suspended job: {states.key(workload)}")


def synced(
    job: GenericJob | PodParent, workload: Workload, facts: JobFacts | ParentFacts, options: IntegrationOptions
) -> Actions:
    """What may change on a job while its Workload stays: the queue, the admission gates and the priority class.

    They are one write: a Workload that had the new queue without the new gates, or the other way around, could be
    admitted in between. The job may be running, so that each Event names what changed and not a job that is suspended.
    """
    metadata: Tree = {}
    spec: Tree = {}
    notes: list[str] = []
    copied = workload.metadata.annotations.get(labels.ADMISSION_GATED_BY)
    if options.lifecycle.admission_gated_by and job.gated_by != copied:
        metadata = {"annotations": {labels.ADMISSION_GATED_BY: job.gated_by}}
        notes.append(f'Updated workload AdmissionGatedBy to "{job.gated_by or ""}"')
    rank = _new_class(job, workload, facts)
    missing: Actions = missing_class(job, rank) if isinstance(rank, workloads.MissingClass) else ()
    if isinstance(rank, workloads.Priority):
        spec = {"priorityClassRef": rank.source, "priority": rank.value}
        notes.append(f"Updated workload priority class: {states.key(workload)}")
    # The queue name of a job without a change of its gates is followed later in the pass (`reconcile`).
    if _moves(job, workload) and (metadata or isinstance(job, PodParent)):
        spec["queueName"] = job.queue_name or None
    events = tuple(EmitJobEvent(job.tree, _UPDATED, note) for note in notes)
    patch: Tree = {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}
    written: Actions = (PatchWorkload(workload, patch), *events) if patch else ()
    return (*written, *missing)


def _moves(job: GenericJob | PodParent, workload: Workload) -> bool:
    """Whether the queue name of the Workload differs from that of its job and may be changed: no quota is reserved."""
    if states.is_reserved(workload) or (workload.spec.queue_name or "") == job.queue_name:
        return False
    return bool(job.queue_name) if isinstance(job, PodParent) else job.follows_queue


def _new_class(
    job: GenericJob | PodParent, workload: Workload, facts: JobFacts | ParentFacts
) -> workloads.Priority | workloads.MissingClass | None:
    """The class that the job's label names now, if the Workload may change to it."""
    asked, reference = job.labels.get(labels.PRIORITY_CLASS, ""), workload.spec.priority_class_ref
    if not asked or states.is_finished(workload):
        return None
    if reference is None:
        # While quota is reserved, a Workload can neither gain nor lose its class.
        return None if states.is_reserved(workload) else workloads.priority(job, (), facts)
    if reference.kind != PriorityClassKind.WORKLOAD_PRIORITY_CLASS or reference.name == asked:
        return None
    return workloads.priority(job, (), facts)
