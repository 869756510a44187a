"""What a decision says to people: one sentence for a condition, an Event or a log."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.core import explain
from pykueue.core.decision import Decision
from pykueue.core.requests import Exclusion


def sentence(decision: Decision) -> str:
    """Everything that stood in the way, most telling first; the decision's own name where nothing is known."""
    return "; ".join(explain.of_decision(decision)) or "No details are known"


def left_out(exclusions: Iterable[Exclusion], skipped: Iterable[str]) -> str:
    """What is asked for and not counted, and who says so; empty when everything counts (KEP-5800, KEP-7513)."""
    lists = {False: "the configuration", True: "the ClusterQueue"}
    said = [f"{each.resource} (prefix {each.prefix!r} of {lists[each.by_queue]})" for each in exclusions]
    said += [f"{resource} (not declared)" for resource in skipped]
    return f"not counted: {', '.join(said)}" if said else ""
