"""An elastic job grows by slices: while one Workload runs, a larger one waits to take its place.

    one Workload       its counts follow the job while it holds no quota, or shrink; to grow while it holds quota, a
                       second one is made that says which one it replaces
    two                the one that holds quota and the one that waits for it; the scheduler ends the first when it
                       admits the second
    more, or others    are ended

A slice that is over keeps its finalizer: it tells what the job once was, until the job or its keeping time is over.
Whatever else changes than the number of pods is not a matter of slices: the job is then matched like any other.
"""

from __future__ import annotations

from kubemachinery import unstructured
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.jobs import podsets, workload_sync, workloads
from pykueue.jobs.actions import Actions, ChangeWorkload, CreateWorkload, EmitJobEvent, ResizeWorkload
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.workload_sync import Matched
from pykueue.lifecycle import finishing, states
from pykueue.lifecycle.workload_changes import Changes, RemoveFinalizer


def find(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions | None:
    """The slice that speaks for the job, or what has to be done first; None where slices are not the answer."""
    done = [workload for workload in facts.workloads if states.is_finished(workload)]
    let_go = tuple(
        ChangeWorkload(each, (RemoveFinalizer(),)) for each in done if _is_held(each) and workloads.is_deleting(each)
    )
    if let_go:
        return let_go
    living = [workload for workload in facts.workloads if not states.is_finished(workload)]
    if not living:
        return _after_the_last(job, done)
    kept = _kept(living)
    ended = tuple(
        ChangeWorkload(workload, _ended(workload, living, now))
        for workload in living
        if all(workload is not k for k in kept)
    )
    if ended:
        return ended
    newest = kept[-1]
    outcome = job.outcome()
    if outcome is not None:
        # The job ended before the larger slice was let in: the one with the quota is over as well.
        reason = FinishedReason.SUCCEEDED if outcome.success else FinishedReason.FAILED
        over = tuple(ChangeWorkload(each, finishing.finish(each, reason, outcome.message, now)) for each in kept[:-1])
        return over or Matched(newest)
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
        # A job that grew before it was started starts with what it has.
        return Matched(kept[0] if job.is_suspended() else newest)
    grows = any(after > count for after, count in zip(counts, before, strict=True))
    if states.is_reserved(newest) and grows:
        return _grown(job, newest, facts, options)
    return (ResizeWorkload(newest, counts),)


def _after_the_last(job: GenericJob, done: list[Workload]) -> Matched | None:
    """All slices are over. One that was not replaced by another was the end of the job."""
    for workload in reversed(done):
        finished = [each for each in workload.status.conditions if each.type == WorkloadCondition.FINISHED]
        if finished[0].reason != FinishedReason.WORKLOAD_SLICE_REPLACED:
            return Matched(workload)
    return Matched(None) if job.is_suspended() or job.outcome() is not None else None


def _is_held(workload: Workload) -> bool:
    return labels.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers


def _replaces(workload: Workload) -> str:
    """The slice, as `namespace/name`, whose place a slice is to take."""
    return workload.metadata.annotations.get(labels.WORKLOAD_SLICE_REPLACEMENT_FOR, "")


def _kept(living: list[Workload]) -> list[Workload]:
    """The slice that holds quota and the one that waits for its place, as far as they are there; oldest first."""
    reserved = [each for each in living if states.is_reserved(each) and not states.is_evicted(each)]
    overtaken = {_replaces(each) for each in reserved}
    heads = [each for each in reserved if states.key(each) not in overtaken]
    if not heads:
        return [next((each for each in reversed(living) if not states.is_evicted(each)), living[-1])]
    head = heads[-1]
    heirs = [each for each in living if _replaces(each) == states.key(head) and not states.is_reserved(each)]
    return [head, *heirs[-1:]]


def _ended(workload: Workload, living: list[Workload], now: Nanoseconds) -> Changes:
    replaced = any(_replaces(other) == states.key(workload) for other in living)
    reason = FinishedReason.WORKLOAD_SLICE_REPLACED if replaced else FinishedReason.OUT_OF_SYNC
    return finishing.finish(workload, reason, "Another slice of the job stands for it now", now)


def _grown(job: GenericJob, old: Workload, facts: JobFacts, options: IntegrationOptions) -> Actions:
    """A larger slice. Its pods are those of the job as it was before anything was injected, but for the name of the
    slices: as in Kueue, the pod template of every slice but the first keeps the annotation with it. A job that is
    stopped gets it back with its template, and the first slice of a new line overwrites it when the job starts."""
    plain = job.with_tree(job.restored(podsets.original(old)))
    pod_sets = tuple(
        _with_slice_name(pod_set, podsets.at(job.tree, template.spot))
        for pod_set, template in zip(plain.pod_sets(options), job.templates(), strict=True)
    )
    rank = workloads.priority(job, pod_sets, facts)
    if isinstance(rank, workloads.MissingClass):
        return workload_sync.missing_class(job, rank)
    tree: Tree = workloads.build(job, pod_sets, rank, options)
    first = old.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, old.metadata.name)
    notes = unstructured.mapping(unstructured.get(tree, "metadata", "annotations"))
    marks = {labels.WORKLOAD_SLICE_REPLACEMENT_FOR: states.key(old), labels.WORKLOAD_SLICE_NAME: first}
    tree = unstructured.put(tree, ("metadata", "annotations"), {**notes, **marks})
    name = unstructured.get(tree, "metadata", "name")
    return (
        CreateWorkload(tree, job.tree),
        EmitJobEvent(job.tree, "CreatedWorkload", f"Created Workload: {job.namespace}/{name}"),
    )


def _with_slice_name(pod_set: Tree, running: Tree) -> Tree:
    """The pod set with the name of the slices that its running template carries."""
    name = unstructured.get(running, "metadata", "annotations", labels.WORKLOAD_SLICE_NAME)
    path = ("template", "metadata", "annotations")
    notes = unstructured.texts(unstructured.get(pod_set, *path))
    return unstructured.put(pod_set, path, {**notes, labels.WORKLOAD_SLICE_NAME: name}) if name else pod_set
