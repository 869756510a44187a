"""Quota reserved, released, or no longer available; and `Admitted`, which follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import AdmittedReason, EvictedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import Admission, Workload
from pykueue.lifecycle import checks, readiness, states, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import (
    Admitted,
    Changes,
    Reserved,
    SetAdmission,
    SetCondition,
    SetPastExecution,
    SetRequests,
    SetUnhealthyNodes,
)

_LONGEST_SECONDS: Final = 2**31 - 1

# The conditions that a new reservation sets to False.
_ENDED: Final = (
    WorkloadCondition.EVICTED,
    WorkloadCondition.PREEMPTED,
    WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
)

# The reasons without the gate UnadmittedWorkloadsObservability; any other is Pending [LC32].
_OLD_REASONS: Final[Mapping[QuotaReservedReason, QuotaReservedReason]] = {
    QuotaReservedReason.MISCONFIGURED: QuotaReservedReason.INADMISSIBLE,
    QuotaReservedReason.SUSPENDED: QuotaReservedReason.INADMISSIBLE,
    QuotaReservedReason.WAITING_FOR_PODS_READY: QuotaReservedReason.WAITING,
    QuotaReservedReason.ADMISSION_GATED: QuotaReservedReason.ADMISSION_GATED,
    QuotaReservedReason.ON_HOLD: QuotaReservedReason.ON_HOLD,
}


def written_reason(reason: QuotaReservedReason, options: LifecycleOptions) -> QuotaReservedReason:
    """The reason as it is written: with the gate off, one of the older reasons."""
    return reason if options.observability else _OLD_REASONS.get(reason, QuotaReservedReason.PENDING)


# --- Reserved ---------------------------------------------------------------------------------------------------------


def reserve(
    workload: Workload,
    admission: Admission,
    required_checks: Iterable[str],
    options: LifecycleOptions,
    now: Nanoseconds,
    *,
    note: str = "",
) -> Changes:
    """What the scheduler writes at once: the quota, the required checks and, if none is open, Admitted [LC20].

    `required_checks` are those of the assigned flavors (`checks.required`). `note` is added to the Event.
    """
    queue, waited = admission.cluster_queue, max(0, now - states.queued_since(workload))
    made: Changes = (
        SetAdmission(admission),
        SetCondition(
            WorkloadCondition.QUOTA_RESERVED,
            ConditionStatus.TRUE,
            QuotaReservedReason.QUOTA_RESERVED,
            f"Quota reserved in ClusterQueue {queue}",
        ),
        *(_ended(workload, type) for type in _ENDED if states.has(workload, type)),
        *((SetRequests(()),) if workload.status.resource_requests else ()),
        *checks.synced(workload, tuple(sorted(set(required_checks))), now),
    )
    text = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {_seconds(waited)}s"
    notifications: Changes = (
        *ungated(workload),
        Reserved(queue, waited),
        workload_changes.normal("QuotaReserved", f"{text}; {note}" if note else text),
    )
    return (*made, *notifications, *admitted(workload_changes.apply_to(workload, made, now), options, now))


def _seconds(lasted: Nanoseconds) -> int:
    """Whole seconds; a half is rounded to the even one, as Go's `%.0f` does."""
    return round(lasted / SECOND)


def _ended(workload: Workload, type: WorkloadCondition) -> SetCondition:
    found = conditions.find(workload.status.conditions, type)
    before = found.message if found else ""
    return SetCondition(type, ConditionStatus.FALSE, QuotaReservedReason.QUOTA_RESERVED, f"Previously: {before}")


def ungated(workload: Workload) -> Changes:
    """The Event that the admission gate was cleared, where the Workload was gated before."""
    before = conditions.find(workload.status.conditions, WorkloadCondition.QUOTA_RESERVED)
    was_gated = before is not None and before.reason == QuotaReservedReason.ADMISSION_GATED
    if (
        not was_gated
        or states.is_gated(workload)
        or states.has(workload, WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES)
    ):
        return workload_changes.NOTHING
    return (workload_changes.normal("AdmissionGateCleared", "Admission gate cleared, workload is now admissible"),)


def repair(workload: Workload, found: Admission) -> Changes:
    """A successful second pass: the topology assignment is set and `unhealthyNodes` cleared, without an Event [LC25].

    The assigned flavors and counts stay as they are: they cannot change while quota is reserved.
    """
    given = workload.status.admission
    if given is None:
        return workload_changes.NOTHING
    placed = {each.name: each for each in found.pod_set_assignments}
    repaired = replace(
        given,
        pod_set_assignments=tuple(
            replace(
                each,
                topology_assignment=placed[each.name].topology_assignment,
                delayed_topology_request=placed[each.name].delayed_topology_request,
            )
            for each in given.pod_set_assignments
        ),
    )
    return (
        *((SetAdmission(repaired),) if repaired != given else ()),
        *((SetUnhealthyNodes(),) if workload.status.unhealthy_nodes else ()),
    )


# --- Released ---------------------------------------------------------------------------------------------------------


def clear(
    workload: Workload, reason: QuotaReservedReason, message: str, options: LifecycleOptions, now: Nanoseconds
) -> Changes:
    """Clear the reservation for this reason, without an eviction [LC24]."""
    condition = SetCondition(
        WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, written_reason(reason, options), message
    )
    made: Changes = (condition, *((SetAdmission(None),) if workload.status.admission else ()))
    return (*made, *admitted(workload_changes.apply_to(workload, made, now), options, now))


def off_hold(workload: Workload, options: LifecycleOptions, now: Nanoseconds) -> Changes:
    """A Workload that its owner held may get quota again."""
    message = "Workload no longer on hold; waiting for quota reservation"
    return clear(workload, QuotaReservedReason.PENDING_EVALUATION, message, options, now)


def give_up(workload: Workload, message: str, options: LifecycleOptions, now: Nanoseconds) -> Changes:
    """A reservation that no longer holds when the last check turns Ready [LC22]: requeued, with its checks reset."""
    reset = checks.with_checks(workload, checks.reset(workload.status.admission_checks, now))
    after = workload_changes.apply_to(workload, reset, now)
    return (*reset, *clear(after, QuotaReservedReason.PENDING_EVALUATION, message, options, now))


# --- Admitted ---------------------------------------------------------------------------------------------------------


def admitted(workload: Workload, options: LifecycleOptions, now: Nanoseconds) -> Changes:
    """`Admitted` as it follows from the rest of the status [LC21], with the execution time when it ends. A recovery of
    pods of an earlier admission ends when it begins [LC51]."""
    status, reason, message = _admitted_condition(workload, options)
    before = conditions.find(workload.status.conditions, WorkloadCondition.ADMITTED)
    was, becomes = states.is_admitted(workload), status is ConditionStatus.TRUE
    if not becomes and before is None and not _may_write_false(workload, options):
        return workload_changes.NOTHING
    if was == becomes and before is not None and (not options.observability or before.reason == reason):
        return workload_changes.NOTHING
    condition: Changes = (SetCondition(WorkloadCondition.ADMITTED, status, reason, message),)
    if becomes and not was:
        return (*condition, *readiness.at_admission(workload, options), *_admission_notifications(workload, now))
    return (*condition, *_execution_time(workload, now)) if was and not becomes else condition


def _admitted_condition(workload: Workload, options: LifecycleOptions) -> tuple[ConditionStatus, AdmittedReason, str]:
    ready = states.are_checks_ready(workload)
    if not states.is_reserved(workload):
        if not options.observability and not ready:
            return (
                ConditionStatus.FALSE,
                AdmittedReason.NO_RESERVATION_UNSATISFIED_CHECKS,
                "The workload has no reservation and not all checks ready",
            )
        return ConditionStatus.FALSE, AdmittedReason.NO_RESERVATION, "The workload has no reservation"
    if not ready:
        reasons = (AdmittedReason.UNSATISFIED_CHECKS, AdmittedReason.UNSATISFIED_ADMISSION_CHECKS)
        return ConditionStatus.FALSE, reasons[options.observability], "The workload has not all checks ready"
    if states.is_topology_pending(workload):
        return (
            ConditionStatus.FALSE,
            AdmittedReason.PENDING_DELAYED_TOPOLOGY_REQUESTS,
            "There are pending delayed topology requests",
        )
    return ConditionStatus.TRUE, AdmittedReason.ADMITTED, "The workload is admitted"


def _may_write_false(workload: Workload, options: LifecycleOptions) -> bool:
    """A new Workload gets no condition, unless UnadmittedWorkloadsExplicitStatus is on [LC18]."""
    has_status = conditions.find(workload.status.conditions, WorkloadCondition.QUOTA_RESERVED) is not None
    return options.observability and (has_status or options.explicit_status)


def _admission_notifications(workload: Workload, now: Nanoseconds) -> Changes:
    waited = max(0, now - states.queued_since(workload))
    reserved_at = states.since(workload, WorkloadCondition.QUOTA_RESERVED)
    checked = max(0, now - (now if reserved_at is None else reserved_at)) // SECOND * SECOND
    queue = states.cluster_queue(workload)
    return (
        Admitted(queue, waited, checked, had_checks=bool(workload.status.admission_checks)),
        workload_changes.normal(
            "Admitted",
            f"Admitted by ClusterQueue {queue}, wait time since reservation was {checked // SECOND}s",
        ),
    )


def _execution_time(workload: Workload, now: Nanoseconds) -> Changes:
    """The time of the admission that ends, added to that of earlier ones [LC23].

    Not for a Workload that exceeded its maximum execution time: the sum was reset then, and a reactivated Workload has
    its full time again [LC56].
    """
    evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
    if (
        evicted is not None
        and evicted.status == ConditionStatus.TRUE
        and evicted.reason == EvictedReason.DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED
    ):
        return workload_changes.NOTHING
    began = states.since(workload, WorkloadCondition.ADMITTED)
    seconds = 0 if began is None else max(0, now - began) // SECOND
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return (SetPastExecution(min(_LONGEST_SECONDS, past + seconds)),)
