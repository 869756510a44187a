"""Which Workload preempted which since the last outside change, so that preemptions under fair sharing end ([FS22]).

A preemption is an edge from the preemptor to the target. A Workload must not preempt one from which a path of edges
leads to it: the edges never form a cycle, and of two Workloads only one ever preempts the other. No edge is repeated
more than `REPEATS_MAX` times. So n Workloads are preempted at most `REPEATS_MAX` * n(n-1)/2 times between two outside
changes, and then the state is stable. An outside change in the cohort tree (`preemption_loops`) forgets its edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from pykueue.state.preemption_loops import LoopDetector

# A preemptor that is itself preempted comes back and preempts again. If the first repetition were forbidden, it would
# choose other targets, and cause more evictions than it saves (decision 0029).
REPEATS_MAX: Final = 3


class _Edges(msgspec.Struct):
    outside_changes: int
    targets: dict[str, Counter[str]] = msgspec.field(default_factory=dict)  # by preemptor
    preemptors: dict[str, set[str]] = msgspec.field(default_factory=dict)  # by target


class PreemptionOrder:
    """The preemptions of each scheduling scope since its last outside change."""

    def __init__(self, loops: LoopDetector) -> None:
        self._loops = loops
        self._scopes: dict[str, _Edges] = {}  # by the first ClusterQueue of the scope

    def __len__(self) -> int:
        """The number of scopes of which preemptions are remembered."""
        return len(self._scopes)

    def preempted(self, queues: tuple[str, ...], preemptor: str, targets: Iterable[str]) -> None:
        """Record a preemption that was decided in the scope of these ClusterQueues."""
        edges = self._edges(queues)
        if edges is None:
            edges = self._scopes[queues[0]] = _Edges(self._loops.outside_changes(queues))
        for target in targets:
            edges.targets.setdefault(preemptor, Counter())[target] += 1
            edges.preemptors.setdefault(target, set()).add(preemptor)

    def spared(self, queues: tuple[str, ...], key: str) -> frozenset[str]:
        """The Workloads that this one must not preempt: those that preempted it, directly or through others, and those
        that it preempted `REPEATS_MAX` times."""
        edges = self._edges(queues)
        if edges is None:
            return frozenset()
        found = {target for target, times in edges.targets.get(key, Counter()).items() if times >= REPEATS_MAX}
        remaining = [key]
        while remaining:
            above = edges.preemptors.get(remaining.pop(), set()) - found
            found |= above
            remaining += above
        return frozenset(found)

    def cluster_queue_deleted(self, name: str) -> None:
        """Forget the preemptions of a scope whose first ClusterQueue is deleted: nothing asks for them again."""
        self._scopes.pop(name, None)

    def _edges(self, queues: tuple[str, ...]) -> _Edges | None:
        """The edges of a scope; None, and forgotten, after an outside change."""
        edges = self._scopes.get(queues[0])
        if edges is not None and edges.outside_changes != self._loops.outside_changes(queues):
            del self._scopes[queues[0]]
            return None
        return edges
