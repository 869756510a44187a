"""The check that asks a cluster autoscaler for nodes: what its requests mean for a Workload, and which to make.

One ProvisioningRequest stands for one attempt of one check of one Workload. What the autoscaler says of the current
one, the first of these that is true, becomes the check's answer:

    Failed                  Retry after a back-off; Rejected once the attempts are used up
    CapacityRevoked         Rejected, also under a Workload that runs: its nodes are gone
    BookingExpired          as Failed; under a Workload that runs it means nothing, for its pods are on the nodes
    Provisioned             Ready, and the pods are told whose nodes to take
    Accepted                Pending, with the time that the autoscaler expects to need
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition, Nanoseconds, format_time
from pykueue.api import kube, labels, names
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.api.conditions import ProvisioningRequestCondition as Said
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

_INACTIVE: Final = "The check is not active: its ProvisioningRequestConfig is missing"
_NOT_NEEDED: Final = "No nodes have to be provided: nothing is asked of what the autoscaler manages"


@dataclass(frozen=True, slots=True)
class ProvisioningAttempt:
    """A request to make."""

    check: str
    name: str
    config: ProvisioningRequestConfigSpec
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProvisioningPlan:
    """What is due for one Workload: the answers of its checks, requests that nobody needs, and those to make."""

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
    """`configs` has the checks of this controller, with None where the settings are missing; `requests` are the
    Workload's own. `cleanup` is the gate CleanupProvisioningRequestsOnEviction.
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


# --- Who needs nodes --------------------------------------------------------------------------------------------------


def pod_sets(workload: Workload, config: ProvisioningRequestConfigSpec) -> tuple[PodSet, ...]:
    """The pod sets that ask for something the autoscaler manages, and were granted pods."""
    managed = frozenset(config.managed_resources)
    return tuple(
        pod_set
        for pod_set in workload.spec.pod_sets
        if granted(workload, pod_set) > 0 and (not managed or managed & _asked(pod_set.template.spec))
    )


# A list of managed resources that matches no pod: an empty list would mean every resource.
_NONE_MANAGED: Final = ("",)


def without_excluded(config: ProvisioningRequestConfigSpec, excluded: frozenset[str]) -> ProvisioningRequestConfigSpec:
    """The settings for a Workload whose ClusterQueue excludes these resources: no nodes are requested for them, since
    excluded resources take no part in admission checks (KEP-5800)."""
    if not excluded & frozenset(config.managed_resources):
        return config
    managed = tuple(name for name in config.managed_resources if name not in excluded)
    return replace(config, managed_resources=managed or _NONE_MANAGED)


def granted(workload: Workload, pod_set: PodSet) -> int:
    """How many pods of the set may run; none where the set was given nothing."""
    admission = workload.status.admission
    for assigned in admission.pod_set_assignments if admission else ():
        if assigned.name == pod_set.name:
            return pod_set.count if assigned.count is None else assigned.count
    return 0


def _asked(pod: kube.PodSpec) -> frozenset[str]:
    needs = [container.resources for container in (*pod.init_containers, *pod.containers)]
    return frozenset(name for each in needs for name in (*each.requests, *each.limits))


# --- The current request ----------------------------------------------------------------------------------------------


def parameters(workload: Workload, config: ProvisioningRequestConfigSpec) -> dict[str, str]:
    """Those of the settings, and those that the job gives itself by annotation, which count more."""
    own = {
        name.removeprefix(labels.PROVISIONING_PREFIX): value
        for name, value in workload.metadata.annotations.items()
        if name.startswith(labels.PROVISIONING_PREFIX)
    }
    return {**config.parameters, **own}


def _current(
    workload: Workload, check: str, config: ProvisioningRequestConfigSpec, requests: Iterable[ProvisioningRequest]
) -> ProvisioningRequest | None:
    """The latest attempt that asks for what would be asked for now."""
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
    said = request.status.conditions
    is_expired = conditions.is_true(said, Said.BOOKING_EXPIRED) and not states.is_admitted(workload)
    return is_expired or conditions.is_true(said, Said.FAILED)


def _attempts(
    workload: Workload,
    answers: Iterable[AdmissionCheckState],
    configs: Mapping[str, ProvisioningRequestConfigSpec | None],
    current: Mapping[str, ProvisioningRequest],
) -> Iterable[ProvisioningAttempt]:
    """A check without an answer asks: for the first time, or once more after an attempt that came to nothing.

    One that says Retry asks again when its delay is over, and it is Pending once more.
    """
    for check in answers:
        config, request = configs.get(check.name), current.get(check.name)
        if config is None or check.state != CheckState.PENDING:
            continue
        if request is None:
            # The requests of earlier attempts may be cleaned away; the check itself remembers how many there were.
            number = (check.retry_count or 0) + 1
        elif _has_failed(workload, request):
            number = _number(workload, check.name, request) + 1
        else:
            continue
        name = names.provisioning_request_name(workload.metadata.name, check.name, number)
        yield ProvisioningAttempt(check.name, name, config, parameters(workload, config))


# --- The answer -------------------------------------------------------------------------------------------------------


def _answer(
    workload: Workload,
    check: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec | None,
    request: ProvisioningRequest | None,
    now: Nanoseconds,
) -> AdmissionCheckState:
    if config is None:
        return _saying(check, CheckState.PENDING, _INACTIVE, now)
    if not pod_sets(workload, config):
        is_ready = check.state == CheckState.READY
        return check if is_ready else _ready(check, _NOT_NEEDED, (), now)
    if request is None:
        return check
    said = {
        condition.type: condition for condition in request.status.conditions if condition.status == ConditionStatus.TRUE
    }
    if Said.FAILED in said:
        return _again(workload, check, config, request, said[Said.FAILED], now)
    if Said.CAPACITY_REVOKED in said:
        revoked = _saying(check, CheckState.REJECTED, said[Said.CAPACITY_REVOKED].message, now)
        return revoked if states.is_active(workload) else check
    if Said.BOOKING_EXPIRED in said:
        is_running = states.is_admitted(workload)
        return check if is_running else _again(workload, check, config, request, said[Said.BOOKING_EXPIRED], now)
    if Said.PROVISIONED in said:
        if check.state == CheckState.READY:
            return check
        return _ready(check, said[Said.PROVISIONED].message, _updates(workload, config, request), now)
    expected = conditions.find(request.status.conditions, Said.PROVISIONED)
    if Said.ACCEPTED in said and expected is not None:
        return _saying(check, CheckState.PENDING, expected.message, now)
    return _saying(check, CheckState.PENDING, f"ProvisioningRequest {request.metadata.name} is made", now)


def _again(
    workload: Workload,
    check: AdmissionCheckState,
    config: ProvisioningRequestConfigSpec,
    request: ProvisioningRequest,
    why: Condition,
    now: Nanoseconds,
) -> AdmissionCheckState:
    """After an attempt that came to nothing: later, as long as there are attempts left; else never."""
    strategy = config.retry_strategy or ProvisioningRequestRetryStrategy()
    number, retries = _number(workload, check.name, request), check.retry_count or 0
    if number > strategy.backoff_limit_count:
        return _saying(check, CheckState.REJECTED, why.message, now)
    message = f"Attempt {number} came to nothing ({why.type}): {why.message}"
    if number <= retries:
        return replace(check, message=conditions.truncated(message))  # this one has been answered for already
    wait = backoff.delay_seconds(retries + 1, strategy.backoff_base_seconds, strategy.backoff_max_seconds)
    return replace(_saying(check, CheckState.RETRY, message, now), requeue_after_seconds=math.ceil(wait))


def _updates(
    workload: Workload, config: ProvisioningRequestConfigSpec, request: ProvisioningRequest
) -> tuple[PodSetUpdate, ...]:
    """What leads the pods to their nodes, for every pod set that the request stands for, merged into one or not."""
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
    return replace(_saying(check, CheckState.READY, message, now), pod_set_updates=updates)


def _saying(check: AdmissionCheckState, state: CheckState, message: str, now: Nanoseconds) -> AdmissionCheckState:
    # Of two answers the newer counts: one that is given after the clock was set back must not lose to the one before.
    before = check.last_transition_time
    at = before if check.state == state else format_time(max(now, states.moment(before) or 0))
    return replace(check, state=state.value, message=conditions.truncated(message), last_transition_time=at)


# --- The changes ------------------------------------------------------------------------------------------------------


def failed_to_ask(workload: Workload, check: str, message: str, now: Nanoseconds) -> Changes:
    """The check says why nothing could be asked; it is tried again."""
    answers = tuple(
        replace(each, message=conditions.truncated(message)) if each.name == check else each
        for each in workload.status.admission_checks
    )
    return (*_changes(workload, answers, now), workload_changes.warning("FailedCreate", message))


def _changes(workload: Workload, answers: tuple[AdmissionCheckState, ...], now: Nanoseconds) -> Changes:
    """The answers in both of their forms, and news of those that are different."""
    if answers == workload.status.admission_checks:
        return workload_changes.NOTHING
    written = workload_changes.apply_to(workload, (SetChecks(answers),), now)
    pairs = zip(workload.status.admission_checks, answers, strict=True)
    news = (_news(before, after) for before, after in pairs if before.state != after.state)
    return (SetChecks(answers), *checks.synced(written, None, now), *news)


def _news(before: AdmissionCheckState, after: AdmissionCheckState) -> workload_changes.EmitEvent:
    note = f"Check {after.name} went from {before.state} to {after.state}"
    return workload_changes.normal("AdmissionCheckUpdated", f"{note}: {after.message}" if after.message else note)
