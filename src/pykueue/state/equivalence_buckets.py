"""Heaps of pending Workloads in buckets: one bucket per equivalence class and LocalQueue.

A result that holds for a whole class parks its buckets, and a release unparks them, without touching a single Workload:
parking a hundred thousand equivalent Workloads costs as much as parking one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from pykueue.core import ordering
from pykueue.core.workload import WorkloadInfo, WorkloadShape

QueueRank: TypeAlias = tuple[int, int, str, str]
EquivalenceClass: TypeAlias = tuple[WorkloadShape, int, frozenset[str] | None]


class Bucket:
    """Workloads of one equivalence class and LocalQueue, in queue order. Outdated entries of the heap are skipped when
    they come first; `members` is what the bucket holds."""

    __slots__ = ("_heap", "equivalence_class", "is_parked", "local_queue", "members", "serial")

    def __init__(self, serial: int, equivalence_class: EquivalenceClass, local_queue: str) -> None:
        self.serial = serial
        self.equivalence_class = equivalence_class
        self.local_queue = local_queue
        self.members: dict[str, WorkloadInfo] = {}
        self.is_parked = False
        self._heap: list[QueueRank] = []

    def add(self, workload: WorkloadInfo) -> None:
        self.members[workload.key] = workload
        heapq.heappush(self._heap, ordering.in_queue(workload))

    def discard(self, key: str) -> None:
        del self.members[key]
        if self._heap[0][3] == key:
            heapq.heappop(self._heap)
        elif len(self._heap) > 2 * len(self.members) + 64:  # mostly outdated entries: rebuild
            self._heap = sorted(map(ordering.in_queue, self.members.values()))

    def first(self) -> QueueRank | None:
        heap = self._heap
        while heap:
            rank = heap[0]
            workload = self.members.get(rank[3])
            if workload is not None and workload.queue_time == rank[1] and workload.priority == -rank[0]:
                return rank
            heapq.heappop(heap)
        return None


class EquivalenceBuckets:
    """The Workloads of one ClusterQueue that compete, or that are parked with their whole equivalence class."""

    __slots__ = ("_bucket_of", "_buckets", "_by_class", "_firsts", "_serial", "local_usage")

    def __init__(self) -> None:
        # The usage of a LocalQueue, where the ClusterQueue orders by it.
        self.local_usage: Callable[[str], float] | None = None
        self._buckets: dict[int, Bucket] = {}  # by serial
        self._by_class: dict[EquivalenceClass, dict[str, Bucket]] = {}  # then by LocalQueue
        self._bucket_of: dict[str, Bucket] = {}  # by Workload
        # The first of every bucket that is not parked: one heap per LocalQueue if usage counts, else a single one.
        self._firsts: dict[str, list[tuple[QueueRank, int]]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._bucket_of)

    def __contains__(self, key: str) -> bool:
        return key in self._bucket_of

    def get(self, key: str) -> WorkloadInfo | None:
        bucket = self._bucket_of.get(key)
        return bucket.members[key] if bucket is not None else None

    def is_parked(self, key: str) -> bool:
        bucket = self._bucket_of.get(key)
        return bucket is not None and bucket.is_parked

    def of_state(self, *, parked: bool) -> Iterator[WorkloadInfo]:
        """Return the Workloads that are parked, or those that are not, in no particular order."""
        for bucket in self._buckets.values():
            if bucket.is_parked is parked:
                yield from bucket.members.values()

    def active_count(self) -> int:
        return sum(len(bucket.members) for bucket in self._buckets.values() if not bucket.is_parked)

    def of_class(self, equivalence_class: EquivalenceClass) -> Iterable[Bucket]:
        """Return the buckets of an equivalence class, one per LocalQueue."""
        return self._by_class.get(equivalence_class, {}).values()

    def add(self, workload: WorkloadInfo, *, parked: bool) -> None:
        """Add a Workload; `parked` is the state of a bucket that is created for it."""
        equivalence_class = workload.equivalence_class
        local_queue = f"{workload.namespace}/{workload.local_queue}"
        by_local_queue = self._by_class.get(equivalence_class)
        if by_local_queue is None:
            by_local_queue = self._by_class[equivalence_class] = {}
        bucket = by_local_queue.get(local_queue)
        if bucket is None:
            self._serial += 1
            bucket = Bucket(self._serial, equivalence_class, local_queue)
            bucket.is_parked = parked
            by_local_queue[local_queue] = self._buckets[self._serial] = bucket
        before = bucket.first()
        bucket.add(workload)
        self._bucket_of[workload.key] = bucket
        if not bucket.is_parked and bucket.first() != before:
            self._push_first(bucket)

    def remove(self, key: str) -> None:
        bucket = self._bucket_of.pop(key)
        bucket.discard(key)
        if not bucket.members:
            del self._buckets[bucket.serial]
            by_local_queue = self._by_class[bucket.equivalence_class]
            del by_local_queue[bucket.local_queue]
            if not by_local_queue:
                del self._by_class[bucket.equivalence_class]
        elif not bucket.is_parked:
            self._push_first(bucket)

    def park(self, equivalence_class: EquivalenceClass) -> None:
        for bucket in self.of_class(equivalence_class):
            bucket.is_parked = True

    def unpark(self, bucket: Bucket) -> None:
        bucket.is_parked = False
        self._push_first(bucket)

    def order_by(self, local_usage: Callable[[str], float] | None) -> None:
        """Order LocalQueues by their usage first, or not at all."""
        was_by_usage, self.local_usage = self.local_usage is not None, local_usage
        if was_by_usage is not (local_usage is not None):
            self._firsts = {}
            for bucket in self._buckets.values():
                self._push_first(bucket)

    def head(
        self, sticky: WorkloadInfo | None, local_usage: Callable[[str], float] | None = None
    ) -> WorkloadInfo | None:
        """Return the first Workload that is not parked: by LocalQueue usage where that counts, then the sticky
        preemptor, then priority, time and UID [QU21]. `local_usage` is taken in place of the present usage."""
        usage = local_usage or self.local_usage
        if self.local_usage is None or usage is None:
            return sticky or self._first(self._firsts.get("", []))
        best: tuple[tuple[float, bool, QueueRank], WorkloadInfo] | None = None
        for local_queue, firsts in self._firsts.items():
            first = self._first(firsts)
            if sticky is not None and f"{sticky.namespace}/{sticky.local_queue}" == local_queue:
                first = sticky
            if first is not None:
                rank = (usage(local_queue), first is not sticky, ordering.in_queue(first))
                if best is None or rank < best[0]:
                    best = rank, first
        return None if best is None else best[1]

    def _push_first(self, bucket: Bucket) -> None:
        """Let the first of a bucket compete with the firsts of the others."""
        first = bucket.first()
        if first is not None and not bucket.is_parked:
            firsts = self._firsts.setdefault(bucket.local_queue if self.local_usage is not None else "", [])
            heapq.heappush(firsts, (first, bucket.serial))

    def _first(self, firsts: list[tuple[QueueRank, int]]) -> WorkloadInfo | None:
        while firsts:
            rank, serial = firsts[0]
            bucket = self._buckets.get(serial)
            if bucket is not None and not bucket.is_parked and bucket.first() == rank:
                return bucket.members[rank[3]]
            heapq.heappop(firsts)
        return None
