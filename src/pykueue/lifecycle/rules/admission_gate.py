"""An annotation keeps the Workload from being admitted; quota that it holds goes back."""

from __future__ import annotations

from pykueue.api.conditions import QuotaReservedReason
from pykueue.lifecycle import change, reservation, states
from pykueue.lifecycle.rules import Verdict, View

GATED = "Somebody holds back the admission by the annotation kueue.x-k8s.io/admission-gated-by"


def admission_gate(view: View) -> Verdict | None:
    workload = view.workload
    if not states.is_reserved(workload) or states.is_evicted(workload):
        return None
    if not states.is_gated(workload, gates_count=view.options.admission_gated_by):
        return None
    cleared = reservation.clear(workload, QuotaReservedReason.ADMISSION_GATED, GATED, view.options, view.now)
    return Verdict((*cleared, change.normal("AdmissionGated", GATED)))
