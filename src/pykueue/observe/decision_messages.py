"""The messages of decisions in conditions and Events."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pykueue.core import messages
from pykueue.core.decision import Decision
from pykueue.core.requests import Exclusion


def sentence(decision: Decision) -> str:
    """Return the message of a condition or an Event, as Kueue writes it for this decision."""
    return messages.message(decision) or "No details are known"


def reserved(decision: Decision, not_counted: str) -> str:
    """What the Event QuotaReserved adds: the flavors considered, and the resources that are not counted."""
    considered = messages.considered(decision)
    return "; ".join(filter(None, (f"Flavors considered: {considered}" if considered else "", not_counted)))


class NotCounted(msgspec.Struct, frozen=True):
    """A resource that a Workload requests and quota does not count: excluded by a prefix of one of the two lists
    (KEP-5800), or, with an empty prefix, not declared by the ClusterQueue (KEP-7513)."""

    resource: str
    prefix: str = ""
    by_queue: bool = False

    def __str__(self) -> str:
        if not self.prefix:
            return f"{self.resource} (not declared)"
        where = "the ClusterQueue" if self.by_queue else "the configuration"
        return f"{self.resource} (prefix {self.prefix!r} of {where})"

    def tree(self) -> dict[str, str]:
        if not self.prefix:
            return {"resource": self.resource, "reason": "NotDeclared"}
        where = "ClusterQueue" if self.by_queue else "Configuration"
        return {"resource": self.resource, "reason": "Excluded", "prefix": self.prefix, "list": where}


def not_counted(exclusions: Iterable[Exclusion], skipped: Iterable[str]) -> tuple[NotCounted, ...]:
    """Return the requested resources that quota does not count, with the reason."""
    return (
        *(NotCounted(each.resource, each.prefix, each.by_queue) for each in exclusions),
        *(NotCounted(resource) for resource in skipped),
    )


def left_out(found: Iterable[NotCounted]) -> str:
    """Return the same as one phrase; empty if every resource is counted."""
    listed = ", ".join(map(str, found))
    return f"not counted: {listed}" if listed else ""
