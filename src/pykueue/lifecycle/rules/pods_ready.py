"""waitForPodsReady: a Workload is evicted if its pods do not become ready, or recover, in time [LC51]."""

from __future__ import annotations

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import (
    DeactivationReason,
    EvictedReason,
    PodsReadyReason,
    UnderlyingCause,
    WorkloadCondition,
)
from pykueue.lifecycle import backoff, eviction, states
from pykueue.lifecycle.facts import PodsReadyOptions
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition, SetRequeue


def pods_ready(context: RuleContext) -> RuleResult | None:
    workload, options = context.workload, context.options.pods_ready
    if (
        options is None
        or context.facts.is_variant
        or not states.is_reserved(workload)
        or not states.is_admitted(workload)
        or not states.is_active(workload)
        or states.is_evicted(workload)
        or states.has(workload, WorkloadCondition.PODS_READY)
    ):
        return None
    cause, began, limit = _clock(context, options)
    if began is None or limit is None:
        return None
    if context.now < began + limit:
        return RuleResult(wake_at=began + limit)
    return _expired(context, options, cause)


def _clock(
    context: RuleContext, options: PodsReadyOptions
) -> tuple[UnderlyingCause, Nanoseconds | None, Nanoseconds | None]:
    """What the Workload waits for, since when, and for how long at most."""
    found = conditions.find(context.workload.status.conditions, WorkloadCondition.PODS_READY)
    if found is not None and found.reason == PodsReadyReason.WAIT_FOR_RECOVERY:
        since = states.since(context.workload, WorkloadCondition.PODS_READY)
        return UnderlyingCause.WAIT_FOR_RECOVERY, since, options.recovery_timeout or None
    return UnderlyingCause.WAIT_FOR_START, states.since(context.workload, WorkloadCondition.ADMITTED), options.timeout


def _expired(context: RuleContext, options: PodsReadyOptions, cause: UnderlyingCause) -> RuleResult:
    workload, most = context.workload, options.backoff_limit_count
    count = (states.requeue_count(workload) or 0) + 1
    if most is not None and count > most:
        message = "exceeding the maximum number of re-queuing retries"
        reason = DeactivationReason.REQUEUING_LIMIT_EXCEEDED
        return RuleResult((SetCondition(WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, reason, message),))
    wait = backoff.delay_seconds(count, options.backoff_base_seconds, options.backoff_max_seconds, context.jitter)
    at = backoff.later(backoff.written(context.now + int(wait * SECOND)), states.requeue_at(workload))
    message = f"Exceeded the PodsReady timeout {states.key(workload)}"
    return RuleResult(
        (
            SetRequeue(count, at),
            *eviction.evict(workload, EvictedReason.PODS_READY_TIMEOUT, message, context.now, cause=cause),
        )
    )
