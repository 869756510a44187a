"""Which reservations have to go because a window lowered a quota below the usage [QS7]. Pure.

The answer is computed on trees of their own, with the quotas of an instant, so that it can be asked for a window that
is still to come: the same answer announces an eviction and carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubemachinery.meta import Nanoseconds
from pykueue.core import quota
from pykueue.core.cohort import CohortTree, QuotaNode, TreePlan
from pykueue.core.queue import FlavorResource, FlavorResourceNumber
from pykueue.core.quota import UndoLog
from pykueue.core.workload import Reservation
from pykueue.state.quota_windows import QuotaOwner, ScheduledWindows, WindowInForce
from pykueue.state.structure import Structure


class Withdrawal(NamedTuple):
    """A reservation that has to go, and the window that takes its quota."""

    workload: str
    cluster_queue: str
    window: WindowInForce
    pair: FlavorResource


def withdrawals(structure: Structure, at: Nanoseconds) -> list[Withdrawal]:
    """The reservations that have to go for the windows in force at an instant; as few as needed."""
    evicting = list(structure.windows.evicting(at))
    if not evicting:
        return []
    forest = structure.forest_at(at)
    found: list[Withdrawal] = []
    for plan in forest.trees:
        concerned = [(window, each) for window, each in evicting if _concerns(plan, each)]
        if concerned:
            found += _TreeWithdrawal(plan, structure).run(concerned)
    return found


def _concerns(plan: TreePlan, schedule: ScheduledWindows) -> bool:
    owners = {QuotaOwner(False, spec.name) for spec in plan.members()} | {
        QuotaOwner(True, name) for name in plan.cohorts
    }
    return any(each.owner in owners for each in schedule.quotas)


class _TreeWithdrawal:
    """One tree at an instant, with the usage of every reservation that is not being evicted."""

    def __init__(self, plan: TreePlan, structure: Structure) -> None:
        self._tree = CohortTree.build(plan)
        self._log: UndoLog = []
        self._held: list[tuple[Reservation, QuotaNode, tuple[tuple[FlavorResourceNumber, int], ...]]] = []
        for spec in plan.members():
            node = self._tree.queues[spec.name]
            for held in structure.held(spec.name):
                if not held.evicted:
                    usage = tuple((self._tree.number(*pair), amount) for pair, amount in held.usage)
                    quota.add_all(node, usage, self._log)
                    self._held.append((held, node, usage))
        # Of two candidates the one with the lower priority goes, then the one that reserved later, then by UID.
        self._held.sort(key=lambda each: (each[0].priority, -(each[0].reserved_at or 0), each[0].uid))

    def run(self, concerned: list[tuple[WindowInForce, ScheduledWindows]]) -> Iterator[Withdrawal]:
        pairs: dict[FlavorResource, WindowInForce] = {}
        for window, schedule in concerned:
            for each in schedule.quotas:
                pairs.setdefault(each.pair, window)
        numbers = {self._tree.number(*pair): pair for pair in sorted(pairs)}
        chosen: list[tuple[int, FlavorResourceNumber]] = []
        gone: set[int] = set()
        while (next_one := self._next(numbers, gone)) is not None:
            position, _ = next_one
            gone.add(position)
            chosen.append(next_one)
            _, node, usage = self._held[position]
            quota.remove_all(node, usage, self._log)
        # As few as needed: one that was chosen early may fit again without the later ones.
        for position, number in reversed(chosen):
            _, node, usage = self._held[position]
            mark = len(self._log)
            quota.add_all(node, usage, self._log)
            if self._in_debt(numbers):
                quota.undo(self._log, mark)
                held, pair = self._held[position][0], numbers[number]
                yield Withdrawal(held.key, held.cluster_queue, pairs[pair], pair)

    def _next(
        self, numbers: dict[FlavorResourceNumber, FlavorResource], gone: set[int]
    ) -> tuple[int, FlavorResourceNumber] | None:
        """The next reservation to go: in a ClusterQueue in debt, first where it borrows."""
        first: tuple[int, FlavorResourceNumber] | None = None
        for position, (_, node, usage) in enumerate(self._held):
            if position in gone:
                continue
            for number, amount in usage:
                if amount and number in numbers and quota.balance(node, number) < 0:
                    if quota.borrows_with(node, number, 0):
                        return position, number
                    first = first or (position, number)
        return first

    def _in_debt(self, numbers: dict[FlavorResourceNumber, FlavorResource]) -> bool:
        nodes = self._tree.queues.values()
        return any(node.usage[number] and quota.balance(node, number) < 0 for node in nodes for number in numbers)
