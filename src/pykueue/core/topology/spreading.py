"""Phase two, second half: from the start domains down to the leaves.

Above the slice level only the set of parents matters: all their children are pooled and filled anew. From the slice
level down every domain hands exactly what it was given to its own children, because a slice must not leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykueue.core.topology.choosing import Ask, Figures, Start, by_room, leader_first, tightest
from pykueue.core.topology.counting import Tally


class Share(NamedTuple):
    """What a domain is given."""

    domain: int
    pods: int
    leader: bool


def spread(tally: Tally, start: Start, ask: Ask) -> list[Share] | None:
    """The leaves' shares; None where the figures promised more than the children can keep."""
    counts, size = tally.level(start.level), tally.measure.slice_size
    level, scores = start.level, tally.scores_at(start.level)
    shares = _distribute(start.domains, counts.slices, counts.slices_led, ask.slices, size, counts.leader, scores, ask)
    while shares is not None and level < tally.measure.slice_level:
        level += 1
        pool = [child for share in shares for child in tally.tree.children(level - 1, share.domain)]
        counts, scores = tally.level(level), tally.scores_at(level)
        order = by_room(pool, counts, scores, best_fit=ask.best_fit)
        shares = _distribute(order, counts.slices, counts.slices_led, ask.slices, size, counts.leader, scores, ask)
    return shares and descend(tally, level, shares, ask)


def descend(tally: Tally, level: int, shares: list[Share], ask: Ask) -> list[Share] | None:
    """Every domain's share goes to its own children, level by level, in whole units of the layer that governs them."""
    while level < tally.tree.finest:
        unit = tally.measure.slice_size if level < tally.measure.slice_level else tally.measure.multiples[level + 1]
        below: list[Share] = []
        for share in shares:
            given = _to_children(tally, level, share, unit, ask)
            if given is None:
                return None
            below += given
        shares = below
        level += 1
    return shares


def _to_children(tally: Tally, level: int, share: Share, unit: int, ask: Ask) -> list[Share] | None:
    children = tally.tree.children(level, share.domain)
    counts, scores = tally.level(level + 1), tally.scores_at(level + 1)
    order = by_room(children, counts, scores, best_fit=ask.best_fit)
    held: Figures = counts.pods
    held_led: Figures = counts.pods_led
    if unit > 1:
        held = {child: counts.pods[child] // unit for child in children}
        held_led = {child: counts.pods_led[child] // unit for child in children}
    leader = counts.leader if share.leader else None
    return _distribute(order, held, held_led, share.pods // unit, unit, leader, scores, ask)


def _distribute(
    order: list[int],
    held: Figures,
    held_led: Figures,
    need: int,
    unit: int,
    leader: Sequence[int] | None,
    scores: Sequence[int] | None,
    ask: Ask,
) -> list[Share] | None:
    """Fill domains in order; with best fit, whatever one domain can finish goes to the tightest that can."""
    order = leader_first(order, held, held_led, need, leader)
    shares: list[Share] = []
    for position, domain in enumerate(order):
        figures = held if leader is None else held_led
        can_finish = figures[domain] >= need and (leader is None or leader[domain] > 0)
        if can_finish:
            if ask.best_fit:
                domain = tightest(order[position:], figures, need, scores, leader)
            return [*shares, Share(domain, need * unit, leader is not None)]
        given = min(figures[domain], need)
        need -= given
        hosts = leader is not None and leader[domain] > 0
        shares.append(Share(domain, given * unit, hosts))
        if hosts:
            leader = None
    return None
