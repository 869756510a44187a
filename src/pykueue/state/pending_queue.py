"""The pending Workloads of one ClusterQueue [QU3].

A pending Workload is in exactly one of three states: *active* (it competes), *inadmissible* (it is parked until
something changes) or *in flight* (a cycle is deciding about it). Active Workloads, and those that are parked with their
whole equivalence class, are in `EquivalenceBuckets`; those that are parked one by one are in `pool`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kubemachinery.meta import Nanoseconds
from pykueue.api.conditions import QuotaReservedReason
from pykueue.api.kueue import QueueingStrategy
from pykueue.core.decision import Requeue
from pykueue.core.workload import ScanPosition, WorkloadInfo
from pykueue.state import requeue_policy
from pykueue.state.equivalence_buckets import EquivalenceBuckets, EquivalenceClass
from pykueue.state.requeue_policy import RequeueTarget


class InadmissibleClass(NamedTuple):
    """Why an equivalence class is inadmissible, and the queue time of the Workload that was tried for all [QU13]."""

    reason: QuotaReservedReason
    queue_time: Nanoseconds


class PreemptorRecord(NamedTuple):
    """The generation at which a preemptor was evaluated, and whether it stays the head of its queue [QU4]."""

    generation: int
    is_sticky: bool


class PendingQueue:
    """The pending Workloads of one ClusterQueue."""

    __slots__ = (
        "_buckets",
        "_pops",
        "_released_at",
        "_timed",
        "_timers",
        "in_flight",
        "inadmissible_classes",
        "name",
        "pool",
        "preemptor",
        "resting",
        "sticky",
        "strategy",
    )

    def __init__(
        self,
        name: str,
        strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO,
        timed: set[str] | None = None,
    ) -> None:
        """Its name is added to `timed` when a Workload has a backoff, so that no other queue has to be asked."""
        self.name = name
        self.strategy = strategy
        self._timed = timed if timed is not None else set()
        self.pool: dict[str, WorkloadInfo] = {}  # inadmissible one by one
        self.in_flight: dict[str, WorkloadInfo] = {}
        # Workloads of the pool that arrived with a backoff that has not ended, and whose object was not written since.
        # Until then Kueue has them in no queue and does not count them.
        self.resting: set[str] = set()
        self.preemptor: tuple[str, int] | None = None  # key, and the generation it was evaluated at [QU4]
        self.sticky: str | None = None
        self.inadmissible_classes: dict[EquivalenceClass, InadmissibleClass] = {}
        self._buckets = EquivalenceBuckets()
        self._timers: list[tuple[Nanoseconds, str]] = []  # when the backoff of a Workload of the pool ends
        self._pops = 0
        self._released_at = -1

    def __len__(self) -> int:
        return len(self._buckets) + len(self.pool) + len(self.in_flight)

    def __contains__(self, key: str) -> bool:
        return key in self._buckets or key in self.pool or key in self.in_flight

    def get(self, key: str) -> WorkloadInfo | None:
        return self._buckets.get(key) or self.pool.get(key) or self.in_flight.get(key)

    def active(self) -> Iterator[WorkloadInfo]:
        """Return the Workloads that compete, in no particular order."""
        return self._buckets.of_state(parked=False)

    @property
    def active_count(self) -> int:
        """How many Workloads compete."""
        return self._buckets.active_count()

    @property
    def pending_count(self) -> int:
        """How many Workloads are pending as Kueue counts them: without those in their first backoff."""
        return len(self) - len(self.resting)

    @property
    def local_usage(self) -> Callable[[str], float] | None:
        """The usage of a LocalQueue, where the ClusterQueue orders by it."""
        return self._buckets.local_usage

    def parked(self, *, with_resting: bool = True) -> Iterator[WorkloadInfo]:
        """Return the inadmissible Workloads, in no particular order."""
        yield from (workload for key, workload in self.pool.items() if with_resting or key not in self.resting)
        yield from self._buckets.of_state(parked=True)

    def is_parked(self, key: str) -> bool:
        return key in self.pool or self._buckets.is_parked(key)

    # Arrival and removal.

    def put(self, workload: WorkloadInfo, now: Nanoseconds) -> None:
        """Add or replace a Workload. One that is in flight stays so: the requeue reads the newest value."""
        key = workload.key
        if key in self.in_flight:
            self.in_flight[key] = workload
            return
        rests = key in self.resting or key not in self
        self.pool.pop(key, None)
        self.resting.discard(key)
        if key in self._buckets:
            self._buckets.remove(key)
        if workload.may_compete(now):
            self._activate(workload)  # with its equivalence class, which may be parked [QU14]
        else:
            self._park(workload)
            if rests and workload.back_off_until is not None:
                self.resting.add(key)

    def count(self, key: str) -> None:
        """Count a Workload in its first backoff from now on: its object was written."""
        self.resting.discard(key)

    def drop(self, key: str) -> None:
        """Remove a Workload that is no longer pending. Only now is its record as the preemptor cleared [QU5]."""
        if key in self._buckets:
            self._buckets.remove(key)
        self.pool.pop(key, None)
        self.resting.discard(key)
        self.in_flight.pop(key, None)
        if self.preemptor is not None and self.preemptor[0] == key:
            self.preemptor = self.sticky = None

    def wake(self, now: Nanoseconds) -> bool:
        """Activate the Workloads that were parked only for a backoff that has ended [QU16]; whether there were any."""
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

    def configure(self, local_usage: Callable[[str], float] | None, strategy: QueueingStrategy) -> None:
        """Apply the ClusterQueue's queueing strategy, and whether it orders LocalQueues by usage."""
        self.strategy = strategy
        self._buckets.order_by(local_usage)

    def _activate(self, workload: WorkloadInfo) -> None:
        equivalence_class = workload.equivalence_class
        inadmissible = self.inadmissible_classes.get(equivalence_class)
        if inadmissible is not None and workload.queue_time < inadmissible.queue_time:
            self._unpark_class(equivalence_class)
            inadmissible = None
        self._buckets.add(workload, parked=inadmissible is not None)

    def _park(self, workload: WorkloadInfo) -> None:
        self.pool[workload.key] = workload
        if workload.back_off_until is not None:
            heapq.heappush(self._timers, (workload.back_off_until, workload.key))
            self._timed.add(self.name)

    # Heads.

    def head(self, local_usage: Callable[[str], float] | None = None) -> WorkloadInfo | None:
        """Return the Workload that the next cycle decides about [QU21]; with `local_usage`, the one that it would
        decide about if LocalQueues had this usage."""
        sticky = self._buckets.get(self.sticky) if self.sticky is not None else None
        if sticky is not None and self._buckets.is_parked(sticky.key):
            sticky = None
        return self._buckets.head(sticky, local_usage)

    def pop(self) -> WorkloadInfo | None:
        """Take the head, which is then in flight [QU8]."""
        self._pops += 1
        head = self.head()
        if head is not None:
            self._buckets.remove(head.key)
            self.in_flight[head.key] = head
            head.evaluated_generation = head.generation
            head.pop_cycle = self._pops
        return head

    def take(self, key: str) -> None:
        """Take a Workload that is not the head, which is then in flight [CY29]."""
        self._pops += 1
        if key in self._buckets:
            taken = self._buckets.get(key)
            self._buckets.remove(key)
        else:
            taken = self.pool.pop(key, None)
            self.resting.discard(key)
        if taken is not None:
            self.in_flight[key] = taken
            taken.evaluated_generation = taken.generation
            taken.pop_cycle = self._pops

    def is_preemptor(self, workload: WorkloadInfo) -> bool:
        """Whether this head issued preemptions and its spec has not changed since [QU6]."""
        return self.preemptor == (workload.key, workload.generation)

    def preemptor_record(self, key: str) -> PreemptorRecord | None:
        """Return the record of a Workload as the queue's preemptor."""
        if self.preemptor is None or self.preemptor[0] != key:
            return None
        return PreemptorRecord(self.preemptor[1], is_sticky=self.sticky == key)

    def restore_preemptor(self, key: str, record: PreemptorRecord) -> None:
        """Restore the record of a preemptor whose reservation was not written; a later preemptor keeps its place."""
        if self.preemptor is None:
            self.preemptor = (key, record.generation)
            self.sticky = key if record.is_sticky else None

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
        as_best_effort: bool = False,
    ) -> None:
        """Return a head without a reservation to the queue [QU22]. Its next scan of flavors continues at `scan`.
        `as_best_effort`: it does not stay the head although the queue is StrictFIFO ([BF4])."""
        key = workload.key
        # The Workload may have been updated during the cycle: its newest version goes back, with the cycle's results.
        newest = self.in_flight.pop(key, workload)
        newest.scan_position = scan
        newest.evaluated_generation = workload.evaluated_generation
        if requeue in requeue_policy.MARKS_PREEMPTOR:
            self.preemptor = (key, workload.evaluated_generation)
            is_best_effort = as_best_effort or self.strategy is QueueingStrategy.BEST_EFFORT_FIFO
            self.sticky = key if is_best_effort else None
        may_compete = newest.may_compete(now)
        target = requeue_policy.target(
            requeue,
            QueueingStrategy.BEST_EFFORT_FIFO if as_best_effort else self.strategy,
            may_compete=may_compete,
            # Quota that was released after this head was taken did not count in its decision: parked, it would miss it.
            has_reason_to_retry=self._released_at >= self._pops or (scan is not None and scan.has_untried_flavors),
            parks_class=parks_class,
        )
        match target:
            case RequeueTarget.ACTIVE:
                self._activate(newest)
            case RequeueTarget.INADMISSIBLE_CLASS:
                self._park_class(newest, reason, may_compete=may_compete)
            case RequeueTarget.INADMISSIBLE if may_compete:
                self.pool[key] = newest
            case RequeueTarget.INADMISSIBLE:
                self._park(newest)

    def park(self, workload: WorkloadInfo) -> None:
        """Park an active Workload by itself, until something changes that may let it in."""
        self._buckets.remove(workload.key)
        self.pool[workload.key] = workload

    def _park_class(self, workload: WorkloadInfo, reason: QuotaReservedReason, *, may_compete: bool) -> None:
        """Park the whole equivalence class: none of its Workloads would get another result [QU13]."""
        equivalence_class = workload.equivalence_class
        self.inadmissible_classes[equivalence_class] = InadmissibleClass(reason, workload.queue_time)
        self._buckets.park(equivalence_class)
        if may_compete:
            self._activate(workload)
        else:
            self._park(workload)

    def _unpark_class(self, equivalence_class: EquivalenceClass) -> None:
        """Activate a class: a Workload arrived that is older than the one that was tried, and may preempt more."""
        del self.inadmissible_classes[equivalence_class]
        for bucket in self._buckets.of_class(equivalence_class):
            self._buckets.unpark(bucket)

    def release(self, may_return: Callable[[WorkloadInfo], bool]) -> None:
        """Activate the inadmissible Workloads that may return: something changed that may let them in [QU24].

        A Workload that is parked with its class has no backoff, so one Workload of a bucket decides for all: what is
        left to check is the namespace, and a LocalQueue has one.
        """
        self._released_at = self._pops
        released, self.inadmissible_classes = self.inadmissible_classes, {}
        for equivalence_class in released:
            for bucket in list(self._buckets.of_class(equivalence_class)):
                if may_return(next(iter(bucket.members.values()))):
                    self._buckets.unpark(bucket)
                else:
                    for workload in list(bucket.members.values()):
                        self._buckets.remove(workload.key)
                        self.pool[workload.key] = workload
        for workload in [workload for workload in self.pool.values() if may_return(workload)]:
            del self.pool[workload.key]
            self._activate(workload)
