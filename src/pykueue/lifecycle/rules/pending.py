"""Why a Workload without quota is pending, between two attempts of the scheduler: the first reason that holds [LC30].

A reason that the scheduler wrote stays until its next attempt, unless something prevents an attempt. A cause that was
removed becomes PendingEvaluation [LC31].
"""

from __future__ import annotations

from typing import Final

from kubemachinery import conditions
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Condition
from pykueue.api.conditions import QuotaReservedReason, WorkloadCondition
from pykueue.lifecycle import reservation, states
from pykueue.lifecycle.rules import RuleContext, RuleResult, admission_gate
from pykueue.lifecycle.workload_changes import Changes, SetAdmission, SetCondition

_R = QuotaReservedReason

# Written by the scheduler, and true until its next attempt.
_KEPT: Final = frozenset(
    {
        _R.WAITING_FOR_QUOTA,
        _R.NO_MATCHING_FLAVOR,
        _R.EXCEEDS_MAX_QUOTA,
        _R.TOPOLOGY_PLACEMENT_FAILED,
        _R.WAITING_FOR_PREEMPTED_WORKLOADS,
        _R.WAITING_FOR_PODS_READY,
        _R.PENDING_EVALUATION,
    }
)
# Replaced by the reason of a Workload of the same equivalence class.
_REPLACEABLE: Final = frozenset({"", _R.DEACTIVATED, _R.SUSPENDED, _R.PENDING_EVALUATION, _R.PENDING})

_NOT_YET: Final = "Workload is pending evaluation in the scheduling queue"
_BYPASSED: Final = "Bypassed scheduling evaluation because an equivalent workload recently failed"
_GATE_CLEARED: Final = "AdmissionGatedBy cleared, waiting for quota reservation"
_HAS_VARIANTS: Final = "The variants of the Workload compete for quota in its place"


def waiting(context: RuleContext) -> RuleResult | None:
    workload = context.workload
    if states.is_reserved(workload) or states.is_on_hold(workload):
        return None
    before = conditions.find(workload.status.conditions, WorkloadCondition.QUOTA_RESERVED)
    found = _reason(context, before) if context.options.observability else _old_reason(context, before)
    # Another client may release the quota and leave the assignment: an apply does not remove the fields of another
    # manager. The next reservation could not change it, since assigned flavors are immutable.
    back: Changes = (SetAdmission(None),) if workload.status.admission else ()
    if found is None:
        return RuleResult(back) if back else None
    reason, message = found
    condition = SetCondition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, reason, message)
    return RuleResult((condition, *back, *_gate_events(context, before, reason)))


def _reason(context: RuleContext, before: Condition | None) -> tuple[QuotaReservedReason, str] | None:
    """The reason and its message; None if no condition is written, or the present one stays."""
    workload, options = context.workload, context.options
    current = before.reason if before else ""
    if not states.is_active(workload):
        # Evicted and Requeued have the cause; this message is the same after every cause, as in Kueue.
        return _R.DEACTIVATED, "The workload is deactivated"
    if blocked := _blocked(context):
        return blocked
    if context.facts.problem:
        return _R.MISCONFIGURED, context.facts.problem
    if states.is_gated(workload, gates_count=options.admission_gated_by):
        return _R.ADMISSION_GATED, admission_gate.message(context.workload)
    if context.facts.is_parent:
        return _R.PENDING_EVALUATION, _HAS_VARIANTS
    known = context.facts.known_failure
    has_status = before is not None or options.explicit_status
    if has_status and options.equivalence_hashing and known is not None and current in _REPLACEABLE:
        return known.reason, _BYPASSED
    if current in _KEPT or _is_held_by_preemption_gates(context, current) or not has_status:
        return None
    return _R.PENDING_EVALUATION, _GATE_CLEARED if current == _R.ADMISSION_GATED else _NOT_YET


def _blocked(context: RuleContext) -> tuple[QuotaReservedReason, str] | None:
    """Why the queues of the Workload cannot admit."""
    local_queue, cluster_queue = context.facts.local_queue, context.facts.cluster_queue
    name = context.workload.spec.queue_name
    if local_queue is None or local_queue.is_deleting:
        return _R.MISCONFIGURED, f"LocalQueue {name or ''} doesn't exist"
    if local_queue.is_stopped:
        return _R.SUSPENDED, f"LocalQueue {name} is inactive"
    if cluster_queue is None:
        return _R.MISCONFIGURED, f"ClusterQueue {local_queue.cluster_queue} doesn't exist"
    if not cluster_queue.is_active or cluster_queue.is_stopped or cluster_queue.is_deleting:
        return _R.SUSPENDED, f"ClusterQueue {cluster_queue.name} is inactive"
    return None


def _old_reason(context: RuleContext, before: Condition | None) -> tuple[QuotaReservedReason, str] | None:
    """With the gate UnadmittedWorkloadsObservability off: queues, and the admission gate [LC32]."""
    if blocked := _blocked(context):
        return reservation.written_reason(blocked[0], context.options), blocked[1]
    if states.is_gated(context.workload, gates_count=context.options.admission_gated_by):
        return _R.ADMISSION_GATED, admission_gate.message(context.workload)
    if context.facts.is_parent:
        return _R.PENDING, _HAS_VARIANTS
    current = before.reason if before else ""
    if current == _R.ADMISSION_GATED and not _is_held_by_preemption_gates(context, current):
        return _R.PENDING, _GATE_CLEARED
    return None


def _is_held_by_preemption_gates(context: RuleContext, current: str) -> bool:
    """Preemption gates: the scheduler writes the same reason for them."""
    return current == _R.ADMISSION_GATED and states.has(context.workload, WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES)


def _gate_events(context: RuleContext, before: Condition | None, reason: QuotaReservedReason) -> Changes:
    current = before.reason if before else ""
    if reason == _R.ADMISSION_GATED != current:
        return (admission_gate.event(context.workload),)
    return reservation.ungated(context.workload) if reason != _R.ADMISSION_GATED else ()
