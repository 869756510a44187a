"""A job that has its Workload: the answer, and what is kept the same on both."""

from __future__ import annotations

from dataclasses import dataclass

from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.kueue import PriorityClassKind, Workload
from pykueue.jobs import workloads
from pykueue.jobs.actions import Actions, EmitJobEvent, PatchWorkload, RetryWithBackoff
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle import states


@dataclass(frozen=True, slots=True)
class Matched:
    """The Workload of the job; None where one has to be made."""

    workload: Workload | None
    # The job as far as it counts for the Workload, where that is not all of it.
    job: GenericJob | None = None


def missing_class(job: GenericJob, missing: workloads.MissingClass) -> Actions:
    """Of a missing class of pods nobody is told, as with Kueue: that it is missing can be seen."""
    why = f'{missing.kind} "{missing.name}" not found'
    if missing.kind is PriorityClassKind.PRIORITY_CLASS:
        return (RetryWithBackoff(why),)
    return (EmitJobEvent(job.tree, f"{missing.kind}NotFound", why, warning=True), RetryWithBackoff(why))


def updated(job: GenericJob, workload: Workload) -> EmitJobEvent:
    return EmitJobEvent(
        job.tree, "UpdatedWorkload", f"Updated not matching Workload for suspended job: {states.key(workload)}"
    )


def synced(job: GenericJob, workload: Workload, facts: JobFacts, options: IntegrationOptions) -> Actions:
    """What a job may change while its Workload stays: who holds it back, and its class."""
    patch: Tree = {}
    copied = workload.metadata.annotations.get(labels.ADMISSION_GATED_BY)
    if options.lifecycle.admission_gated_by and job.gated_by != copied:
        patch["metadata"] = {"annotations": {labels.ADMISSION_GATED_BY: job.gated_by}}
    rank = _new_class(job, workload, facts)
    if isinstance(rank, workloads.MissingClass):
        return missing_class(job, rank)
    if rank is not None:
        patch["spec"] = {"priorityClassRef": rank.source, "priority": rank.value}
    return (PatchWorkload(workload, patch), updated(job, workload)) if patch else ()


def _new_class(
    job: GenericJob, workload: Workload, facts: JobFacts
) -> workloads.Priority | workloads.MissingClass | None:
    """The class that the job's label names now, if the Workload may take it over."""
    asked, reference = job.labels.get(labels.PRIORITY_CLASS, ""), workload.spec.priority_class_ref
    if not asked or states.is_finished(workload):
        return None
    if reference is None:
        # While quota is held, a Workload can neither gain nor lose its class.
        return None if states.is_reserved(workload) else workloads.priority(job, (), facts)
    if reference.kind != PriorityClassKind.WORKLOAD_PRIORITY_CLASS or reference.name == asked:
        return None
    return workloads.priority(job, (), facts)
