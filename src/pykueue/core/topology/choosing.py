"""Phase two, first half: the domains to start from.

One domain that holds everything is best, and the tightest such domain wins, so that large gaps stay for large requests.
Where there is none, a *preferred* request looks one level higher; at the top, and for unconstrained requests at once,
several domains are taken: with best fit those with most room first, with least free capacity those with least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pykueue.core.topology.counting import Counts, Tally
from pykueue.core.topology.values import Kind

Figures: TypeAlias = Sequence[int] | Mapping[int, int]
"""Units that a domain holds, by domain."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be placed: whole slices, and perhaps a leader beside them."""

    slices: int
    has_leader: bool
    kind: Kind
    best_fit: bool


@dataclass(frozen=True, slots=True)
class Start:
    """The level at which everything fits, and the domains to take, in the order in which they are filled."""

    level: int
    domains: list[int]


@dataclass(frozen=True, slots=True)
class Shortage:
    """The level at which the search ended, and how many slices would have fitted there."""

    level: int
    fitting: int


def choose(tally: Tally, level: int, ask: Ask) -> Start | Shortage:
    """The start domains of a request, or how far it fell short."""
    while True:
        counts, scores = tally.level(level), tally.scores_at(level)
        one = _one(counts, scores, ask)
        if one is not None:
            return Start(level, [one])
        if ask.kind is Kind.REQUIRED:
            return Shortage(level, counts.slices[_first(counts, scores)])
        if ask.kind is Kind.UNCONSTRAINED or level == 0:
            return _several(counts, scores, level, ask)
        level -= 1


def by_room(
    domains: Iterable[int], counts: Counts, scores: Sequence[int] | None, *, best_fit: bool, led: bool = False
) -> list[int]:
    """Domains in the order in which they are filled; `led` puts those that can host the leader first.

    On equal slices the domain with fewer pods over comes first, then the path decides.
    """
    slices, pods = (counts.slices_led, counts.pods_led) if led else (counts.slices, counts.pods)
    if scores is None and (not led or counts.leader is None) and slices is pods:
        # Single pods without preferences: one figure decides, and sorting is stable in the path.
        return sorted(sorted(domains), key=pods.__getitem__, reverse=best_fit)
    sign = -1 if best_fit else 1
    leader = counts.leader if led and counts.leader is not None else None
    return sorted(
        domains,
        key=lambda d: (
            -leader[d] if leader else 0,
            -scores[d] if scores else 0,
            sign * slices[d],
            pods[d],
            d,
        ),
    )


def tightest(
    order: Sequence[int], held: Figures, need: int, scores: Sequence[int] | None, leader: Sequence[int] | None
) -> int:
    """The domain with the smallest figure that still covers the need, first listed on ties; the first if none does.

    With a leader to place, domains that cannot host it are passed over. Preferences come before tightness: only the
    domains that share the first one's score are looked at.
    """
    best, best_held = order[0], -1
    for domain in order:
        if scores is not None and scores[domain] != scores[order[0]]:
            break
        if (leader is None or leader[domain]) and need <= held[domain] and not 0 <= best_held <= held[domain]:
            best, best_held = domain, held[domain]
    return best


def leader_first(
    order: list[int], held: Figures, held_led: Figures, need: int, leader: Sequence[int] | None
) -> list[int]:
    """Move to the front the first domain that can host the leader and still leaves room enough for all workers."""
    if leader is None or len(order) < 2:
        return order
    spare = sum(held[domain] for domain in order) - need
    for position, domain in enumerate(order):
        if leader[domain] and held[domain] - held_led[domain] <= spare:
            return [domain, *order[:position], *order[position + 1 :]]
    return order


def _one(counts: Counts, scores: Sequence[int] | None, ask: Ask) -> int | None:
    """The one domain that takes everything."""
    if scores is not None:
        return _one_preferred(counts, scores, ask)
    slices, pods = counts.slices_led, counts.pods_led
    if slices is pods:
        held = min((figure for figure in slices if figure >= ask.slices), default=None)
        return None if held is None else slices.index(held)
    leader = counts.leader if ask.has_leader else None
    fitting = (d for d, held in enumerate(slices) if held >= ask.slices and (leader is None or leader[d]))
    return min(fitting, key=lambda d: (slices[d], pods[d], d), default=None)


def _one_preferred(counts: Counts, scores: Sequence[int], ask: Ask) -> int | None:
    """As `_one`, where the score comes first: an ill-liked domain is taken alone only if nothing else will do."""
    order = by_room(range(len(counts.pods)), counts, scores, best_fit=ask.best_fit, led=True)
    leader = counts.leader if ask.has_leader else None
    slices = counts.slices_led
    for position, domain in enumerate(order):
        if slices[domain] >= ask.slices and (leader is None or leader[domain]):
            if not ask.best_fit:
                return domain
            return tightest(order[position:], slices, ask.slices, scores, leader)
        if ask.best_fit and ask.kind is not Kind.REQUIRED:
            return None  # the best liked domain is too small: rather look higher, or take several
    return None


def _first(counts: Counts, scores: Sequence[int] | None) -> int:
    return by_room(range(len(counts.pods)), counts, scores, best_fit=True, led=True)[0]


def _several(counts: Counts, scores: Sequence[int] | None, level: int, ask: Ask) -> Start | Shortage:
    """Domains, one after the other, until everything has a place."""
    chosen: list[int] = []
    rest = range(len(counts.pods))
    left = ask.slices
    if ask.has_leader:
        order = by_room(rest, counts, scores, best_fit=ask.best_fit, led=True)
        order = leader_first(order, counts.slices, counts.slices_led, ask.slices, counts.leader)
        first = order[0]
        if not counts.hosts_leader(first):
            return Shortage(level, 0)
        if ask.best_fit and counts.slices_led[first] >= left:
            first = tightest(order, counts.slices_led, left, scores, counts.leader)
        chosen.append(first)
        left -= counts.slices_led[first]
        remaining = order[1:]
    else:
        remaining = [domain for domain in rest if counts.slices[domain]]
    if left > 0:
        remaining = by_room(remaining, counts, scores, best_fit=ask.best_fit)
    for position, domain in enumerate(remaining):
        if left <= 0:
            break
        if ask.best_fit and counts.slices[domain] >= left:
            domain = tightest(remaining[position:], counts.slices, left, scores, None)
        chosen.append(domain)
        left -= counts.slices[domain]
    return Shortage(level, ask.slices - left) if left > 0 else Start(level, chosen)
