"""The end of a Workload: the condition Finished, which is never reset [LC91].

Its transition time is the end of the job, as far as the job has it: the manager may have been down at that time.
"""

from __future__ import annotations

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.api.kueue import Workload
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.workload_changes import Changes, Finished, SetCondition


def finish(
    workload: Workload, reason: FinishedReason, message: str, now: Nanoseconds, ended: Nanoseconds | None = None
) -> Changes:
    """Set Finished. `status.admission` stays, and no longer counts. No changes for a finished Workload.

    `ended` is when the job ended; None if that is not known. It is the time of another clock: it never counts as later
    than now, nor as earlier than the last admission.
    """
    if states.is_finished(workload):
        return workload_changes.NOTHING
    at = None if ended is None else min(max(ended, _admitted(workload) or 0), now)
    return (
        SetCondition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, reason, message, at),
        Finished(states.cluster_queue(workload), reason, _executed(workload, now if at is None else at)),
    )


def _admitted(workload: Workload) -> Nanoseconds | None:
    return states.since(workload, WorkloadCondition.ADMITTED) if states.is_admitted(workload) else None


def _executed(workload: Workload, end: Nanoseconds) -> Nanoseconds | None:
    began = _admitted(workload)
    if began is None:
        return None
    past = workload.status.accumulated_past_execution_time_seconds or 0
    return past * SECOND + max(0, end - began)
