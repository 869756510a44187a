"""Admission checks: which a Workload has to pass, what they answered, and in which of the two forms.

A check's controller may answer in `status.admissionChecks[]` or by a condition of the check's name in
`status.admissionChecksConditions[]`. Both say the same afterwards: of two that differ the newer transition wins, and
the first form where they are equally old. A question from the future was asked on a clock that was fast: every answer
is newer.
"""

from __future__ import annotations

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

# --- Which ------------------------------------------------------------------------------------------------------------


def required(cluster_queue: ClusterQueueFacts, admission: Admission | None) -> tuple[str, ...]:
    """The names of the checks to pass, sorted.

    With quota, those that concern an assigned flavor. Before, nobody knows which flavor it will be, so only those that
    concern every flavor of the queue can be asked already.
    """
    if admission is None:
        return _names(check for check in cluster_queue.checks if cluster_queue.flavors <= _reach(check, cluster_queue))
    assigned = {flavor for pod_set in admission.pod_set_assignments for flavor in pod_set.flavors.values()}
    return _names(check for check in cluster_queue.checks if not check.on_flavors or assigned & check.on_flavors)


def _reach(check: CheckFacts, cluster_queue: ClusterQueueFacts) -> frozenset[str]:
    return check.on_flavors or cluster_queue.flavors


def _names(checks: Iterable[CheckFacts]) -> tuple[str, ...]:
    return tuple(sorted({check.name for check in checks}))


# --- What they answered -----------------------------------------------------------------------------------------------


def answer(check: AdmissionCheckState) -> CheckState:
    """What the check says; a word that no check says counts as no answer yet."""
    try:
        return CheckState(check.state)
    except ValueError:
        return CheckState.PENDING


def with_answer(workload: Workload, state: CheckState) -> tuple[AdmissionCheckState, ...]:
    """The checks that gave this answer, by name."""
    found = [check for check in workload.status.admission_checks if answer(check) is state]
    return tuple(sorted(found, key=lambda check: check.name))


def stated(checks: Iterable[AdmissionCheckState], state: CheckState) -> str:
    """The checks that are in a state, with their messages."""
    found = sorted(checks, key=lambda check: check.name)
    listed = "; ".join(f'"{check.name}" ({check.message})' if check.message else f'"{check.name}"' for check in found)
    return f"{'AdmissionChecks' if len(found) > 1 else 'AdmissionCheck'} in {state.value} state: {listed}"


def retry_ends(check: AdmissionCheckState, cluster_queue: ClusterQueueFacts | None) -> Nanoseconds:
    """Until when a check that said Retry keeps the Workload out. Its own delay overrides that of the AdmissionCheck."""
    delay = check.requeue_after_seconds
    if delay is None:
        listed = cluster_queue.checks if cluster_queue else ()
        facts = next((facts for facts in listed if facts.name == check.name), CheckFacts(check.name))
        delay = facts.retry_delay_minutes * 60
    return (states.moment(check.last_transition_time) or 0) + max(0, delay) * SECOND


def may_preempt(workload: Workload, cluster_queue: ClusterQueueFacts) -> bool:
    """Whether preemptions may be issued: every check that holds them back is Ready, or some check asks for them.

    A check that is not listed has not answered.
    """
    said = {check.name: answer(check) for check in workload.status.admission_checks}
    if CheckState.PREEMPTION_REQUIRED in said.values():
        return True
    return all(said.get(name) is CheckState.READY for name in _holding(cluster_queue, workload.status.admission))


def defers(workload: Workload, cluster_queue: ClusterQueueFacts) -> bool:
    """Whether some check that the Workload has to pass asks for preemptions to wait."""
    return bool(_holding(cluster_queue, workload.status.admission))


def _holding(cluster_queue: ClusterQueueFacts, admission: Admission | None) -> list[str]:
    names = required(cluster_queue, admission)
    return [check.name for check in cluster_queue.checks if check.defers_preemption and check.name in names]


def reset(checks: tuple[AdmissionCheckState, ...], now: Nanoseconds) -> tuple[AdmissionCheckState, ...]:
    """The checks as an eviction leaves them: `Pending`, with a message that names the state before.

    Everything else of the entry stays: `podSetUpdates` until the check answers again, `requeueAfterSeconds` without
    effect until it answers Retry, and `retryCount`, which grows by one where the state was Retry. A check that is
    Pending is not touched. These are the fields that survive in Kueue with server-side apply, its default: an eviction
    applies state, message and time, and what the controller of the check applied with its last answer stays its own.
    """
    return tuple(check if check.state == CheckState.PENDING else _asked_anew(check, now) for check in checks)


def _asked_anew(check: AdmissionCheckState, now: Nanoseconds) -> AdmissionCheckState:
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
    """The state that a condition stands for. False without a known reason is Retry, the answer that is not final.

    KEP-993 has two reasons by which a check that is still Unknown asks for preemptions: `PreemptionRequired`, and
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
    """The check with the answer of a condition. What only the other form can say is not part of it."""
    return replace(
        check,
        state=meaning(condition).value,
        message=condition.message,
        last_transition_time=condition.last_transition_time,
        requeue_after_seconds=None,
        pod_set_updates=(),
    )


def synced(workload: Workload, names: tuple[str, ...] | None, now: Nanoseconds) -> Changes:
    """The list brought to these names, and both forms of every answer to the same. None: the list stays as it is.

    Answers survive: a check that was Ready before quota was reserved stays Ready.
    """
    status = workload.status
    said = {condition.type: condition for condition in status.admission_checks_conditions}
    listed = {check.name: check for check in status.admission_checks}
    if names is None:
        checks = list(status.admission_checks)
    else:
        checks = [listed.get(name) or _first(name, said, now) for name in names]
    for place, check in enumerate(checks):
        condition = said.get(check.name)
        if condition is not None and meaning(condition) is not answer(check) and _is_newer(condition, check, now):
            checks[place] = as_state(condition, check)
    mirror = [
        condition
        if (condition := said.get(check.name)) is not None and meaning(condition) is answer(check)
        else as_condition(check)
        for check in checks
    ]
    if names is None:
        # Which checks there are is not known, so that an answer to one that is not listed yet may still be needed.
        mirror += [condition for name, condition in said.items() if name not in listed]
    return with_checks(workload, tuple(checks), tuple(mirror))


def with_checks(
    workload: Workload, checks: tuple[AdmissionCheckState, ...], mirror: tuple[Condition, ...] | None = None
) -> Changes:
    """The changes that bring the checks, and their mirror, to this; none where they are."""
    mirror = tuple(as_condition(check) for check in checks) if mirror is None else mirror
    status = workload.status
    return (
        *((SetChecks(checks),) if checks != status.admission_checks else ()),
        *((SetCheckConditions(mirror),) if mirror != status.admission_checks_conditions else ()),
    )


def _first(name: str, said: Mapping[str, Condition], now: Nanoseconds) -> AdmissionCheckState:
    """The entry of a check that was not listed yet; its controller may have been faster than the list."""
    fresh = AdmissionCheckState(
        name=name, state=CheckState.PENDING.value, last_transition_time=format_time(now), message=""
    )
    return as_state(said[name], fresh) if name in said else fresh


def _is_newer(condition: Condition, check: AdmissionCheckState, now: Nanoseconds) -> bool:
    said = _said_at(condition.last_transition_time, meaning(condition), now)
    return said > _said_at(check.last_transition_time, answer(check), now)


def _said_at(transition: str | None, state: CheckState, now: Nanoseconds) -> Nanoseconds:
    moment = states.moment(transition) or 0
    return 0 if state is CheckState.PENDING and moment > now else moment
