"""A requeued Workload may be queued again: its backoff is over, or its queue was restarted."""

from __future__ import annotations

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from pykueue.api.conditions import EvictedReason, RequeuedReason, WorkloadCondition
from pykueue.lifecycle import states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition, SetRequeue


def backoff(context: RuleContext) -> RuleResult | None:
    """Out of the queue until `requeueAt`. Afterwards it is removed, the count stays, and `Requeued` becomes
    True [LC54]; also while quota is still reserved, because the job of an evicted Workload may take longer to stop."""
    workload, at = context.workload, states.requeue_at(context.workload)
    if not states.is_active(workload):
        return None
    if at is not None and at > context.now:
        return RuleResult(wake_at=at)
    backs_off = _waits_after(context, EvictedReason.PODS_READY_TIMEOUT) or _waits_after(
        context, EvictedReason.ADMISSION_CHECK
    )
    if at is not None and (backs_off or not states.is_reserved(workload)):
        return RuleResult((SetRequeue(states.requeue_count(workload), None),))
    if backs_off:
        return _requeued(RequeuedReason.BACKOFF_FINISHED, "The workload backoff was finished")
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
