"""A history is read from its first revision and held against the laws. Nothing here is imported from the product.

picture.py     what is stored at one moment
safety.py      what must hold of every write
liveness.py    what must hold at rest
quota_tree.py  the arithmetic of cohorts
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulation.engine import liveness, safety
from simulation.engine.revisions import CHATTER, Mark, Stored, Tree, Violation
from simulation.engine.stored_state import StoredState, StoredWorkload

_GROUP = ".kueue.x-k8s.io"


@dataclass(slots=True)
class CheckResult:
    violations: list[Violation] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    longest_wait_seconds: float = 0.0


def check_history(history: Sequence[Stored], marks: Iterable[Mark], configuration: Tree) -> CheckResult:
    """Read a history from its first revision, and stop at the marks to look around."""
    check_history = _HistoryChecker(configuration)
    by_index: dict[int, list[str]] = {}
    for mark in marks:
        by_index.setdefault(mark.index, []).append(mark.name)
    for index in range(len(history) + 1):
        for name in by_index.get(index, ()):
            check_history.at_rest(name)
        if index < len(history):
            check_history.read(history[index])
    return check_history.result


class _HistoryChecker:
    def __init__(self, configuration: Tree) -> None:
        self.result = CheckResult()
        self._store = StoredState(configuration)
        self._is_restarting = False
        self._revision = 0
        self._there: set[tuple[str, str, str]] = set()

    def read(self, stored: Stored) -> None:
        self._check_order(stored)
        self._revision, self._store.seconds = stored.revision, stored.seconds
        kind = stored.resource.removesuffix(_GROUP)
        if kind == "workloads":
            self._read_workload(stored)
            return
        if self._is_restarting and kind not in CHATTER:
            for law, what in liveness.restart_writes(self._store, stored):
                self._wrong(law, stored.name, what)
        if kind in self._store.objects:
            before, after = self._store.read_structure(kind, stored)
            if kind in safety.ON_OTHERS:
                law, check = safety.ON_OTHERS[kind]
                for what in check(self._store, before, after):
                    self._wrong(law, stored.name, what)

    def _check_order(self, stored: Stored) -> None:
        place = (stored.resource, stored.namespace, stored.name)
        if stored.revision <= self._revision:
            self._wrong("S11", stored.name, f"revision {stored.revision} after {self._revision}")
        if stored.op == "ADDED" and place in self._there:
            self._wrong("S11", stored.name, "comes a second time")
        if stored.op == "DELETED":
            self._there.discard(place)
        else:
            self._there.add(place)

    def _read_workload(self, stored: Stored) -> None:
        counted = Counter(self._store.counted)
        before, after = self._store.read_workload(stored)
        if self._is_restarting:
            for law, what in liveness.restart_changes(before, after):
                self._wrong(law, stored.name, what)
        for what in safety.runs_with_a_variant(self._store, before, after):
            self._wrong("family", stored.name, what)
        if after is None:
            return
        move = safety.Move(self._store, before, after, counted)
        self._record(move)
        for law, check in safety.ON_WORKLOADS:
            for what in check(move):
                self._wrong(law, after.name, what)
        self.result.longest_wait_seconds = self._store.longest_wait_seconds

    def at_rest(self, name: str) -> None:
        """Faults are over and nothing is written any more: every pending Workload needs a reason."""
        # After `healed` comes the restart, which may write nothing until it is at rest again.
        self._is_restarting = name == "healed"
        for workload in self._store.workloads.values():
            if workload.waits:
                self.result.seen[f"waits when {name}"] += 1
        for law, check in liveness.AT_REST:
            for about, what in check(self._store, name):
                self._wrong(law, about, f"{name}: {what}")

    # --- Recording ----------------------------------------------------------------------------------------------------

    def _record(self, move: safety.Move) -> None:
        workload: StoredWorkload = move.after
        for condition in workload.conditions:
            if move.rises(condition):
                conditions = f"{condition} {workload.reason(condition)}"
                self.result.seen[conditions] += 1
                self._trace(f"{workload.name} {conditions}")

    def _wrong(self, law: str, about: str, what: str) -> None:
        self.result.violations.append(Violation(law, self._revision, about, what))
        self._trace(f"!! {law} {about}: {what}")

    def _trace(self, line: str) -> None:
        self.result.trace.append(f"{self._store.seconds:9.3f} {line}")
