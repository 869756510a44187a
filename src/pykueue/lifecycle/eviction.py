"""The one way in which a Workload is evicted, and how it is requeued.

An eviction starts with a status write and ends with another. In between the quota stays reserved, because the job is
still stopping; only the job reconciler knows when it has stopped. A Workload without a job therefore stays evicted and
reserved until another client clears it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Nanoseconds, format_time
from pykueue.api import labels
from pykueue.api.conditions import (
    EvictedReason,
    PreemptedReason,
    QuotaReservedReason,
    UnderlyingCause,
    WorkloadCondition,
)
from pykueue.api.kueue import PreemptionGatePosition, Workload
from pykueue.lifecycle import checks, reservation, states, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import (
    Cause,
    Changes,
    CountEviction,
    Evicted,
    Released,
    SetCondition,
    SetNominations,
    SetPreemptionGates,
    SetUnhealthyNodes,
)

# After these reasons a Workload is requeued at once; after others it waits for what the reason names [LC49].
_AT_ONCE: Final = frozenset({EvictedReason.PREEMPTED, EvictedReason.NODE_FAILURES, EvictedReason.QUOTA_WITHDRAWN})
# The queue was drained; the Workload is not evaluated before the queue is restarted.
_DRAINED: Final = frozenset({EvictedReason.LOCAL_QUEUE_STOPPED, EvictedReason.CLUSTER_QUEUE_STOPPED})


def is_deactivation(reason: str) -> bool:
    """Whether the reason of Evicted or Requeued is a deactivation, for any cause."""
    return reason.startswith(EvictedReason.DEACTIVATED)


def evict(
    workload: Workload,
    reason: EvictedReason,
    message: str,
    now: Nanoseconds,
    *,
    cause: Cause = UnderlyingCause.NONE,
) -> Changes:
    """Start an eviction [LC35]. The quota stays reserved until the job has stopped and `release` is written.

    For a deactivation with a cause, `reason` is the `DeactivatedDueTo…` that is stored; `schedulingStats` has
    reason and cause apart.
    """
    status = workload.status
    counted = EvictedReason.DEACTIVATED if is_deactivation(reason) else reason
    made: Changes = (
        SetCondition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, reason, message),
        *((SetNominations(),) if status.cluster_name or status.nominated_cluster_names else ()),
        *checks.with_checks(workload, checks.reset(status.admission_checks, now)),
        *((SetUnhealthyNodes(),) if status.unhealthy_nodes else ()),
        *_gates_closed(workload, reason, message, now),
        CountEviction(counted, cause),
    )
    if status.admission is None:
        return made
    ready_since = states.since(workload, WorkloadCondition.PODS_READY)
    was_ready = states.has(workload, WorkloadCondition.PODS_READY) and ready_since is not None
    return (
        *made,
        Evicted(
            status.admission.cluster_queue,
            counted,
            cause,
            is_first=not _was_evicted_before(workload, counted, cause),
            ready_for=max(0, now - (ready_since or 0)) if was_ready else None,
        ),
        workload_changes.normal(f"EvictedDueTo{reason}", message),
    )


def _gates_closed(workload: Workload, reason: EvictedReason, message: str, now: Nanoseconds) -> Changes:
    gates = workload.status.preemption_gates
    closed = tuple(
        gate
        if gate.position == PreemptionGatePosition.CLOSED
        else replace(gate, position=PreemptionGatePosition.CLOSED.value, last_transition_time=format_time(now))
        for gate in gates
    )
    blocked = states.has(workload, WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES)
    unblocked = SetCondition(WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES, ConditionStatus.FALSE, reason, message)
    return (
        *((unblocked,) if blocked else ()),
        *((SetPreemptionGates(closed),) if closed != gates else ()),
    )


def _was_evicted_before(workload: Workload, reason: str, cause: str) -> bool:
    stats = workload.status.scheduling_stats
    return stats is not None and any(
        entry.count > 0 and (entry.reason, entry.underlying_cause) == (reason, cause) for entry in stats.evictions
    )


_DUE_TO: Final[Mapping[PreemptedReason, str]] = {
    PreemptedReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptedReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptedReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}
_UNKNOWN: Final = "UNKNOWN"


def preemption_message(
    preemptor: Workload | None, reason: PreemptedReason, preemptor_path: str, preemptee_path: str
) -> str:
    """The message of a preempted Workload; scripts parse the UIDs. Paths name the cohorts from the root."""
    uid = (preemptor.metadata.uid if preemptor is not None else "") or _UNKNOWN
    job_uid = (preemptor.metadata.labels.get(labels.JOB_UID) if preemptor is not None else "") or _UNKNOWN
    paths = f"preemptor path: {preemptor_path or _UNKNOWN}; preemptee path: {preemptee_path or _UNKNOWN}"
    cause = _DUE_TO.get(reason, _UNKNOWN)
    return f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to {cause}; {paths}"


def preempt(workload: Workload, reason: PreemptedReason, message: str, now: Nanoseconds, *, note: str = "") -> Changes:
    """Evict a preemption target [LC40]. No changes if it is evicted already. `note` is the message of the Event
    Preempted, where it differs from that of the conditions."""
    if states.is_evicted(workload):
        return workload_changes.NOTHING
    return (
        SetCondition(WorkloadCondition.PREEMPTED, ConditionStatus.TRUE, reason, message),
        *evict(workload, EvictedReason.PREEMPTED, message, now),
        workload_changes.normal("Preempted", note or message),
    )


def release(workload: Workload, options: LifecycleOptions, now: Nanoseconds, *, was_started: bool = True) -> Changes:
    """The job of an evicted Workload is not active: release the quota and set Requeued [LC48], [LC49].

    `was_started`: the job was started under this reservation, also if it has been stopped by now. A Workload without
    quota releases none, and its condition Requeued stays as it is.
    """
    evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != ConditionStatus.TRUE or not states.is_reserved(workload):
        return workload_changes.NOTHING
    # A pod cannot be started twice, so the Workload of a single pod is not requeued; unless the pod is still gated.
    # That is not the same as not admitted: the eviction may come between the admission and the removal of the gate.
    is_pod = options.skip_reassignment_for_pod_owned and states.is_owned_by_single_pod(workload)
    at_once = evicted.reason in _AT_ONCE and not (is_pod and was_started)
    since = states.moment(evicted.last_transition_time)
    return (
        SetCondition(
            WorkloadCondition.REQUEUED,
            ConditionStatus.TRUE if at_once else ConditionStatus.FALSE,
            evicted.reason or EvictedReason.DEACTIVATED,
            evicted.message,
        ),
        *reservation.clear(workload, _waits_for(workload, evicted.reason), evicted.message, options, now),
        Released(states.cluster_queue(workload), evicted.reason, after=max(0, now - (now if since is None else since))),
    )


def released(before: Workload, after: Workload, now: Nanoseconds) -> Released | None:
    """The release of an evicted Workload's quota between two observed states, by any client; None if there was none.

    As in Kueue, the release of a deactivated or finished Workload does not count: it does not wait for quota again.
    """
    evicted = conditions.find(after.status.conditions, WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != ConditionStatus.TRUE or not states.is_active(after):
        return None
    was_pending = states.is_finished(before) or not (states.is_admitted(before) or states.is_reserved(before))
    is_pending = not (states.is_finished(after) or states.is_admitted(after) or states.is_reserved(after))
    if was_pending or not is_pending or not states.cluster_queue(before):
        return None
    since = states.moment(evicted.last_transition_time)
    return Released(states.cluster_queue(before), evicted.reason, after=max(0, now - (now if since is None else since)))


def _waits_for(workload: Workload, evicted: str) -> QuotaReservedReason:
    if not states.is_active(workload):
        return QuotaReservedReason.DEACTIVATED
    return QuotaReservedReason.SUSPENDED if evicted in _DRAINED else QuotaReservedReason.PENDING_EVALUATION
