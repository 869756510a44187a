"""Quota given, given back, or found to hold no longer; and `Admitted`, which follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import AdmittedReason, EvictedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import Admission, Workload
from pykueue.lifecycle import checks, states, workload_changes
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

# What a new reservation ends.
_ENDED: Final = (
    WorkloadCondition.EVICTED,
    WorkloadCondition.PREEMPTED,
    WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES,
)

# The words of before the gate UnadmittedWorkloadsObservability; any other was Pending.
_OLD_WORDS: Final[Mapping[QuotaReservedReason, QuotaReservedReason]] = {
    QuotaReservedReason.MISCONFIGURED: QuotaReservedReason.INADMISSIBLE,
    QuotaReservedReason.SUSPENDED: QuotaReservedReason.INADMISSIBLE,
    QuotaReservedReason.WAITING_FOR_PODS_READY: QuotaReservedReason.WAITING,
    QuotaReservedReason.ADMISSION_GATED: QuotaReservedReason.ADMISSION_GATED,
    QuotaReservedReason.ON_HOLD: QuotaReservedReason.ON_HOLD,
}


def word(reason: QuotaReservedReason, options: LifecycleOptions) -> QuotaReservedReason:
    """The reason as it is written: with the gate off, in the older and fewer words."""
    return reason if options.observability else _OLD_WORDS.get(reason, QuotaReservedReason.PENDING)


# --- Given ------------------------------------------------------------------------------------------------------------


def reserve(
    workload: Workload,
    admission: Admission,
    required_checks: Iterable[str],
    options: LifecycleOptions,
    now: Nanoseconds,
    *,
    note: str = "",
) -> Changes:
    """What the scheduler writes, all at once: the quota, the checks to pass and, where none is left, Admitted.

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
    news: Changes = (
        *ungated(workload),
        Reserved(queue, waited),
        workload_changes.normal("QuotaReserved", f"{text}; {note}" if note else text),
    )
    return (*made, *news, *admitted(workload_changes.apply_to(workload, made, now), options, now))


def _seconds(lasted: Nanoseconds) -> int:
    """Whole seconds; a half is rounded to the even one, as Go's `%.0f` does."""
    return round(lasted / SECOND)


def _ended(workload: Workload, type: WorkloadCondition) -> SetCondition:
    found = conditions.find(workload.status.conditions, type)
    before = found.message if found else ""
    return SetCondition(type, ConditionStatus.FALSE, QuotaReservedReason.QUOTA_RESERVED, f"Previously: {before}")


def ungated(workload: Workload) -> Changes:
    """What is told when the reason to wait changes: that nobody holds the admission back any more, if somebody did."""
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
    """A second pass that worked: the placement, and no node that waits to be replaced. Nobody is told a second time.

    What was given stays as it was written, though fewer pods may be left by now: it cannot be changed while it is held.
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


# --- Given back -------------------------------------------------------------------------------------------------------


def clear(
    workload: Workload, reason: QuotaReservedReason, message: str, options: LifecycleOptions, now: Nanoseconds
) -> Changes:
    """Without quota, for this reason; what it held is given back, without an eviction."""
    said = SetCondition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, word(reason, options), message)
    made: Changes = (said, *((SetAdmission(None),) if workload.status.admission else ()))
    return (*made, *admitted(workload_changes.apply_to(workload, made, now), options, now))


def give_up(workload: Workload, message: str, options: LifecycleOptions, now: Nanoseconds) -> Changes:
    """A reservation that no longer holds when the last check turns Ready: back to the queue, the checks asked anew."""
    anew = checks.with_checks(workload, checks.reset(workload.status.admission_checks, now))
    after = workload_changes.apply_to(workload, anew, now)
    return (*anew, *clear(after, QuotaReservedReason.PENDING_EVALUATION, message, options, now))


# --- Admitted ---------------------------------------------------------------------------------------------------------


def admitted(workload: Workload, options: LifecycleOptions, now: Nanoseconds) -> Changes:
    """`Admitted` as it follows from the rest of the status, with the time banked when it ends."""
    status, reason, message = _verdict(workload, options)
    before = conditions.find(workload.status.conditions, WorkloadCondition.ADMITTED)
    was, becomes = states.is_admitted(workload), status is ConditionStatus.TRUE
    if not becomes and before is None and not _may_say_no(workload, options):
        return workload_changes.NOTHING
    if was == becomes and before is not None and (not options.observability or before.reason == reason):
        return workload_changes.NOTHING
    said: Changes = (SetCondition(WorkloadCondition.ADMITTED, status, reason, message),)
    if becomes and not was:
        return (*said, *_admission_news(workload, now))
    return (*said, *_banked(workload, now)) if was and not becomes else said


def _verdict(workload: Workload, options: LifecycleOptions) -> tuple[ConditionStatus, AdmittedReason, str]:
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
        words = (AdmittedReason.UNSATISFIED_CHECKS, AdmittedReason.UNSATISFIED_ADMISSION_CHECKS)
        return ConditionStatus.FALSE, words[options.observability], "The workload has not all checks ready"
    if states.is_topology_pending(workload):
        return (
            ConditionStatus.FALSE,
            AdmittedReason.PENDING_DELAYED_TOPOLOGY_REQUESTS,
            "There are pending delayed topology requests",
        )
    return ConditionStatus.TRUE, AdmittedReason.ADMITTED, "The workload is admitted"


def _may_say_no(workload: Workload, options: LifecycleOptions) -> bool:
    """A Workload of which nothing was ever said is not given a No, unless people asked for it."""
    said = conditions.find(workload.status.conditions, WorkloadCondition.QUOTA_RESERVED) is not None
    return options.observability and (said or options.explicit_status)


def _admission_news(workload: Workload, now: Nanoseconds) -> Changes:
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


def _banked(workload: Workload, now: Nanoseconds) -> Changes:
    """The time of the admission that ends, added to that of earlier ones.

    Not so for a Workload that ends because its time is up: its account was closed then, and when somebody activates it
    again it has its full time.
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
