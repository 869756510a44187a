"""The check that requests nodes from a cluster autoscaler: its state, and the ProvisioningRequests that are due.

One ProvisioningRequest is one attempt of one check of one Workload. The state of the check follows from the first of
these conditions of the current request that is True [LC64]:

    Failed                  Retry after a backoff; Rejected after the last attempt
    CapacityRevoked         Rejected, also for a running Workload: its nodes are deleted
    BookingExpired          as Failed; no effect for a running Workload, because its pods are on the nodes
    Provisioned             Ready, with the podSetUpdates that lead the pods to the nodes
    Accepted                Pending, with the time that the autoscaler expects to need
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition, Nanoseconds, format_time
from pykueue.api import kube, labels, names
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.api.conditions import ProvisioningRequestCondition as RequestCondition
from pykueue.api.kueue import (
    AdmissionCheckState,
    CheckState,
    PodSet,
    PodSetUpdate,
    ProvisioningRequestConfigSpec,
    ProvisioningRequestRetryStrategy,
    Workload,
)
from pykueue.lifecycle import backoff, checks, states, workload_changes
from pykueue.lifecycle.workload_changes import Changes, SetChecks

# The messages of the check and of its Events are in Kueue's words, because tools match on them.
_INACTIVE: Final = "the check is not active"
_NOT_NEEDED: Final = "the provisioning request is not needed"
_RETRYING: Final = {
    RequestCondition.FAILED: "Retrying after failure",
    RequestCondition.BOOKING_EXPIRED: "Retrying after booking expired",
}


class ProvisioningAttempt(msgspec.Struct, frozen=True):
    """A request to create."""

    check: str
    name: str
    config: ProvisioningRequestConfigSpec
    parameters: Mapping[str, str]


class ProvisioningPlan(msgspec.Struct, frozen=True):
    """What is due for one Workload: the states of its checks, requests to delete, and requests to create."""

    changes: Changes = ()
    unused: tuple[ProvisioningRequest, ...] = ()
    attempts: tuple[ProvisioningAttempt, ...] = ()


def plan(
    workload: Workload,
    configs: Mapping[str, ProvisioningRequestConfigSpec | None],
    requests: Sequence[ProvisioningRequest],
    now: Nanoseconds,
    *,
    cleanup: bool = True,
) -> ProvisioningPlan:
    """What is due now [LC61]. `configs` has the checks of this controller, with None where the config is missing;
    `requests` are those of the Workload. `cleanup` is the gate CleanupProvisioningRequestsOnEviction.
    """
    if states.is_finished(workload) or (states.is_evicted(workload) and cleanup):
        return ProvisioningPlan(unused=tuple(requests))
    if states.is_evicted(workload) or not states.is_reserved(workload):
        return ProvisioningPlan()
    current = {
        name: request
        for name, config in configs.items()
        if config is not None and (request := _current(workload, name, config, requests)) is not None
    }
    answers = tuple(
        _answer(workload, check, configs[check.name], current.get(check.name), now) if check.name in configs else check
        for check in workload.status.admission_checks
    )
    kept = {request.metadata.uid for request in current.values()}
    return ProvisioningPlan(
        changes=_changes(workload, answers, now),
        unused=tuple(request for request in requests if request.metadata.uid not in kept),
        attempts=tuple(_attempts(workload, answers, configs, current)),
    )


# --- Pod sets that need nodes -----------------------------------------------------------------------------------------


def pod_sets(workload: Workload, config: ProvisioningRequestConfigSpec) -> tuple[PodSet, ...]:
    """The pod sets with granted pods that request a managed resource [LC62]."""
    managed = frozenset(config.managed_resources)
    return tuple(
        pod_set
        for pod_set in workload.spec.pod_sets
        if granted(workload, pod_set) > 0 and (not managed or managed & _requested(pod_set.template.spec))
    )


# A list of managed resources that matches no pod: an empty list would mean every resource.
_NONE_MANAGED: Final = ("",)


def without_excluded(config: ProvisioningRequestConfigSpec, excluded: frozenset[str]) -> ProvisioningRequestConfigSpec:
    """The config for a Workload in a ClusterQueue that excludes these resources: no nodes are requested for them, since
    excluded resources take no part in admission checks (KEP-5800)."""
    if not excluded & frozenset(config.managed_resources):
        return config
    managed = tuple(name for name in config.managed_resources if name not in excluded)
    return replace(config, managed_resources=managed or _NONE_MANAGED)


def granted(workload: Workload, pod_set: PodSet) -> int:
    """How many pods of the pod set may run; 0 without an assignment. An elastic job that shrinks while its check is
    pending needs nodes for the pods that are left."""
    admission = workload.status.admission
    for assigned in admission.pod_set_assignments if admission else ():
        if assigned.name == pod_set.name:
            return pod_set.count if assigned.count is None else min(pod_set.count, assigned.count)
    return 0


def _requested(pod: kube.PodSpec) -> frozenset[str]:
    needs = [container.resources for container in (*pod.init_containers, *pod.containers)]
    return frozenset(name for each in needs for name in (*each.requests, *each.limits))


# --- The current request ----------------------------------------------------------------------------------------------


def parameters(workload: Workload, config: ProvisioningRequestConfigSpec) -> dict[str, str]:
    """The parameters of the config, overridden by the annotations of the job."""
    own = {
        name.removeprefix(labels.PROVISIONING_PREFIX): value
        for name, value in workload.metadata.annotations.items()
        if name.startswith(labels.PROVISIONING_PREFIX)
    }
    return {**config.parameters, **own}


def _current(
    workload: Workload, check: str, config: ProvisioningRequestConfigSpec, requests: Iterable[ProvisioningRequest]
) -> ProvisioningRequest | None:
    """The latest attempt with the present class and parameters [LC63]."""
    if not pod_sets(workload, config):
        return None
    wanted = parameters(workload, config).items()
    alike = [
        request
        for request in requests
        if names.provisioning_request_attempt(request.metadata.name, workload.metadata.name, check) is not None
        and request.spec.provisioning_class_name == config.provisioning_class_name
        and request.spec.parameters.items() >= wanted
    ]
    return max(alike, key=lambda request: _number(workload, check, request), default=None)


def _number(workload: Workload, check: str, request: ProvisioningRequest) -> int:
    return names.provisioning_request_attempt(request.metadata.name, workload.metadata.name, check) or 0


def _has_failed(workload: Workload, request: ProvisioningRequest) -> bool:
    found = request.status.conditions
    is_expired = conditions.is_true(found, RequestCondition.BOOKING_EXPIRED) and not states.is_admitted(workload)
    return is_expired or conditions.is_true(found, RequestCondition.FAILED)


def _attempts(
    workload: Workload,
    answers: Iterable[AdmissionCheckState],
    configs: Mapping[str, ProvisioningRequestConfigSpec | None],
    current: Mapping[str, ProvisioningRequest],
) -> Iterable[ProvisioningAttempt]:
    """The requests of Pending checks: the first one, or the next one after a failed attempt [LC65].

    A check in state Retry gets its next request when its delay is over and it is Pending again.
    """
    for check in answers:
        config, request = configs.get(check.name), current.get(check.name)
        if config is None or check.state != CheckState.PENDING:
            continue
        if request is None:
            # The requests of earlier attempts may be deleted; the retry count of the check has their number.
            number = (check.retry_count or 0) + 1
        elif _has_failed(workload, request):
            number = _number(workload, check.name, request) + 1
        else:
            continue
        name = names.provisioning_request_name(workload.metadata.name, check.name, number)
        yield ProvisioningAttempt(check.name, name, config, parameters(workload, config))


# --- The state of the check -------------------------------------------------------------------------------------------


def _answer(
    workload: Workload,
    check: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec | None,
    request: ProvisioningRequest | None,
    now: Nanoseconds,
) -> AdmissionCheckState:
    if config is None:
        return _with_state(check, CheckState.PENDING, _INACTIVE, now)
    if not pod_sets(workload, config):
        is_ready = check.state == CheckState.READY
        return check if is_ready else _ready(check, _NOT_NEEDED, (), now)
    if request is None:
        return check
    found = {
        condition.type: condition for condition in request.status.conditions if condition.status == ConditionStatus.TRUE
    }
    if RequestCondition.FAILED in found:
        return _again(workload, check, config, request, found[RequestCondition.FAILED], now)
    if RequestCondition.CAPACITY_REVOKED in found:
        revoked = _with_state(check, CheckState.REJECTED, found[RequestCondition.CAPACITY_REVOKED].message, now)
        return revoked if states.is_active(workload) else check
    if RequestCondition.BOOKING_EXPIRED in found:
        is_running = states.is_admitted(workload)
        return (
            check
            if is_running
            else _again(workload, check, config, request, found[RequestCondition.BOOKING_EXPIRED], now)
        )
    if RequestCondition.PROVISIONED in found:
        if check.state == CheckState.READY:
            return check
        return _ready(check, found[RequestCondition.PROVISIONED].message, _updates(workload, config, request), now)
    expected = conditions.find(request.status.conditions, RequestCondition.PROVISIONED)
    if RequestCondition.ACCEPTED in found and expected is not None:
        return _with_state(check, CheckState.PENDING, expected.message, now)
    # Also the message of a failed creation is over: the request exists.
    return _with_state(check, CheckState.PENDING, "", now)


def _again(
    workload: Workload,
    check: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec,
    request: ProvisioningRequest,
    cause: Condition,
    now: Nanoseconds,
) -> AdmissionCheckState:
    """After a failed attempt: Retry while attempts are left, else Rejected."""
    strategy = config.retry_strategy or ProvisioningRequestRetryStrategy()
    number, retries = _number(workload, check.name, request), check.retry_count or 0
    if number > strategy.backoff_limit_count:
        return _with_state(check, CheckState.REJECTED, cause.message, now)
    message = f"{_RETRYING[RequestCondition(cause.type)]}: {cause.message}"
    if number <= retries:
        return replace(check, message=conditions.truncated(message))  # this attempt was counted before
    wait = backoff.delay_seconds(retries + 1, strategy.backoff_base_seconds, strategy.backoff_max_seconds)
    return replace(_with_state(check, CheckState.RETRY, message, now), requeue_after_seconds=math.ceil(wait))


def _updates(
    workload: Workload, config: ProvisioningRequestConfigSpec, request: ProvisioningRequest
) -> tuple[PodSetUpdate, ...]:
    """The podSetUpdates that lead the pods to their nodes, for every pod set of the request [LC66]."""
    details = request.status.provisioning_class_details
    wanted = config.pod_set_updates.node_selector if config.pod_set_updates else ()
    selector = {
        entry.key: details[entry.value_from_provisioning_class_detail]
        for entry in wanted
        if entry.value_from_provisioning_class_detail in details
    }
    annotations = {
        labels.CONSUME_PROVISIONING_REQUEST: request.metadata.name,
        labels.PROVISIONING_CLASS_NAME: request.spec.provisioning_class_name,
    }
    return tuple(
        PodSetUpdate(name=pod_set.name, annotations=annotations, node_selector=selector)
        for pod_set in pod_sets(workload, config)
    )


def _ready(
    check: AdmissionCheckState, message: str, updates: tuple[PodSetUpdate, ...], now: Nanoseconds
) -> AdmissionCheckState:
    return replace(_with_state(check, CheckState.READY, message, now), pod_set_updates=updates)


def _with_state(check: AdmissionCheckState, state: CheckState, message: str, now: Nanoseconds) -> AdmissionCheckState:
    # Of two states the newer counts: one written after the clock was set back must not lose to the one before.
    before = check.last_transition_time
    at = before if check.state == state else format_time(max(now, states.moment(before) or 0))
    return replace(check, state=state.value, message=conditions.truncated(message), last_transition_time=at)


# --- The changes ------------------------------------------------------------------------------------------------------


def create_failed(workload: Workload, check: str, message: str, now: Nanoseconds) -> Changes:
    """The check has the reason why the request could not be created; it is retried."""
    answers = tuple(
        replace(each, message=conditions.truncated(message)) if each.name == check else each
        for each in workload.status.admission_checks
    )
    return (*_changes(workload, answers, now), workload_changes.warning("FailedCreate", message))


def _changes(workload: Workload, answers: tuple[AdmissionCheckState, ...], now: Nanoseconds) -> Changes:
    """The states in both forms, and an Event for each that changed."""
    if answers == workload.status.admission_checks:
        return workload_changes.NOTHING
    written = workload_changes.apply_to(workload, (SetChecks(answers),), now)
    pairs = zip(workload.status.admission_checks, answers, strict=True)
    events = (_state_event(before, after) for before, after in pairs if before.state != after.state)
    return (SetChecks(answers), *checks.synced(written, None, now), *events)


def _state_event(before: AdmissionCheckState, after: AdmissionCheckState) -> workload_changes.EmitEvent:
    note = f"Admission check {after.name} updated state from {before.state} to {after.state}"
    if after.message:
        note += f" with message: {after.message}"
    return workload_changes.normal("AdmissionCheckUpdated", note)
