"""Shares and their comparison (fair sharing, §7.1 and §7.2).

A node's share says how much it uses beyond its own quota, per thousand of what its parent could lend, for the resource
where that is most, divided by its weight. Whoever has the smaller share is admitted first and preempted last.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykueue.core import amounts
from pykueue.core.cohort import QuotaNode


@dataclass(frozen=True, slots=True)
class DominantResourceShare:
    """`rank` orders shares: a node of weight zero that borrows comes after everybody else, and among such nodes the one
    that borrows less comes first ([FS6])."""

    rank: tuple[bool, float]
    borrowed: tuple[int, ...] = ()  # numbers of the flavor-resources used beyond quota
    dominant_resource: str = ""

    @property
    def is_borrowing(self) -> bool:
        """[FS4] Using more than its quota counts, even of a resource that nobody can lend (a ratio of zero)."""
        return bool(self.borrowed)

    @property
    def is_boundless(self) -> bool:
        return self.rank[0]


NOTHING = DominantResourceShare((False, 0.0))
LESS_THAN_ANY = (False, -1.0)
"""Below the rank of every share."""


def dominant_resource_share(node: QuotaNode) -> DominantResourceShare:
    """The share of a node in its parent, on the usage as it stands. A root shares with nobody."""
    if node.parent is None:
        return NOTHING
    usage, subtree = node.usage, node.subtree
    borrowed = tuple(number for number in node.known if usage[number] > subtree[number])
    if not borrowed:
        return NOTHING
    over: dict[str, int] = {}
    pairs = node.tree.pairs
    for number in borrowed:
        resource = pairs[number].resource
        beyond = amounts.subtract(usage[number], subtree[number])
        over[resource] = amounts.add(over.get(resource, 0), beyond)
    ratio, dominant = 0.0, ""
    for resource, amount in sorted(over.items()):
        lendable = node.parent.lendable.get(resource, 0)
        if lendable > 0:
            of_resource = float(amount) * 1000.0 / float(lendable)
            if of_resource > ratio:
                ratio, dominant = of_resource, resource
    if ratio == 0.0:
        return DominantResourceShare((False, 0.0), borrowed, dominant)
    if node.weight == 0.0:
        return DominantResourceShare((True, ratio), borrowed, dominant)
    return DominantResourceShare((False, ratio / node.weight), borrowed, dominant)
