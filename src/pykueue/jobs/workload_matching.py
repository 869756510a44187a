"""Which Workload is the one of a job, or what has to happen before there is exactly one.

Every action of a pass that ends here changes the job or a Workload of it, and so triggers the next pass.
"""

from __future__ import annotations

from typing import Final

from kubemachinery import codec, conditions
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api import workload_owners
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.jobs import podsets, slices, workload_sync, workloads
from pykueue.jobs.actions import Actions, ChangeWorkload, EmitJobEvent, PatchWorkload
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob, Matched, Stop, StopReason
from pykueue.jobs.options import IntegrationOptions
from pykueue.lifecycle import finishing, states
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer

_UNMATCHED: Final = "No matching Workload; restoring pod templates according to existent Workload"
_MISSING: Final = "Missing Workload; unable to restore pod templates"


def find(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    """The Workload of a job, or what has to be done before there is one."""
    name = workloads.prebuilt_name(job, options)
    if name:
        return _prebuilt(job, facts, options, now)
    if workloads.is_elastic(job, options):
        # Slices of an earlier job of the same name belong to that job.
        foreign = [each for each in facts.workloads if not workloads.is_owned(job, each, options)]
        if foreign:
            return tuple(action for each in foreign for action in discard(job, each))
        sliced = slices.find(job, facts, options, now)
        if sliced is not None:
            return sliced
    return _ordinary(job, facts, options, now)


def discard(job: GenericJob, workload: Workload) -> Actions:
    """Delete a Workload that does not match the job."""
    note = f"Deleted not matching Workload: {states.key(workload)}"
    return (
        ChangeWorkload(workload, (RemoveFinalizer(), DeleteWorkload())),
        EmitJobEvent(job.tree, "DeletedWorkload", note),
    )


# --- A prebuilt Workload ----------------------------------------------------------------------------------------------


def _prebuilt(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    found = facts.named
    owner = None if found is None else workload_owners.controller(found)
    if found is None or (owner is not None and owner.uid != job.uid):
        return missing_prebuilt(job, now)
    if owner is None:
        return (PatchWorkload(found, _adoption(job, found)),)
    if workloads.is_equivalent(job, found, options):
        return Matched(found)
    return out_of_sync(job, found, now)


def missing_prebuilt(job: GenericJob, now: Nanoseconds) -> Actions:
    """The prebuilt Workload of the job does not exist, or belongs to another job: the job is stopped."""
    return _stopped(job, "missing workload", None, now)


def out_of_sync(job: GenericJob, found: Workload, now: Nanoseconds) -> Matched | Actions:
    """The prebuilt Workload does not match its job: it is finished, not deleted, and the job is not started."""
    end = conditions.find(found.status.conditions, WorkloadCondition.FINISHED)
    if states.is_finished(found) and end is not None and end.reason != FinishedReason.OUT_OF_SYNC:
        return Matched(found)
    message = "The prebuilt workload is out of sync with its user job"
    over = finishing.finish(found, FinishedReason.OUT_OF_SYNC, message, now)
    if not over and job.outcome() is not None:
        return Matched(None)
    return (*_stopped(job, message, found, now), *((ChangeWorkload(found, over),) if over else ()))


def _adoption(job: GenericJob, workload: Workload) -> Tree:
    owners = [codec.to_tree(owner) for owner in workload.metadata.owner_references]
    metadata: Tree = {"ownerReferences": [*owners, workloads.owner_reference(job, job)]}
    labels = workloads.uid_label(job.uid)
    return {"metadata": metadata | ({"labels": labels} if labels else {})}


def _stopped(job: GenericJob, message: str, restore: Workload | None, now: Nanoseconds) -> Actions:
    if job.is_suspended() or job.outcome() is not None:
        return ()
    infos = None if restore is None else podsets.original(restore)
    return job.stop(Stop(StopReason.NO_MATCHING_WORKLOAD, message, now, infos))


# --- A Workload that the reconciler creates ---------------------------------------------------------------------------


def _ordinary(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Matched | Actions:
    match = next(
        (
            workload
            for workload in facts.workloads
            if workloads.is_owned(job, workload, options) and workloads.is_equivalent(job, workload, options)
        ),
        None,
    )
    if match is None:
        return unmatched(job, facts.workloads, facts, options, now)
    surplus = tuple(action for other in facts.workloads if other is not match for action in discard(job, other))
    return surplus or workload_sync.synced(job, match, facts, options) or Matched(match)


def unmatched(
    job: GenericJob, found: tuple[Workload, ...], facts: JobFacts, options: IntegrationOptions, now: Nanoseconds
) -> Matched | Actions:
    """None of the Workloads of the job matches it."""
    discarded = [discard(job, workload) for workload in found]
    everything = tuple(action for actions in discarded for action in actions)
    if job.outcome() is not None:
        return everything or Matched(None)
    if not job.is_suspended():
        # Its pod templates can be restored only if exactly one Workload has them.
        restore = found[0] if len(found) == 1 else None
        return (*_stopped(job, _UNMATCHED if restore is not None else _MISSING, restore, now), *everything)
    if not found:
        return Matched(None)
    first = found[0]
    is_owned = job.is_group or workloads.is_owned(job, first, options)
    if states.is_reserved(first) or not is_owned:
        return everything
    others = tuple(action for actions in discarded[1:] for action in actions)
    return (*_rewritten(job, first, facts, options), *others)


def _rewritten(job: GenericJob, workload: Workload, facts: JobFacts, options: IntegrationOptions) -> Actions:
    """A pending Workload is updated in place; `active` is kept."""
    pod_sets = job.pod_sets(options)
    rank = workloads.priority(job, pod_sets, facts)
    if isinstance(rank, workloads.MissingClass):
        return workload_sync.missing_class(job, rank)
    spec: Tree = {"queueName": None, "priorityClassRef": None, "maximumExecutionTimeSeconds": None}
    spec |= workloads.spec(job, pod_sets, rank)
    del spec["active"]
    return (PatchWorkload(workload, {"spec": spec}), workload_sync.updated(job, workload))
