"""The list of checks, and what their states mean for a Workload with quota, admitted or not."""

from __future__ import annotations

from typing import Final

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import DeactivationReason, EvictedReason, WorkloadCondition
from pykueue.api.kueue import CheckState
from pykueue.lifecycle import checks, eviction, states, workload_changes
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetCondition

# How long a Workload keeps the checks of its last flavors, in case quota is reserved again at once [LC76].
_KEPT: Final = 2 * SECOND


def check_list(context: RuleContext) -> RuleResult | None:
    """The checks that the ClusterQueue requires [LC75], each as an entry and as a condition [LC77]."""
    workload, queue = context.workload, context.cluster_queue
    if context.facts.is_parent:
        return None  # the checks are those of its variants
    status = workload.status
    if not (queue and queue.checks) and not status.admission_checks and not status.admission_checks_conditions:
        return None
    if queue is None:
        return RuleResult(checks.synced(workload, None, context.now))
    names = set(checks.required(queue, workload.status.admission))
    until, kept = _kept_until(context), set[str]()
    if until is not None:
        listed = {check.name for check in workload.status.admission_checks}
        kept = listed & {check.name for check in queue.checks} - names
    return RuleResult(
        checks.synced(workload, tuple(sorted(names | kept)), context.now), wake_at=until if kept else None
    )


def _kept_until(context: RuleContext) -> Nanoseconds | None:
    released = states.since(context.workload, WorkloadCondition.QUOTA_RESERVED)
    if released is None or states.is_reserved(context.workload) or context.now >= released + _KEPT:
        return None
    return released + _KEPT


def rejected(context: RuleContext) -> RuleResult | None:
    """Deactivate on a Rejected check, whatever the state of the others [LC78]."""
    workload = context.workload
    against = checks.with_answer(workload, CheckState.REJECTED)
    if not against or not states.is_reserved(workload) or not states.is_active(workload):
        return None
    message = checks.stated(against, CheckState.REJECTED)
    return RuleResult(
        (
            SetCondition(
                WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, DeactivationReason.ADMISSION_CHECK, message
            ),
            workload_changes.warning("AdmissionCheckRejected", f"Deactivated due to {message}"),
        )
    )


def retry(context: RuleContext) -> RuleResult | None:
    """Evict on a check in state Retry [LC79]. `rules/check_delay.py` keeps the Workload out of the queue."""
    workload = context.workload
    against = checks.with_answer(workload, CheckState.RETRY)
    if not against or not states.is_reserved(workload) or states.is_evicted(workload):
        return None
    message = f"Evicted due to {checks.stated(against, CheckState.RETRY)}"
    return RuleResult(eviction.evict(workload, EvictedReason.ADMISSION_CHECK, message, context.now))
