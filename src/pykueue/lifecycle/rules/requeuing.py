"""One that was put back may be queued again: its time has come, or what it was evicted for is over."""

from __future__ import annotations

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from pykueue.api.conditions import EvictedReason, RequeuedReason, WorkloadCondition
from pykueue.lifecycle import states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition, SetRequeue


def backoff(context: RuleContext) -> RuleResult | None:
    """Out of the queue until `requeueAt`. Once that has passed it is removed, the count stays, and `Requeued` becomes
    True; also while quota is still held, because the job of an evicted Workload may take longer to stop."""
    workload, at = context.workload, states.requeue_at(context.workload)
    if not states.is_active(workload):
        return None
    if at is not None and at > context.now:
        return RuleResult(wake_at=at)
    is_put_back = _waits_after(context, EvictedReason.PODS_READY_TIMEOUT) or _waits_after(
        context, EvictedReason.ADMISSION_CHECK
    )
    if at is not None and (is_put_back or not states.is_reserved(workload)):
        return RuleResult((SetRequeue(states.requeue_count(workload), None),))
    if is_put_back:
        return _may_come(RequeuedReason.BACKOFF_FINISHED, "The workload backoff was finished")
    return None


def local_queue_restarted(context: RuleContext) -> RuleResult | None:
    """Evicted because its LocalQueue was drained, and the LocalQueue works again."""
    queue = context.facts.local_queue
    if queue is None or queue.is_stopped or not _waits_after(context, EvictedReason.LOCAL_QUEUE_STOPPED):
        return None
    return _may_come(RequeuedReason.LOCAL_QUEUE_RESTARTED, "The LocalQueue was restarted after being stopped")


def cluster_queue_restarted(context: RuleContext) -> RuleResult | None:
    """Evicted because its ClusterQueue was drained, and the ClusterQueue works again."""
    queue = context.cluster_queue
    if queue is None or queue.is_stopped or not _waits_after(context, EvictedReason.CLUSTER_QUEUE_STOPPED):
        return None
    return _may_come(RequeuedReason.CLUSTER_QUEUE_RESTARTED, "The ClusterQueue was restarted after being stopped")


def _waits_after(context: RuleContext, reason: EvictedReason) -> bool:
    requeued = conditions.find(context.workload.status.conditions, WorkloadCondition.REQUEUED)
    return requeued is not None and requeued.status == ConditionStatus.FALSE and requeued.reason == reason


def _may_come(reason: RequeuedReason, message: str) -> RuleResult:
    return RuleResult((SetCondition(WorkloadCondition.REQUEUED, ConditionStatus.TRUE, reason, message),))
