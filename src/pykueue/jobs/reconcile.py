"""The reconciler of all job kinds, as a decision: a job and its facts in, actions out.

    1   is_skipped           not reconciled here: left alone
    2   is_deleting          its Workloads are finished, and their finalizers removed
    3   _not_managed         not managed: left alone; a child of a managed job runs while the ancestor is admitted
    4   find_workload        annotations that the kind keeps are written; then exactly one Workload is found, updated or
                             created (`workload_matching`, `pod_group`)
    5   _job_conditions      conditions that the kind itself sets on the Workload
    6   _workload_finished   the finalizers of the job and the Workload are removed
    7   _workload_deleted    the job is stopped first
    8   _on_hold             the job cannot use quota for now: its reservation is released
    9   _job_finished        the Workload is finished, too
    10  _pods                reclaimable pods and PodsReady are written
    11  _evicted             the job is stopped; then the quota is released
    12  _suspended           started, if its Workload is admitted
    13  _running             stopped, unless its Workload is admitted

A step returns actions, or `CONTINUE` for the next step. The first step that returns actions ends the pass, also if
there are none (`DONE`): what it does triggers the next pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from kubemachinery import conditions
from kubemachinery.meta import Nanoseconds
from pykueue.api import labels, workload_owners
from pykueue.api.conditions import DeactivationReason, FinishedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import CheckState, Workload
from pykueue.jobs import (
    podsets,
    selection,
    unreadable_owners,
    workload_matching,
    workload_sync,
    workloads,
)
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
from pykueue.jobs.facts import JobFacts, UnreadableOwner
from pykueue.jobs.interface import GenericJob, Matched, Stop, StopReason
from pykueue.jobs.options import IntegrationOptions
from pykueue.jobs.podsets import Missing, PodSetConflict, StartContext
from pykueue.lifecycle import eviction, finishing, readiness, reservation, states
from pykueue.lifecycle.workload_changes import RemoveFinalizer

# What a step returns: actions, with which the pass ends, or `CONTINUE`.
StepResult: TypeAlias = Actions | None
CONTINUE: Final = None
DONE: Final[Actions] = ()


def reconcile(job: GenericJob, facts: JobFacts, options: IntegrationOptions, now: Nanoseconds) -> Actions:
    """The actions for a job that exists."""
    if job.is_skipped(options):
        return DONE
    if job.is_deleting:
        return (*orphaned(facts.workloads, options, now), *job.finalize())
    not_managed = _not_managed(job, facts, options)
    if not_managed is not CONTINUE:
        return not_managed
    changed = _with_kept_annotations(job, options)
    if changed:
        return changed
    problem = job.pod_sets_problem(options) or _too_many(job)
    found = _without_pod_sets(job, problem, facts, options) if problem else job.find_workload(facts, options, now)
    if found is None:
        found = workload_matching.find(job, facts, options, now)
    if not isinstance(found, Matched):
        return found
    job = found.job or job
    if found.workload is None:
        return _without_workload(job, facts, options)
    matched = _MatchedJob(job, facts, options, now, found.workload)
    actions = next((actions for phase in _PHASES if (actions := phase(matched)) is not CONTINUE), DONE)
    return (*found.events, *actions)


def orphaned(found: tuple[Workload, ...], options: IntegrationOptions, now: Nanoseconds) -> Actions:
    """The actions for the Workloads of a deleted job. Pending ones are finished before quota is released, which would
    otherwise be offered to them."""
    actions: list[Action] = []
    for workload in sorted(found, key=states.is_reserved):
        is_controlled = workload_owners.controller(workload) is not None and not workloads.is_deleting(workload)
        if options.finish_orphaned and is_controlled and not states.is_finished(workload):
            message = "The workload's owner no longer exists"
            actions.append(
                ChangeWorkload(workload, finishing.finish(workload, FinishedReason.OWNER_NOT_FOUND, message, now))
            )
        actions += _released(workload)
    return tuple(actions)


def _released(workload: Workload) -> Actions:
    """Remove our finalizer, if it is set."""
    held = labels.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers
    return (ChangeWorkload(workload, (RemoveFinalizer(),)),) if held else ()


# --- Jobs that are not managed ----------------------------------------------------------------------------------------


def _not_managed(job: GenericJob, facts: JobFacts, options: IntegrationOptions) -> StepResult:
    """The actions for a job that is not managed by itself; `CONTINUE` for one that is."""
    if facts.namespace is None:
        return DONE
    if options.selector_always_respected and not selection.selects(job.row, facts.namespace, options):
        return DONE
    if not job.row.top_level:
        if facts.ancestry.too_deep:
            message = f"The job {facts.ancestry.problem}"
            return (EmitJobEvent(job.tree, "JobNestingTooDeep", message, warning=True), RetryWithBackoff(message))
        if facts.ancestry.problem:
            retry = RetryWithBackoff(f"{job.row.kind.kind} {job.name} {facts.ancestry.problem}")
            if not selection.is_managed(job.row, job, facts.namespace, options):
                return (retry,)
            return (unreadable_owners.event(job, facts.ancestry.problem), retry)
        unread = facts.ancestry.unread
        if unread is not None and (facts.ancestor is not None or not _stands_alone(job, facts)):
            return _undecided(job, unread, facts.namespace, options)
        if facts.ancestor is not None:
            return _nested(job, facts, options)
    return CONTINUE if selection.is_managed(job.row, job, facts.namespace, options) else DONE


def _stands_alone(job: GenericJob, facts: JobFacts) -> bool:
    """Whether it was decided before that no ancestor of the job is managed: it has a Workload of its own. It is
    reconciled although owners cannot be read; above all, an eviction has to stop it."""
    return any(owner is not None and owner.uid == job.uid for owner in map(workload_owners.controller, facts.workloads))


def _undecided(
    job: GenericJob, unread: UnreadableOwner, namespace: Mapping[str, str], options: IntegrationOptions
) -> Actions:
    """A job whose owner cannot be read gets no Workload, and is not stopped: it may be the child of an admitted
    ancestor. The Event is emitted for jobs that would be managed by themselves."""
    if selection.is_managed(job.row, job, namespace, options):
        return unreadable_owners.undecided(job, unread)
    return (RequeueAfter(unreadable_owners.AGAIN),)


def _nested(job: GenericJob, facts: JobFacts, options: IntegrationOptions) -> Actions:
    """A child runs while the ancestor's Workload is admitted; it has none itself."""
    assert facts.ancestor is not None
    if job.outcome() is not None or job.is_suspended():
        return DONE
    if unreadable_owners.is_admitted(facts.ancestor, facts.ancestor_workloads, job, options):
        return DONE
    title = f"{facts.ancestor.kind} {facts.ancestor.name}"
    return (
        ReplaceObject(job.row.kind, job.tree, job.suspended()),
        EmitJobEvent(job.tree, "Suspended", f"Suspended until its owner {title} is admitted"),
    )


# --- Without a Workload -----------------------------------------------------------------------------------------------


def _without_workload(job: GenericJob, facts: JobFacts, options: IntegrationOptions) -> Actions:
    if job.outcome() is not None:
        return job.finalize()
    if job.is_on_hold() or (job.is_active() and not workloads.is_elastic(job, options)):
        # Its pods are still terminating; their end triggers the next pass.
        return DONE
    pod_sets = job.pod_sets(options)
    rank = workloads.priority(job, pod_sets, facts)
    if isinstance(rank, workloads.MissingClass):
        return workload_sync.missing_class(job, rank)
    tree = workloads.build(job, pod_sets, rank, options, facts.workloads)
    return (
        CreateWorkload(tree, job.tree),
        EmitJobEvent(job.tree, "CreatedWorkload", f"Created Workload: {job.namespace}/{tree['metadata']['name']}"),
        *job.cautions(),
    )


def _with_kept_annotations(job: GenericJob, options: IntegrationOptions) -> Actions:
    """Write the annotations that the kind keeps on its jobs, where they differ."""
    kept = job.kept_annotations(options)
    if all(job.annotations.get(key) == value for key, value in kept.items()):
        return ()
    return (ReplaceObject(job.row.kind, job.tree, job.with_annotations(kept)),)


def _would_start(job: GenericJob, workload: Workload) -> bool:
    is_over = states.is_evicted(workload) or states.is_finished(workload) or workloads.is_deleting(workload)
    return job.is_suspended() and job.outcome() is None and states.is_admitted(workload) and not is_over


def _too_many(job: GenericJob) -> str:
    """Why the pod sets are not built: the API server would refuse the Workload [JF45]. Those of an object with
    thousands of templates take seconds to build, with each retry."""
    count = len(job.templates())
    if count <= podsets.COUNT_MAX:
        return ""
    return f"{job.row.kind.kind} {job.name} has {count} pod sets; a Workload has at most {podsets.COUNT_MAX}"


def _without_pod_sets(job: GenericJob, problem: str, facts: JobFacts, options: IntegrationOptions) -> Matched | Actions:
    """A job whose pod sets cannot be built gets no Workload, and is retried. One that has a Workload continues with it:
    above all, an eviction has to stop it, whatever became of an object that it refers to."""
    owned = [each for each in facts.workloads if workloads.is_owned(job, each, options)]
    if len(owned) == 1 and not _would_start(job, owned[0]):
        return Matched(owned[0])
    return (EmitJobEvent(job.tree, "ErrWorkloadCompose", problem, warning=True), RetryWithBackoff(problem))


# --- With a Workload --------------------------------------------------------------------------------------------------


class _MatchedJob(msgspec.Struct, frozen=True):
    """A job with its Workload, and the facts about both."""

    job: GenericJob
    facts: JobFacts
    options: IntegrationOptions
    now: Nanoseconds
    workload: Workload

    def stop(self, reason: StopReason, message: str, eviction: str = "") -> Actions:
        return self.job.stop(Stop(reason, message, self.now, podsets.original(self.workload), eviction))

    def finish(self, reason: FinishedReason, message: str, ended: Nanoseconds | None = None) -> Actions:
        return (
            ChangeWorkload(self.workload, finishing.finish(self.workload, reason, message, self.now, ended)),
            EmitJobEvent(
                self.job.tree, "FinishedWorkload", f"Workload '{states.key(self.workload)}' is declared finished"
            ),
        )


def _job_conditions(matched: _MatchedJob) -> StepResult:
    changes = matched.job.conditions(matched.workload)
    return (ChangeWorkload(matched.workload, changes),) if changes else CONTINUE


# Ends of the job itself, of which an Event was emitted when they were written.
_ALREADY_REPORTED: Final = frozenset({FinishedReason.SUCCEEDED, FinishedReason.FAILED, FinishedReason.FAILED_TO_START})


def _workload_finished(matched: _MatchedJob) -> StepResult:
    end = conditions.find(matched.workload.status.conditions, WorkloadCondition.FINISHED)
    if end is None or end.status != conditions.ConditionStatus.TRUE:
        return CONTINUE
    released = () if workloads.is_elastic(matched.job, matched.options) else _released(matched.workload)
    writes = (*matched.job.finalize(), *released)
    if not writes or end.reason in _ALREADY_REPORTED:
        return writes
    note = f"Workload '{states.key(matched.workload)}' is declared finished"
    return (*writes, EmitJobEvent(matched.job.tree, "FinishedWorkload", note))


def _workload_deleted(matched: _MatchedJob) -> StepResult:
    if not workloads.is_deleting(matched.workload):
        return CONTINUE
    stop = matched.stop(StopReason.WORKLOAD_DELETED, "The Workload was deleted")
    return (*stop, *_released(matched.workload))


def _on_hold(matched: _MatchedJob) -> StepResult:
    if not matched.job.is_on_hold():
        return CONTINUE
    if not states.is_reserved(matched.workload):
        return ()
    why = "Job is on hold"
    changes = reservation.clear(
        matched.workload, QuotaReservedReason.ON_HOLD, why, matched.options.lifecycle, matched.now
    )
    return (ChangeWorkload(matched.workload, changes),)


def _off_hold(matched: _MatchedJob) -> Actions:
    """A job that can use quota again is queued again, once it is suspended and its last pod is gone."""
    job, workload = matched.job, matched.workload
    if not job.may_be_on_hold or job.is_active() or not states.is_on_hold(workload):
        return ()
    return (ChangeWorkload(workload, reservation.off_hold(workload, matched.options.lifecycle, matched.now)),)


def _job_finished(matched: _MatchedJob) -> StepResult:
    outcome = matched.job.outcome()
    if outcome is None:
        return CONTINUE
    reason = FinishedReason.SUCCEEDED if outcome.success else FinishedReason.FAILED
    return (*matched.finish(reason, outcome.message, outcome.ended), *matched.job.finalize())


def _pods(matched: _MatchedJob) -> StepResult:
    changes = readiness.pods_ready(matched.workload, matched.job.are_pods_ready(), matched.options.lifecycle)
    if matched.options.reclaimable_pods:
        changes = (*readiness.reclaim(matched.workload, matched.job.reclaimable()), *changes)
    return (ChangeWorkload(matched.workload, changes),) if changes else CONTINUE


def _evicted(matched: _MatchedJob) -> StepResult:
    evicted = conditions.find(matched.workload.status.conditions, WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != conditions.ConditionStatus.TRUE:
        return CONTINUE
    actions = [*matched.stop(StopReason.WORKLOAD_EVICTED, evicted.message, evicted.reason)]
    if not states.is_reserved(matched.workload):
        actions += _requeued(matched)
    elif not matched.job.is_active() and not (actions and _ends_with_its_pod(matched, evicted.reason)):
        changes = eviction.release(
            matched.workload, matched.options.lifecycle, matched.now, was_started=not matched.job.is_suspended()
        )
        actions.append(ChangeWorkload(matched.workload, changes))
    return (*actions, *_retired(matched, evicted.reason))


def _ends_with_its_pod(matched: _MatchedJob, reason: str) -> bool:
    """The Workload of a single pod that exceeded its maximum execution time is finished with the pod, and keeps its
    reservation until then."""
    over = reason == DeactivationReason.MAXIMUM_EXECUTION_TIME_EXCEEDED.evicted
    return over and matched.options.finish_orphaned and states.is_owned_by_single_pod(matched.workload)


def _retired(matched: _MatchedJob, reason: str) -> Actions:
    """A job whose Workload Kueue deactivated is deleted after `afterDeactivatedByKueue`."""
    keep, since = matched.options.keep_deactivated, states.since(matched.workload, WorkloadCondition.EVICTED)
    if keep is None or since is None or states.is_active(matched.workload) or not reason.startswith("DeactivatedDueTo"):
        return ()
    if matched.now < since + keep:
        return (RequeueAfter(since + keep - matched.now),)
    note = "Deleted job: deactivation retention period expired"
    return (*matched.job.delete(), EmitJobEvent(matched.job.tree, "Deleted", note), *matched.job.finalize())


def _suspended(matched: _MatchedJob) -> StepResult:
    if not matched.job.is_suspended():
        return CONTINUE
    if states.is_admitted(matched.workload):
        return _started(matched)
    if states.is_reserved(matched.workload):
        return _check_messages(matched)
    return _off_hold(matched) or _requeued(matched)


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
    messages = [
        f"{check.name}: {check.message}"
        for check in matched.workload.status.admission_checks
        if check.state == CheckState.PENDING and check.message
    ]
    return (EmitJobEvent(matched.job.tree, "UpdatedAdmissionCheck", "; ".join(messages)),) if messages else ()


def _requeued(matched: _MatchedJob) -> Actions:
    """A Workload without quota follows the queue name of its job."""
    if not matched.job.follows_queue or matched.workload.spec.queue_name == matched.job.queue_name:
        return ()
    return (PatchWorkload(matched.workload, {"spec": {"queueName": matched.job.queue_name or None}}),)


def _running(matched: _MatchedJob) -> StepResult:
    if states.is_admitted(matched.workload):
        # Admitted again while it was being stopped: the stop is completed first, and the next pass starts the job.
        if not matched.job.is_stopping():
            return CONTINUE
        return matched.stop(StopReason.NOT_ADMITTED, "The last stop was not completed")
    if workloads.is_elastic(matched.job, matched.options):
        return CONTINUE
    return matched.stop(StopReason.NOT_ADMITTED, "Not admitted by cluster queue")


_PHASES: Final[tuple[Callable[[_MatchedJob], StepResult], ...]] = (
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
