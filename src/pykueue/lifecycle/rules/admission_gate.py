"""The annotation admission-gated-by: a gated Workload loses its reservation [LC26]."""

from __future__ import annotations

from pykueue.api import labels
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import Workload
from pykueue.lifecycle import reservation, states, workload_changes
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import EmitEvent


def message(workload: Workload) -> str:
    """The message of the condition: the controllers that the annotation names."""
    return f"Admission is gated by: {_gates(workload)}"


def event(workload: Workload) -> EmitEvent:
    return workload_changes.normal("AdmissionGated", f"Workload admission is gated by: {_gates(workload)}")


def _gates(workload: Workload) -> str:
    return workload.metadata.annotations.get(labels.ADMISSION_GATED_BY, "")


def admission_gate(context: RuleContext) -> RuleResult | None:
    workload = context.workload
    if not states.is_gated(workload, gates_count=context.options.admission_gated_by):
        return None
    if not states.is_reserved(workload) or states.is_evicted(workload):
        return None
    cleared = reservation.clear(
        workload, QuotaReservedReason.ADMISSION_GATED, message(workload), context.options, context.now
    )
    return RuleResult((*cleared, event(workload)))
