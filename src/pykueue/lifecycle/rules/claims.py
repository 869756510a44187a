"""A Workload with resource claims is inadmissible while the gate KueueDRAIntegration is off [LC27]."""

from __future__ import annotations

from kubemachinery.conditions import ConditionStatus
from pykueue.api.conditions import QuotaReservedReason, RequeuedReason, WorkloadCondition
from pykueue.lifecycle import reservation, states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition

_MESSAGE = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"


def claims(context: RuleContext) -> RuleResult | None:
    workload, options = context.workload, context.options
    if options.dynamic_resources or not options.refuse_claims or not states.uses_claims(workload):
        return None
    if states.is_reserved(workload) or not states.is_active(workload):
        return None
    return RuleResult(
        (
            *reservation.clear(workload, QuotaReservedReason.MISCONFIGURED, _MESSAGE, options, context.now),
            SetCondition(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, RequeuedReason.INADMISSIBLE, _MESSAGE),
        ),
        ends=True,
    )
