"""A consistent snapshot of ClusterQueues, quota, reservations and nodes, with what-ifs that can be undone.

It is the live state, not a copy: a cycle writes what it assumes into it, and undoes all of it at the end. `mark` and
`undo` enclose every what-if, and nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pykueue.core import quota
from pykueue.core.cohort import QuotaNode
from pykueue.core.decision import FlavorFinding
from pykueue.core.queue import FlavorResourceNumber, FlavorSpec, QueueSpec, ResourceGroupInfo, UsagePairs
from pykueue.core.topology import PlacedPods, TopologyCache
from pykueue.core.workload import PodSetResources, Reservation


class GroupFlavor(NamedTuple):
    """One flavor of a resource group, with the flavor-resource number of each resource."""

    flavor: str
    numbers: Mapping[str, FlavorResourceNumber]


class Queue:
    """A ClusterQueue at its node of the cohort tree, with the reservations that hold its quota."""

    __slots__ = (
        "_priorities",
        "generation",
        "group_flavors",
        "group_of",
        "local_usage",
        "name",
        "node",
        "reservations",
        "spec",
    )

    def __init__(self, spec: QueueSpec, node: QuotaNode, generation: int = 0) -> None:
        self.name = spec.name
        self.spec = spec
        self.node = node
        self.generation = generation  # rises when quota of this ClusterQueue may have been released ([FL24])
        self.reservations: dict[str, Reservation] = {}
        self._priorities: dict[int, int] = {}  # priority -> number of reservations
        self.local_usage: Callable[[str], float] | None = None  # of a LocalQueue, in a usage-based queue
        tree = node.tree
        self.group_of: dict[str, ResourceGroupInfo] = {}
        self.group_flavors: dict[ResourceGroupInfo, tuple[GroupFlavor, ...]] = {}
        for group in spec.groups:
            for resource in group.resources:
                self.group_of.setdefault(resource, group)
            self.group_flavors[group] = tuple(
                GroupFlavor(flavor, {resource: tree.number(flavor, resource) for resource in sorted(group.resources)})
                for flavor in group.flavors
            )

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def add_reservation(self, reservation: Reservation) -> None:
        """List a reservation, with its usage by the flavor-resource numbers of this ClusterQueue's tree. The usage of
        the tree is not changed: `Snapshot.assume` does that."""
        number = self.node.tree.number
        reservation.usage_by_number = tuple(
            (number(pair.flavor, pair.resource), reservation.counted(pair, amount))
            for pair, amount in reservation.usage
        )
        reservation.used_numbers = frozenset(pair for pair, _ in reservation.usage_by_number)
        self.reservations[reservation.key] = reservation
        self._priorities[reservation.priority] = self._priorities.get(reservation.priority, 0) + 1

    def remove_reservation(self, reservation: Reservation) -> None:
        del self.reservations[reservation.key]
        self._priorities[reservation.priority] -= 1
        if not self._priorities[reservation.priority]:
            del self._priorities[reservation.priority]

    @property
    def lowest_priority(self) -> int | None:
        """The lowest priority of all reservations; None without reservations."""
        return min(self._priorities, default=None)


class Mark(NamedTuple):
    quota: int
    topology_cache: int


class Snapshot:
    """Everything that a cycle reads."""

    def __init__(self, topology_cache: TopologyCache) -> None:
        self.queues: dict[str, Queue] = {}  # the active ClusterQueues
        self.inactive: set[str] = set()  # the names of the inactive ones
        self.flavors: dict[str, FlavorSpec] = {}
        self.topology_cache = topology_cache
        self.eligibility_cache: dict[
            tuple[str, str, PodSetResources], FlavorFinding | None
        ] = {}  # see `core.eligibility`
        self.ended: frozenset[str] = frozenset()  # keys of reservations that a what-if treats as ended
        self._log: quota.UndoLog = []

    def mark(self) -> Mark:
        return Mark(len(self._log), self.topology_cache.mark())

    def undo(self, mark: Mark) -> None:
        quota.undo(self._log, mark.quota)
        self.topology_cache.undo(mark.topology_cache)

    @contextmanager
    def treating_as_ended(self, keys: Iterable[str]) -> Iterator[None]:
        """Add reservations to `ended` for the length of a what-if: they are no preemption candidates, and no slice is
        replaced that is one of them. Their usage is removed separately, by `remove` or `withdraw`."""
        before = self.ended
        self.ended = before.union(keys)
        try:
            yield
        finally:
            self.ended = before

    def assume(self, queue: Queue, usage: UsagePairs, placed: tuple[PlacedPods, ...] = ()) -> None:
        quota.add_all(queue.node, usage, self._log)
        if placed:
            self.topology_cache.assume(placed)

    def withdraw(self, queue: Queue, usage: UsagePairs, placed: tuple[PlacedPods, ...] = ()) -> None:
        """Remove usage that was assumed, while usage assumed since then stays."""
        quota.remove_all(queue.node, usage, self._log)
        if placed:
            self.topology_cache.remove(placed)

    def remove(self, reservation: Reservation) -> None:
        """Remove the usage of a reservation, as if it had ended: its quota and its capacity on the nodes are free."""
        quota.remove_all(self.queues[reservation.cluster_queue].node, reservation.usage_by_number, self._log)
        if reservation.placed:
            self.topology_cache.remove(reservation.placed)

    def restore(self, reservation: Reservation) -> None:
        """Undo `remove`, in any order."""
        self.assume(self.queues[reservation.cluster_queue], reservation.usage_by_number, reservation.placed)

    def end(self, queue: Queue, reservation: Reservation) -> None:
        """Remove the quota usage of a reservation that has ended, for good."""
        quota.remove_all(queue.node, reservation.usage_by_number, self._log)
        self.settle()

    def settle(self) -> None:
        """Make everything written so far permanent: it cannot be undone any more."""
        self._log.clear()
