"""AdmissionChecks of MultiKueue, which is not implemented: a check that never answers must not hold quota."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from kubemachinery.meta import Nanoseconds, format_time
from pykueue.api.effects import NO_MULTIKUEUE
from pykueue.api.kueue import CheckState, Workload
from pykueue.lifecycle import states
from pykueue.lifecycle.workload_changes import Changes, SetChecks


def release(workload: Workload, checks: Collection[str], now: Nanoseconds) -> Changes:
    """Answer Retry for those of `checks` that a Workload with reserved quota waits for, so that it is evicted.

    Its ClusterQueue is inactive by then, so it does not reserve again; its conditions name the check. A Workload that
    is admitted, as by a Kueue that managed the cluster before, is left alone.
    """
    if states.is_finished(workload) or states.is_evicted(workload) or states.is_admitted(workload):
        return ()
    if not states.is_reserved(workload):
        return ()
    answered = tuple(
        replace(check, state=CheckState.RETRY.value, message=NO_MULTIKUEUE, last_transition_time=format_time(now))
        if check.name in checks and check.state == CheckState.PENDING
        else check
        for check in workload.status.admission_checks
    )
    return (SetChecks(answered),) if answered != workload.status.admission_checks else ()
