"""The arithmetic of cohorts once more, from the public rules and not from the product: slow, small, on whole numbers.

A node is a ClusterQueue or a Cohort. Of what a node has, its lending limit keeps the rest to itself:

    quota(node)   its nominal quota, and what its children lend
    kept(node)    the part of its quota that it does not lend
    used(node)    a queue: its reservations; a cohort: what its children use beyond what they keep
    limit(node)   at the root its quota; below it its quota and what it may borrow
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Tree = dict[str, Any]


class Cell(NamedTuple):
    """What quota is given of."""

    flavor: str
    resource: str


Usage = Mapping[tuple[str, Cell], int]  # (ClusterQueue, what) -> thousandths


class Place(NamedTuple):
    kind: str  # queue or cohort
    name: str


class Quota(NamedTuple):
    nominal: int
    borrowing: int | None
    lending: int | None


@dataclass(slots=True)
class QuotaTree:
    """All trees as they stood between two changes of them."""

    parents: dict[Place, Place] = field(default_factory=dict)
    quotas: dict[tuple[Place, Cell], Quota] = field(default_factory=dict)
    specs: dict[str, Tree] = field(default_factory=dict)  # ClusterQueue -> spec
    cohorts: dict[str, Tree] = field(default_factory=dict)  # Cohort -> spec
    children: dict[Place, list[Place]] = field(default_factory=dict)
    lost: set[Place] = field(default_factory=set)  # those whose way up runs in a circle; here each stands alone
    until: float = float("inf")  # when it was replaced

    @classmethod
    def read(cls, queues: Mapping[str, Tree], cohorts: Mapping[str, Tree]) -> QuotaTree:
        tree = cls(specs=dict(queues), cohorts=dict(cohorts))
        for kind, specs, up in (("queue", queues, "cohortName"), ("cohort", cohorts, "parentName")):
            for name, spec in sorted(specs.items()):
                place = Place(kind, name)
                if spec.get(up):
                    tree.parents[place] = Place("cohort", spec[up])
                for group in spec.get("resourceGroups", ()):
                    for flavor in group["flavors"]:
                        for resource in flavor["resources"]:
                            tree.quotas[place, Cell(flavor["name"], resource["name"])] = _quota(resource)
        tree._open_cycles()
        for child, parent in tree.parents.items():
            tree.children.setdefault(parent, []).append(child)
        return tree

    def _open_cycles(self) -> None:
        for start in self.parents:
            passed, place = {start}, start
            while place in self.parents and (place := self.parents[place]) not in passed:
                passed.add(place)
            if place in self.parents:
                self.lost.add(start)
        for place in self.lost:
            del self.parents[place]

    def path(self, place: Place) -> Iterator[Place]:
        """From a node to its root."""
        while True:
            yield place
            if place not in self.parents:
                return
            place = self.parents[place]

    def quota(self, place: Place, cell: Cell) -> int:
        own = self.quotas.get((place, cell))
        lent = sum(self.quota(child, cell) - self.kept(child, cell) for child in self.children.get(place, ()))
        return (own.nominal if own else 0) + lent

    def kept(self, place: Place, cell: Cell) -> int:
        own = self.quotas.get((place, cell))
        if own is None or own.lending is None:
            return 0
        return max(0, self.quota(place, cell) - own.lending)

    def used(self, place: Place, cell: Cell, usage: Usage) -> int:
        if place.kind == "queue":
            return usage.get((place.name, cell), 0)
        return sum(
            max(0, self.used(child, cell, usage) - self.kept(child, cell)) for child in self.children.get(place, ())
        )

    def limit(self, place: Place, cell: Cell) -> int | None:
        """The most that may be used at a node; None where only those above it set a limit."""
        quota = self.quota(place, cell)
        if place not in self.parents:
            return quota
        own = self.quotas.get((place, cell))
        return None if own is None or own.borrowing is None else quota + own.borrowing

    def overrun(self, queue: str, cell: Cell, before: Usage, after: Usage) -> str:
        """Where usage grew although it is above the limit then; empty when nowhere."""
        for place in self.path(Place("queue", queue)):
            limit, used = self.limit(place, cell), self.used(place, cell, after)
            if limit is not None and used > limit and used > self.used(place, cell, before):
                return f"{place.kind} {place.name} uses {used}m of {limit}m {cell.resource} of {cell.flavor}"
        return ""

    def available(self, queue: str, cell: Cell, usage: Usage) -> int:
        """How much more a queue could use now, without preemption."""
        free = 0
        path = list(self.path(Place("queue", queue)))
        for place in reversed(path):
            quota, kept, used = self.quota(place, cell), self.kept(place, cell), self.used(place, cell, usage)
            if place not in self.parents:
                free = quota - used
                continue
            own = self.quotas.get((place, cell))
            if own is not None and own.borrowing is not None:
                free = min(free, quota - kept - max(0, used - kept) + own.borrowing)
            free = max(0, kept - used) + free
        return free

    def groups(self, queue: str) -> Sequence[Tree]:
        """The resource groups of a ClusterQueue."""
        found: Sequence[Tree] = self.specs.get(queue, {}).get("resourceGroups", ())
        return found

    def flavors(self, queue: str) -> set[str]:
        return {flavor["name"] for group in self.groups(queue) for flavor in group["flavors"]}

    def root(self, queue: str) -> Place:
        return list(self.path(Place("queue", queue)))[-1]


def _quota(resource: Tree) -> Quota:
    def read(name: str) -> int | None:
        return milli(resource[name]) if name in resource else None

    return Quota(milli(resource["nominalQuota"]), read("borrowingLimit"), read("lendingLimit"))


def milli(text: str | int) -> int:
    """Whole units, thousandths and billionths are all that these worlds use; anything else is an error of the world."""
    text = str(text)
    if text.endswith("n"):
        return -(-int(text[:-1]) // 1_000_000)
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000
