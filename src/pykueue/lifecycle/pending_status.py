"""What is written for a Workload that a scheduling cycle did not admit."""

from __future__ import annotations

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Nanoseconds
from pykueue.api.conditions import BlockedOnPreemptionGatesReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import PodSetRequest, Workload
from pykueue.lifecycle import reservation, workload_changes
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.workload_changes import Changes, EmitEvent, SetCondition, SetRequests


def wait(
    workload: Workload,
    reason: QuotaReservedReason,
    message: str,
    requests: tuple[PodSetRequest, ...],
    options: LifecycleOptions,
    now: Nanoseconds,
    *,
    gated: bool = False,
    emit_event: bool = True,
) -> Changes:
    """The status after a cycle that did not admit the Workload. `gated`: closed preemption gates blocked it.

    The Event is emitted for every attempt, also when the status does not change [LC33]. `emit_event` is off for a head
    that only waits for the pods of other Workloads and is evaluated again in the same cycle.
    """
    return (
        *reservation.clear(workload, reason, message, options, now),
        *((SetRequests(requests),) if requests != workload.status.resource_requests else ()),
        *((_gated(message),) if gated else ()),
        *reservation.ungated(workload),
        *((failed_attempt_event(reason, message, options),) if emit_event else ()),
    )


def is_only_reason(changes: Changes) -> bool:
    """Whether the changes only have the reason why a Workload without quota is pending."""
    return bool(changes) and all(
        isinstance(each, SetCondition)
        and each.type is WorkloadCondition.QUOTA_RESERVED
        and each.status is ConditionStatus.FALSE
        for each in changes
    )


def _gated(message: str) -> SetCondition:
    return SetCondition(
        WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
        ConditionStatus.TRUE,
        BlockedOnPreemptionGatesReason.PREEMPTION_GATED,
        message,
    )


def failed_attempt_event(reason: QuotaReservedReason, message: str, options: LifecycleOptions) -> EmitEvent:
    """The Event of an attempt that failed [LC33]."""
    shown = reason if options.observability else QuotaReservedReason.PENDING
    return workload_changes.warning(shown, message)
