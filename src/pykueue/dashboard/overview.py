"""Cohorts and queues with their quota, usage, borrowed and lent amounts.

For every pair of flavor and resource:

    nominal     the nominal quota of a queue; of a cohort, its own and that of its subtree
    used        the usage of reservations
    borrowed    usage above the nominal quota
    lent        unused nominal quota that is not available now, because others in the tree use it
    limit       the maximum usage if everything else were idle; absent without a limit

The overview shows a cohort by its sums and its busiest queues; the other queues are on the page of queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kubemachinery import conditions
from pykueue.api import kueue
from pykueue.api.conditions import ActiveCondition
from pykueue.core import amounts, quota
from pykueue.core.amounts import UNLIMITED
from pykueue.core.cohort import CohortTree as CohortTree
from pykueue.core.cohort import QuotaNode
from pykueue.core.queue import FlavorResource
from pykueue.dashboard.workload_table import DisplayState, WorkloadTable
from pykueue.state.world import World

Tree = dict[str, Any]

# The number of queues per cohort in the overview, and the maximum number of its lines.
QUEUES_SHOWN: Final = 8
LINES_MAX: Final = 400
# The filter value for queues without a cohort; not a valid name of a cohort.
NO_COHORT: Final = "-"
_NANO: Final = 1_000_000_000
_SHORT: Final = 6
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


class QuotaFigures(msgspec.Struct):
    """The figures of one pair of flavor and resource."""

    nominal: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    limit: int = 0

    def include(self, other: QuotaFigures) -> None:
        """Add a member; amounts lent between members do not matter for the sum."""
        self.nominal = amounts.add(self.nominal, other.nominal)
        self.used = amounts.add(self.used, other.used)

    def tree(self, pair: FlavorResource) -> Tree:
        figures = {name: getattr(self, name) for name in ("nominal", "used", "borrowed", "lent", "limit")}
        return {
            "flavor": pair.flavor,
            "resource": pair.resource,
            **{name: _figure(pair.resource, amount) for name, amount in figures.items()},
            "text": {name: _short(pair.resource, amount) for name, amount in figures.items()},
        }


def _figure(resource: str, amount: int) -> float | None:
    """Return the amount in the unit of the resource, for drawing; None if unlimited."""
    return None if amount == UNLIMITED else amounts.as_quantity(resource, amount).rounded(-9) / _NANO


def _short(resource: str, amount: int) -> str:
    """Return a short text of the amount: bytes to three digits."""
    exact = amounts.text(resource, amount)
    if not exact.endswith("i") or len(exact) <= _SHORT:
        return exact
    size, units = float(amount), iter(_BINARY)
    unit = next(units)
    while size >= 1024 and unit != _BINARY[-1]:
        size, unit = size / 1024, next(units)
    return f"{size:.3g}{unit}"


class OverviewEntry(msgspec.Struct):
    """A cohort or a queue, its figures and its counts."""

    name: str
    is_queue: bool
    parent: str
    pending: int
    admitted: int
    reserved: int  # Workloads with quota, admitted or not
    figures: dict[FlavorResource, QuotaFigures]
    problem: str = ""  # why a queue is inactive

    @property
    def rank(self) -> tuple[int, str]:
        """The busiest first."""
        return -self.pending, self.name

    def tree(self) -> Tree:
        return {
            "name": self.name,
            "kind": "ClusterQueue" if self.is_queue else "Cohort",
            "parent": self.parent,
            "pending": self.pending,
            "admitted": self.admitted,
            "reserved": self.reserved,
            "problem": self.problem,
            "figures": [found.tree(pair) for pair, found in sorted(self.figures.items())],
        }


class Overview:
    """All cohorts and queues at one moment."""

    def __init__(self, world: World, cluster_queues: Iterable[kueue.ClusterQueue], counts: WorkloadTable) -> None:
        self.queues: dict[str, OverviewEntry] = {}
        self.cohorts: dict[str, OverviewEntry] = {}
        self._cohorts_in: dict[str, list[str]] = {}
        self._queues_in: dict[str, list[str]] = {}
        trees: dict[int, CohortTree] = {}
        for queue in cluster_queues:
            node = world.queue_node(queue.metadata.name)
            entry = _queue(queue, node, counts)
            self.queues[entry.name] = entry
            self._queues_in.setdefault(entry.parent, []).append(entry.name)
            if node is not None:
                trees[id(node.tree)] = node.tree
        cohorts = [node for tree in trees.values() for node in tree.nodes if not node.is_queue]
        seen = {node.name for node in cohorts}
        # Cohorts without a queue in their subtree.
        alone = (world.cohort_node(name) for name in world.cohorts if name not in seen)
        cohorts += filter(None, alone)
        offered = _offered(trees.values())
        # The deepest first, so that sums propagate to the root.
        for node in sorted(cohorts, key=lambda node: (-len(node.ancestors), node.name)):
            parent = _name(node.parent)
            self._cohorts_in.setdefault(parent, []).append(node.name)
            self.cohorts[node.name] = self._sum(node, parent, offered.get(node, {}))

    def _sum(self, node: QuotaNode, parent: str, offered: Mapping[int, int]) -> OverviewEntry:
        whole = OverviewEntry(node.name, False, parent, 0, 0, 0, {})
        for part in self._parts(node.name):
            whole.pending += part.pending
            whole.admitted += part.admitted
            whole.reserved += part.reserved
            for pair, found in part.figures.items():
                whole.figures.setdefault(pair, QuotaFigures()).include(found)
        for number in node.known:
            total = whole.figures.setdefault(node.tree.pairs[number], QuotaFigures())
            total.nominal = amounts.add(total.nominal, amounts.subtract(node.subtree[number], offered.get(number, 0)))
            total.borrowed = _above(total.used, total.nominal)
            total.lent = _lent(node, number)
            total.limit = amounts.add(node.potential[number], amounts.subtract(total.nominal, node.subtree[number]))
        return whole

    def _parts(self, cohort: str) -> Iterator[OverviewEntry]:
        yield from (self.cohorts[name] for name in self._cohorts_in.get(cohort, ()))
        yield from (self.queues[name] for name in self._queues_in.get(cohort, ()))

    # --- Documents ----------------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        """Return the cohort trees, each cohort with its busiest queues and the number of all its queues."""
        lines_left = LINES_MAX
        left_out = 0

        def shown(name: str) -> Iterator[Tree]:
            nonlocal lines_left, left_out
            queues = sorted((self.queues[each] for each in self._queues_in.get(name, ())), key=lambda found: found.rank)
            for found in sorted((self.cohorts[each] for each in self._cohorts_in.get(name, ())), key=_by_name):
                if lines_left <= 0:
                    left_out += 1
                    continue
                lines_left -= 1
                yield {**found.tree(), "members": list(shown(found.name)), "queues": self._count(found.name)}
            for queue in queues[: min(QUEUES_SHOWN, max(lines_left, 0))]:
                lines_left -= 1
                yield queue.tree()

        return {"members": list(shown("")), "queues": self._count(""), "cohortsLeftOut": left_out}

    def _count(self, cohort: str) -> int:
        return len(self._queues_in.get(cohort, ()))

    def page(self, text: str, cohort: str, sort: str, *, descending: bool) -> list[OverviewEntry]:
        """Return the queues whose name or cohort contains every word, sorted; of the subtree of one cohort, or all."""
        words = text.lower().split()
        found = [
            queue
            for queue in self.queues.values()
            if (not cohort or self._is_in(queue, cohort))
            and all(word in f"{queue.name} {queue.parent}".lower() for word in words)
        ]
        found.sort(key=_by_name)
        found.sort(key=QUEUE_SORTS[sort], reverse=descending)
        return found

    def _is_in(self, queue: OverviewEntry, cohort: str) -> bool:
        if cohort == NO_COHORT:
            return not queue.parent
        return queue.parent == cohort or any(above.parent == cohort for above in self._above(queue))

    def queue(self, name: str) -> Tree | None:
        """Return one queue with its cohorts, nearest first."""
        found = self.queues.get(name)
        if found is None:
            return None
        return {**found.tree(), "path": [above.name for above in self._above(found)]}

    def _above(self, entry: OverviewEntry) -> Iterator[OverviewEntry]:
        while (above := self.cohorts.get(entry.parent)) is not None:
            yield above
            entry = above

    def flavor(self, name: str) -> Tree:
        """Return the queues that have quota of a flavor, with its usage."""
        offered = [
            {"queue": queue.name, "figures": [found.tree(pair) for pair, found in sorted(figures.items())]}
            for queue in sorted(self.queues.values(), key=_by_name)
            if (figures := {pair: found for pair, found in queue.figures.items() if pair.flavor == name})
        ]
        return {"name": name, "queues": offered[:LINES_MAX], "total": len(offered)}


def _by_name(entry: OverviewEntry) -> str:
    return entry.name


def _fullness(entry: OverviewEntry) -> float:
    """Return the highest share of nominal quota in use, over all resources."""
    return max((_share(found) for found in entry.figures.values()), default=0.0)


def _share(found: QuotaFigures) -> float:
    if found.nominal == UNLIMITED or not found.used:
        return 0.0
    return found.used / found.nominal if found.nominal else float("inf")


QUEUE_SORTS: Final[Mapping[str, Callable[[OverviewEntry], Any]]] = {
    "name": _by_name,
    "cohort": lambda entry: entry.parent,
    "pending": lambda entry: entry.pending,
    "admitted": lambda entry: entry.admitted,
    "used": _fullness,
}


# --- One node ---------------------------------------------------------------------------------------------------------


def _queue(queue: kueue.ClusterQueue, node: QuotaNode | None, counts: WorkloadTable) -> OverviewEntry:
    name = queue.metadata.name
    admitted, reserved = (counts.count(name, state) for state in (DisplayState.ADMITTED, DisplayState.RESERVED))
    return OverviewEntry(
        name,
        True,
        # A queue in a cohort cycle is in no tree.
        _name(node.parent) if node is not None else queue.spec.cohort_name,
        counts.count(name, DisplayState.PENDING),
        admitted,
        admitted + reserved + counts.count(name, DisplayState.EVICTED),
        {node.tree.pairs[number]: _figures(node, number) for number in _concerned(node)} if node is not None else {},
        _problem(queue),
    )


def _concerned(node: QuotaNode) -> Iterator[int]:
    """Yield the flavor resources that a queue has quota for, and those that it uses without quota."""
    known = set(node.known)
    return (number for number, used in enumerate(node.usage) if number in known or used)


def _figures(node: QuotaNode, number: int) -> QuotaFigures:
    nominal, used = node.subtree[number], node.usage[number]
    return QuotaFigures(nominal, used, _above(used, nominal), _lent(node, number), node.potential[number])


def _offered(trees: Iterable[CohortTree]) -> dict[QuotaNode, dict[int, int]]:
    """Return what the members of each cohort lend to it; the rest of its subtree quota is its own."""
    found: dict[QuotaNode, dict[int, int]] = {}
    for member in (node for tree in trees for node in tree.nodes):
        if member.parent is not None:
            above = found.setdefault(member.parent, {})
            for number in member.known:
                lends = amounts.subtract(member.subtree[number], member.guaranteed[number])
                above[number] = amounts.add(above.get(number, 0), lends)
    return found


def _lent(node: QuotaNode, number: int) -> int:
    unused = amounts.subtract(node.subtree[number], node.usage[number])
    return max(0, amounts.subtract(unused, quota.available(node, number))) if unused > 0 else 0


def _above(used: int, nominal: int) -> int:
    return max(0, amounts.subtract(used, nominal))


def _name(node: QuotaNode | None) -> str:
    return node.name if node is not None else ""


def _problem(queue: kueue.ClusterQueue) -> str:
    found = conditions.find(queue.status.conditions, ActiveCondition.ACTIVE)
    return (
        (found.message or found.reason)
        if found is not None and found.status == conditions.ConditionStatus.FALSE
        else ""
    )
