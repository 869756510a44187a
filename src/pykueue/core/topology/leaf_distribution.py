"""Phase two, second half: from the start domains down to the leaves.

Above the slice level only the set of parents matters: all their children form one pool, which is filled again. From the
slice level down every domain distributes exactly what it was given to its own children, because a slice must not leave
it.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from pykueue.core.topology.domain_counts import DomainCounts
from pykueue.core.topology.domain_selection import (
    DomainCapacity,
    Figures,
    SliceRequest,
    StartDomains,
    by_capacity,
    leader_first,
    slices_of,
    tightest,
)


class DomainShare(NamedTuple):
    """The pods that a domain is given, and whether it hosts the leader."""

    domain: int
    pods: int
    leader: bool


def spread(counted: DomainCounts, start: StartDomains, request: SliceRequest) -> list[DomainShare] | None:
    """The shares of the leaves; None where the counts allowed more than the children can hold."""
    level, order, size = start.level, start.domains, counted.measure.slice_size
    while True:
        capacity = slices_of(counted.level(level), counted.scores_at(level))
        shares = _distribute(order, capacity, request.slices, size, request)
        if shares is None or level >= counted.measure.slice_level:
            return shares and descend(counted, level, shares, request)
        pool = [child for share in shares for child in counted.tree.children(level, share.domain)]
        level += 1
        order = by_capacity(pool, counted.level(level), counted.scores_at(level), best_fit=request.best_fit)


def descend(
    counted: DomainCounts, level: int, shares: list[DomainShare], request: SliceRequest
) -> list[DomainShare] | None:
    """Distribute the share of every domain to its own children, level by level, in whole units of the layer that
    governs them."""
    while level < counted.tree.finest:
        unit = (
            counted.measure.slice_size if level < counted.measure.slice_level else counted.measure.multiples[level + 1]
        )
        below: list[DomainShare] = []
        for share in shares:
            given = _to_children(counted, level, share, unit, request)
            if given is None:
                return None
            below += given
        shares = below
        level += 1
    return shares


def _to_children(
    counted: DomainCounts, level: int, share: DomainShare, unit: int, request: SliceRequest
) -> list[DomainShare] | None:
    children = counted.tree.children(level, share.domain)
    counts, scores = counted.level(level + 1), counted.scores_at(level + 1)
    order = by_capacity(children, counts, scores, best_fit=request.best_fit)
    held: Figures = counts.pods
    held_led: Figures = counts.pods_led
    if unit > 1:
        held = {child: counts.pods[child] // unit for child in children}
        held_led = {child: counts.pods_led[child] // unit for child in children}
    capacity = DomainCapacity(held, held_led, counts.leader if share.leader else (), scores)
    return _distribute(order, capacity, share.pods // unit, unit, request)


def _distribute(
    order: list[int], capacity: DomainCapacity, need: int, unit: int, request: SliceRequest
) -> list[DomainShare] | None:
    """Fill domains in order; with best fit, a remainder that one domain can hold goes to the tightest such domain."""
    order = leader_first(order, capacity, need)
    shares: list[DomainShare] = []
    for position, domain in enumerate(order):
        has_leader = bool(capacity.leader) and capacity.hosts_leader(domain)
        if capacity.holds(domain, need):
            chosen = tightest(order[position:], capacity, need) if request.best_fit else domain
            return [*shares, DomainShare(chosen, need * unit, has_leader)]
        given = min(capacity.figures[domain], need)
        need -= given
        shares.append(DomainShare(domain, given * unit, has_leader))
        if has_leader:
            capacity = replace(capacity, leader=())
    return None
