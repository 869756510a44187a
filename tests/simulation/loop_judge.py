"""What the manager must have reported about preemption loops, from every stored revision. Nothing here is imported from
the product: a preemption is an `Evicted` condition with the reason `Preempted`, the state is which Workloads hold quota,
and arrivals, ends and restarts begin the count again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from simulation.engine.revisions import Stored, Tree, Violation

# A loop is reported in its third round; the next one is delayed, up to the seconds in which writes are stored.
ROUNDS_MAX = 3
DELAY_SECONDS = 30
SLACK_SECONDS = 2


@dataclass
class _Seen:
    holds: bool = False
    is_evicted: bool = False


class LoopJudge:
    """Follows the revisions of Workloads and Events."""

    def __init__(self) -> None:
        self._known: dict[str, _Seen] = {}
        self._rounds: Counter[tuple[str, frozenset[str]]] = Counter()
        self._last: dict[tuple[str, frozenset[str]], int] = {}
        self._reported: Counter[str] = Counter()  # Events of a Workload since the last change from outside
        self.reported: list[tuple[str, int]] = []  # every Event: the Workload and the time
        self.violations: list[Violation] = []
        self.counted: Counter[str] = Counter()

    def restarted(self) -> None:
        """Another manager leads, which has seen nothing yet."""
        self._begin_again()
        self.counted["restarts"] += 1

    def violate(self, law: str, about: str, what: str, revision: int = 0) -> None:
        self.violations.append(Violation(law, revision, about, what))

    def _begin_again(self) -> None:
        self._rounds.clear()
        self._last.clear()
        self._reported.clear()

    def read(self, stored: Stored, at: int) -> None:
        if stored.resource == "workloads.kueue.x-k8s.io":
            self._read_workload(stored, json.loads(stored.body), at)
        elif stored.resource == "events" and stored.op == "ADDED":
            event = json.loads(stored.body)
            if event["reason"] == "EvictionLoop":
                self._read_event(event["involvedObject"]["name"], at)

    def _read_workload(self, stored: Stored, tree: Tree, at: int) -> None:
        is_new, seen = stored.name not in self._known, self._known.setdefault(stored.name, _Seen())
        true = {each["type"]: each for each in tree.get("status", {}).get("conditions", ()) if each["status"] == "True"}
        if is_new or stored.op == "DELETED" or "Finished" in true:
            self._begin_again()
        holders = frozenset(name for name, each in self._known.items() if each.holds)
        if "Evicted" in true and not seen.is_evicted and true["Evicted"]["reason"] == "Preempted":
            self._preempted(stored, (stored.name, holders), at)
        seen.is_evicted = "Evicted" in true
        seen.holds = "QuotaReserved" in true and "Finished" not in true
        if stored.op == "DELETED":
            del self._known[stored.name]

    def _preempted(self, stored: Stored, key: tuple[str, frozenset[str]], at: int) -> None:
        self.counted["preemptions"] += 1
        self._rounds[key] += 1
        rounds, before = self._rounds[key], self._last.get(key, at)
        self._last[key] = at
        if rounds <= ROUNDS_MAX:
            return
        if not self._reported[stored.name]:
            self.violate("LG-L2", stored.name, f"is preempted {rounds} times, and no loop is reported", stored.revision)
        elif at - before < DELAY_SECONDS - SLACK_SECONDS:
            self.violate("LG-L4", stored.name, f"is preempted again after {at - before} seconds", stored.revision)
        self.counted["guarded"] += 1

    def _read_event(self, workload: str, at: int) -> None:
        self._reported[workload] += 1
        self.reported.append((workload, at))
        if max(self._rounds.values(), default=0) < 2:
            self.violate("LG-L1", workload, f"a loop is reported at {at}, and no preemption was repeated")
        if self._reported[workload] > 2:  # it may be in two loops
            self.violate("LG5", workload, f"a loop is reported {self._reported[workload]} times until {at}")
