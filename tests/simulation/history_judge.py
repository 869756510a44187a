"""What the history must have recorded, from every stored revision. Nothing here is imported from the product.

An attempt begins when QuotaReserved becomes True, runs from Admitted, and ends when the quota is released, when the
Workload is finished, or when its deletion was requested; all times are those of the object.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from simulation.engine.revisions import Stored, Tree


@dataclass
class JudgedAttempt:
    """One reservation of quota, in seconds since 1970."""

    reserved: int
    milli: int
    admitted: int | None = None
    released: int | None = None
    reason: str = ""

    def times(self) -> tuple[int, int | None, int | None, str]:
        return self.reserved, self.admitted, self.released, self.reason


@dataclass
class JudgedWorkload:
    """The life of one Workload, from its revisions."""

    name: str
    submitted: int
    changed: int = 0  # when its last revision was stored
    attempts: list[JudgedAttempt] = field(default_factory=list)
    ended: int | None = None
    outcome: str = ""

    def milli_seconds(self, now: int) -> int:
        """Thousandths of cores times seconds, from each admission to the release."""
        return sum(
            each.milli * ((now if each.released is None else each.released) - each.admitted)
            for each in self.attempts
            if each.admitted is not None
        )


class HistoryJudge:
    """Follows the revisions of all Workloads, by UID."""

    def __init__(self) -> None:
        self.known: dict[str, JudgedWorkload] = {}

    def read(self, stored: Stored, at: int) -> None:
        if stored.resource != "workloads.kueue.x-k8s.io":
            return
        tree: Tree = json.loads(stored.body)
        metadata, status = tree["metadata"], tree.get("status", {})
        seen = self.known.get(metadata["uid"])
        if seen is None:
            submitted = _seconds(metadata["creationTimestamp"])
            seen = self.known[metadata["uid"]] = JudgedWorkload(stored.name, submitted)
        seen.changed = at
        if seen.ended is None:
            self._follow(seen, status)
        if seen.ended is None and stored.op == "DELETED":
            deleted = metadata.get("deletionTimestamp")
            _end(seen, _seconds(deleted) if deleted else at, "Cancelled", "Deleted")

    def _follow(self, seen: JudgedWorkload, status: dict[str, Any]) -> None:
        reserved, admitted = _condition(status, "QuotaReserved"), _condition(status, "Admitted")
        last = seen.attempts[-1] if seen.attempts and seen.attempts[-1].released is None else None
        if reserved is not None and reserved["status"] == "True" and "admission" in status:
            if last is None:
                usage = [each.get("resourceUsage", {}) for each in status["admission"]["podSetAssignments"]]
                milli = sum(_milli(each.get("cpu", "0")) for each in usage)
                last = JudgedAttempt(_since(reserved), milli)
                seen.attempts.append(last)
            if last.admitted is None and admitted is not None and admitted["status"] == "True":
                last.admitted = _since(admitted)
        elif last is not None and reserved is not None:
            evicted = _condition(status, "Evicted")
            is_evicted = evicted is not None and evicted["status"] == "True"
            last.released = _since(reserved)
            last.reason = evicted["reason"] if evicted is not None and is_evicted else "Released"
        finished = _condition(status, "Finished")
        if finished is not None and finished["status"] == "True":
            outcome = "Failed" if finished["reason"] == "Failed" else "Succeeded"
            _end(seen, _since(finished), "Cancelled" if finished["reason"] == "OwnerNotFound" else outcome, "Finished")


def _end(seen: JudgedWorkload, at: int, outcome: str, reason: str) -> None:
    last = seen.attempts[-1] if seen.attempts else None
    if last is not None and last.released is None:
        at = max(at, last.reserved if last.admitted is None else last.admitted)
        last.released, last.reason = at, "Deleted" if outcome == "Cancelled" else reason
    seen.ended, seen.outcome = at, outcome


def _condition(status: dict[str, Any], type_: str) -> dict[str, Any] | None:
    return next((each for each in status.get("conditions", ()) if each["type"] == type_), None)


def _since(condition: dict[str, Any]) -> int:
    return _seconds(condition["lastTransitionTime"])


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def _milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000
