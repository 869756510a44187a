"""One consistent picture of queues, quotas, reservations and nodes, with reversible what-if.

It is the live picture, not a copy: a cycle writes on it what it assumes, and takes all of it back at the end. `mark`
and `undo` bracket every what-if, and nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pykueue.core import quota
from pykueue.core.cohort import QuotaNode
from pykueue.core.decision import FlavorFinding
from pykueue.core.queue import FlavorSpec, QueueSpec, ResourceGroupInfo
from pykueue.core.topology import Fleet, PlacedPods
from pykueue.core.workload import PodSetResources, Reservation


class GroupFlavor(NamedTuple):
    """One flavor of a resource group, with the tree's number for each resource."""

    flavor: str
    numbers: Mapping[str, int]


class Queue:
    """A ClusterQueue in its place in the tree, with the Workloads that hold its quota."""

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
        self.generation = generation  # [FL24] rises when room may have appeared in this queue
        self.reservations: dict[str, Reservation] = {}
        self._priorities: dict[int, int] = {}  # how many reservations there are of each
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
        """Write the usage of a reservation in the numbering of this queue's tree, and count it among its own."""
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
        """Of all reservations; None where there is none."""
        return min(self._priorities, default=None)


class Mark(NamedTuple):
    quota: int
    fleet: int


class Snapshot:
    """Everything a cycle looks at."""

    def __init__(self, fleet: Fleet) -> None:
        self.queues: dict[str, Queue] = {}  # those that can be scheduled into
        self.inactive: set[str] = set()  # the names of those that cannot, for now
        self.flavors: dict[str, FlavorSpec] = {}
        self.fleet = fleet
        self.eligibility_cache: dict[
            tuple[str, str, PodSetResources], FlavorFinding | None
        ] = {}  # see `core.eligibility`
        self.ended: frozenset[str] = frozenset()  # keys of reservations that a what-if treats as ended
        self._log: quota.UndoLog = []

    def mark(self) -> Mark:
        return Mark(len(self._log), self.fleet.mark())

    def undo(self, mark: Mark) -> None:
        quota.undo(self._log, mark.quota)
        self.fleet.undo(mark.fleet)

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

    def assume(self, queue: Queue, usage: Iterable[tuple[int, int]], placed: tuple[PlacedPods, ...] = ()) -> None:
        quota.add_all(queue.node, usage, self._log)
        if placed:
            self.fleet.assume(placed)

    def withdraw(self, queue: Queue, usage: Iterable[tuple[int, int]], placed: tuple[PlacedPods, ...] = ()) -> None:
        """Take back what was assumed, while other things assumed since then stay."""
        quota.remove_all(queue.node, usage, self._log)
        if placed:
            self.fleet.remove(placed)

    def remove(self, reservation: Reservation) -> None:
        """As if the reservation had ended: its quota and its room on the nodes are free."""
        quota.remove_all(self.queues[reservation.cluster_queue].node, reservation.usage_by_number, self._log)
        if reservation.placed:
            self.fleet.remove(reservation.placed)

    def restore(self, reservation: Reservation) -> None:
        """The opposite of `remove`, in whatever order."""
        self.assume(self.queues[reservation.cluster_queue], reservation.usage_by_number, reservation.placed)

    def end(self, queue: Queue, reservation: Reservation) -> None:
        """The reservation is over, and so is its usage of quota."""
        quota.remove_all(queue.node, reservation.usage_by_number, self._log)
        self.settle()

    def settle(self) -> None:
        """Make what was written so far the truth: there is nothing to undo any more."""
        self._log.clear()
