"""One that was put back may be queued again: its time has come, or what it was evicted for is over."""

from __future__ import annotations

from pykueue.api import conditions
from pykueue.api.conditions import EvictedReason, RequeuedReason, Status, WorkloadCondition
from pykueue.lifecycle import states
from pykueue.lifecycle.rules import Verdict, View
from pykueue.lifecycle.workload_changes import SetCondition, SetRequeue


def backoff(view: View) -> Verdict | None:
    """Out of the queue until `requeueAt`. Once that has passed it is removed, the count stays, and `Requeued` becomes
    True; also while quota is still held, because the job of an evicted Workload may take longer to stop."""
    workload, at = view.workload, states.requeue_at(view.workload)
    if not states.is_active(workload):
        return None
    if at is not None and at > view.now:
        return Verdict(wake_at=at)
    is_put_back = _waits_after(view, EvictedReason.PODS_READY_TIMEOUT) or _waits_after(
        view, EvictedReason.ADMISSION_CHECK
    )
    if at is not None and (is_put_back or not states.is_reserved(workload)):
        return Verdict((SetRequeue(states.requeue_count(workload), None),))
    if is_put_back:
        return _may_come(RequeuedReason.BACKOFF_FINISHED, "The workload backoff was finished")
    return None


def local_queue_restarted(view: View) -> Verdict | None:
    """Evicted because its LocalQueue was drained, and the LocalQueue works again."""
    queue = view.facts.local_queue
    if queue is None or queue.is_stopped or not _waits_after(view, EvictedReason.LOCAL_QUEUE_STOPPED):
        return None
    return _may_come(RequeuedReason.LOCAL_QUEUE_RESTARTED, "The LocalQueue was restarted after being stopped")


def cluster_queue_restarted(view: View) -> Verdict | None:
    """Evicted because its ClusterQueue was drained, and the ClusterQueue works again."""
    queue = view.cluster_queue
    if queue is None or queue.is_stopped or not _waits_after(view, EvictedReason.CLUSTER_QUEUE_STOPPED):
        return None
    return _may_come(RequeuedReason.CLUSTER_QUEUE_RESTARTED, "The ClusterQueue was restarted after being stopped")


def _waits_after(view: View, reason: EvictedReason) -> bool:
    requeued = conditions.find(view.workload.status.conditions, WorkloadCondition.REQUEUED)
    return requeued is not None and requeued.status == Status.FALSE and requeued.reason == reason


def _may_come(reason: RequeuedReason, message: str) -> Verdict:
    return Verdict((SetCondition(WorkloadCondition.REQUEUED, Status.TRUE, reason, message),))
