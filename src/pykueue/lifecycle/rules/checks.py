"""The list of checks, and what their answers mean for a Workload that holds quota. Being admitted is no shield."""

from __future__ import annotations

from typing import Final

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.conditions import DeactivationReason, EvictedReason, Status, WorkloadCondition
from pykueue.api.kueue import CheckState
from pykueue.lifecycle import checks, eviction, states, workload_changes
from pykueue.lifecycle.rules import Verdict, View
from pykueue.lifecycle.workload_changes import SetCondition

# How long a Workload keeps the checks of the flavor that it had, should it get quota again at once.
_KEPT: Final = 2 * SECOND


def check_list(view: View) -> Verdict | None:
    """The checks that the ClusterQueue asks for, each in both forms."""
    workload, queue = view.workload, view.cluster_queue
    if view.facts.is_parent:
        return None  # the checks are those of its variants
    if queue is None:
        return Verdict(checks.synced(workload, None, view.now))
    names = set(checks.required(queue, workload.status.admission))
    until, kept = _kept_until(view), set[str]()
    if until is not None:
        listed = {check.name for check in workload.status.admission_checks}
        kept = listed & {check.name for check in queue.checks} - names
    return Verdict(checks.synced(workload, tuple(sorted(names | kept)), view.now), wake_at=until if kept else None)


def _kept_until(view: View) -> Nanoseconds | None:
    released = states.since(view.workload, WorkloadCondition.QUOTA_RESERVED)
    if released is None or states.is_reserved(view.workload) or view.now >= released + _KEPT:
        return None
    return released + _KEPT


def rejected(view: View) -> Verdict | None:
    """One No for ever is enough, whatever the others say: deactivate."""
    workload = view.workload
    against = checks.with_answer(workload, CheckState.REJECTED)
    if not against or not states.is_reserved(workload) or not states.is_active(workload):
        return None
    message = checks.stated(against, CheckState.REJECTED)
    return Verdict(
        (
            SetCondition(
                WorkloadCondition.DEACTIVATION_TARGET, Status.TRUE, DeactivationReason.ADMISSION_CHECK, message
            ),
            workload_changes.warning("AdmissionCheckRejected", f"Deactivated due to {message}"),
        )
    )


def retry(view: View) -> Verdict | None:
    """Not now: the quota goes back at once, though the Workload stays out for the delay (`rules/check_delay.py`)."""
    workload = view.workload
    against = checks.with_answer(workload, CheckState.RETRY)
    if not against or not states.is_reserved(workload) or states.is_evicted(workload):
        return None
    message = f"Evicted due to {checks.stated(against, CheckState.RETRY)}"
    return Verdict(eviction.evict(workload, EvictedReason.ADMISSION_CHECK, message, view.now))
