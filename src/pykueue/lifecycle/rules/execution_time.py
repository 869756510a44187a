"""The maximum execution time limits the sum of all admissions of a Workload [LC56]."""

from __future__ import annotations

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from pykueue.api.conditions import DeactivationReason, WorkloadCondition
from pykueue.lifecycle import states, workload_changes
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition, SetPastExecution


def execution_time(context: RuleContext) -> RuleResult | None:
    workload = context.workload
    most = workload.spec.maximum_execution_time_seconds
    if most is None or not states.is_admitted(workload) or not states.is_reserved(workload):
        return None
    began = states.since(workload, WorkloadCondition.ADMITTED)
    if began is None or not states.is_active(workload):
        return None
    past = workload.status.accumulated_past_execution_time_seconds
    end = began + (most - (past or 0)) * SECOND
    if context.now < end:
        return RuleResult(wake_at=end)
    message = "exceeding the maximum execution time"
    return RuleResult(
        (
            SetCondition(
                WorkloadCondition.DEACTIVATION_TARGET,
                ConditionStatus.TRUE,
                DeactivationReason.MAXIMUM_EXECUTION_TIME_EXCEEDED,
                message,
            ),
            *((SetPastExecution(None),) if past is not None else ()),
            workload_changes.warning(
                DeactivationReason.MAXIMUM_EXECUTION_TIME_EXCEEDED, f"The maximum execution time ({most}s) exceeded"
            ),
        )
    )
