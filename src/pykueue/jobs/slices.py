"""An elastic job is scaled up by slices: while one Workload runs, a larger one waits to replace it.

    one Workload       its counts follow the job while it has no quota reserved, or is scaled down; to scale up while
                       quota is reserved, a second one is created that names the one it replaces
    two                the one with quota and its replacement; admitting the second finishes the first
    evicted            the one with quota is that of the job until the job has stopped
    any others         are finished

A finished slice keeps its finalizer, as a record, until the job is deleted or its retention ends. A job on which more
than pod counts changed is matched as any other job.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubemachinery import unstructured
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.jobs import podsets, workload_sync, workloads
from pykueue.jobs.actions import Actions, ChangeWorkload, CreateWorkload, EmitJobEvent, ResizeWorkload
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob, JobOutcome, Matched
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle import finishing, states
from pykueue.lifecycle.workload_changes import Changes, RemoveFinalizer


def find(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions | None:
    """The slice of the job, or what has to be done first; None where the job is matched as any other."""
    done = [workload for workload in facts.workloads if states.is_finished(workload)]
    living = [workload for workload in facts.workloads if not states.is_finished(workload)]
    # The deletion of a slice without quota does not stop the job of another one.
    gone = [each for each in living if workloads.is_deleting(each) and not states.is_reserved(each)]
    if len(gone) == len(living):
        gone = []
    for deleted in ([each for each in done if workloads.is_deleting(each)], gone):
        if released := _without_finalizer(deleted):
            return released
    living = [each for each in living if each not in gone]
    if not living:
        return _last_finished(job, done)
    if len(living) > 1 and (stopping := _stopping(living)) is not None:
        return Matched(stopping)
    kept = _kept(living)
    if ended := _superseded(living, kept, now):
        return ended
    if (outcome := job.outcome()) is not None:
        return _finished(kept, outcome, now)
    return _following(job, kept, facts, options)


def _superseded(living: list[Workload], kept: list[Workload], now: Nanoseconds) -> Actions:
    """Finish the slices that are neither the one with quota nor its replacement."""
    others = (workload for workload in living if all(workload is not each for each in kept))
    return tuple(ChangeWorkload(workload, _ended(workload, living, now)) for workload in others)


def _finished(kept: list[Workload], outcome: JobOutcome, now: Nanoseconds) -> Matched | Actions:
    """The slice of a job that finished. If a larger slice was not admitted before, the one with the quota is finished
    as well."""
    reason = FinishedReason.SUCCEEDED if outcome.success else FinishedReason.FAILED
    over = tuple(
        ChangeWorkload(each, finishing.finish(each, reason, outcome.message, now, outcome.ended)) for each in kept[:-1]
    )
    return over or Matched(kept[-1])


def _following(
    job: GenericJob, kept: list[Workload], facts: JobFacts, options: IntegrationOptions
) -> Matched | Actions | None:
    """The slice with the counts of a job that goes on, or what gives it these counts: a resized or a larger slice. None
    if the job has other pod sets."""
    newest = kept[-1]
    asked = {pod_set["name"]: pod_set["count"] for pod_set in job.pod_sets(options)}
    if list(asked) != [pod_set.name for pod_set in newest.spec.pod_sets]:
        return None
    for workload in kept:
        synced = workload_sync.synced(job, workload, facts, options)
        if synced:
            return synced
    counts = tuple(asked.values())
    before = tuple(pod_set.count for pod_set in newest.spec.pod_sets)
    if counts == before:
        return _matched(job, kept)
    grows = any(after > count for after, count in zip(counts, before, strict=True))
    if states.is_reserved(newest) and grows:
        return _grown(job, newest, facts, options)
    return (ResizeWorkload(newest, counts),)


def _matched(job: GenericJob, kept: list[Workload]) -> Matched | Actions:
    """The slice of a job that has the counts of the newest one."""
    # A job that was scaled up before it was started, or before it had stopped, starts with the quota that is reserved.
    if job.is_suspended() or job.is_stopping():
        return Matched(kept[0])
    if len(kept) > 1 and states.is_evicted(kept[-1]):
        return ()  # deactivated before it had quota: the job runs on with the slice that it was to replace
    return Matched(kept[-1])


def _last_finished(job: GenericJob, done: list[Workload]) -> Matched | None:
    """All slices are finished. One that was not replaced by another is the last of the job."""
    for workload in reversed(done):
        finished = [each for each in workload.status.conditions if each.type == WorkloadCondition.FINISHED]
        if finished[0].reason != FinishedReason.WORKLOAD_SLICE_REPLACED:
            return Matched(workload)
    return Matched(None) if job.is_suspended() or job.outcome() is not None else None


def _without_finalizer(found: Iterable[Workload]) -> Actions:
    """Remove the finalizer of the Workloads that have it."""
    return tuple(
        ChangeWorkload(each, (RemoveFinalizer(),))
        for each in found
        if labels.RESOURCE_IN_USE_FINALIZER in each.metadata.finalizers
    )


def _replaces(workload: Workload) -> str:
    """The slice, as `namespace/name`, that this one replaces."""
    return workload.metadata.annotations.get(labels.WORKLOAD_SLICE_REPLACEMENT_FOR, "")


def _stopping(living: list[Workload]) -> Workload | None:
    """The slice that was evicted, or is deleted, and has its quota until its job has stopped, if no other slice has
    quota. Only then is an evicted one finished for a larger one that waits."""
    reserved = [each for each in living if states.is_reserved(each)]
    is_over = all(states.is_evicted(each) or workloads.is_deleting(each) for each in reserved)
    return reserved[-1] if reserved and is_over else None


def _kept(living: list[Workload]) -> list[Workload]:
    """The slice that has quota reserved and its replacement, as far as they exist; oldest first."""
    reserved = [each for each in living if states.is_reserved(each) and not states.is_evicted(each)]
    replaced = {_replaces(each) for each in reserved}
    heads = [each for each in reserved if states.key(each) not in replaced]
    if not heads:
        return [next((each for each in reversed(living) if not states.is_evicted(each)), living[-1])]
    head = heads[-1]
    replacements = [each for each in living if _replaces(each) == states.key(head) and not states.is_reserved(each)]
    return [head, *replacements[-1:]]


def _ended(workload: Workload, living: list[Workload], now: Nanoseconds) -> Changes:
    replaced = any(_replaces(other) == states.key(workload) for other in living)
    reason = FinishedReason.WORKLOAD_SLICE_REPLACED if replaced else FinishedReason.OUT_OF_SYNC
    return finishing.finish(workload, reason, "Replaced by another slice of the job", now)


def _grown(job: GenericJob, old: Workload, facts: JobFacts, options: IntegrationOptions) -> Actions:
    """A larger slice. Its pod templates are those of the job before the admission was injected, with one exception: as
    in Kueue, the template of every slice but the first keeps the annotation with the name of the first slice. A stopped
    job gets it back with its template, and the first slice of the next start overwrites it."""
    plain = job.with_tree(job.restored(podsets.original(old)))
    pod_sets = tuple(
        _with_slice_name(pod_set, template.at(job.tree))
        for pod_set, template in zip(plain.pod_sets(options), job.templates(), strict=True)
    )
    rank = workloads.priority(job, pod_sets, facts)
    if isinstance(rank, workloads.MissingClass):
        return workload_sync.missing_class(job, rank)
    tree: Tree = workloads.build(job, pod_sets, rank, options, facts.workloads)
    first = old.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, old.metadata.name)
    tree = ObjectView(tree).with_annotations(
        {labels.WORKLOAD_SLICE_REPLACEMENT_FOR: states.key(old), labels.WORKLOAD_SLICE_NAME: first}
    )
    name = ObjectView(tree).name
    return (
        CreateWorkload(tree, job.tree),
        EmitJobEvent(job.tree, "CreatedWorkload", f"Created Workload: {job.namespace}/{name}"),
    )


def _with_slice_name(pod_set: Tree, running: Tree) -> Tree:
    """The pod set with the slice name that its running template has."""
    name = ObjectView(running).annotations.get(labels.WORKLOAD_SLICE_NAME)
    path = ("template", "metadata", "annotations")
    annotations = unstructured.texts(unstructured.get(pod_set, *path))
    return unstructured.put(pod_set, path, {**annotations, labels.WORKLOAD_SLICE_NAME: name}) if name else pod_set
