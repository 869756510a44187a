"""The status lists the preemption gates of the spec; new ones are closed."""

from __future__ import annotations

from kubemachinery.meta import format_time
from pykueue.api.kueue import PreemptionGatePosition, PreemptionGateState
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.workload_changes import SetPreemptionGates


def preemption_gates(context: RuleContext) -> RuleResult | None:
    if not context.options.orchestrated_preemption:
        return None
    listed = {gate.name: gate for gate in context.workload.status.preemption_gates}
    closed = PreemptionGatePosition.CLOSED.value
    wanted = tuple(
        listed.get(gate.name)
        or PreemptionGateState(name=gate.name, position=closed, last_transition_time=format_time(context.now))
        for gate in context.workload.spec.preemption_gates
    )
    return RuleResult((SetPreemptionGates(wanted),)) if wanted != context.workload.status.preemption_gates else None
