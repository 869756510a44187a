"""Phase one: how many pods, slices and leaders every domain could hold.

`DomainCounts` has them for one *measure*: what a pod and a leader request, and how pods form slices. They are made
from the leaves upwards, a level only when needed, and are kept: for the next request of the same measure only
leaves that changed since are counted, and only the domains above them are summed again. Most requests in a queue are of
few measures, so most decisions count few leaves.

Counts per domain:

* `pods`: single pods that fit. Above an inner layer of size m, a child counts in whole multiples of m.
* `slices`: whole slices that fit; nothing below the slice level, where a slice may be split freely.
* `leader`: 1 where the leader fits; the *led* counts are what is left for workers beside it. Higher up the leader goes
  to the child where it costs least.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Final

import msgspec

from pykueue.core.topology.capacity import UNBOUNDED, Capacity
from pykueue.core.topology.node_matching import Match
from pykueue.core.topology.tree import DomainTree
from pykueue.core.topology.values import PODS, Figure, NodeTerms

CACHED_COUNTS_MAX: Final = 64
NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class Measure(msgspec.Struct, frozen=True):
    """What two requests must have in common to share their counts."""

    pod: Figure
    leader: Figure | None
    slice_size: int
    slice_level: int
    # Per level, the multiple in which its domains are filled; 1 where no inner layer governs it.
    multiples: tuple[int, ...]

    @property
    def has_leader(self) -> bool:
        """Whether a leader is to be placed beside the workers."""
        return self.leader is not None

    @property
    def pods_are_slices(self) -> bool:
        """Without slices every pod is a slice of its own, at every level."""
        return self.slice_size == 1 and self.slice_level == len(self.multiples) - 1

    def slices_in(self, level: int, pods: int) -> int:
        """Whole slices in so many pods of one domain at the slice level; none below, where slices may be split."""
        return pods // self.slice_size if level == self.slice_level else 0


class Counts:
    """The counts of one level, by domain. Lists that cannot differ are shared; without a leader `leader` is empty."""

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
        self.leader = leader or []

    def copy(self) -> Counts:
        """The same counts in separate lists; pods and slices no longer share one."""
        pods, slices = self.pods.copy(), self.slices.copy()
        if not self.leader:
            return Counts(pods, slices)
        return Counts(pods, slices, self.pods_led.copy(), self.slices_led.copy(), self.leader.copy())

    def hosts_leader(self, domain: int) -> bool:
        return bool(self.leader) and self.leader[domain] > 0


class DomainCounts:
    """The counts of one measure over a tree; see the module docstring."""

    __slots__ = ("_allowed", "_epoch", "_levels", "_seen", "measure", "scores", "tree")

    def __init__(self, tree: DomainTree, measure: Measure, match: Match, within: range | None = None) -> None:
        self.tree = tree
        self.measure = measure
        self._allowed = _allowed(match, within)
        self._levels: list[Counts | None] = [None] * len(tree.levels)
        self._epoch = self._seen = 0
        self.scores = None if match.scores is None else _summed(tree, match.scores)

    def level(self, level: int) -> Counts:
        """The counts of a level, made when first needed."""
        counts = self._levels[level]
        if counts is None:
            children = self.level(level + 1)
            domains = range(len(self.tree.paths[level]))
            counts = self._levels[level] = _blank(self.measure, len(domains))
            roll_up(self.tree, self.measure, level, counts, children, domains)
        return counts

    def count(self, capacity: Capacity) -> None:
        """Count every leaf."""
        measure, finest = self.measure, self.tree.finest
        pods = _held(capacity, measure.pod, self._allowed, len(self.tree.nodes))
        slices = pods if measure.pods_are_slices else [measure.slices_in(finest, count) for count in pods]
        counts = Counts(pods, slices)
        if measure.leader is not None:
            counts = Counts(pods, slices, pods.copy(), slices.copy(), [0] * len(pods))
            self._lead(capacity, measure.leader, counts, range(len(pods)))
        self._levels = [None] * finest + [counts]
        self._epoch, self._seen = capacity.epoch, len(capacity.journal)

    def catch_up(self, capacity: Capacity) -> None:
        """Count the leaves that changed since the last count, and sum the domains above them."""
        changed = set(capacity.journal[self._seen :])
        if self._epoch != capacity.epoch or len(changed) > len(self.tree.nodes) // 4:
            self.count(capacity)
            return
        self._seen = len(capacity.journal)
        counts = self.level(self.tree.finest)
        moved: set[int] = set()
        for leaf in sorted(changed):
            pods = _held_at(capacity, self.measure.pod, leaf) if self._may_use(leaf) else 0
            if pods != counts.pods[leaf] or self.measure.leader is not None:
                counts.pods[leaf] = pods
                if counts.slices is not counts.pods:
                    counts.slices[leaf] = self.measure.slices_in(self.tree.finest, pods)
                moved.add(leaf)
        if self.measure.leader is not None:
            self._lead(capacity, self.measure.leader, counts, sorted(moved))
        for level in range(self.tree.finest - 1, -1, -1):
            above = self._levels[level]
            if above is None or not moved:
                return
            moved = {self.tree.parents[level + 1][domain] for domain in moved}
            roll_up(self.tree, self.measure, level, above, self.level(level + 1), sorted(moved))

    def copy(self) -> DomainCounts:
        """The same counts in separate lists, with every level made."""
        twin = copy(self)
        twin._levels = [self.level(level).copy() for level in range(len(self.tree.levels))]
        return twin

    def scores_at(self, level: int) -> Sequence[int] | None:
        """The affinity score of each domain; None without preferred affinity."""
        return None if self.scores is None else self.scores[level]

    def _may_use(self, leaf: int) -> bool:
        return self._allowed is None or leaf in self._allowed

    def _lead(self, capacity: Capacity, leader: Figure, counts: Counts, leaves: Sequence[int]) -> None:
        """Count which leaves can host the leader, and what it leaves for the workers there."""
        taken = {PODS: 1, **dict(leader)}
        for leaf in leaves:
            hosts = self._may_use(leaf) and _held_at(capacity, leader, leaf) > 0
            counts.leader[leaf] = int(hosts)
            led = _held_at(capacity, self.measure.pod, leaf, taken) if hosts else counts.pods[leaf]
            counts.pods_led[leaf] = led
            counts.slices_led[leaf] = self.measure.slices_in(self.tree.finest, led)


def roll_up(
    tree: DomainTree, measure: Measure, level: int, counts: Counts, children: Counts, domains: Sequence[int]
) -> None:
    """Sum the counts of children into the given domains of a level."""
    starts, multiple = tree.first_child[level], measure.multiples[level + 1]
    for domain in domains:
        first, end = starts[domain], starts[domain + 1]
        pods = children.pods[first:end]
        counts.pods[domain] = sum(pods) if multiple == 1 else sum(count - count % multiple for count in pods)
        if counts.slices is not counts.pods:
            if level == measure.slice_level:
                counts.slices[domain] = counts.pods[domain] // measure.slice_size
            else:
                counts.slices[domain] = sum(children.slices[first:end]) if level < measure.slice_level else 0
        if counts.leader:
            hosts = [child for child in range(first, end) if children.hosts_leader(child)]
            counts.leader[domain] = int(bool(hosts))
            counts.pods_led[domain], counts.slices_led[domain] = _led(measure, level, counts, children, domain, hosts)


def _led(
    measure: Measure, level: int, counts: Counts, children: Counts, domain: int, hosts: Sequence[int]
) -> tuple[int, int]:
    """Pods and slices that are left when the leader goes to the child where it costs least."""
    if not hosts:
        return 0, 0
    multiple = measure.multiples[level + 1]
    pods, led = children.pods, children.pods_led
    pods_left = counts.pods[domain] - min(
        (pods[child] - pods[child] % multiple) - (led[child] - led[child] % multiple) for child in hosts
    )
    if level == measure.slice_level:
        return pods_left, pods_left // measure.slice_size
    return pods_left, counts.slices[domain] - min(children.slices[c] - children.slices_led[c] for c in hosts)


class DomainCountsCache:
    """The counts cached for one capacity, of the measures that were used last."""

    __slots__ = ("capacity", "kept", "tree")

    def __init__(self, tree: DomainTree, capacity: Capacity) -> None:
        self.tree = tree
        self.capacity = capacity
        self.kept: OrderedDict[tuple[Measure, NodeTerms], DomainCounts] = OrderedDict()

    def of(self, measure: Measure, terms: NodeTerms, match: Match) -> DomainCounts:
        """The current counts of a measure on the nodes that match the terms."""
        counted = self.kept.get((measure, terms))
        if counted is None:
            counted = self.kept[measure, terms] = DomainCounts(self.tree, measure, match)
            counted.count(self.capacity)
            if len(self.kept) > CACHED_COUNTS_MAX:
                self.kept.popitem(last=False)
        else:
            self.kept.move_to_end((measure, terms))
            counted.catch_up(self.capacity)
        return counted

    def move_to(self, tree: DomainTree) -> None:
        """Go on with a tree of the same domains, whose nodes offer other amounts."""
        self.tree = tree
        for counted in self.kept.values():
            counted.tree = tree

    def within(self, leaves: range, measure: Measure, match: Match) -> DomainCounts:
        """The counts of some leaves only, as if there were no others; not kept."""
        counted = DomainCounts(self.tree, measure, match, leaves)
        counted.count(self.capacity)
        return counted


def limiting(capacity: Capacity, pod: Figure, leaf: int) -> str:
    """The resource of which the leaf has least for this pod; the first by name on ties."""
    requested = sorted([(PODS, 1), *pod])
    return min(requested, key=lambda item: _fitting(capacity, item[0], item[1], leaf))[0]


def _allowed(match: Match, within: range | None) -> frozenset[int] | None:
    if within is None:
        return None if match.leaves is None else frozenset(match.leaves)
    return frozenset(within if match.leaves is None else (leaf for leaf in match.leaves if leaf in within))


def _blank(measure: Measure, domains: int) -> Counts:
    pods = [0] * domains
    slices = pods if measure.pods_are_slices else [0] * domains
    if measure.leader is None:
        return Counts(pods, slices)
    return Counts(pods, slices, [0] * domains, [0] * domains, [0] * domains)


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


def _held_at(capacity: Capacity, pod: Figure, leaf: int, taken: Mapping[str, int] = NOTHING) -> int:
    """Pods that fit on one leaf after the amounts `taken` are subtracted."""
    return min(_fitting(capacity, resource, amount, leaf, taken) for resource, amount in ((PODS, 1), *pod))


def _fitting(capacity: Capacity, resource: str, amount: int, leaf: int, taken: Mapping[str, int] = NOTHING) -> int:
    """Pods that one resource of a leaf allows, never below zero."""
    if amount == 0:
        return UNBOUNDED
    column = capacity.amounts.get(resource)
    return 0 if column is None else max(0, (column[leaf] - taken.get(resource, 0)) // amount)


def _summed(tree: DomainTree, leaves: Sequence[int]) -> list[list[int]]:
    """Scores of all levels: the sum over the leaves below."""
    levels = [list(leaves)]
    for starts in reversed(tree.first_child):
        below = levels[0]
        levels.insert(0, [sum(below[starts[d] : starts[d + 1]]) for d in range(len(starts) - 1)])
    return levels
