"""Pending Workloads of one ClusterQueue: who competes, who is parked, who is being decided, and who is the head (§2).

A pending Workload is in exactly one of three places: *in line* (it competes), *parked* (it is inadmissible until
something changes) or *in flight* (a cycle is deciding it).

Those in line stand in buckets, one for each kind of Workload and LocalQueue. A verdict that holds for a whole kind
parks its buckets, and a release brings them back, without touching a single Workload: a hundred thousand alike cost
what one costs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from kubemachinery.meta import Nanoseconds
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import QueueingStrategy
from pykueue.core import ordering
from pykueue.core.decision import Requeue
from pykueue.core.workload import ScanPosition, WorkloadInfo, WorkloadShape

Rank: TypeAlias = tuple[int, int, str, str]
WorkloadKind: TypeAlias = tuple[WorkloadShape, int, frozenset[str] | None]

AT_ONCE = frozenset(
    {
        Requeue.FAILED_AFTER_NOMINATION,
        Requeue.PENDING_PREEMPTION,
        Requeue.PENDING_MIGRATION,
        Requeue.PREEMPTION_FAILED,
    }
)
"""§2.5 Reasons after which a head of a BestEffortFIFO queue competes again in the next cycle."""

PARKS_EQUIVALENT = frozenset({Requeue.NO_FIT, Requeue.PREEMPTION_NO_CANDIDATES})
"""[QU13] Reasons that hold for every Workload of the same kind."""


class InadmissibleClass(NamedTuple):
    """[QU13] Why a whole kind of Workloads waits, and the place in line of the one that was tried for all."""

    reason: QuotaReservedReason
    queue_time: Nanoseconds


class PreemptorMemory(NamedTuple):
    """[QU4] The generation at which a preemptor was evaluated, and whether it leads its queue."""

    generation: int
    is_sticky: bool


class Bucket:
    """Workloads of one kind and LocalQueue, in order. Entries of the heap that are outdated are skipped when they
    surface; `members` says who is really there."""

    __slots__ = ("_heap", "is_parked", "kind", "local_queue", "members", "serial")

    def __init__(self, serial: int, kind: WorkloadKind, local_queue: str) -> None:
        self.serial = serial
        self.kind = kind
        self.local_queue = local_queue
        self.members: dict[str, WorkloadInfo] = {}
        self.is_parked = False
        self._heap: list[Rank] = []

    def add(self, workload: WorkloadInfo) -> None:
        self.members[workload.key] = workload
        heapq.heappush(self._heap, ordering.in_queue(workload))

    def discard(self, key: str) -> None:
        del self.members[key]
        if self._heap[0][3] == key:
            heapq.heappop(self._heap)
        elif len(self._heap) > 2 * len(self.members) + 64:  # mostly outdated: worth sweeping out
            self._heap = sorted(map(ordering.in_queue, self.members.values()))

    def first(self) -> Rank | None:
        heap = self._heap
        while heap:
            rank = heap[0]
            workload = self.members.get(rank[3])
            if workload is not None and workload.queue_time == rank[1] and workload.priority == -rank[0]:
                return rank
            heapq.heappop(heap)
        return None


class PendingQueue:
    """The pending Workloads of one ClusterQueue."""

    __slots__ = (
        "_buckets",
        "_fronts",
        "_of_kind",
        "_pops",
        "_released_at",
        "_serial",
        "_timers",
        "_where",
        "in_flight",
        "inadmissible_classes",
        "local_usage",
        "name",
        "pool",
        "preemptor",
        "resting",
        "sticky",
        "strategy",
    )

    def __init__(self, name: str, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> None:
        self.name = name
        self.strategy = strategy
        self.local_usage: Callable[[str], float] | None = None  # of a LocalQueue, where the queue goes by usage
        self.pool: dict[str, WorkloadInfo] = {}  # parked one by one; whole kinds are parked in their buckets
        self.in_flight: dict[str, WorkloadInfo] = {}
        # Those parked who came with a back-off that has not ended, and of whom nothing was written since. Until then
        # Kueue has them in no queue, and counts them nowhere.
        self.resting: set[str] = set()
        self.preemptor: tuple[str, int] | None = None  # [QU4] key and the generation it was evaluated at
        self.sticky: str | None = None
        self.inadmissible_classes: dict[WorkloadKind, InadmissibleClass] = {}
        self._buckets: dict[int, Bucket] = {}
        self._of_kind: dict[WorkloadKind, dict[str, Bucket]] = {}  # by LocalQueue
        self._where: dict[str, Bucket] = {}
        # The first of every bucket that is not parked: one heap per LocalQueue where usage counts, else a single one.
        self._fronts: dict[str, list[tuple[Rank, int]]] = {}
        self._timers: list[tuple[Nanoseconds, str]] = []  # when the back-off of a parked Workload ends
        self._serial = 0
        self._pops = 0
        self._released_at = -1

    def __len__(self) -> int:
        return len(self._where) + len(self.pool) + len(self.in_flight)

    def __contains__(self, key: str) -> bool:
        return key in self._where or key in self.pool or key in self.in_flight

    def get(self, key: str) -> WorkloadInfo | None:
        bucket = self._where.get(key)
        if bucket is not None:
            return bucket.members[key]
        return self.pool.get(key) or self.in_flight.get(key)

    def active(self) -> Iterator[WorkloadInfo]:
        """Those in line, in no particular order."""
        for bucket in self._buckets.values():
            if not bucket.is_parked:
                yield from bucket.members.values()

    @property
    def in_line(self) -> int:
        """How many `active` would name."""
        return sum(len(bucket.members) for bucket in self._buckets.values() if not bucket.is_parked)

    @property
    def pending(self) -> int:
        """How many wait, as people count them: without those who rest."""
        return len(self) - len(self.resting)

    def parked(self, *, with_resting: bool = True) -> Iterator[WorkloadInfo]:
        yield from (workload for key, workload in self.pool.items() if with_resting or key not in self.resting)
        for bucket in self._buckets.values():
            if bucket.is_parked:
                yield from bucket.members.values()

    def is_parked(self, key: str) -> bool:
        bucket = self._where.get(key)
        return key in self.pool or (bucket is not None and bucket.is_parked)

    # Coming and going.

    def put(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """A Workload arrived or changed. While it is being decided it stays where it is: the requeue re-reads it."""
        key = workload.key
        if key in self.in_flight:
            self.in_flight[key] = workload
            return
        rests = key in self.resting or key not in self
        self.pool.pop(key, None)
        self.resting.discard(key)
        if key in self._where:
            self._leave(key)
        if workload.may_compete(now):
            self._join(workload)  # [QU14] with its kind, which may be parked
        else:
            self._park(workload)
            if rests and workload.back_off_until is not None:
                self.resting.add(key)

    def count(self, key: str) -> None:
        """Something was written about a Workload that waits: if it rests, it is counted from here on."""
        self.resting.discard(key)

    def _park(self, workload: WorkloadInfo) -> None:
        self.pool[workload.key] = workload
        if workload.back_off_until is not None:
            heapq.heappush(self._timers, (workload.back_off_until, workload.key))

    def wake(self, now: Nanoseconds) -> bool:
        """[QU16] Whoever waited only for its back-off to end competes again; whether there was anybody."""
        before = len(self.pool)
        while self._timers and self._timers[0][0] <= now:
            _, key = heapq.heappop(self._timers)
            workload = self.pool.get(key)
            if workload is not None and workload.back_off_until is not None and workload.may_compete(now):
                self.put(workload, now)
        return len(self.pool) != before

    @property
    def next_wake(self) -> Nanoseconds | None:
        return self._timers[0][0] if self._timers else None

    def drop(self, key: str) -> None:
        """The Workload is no longer pending. Only now is it forgotten as the preemptor ([QU5])."""
        if key in self._where:
            self._leave(key)
        self.pool.pop(key, None)
        self.resting.discard(key)
        self.in_flight.pop(key, None)
        if self.preemptor is not None and self.preemptor[0] == key:
            self.preemptor = self.sticky = None

    def relist(self, local_usage: Callable[[str], float] | None, strategy: QueueingStrategy) -> None:
        """The queue's own rules changed."""
        self.strategy = strategy
        was_by_usage, self.local_usage = self.local_usage is not None, local_usage
        if was_by_usage is not (local_usage is not None):
            self._fronts = {}
            for bucket in self._buckets.values():
                self._line_up(bucket)

    def _join(self, workload: WorkloadInfo) -> None:
        kind, local_queue = workload.equivalence_class, f"{workload.namespace}/{workload.local_queue}"
        verdict = self.inadmissible_classes.get(kind)
        if verdict is not None and workload.queue_time < verdict.queue_time:
            self._unpark_class(kind)
        alike = self._of_kind.get(kind)
        if alike is None:
            alike = self._of_kind[kind] = {}
        bucket = alike.get(local_queue)
        if bucket is None:
            self._serial += 1
            bucket = alike[local_queue] = self._buckets[self._serial] = Bucket(self._serial, kind, local_queue)
            bucket.is_parked = kind in self.inadmissible_classes
        before = bucket.first()
        bucket.add(workload)
        self._where[workload.key] = bucket
        if not bucket.is_parked and bucket.first() != before:
            self._line_up(bucket)

    def _leave(self, key: str) -> None:
        bucket = self._where.pop(key)
        bucket.discard(key)
        if not bucket.members:
            del self._buckets[bucket.serial]
            alike = self._of_kind[bucket.kind]
            del alike[bucket.local_queue]
            if not alike:
                del self._of_kind[bucket.kind]
        elif not bucket.is_parked:
            self._line_up(bucket)

    def _line_up(self, bucket: Bucket) -> None:
        """Let the first of a bucket compete with the firsts of the others."""
        first = bucket.first()
        if first is not None and not bucket.is_parked:
            front = self._fronts.setdefault(bucket.local_queue if self.local_usage is not None else "", [])
            heapq.heappush(front, (first, bucket.serial))

    # Heads.

    def pop(self) -> WorkloadInfo | None:
        """[QU8] The head, which is then in flight."""
        self._pops += 1
        head = self.head()
        if head is not None:
            self._leave(head.key)
            self.in_flight[head.key] = head
            head.evaluated_generation = head.generation
            head.turn = self._pops
        return head

    def is_preemptor(self, workload: WorkloadInfo) -> bool:
        """[QU6] Whether this head issued preemptions and its spec has not changed since."""
        return self.preemptor == (workload.key, workload.generation)

    def remembered(self, key: str) -> PreemptorMemory | None:
        """What the queue remembers of a Workload as its preemptor."""
        if self.preemptor is None or self.preemptor[0] != key:
            return None
        return PreemptorMemory(self.preemptor[1], is_sticky=self.sticky == key)

    def remember(self, key: str, memory: PreemptorMemory) -> None:
        """Restore the memory of a preemptor whose reservation was not written; a later preemptor keeps its place."""
        if self.preemptor is None:
            self.preemptor = (key, memory.generation)
            self.sticky = key if memory.is_sticky else None

    def head(self) -> WorkloadInfo | None:
        """§2.2 By LocalQueue usage where that counts, then the sticky preemptor, then priority, time and UID."""
        sticky = self._sticky_in_line()
        if self.local_usage is None:
            return sticky or self._first(self._fronts.get("", []))
        best: tuple[tuple[float, bool, Rank], WorkloadInfo] | None = None
        for local_queue, front in self._fronts.items():
            first = self._first(front)
            if sticky is not None and f"{sticky.namespace}/{sticky.local_queue}" == local_queue:
                first = sticky
            if first is not None:
                rank = (self.local_usage(local_queue), first is not sticky, ordering.in_queue(first))
                if best is None or rank < best[0]:
                    best = rank, first
        return None if best is None else best[1]

    def _sticky_in_line(self) -> WorkloadInfo | None:
        bucket = self._where.get(self.sticky) if self.sticky is not None else None
        if bucket is None or bucket.is_parked or self.sticky is None:
            return None
        return bucket.members[self.sticky]

    def _first(self, front: list[tuple[Rank, int]]) -> WorkloadInfo | None:
        while front:
            rank, serial = front[0]
            bucket = self._buckets.get(serial)
            if bucket is not None and not bucket.is_parked and bucket.first() == rank:
                return bucket.members[rank[3]]
            heapq.heappop(front)
        return None

    # After a cycle.

    def requeue(
        self,
        workload: WorkloadInfo,
        requeue: Requeue,
        reason: QuotaReservedReason,
        now: Nanoseconds,
        *,
        scan: ScanPosition | None = None,
        parks_class: bool = True,
    ) -> None:
        """§2.5 A head that got no reservation goes back: in line, or parked with all of its kind. Its next scan of
        flavors continues at `scan`."""
        key = workload.key
        newest = self.in_flight.pop(key, workload)
        newest.scan_position = scan
        newest.evaluated_generation = workload.evaluated_generation
        if requeue in (Requeue.PENDING_PREEMPTION, Requeue.PENDING_MIGRATION):
            self.preemptor = (key, workload.evaluated_generation)
            self.sticky = key if self.strategy is QueueingStrategy.BEST_EFFORT_FIFO else None
        if self.strategy is QueueingStrategy.STRICT_FIFO:
            at_once = requeue is not Requeue.NAMESPACE_MISMATCH
        else:
            at_once = requeue in AT_ONCE
        has_untried = newest.scan_position is not None and newest.scan_position.has_untried_flavors
        if newest.may_compete(now) and (at_once or self._released_at >= self._pops or has_untried):
            self._join(newest)
        elif parks_class and requeue in PARKS_EQUIVALENT and self.strategy is QueueingStrategy.BEST_EFFORT_FIFO:
            self._park_class(newest, reason, now)
        elif newest.may_compete(now):
            self.pool[key] = newest
        else:
            self._park(newest)

    def _park_class(self, workload: WorkloadInfo, reason: QuotaReservedReason, now: Nanoseconds) -> None:
        """[QU13] The verdict holds for the whole kind: park them without asking again."""
        self.inadmissible_classes[workload.equivalence_class] = InadmissibleClass(reason, workload.queue_time)
        for bucket in self._of_kind.get(workload.equivalence_class, {}).values():
            bucket.is_parked = True
        if workload.may_compete(now):
            self._join(workload)
        else:
            self._park(workload)

    def _unpark_class(self, kind: WorkloadKind) -> None:
        """One comes who is older than the one whose verdict it was, and may preempt whom that one could not."""
        del self.inadmissible_classes[kind]
        for bucket in self._of_kind.get(kind, {}).values():
            bucket.is_parked = False
            self._line_up(bucket)

    def release(self, may_return: Callable[[WorkloadInfo], bool]) -> None:
        """§2.7(b) Something changed that may let parked Workloads in: those that may return compete again.

        Whoever is parked with its kind has no back-off to wait for, so one of a bucket answers for all: what is left to
        ask is the namespace, and a LocalQueue has one.
        """
        self._released_at = self._pops
        inadmissible_classes, self.inadmissible_classes = self.inadmissible_classes, {}
        for kind in inadmissible_classes:
            for bucket in list(self._of_kind.get(kind, {}).values()):
                if may_return(next(iter(bucket.members.values()))):
                    bucket.is_parked = False
                    self._line_up(bucket)
                else:
                    for workload in list(bucket.members.values()):
                        self._leave(workload.key)
                        self.pool[workload.key] = workload
        for workload in [workload for workload in self.pool.values() if may_return(workload)]:
            del self.pool[workload.key]
            self._join(workload)
