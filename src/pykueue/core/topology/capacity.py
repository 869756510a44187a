"""The free capacity of every leaf per resource, as flat lists that change by deltas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pykueue.core.topology.values import PODS, Figure

UNBOUNDED: Final = 2**31 - 1
"""The number of pods that fit where nothing limits them."""


class Capacity:
    """One list per resource, indexed by leaf, and a journal of the leaves that changed.

    With the journal, counts made earlier are updated by counting only the leaves that changed since (see
    `domain_counts`); when it is too long it is dropped and a new epoch begins. A resource that no node offers has no
    list.
    """

    __slots__ = ("amounts", "epoch", "journal", "journal_max")

    def __init__(self, amounts: dict[str, list[int]], leaves: int) -> None:
        self.amounts = amounts
        self.epoch = 0
        self.journal: list[int] = []
        self.journal_max = 4 * leaves + 64

    def copy(self, leaves: int) -> Capacity:
        return Capacity({resource: column.copy() for resource, column in self.amounts.items()}, leaves)

    def insert_leaf(self, leaf: int) -> None:
        """Add a leaf that has nothing yet; the leaves from there on are renumbered."""
        for column in self.amounts.values():
            column.insert(leaf, 0)
        self._renumber(1)

    def remove_leaf(self, leaf: int) -> None:
        """Remove a leaf; the leaves behind it are renumbered."""
        for column in self.amounts.values():
            del column[leaf]
        self._renumber(-1)

    def _renumber(self, more: int) -> None:
        self.journal.clear()
        self.epoch += 1
        self.journal_max += 4 * more

    def add(self, leaf: int, amounts: Iterable[tuple[str, int]]) -> None:
        """Add the given amounts, which may be negative, to what a leaf has free."""
        columns = self.amounts
        for resource, amount in amounts:
            column = columns.get(resource)
            if column is not None:
                column[leaf] += amount
        self.journal.append(leaf)
        if len(self.journal) > self.journal_max:
            self.journal.clear()
            self.epoch += 1

    def add_pods(self, leaf: int, pod: Figure, count: int) -> None:
        """Release `count` pods of this figure (a negative count uses them), each with its one `pods`."""
        self.add(leaf, [(PODS, count), *((resource, amount * count) for resource, amount in pod)])

    def pods_held(self, leaf: int, pod: Figure) -> int:
        """How many pods of the figure fit on the leaf, `pods` not counted; of a figure without requests none."""
        columns = self.amounts
        held: int | None = None
        for resource, amount in pod:
            column = columns.get(resource)
            fitting = UNBOUNDED if amount == 0 else max(0, column[leaf] // amount if column else 0)
            held = fitting if held is None else min(held, fitting)
        return held or 0


def columns(per_leaf: Iterable[Iterable[Mapping[str, int]]]) -> dict[str, list[int]]:
    """The lists of a capacity: per leaf, the sum over its nodes."""
    leaves = [tuple(nodes) for nodes in per_leaf]
    amounts: dict[str, list[int]] = {}
    for leaf, nodes in enumerate(leaves):
        for allocatable in nodes:
            for resource, amount in allocatable.items():
                column = amounts.get(resource)
                if column is None:
                    column = amounts[resource] = [0] * len(leaves)
                column[leaf] += amount
    return amounts
