"""The one reconciler of all kinds, as a decision: a job and the world around it in, actions out.

    1   is_skipped           no job of this reconciler: left alone
    2   is_deleting          its Workloads are finished, and their finalizers removed
    3   _not_managed         not managed: left alone; a child of a managed job runs while the parent is admitted
    4   find                 exactly one Workload is found, updated or created (`matching`, `pod_group`)
    5   _job_conditions      conditions that the kind itself adds to the Workload
    6   _workload_finished   the finalizers of the job and the Workload are removed
    7   _workload_deleted    the job is stopped first
    8   _on_hold             the job cannot use quota for now: its reservation is released
    9   _job_finished        the Workload is finished, too
    10  _pods                reclaimable pods and PodsReady are written
    11  _evicted             the job is stopped; once it is, the quota is released
    12  _suspended           started, if its Workload is admitted
    13  _running             stopped, unless its Workload is admitted

The first step that has something to do ends the pass: what it does wakes the job for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kubemachinery import conditions, unstructured
from kubemachinery.meta import Nanoseconds
from pykueue.api import labels
from pykueue.api.conditions import DeactivationReason, FinishedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import CheckState, Workload
from pykueue.jobs import pod_group, podsets, selection, unreadable_owners, workload_matching, workload_sync, workloads
from pykueue.jobs.actions import (
    Action,
    Actions,
    ChangeWorkload,
    CreateWorkload,
    EmitJobEvent,
    PatchWorkload,
    ReplaceObject,
    RequeueAfter,
    RetryWithBackoff,
)
from pykueue.jobs.facts import JobFacts
from pykueue.jobs.interface import GenericJob, Stop, StopReason
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import Missing, PodSetConflict, StartContext
from pykueue.jobs.selection import UnreadableOwner
from pykueue.jobs.workload_sync import Matched
from pykueue.lifecycle import eviction, finishing, readiness, reservation, states
from pykueue.lifecycle.workload_changes import RemoveFinalizer


def reconcile(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Actions:
    """What is to be done for a job that exists."""
    if job.is_skipped(options):
        return ()
    if job.is_deleting:
        return (*orphaned(facts.workloads, options, now), *job.finalize())
    elsewhere = _not_managed(job, facts, options)
    if elsewhere is not None:
        return elsewhere
    find = pod_group.find if isinstance(job, pod_group.PodGroup) else workload_matching.find
    found = find(job, facts, options, now)
    if not isinstance(found, Matched):
        return found
    job = found.job or job
    if found.workload is None:
        return _without_workload(job, facts, options)
    matched = _MatchedJob(job, facts, options, now, found.workload)
    return next((actions for phase in _PHASES if (actions := phase(matched)) is not None), ())


def orphaned(found: tuple[Workload, ...], options: IntegrationOptions, now: Nanoseconds) -> Actions:
    """What is to be done with the Workloads of a job that is gone. Those that wait end before quota is given back,
    which would be offered to them."""
    actions: list[Action] = []
    for workload in sorted(found, key=states.is_reserved):
        is_ours = workloads.controller(workload) is not None and not workloads.is_deleting(workload)
        if options.finish_orphaned and is_ours and not states.is_finished(workload):
            why = "The workload's owner no longer exists"
            actions.append(
                ChangeWorkload(workload, finishing.finish(workload, FinishedReason.OWNER_NOT_FOUND, why, now))
            )
        actions += _released(workload)
    return tuple(actions)


def _released(workload: Workload) -> Actions:
    """Take our finalizer off, if it is on."""
    held = labels.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers
    return (ChangeWorkload(workload, (RemoveFinalizer(),)),) if held else ()


# --- Ours? ------------------------------------------------------------------------------------------------------------


def _not_managed(job: GenericJob, facts: JobFacts, options: IntegrationOptions) -> Actions | None:
    """What is done for a job that is not ours, or not by itself; None for one that is."""
    if facts.namespace is None:
        return ()
    if options.selector_always_respected and not selection.selects(job.row, facts.namespace, options):
        return ()
    if not job.row.top_level:
        if facts.ancestry.too_deep:
            why = f"The job {facts.ancestry.problem}"
            return (EmitJobEvent(job.tree, "JobNestingTooDeep", why, warning=True), RetryWithBackoff(why))
        if facts.ancestry.problem:
            return (RetryWithBackoff(f"{job.row.kind.kind} {job.name} {facts.ancestry.problem}"),)
        unread = facts.ancestry.unread
        if unread is not None and (facts.ancestor is not None or not _stands_alone(job, facts)):
            return _undecided(job, unread, facts.namespace, options)
        if facts.ancestor is not None:
            return _nested(job, facts, options)
    return None if selection.is_managed(job.row, job.tree, facts.namespace, options) else ()


def _stands_alone(job: GenericJob, facts: JobFacts) -> bool:
    """Whether it was decided before that no ancestor of the job is ours: it has a Workload of its own. Its life goes
    on whatever becomes of reading owners; an eviction, above all, has to stop it."""
    return any(owner is not None and owner.uid == job.uid for owner in map(workloads.controller, facts.workloads))


def _undecided(
    job: GenericJob, unread: UnreadableOwner, namespace: Mapping[str, str], options: IntegrationOptions
) -> Actions:
    """A job whose owner cannot be read gets no Workload, and is not stopped: it may be the child of an ancestor that is
    admitted. The Event is for those that would be ours by themselves; for others only the owner is read again."""
    if selection.is_managed(job.row, job.tree, namespace, options):
        return unreadable_owners.undecided(job, unread)
    return (RequeueAfter(unreadable_owners.AGAIN),)


def _nested(job: GenericJob, facts: JobFacts, options: IntegrationOptions) -> Actions:
    """A child runs while the ancestor's Workload is admitted; it never has one itself."""
    assert facts.ancestor is not None
    if job.outcome() is not None or job.is_suspended():
        return ()
    if unreadable_owners.is_admitted(facts.ancestor, facts.ancestor_workloads, job.tree, options):
        return ()
    kind = unstructured.text(unstructured.get(facts.ancestor, "kind"))
    name = unstructured.text(unstructured.get(facts.ancestor, "metadata", "name"))
    return (
        ReplaceObject(job.row.kind, job.tree, job.suspended()),
        EmitJobEvent(job.tree, "Suspended", f"Suspended until the {kind} {name} that it belongs to is admitted"),
    )


# --- Without a Workload -----------------------------------------------------------------------------------------------


def _without_workload(job: GenericJob, facts: JobFacts, options: IntegrationOptions) -> Actions:
    if job.outcome() is not None:
        return job.finalize()
    if job.is_on_hold() or (job.is_active() and not workloads.is_elastic(job, options)):
        # Its pods are still ending; their end wakes the job.
        return ()
    pod_sets = job.pod_sets(options)
    rank = workloads.priority(job, pod_sets, facts)
    if isinstance(rank, workloads.MissingClass):
        return workload_sync.missing_class(job, rank)
    tree = workloads.build(job, pod_sets, rank, options)
    return (
        CreateWorkload(tree, job.tree),
        EmitJobEvent(job.tree, "CreatedWorkload", f"Created Workload: {job.namespace}/{tree['metadata']['name']}"),
        *job.cautions(),
    )


# --- With one ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MatchedJob:
    job: GenericJob
    facts: JobFacts
    options: IntegrationOptions
    now: Nanoseconds
    workload: Workload

    def stop(self, reason: StopReason, message: str, eviction: str = "") -> Actions:
        return self.job.stop(Stop(reason, message, self.now, podsets.original(self.workload), eviction))

    def finish(self, reason: FinishedReason, message: str) -> Actions:
        return (
            ChangeWorkload(self.workload, finishing.finish(self.workload, reason, message, self.now)),
            EmitJobEvent(
                self.job.tree, "FinishedWorkload", f"Workload '{states.key(self.workload)}' is declared finished"
            ),
        )


def _job_conditions(matched: _MatchedJob) -> Actions | None:
    changes = matched.job.conditions(matched.workload)
    return (ChangeWorkload(matched.workload, changes),) if changes else None


# Ends that the job itself brought about, which were told when they were written.
_ALREADY_REPORTED: Final = frozenset({FinishedReason.SUCCEEDED, FinishedReason.FAILED, FinishedReason.FAILED_TO_START})


def _workload_finished(matched: _MatchedJob) -> Actions | None:
    end = conditions.find(matched.workload.status.conditions, WorkloadCondition.FINISHED)
    if end is None or end.status != conditions.ConditionStatus.TRUE:
        return None
    let_go = () if workloads.is_elastic(matched.job, matched.options) else _released(matched.workload)
    writes = (*matched.job.finalize(), *let_go)
    if not writes or end.reason in _ALREADY_REPORTED:
        return writes
    note = f"Workload '{states.key(matched.workload)}' is declared finished"
    return (*writes, EmitJobEvent(matched.job.tree, "FinishedWorkload", note))


def _workload_deleted(matched: _MatchedJob) -> Actions | None:
    if not workloads.is_deleting(matched.workload):
        return None
    stop = matched.stop(StopReason.WORKLOAD_DELETED, "The Workload was deleted")
    return (*stop, *_released(matched.workload))


def _on_hold(matched: _MatchedJob) -> Actions | None:
    if not matched.job.is_on_hold():
        return None
    if not states.is_reserved(matched.workload):
        return ()
    why = "Job is on hold"
    changes = reservation.clear(
        matched.workload, QuotaReservedReason.ON_HOLD, why, matched.options.lifecycle, matched.now
    )
    return (ChangeWorkload(matched.workload, changes),)


def _job_finished(matched: _MatchedJob) -> Actions | None:
    outcome = matched.job.outcome()
    if outcome is None:
        return None
    reason = FinishedReason.SUCCEEDED if outcome.success else FinishedReason.FAILED
    return (*matched.finish(reason, outcome.message), *matched.job.finalize())


def _pods(matched: _MatchedJob) -> Actions | None:
    changes = readiness.pods_ready(matched.workload, matched.job.are_pods_ready(), matched.options.lifecycle)
    if matched.options.reclaimable_pods:
        changes = (*readiness.reclaim(matched.workload, matched.job.reclaimable()), *changes)
    return (ChangeWorkload(matched.workload, changes),) if changes else None


def _evicted(matched: _MatchedJob) -> Actions | None:
    evicted = conditions.find(matched.workload.status.conditions, WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != conditions.ConditionStatus.TRUE:
        return None
    actions = [*matched.stop(StopReason.WORKLOAD_EVICTED, evicted.message, evicted.reason)]
    if not states.is_reserved(matched.workload):
        actions += _requeued(matched)
    elif not matched.job.is_active() and not (actions and _ends_with_its_pod(matched, evicted.reason)):
        actions.append(
            ChangeWorkload(matched.workload, eviction.release(matched.workload, matched.options.lifecycle, matched.now))
        )
    return (*actions, *_retired(matched, evicted.reason))


def _ends_with_its_pod(matched: _MatchedJob, reason: str) -> bool:
    """A lone pod that is stopped because its time is over takes its Workload along, which ends with what it holds."""
    over = reason == DeactivationReason.MAXIMUM_EXECUTION_TIME_EXCEEDED.evicted
    return over and matched.options.finish_orphaned and states.is_owned_by_single_pod(matched.workload)


def _retired(matched: _MatchedJob, reason: str) -> Actions:
    """A job whose Workload we deactivated ourselves is deleted after a while, where the operator wants that."""
    keep, since = matched.options.keep_deactivated, states.since(matched.workload, WorkloadCondition.EVICTED)
    if keep is None or since is None or states.is_active(matched.workload) or not reason.startswith("DeactivatedDueTo"):
        return ()
    if matched.now < since + keep:
        return (RequeueAfter(since + keep - matched.now),)
    note = "Deleted job: deactivation retention period expired"
    return (*matched.job.delete(), EmitJobEvent(matched.job.tree, "Deleted", note), *matched.job.finalize())


def _suspended(matched: _MatchedJob) -> Actions | None:
    if not matched.job.is_suspended():
        return None
    if states.is_admitted(matched.workload):
        return _started(matched)
    if states.is_reserved(matched.workload):
        return _check_messages(matched)
    return _requeued(matched)


def _started(matched: _MatchedJob) -> Actions:
    options = matched.options
    placement = StartContext(
        matched.facts.flavors, topology=options.topology, assign_queue_labels=options.assign_queue_labels
    )
    infos = podsets.admitted(matched.workload, placement)
    if isinstance(infos, Missing):
        return (RetryWithBackoff(infos.message),)
    note = f"Admitted by clusterQueue {states.cluster_queue(matched.workload)}"
    started = infos if isinstance(infos, PodSetConflict) else matched.job.start(infos, note)
    if isinstance(started, PodSetConflict):
        return matched.finish(FinishedReason.FAILED_TO_START, started.message)
    return (*started, *(matched.job.cautions() if started else ()))


def _check_messages(matched: _MatchedJob) -> Actions:
    said = [
        f"{check.name}: {check.message}"
        for check in matched.workload.status.admission_checks
        if check.state == CheckState.PENDING and check.message
    ]
    return (EmitJobEvent(matched.job.tree, "UpdatedAdmissionCheck", "; ".join(said)),) if said else ()


def _requeued(matched: _MatchedJob) -> Actions:
    """A job that does not hold quota may go to another queue."""
    if not matched.job.follows_queue or matched.workload.spec.queue_name == matched.job.queue_name:
        return ()
    return (PatchWorkload(matched.workload, {"spec": {"queueName": matched.job.queue_name or None}}),)


def _running(matched: _MatchedJob) -> Actions | None:
    if states.is_admitted(matched.workload):
        # Admitted again while it was being stopped: the stop is finished first, and the next look starts it.
        finishes = matched.job.is_stopping()
        return matched.stop(StopReason.NOT_ADMITTED, "Its last stop had not been finished") if finishes else None
    if workloads.is_elastic(matched.job, matched.options):
        return None
    return matched.stop(StopReason.NOT_ADMITTED, "Not admitted by cluster queue")


_PHASES: Final[tuple[Callable[[_MatchedJob], Actions | None], ...]] = (
    _job_conditions,
    _workload_finished,
    _workload_deleted,
    _on_hold,
    _job_finished,
    _pods,
    _evicted,
    _suspended,
    _running,
)
