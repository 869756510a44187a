"""The list of checks, and what their answers mean for a Workload that holds quota. Being admitted is no shield."""

from __future__ import annotations

from pykueue.api.conditions import DeactivationReason, EvictedReason, Status, WorkloadCondition
from pykueue.api.kueue import CheckState
from pykueue.lifecycle import change, checks, eviction, states
from pykueue.lifecycle.change import SetCondition
from pykueue.lifecycle.rules import Verdict, View


def check_list(view: View) -> Verdict | None:
    """The checks that the ClusterQueue asks for, each in both forms."""
    queue = view.facts.cluster_queue
    names = None if queue is None else checks.required(queue, view.workload.status.admission)
    return Verdict(checks.synced(view.workload, names, view.now))


def rejected(view: View) -> Verdict | None:
    """One No for ever is enough, whatever the others say: deactivate."""
    workload = view.workload
    against = checks.with_answer(workload, CheckState.REJECTED)
    if not against or not states.is_reserved(workload) or not states.is_active(workload):
        return None
    message = f"Rejected by admission checks: {checks.told(against)}"
    return Verdict(
        (
            SetCondition(
                WorkloadCondition.DEACTIVATION_TARGET, Status.TRUE, DeactivationReason.ADMISSION_CHECK, message
            ),
            change.warning("AdmissionCheckRejected", message),
        )
    )


def retry(view: View) -> Verdict | None:
    """Not now: the quota goes back at once, though the Workload stays out for the delay (`rules/check_delay.py`)."""
    workload = view.workload
    against = checks.with_answer(workload, CheckState.RETRY)
    if not against or not states.is_reserved(workload) or states.is_evicted(workload):
        return None
    message = f"Admission checks ask to try again: {checks.told(against)}"
    return Verdict(eviction.evict(workload, EvictedReason.ADMISSION_CHECK, message, view.now))
