"""Active and inactive. We deactivate in two writes, the wish in the status and then the specification."""

from __future__ import annotations

from typing import Final

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition
from pykueue.api.conditions import DeactivationReason, EvictedReason, RequeuedReason, WorkloadCondition
from pykueue.lifecycle import eviction, states
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import Changes, DeactivateWorkload, DropCondition, SetCondition, SetRequeue

_TARGET: Final = WorkloadCondition.DEACTIVATION_TARGET
_CAUSES: Final = frozenset(DeactivationReason)


def deactivation_target(context: RuleContext) -> RuleResult | None:
    """The wish is written; make it so."""
    if states.is_active(context.workload) and states.has(context.workload, _TARGET):
        return RuleResult((DeactivateWorkload(),), ends=True)
    return None


def reactivated(context: RuleContext) -> RuleResult | None:
    """Active again after a deactivation, whatever its cause was: it may be queued."""
    requeued = conditions.find(context.workload.status.conditions, WorkloadCondition.REQUEUED)
    if (
        not states.is_active(context.workload)
        or requeued is None
        or requeued.status != ConditionStatus.FALSE
        or not eviction.is_deactivation(requeued.reason)
    ):
        return None
    said = SetCondition(
        WorkloadCondition.REQUEUED, ConditionStatus.TRUE, RequeuedReason.REACTIVATED, "The workload was reactivated"
    )
    return RuleResult((said,))


def inactive(context: RuleContext) -> RuleResult | None:
    """An inactive Workload is evicted, also one that holds nothing; a reason that it was evicted for already stays."""
    workload = context.workload
    if states.is_active(workload):
        return None
    target = conditions.find(workload.status.conditions, _TARGET)
    forgotten: Changes = (
        *((SetRequeue(None, None),) if workload.status.requeue_state else ()),
        *((DropCondition(_TARGET),) if target else ()),
    )
    if states.is_evicted(workload):
        return RuleResult(forgotten)
    return RuleResult((*forgotten, *_evicted(context, target)))


def _evicted(context: RuleContext, target: Condition | None) -> Changes:
    message = "The workload is deactivated"
    if target is None or target.reason not in _CAUSES:
        return eviction.evict(context.workload, EvictedReason.DEACTIVATED, message, context.now)
    cause, message = DeactivationReason(target.reason), f"{message} due to {target.message}"
    return eviction.evict(context.workload, cause.evicted, message, context.now, cause=cause)
