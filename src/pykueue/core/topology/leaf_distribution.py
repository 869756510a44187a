"""Phase two, second half: from the start domains down to the leaves.

Above the slice level only the set of parents matters: all their children are pooled and filled anew. From the slice
level down every domain hands exactly what it was given to its own children, because a slice must not leave it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pykueue.core.topology.domain_counts import Tally
from pykueue.core.topology.domain_selection import (
    DomainCapacity,
    Figures,
    SliceRequest,
    StartDomains,
    by_room,
    leader_first,
    slices_of,
    tightest,
)


class DomainShare(NamedTuple):
    """What a domain is given."""

    domain: int
    pods: int
    leader: bool


def spread(tally: Tally, start: StartDomains, ask: SliceRequest) -> list[DomainShare] | None:
    """The leaves' shares; None where the figures promised more than the children can keep."""
    level, order, size = start.level, start.domains, tally.measure.slice_size
    while True:
        room = slices_of(tally.level(level), tally.scores_at(level))
        shares = _distribute(order, room, ask.slices, size, ask)
        if shares is None or level >= tally.measure.slice_level:
            return shares and descend(tally, level, shares, ask)
        pool = [child for share in shares for child in tally.tree.children(level, share.domain)]
        level += 1
        order = by_room(pool, tally.level(level), tally.scores_at(level), best_fit=ask.best_fit)


def descend(tally: Tally, level: int, shares: list[DomainShare], ask: SliceRequest) -> list[DomainShare] | None:
    """Every domain's share goes to its own children, level by level, in whole units of the layer that governs them."""
    while level < tally.tree.finest:
        unit = tally.measure.slice_size if level < tally.measure.slice_level else tally.measure.multiples[level + 1]
        below: list[DomainShare] = []
        for share in shares:
            given = _to_children(tally, level, share, unit, ask)
            if given is None:
                return None
            below += given
        shares = below
        level += 1
    return shares


def _to_children(
    tally: Tally, level: int, share: DomainShare, unit: int, ask: SliceRequest
) -> list[DomainShare] | None:
    children = tally.tree.children(level, share.domain)
    counts, scores = tally.level(level + 1), tally.scores_at(level + 1)
    order = by_room(children, counts, scores, best_fit=ask.best_fit)
    held: Figures = counts.pods
    held_led: Figures = counts.pods_led
    if unit > 1:
        held = {child: counts.pods[child] // unit for child in children}
        held_led = {child: counts.pods_led[child] // unit for child in children}
    room = DomainCapacity(held, held_led, counts.leader if share.leader else (), scores)
    return _distribute(order, room, share.pods // unit, unit, ask)


def _distribute(
    order: list[int], room: DomainCapacity, need: int, unit: int, ask: SliceRequest
) -> list[DomainShare] | None:
    """Fill domains in order; with best fit, whatever one domain can finish goes to the tightest that can."""
    order = leader_first(order, room, need)
    shares: list[DomainShare] = []
    for position, domain in enumerate(order):
        leads = bool(room.leader) and room.hosts_leader(domain)
        if room.holds(domain, need):
            chosen = tightest(order[position:], room, need) if ask.best_fit else domain
            return [*shares, DomainShare(chosen, need * unit, leads)]
        given = min(room.figures[domain], need)
        need -= given
        shares.append(DomainShare(domain, given * unit, leads))
        if leads:
            room = replace(room, leader=())
    return None
