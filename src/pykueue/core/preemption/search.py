"""The search for preemption targets: its inputs, which reservations are candidates, and when the Workload fits."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.api.conditions import PreemptedReason
from pykueue.api.kueue import PreemptionPolicy
from pykueue.core import quota, topology
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import FlavorResourceNumber, UsageByNumber
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import PlacedPods, PlacementRequest
from pykueue.core.workload import Reservation, WorkloadInfo


class PreemptionTarget(NamedTuple):
    """A reservation that has to end, and the reason of the preemption. An elastic slice that is replaced has none."""

    reservation: Reservation
    reason: PreemptedReason | None


# Made for most heads that wait; a Struct is made in a third of the time of a dataclass.
class TargetSearch(msgspec.Struct, frozen=True, eq=False):
    """The inputs of one search. `contested` are the flavor-resources that are short; `requests` is all the Workload
    needs."""

    snapshot: Snapshot
    policy: SchedulingPolicy
    now: Nanoseconds
    workload: WorkloadInfo
    queue: Queue
    contested: frozenset[FlavorResourceNumber]
    requests: UsageByNumber
    placements: Sequence[PlacementRequest] = ()
    placed: tuple[PlacedPods, ...] = ()  # placements that are given already, and have to be free
    spared: frozenset[str] = frozenset()  # keys of Workloads that must not be evicted for this one ([FS22])

    def fits(self, *, borrowing: bool) -> bool:
        """Whether the Workload fits on the snapshot as it is ([PR11])."""
        node = self.queue.node
        for number, amount in self.requests.items():
            if not borrowing and quota.borrows_with(node, number, amount):
                return False
            if amount > quota.available(node, number):
                return False
        if self.placed and not self.snapshot.topology_cache.fits(self.placed):
            return False
        return not self.placements or topology.place(self.snapshot.topology_cache, self.placements, explain=False).fits

    def candidates(self, queue: Queue, policy: PreemptionPolicy) -> list[Reservation]:
        """The reservations of a ClusterQueue that use a contested flavor-resource and that the policy allows to preempt
        ([PR1], [PR2])."""
        if not may_take_any(policy, self.workload, queue):
            return []
        ended = self.snapshot.ended
        return [
            reservation
            for reservation in queue.reservations.values()
            if not self.contested.isdisjoint(reservation.used_numbers)
            and may_take(policy, self.workload, reservation)
            and reservation.key not in ended
            and (reservation.evicted or reservation.key not in self.spared)
        ]

    def is_hopeless(self, candidates: Iterable[Reservation]) -> bool:
        """Whether not even all candidates together release enough quota: a target releases no more than it uses. This
        spares most searches that would find nothing."""
        lacking = {
            number: missing
            for number, amount in self.requests.items()
            if (missing := amount - quota.balance(self.queue.node, number)) > 0
        }
        for candidate in candidates:
            for number, amount in candidate.usage_by_number:
                if number in lacking:
                    lacking[number] -= amount
        return any(missing > 0 for missing in lacking.values())

    def fill_back(self, targets: list[PreemptionTarget], *, borrowing: bool) -> list[PreemptionTarget]:
        """Spare targets that turned out not to be needed, from the second-to-last one backwards; the snapshot ends up
        with exactly the returned targets removed. The last one found is always needed ([PR7])."""
        kept = list(targets)
        for position in range(len(kept) - 2, -1, -1):
            self.snapshot.restore(kept[position].reservation)
            if self.fits(borrowing=borrowing):
                # The last target takes the place of the spared one, as in Kueue: the order of targets is part of the
                # decision. Positions below are not moved, so that each is tried once.
                kept[position] = kept[-1]
                kept.pop()
            else:
                self.snapshot.remove(kept[position].reservation)
        return kept

    def ordered(self, candidates: Iterable[Reservation], *, by_local_usage: bool = True) -> list[Reservation]:
        """The candidates in the order in which they become targets: already evicted first, other ClusterQueues before
        the own, lower priority, later reservation, smaller UID ([PR9]).

        In a ClusterQueue with usage-based admission, its Workloads are first compared by the usage of their
        LocalQueues, most used first.
        """
        queues = self.snapshot.queues
        own = self.queue.name
        now = self.now

        def rank(reservation: Reservation) -> tuple[bool, bool, int, int, str]:
            since = now if reservation.reserved_at is None else reservation.reserved_at
            return (
                not reservation.evicted,
                reservation.cluster_queue == own,
                reservation.priority,
                -since,
                reservation.uid,
            )

        if not by_local_usage or self.policy.usage_history is None:
            return sorted(candidates, key=rank)

        def compare(a: Reservation, b: Reservation) -> int:
            rank_a, rank_b = rank(a), rank(b)
            if rank_a[:2] == rank_b[:2] and a.cluster_queue == b.cluster_queue and a.local_queue != b.local_queue:
                usage = queues[a.cluster_queue].local_usage
                if usage is not None:
                    of_a = usage(f"{a.namespace}/{a.local_queue}")
                    of_b = usage(f"{b.namespace}/{b.local_queue}")
                    if of_a != of_b:
                        return -1 if of_a > of_b else 1
            return -1 if rank_a < rank_b else int(rank_a > rank_b)

        # `compare` is no total order over several ClusterQueues: usage decides within one, priority between two. Sorted
        # by rank first, the result depends on the candidates only and not on the order in which they were found.
        return sorted(sorted(candidates, key=rank), key=functools.cmp_to_key(compare))


def may_take_any(policy: PreemptionPolicy, workload: WorkloadInfo, queue: Queue) -> bool:
    """Whether the priorities of a ClusterQueue's reservations let the Workload preempt one of them: the lowest one
    decides. The times of reservations are not compared."""
    lowest = queue.lowest_priority
    if lowest is None or policy is PreemptionPolicy.NEVER:
        return False
    if policy is PreemptionPolicy.ANY:
        return True
    return lowest < workload.priority + (policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)


def may_take(policy: PreemptionPolicy, workload: WorkloadInfo, candidate: Reservation) -> bool:
    """Whether the preemption policy lets the Workload preempt the candidate ([PR2])."""
    if policy is PreemptionPolicy.ANY:
        return True
    if candidate.priority < workload.priority:
        return policy is not PreemptionPolicy.NEVER
    return (
        policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
        and candidate.priority == workload.priority
        and workload.queue_time < candidate.queue_time
    )
