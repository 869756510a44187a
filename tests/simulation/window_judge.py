"""What QuotaSchedules and planned backfill must have done, from every stored revision. Nothing here is imported from the
product: the quota of a second is worked out by the text of the rules (QS1, QS4), usage and dates are those of the
objects. Windows have a start and an end; a schedule has one target.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from simulation.engine.revisions import Stored, Tree, Violation

PLANNED = "pykueue.io/planned-start"
# Until a manager has acted on an edge, and until it has written what it does.
SETTLED = 60
PROMPT = 10


@dataclass
class _Seen:
    """One Workload: what it uses, and what was announced about its start."""

    queue: str = ""
    cpu: int = 0
    uses: bool = False
    is_evicted: bool = False
    has_started: bool = False
    first_date: int | None = None
    date: int | None = None  # the last one, also if it was removed
    removed_at: int | None = None
    ended_at: int = 0


class WindowJudge:
    """Follows the revisions. `keeps_free`: the schedules of the ClusterQueue `plan` have `approach: EndBefore`."""

    def __init__(self, quotas: dict[str, int], *, keeps_free: bool) -> None:
        self._quotas = quotas
        self._keeps_free = keeps_free
        self._schedules: dict[str, Tree] = {}
        self._known: dict[str, _Seen] = {}
        self._managed_since: int | None = None
        self._was_unmanaged = 0
        self.violations: list[Violation] = []
        self.counted: dict[str, int] = {}

    def manage(self, at: int | None, *, after: int = 0) -> None:
        """A manager runs from a time on, after so many seconds without one; None: none runs. Starts that no manager
        could make move all later dates by as much."""
        self._managed_since = at
        self._was_unmanaged = max(self._was_unmanaged, after + PROMPT if after else 0)

    def _count(self, what: str) -> None:
        self.counted[what] = self.counted.get(what, 0) + 1

    def _violate(self, law: str, about: str, what: str, revision: int = 0) -> None:
        self.violations.append(Violation(law, revision, about, what))

    # --- Revisions ----------------------------------------------------------------------------------------------------

    def read(self, stored: Stored, at: int) -> None:
        if stored.resource == "quotaschedules.pykueue.io":
            self._schedules[stored.name] = json.loads(stored.body)
        elif stored.resource == "workloads.kueue.x-k8s.io":
            self._read_workload(stored, json.loads(stored.body), at)

    def _read_workload(self, stored: Stored, tree: Tree, at: int) -> None:
        seen = self._known.setdefault(stored.name, _Seen())
        status = tree.get("status", {})
        true = {each["type"]: each for each in status.get("conditions", ()) if each["status"] == "True"}
        seen.queue, seen.cpu = tree["spec"]["queueName"], int(stored.name.split("-")[1])
        is_over = stored.op == "DELETED" or "Finished" in true
        starts = "QuotaReserved" in true and not seen.has_started
        evicted = "Evicted" in true and not seen.is_evicted
        if evicted and true["Evicted"]["reason"] == "QuotaWithdrawn":
            self._count("evicted")
            # Usage that has just ended may have been there when it was decided.
            ended = sum(
                each.cpu for each in self._known.values() if each.queue == seen.queue and at - each.ended_at < 5
            )
            if self.used(seen.queue) + ended <= self.quota(seen.queue, at):
                self._violate("QS-L3", stored.name, f"is evicted at {at}, and need not be", stored.revision)
        self._follow_date(seen, stored, tree, at, is_over=is_over or "QuotaReserved" in true)
        seen.has_started = seen.has_started or starts
        seen.is_evicted = "Evicted" in true
        uses = "QuotaReserved" in true and not is_over and "Evicted" not in true
        if seen.uses and not uses and not evicted:
            seen.ended_at = at
        seen.uses = uses
        if starts and seen.first_date is not None and self._managed_since is not None:
            self._count("planned")
            latest = max(seen.first_date, self._managed_since) + PROMPT + self._was_unmanaged
            if at > latest:
                self._violate("BF-L1", stored.name, f"was planned for {seen.first_date}, starts at {at}")

    def _follow_date(self, seen: _Seen, stored: Stored, tree: Tree, at: int, *, is_over: bool) -> None:
        """Nothing in these runs is a cause of a later date, so that no date is moved or withdrawn."""
        text = tree["metadata"].get("annotations", {}).get(PLANNED)
        date = _seconds(text) if text is not None else None
        if seen.first_date is None:
            seen.first_date = date
        if seen.date is not None and not is_over and date is not None and date > seen.date + self._was_unmanaged:
            self._violate(self._law(at), stored.name, f"had the date {seen.date}, and has {date}", stored.revision)
        # An admission removes it, too, before or after the reservation is written.
        seen.removed_at = None if date is not None or is_over or seen.date is None else seen.removed_at or at
        seen.date = date or seen.date

    def _law(self, at: int) -> str:
        return "BF-L6" if self._managed_since is not None and at < self._managed_since + PROMPT else "BF-L1"

    # --- At moments ---------------------------------------------------------------------------------------------------

    def look(self, at: int) -> None:
        """Compare usage and the effective quotas of statuses with the rules. Called when no write is under way."""
        if self._keeps_free:
            self._count("kept free")
            if self.used("plan") > self.quota("plan", at):
                self._violate("QS-L2", "plan", f"{self.used('plan')} of {self.quota('plan', at)} used at {at}")
        for name, seen in self._known.items():
            if seen.removed_at is not None and not seen.has_started and at > seen.removed_at + PROMPT:
                self._violate(self._law(seen.removed_at), name, f"had the date {seen.date}, and has none at {at}")
                seen.removed_at = None
        if self._managed_since is None or at < self._managed_since + SETTLED:
            return
        for name, schedule in self._schedules.items():
            queue = schedule["spec"]["targets"][0]["clusterQueue"]
            wanted = self.quota(queue, at)
            if any(self.quota(queue, at - back) != wanted for back in range(0, SETTLED, 5)):
                continue
            self._count("compared")
            shown = [each["nominalQuota"] for each in schedule.get("status", {}).get("effectiveQuotas", ())]
            if shown != [str(wanted)]:
                self._violate("QS-L1", name, f"shows {shown}, and the quota is {wanted} at {at}")
            is_in_force = any(_is_in_force(window, at) for window in schedule["spec"]["windows"])
            if schedule["spec"].get("onStart") == "Evict" and is_in_force and self.used(queue) > wanted:
                self._violate("QS-L3", queue, f"{self.used(queue)} of {wanted} used at {at}")

    def used(self, queue: str) -> int:
        return sum(seen.cpu for seen in self._known.values() if seen.uses and seen.queue == queue)

    def quota(self, queue: str, at: int) -> int:
        sets: list[tuple[int, str, str, int]] = []
        change = 0
        for name, schedule in self._schedules.items():
            (target,) = schedule["spec"]["targets"]
            entry = target["flavors"][0]["resources"][0]
            windows = [
                (-_seconds(window["start"]), name, window["name"])
                for window in schedule["spec"]["windows"]
                if _is_in_force(window, at)
            ]
            if target["clusterQueue"] != queue or not windows:
                continue
            if "nominalQuota" in entry:
                sets.append((*min(windows), int(entry["nominalQuota"])))
            change += int(entry.get("change", 0))
        return max(0, (min(sets)[3] if sets else self._quotas[queue]) + change)

    def running(self) -> list[str]:
        """The Workloads that hold quota."""
        return sorted(name for name, seen in self._known.items() if seen.uses)

    def stopping(self) -> list[str]:
        return sorted(name for name, seen in self._known.items() if seen.is_evicted)


def _is_in_force(window: Tree, at: int) -> bool:
    return _seconds(window["start"]) <= at < _seconds(window["end"])


def _seconds(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
