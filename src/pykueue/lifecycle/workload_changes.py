"""The changes as data, and what a Workload looks like once they are made.

    Change
    ├── on the status     SetCondition, DropCondition, SetAdmission, SetChecks, SetCheckConditions, SetRequeue,
    │                     SetPastExecution, SetRequests, SetReclaimable, SetNominations, SetUnhealthyNodes,
    │                     SetPreemptionGates, CountEviction
    ├── on the object     Deactivate, Activate, MarkParent, UnmarkParent, RemoveFinalizer, Delete
    └── news              Tell (an Event), Reserved, Admitted, Evicted, Released, Finished (for metrics)

Changes on the status travel in one write of the status, those on the object in one of the object; a decision never
mixes the two, because one of two writes can fail. News changes nothing: it is told once the write has worked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec.structs import replace

from kubemachinery import conditions, meta
from kubemachinery.conditions import Conditions, ConditionStatus
from kubemachinery.meta import Condition, Nanoseconds
from pykueue.api import kueue, labels
from pykueue.api.conditions import DeactivationReason, EvictedReason, FinishedReason, UnderlyingCause, WorkloadCondition

Cause: TypeAlias = UnderlyingCause | DeactivationReason

# --- On the status ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Say one condition. Its transition time moves only when the status does."""

    type: WorkloadCondition
    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class DropCondition:
    type: WorkloadCondition


@dataclass(frozen=True, slots=True)
class SetAdmission:
    """What the Workload holds; None gives it back."""

    admission: kueue.Admission | None


@dataclass(frozen=True, slots=True)
class SetChecks:
    checks: tuple[kueue.AdmissionCheckState, ...]


@dataclass(frozen=True, slots=True)
class SetCheckConditions:
    """The answers of the checks in the form of conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class SetRequeue:
    """How often the Workload was put back and when it may come again; an empty one is left out."""

    count: int | None
    at: Nanoseconds | None


@dataclass(frozen=True, slots=True)
class SetPastExecution:
    """The seconds spent in earlier admissions; None forgets them."""

    seconds: int | None


@dataclass(frozen=True, slots=True)
class SetRequests:
    requests: tuple[kueue.PodSetRequest, ...]


@dataclass(frozen=True, slots=True)
class SetReclaimable:
    pods: tuple[kueue.ReclaimablePod, ...]


@dataclass(frozen=True, slots=True)
class SetNominations:
    """The worker clusters that may try, and the one that has it."""

    nominated: tuple[str, ...] = ()
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class SetUnhealthyNodes:
    nodes: tuple[kueue.UnhealthyNode, ...] = ()


@dataclass(frozen=True, slots=True)
class SetPreemptionGates:
    gates: tuple[kueue.PreemptionGateState, ...]


@dataclass(frozen=True, slots=True)
class CountEviction:
    """One more eviction in `status.schedulingStats`."""

    reason: EvictedReason
    cause: Cause = UnderlyingCause.NONE


# --- On the object ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeactivateWorkload:
    """Set `spec.active` to false."""


@dataclass(frozen=True, slots=True)
class ActivateWorkload:
    """Set `spec.active` to true."""


@dataclass(frozen=True, slots=True)
class MarkParent:
    """Set the label of a Workload that is tried on several flavors at once by its variants."""


@dataclass(frozen=True, slots=True)
class UnmarkParent:
    """Remove that label."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Take our finalizer off, and no other."""


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete the object, if it is still the one that was looked at."""


# --- News -------------------------------------------------------------------------------------------------------------


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An Event about the Workload. Who reports it is the caller's name."""

    type: EventType
    reason: str
    note: str
    important: bool = False  # written before other Events, and never left out


def normal(reason: str, note: str) -> EmitEvent:
    return EmitEvent(EventType.NORMAL, str(reason), conditions.truncated(note, conditions.MAX_EVENT_MESSAGE_LENGTH))


def warning(reason: str, note: str) -> EmitEvent:
    return EmitEvent(EventType.WARNING, str(reason), conditions.truncated(note, conditions.MAX_EVENT_MESSAGE_LENGTH))


@dataclass(frozen=True, slots=True)
class Reserved:
    """Quota was reserved, `waited` nanoseconds after the Workload was queued."""

    cluster_queue: str
    waited: Nanoseconds


@dataclass(frozen=True, slots=True)
class Admitted:
    """`waited` counts from queueing, `checked` from reservation: the time that checks took."""

    cluster_queue: str
    waited: Nanoseconds
    checked: Nanoseconds
    had_checks: bool


@dataclass(frozen=True, slots=True)
class Evicted:
    """A Workload that held quota has to give it up. `is_first`: never before for this reason and cause."""

    cluster_queue: str
    reason: EvictedReason
    cause: Cause
    is_first: bool
    ready_for: Nanoseconds | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Quota was given back, `after` nanoseconds after the eviction."""

    cluster_queue: str
    reason: str
    after: Nanoseconds


@dataclass(frozen=True, slots=True)
class Finished:
    """`executed` is the time admitted, all admissions together; None when it was not admitted in the end."""

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
ObjectChange: TypeAlias = (
    DeactivateWorkload | ActivateWorkload | MarkParent | UnmarkParent | RemoveFinalizer | DeleteWorkload
)
Notification: TypeAlias = EmitEvent | Reserved | Admitted | Evicted | Released | Finished
Change: TypeAlias = StatusChange | ObjectChange | Notification
Changes: TypeAlias = tuple[Change, ...]

NOTHING: Final[Changes] = ()

# --- Reading them -----------------------------------------------------------------------------------------------------

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
_ON_OBJECT: Final = (DeactivateWorkload, ActivateWorkload, MarkParent, UnmarkParent, RemoveFinalizer, DeleteWorkload)


def on_status(changes: Changes) -> tuple[StatusChange, ...]:
    """What goes into one write of the status."""
    return tuple(change for change in changes if isinstance(change, _ON_STATUS))


def on_object(changes: Changes) -> tuple[ObjectChange, ...]:
    """What goes into one write of the object itself (and a deletion, which comes last)."""
    return tuple(change for change in changes if isinstance(change, _ON_OBJECT))


def notifications(changes: Changes) -> tuple[Notification, ...]:
    """What to tell once the writes have worked."""
    return tuple(change for change in changes if not isinstance(change, _ON_STATUS + _ON_OBJECT))


# --- Making them ------------------------------------------------------------------------------------------------------


def apply_to(workload: kueue.Workload, changes: Iterable[Change], now: Nanoseconds) -> kueue.Workload:
    """The Workload as it will be written, its status and itself. A deletion and news leave it as it is."""
    status, spec, metadata = workload.status, workload.spec, workload.metadata
    for change in changes:
        match change:
            case DeactivateWorkload():
                spec = replace(spec, active=False)
            case ActivateWorkload():
                spec = replace(spec, active=True)
            case MarkParent():
                metadata = replace(metadata, labels={**metadata.labels, labels.CONCURRENT_ADMISSION_PARENT: "true"})
            case UnmarkParent():
                others = {k: v for k, v in metadata.labels.items() if k != labels.CONCURRENT_ADMISSION_PARENT}
                metadata = replace(metadata, labels=others)
            case RemoveFinalizer():
                kept = tuple(name for name in metadata.finalizers if name != labels.RESOURCE_IN_USE_FINALIZER)
                metadata = replace(metadata, finalizers=kept)
            case DeleteWorkload() | EmitEvent() | Reserved() | Admitted() | Evicted() | Released() | Finished():
                pass
            case _:
                status = _with(status, change, metadata.generation, now)
    return replace(workload, metadata=metadata, spec=spec, status=status)


def _with(
    status: kueue.WorkloadStatus, change: StatusChange, generation: int, now: Nanoseconds
) -> kueue.WorkloadStatus:
    match change:
        case SetCondition(type, value, reason, message):
            said = conditions.set_condition(
                status.conditions, type.value, value, str(reason), message, now=now, generation=generation
            )
            if said is status.conditions:
                return status
            is_new = len(said) != len(status.conditions)
            return replace(status, conditions=_in_order(said) if is_new and (type, value) not in _ADDED else said)
        case DropCondition(type):
            return replace(status, conditions=conditions.without(status.conditions, type))
        case SetAdmission(admission):
            return replace(status, admission=admission)
        case SetChecks(checks):
            return replace(status, admission_checks=checks)
        case SetCheckConditions(answers):
            return replace(status, admission_checks_conditions=answers)
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


# What comes with the quota is added to what others have said already; what comes later puts all in order.
_ADDED: Final = frozenset(
    {
        (WorkloadCondition.QUOTA_RESERVED, ConditionStatus.TRUE),
        (WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE),
        (WorkloadCondition.ADMITTED, ConditionStatus.TRUE),
    }
)
_PLACES: Final = {type.value: place for place, type in enumerate(WorkloadCondition)}


def _in_order(said: Conditions) -> Conditions:
    """The conditions as whoever reads them one after the other expects them; what others have said comes last."""
    return tuple(sorted(said, key=lambda condition: _PLACES.get(condition.type, len(_PLACES))))


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
