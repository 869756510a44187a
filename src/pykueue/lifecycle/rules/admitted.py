"""`Admitted` follows from reservation, checks and placement; the reservation is looked at once more before."""

from __future__ import annotations

from pykueue.lifecycle import reservation, states
from pykueue.lifecycle.rules import Verdict, View


def admitted(view: View) -> Verdict | None:
    """Between the reservation and the last check's yes, quota may have been lowered and flavors may have gone."""
    workload = view.workload
    if states.is_admitted(workload):
        # It ends where quota is given back, not here; without quota it cannot go on.
        return None if states.is_reserved(workload) else Verdict(reservation.admitted(workload, view.options, view.now))
    passed = (
        states.is_reserved(workload) and states.are_checks_ready(workload) and not states.is_topology_pending(workload)
    )
    if passed and (states.is_evicted(workload) or view.facts.reservation_holds is None):
        return None if states.is_evicted(workload) else Verdict(recheck=True)
    if passed and not view.facts.reservation_holds:
        message = "The reservation did not hold any more when the last check was passed"
        return Verdict(reservation.give_up(workload, message, view.options, view.now))
    return Verdict(reservation.admitted(workload, view.options, view.now))
