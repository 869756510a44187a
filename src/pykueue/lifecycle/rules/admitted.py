"""`Admitted` follows from reservation, checks and placement. Where checks were passed, time has gone by since the quota
was reserved, and the reservation is evaluated again before (decision 0015). Without checks it is not: the scheduler
writes both at once, and a reservation that another client wrote is admitted as it stands, as Kueue does."""

from __future__ import annotations

from pykueue.lifecycle import reservation, states
from pykueue.lifecycle.rules import RuleContext, RuleResult


def admitted(context: RuleContext) -> RuleResult | None:
    workload = context.workload
    if context.facts.is_parent and states.is_reserved(workload):
        return None  # it follows its variant
    if states.is_admitted(workload):
        # It ends where quota is given back, not here; without quota it cannot go on.
        return (
            None
            if states.is_reserved(workload)
            else RuleResult(reservation.admitted(workload, context.options, context.now))
        )
    passed = (
        states.is_reserved(workload) and states.are_checks_ready(workload) and not states.is_topology_pending(workload)
    )
    if passed and states.is_evicted(workload):
        return None
    if passed and workload.status.admission_checks:
        if context.facts.reservation_holds is None:
            return RuleResult(recheck=True)
        if not context.facts.reservation_holds:
            why = context.facts.reservation_lost
            message = "The reservation did not hold any more when the last check was passed" + (
                f": {why}" if why else ""
            )
            return RuleResult(reservation.give_up(workload, message, context.options, context.now))
    return RuleResult(reservation.admitted(workload, context.options, context.now))
