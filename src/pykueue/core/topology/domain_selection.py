"""Phase two, first half: the domains to start from.

One domain that holds everything is best, and the tightest such domain wins, so that large gaps stay for large requests.
Where there is none, a *preferred* request looks one level higher; at the top, and for unconstrained requests at once,
several domains are taken: with best fit those with most room first, with least free capacity those with least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pykueue.core.topology.domain_counts import Counts, Tally
from pykueue.core.topology.values import TopologyRequestMode

Figures: TypeAlias = Sequence[int] | Mapping[int, int]
"""Units that a domain holds, by domain."""


@dataclass(frozen=True, slots=True)
class DomainCapacity:
    """What domains of one level hold, in the units that are handed out.

    As long as `leader` is not empty the leader is still to be placed, and the figures beside it are those that count.
    """

    held: Figures
    held_led: Figures
    leader: Sequence[int]
    scores: Sequence[int] | None

    @property
    def figures(self) -> Figures:
        return self.held_led if self.leader else self.held

    def hosts_leader(self, domain: int) -> bool:
        """Whether the leader can go there; true of every domain when there is none to place."""
        return not self.leader or self.leader[domain] > 0

    def holds(self, domain: int, need: int) -> bool:
        return self.figures[domain] >= need and self.hosts_leader(domain)


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """What is to be placed, in whole slices, and how."""

    slices: int
    mode: TopologyRequestMode
    best_fit: bool


@dataclass(frozen=True, slots=True)
class StartDomains:
    """The level at which everything fits, and the domains to take, in the order in which they are filled."""

    level: int
    domains: list[int]


@dataclass(frozen=True, slots=True)
class Shortage:
    """The level at which the search ended, and how many slices would have fitted there."""

    level: int
    fitting: int


def choose(tally: Tally, level: int, ask: SliceRequest) -> StartDomains | Shortage:
    """The start domains of a request, or how far it fell short."""
    while True:
        counts, scores = tally.level(level), tally.scores_at(level)
        one = _one(counts, scores, ask)
        if one is not None:
            return StartDomains(level, [one])
        if ask.mode is TopologyRequestMode.REQUIRED:
            roomiest = min(range(len(counts.pods)), key=_by_room(counts, scores, best_fit=True, led=True))
            return Shortage(level, counts.slices[roomiest])
        if ask.mode is TopologyRequestMode.UNCONSTRAINED or level == 0:
            return _several(counts, scores, level, ask)
        level -= 1


def slices_of(counts: Counts, scores: Sequence[int] | None) -> DomainCapacity:
    """Room counted in whole slices."""
    return DomainCapacity(counts.slices, counts.slices_led, counts.leader, scores)


def by_room(
    domains: Iterable[int], counts: Counts, scores: Sequence[int] | None, *, best_fit: bool, led: bool = False
) -> list[int]:
    """Domains in the order in which they are filled; `led` puts those that can host the leader first."""
    if scores is None and counts.slices is counts.pods and not (led and counts.leader):
        # Single pods without preferences: one figure decides, and sorting is stable in the path.
        return sorted(sorted(domains), key=counts.pods.__getitem__, reverse=best_fit)
    return sorted(domains, key=_by_room(counts, scores, best_fit=best_fit, led=led))


def _by_room(
    counts: Counts, scores: Sequence[int] | None, *, best_fit: bool, led: bool
) -> Callable[[int], tuple[int, ...]]:
    """What orders domains. On equal slices the one with fewer pods over comes first, then the path decides."""
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


def tightest(order: Sequence[int], room: DomainCapacity, need: int) -> int:
    """The domain with the least room that still covers the need, first listed on ties; the first if none does.

    Preferences come before tightness: only the domains that share the first one's score are looked at.
    """
    best, figures, scores = order[0], room.figures, room.scores
    least: int | None = None
    for domain in order:
        if scores is not None and scores[domain] != scores[order[0]]:
            break
        if room.holds(domain, need) and (least is None or figures[domain] < least):
            best, least = domain, figures[domain]
    return best


def leader_first(order: list[int], room: DomainCapacity, need: int) -> list[int]:
    """Move to the front the first domain that can host the leader and still leaves room enough for all workers."""
    if not room.leader or len(order) < 2:
        return order
    spare = sum(room.held[domain] for domain in order) - need
    for position, domain in enumerate(order):
        if room.leader[domain] and room.held[domain] - room.held_led[domain] <= spare:
            return [domain, *order[:position], *order[position + 1 :]]
    return order


def _one(counts: Counts, scores: Sequence[int] | None, ask: SliceRequest) -> int | None:
    """The one domain that takes everything."""
    if scores is not None:
        return _one_preferred(counts, scores, ask)
    slices, pods = counts.slices_led, counts.pods_led
    if slices is pods:
        held = min((figure for figure in slices if figure >= ask.slices), default=None)
        return None if held is None else slices.index(held)
    room = slices_of(counts, scores)
    fitting = (domain for domain in range(len(slices)) if room.holds(domain, ask.slices))
    return min(fitting, key=lambda d: (slices[d], pods[d], d), default=None)


def _one_preferred(counts: Counts, scores: Sequence[int], ask: SliceRequest) -> int | None:
    """As `_one`, where the score comes first: an ill-liked domain is taken alone only if nothing else will do."""
    order = by_room(range(len(counts.pods)), counts, scores, best_fit=ask.best_fit, led=True)
    room = slices_of(counts, scores)
    for position, domain in enumerate(order):
        if room.holds(domain, ask.slices):
            return tightest(order[position:], room, ask.slices) if ask.best_fit else domain
        if ask.best_fit and ask.mode is not TopologyRequestMode.REQUIRED:
            return None  # the best liked domain is too small: rather look higher, or take several
    return None


def _several(counts: Counts, scores: Sequence[int] | None, level: int, ask: SliceRequest) -> StartDomains | Shortage:
    """Domains, one after the other, until everything has a place; the leader's comes first."""
    room = slices_of(counts, scores)
    chosen: list[int] = []
    left = ask.slices
    if room.leader:
        order = by_room(range(len(counts.pods)), counts, scores, best_fit=ask.best_fit, led=True)
        first, *rest = leader_first(order, room, left)
        if not room.hosts_leader(first):
            return Shortage(level, 0)
        if ask.best_fit and room.holds(first, left):
            first = tightest([first, *rest], room, left)
        chosen.append(first)
        left -= counts.slices_led[first]
        room = replace(room, leader=())
    else:
        rest = [domain for domain, held in enumerate(counts.slices) if held]
    rest = by_room(rest, counts, scores, best_fit=ask.best_fit) if left > 0 else []
    for position, domain in enumerate(rest):
        if left <= 0:
            break
        if ask.best_fit and room.holds(domain, left):
            domain = tightest(rest[position:], room, left)
        chosen.append(domain)
        left -= counts.slices[domain]
    return Shortage(level, ask.slices - left) if left > 0 else StartDomains(level, chosen)
