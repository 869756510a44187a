"""The changes of quota that windows of QuotaSchedules bring to a cohort tree, for its timeline. Pure (rules QS, TL).

Every edge at which the effective quota of the tree differs from that before is a change. Where a schedule has
`approach: EndBefore`, the flavor-resources that it lowers there are drops: Workloads above the new quota must have
released them before.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final

from kubemachinery.meta import Nanoseconds
from pykueue.core.cohort import CohortTree
from pykueue.core.queue import FlavorResource, FlavorResourceNumber, Quota
from pykueue.core.timeline import QuotaChange
from pykueue.state.quota_windows import GivenQuotas, QuotaOwner, ScheduledWindows, WindowEdge, effective
from pykueue.state.structure import Structure

MOST_CHANGES: Final = 256
"""How many changes of one tree are considered; later windows are not ([TL11])."""

_Cell = tuple[QuotaOwner, FlavorResource]


def owners(tree: CohortTree) -> frozenset[QuotaOwner]:
    """The objects that give a tree its quota."""
    return frozenset(QuotaOwner(not node.is_queue, node.name) for node in tree.nodes)


def concerns(schedule: ScheduledWindows, of_tree: frozenset[QuotaOwner]) -> bool:
    """Whether a schedule has a target in a tree."""
    return any(each.owner in of_tree for each in schedule.quotas)


def quota_changes(structure: Structure, tree: CohortTree, now: Nanoseconds) -> list[QuotaChange]:
    """The changes of quota of a tree after an instant, in order; at most `MOST_CHANGES`."""
    of_tree = owners(tree)
    schedules = {each.schedule: each for each in structure.windows.schedules if concerns(each, of_tree)}
    if not schedules:
        return []
    cells = _Cells(structure, tree, schedules, now)
    found: list[QuotaChange] = []
    for edge in structure.windows.edges_with_quotas(now):
        concerned = [(name, window, "begins") for name, window in edge.begun if name in schedules]
        concerned += [(name, window, "ends") for name, window in edge.ended if name in schedules]
        if not concerned:
            continue
        is_change = cells.advance(edge, {name for name, _, _ in concerned})
        drops = cells.drops(concerned)
        if is_change or drops:
            plan = cache(partial(structure.plan_at, tree, edge.given))
            repeats = any(schedules[name].ends_before and schedules[name].repeats for name, _, _ in concerned)
            found.append(QuotaChange(edge.at, plan, drops, repeats))
            if len(found) == MOST_CHANGES:
                break
    return found


class _Cells:
    """The quotas of a tree that schedules name, at one edge after the other."""

    def __init__(
        self, structure: Structure, tree: CohortTree, schedules: dict[str, ScheduledWindows], now: Nanoseconds
    ) -> None:
        of_tree = owners(tree)
        self._tree = tree
        self._ends_before = {name for name, each in schedules.items() if each.ends_before}
        self._bases: dict[_Cell, Quota] = {}
        self._of: dict[str, list[_Cell]] = {name: [] for name in schedules}
        for name, schedule in schedules.items():
            for each in schedule.quotas:
                base = (structure.spec_quotas(each.owner) or {}).get(each.pair) if each.owner in of_tree else None
                if base is not None:  # what the object does not declare has no effect [QS3]
                    self._bases[each.owner, each.pair] = base
                    self._of[name].append((each.owner, each.pair))
        given = structure.windows.given_at(now)
        self._present = {cell: self._quota(cell, given) for cell in self._bases}
        self._before = self._after = self._present

    def _quota(self, cell: _Cell, given: GivenQuotas) -> Quota:
        owner, pair = cell
        return effective(self._bases[cell], given.get(owner, {}).get(pair, ()))

    def advance(self, edge: WindowEdge, names: set[str]) -> bool:
        """Move to an edge of some schedules; whether a quota differs from that before."""
        self._before = self._after
        self._after = {**self._before, **{cell: self._quota(cell, edge.given) for n in names for cell in self._of[n]}}
        return self._after != self._before

    def drops(self, concerned: list[tuple[str, str, str]]) -> dict[FlavorResourceNumber, str]:
        """What is lowered at the edge by schedules with `EndBefore`: below the quota before the edge, or, where a
        window begins, below that of the present."""
        found: dict[FlavorResourceNumber, str] = {}
        for name, window, word in concerned:
            for cell in self._of[name] if name in self._ends_before else ():
                after = self._after[cell]
                is_lowered = _is_lower(after, self._before[cell])
                if is_lowered or (word == "begins" and _is_lower(after, self._present[cell])):
                    number = self._tree.number(*cell[1])
                    found.setdefault(number, f"window {window} of QuotaSchedule {name} {word}")
        return found


def _is_lower(quota: Quota, than: Quota) -> bool:
    return any(one < other for one, other in zip(quota, than, strict=True))
