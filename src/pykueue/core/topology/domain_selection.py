"""Phase two, first half: the domains to start from.

One domain that holds everything is best, and the tightest such domain is chosen, so that large gaps stay free for large
requests. Where there is none, a *preferred* request tries one level higher; at the top level, and for unconstrained
requests at once, several domains are used: with best fit those with most capacity first, otherwise those with least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from pykueue.core.topology.domain_counts import Counts, DomainCounts
from pykueue.core.topology.values import TopologyRequestMode

Figures: TypeAlias = Sequence[int] | Mapping[int, int]
"""Units that a domain holds, by domain."""


class DomainCapacity(msgspec.Struct, frozen=True):
    """What domains of one level hold, in the units that are distributed.

    As long as `leader` is not empty the leader is still to be placed, and the counts beside it (`held_led`) apply.
    """

    held: Figures
    held_led: Figures
    leader: Sequence[int]
    scores: Sequence[int] | None

    @property
    def figures(self) -> Figures:
        return self.held_led if self.leader else self.held

    def hosts_leader(self, domain: int) -> bool:
        """Whether the domain can host the leader; true for every domain when there is none to place."""
        return not self.leader or self.leader[domain] > 0

    def holds(self, domain: int, need: int) -> bool:
        return self.figures[domain] >= need and self.hosts_leader(domain)


class SliceRequest(msgspec.Struct, frozen=True):
    """What is to be placed, in whole slices, and the strategy."""

    slices: int
    mode: TopologyRequestMode
    best_fit: bool


class StartDomains(msgspec.Struct, frozen=True):
    """The level at which everything fits, and the domains to take, in the order in which they are filled."""

    level: int
    domains: list[int]


class Shortage(msgspec.Struct, frozen=True):
    """The level at which the search ended, and how many slices would have fitted there."""

    level: int
    fitting: int


def choose(counted: DomainCounts, level: int, request: SliceRequest) -> StartDomains | Shortage:
    """The start domains of a request, or how many slices would fit."""
    while True:
        counts, scores = counted.level(level), counted.scores_at(level)
        one = _one(counts, scores, request)
        if one is not None:
            return StartDomains(level, [one])
        if request.mode is TopologyRequestMode.REQUIRED:
            largest = min(range(len(counts.pods)), key=_capacity_key(counts, scores, best_fit=True, led=True))
            return Shortage(level, counts.slices[largest])
        if request.mode is TopologyRequestMode.UNCONSTRAINED or level == 0:
            return _several(counts, scores, level, request)
        level -= 1  # preferred: pods spread over a coarser domain are better than pods spread over several


def slices_of(counts: Counts, scores: Sequence[int] | None) -> DomainCapacity:
    """Capacity counted in whole slices."""
    return DomainCapacity(counts.slices, counts.slices_led, counts.leader, scores)


def by_capacity(
    domains: Iterable[int], counts: Counts, scores: Sequence[int] | None, *, best_fit: bool, led: bool = False
) -> list[int]:
    """Domains in the order in which they are filled; `led` puts those that can host the leader first."""
    if scores is None and counts.slices is counts.pods and not (led and counts.leader):
        # Single pods without preferences: one figure decides, and sorting is stable in the path.
        return sorted(sorted(domains), key=counts.pods.__getitem__, reverse=best_fit)
    return sorted(domains, key=_capacity_key(counts, scores, best_fit=best_fit, led=led))


def _capacity_key(
    counts: Counts, scores: Sequence[int] | None, *, best_fit: bool, led: bool
) -> Callable[[int], tuple[int, ...]]:
    """The sort key of domains. On equal slices the one with fewer pods left comes first, then the path decides."""
    slices, pods = (counts.slices_led, counts.pods_led) if led else (counts.slices, counts.pods)
    leader = counts.leader if led else []
    sign = -1 if best_fit else 1
    return lambda d: (
        -leader[d] if leader else 0,
        -scores[d] if scores else 0,
        sign * slices[d],
        pods[d],
        d,
    )


def tightest(order: Sequence[int], capacity: DomainCapacity, need: int) -> int:
    """The domain with the least capacity that still covers the need, the first listed on ties; the first if none does.

    Affinity scores come before tightness: only domains with the score of the first one are considered.
    """
    best, figures, scores = order[0], capacity.figures, capacity.scores
    least: int | None = None
    for domain in order:
        if scores is not None and scores[domain] != scores[order[0]]:
            break
        if capacity.holds(domain, need) and (least is None or figures[domain] < least):
            best, least = domain, figures[domain]
    return best


def leader_first(order: list[int], capacity: DomainCapacity, need: int) -> list[int]:
    """Move to the front the first domain that can host the leader and still leaves enough capacity for all workers."""
    if not capacity.leader or len(order) < 2:
        return order
    spare = sum(capacity.held[domain] for domain in order) - need
    for position, domain in enumerate(order):
        if capacity.leader[domain] and capacity.held[domain] - capacity.held_led[domain] <= spare:
            return [domain, *order[:position], *order[position + 1 :]]
    return order


def _one(counts: Counts, scores: Sequence[int] | None, request: SliceRequest) -> int | None:
    """The tightest single domain that holds everything; None if there is none."""
    if scores is not None:
        return _one_preferred(counts, scores, request)
    slices, pods = counts.slices_led, counts.pods_led
    if slices is pods:
        held = min((figure for figure in slices if figure >= request.slices), default=None)
        return None if held is None else slices.index(held)
    capacity = slices_of(counts, scores)
    fitting = (domain for domain in range(len(slices)) if capacity.holds(domain, request.slices))
    return min(fitting, key=lambda d: (slices[d], pods[d], d), default=None)


def _one_preferred(counts: Counts, scores: Sequence[int], request: SliceRequest) -> int | None:
    """As `_one`, where the affinity score comes first: a domain with a lower score is used alone only if no other way
    is left."""
    order = by_capacity(range(len(counts.pods)), counts, scores, best_fit=request.best_fit, led=True)
    capacity = slices_of(counts, scores)
    for position, domain in enumerate(order):
        if capacity.holds(domain, request.slices):
            return tightest(order[position:], capacity, request.slices) if request.best_fit else domain
        if request.best_fit and request.mode is not TopologyRequestMode.REQUIRED:
            return None  # the domain with the best score is too small: try a higher level, or several domains
    return None


def _several(
    counts: Counts, scores: Sequence[int] | None, level: int, request: SliceRequest
) -> StartDomains | Shortage:
    """Domains, one after the other, until everything is placed; that of the leader comes first."""
    capacity = slices_of(counts, scores)
    chosen: list[int] = []
    left = request.slices
    if capacity.leader:
        order = by_capacity(range(len(counts.pods)), counts, scores, best_fit=request.best_fit, led=True)
        first, *rest = leader_first(order, capacity, left)
        if not capacity.hosts_leader(first):
            return Shortage(level, 0)
        if request.best_fit and capacity.holds(first, left):
            first = tightest([first, *rest], capacity, left)
        chosen.append(first)
        left -= counts.slices_led[first]
        capacity = replace(capacity, leader=())
    else:
        rest = [domain for domain, held in enumerate(counts.slices) if held]
    rest = by_capacity(rest, counts, scores, best_fit=request.best_fit) if left > 0 else []
    for position, domain in enumerate(rest):
        if left <= 0:
            break
        if request.best_fit and capacity.holds(domain, left):
            domain = tightest(rest[position:], capacity, left)
        chosen.append(domain)
        left -= counts.slices[domain]
    return Shortage(level, request.slices - left) if left > 0 else StartDomains(level, chosen)
