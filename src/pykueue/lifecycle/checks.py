"""Admission checks: which are required, their states, and the two forms of a state.

A check's controller may answer in `status.admissionChecks[]` or by a condition of the check's name in
`status.admissionChecksConditions[]`. The manager makes both equal: of two that differ the newer transition wins, and
the first form if the times are equal [LC77]. A Pending entry with a time in the future was written with a fast clock:
every answer is newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Condition, Nanoseconds, format_time
from pykueue.api.kueue import Admission, AdmissionCheckState, CheckState, Workload
from pykueue.lifecycle import states
from pykueue.lifecycle.facts import CheckFacts, ClusterQueueFacts
from pykueue.lifecycle.workload_changes import Changes, SetCheckConditions, SetChecks

# --- Required checks --------------------------------------------------------------------------------------------------


def required(cluster_queue: ClusterQueueFacts, admission: Admission | None) -> tuple[str, ...]:
    """The names of the required checks, sorted [LC75].

    With quota, those that apply to an assigned flavor. Before, the flavor is not known, so only those that apply to
    every flavor of the ClusterQueue.
    """
    if admission is None:
        return _names(
            check for check in cluster_queue.checks if cluster_queue.flavors <= _flavors_of(check, cluster_queue)
        )
    assigned = {flavor for pod_set in admission.pod_set_assignments for flavor in pod_set.flavors.values()}
    return _names(check for check in cluster_queue.checks if not check.on_flavors or assigned & check.on_flavors)


def _flavors_of(check: CheckFacts, cluster_queue: ClusterQueueFacts) -> frozenset[str]:
    return check.on_flavors or cluster_queue.flavors


def _names(checks: Iterable[CheckFacts]) -> tuple[str, ...]:
    return tuple(sorted({check.name for check in checks}))


# --- States -----------------------------------------------------------------------------------------------------------


def answer(check: AdmissionCheckState) -> CheckState:
    """The state of the check; an unknown state counts as Pending."""
    try:
        return CheckState(check.state)
    except ValueError:
        return CheckState.PENDING


def with_answer(workload: Workload, state: CheckState) -> tuple[AdmissionCheckState, ...]:
    """The checks in this state, by name."""
    found = [check for check in workload.status.admission_checks if answer(check) is state]
    return tuple(sorted(found, key=lambda check: check.name))


def stated(checks: Iterable[AdmissionCheckState], state: CheckState) -> str:
    """The checks that are in a state, with their messages."""
    found = sorted(checks, key=lambda check: check.name)
    listed = "; ".join(f'"{check.name}" ({check.message})' if check.message else f'"{check.name}"' for check in found)
    return f"{'AdmissionChecks' if len(found) > 1 else 'AdmissionCheck'} in {state.value} state: {listed}"


_NAMED: Final = re.compile(r'(?:state: |; )"([^"]+)"')


def named(message: str) -> tuple[str, ...]:
    """The checks that a message of `stated` names. A message of a check may look like further names."""
    return tuple(_NAMED.findall(message))


def retry_ends(check: AdmissionCheckState, cluster_queue: ClusterQueueFacts | None) -> Nanoseconds:
    """Until when a check in state Retry keeps the Workload out of the queue [LC80]."""
    return (states.moment(check.last_transition_time) or 0) + retry_delay_seconds(check, cluster_queue) * SECOND


def retry_delay_seconds(check: AdmissionCheckState, cluster_queue: ClusterQueueFacts | None) -> int:
    """For how long a check in state Retry keeps the Workload out of the queue [LC80]."""
    delay = check.requeue_after_seconds
    if delay is None:
        listed = cluster_queue.checks if cluster_queue else ()
        facts = next((facts for facts in listed if facts.name == check.name), CheckFacts(check.name))
        delay = facts.retry_delay_minutes * 60
    return max(0, delay)


def may_preempt(workload: Workload, cluster_queue: ClusterQueueFacts) -> bool:
    """Whether preemptions may be issued: every check that defers them is Ready, or a check requests them [LC82].

    A check that is not listed is not Ready.
    """
    found = {check.name: answer(check) for check in workload.status.admission_checks}
    if CheckState.PREEMPTION_REQUIRED in found.values():
        return True
    return all(found.get(name) is CheckState.READY for name in _deferring(cluster_queue, workload.status.admission))


def defers(workload: Workload, cluster_queue: ClusterQueueFacts) -> bool:
    """Whether a required check defers preemptions."""
    return bool(_deferring(cluster_queue, workload.status.admission))


def _deferring(cluster_queue: ClusterQueueFacts, admission: Admission | None) -> list[str]:
    names = required(cluster_queue, admission)
    return [check.name for check in cluster_queue.checks if check.defers_preemption and check.name in names]


def reset(checks: tuple[AdmissionCheckState, ...], now: Nanoseconds) -> tuple[AdmissionCheckState, ...]:
    """The checks after an eviction [LC36]: `Pending`, with a message that names the state before.

    Everything else of the entry stays: `podSetUpdates` until the check answers again, `requeueAfterSeconds` without
    effect until it answers Retry, and `retryCount`, which grows by one where the state was Retry. A check that is
    Pending is not touched. These are the fields that survive in Kueue with server-side apply, its default: an eviction
    applies state, message and time, and what the controller of the check applied with its last answer stays its own.
    """
    return tuple(check if check.state == CheckState.PENDING else _reset(check, now) for check in checks)


def _reset(check: AdmissionCheckState, now: Nanoseconds) -> AdmissionCheckState:
    retries = (check.retry_count or 0) + 1 if check.state == CheckState.RETRY else check.retry_count
    return replace(
        check,
        state=CheckState.PENDING.value,
        message=conditions.truncated(f"Reset to Pending after eviction. Previously: {check.state}"),
        last_transition_time=format_time(now),
        retry_count=retries,
    )


# --- The two forms ----------------------------------------------------------------------------------------------------

_RETRY, _REJECT, _PREEMPTION_REQUIRED = "Retry", "Reject", "PreemptionRequired"

_AS_CONDITION: Final[Mapping[CheckState, tuple[ConditionStatus, str]]] = {
    CheckState.PENDING: (ConditionStatus.UNKNOWN, "Pending"),
    CheckState.READY: (ConditionStatus.TRUE, "Ready"),
    CheckState.RETRY: (ConditionStatus.FALSE, _RETRY),
    CheckState.REJECTED: (ConditionStatus.FALSE, _REJECT),
    CheckState.PREEMPTION_REQUIRED: (ConditionStatus.UNKNOWN, _PREEMPTION_REQUIRED),
}


def meaning(condition: Condition) -> CheckState:
    """The state that a condition has. False without a known reason is Retry, which is not final.

    KEP-993 has two reasons by which a check that is still Unknown requests preemptions: `PreemptionRequired`, and
    `BookQuotaRequired` where an external quota is reached. What the manager does is the same for both.
    """
    match condition.status, condition.reason:
        case ConditionStatus.TRUE, _:
            return CheckState.READY
        case ConditionStatus.FALSE, "Reject" | "Rejected":
            return CheckState.REJECTED
        case ConditionStatus.FALSE, _:
            return CheckState.RETRY
        case _, "PreemptionRequired" | "BookQuotaRequired":
            return CheckState.PREEMPTION_REQUIRED
        case _:
            return CheckState.PENDING


def as_condition(check: AdmissionCheckState) -> Condition:
    status, reason = _AS_CONDITION[answer(check)]
    return Condition(
        type=check.name,
        status=status.value,
        reason=reason,
        message=check.message,
        last_transition_time=check.last_transition_time,
    )


def as_state(condition: Condition, check: AdmissionCheckState) -> AdmissionCheckState:
    """The check with the state of a condition. Fields that only the entry has are cleared."""
    return replace(
        check,
        state=meaning(condition).value,
        message=condition.message,
        last_transition_time=condition.last_transition_time,
        requeue_after_seconds=None,
        pod_set_updates=(),
    )


def synced(workload: Workload, names: tuple[str, ...] | None, now: Nanoseconds) -> Changes:
    """The changes that give the list these names, and make both forms of every state equal. None: the list stays.

    States are kept: a check that was Ready before quota was reserved stays Ready.
    """
    status = workload.status
    mirrored = {condition.type: condition for condition in status.admission_checks_conditions}
    listed = {check.name: check for check in status.admission_checks}
    if names is None:
        checks = list(status.admission_checks)
    else:
        checks = [listed.get(name) or _first(name, mirrored, now) for name in names]
    for place, check in enumerate(checks):
        condition = mirrored.get(check.name)
        if condition is not None and meaning(condition) is not answer(check) and _is_newer(condition, check, now):
            checks[place] = as_state(condition, check)
    mirror = [
        condition
        if (condition := mirrored.get(check.name)) is not None and meaning(condition) is answer(check)
        else as_condition(check)
        for check in checks
    ]
    if names is None:
        # The required checks are not known, so a condition of a check that is not listed may still be needed.
        mirror += [condition for name, condition in mirrored.items() if name not in listed]
    return with_checks(workload, tuple(checks), tuple(mirror))


def with_checks(
    workload: Workload, checks: tuple[AdmissionCheckState, ...], mirror: tuple[Condition, ...] | None = None
) -> Changes:
    """The changes that set the checks and their conditions; none if they are equal."""
    mirror = tuple(as_condition(check) for check in checks) if mirror is None else mirror
    status = workload.status
    return (
        *((SetChecks(checks),) if checks != status.admission_checks else ()),
        *((SetCheckConditions(mirror),) if mirror != status.admission_checks_conditions else ()),
    )


def _first(name: str, mirrored: Mapping[str, Condition], now: Nanoseconds) -> AdmissionCheckState:
    """The entry of a check that was not listed; its controller may have written the condition first."""
    fresh = AdmissionCheckState(
        name=name, state=CheckState.PENDING.value, last_transition_time=format_time(now), message=""
    )
    return as_state(mirrored[name], fresh) if name in mirrored else fresh


def _is_newer(condition: Condition, check: AdmissionCheckState, now: Nanoseconds) -> bool:
    written = _written_at(condition.last_transition_time, meaning(condition), now)
    return written > _written_at(check.last_transition_time, answer(check), now)


def _written_at(transition: str | None, state: CheckState, now: Nanoseconds) -> Nanoseconds:
    moment = states.moment(transition) or 0
    return 0 if state is CheckState.PENDING and moment > now else moment
