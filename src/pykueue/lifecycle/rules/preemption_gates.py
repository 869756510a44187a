"""The status lists the preemption gates of the specification, new ones closed."""

from __future__ import annotations

from kubemachinery.meta import format_time
from pykueue.api.kueue import PreemptionGatePosition, PreemptionGateState
from pykueue.lifecycle.rules import Verdict, View
from pykueue.lifecycle.workload_changes import SetPreemptionGates


def preemption_gates(view: View) -> Verdict | None:
    if not view.options.orchestrated_preemption:
        return None
    listed = {gate.name: gate for gate in view.workload.status.preemption_gates}
    closed = PreemptionGatePosition.CLOSED.value
    wanted = tuple(
        listed.get(gate.name)
        or PreemptionGateState(name=gate.name, position=closed, last_transition_time=format_time(view.now))
        for gate in view.workload.spec.preemption_gates
    )
    return Verdict((SetPreemptionGates(wanted),)) if wanted != view.workload.status.preemption_gates else None
