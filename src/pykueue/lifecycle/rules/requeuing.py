"""A requeued Workload may be queued again: its backoff is over, or its queue was restarted."""

from __future__ import annotations

from typing import Final

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import EvictedReason, RequeuedReason, WorkloadCondition
from pykueue.api.kueue import CheckState
from pykueue.lifecycle import backoff as backoff_delays
from pykueue.lifecycle import checks, states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition, SetRequeue

# By how much the clocks of two managers may differ without a new time.
_AHEAD: Final = 10 * SECOND


def backoff(context: RuleContext) -> RuleResult | None:
    """Out of the queue until `requeueAt`; if the clock was ahead when it was written, at most for the longest backoff
    [LC107]. Afterwards it is removed, the count stays, and `Requeued` becomes True [LC54]; also while quota is still
    reserved, because the job of an evicted Workload may take longer to stop."""
    workload, at = context.workload, states.requeue_at(context.workload)
    if not states.is_active(workload):
        return None
    if at is not None and at > context.now:
        latest = _latest(context)
        if latest is not None and at > latest:
            return RuleResult((SetRequeue(states.requeue_count(workload), latest),))
        return RuleResult(wake_at=at)
    backs_off = _waits_after(context, EvictedReason.PODS_READY_TIMEOUT) or _waits_after(
        context, EvictedReason.ADMISSION_CHECK
    )
    if at is not None and (backs_off or not states.is_reserved(workload)):
        return RuleResult((SetRequeue(states.requeue_count(workload), None),))
    if backs_off:
        return _requeued(RequeuedReason.BACKOFF_FINISHED, "The workload backoff was finished")
    return None


def _latest(context: RuleContext) -> Nanoseconds | None:
    """The latest `requeueAt` that could be written now for an eviction that was written by a clock that was ahead: its
    time has not come yet [LC107]. None for any other eviction, and where the length of the backoff is not known."""
    workload = context.workload
    evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
    began = states.since(workload, WorkloadCondition.EVICTED)
    if evicted is None or began is None or began <= context.now + _AHEAD or not states.is_evicted(workload):
        return None
    longest = _longest_seconds(context, evicted.reason)
    return None if longest is None else backoff_delays.written(context.now + int((longest + 1) * SECOND))


def _longest_seconds(context: RuleContext, reason: str) -> float | None:
    """The longest backoff that an eviction for this reason may write."""
    workload, options = context.workload, context.options.pods_ready
    if reason == EvictedReason.PODS_READY_TIMEOUT and options is not None:
        count = states.requeue_count(workload) or 1
        return backoff_delays.delay_seconds(count, options.backoff_base_seconds, options.backoff_max_seconds, 1.0)
    # A check that is still in Retry has a delay of its own, which counts from its transition [LC80].
    if reason == EvictedReason.ADMISSION_CHECK and not checks.with_answer(workload, CheckState.RETRY):
        delays = (
            checks.retry_delay_seconds(check, context.facts.cluster_queue) for check in workload.status.admission_checks
        )
        return max(delays, default=None)
    return None


def local_queue_restarted(context: RuleContext) -> RuleResult | None:
    """Requeue a Workload that was evicted by its LocalQueue, which is active again [LC45]."""
    queue = context.facts.local_queue
    if queue is None or queue.is_stopped or not _waits_after(context, EvictedReason.LOCAL_QUEUE_STOPPED):
        return None
    return _requeued(RequeuedReason.LOCAL_QUEUE_RESTARTED, "The LocalQueue was restarted after being stopped")


def cluster_queue_restarted(context: RuleContext) -> RuleResult | None:
    """Requeue a Workload that was evicted by its ClusterQueue, which is active again [LC44]."""
    queue = context.cluster_queue
    if queue is None or queue.is_stopped or not _waits_after(context, EvictedReason.CLUSTER_QUEUE_STOPPED):
        return None
    return _requeued(RequeuedReason.CLUSTER_QUEUE_RESTARTED, "The ClusterQueue was restarted after being stopped")


def _waits_after(context: RuleContext, reason: EvictedReason) -> bool:
    requeued = conditions.find(context.workload.status.conditions, WorkloadCondition.REQUEUED)
    return requeued is not None and requeued.status == ConditionStatus.FALSE and requeued.reason == reason


def _requeued(reason: RequeuedReason, message: str) -> RuleResult:
    return RuleResult((SetCondition(WorkloadCondition.REQUEUED, ConditionStatus.TRUE, reason, message),))
