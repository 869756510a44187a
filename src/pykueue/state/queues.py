"""Pending Workloads of one ClusterQueue: who competes, who is parked, who is being decided, and who is the head (§2).

A pending Workload is in exactly one of three places: the *line* (it competes), the *pool* (it is inadmissible until
something changes) or *in flight* (a cycle is deciding it).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

from pykueue.api.meta import Nanoseconds
from pykueue.core import order
from pykueue.core.decision import Reason, Requeue
from pykueue.core.queue import QueueingStrategy
from pykueue.core.workload import Shape, Workload

Rank: TypeAlias = tuple[int, int, str, str]
WorkloadKind: TypeAlias = tuple[Shape, int, frozenset[str] | None]

AT_ONCE = frozenset(
    {
        Requeue.FAILED_AFTER_NOMINATION,
        Requeue.PENDING_PREEMPTION,
        Requeue.PENDING_MIGRATION,
        Requeue.PREEMPTION_FAILED,
    }
)
"""§2.5 Reasons after which a head of a BestEffortFIFO queue competes again in the next cycle."""

CONDEMNING = frozenset({Requeue.NO_FIT, Requeue.PREEMPTION_NO_CANDIDATES})
"""[QU13] Reasons that hold for every Workload of the same kind."""


class Line:
    """Workloads in order, cheaply: a heap whose outdated entries are skipped when they surface."""

    __slots__ = ("_heap", "_ranks")

    def __init__(self) -> None:
        self._heap: list[Rank] = []
        self._ranks: dict[str, Rank] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, workload: Workload) -> None:
        rank = order.in_queue(workload)
        if self._ranks.get(workload.key) != rank:
            self._ranks[workload.key] = rank
            heapq.heappush(self._heap, rank)

    def discard(self, key: str) -> None:
        self._ranks.pop(key, None)
        if len(self._heap) > 2 * len(self._ranks) + 64:  # mostly outdated entries: worth sweeping out
            self._heap = sorted(self._ranks.values())

    def first(self) -> Rank | None:
        while self._heap:
            rank = self._heap[0]
            if self._ranks.get(rank[3]) == rank:
                return rank
            heapq.heappop(self._heap)
        return None


class PendingQueue:
    """The pending Workloads of one ClusterQueue."""

    __slots__ = (
        "_kinds",
        "_lines",
        "_pops",
        "_released_at",
        "_workloads",
        "condemned",
        "in_flight",
        "local_usage",
        "name",
        "pool",
        "preemptor",
        "sticky",
        "strategy",
    )

    def __init__(self, name: str, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> None:
        self.name = name
        self.strategy = strategy
        self.local_usage: Callable[[str], float] | None = None  # of a LocalQueue, where the queue goes by usage
        self.pool: dict[str, Workload] = {}
        self.in_flight: dict[str, Workload] = {}
        self.preemptor: tuple[str, int] | None = None  # [QU4] key and the generation it was evaluated at
        self.sticky: str | None = None
        self.condemned: dict[WorkloadKind, Reason] = {}
        self._workloads: dict[str, Workload] = {}  # those in line
        self._lines: dict[str, Line] = {}  # one per LocalQueue where usage counts, else a single one
        self._kinds: dict[WorkloadKind, dict[str, None]] = {}
        self._pops = 0
        self._released_at = -1

    def __len__(self) -> int:
        return len(self._workloads) + len(self.pool) + len(self.in_flight)

    def __contains__(self, key: str) -> bool:
        return key in self._workloads or key in self.pool or key in self.in_flight

    def get(self, key: str) -> Workload | None:
        return self._workloads.get(key) or self.pool.get(key) or self.in_flight.get(key)

    def active(self) -> Iterator[Workload]:
        """Those in line, in no particular order."""
        return iter(self._workloads.values())

    @property
    def is_empty(self) -> bool:
        return not self._workloads

    # Coming and going.

    def put(self, workload: Workload, now: Nanoseconds) -> None:
        """A Workload arrived or changed. While it is being decided it stays where it is: the requeue re-reads it."""
        key = workload.key
        if key in self.in_flight:
            self.in_flight[key] = workload
            return
        self.pool.pop(key, None)
        before = self._workloads.get(key)
        if before is None:
            is_condemned = self.strategy is QueueingStrategy.BEST_EFFORT_FIFO and workload.kind in self.condemned
            if is_condemned or not workload.may_compete(now):
                self.pool[key] = workload
                return
        else:
            self._leave(before)
        self._join(workload)

    def refresh(self, workload: Workload) -> None:
        """A parked Workload changed in nothing that could make a difference."""
        self.pool[workload.key] = workload

    def drop(self, key: str) -> None:
        """The Workload is no longer pending. Only now is it forgotten as the preemptor ([QU5])."""
        workload = self._workloads.get(key)
        if workload is not None:
            self._leave(workload)
        self.pool.pop(key, None)
        self.in_flight.pop(key, None)
        if self.preemptor is not None and self.preemptor[0] == key:
            self.preemptor = self.sticky = None

    def relist(self, local_usage: Callable[[str], float] | None, strategy: QueueingStrategy) -> None:
        """The queue's own rules changed."""
        self.strategy = strategy
        was_by_usage, self.local_usage = self.local_usage is not None, local_usage
        if was_by_usage is not (local_usage is not None):
            self._lines = {}
            for workload in self._workloads.values():
                self._line_of(workload).add(workload)

    def _line_of(self, workload: Workload) -> Line:
        name = f"{workload.namespace}/{workload.local_queue}" if self.local_usage is not None else ""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line()
        return line

    def _join(self, workload: Workload) -> None:
        self._workloads[workload.key] = workload
        self._line_of(workload).add(workload)
        self._kinds.setdefault(workload.kind, {})[workload.key] = None

    def _leave(self, workload: Workload) -> None:
        del self._workloads[workload.key]
        self._line_of(workload).discard(workload.key)
        alike = self._kinds[workload.kind]
        del alike[workload.key]
        if not alike:
            del self._kinds[workload.kind]

    # Heads.

    def pop(self) -> Workload | None:
        """[QU8] The head, which is then in flight."""
        self._pops += 1
        head = self._head()
        if head is not None:
            self._leave(head)
            self.in_flight[head.key] = head
            head.evaluated_generation = head.generation
        return head

    def is_preemptor(self, workload: Workload) -> bool:
        """[QU6]"""
        return self.preemptor == (workload.key, workload.generation)

    def _head(self) -> Workload | None:
        """§2.2 By LocalQueue usage where that counts, then the sticky preemptor, then priority, time and UID."""
        if not self._workloads:
            return None
        if self.local_usage is None:
            if self.sticky is not None and self.sticky in self._workloads:
                return self._workloads[self.sticky]
            first = self._lines[""].first()
            return None if first is None else self._workloads[first[3]]
        best: tuple[float, bool, Rank] | None = None
        for name, line in self._lines.items():
            first = line.first()
            if first is None:
                continue
            sticky = self._workloads.get(self.sticky) if self.sticky is not None else None
            if sticky is not None and f"{sticky.namespace}/{sticky.local_queue}" == name:
                first = order.in_queue(sticky)
            candidate = (self.local_usage(name), first[3] != self.sticky, first)
            if best is None or candidate < best:
                best = candidate
        return None if best is None else self._workloads[best[2][3]]

    # After a cycle.

    def requeue(
        self,
        workload: Workload,
        requeue: Requeue,
        reason: Reason,
        now: Nanoseconds,
        *,
        condemns: bool = True,
    ) -> None:
        """§2.5 A head that got no reservation goes back: in line, or into the pool with all of its kind."""
        key = workload.key
        newest = self.in_flight.pop(key, workload)
        newest.memory = workload.memory
        newest.evaluated_generation = workload.evaluated_generation
        if requeue in (Requeue.PENDING_PREEMPTION, Requeue.PENDING_MIGRATION):
            self.preemptor = (key, workload.evaluated_generation)
            self.sticky = key if self.strategy is QueueingStrategy.BEST_EFFORT_FIFO else None
        if key in self._workloads or key in self.pool:
            return
        if self.strategy is QueueingStrategy.STRICT_FIFO:
            at_once = requeue is not Requeue.NAMESPACE_MISMATCH
        else:
            at_once = requeue in AT_ONCE
        has_untried = newest.memory is not None and newest.memory.has_untried_flavors
        if newest.may_compete(now) and (at_once or self._released_at >= self._pops or has_untried):
            self._join(newest)
            return
        self.pool[key] = newest
        if condemns and requeue in CONDEMNING and self.strategy is QueueingStrategy.BEST_EFFORT_FIFO:
            self._condemn(newest, reason)

    def _condemn(self, workload: Workload, reason: Reason) -> None:
        """[QU13] The verdict holds for the whole kind: park them without asking again."""
        self.condemned[workload.kind] = reason
        for key in list(self._kinds.get(workload.kind, ())):
            alike = self._workloads[key]
            self._leave(alike)
            self.pool[key] = alike

    def release(self, may_return: Callable[[Workload], bool]) -> int:
        """§2.7(b) Something changed that may let parked Workloads in: those that may return compete again."""
        self._released_at = self._pops
        self.condemned.clear()
        returning = [workload for workload in self.pool.values() if may_return(workload)]
        for workload in returning:
            del self.pool[workload.key]
            self._join(workload)
        return len(returning)
