"""Predicates of one Workload, its states [LC1], and the legal transitions [LC2].

A state is read from the conditions alone, in this order, and never from `status.admission`:

    finished     Finished is True. Nothing comes after it.
    evicted      Evicted is True and quota is still reserved: the job has not stopped yet.
    admitted     Admitted is True: the job may run.
    reserved     QuotaReserved is True: checks, or a topology assignment, are open.
    pending      none of these.

    from \\ to    pending  reserved  admitted  evicted  finished
    pending         ·        x         x                   x      admitted in the same write if no check is open
    reserved        x        ·         x         x         x      to pending: a stopped queue, a gate, a lost claim
    admitted        x                  ·         x         x      to pending: a gate, a hold by its owner
    evicted         x                            ·         x      to pending: its job has stopped
    finished                                               ·

A Workload that is evicted, or deactivated, without quota stays pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kubemachinery import conditions, meta
from kubemachinery.meta import Nanoseconds, TimeText
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, QuotaReservedReason, WorkloadCondition
from pykueue.api.kueue import CheckState, Workload

# --- States and moves -------------------------------------------------------------------------------------------------


class State(StrEnum):
    PENDING = "pending"
    RESERVED = "quotaReserved"
    ADMITTED = "admitted"
    EVICTED = "evicted"
    FINISHED = "finished"


MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.PENDING, State.RESERVED, State.ADMITTED, State.FINISHED}),
    State.RESERVED: frozenset(State),
    State.ADMITTED: frozenset({State.PENDING, State.ADMITTED, State.EVICTED, State.FINISHED}),
    State.EVICTED: frozenset({State.PENDING, State.EVICTED, State.FINISHED}),
    State.FINISHED: frozenset({State.FINISHED}),
}


class IllegalMove(Exception):
    """A transition that is not legal. The message has the conditions before and after."""

    def __init__(self, before: Workload, after: Workload) -> None:
        self.before, self.after = before, after
        super().__init__(
            f"Workload {key(before)} cannot change from {state(before)} to {state(after)}; conditions"
            f" before: {condition_summary(before)}; after: {condition_summary(after)}"
        )


def state(workload: Workload) -> State:
    if is_finished(workload):
        return State.FINISHED
    if is_reserved(workload):
        if is_evicted(workload):
            return State.EVICTED
        return State.ADMITTED if is_admitted(workload) else State.RESERVED
    return State.PENDING


# The condition and the status by which a state is defined.
_CONDITION_OF: Final[Mapping[State, tuple[WorkloadCondition, conditions.ConditionStatus]]] = {
    State.FINISHED: (WorkloadCondition.FINISHED, conditions.ConditionStatus.TRUE),
    State.EVICTED: (WorkloadCondition.EVICTED, conditions.ConditionStatus.TRUE),
    State.ADMITTED: (WorkloadCondition.ADMITTED, conditions.ConditionStatus.TRUE),
    State.RESERVED: (WorkloadCondition.QUOTA_RESERVED, conditions.ConditionStatus.TRUE),
    State.PENDING: (WorkloadCondition.QUOTA_RESERVED, conditions.ConditionStatus.FALSE),
}


def state_condition(workload: Workload) -> meta.Condition | None:
    """The condition that defines the state, the only one of which the message may be shown with the state.

    Other conditions stay True longer: Evicted, for one, until the next reservation. For a deactivated Workload it is
    the eviction that deactivated it, and none if it was not evicted.
    """
    now = state(workload)
    type_, status = _CONDITION_OF[now]
    if now is State.PENDING and not workload.spec.active:
        found = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
        is_cause = found is not None and found.reason.startswith(EvictedReason.DEACTIVATED)
        return found if is_cause and is_evicted(workload) else None
    found = conditions.find(workload.status.conditions, type_)
    return found if found is not None and found.status == status else None


def check_move(before: Workload, after: Workload) -> None:
    """Raise `IllegalMove` unless the transition is legal in one write [LC2]."""
    if state(after) not in MOVES[state(before)]:
        raise IllegalMove(before, after)


def condition_summary(workload: Workload) -> str:
    """The conditions in one line: `QuotaReserved=True/QuotaReserved since …`."""
    summary = [f"{c.type}={c.status}/{c.reason} since {c.last_transition_time}" for c in workload.status.conditions]
    return ", ".join(summary) or "without any condition"


def key(workload: Workload) -> str:
    return f"{workload.metadata.namespace}/{workload.metadata.name}"


# --- Predicates -------------------------------------------------------------------------------------------------------


# These predicates run for every Workload at every event, and in Python 3.11 the lookup of an enum member takes longer
# than the rest of the predicate.
_RESERVED: Final = WorkloadCondition.QUOTA_RESERVED.value
_ADMITTED: Final = WorkloadCondition.ADMITTED.value
_EVICTED: Final = WorkloadCondition.EVICTED.value
_FINISHED: Final = WorkloadCondition.FINISHED.value
_PENDING: Final = frozenset({_RESERVED, _ADMITTED})
_RUNNING: Final = frozenset({_RESERVED, _ADMITTED, WorkloadCondition.PODS_READY.value})


def has(workload: Workload, condition: WorkloadCondition) -> bool:
    """Whether the condition is True."""
    return conditions.is_true(workload.status.conditions, condition)


def is_active(workload: Workload) -> bool:
    return workload.spec.active


def is_reserved(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, _RESERVED)


def is_admitted(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, _ADMITTED)


def is_evicted(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, _EVICTED)


def is_finished(workload: Workload) -> bool:
    return conditions.is_true(workload.status.conditions, _FINISHED)


def is_on_hold(workload: Workload) -> bool:
    """Its job cannot use quota for now [LC4]."""
    found = conditions.find(workload.status.conditions, _RESERVED)
    return (
        found is not None
        and found.status == conditions.ConditionStatus.FALSE
        and found.reason == QuotaReservedReason.ON_HOLD
    )


def only_waits(workload: Workload) -> bool:
    """The Workload is active, and its status has nothing but that it is pending [LC11]."""
    status = workload.status
    return (
        is_active(workload)
        and status.admission is None
        and status.requeue_state is None
        and not status.admission_checks
        and not status.admission_checks_conditions
        and all(condition.type in _PENDING and condition.status == "False" for condition in status.conditions)
    )


def only_runs(workload: Workload) -> bool:
    """The Workload is active and admitted, and its status has nothing beside it but whether its pods are ready
    [LC11]."""
    status = workload.status
    return (
        status.admission is not None
        and is_active(workload)
        and status.requeue_state is None
        and not status.admission_checks
        and not status.admission_checks_conditions
        and is_reserved(workload)
        and is_admitted(workload)
        and _RUNNING.issuperset([condition.type for condition in status.conditions])
    )


def is_gated(workload: Workload, *, gates_count: bool = True) -> bool:
    """Admission is gated by the annotation [LC5]. `gates_count` is the gate AdmissionGatedBy."""
    return gates_count and bool(workload.metadata.annotations.get(labels.ADMISSION_GATED_BY))


def are_checks_ready(workload: Workload) -> bool:
    """Every check of the list is Ready; an empty list is ready [LC6]."""
    return all(check.state == CheckState.READY for check in workload.status.admission_checks)


def is_topology_pending(workload: Workload) -> bool:
    """A topology assignment waits for nodes that a check provides [LC7]."""
    admission = workload.status.admission
    return admission is not None and any(
        assigned.topology_assignment is None
        and assigned.delayed_topology_request == kueue.DelayedTopologyRequestState.PENDING
        for assigned in admission.pod_set_assignments
    )


def is_elastic(workload: Workload) -> bool:
    return workload.metadata.annotations.get(labels.ELASTIC_JOB) == "true"


def is_owned_by_single_pod(workload: Workload) -> bool:
    owners = workload.metadata.owner_references
    return (
        len(owners) == 1
        and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
        and workload.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) != "true"
    )


def uses_claims(workload: Workload) -> bool:
    """A pod set has resource claims."""
    return any(pod_set.template.spec.resource_claims for pod_set in workload.spec.pod_sets)


def cluster_queue(workload: Workload) -> str:
    """The ClusterQueue in which quota is reserved; empty without a reservation."""
    return workload.status.admission.cluster_queue if workload.status.admission else ""


# --- Times and order --------------------------------------------------------------------------------------------------


def moment(text: TimeText | None) -> Nanoseconds | None:
    """A time of an object; one that cannot be parsed counts as absent."""
    try:
        return meta.parse_time(text) if text else None
    except meta.TimeError:
        return None


def created(workload: Workload) -> Nanoseconds:
    return moment(workload.metadata.creation_timestamp) or 0


def since(workload: Workload, condition: WorkloadCondition) -> Nanoseconds | None:
    """When the condition last changed its status."""
    return conditions.since(workload.status.conditions, condition)


def queued_since(workload: Workload) -> Nanoseconds:
    """From when the wait is counted: the last requeue, else the creation [LC9]."""
    return since(workload, WorkloadCondition.REQUEUED) or created(workload)


def requeue_at(workload: Workload) -> Nanoseconds | None:
    state = workload.status.requeue_state
    return moment(state.requeue_at) if state else None


def requeue_count(workload: Workload) -> int | None:
    return workload.status.requeue_state.count if workload.status.requeue_state else None


def job_deadline_seconds(workload: Workload) -> int | None:
    """The deadline that the controller of the job enforces, as the gate WorkloadHints copies it; a value that is not a
    positive integer counts as absent [RT2]."""
    text = workload.metadata.annotations.get(labels.ACTIVE_DEADLINE_SECONDS, "")
    return (int(text) or None) if text.isascii() and text.isdecimal() and len(text) < 12 else None
