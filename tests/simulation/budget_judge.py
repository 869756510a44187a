"""What Budgets must have counted and answered, from every stored revision. Nothing here is imported from the product.

A Workload is charged from its admission until its quota is released, it has finished or its deletion was requested; all
times are those of its object, and none of them counts as earlier than the one before it. What is open is charged until the latest time that the clock of the manager has shown: a
clock that is set back takes no charge away and does not begin an earlier day again. A manager that starts goes by the
clock that it finds [BU11].
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from simulation.engine.revisions import Stored, Tree, Violation

DAY = 86_400


@dataclass
class _Charged:
    """One Workload: its closed charges, and the one that is open."""

    group: str
    closed: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, milli cores
    reserved: int | None = None
    since: int | None = None
    released: int = 0
    milli: int = 0
    state: str = ""
    waits_until: int = 0


class BudgetJudge:
    """Follows the revisions; `spent` and `allowance` are in milli core seconds."""

    def __init__(self, check: str, limit: int) -> None:
        self.check = check
        self.limit = limit
        self.violations: list[Violation] = []
        self.answers: dict[str, int] = {}
        self._known: dict[str, _Charged] = {}
        self._first_day: int | None = None
        # The latest time of the clock since the manager started.
        self._now = 0
        self._last_look: tuple[int, dict[str, tuple[int, int]]] | None = None

    def started(self, at: int) -> None:
        """Another manager begins."""
        self._now, self._last_look = at, None

    def latest(self, at: int) -> int:
        """The time of the accounts when the clock shows this one."""
        self._now = max(self._now, at)
        return self._now

    def looked(self, at: int, spent: dict[str, int]) -> None:
        """Note the time of the accounts, and what each group has spent in the present day by them [BU11]."""
        found = {group: (amount, self._ends(group)) for group, amount in spent.items()}
        if self._last_look is not None:
            before, known = self._last_look
            if at < before:
                self.violations.append(Violation("BU11", 0, "", f"the accounts went back from {before} to {at}"))
            for group, (amount, ends) in found.items():
                was, had = known.get(group, (0, 0))
                # Charges are exact to the end of a Workload, which is noted a moment later.
                if amount < was and ends == had and at // DAY == before // DAY:
                    self.violations.append(Violation("BU11", 0, group, f"spent fell from {was} to {amount} at {at}"))
        self._last_look = at, found

    def _ends(self, group: str) -> int:
        return sum(len(seen.closed) for seen in self._known.values() if seen.group == group)

    def created(self, seconds: int) -> None:
        self._first_day = seconds // DAY

    def read(self, stored: Stored, at: int) -> None:
        if stored.resource != "workloads.kueue.x-k8s.io":
            return
        tree: Tree = json.loads(stored.body)
        uid, status = tree["metadata"]["uid"], tree.get("status", {})
        group = f"{stored.namespace}/{tree['spec'].get('queueName', '')}"
        seen = self._known.setdefault(uid, _Charged(group))
        state = next((each["state"] for each in status.get("admissionChecks", ()) if each["name"] == self.check), "")
        now = self.latest(at)
        if state == "Ready" and seen.state != "Ready" and self.spent(group, now) >= self.allowance(group, now):
            what = f"Ready with {self.spent(group, now)} of {self.allowance(group, now)} spent"
            self.violations.append(Violation("BU-L2", stored.revision, stored.name, what))
        self.answers[state] = self.answers.get(state, 0) + (state != seen.state)
        seen.state, seen.group = state, group
        self._charge(seen, tree, stored, at)
        requeue = status.get("requeueState", {}).get("requeueAt")
        is_over = stored.op == "DELETED" or _when(status, "Finished") is not None
        seen.waits_until = 0 if requeue is None or is_over else _seconds(requeue)

    def _charge(self, seen: _Charged, tree: Tree, stored: Stored, at: int) -> None:
        status = tree.get("status", {})
        ends = [_when(status, "Finished"), _when(status, "QuotaReserved", "False")]
        deleted = tree["metadata"].get("deletionTimestamp")
        if stored.op == "DELETED":
            ends.append(_seconds(deleted) if deleted else at)
        end = next((each for each in ends if each is not None), None)
        reserved, admitted = _when(status, "QuotaReserved"), _when(status, "Admitted")
        if end is None and seen.reserved is None and reserved is not None:
            seen.reserved = max(reserved, _seconds(tree["metadata"]["creationTimestamp"]), seen.released)
        if end is None and seen.since is None and admitted is not None:
            assigned = status["admission"]["podSetAssignments"]
            seen.milli = sum(_milli(each.get("resourceUsage", {}).get("cpu", "0")) for each in assigned)
            seen.since = max(admitted, seen.reserved or 0)
        elif end is not None and seen.reserved is not None:
            seen.released = max(end, seen.reserved, seen.since or 0)
            if seen.since is not None:
                seen.closed.append((seen.since, seen.released, seen.milli))
            seen.since = seen.reserved = None

    # --- Amounts ------------------------------------------------------------------------------------------------------

    def groups(self) -> set[str]:
        return {seen.group for seen in self._known.values()}

    def spent(self, group: str, at: int, day: int | None = None) -> int:
        """What a group has used on a day, until a time."""
        day = at // DAY if day is None else day
        start, end = day * DAY, (day + 1) * DAY
        total = 0
        for seen in self._known.values():
            if seen.group == group:
                open_one = [] if seen.since is None else [(seen.since, at, seen.milli)]
                for first, last, milli in (*seen.closed, *open_one):
                    total += milli * max(0, min(last, end) - max(first, start))
        return total

    def allowance(self, group: str, at: int) -> int:
        """The limit of the present day, less the debt of the days before since the Budget was created."""
        debt = 0
        for day in range(at // DAY if self._first_day is None else self._first_day, at // DAY):
            debt = max(0, self.spent(group, at, day) - (self.limit - debt))
        return self.limit - debt

    def waits_in_vain(self, at: int) -> list[str]:
        """Groups with hours left of which a Workload is kept out of the queue."""
        return [
            seen.group
            for seen in self._known.values()
            if seen.waits_until > at and self.spent(seen.group, at) < self.allowance(seen.group, at)
        ]


def _when(status: dict[str, Any], type_: str, value: str = "True") -> int | None:
    for each in status.get("conditions", ()):
        if each["type"] == type_ and each["status"] == value:
            return _seconds(each["lastTransitionTime"])
    return None


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def _milli(text: str) -> int:
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000
