"""Activation and deactivation. The manager deactivates in two writes: DeactivationTarget in the status, then
`spec.active` [LC70]."""

from __future__ import annotations

from typing import Final

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition
from pykueue.api.conditions import DeactivationReason, EvictedReason, RequeuedReason, WorkloadCondition
from pykueue.lifecycle import eviction, states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import Changes, DropCondition, SetCondition, SetInactive, SetRequeue

_TARGET: Final = WorkloadCondition.DEACTIVATION_TARGET
_CAUSES: Final = frozenset(DeactivationReason)


def deactivation_target(context: RuleContext) -> RuleResult | None:
    """Deactivate a Workload with the condition DeactivationTarget [LC70]."""
    if states.is_active(context.workload) and states.has(context.workload, _TARGET):
        return RuleResult((SetInactive(),), ends=True)
    return None


def reactivated(context: RuleContext) -> RuleResult | None:
    """Requeue a Workload that is active again after a deactivation, whatever its cause [LC72]."""
    requeued = conditions.find(context.workload.status.conditions, WorkloadCondition.REQUEUED)
    if (
        not states.is_active(context.workload)
        or requeued is None
        or requeued.status != ConditionStatus.FALSE
        or not eviction.is_deactivation(requeued.reason)
    ):
        return None
    requeue = SetCondition(
        WorkloadCondition.REQUEUED, ConditionStatus.TRUE, RequeuedReason.REACTIVATED, "The workload was reactivated"
    )
    return RuleResult((requeue,))


def inactive(context: RuleContext) -> RuleResult | None:
    """Evict an inactive Workload, also one without quota [LC71]. The reason of an earlier eviction stays."""
    workload = context.workload
    if states.is_active(workload):
        return None
    target = conditions.find(workload.status.conditions, _TARGET)
    cleared: Changes = (
        *((SetRequeue(None, None),) if workload.status.requeue_state else ()),
        *((DropCondition(_TARGET),) if target else ()),
    )
    if states.is_evicted(workload):
        return RuleResult(cleared)
    return RuleResult((*cleared, *_evicted(context, target)))


def _evicted(context: RuleContext, target: Condition | None) -> Changes:
    message = "The workload is deactivated"
    if target is None or target.reason not in _CAUSES:
        return eviction.evict(context.workload, EvictedReason.DEACTIVATED, message, context.now)
    cause, message = DeactivationReason(target.reason), f"{message} due to {target.message}"
    return eviction.evict(context.workload, cause.evicted, message, context.now, cause=cause)
