"""Changes of a Workload as data, and the Workload after they are applied.

    Change
    ├── on the status     SetCondition, DropCondition, SetAdmission, SetChecks, SetCheckConditions, SetRequeue,
    │                     SetPastExecution, SetRequests, SetReclaimable, SetNominations, SetUnhealthyNodes,
    │                     SetPreemptionGates, CountEviction
    ├── on the object     SetActive, SetInactive, MarkParent, UnmarkParent, RemoveFinalizer,
    │                     DeleteWorkload
    └── notifications     EmitEvent, Reserved, Admitted, Evicted, Released, Finished (for metrics)

Changes on the status are one write of the status, those on the object one write of the object; a decision never mixes
the two, because one of two writes can fail. A notification changes nothing: it is published after the write succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery import conditions, meta
from kubemachinery.conditions import Conditions, ConditionStatus
from kubemachinery.meta import Condition, Nanoseconds
from pykueue.api import kueue, labels
from pykueue.api.conditions import DeactivationReason, EvictedReason, FinishedReason, UnderlyingCause, WorkloadCondition

Cause: TypeAlias = UnderlyingCause | DeactivationReason

# --- On the status ----------------------------------------------------------------------------------------------------


class SetCondition(msgspec.Struct, frozen=True):
    """Set one condition. Its transition time changes only with its status [LC16]: it is `at`, or that of the write."""

    type: WorkloadCondition
    status: ConditionStatus
    reason: str
    message: str
    at: Nanoseconds | None = None


class DropCondition(msgspec.Struct, frozen=True):
    type: WorkloadCondition


class SetAdmission(msgspec.Struct, frozen=True):
    """Set `status.admission`; None releases the quota."""

    admission: kueue.Admission | None


class SetChecks(msgspec.Struct, frozen=True):
    checks: tuple[kueue.AdmissionCheckState, ...]


class SetCheckConditions(msgspec.Struct, frozen=True):
    """The states of the checks as conditions."""

    conditions: tuple[Condition, ...]


class SetRequeue(msgspec.Struct, frozen=True):
    """How often the Workload was requeued, and `requeueAt`; an empty state is removed."""

    count: int | None
    at: Nanoseconds | None


class SetPastExecution(msgspec.Struct, frozen=True):
    """The seconds of earlier admissions; None removes the field."""

    seconds: int | None


class SetRequests(msgspec.Struct, frozen=True):
    requests: tuple[kueue.PodSetRequest, ...]


class SetReclaimable(msgspec.Struct, frozen=True):
    pods: tuple[kueue.ReclaimablePod, ...]


class SetNominations(msgspec.Struct, frozen=True):
    """The nominated worker clusters, and the one that runs the Workload."""

    nominated: tuple[str, ...] = ()
    cluster: str | None = None


class SetUnhealthyNodes(msgspec.Struct, frozen=True):
    nodes: tuple[kueue.UnhealthyNode, ...] = ()


class SetPreemptionGates(msgspec.Struct, frozen=True):
    gates: tuple[kueue.PreemptionGateState, ...]


class CountEviction(msgspec.Struct, frozen=True):
    """One more eviction in `status.schedulingStats`."""

    reason: EvictedReason
    cause: Cause = UnderlyingCause.NONE


# --- On the object ----------------------------------------------------------------------------------------------------


class SetInactive(msgspec.Struct, frozen=True):
    """Set `spec.active` to false."""


class SetActive(msgspec.Struct, frozen=True):
    """Set `spec.active` to true."""


class MarkParent(msgspec.Struct, frozen=True):
    """Set the label of a Workload with variants."""


class UnmarkParent(msgspec.Struct, frozen=True):
    """Remove that label."""


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """Remove our finalizer, and no other."""


class DeleteWorkload(msgspec.Struct, frozen=True):
    """Delete the object, if it still has the UID that was read."""


# --- Notifications ----------------------------------------------------------------------------------------------------


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


class EmitEvent(msgspec.Struct, frozen=True):
    """An Event about the Workload. The caller adds the reporting controller."""

    type: EventType
    reason: str
    note: str
    important: bool = False  # written before other Events, and never left out


def normal(reason: str, note: str) -> EmitEvent:
    return EmitEvent(EventType.NORMAL, str(reason), conditions.truncated(note, conditions.MAX_EVENT_MESSAGE_LENGTH))


def warning(reason: str, note: str) -> EmitEvent:
    return EmitEvent(EventType.WARNING, str(reason), conditions.truncated(note, conditions.MAX_EVENT_MESSAGE_LENGTH))


class Reserved(msgspec.Struct, frozen=True):
    """Quota was reserved, `waited` nanoseconds after the Workload was queued."""

    cluster_queue: str
    waited: Nanoseconds


class Admitted(msgspec.Struct, frozen=True):
    """The Workload was admitted: `waited` since it was queued, `checked` since the reservation."""

    cluster_queue: str
    waited: Nanoseconds
    checked: Nanoseconds
    had_checks: bool


class Evicted(msgspec.Struct, frozen=True):
    """A Workload with quota was evicted. `is_first`: for the first time for this reason and cause."""

    cluster_queue: str
    reason: EvictedReason
    cause: Cause
    is_first: bool
    ready_for: Nanoseconds | None = None


class Released(msgspec.Struct, frozen=True):
    """Quota was released, `after` nanoseconds after the eviction."""

    cluster_queue: str
    reason: str
    after: Nanoseconds


class Finished(msgspec.Struct, frozen=True):
    """`executed` is the sum of all admissions; None if it was not admitted when it finished."""

    cluster_queue: str
    reason: FinishedReason
    executed: Nanoseconds | None


StatusChange: TypeAlias = (
    SetCondition
    | DropCondition
    | SetAdmission
    | SetChecks
    | SetCheckConditions
    | SetRequeue
    | SetPastExecution
    | SetRequests
    | SetReclaimable
    | SetNominations
    | SetUnhealthyNodes
    | SetPreemptionGates
    | CountEviction
)
ObjectChange: TypeAlias = SetInactive | SetActive | MarkParent | UnmarkParent | RemoveFinalizer | DeleteWorkload
Notification: TypeAlias = EmitEvent | Reserved | Admitted | Evicted | Released | Finished
Change: TypeAlias = StatusChange | ObjectChange | Notification
Changes: TypeAlias = tuple[Change, ...]

NOTHING: Final[Changes] = ()

# --- By destination ---------------------------------------------------------------------------------------------------

_ON_STATUS: Final = (
    SetCondition,
    DropCondition,
    SetAdmission,
    SetChecks,
    SetCheckConditions,
    SetRequeue,
    SetPastExecution,
    SetRequests,
    SetReclaimable,
    SetNominations,
    SetUnhealthyNodes,
    SetPreemptionGates,
    CountEviction,
)
_ON_OBJECT: Final = (SetInactive, SetActive, MarkParent, UnmarkParent, RemoveFinalizer, DeleteWorkload)
_ON_EITHER: Final = _ON_STATUS + _ON_OBJECT


def on_status(changes: Changes) -> tuple[StatusChange, ...]:
    """The changes of one write of the status."""
    return tuple([change for change in changes if isinstance(change, _ON_STATUS)])


def on_object(changes: Changes) -> tuple[ObjectChange, ...]:
    """The changes of one write of the object itself (and a deletion, which comes last)."""
    return tuple([change for change in changes if isinstance(change, _ON_OBJECT)])


def notifications(changes: Changes) -> tuple[Notification, ...]:
    """What to publish after the writes succeeded."""
    return tuple([change for change in changes if not isinstance(change, _ON_EITHER)])


# --- Applying ---------------------------------------------------------------------------------------------------------


def apply_to(workload: kueue.Workload, changes: Iterable[Change], now: Nanoseconds) -> kueue.Workload:
    """The Workload as it will be written, status and object. A deletion and notifications change nothing."""
    status, spec, metadata = workload.status, workload.spec, workload.metadata
    for change in changes:
        if isinstance(change, _ON_STATUS):
            status = _with(status, change, metadata.generation, now)
            continue
        if not isinstance(change, _ON_OBJECT):
            continue
        match change:
            case SetInactive():
                spec = replace(spec, active=False)
            case SetActive():
                spec = replace(spec, active=True)
            case MarkParent():
                metadata = replace(metadata, labels={**metadata.labels, labels.CONCURRENT_ADMISSION_PARENT: "true"})
            case UnmarkParent():
                others = {k: v for k, v in metadata.labels.items() if k != labels.CONCURRENT_ADMISSION_PARENT}
                metadata = replace(metadata, labels=others)
            case RemoveFinalizer():
                kept = tuple(name for name in metadata.finalizers if name != labels.RESOURCE_IN_USE_FINALIZER)
                metadata = replace(metadata, finalizers=kept)
            case DeleteWorkload():
                pass
    return replace(workload, metadata=metadata, spec=spec, status=status)


def _with(
    status: kueue.WorkloadStatus, change: StatusChange, generation: int, now: Nanoseconds
) -> kueue.WorkloadStatus:
    match change:
        case SetCondition(type, value, reason, message, at):
            since = now if at is None else at
            changed = conditions.set_condition(
                status.conditions, type.value, value, str(reason), message, now=since, generation=generation
            )
            if changed is status.conditions:
                return status
            is_new = len(changed) != len(status.conditions)
            sorts = is_new and (type, value) not in _APPENDED
            return replace(status, conditions=_in_order(changed) if sorts else changed)
        case DropCondition(type):
            return replace(status, conditions=conditions.without(status.conditions, type))
        case SetAdmission(admission):
            return replace(status, admission=admission)
        case SetChecks(checks):
            return replace(status, admission_checks=checks)
        case SetCheckConditions(mirrored):
            return replace(status, admission_checks_conditions=mirrored)
        case SetRequeue(count, at):
            state = kueue.RequeueState(count=count, requeue_at=None if at is None else meta.format_time(at))
            return replace(status, requeue_state=None if state == kueue.RequeueState() else state)
        case SetPastExecution(seconds):
            return replace(status, accumulated_past_execution_time_seconds=seconds)
        case SetRequests(requests):
            return replace(status, resource_requests=requests)
        case SetReclaimable(pods):
            return replace(status, reclaimable_pods=pods)
        case SetNominations(nominated, cluster):
            return replace(status, nominated_cluster_names=nominated, cluster_name=cluster)
        case SetUnhealthyNodes(nodes):
            return replace(status, unhealthy_nodes=nodes)
        case SetPreemptionGates(gates):
            return replace(status, preemption_gates=gates)
        case CountEviction(reason, cause):
            return replace(status, scheduling_stats=_counted(status.scheduling_stats, reason, cause))


# New conditions that are appended, as in Kueue; any other new condition sorts the list.
_APPENDED: Final = frozenset(
    {
        (WorkloadCondition.QUOTA_RESERVED, ConditionStatus.TRUE),
        (WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE),
        (WorkloadCondition.ADMITTED, ConditionStatus.TRUE),
    }
)
_PLACES: Final = {type.value: place for place, type in enumerate(WorkloadCondition)}


def _in_order(found: Conditions) -> Conditions:
    """The conditions in the order of `WorkloadCondition`; conditions of other types come last."""
    return tuple(sorted(found, key=lambda condition: _PLACES.get(condition.type, len(_PLACES))))


def _counted(stats: kueue.SchedulingStats | None, reason: str, cause: str) -> kueue.SchedulingStats:
    before = stats.evictions if stats else ()
    if not any(_is_about(entry, reason, cause) for entry in before):
        before = (*before, kueue.WorkloadSchedulingStatsEviction(reason=reason, underlying_cause=cause, count=0))
    return kueue.SchedulingStats(
        evictions=tuple(
            replace(entry, count=entry.count + 1) if _is_about(entry, reason, cause) else entry for entry in before
        )
    )


def _is_about(entry: kueue.WorkloadSchedulingStatsEviction, reason: str, cause: str) -> bool:
    return entry.reason == reason and entry.underlying_cause == cause
