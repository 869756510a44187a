"""The end of a Workload: the condition Finished, which is never reset [LC91]."""

from __future__ import annotations

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.workload_changes import Changes, Finished, SetCondition


def finish(workload: Workload, reason: FinishedReason, message: str, now: Nanoseconds) -> Changes:
    """Set Finished. `status.admission` stays, and no longer counts. No changes for a finished Workload."""
    if states.is_finished(workload):
        return workload_changes.NOTHING
    return (
        SetCondition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, reason, message),
        Finished(states.cluster_queue(workload), reason, _executed(workload, now)),
    )


def _executed(workload: Workload, now: Nanoseconds) -> Nanoseconds | None:
    began = states.since(workload, WorkloadCondition.ADMITTED)
    if not states.is_admitted(workload) or began is None:
        return None
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return past * SECOND + max(0, now - began)
