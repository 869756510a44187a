"""Active and inactive. We deactivate in two writes, the wish in the status and then the specification."""

from __future__ import annotations

from typing import Final

from kubemachinery.meta import Condition
from pykueue.api import conditions
from pykueue.api.conditions import (
    DeactivationReason,
    EvictedReason,
    RequeuedReason,
    Status,
    WorkloadCondition,
)
from pykueue.lifecycle import eviction, states
from pykueue.lifecycle.rules import Verdict, View
from pykueue.lifecycle.workload_changes import Changes, Deactivate, DropCondition, SetCondition, SetRequeue

_TARGET: Final = WorkloadCondition.DEACTIVATION_TARGET
_CAUSES: Final = frozenset(DeactivationReason)


def deactivation_target(view: View) -> Verdict | None:
    """The wish is written; make it so."""
    if states.is_active(view.workload) and states.has(view.workload, _TARGET):
        return Verdict((Deactivate(),), ends=True)
    return None


def reactivated(view: View) -> Verdict | None:
    """Active again after a deactivation, whatever its cause was: it may be queued."""
    requeued = conditions.find(view.workload.status.conditions, WorkloadCondition.REQUEUED)
    if (
        not states.is_active(view.workload)
        or requeued is None
        or requeued.status != Status.FALSE
        or not eviction.is_deactivation(requeued.reason)
    ):
        return None
    said = SetCondition(
        WorkloadCondition.REQUEUED, Status.TRUE, RequeuedReason.REACTIVATED, "The workload was reactivated"
    )
    return Verdict((said,))


def inactive(view: View) -> Verdict | None:
    """An inactive Workload is evicted, also one that holds nothing; a reason that it was evicted for already stays."""
    workload = view.workload
    if states.is_active(workload):
        return None
    target = conditions.find(workload.status.conditions, _TARGET)
    forgotten: Changes = (
        *((SetRequeue(None, None),) if workload.status.requeue_state else ()),
        *((DropCondition(_TARGET),) if target else ()),
    )
    if states.is_evicted(workload):
        return Verdict(forgotten)
    return Verdict((*forgotten, *_evicted(view, target)))


def _evicted(view: View, target: Condition | None) -> Changes:
    message = "The workload is deactivated"
    if target is None or target.reason not in _CAUSES:
        return eviction.evict(view.workload, EvictedReason.DEACTIVATED, message, view.now)
    cause, message = DeactivationReason(target.reason), f"{message} due to {target.message}"
    return eviction.evict(view.workload, cause.evicted, message, view.now, cause=cause)
