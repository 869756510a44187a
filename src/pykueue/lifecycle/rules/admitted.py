"""`Admitted` follows from reservation, checks and topology assignment [LC21]. With checks, the reservation is evaluated
again once they are Ready, since time has passed [LC22]. Without checks it is not: the scheduler writes both at once,
and a reservation that another client wrote is admitted as it is, as in Kueue."""

from __future__ import annotations

from pykueue.lifecycle import reservation, states
from pykueue.lifecycle.rules import RuleContext, RuleResult


def admitted(context: RuleContext) -> RuleResult | None:
    workload = context.workload
    if context.facts.is_parent and states.is_reserved(workload):
        return None  # it follows its variant
    if states.is_admitted(workload):
        # It ends where quota is released, not here; without quota it has ended.
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
            reason = context.facts.reservation_lost
            message = "The reservation did not hold any more when the last check was passed" + (
                f": {reason}" if reason else ""
            )
            return RuleResult(reservation.give_up(workload, message, context.options, context.now))
    return RuleResult(reservation.admitted(workload, context.options, context.now))
