"""What a decision says to people: one sentence for a condition, an Event or a log."""

from __future__ import annotations

from pykueue.core import explain
from pykueue.core.decision import Decision


def sentence(decision: Decision) -> str:
    """Everything that stood in the way, most telling first; the decision's own name where nothing is known."""
    return "; ".join(explain.of_decision(decision)) or "No details are known"
