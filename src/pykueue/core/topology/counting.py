"""Phase one: how many pods, slices and leaders every domain could hold.

A *tally* answers that for one sort of request. It is made from the leaves upwards, a level only when somebody asks for
it, and it is kept: when the same sort of request comes again, only leaves that changed since are looked at, and only
the domains above them are summed anew. Most requests in a queue are of few sorts, and that makes a decision cheap.

Figures per domain:

* `pods`: single pods that fit. Above an inner layer of size m, a child counts in whole multiples of m.
* `slices`: whole slices that fit; nothing below the slice level, where a slice may be split freely.
* `leader`: 1 where the leader fits, and the *led* figures are what is left for workers beside it. Higher up the leader
  goes to the child where it costs least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pykueue.core.topology.capacity import UNBOUNDED, Capacity
from pykueue.core.topology.matching import Match
from pykueue.core.topology.tree import Tree
from pykueue.core.topology.values import PODS, Figure


@dataclass(frozen=True, slots=True)
class Sort:
    """What makes two requests count alike."""

    pod: Figure
    leader: Figure | None
    slice_size: int
    slice_level: int
    # Per level, the multiple in which its domains are filled; 1 where no inner layer governs it.
    multiples: tuple[int, ...]


class Counts:
    """The figures of one level, by domain. Lists that cannot differ are the same list."""

    __slots__ = ("leader", "pods", "pods_led", "slices", "slices_led")

    def __init__(
        self,
        pods: list[int],
        slices: list[int],
        pods_led: list[int] | None = None,
        slices_led: list[int] | None = None,
        leader: list[int] | None = None,
    ) -> None:
        self.pods = pods
        self.slices = slices
        self.pods_led = pods if pods_led is None else pods_led
        self.slices_led = slices if slices_led is None else slices_led
        self.leader = leader

    def copy(self) -> Counts:
        """The same figures in lists of their own; pods and slices no longer share one."""
        pods, slices = self.pods.copy(), self.slices.copy()
        if self.leader is None:
            return Counts(pods, slices)
        return Counts(pods, slices, self.pods_led.copy(), self.slices_led.copy(), self.leader.copy())

    def hosts_leader(self, domain: int) -> bool:
        return self.leader is not None and self.leader[domain] > 0


class Tally:
    """The figures of one sort of request over a tree; see the module's words."""

    __slots__ = ("_allowed", "_levels", "_seen", "scores", "sort", "tree")

    def __init__(self, tree: Tree, sort: Sort, match: Match, within: range | None = None) -> None:
        self.tree = tree
        self.sort = sort
        self._allowed = _allowed(match, within)
        self._levels: list[Counts | None] = [None] * len(tree.levels)
        self._seen = 0
        self.scores = None if match.scores is None else _summed(tree, match.scores)

    def level(self, level: int) -> Counts:
        """The figures of a level, made on first demand."""
        counts = self._levels[level]
        if counts is None:
            children = self.level(level + 1)
            counts = self._levels[level] = _blank(self.sort, level, len(self.tree.paths[level]))
            self._roll_up(level, counts, children, range(len(self.tree.paths[level])))
        return counts

    def count(self, capacity: Capacity) -> None:
        """Look at every leaf."""
        sort, finest = self.sort, self.tree.finest
        pods = _held(capacity, sort.pod, self._allowed, len(self.tree.nodes))
        counts = Counts(pods, _slices_of_leaves(sort, finest, pods))
        if sort.leader is not None:
            counts = Counts(pods, counts.slices, pods.copy(), counts.slices.copy(), [0] * len(pods))
            self._lead(capacity, counts, range(len(pods)))
        self._levels = [None] * finest + [counts]
        self._seen = len(capacity.journal)

    def catch_up(self, capacity: Capacity) -> None:
        """Look at the leaves that changed since the last look."""
        changed = set(capacity.journal[self._seen :])
        if len(changed) > len(self.tree.nodes) // 4:
            self.count(capacity)
            return
        self._seen = len(capacity.journal)
        counts = self.level(self.tree.finest)
        moved: set[int] = set()
        for leaf in sorted(changed):
            pods = _held_at(capacity, self.sort.pod, leaf) if self._may_use(leaf) else 0
            if pods != counts.pods[leaf] or self.sort.leader is not None:
                counts.pods[leaf] = pods
                if counts.slices is not counts.pods:
                    counts.slices[leaf] = pods // self.sort.slice_size if self._is_slice_level(self.tree.finest) else 0
                moved.add(leaf)
        if self.sort.leader is not None:
            self._lead(capacity, counts, sorted(moved))
        for level in range(self.tree.finest - 1, -1, -1):
            above = self._levels[level]
            if above is None or not moved:
                return
            moved = {self.tree.parents[level + 1][domain] for domain in moved}
            self._roll_up(level, above, self.level(level + 1), sorted(moved))

    def made(self) -> tuple[bool, ...]:
        """Per level, whether its figures have been asked for so far."""
        return tuple(counts is not None for counts in self._levels)

    def copy(self) -> Tally:
        """The same figures in lists of its own, every level made."""
        copy = Tally.__new__(Tally)
        copy.tree, copy.sort, copy.scores = self.tree, self.sort, self.scores
        copy._allowed, copy._seen = self._allowed, self._seen
        copy._levels = [self.level(level).copy() for level in range(len(self.tree.levels))]
        return copy

    def scores_at(self, level: int) -> Sequence[int] | None:
        """How much each domain is preferred, where anything is."""
        return None if self.scores is None else self.scores[level]

    def _may_use(self, leaf: int) -> bool:
        return self._allowed is None or leaf in self._allowed

    def _is_slice_level(self, level: int) -> bool:
        return level == self.sort.slice_level

    def _lead(self, capacity: Capacity, counts: Counts, leaves: Sequence[int]) -> None:
        """Which leaves can host the leader, and what it leaves for the workers there."""
        sort = self.sort
        assert sort.leader is not None
        assert counts.leader is not None
        both = dict(sort.leader)
        for leaf in leaves:
            hosts = self._may_use(leaf) and _held_at(capacity, sort.leader, leaf) > 0
            counts.leader[leaf] = int(hosts)
            led = _held_beside(capacity, sort.pod, both, leaf) if hosts else counts.pods[leaf]
            counts.pods_led[leaf] = led
            counts.slices_led[leaf] = led // sort.slice_size if self._is_slice_level(self.tree.finest) else 0

    def _roll_up(self, level: int, counts: Counts, children: Counts, domains: Sequence[int]) -> None:
        """Sum the figures of children; recompute only the given domains."""
        roll_up(self.tree, self.sort, level, counts, children, domains, self.sort.multiples[level + 1])


def roll_up(
    tree: Tree, sort: Sort, level: int, counts: Counts, children: Counts, domains: Sequence[int], multiple: int
) -> None:
    """Sum the figures of children into the given domains of a level, children counting in multiples."""
    starts, size = tree.first_child[level], sort.slice_size
    contribution = children.pods if multiple == 1 else [pods - pods % multiple for pods in children.pods]
    for domain in domains:
        counts.pods[domain] = sum(contribution[starts[domain] : starts[domain + 1]])
    if counts.slices is not counts.pods:
        for domain in domains:
            first, end = starts[domain], starts[domain + 1]
            if level == sort.slice_level:
                counts.slices[domain] = counts.pods[domain] // size
            else:
                counts.slices[domain] = sum(children.slices[first:end]) if level < sort.slice_level else 0
    if sort.leader is None or counts.leader is None:
        return
    for domain in domains:
        hosts = [child for child in range(starts[domain], starts[domain + 1]) if children.hosts_leader(child)]
        counts.leader[domain] = int(bool(hosts))
        if not hosts:
            counts.pods_led[domain] = counts.slices_led[domain] = 0
            continue
        led = children.pods_led
        loss = min(contribution[child] - (led[child] - led[child] % multiple) for child in hosts)
        counts.pods_led[domain] = counts.pods[domain] - loss
        if level == sort.slice_level:
            counts.slices_led[domain] = counts.pods_led[domain] // size
        else:
            lost = min(children.slices[child] - children.slices_led[child] for child in hosts)
            counts.slices_led[domain] = counts.slices[domain] - lost


def tally(tree: Tree, capacity: Capacity, sort: Sort, match: Match, key: object) -> Tally:
    """The up-to-date figures for a sort of request under the terms that `key` stands for."""
    known = capacity.tallies.get((sort, key))
    if known is None:
        known = Tally(tree, sort, match)
        known.count(capacity)
        capacity.remember((sort, key), known)
    else:
        known.catch_up(capacity)
    return known


def limiting(capacity: Capacity, pod: Figure, leaf: int) -> str:
    """The resource of which the leaf has least for this pod; the first by name on ties."""
    asked = sorted([(PODS, 1), *pod])
    return min(asked, key=lambda item: _fitting(capacity, item[0], item[1], leaf))[0]


def _allowed(match: Match, within: range | None) -> frozenset[int] | None:
    if within is None:
        return None if match.leaves is None else frozenset(match.leaves)
    return frozenset(within if match.leaves is None else (leaf for leaf in match.leaves if leaf in within))


def _blank(sort: Sort, level: int, domains: int) -> Counts:
    pods = [0] * domains
    # Without slices every pod is a slice of its own, at every level.
    slices = pods if _pods_are_slices(sort) else [0] * domains
    if sort.leader is None:
        return Counts(pods, slices)
    return Counts(pods, slices, [0] * domains, [0] * domains, [0] * domains)


def _pods_are_slices(sort: Sort) -> bool:
    return sort.slice_size == 1 and sort.slice_level == len(sort.multiples) - 1


def _slices_of_leaves(sort: Sort, finest: int, pods: list[int]) -> list[int]:
    if _pods_are_slices(sort):
        return pods
    if sort.slice_level == finest:
        return [count // sort.slice_size for count in pods]
    return [0] * len(pods)


def _held(capacity: Capacity, pod: Figure, allowed: frozenset[int] | None, leaves: int) -> list[int]:
    """Pods per leaf, the whole column at a time."""
    held: list[int] | None = None
    for resource, amount in ((PODS, 1), *pod):
        if amount == 0:
            continue
        column = capacity.amounts.get(resource)
        if column is None:
            return [0] * leaves
        fitting = column if amount == 1 else [left // amount for left in column]
        held = fitting.copy() if held is None else [a if a < b else b for a, b in zip(held, fitting, strict=True)]
    held = [UNBOUNDED] * leaves if held is None else held
    if allowed is not None:
        return [count if count > 0 and leaf in allowed else 0 for leaf, count in enumerate(held)]
    return [count if count > 0 else 0 for count in held] if held and min(held) < 0 else held


def _held_at(capacity: Capacity, pod: Figure, leaf: int) -> int:
    return max(0, min(_fitting(capacity, resource, amount, leaf) for resource, amount in ((PODS, 1), *pod)))


def _held_beside(capacity: Capacity, pod: Figure, other: dict[str, int], leaf: int) -> int:
    """Pods that fit where one pod of another figure has been taken out."""
    return max(
        0,
        min(
            _fitting(capacity, resource, amount, leaf, other.get(resource, 1 if resource == PODS else 0))
            for resource, amount in ((PODS, 1), *pod)
        ),
    )


def _fitting(capacity: Capacity, resource: str, amount: int, leaf: int, taken: int = 0) -> int:
    if amount == 0:
        return UNBOUNDED
    column = capacity.amounts.get(resource)
    return 0 if column is None else max(0, (column[leaf] - taken) // amount)


def _summed(tree: Tree, leaves: Sequence[int]) -> list[list[int]]:
    """Scores of all levels: the sum over the leaves below."""
    levels = [list(leaves)]
    for starts in reversed(tree.first_child):
        below = levels[0]
        levels.insert(0, [sum(below[starts[d] : starts[d + 1]]) for d in range(len(starts) - 1)])
    return levels
