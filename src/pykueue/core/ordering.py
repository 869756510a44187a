"""Orders: of resources in a request, Workloads in a queue, entries in a cycle. Every order is total ([CY23])."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from pykueue.core import fair_sharing
from pykueue.core.cohort import QuotaNode
from pykueue.core.decision import Rank
from pykueue.core.fair_sharing import DominantResourceShare
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.workload import WorkloadInfo


def in_queue(workload: WorkloadInfo) -> tuple[int, int, str, str]:
    """The order of pending Workloads: higher priority, earlier queue-order time, smaller UID; the name only where even
    UIDs are equal ([QU21], keys 3 to 5)."""
    return -workload.priority, workload.queue_time, workload.uid, workload.key


class OrderedEntry(Protocol):
    """The properties of a cycle's entry that its order depends on."""

    @property
    def workload(self) -> WorkloadInfo: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def level(self) -> int: ...
    @property
    def is_preemptor(self) -> bool: ...
    def quota_usage(self) -> Mapping[int, int]: ...


E = TypeVar("E", bound=OrderedEntry)


def classical_rank(entry: OrderedEntry, policy: SchedulingPolicy) -> Rank:
    """The place of an entry without fair sharing: second passes first, then the lower borrowing level, higher priority,
    earlier queue-order time ([CY11])."""
    workload = entry.workload
    return (
        workload.reservation is None,
        not (policy.preemptors_first and entry.is_preemptor),
        entry.level,
        -workload.priority if policy.priority_sorting_within_cohort else 0,
        workload.queue_time,
        workload.uid,
        workload.key,
    )


def tournament(entries: Sequence[E], policy: SchedulingPolicy, snapshot: Snapshot) -> Iterator[E]:
    """The entries in the order of fair sharing: before each one is taken, the entries of its tree compete, bottom-up,
    on the usage at that moment ([FS7] to [FS10]).

    A ClusterQueue takes part with one entry; of a second pass and a head, with the head (W3).
    """
    waiting = {entry.queue.name: entry for entry in entries}
    while waiting:
        name = min(waiting)
        node = waiting[name].queue.node
        if node.parent is None:
            yield waiting.pop(name)
            continue
        winner = _Round(waiting, policy, snapshot).winner(node.root)
        yield waiting.pop(winner.queue.name)


class _Round(Generic[E]):
    """One round of the tournament, with the shares of every entry at each cohort above it."""

    def __init__(self, waiting: Mapping[str, E], policy: SchedulingPolicy, snapshot: Snapshot) -> None:
        self.waiting = waiting
        self.policy = policy
        self.snapshot = snapshot
        self.shares: dict[tuple[str, str], DominantResourceShare] = {}

    def winner(self, root: QuotaNode) -> E:
        for queue in root.subtree_queues():
            if queue.name in self.waiting:
                self._measure(self.waiting[queue.name])
        winner = self._compete(root)
        assert winner is not None, "a tree without entries holds no tournament"
        return winner

    def _measure(self, entry: E) -> None:
        """Compute the entry's shares with its usage added: the share of its ClusterQueue counts at the parent, that of
        the parent at the grandparent, and so on ([FS7])."""
        mark = self.snapshot.mark()
        self.snapshot.assume(entry.queue, entry.quota_usage().items())
        node = entry.queue.node
        for ancestor in node.ancestors:
            self.shares[ancestor.name, entry.queue.name] = fair_sharing.dominant_resource_share(node)
            node = ancestor
        self.snapshot.undo(mark)

    def _compete(self, cohort: QuotaNode) -> E | None:
        """The entry that wins below a cohort; of equals the one listed first, child cohorts before ClusterQueues
        ([FS8])."""
        best: E | None = None
        contenders = (
            *(self._compete(child) for child in cohort.cohorts),
            *(self.waiting.get(queue.name) for queue in cohort.queues),
        )
        for contender in contenders:
            if contender is not None and (best is None or self._rank(contender, cohort) < self._rank(best, cohort)):
                best = contender
        return best

    def _rank(self, entry: E, cohort: QuotaNode) -> tuple[bool, bool, tuple[bool, float], int, int]:
        """What entries are compared by at a cohort, smallest first: not borrowing, the share, priority, queue-order
        time ([FS9])."""
        policy = self.policy
        share = self.shares[cohort.name, entry.queue.name]
        usage = entry.quota_usage()
        borrows = policy.prioritize_non_borrowing and any(usage.get(number, 0) > 0 for number in share.borrowed)
        return (
            not (policy.preemptors_first and entry.is_preemptor),
            borrows,
            share.rank,
            -entry.workload.priority if policy.priority_sorting_within_cohort else 0,
            entry.workload.queue_time,
        )
