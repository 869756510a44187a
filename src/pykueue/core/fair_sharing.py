"""Dominant resource shares and their comparison (fair sharing, [FS1] to [FS6]).

The share of a node is its usage beyond its own quota, per thousand of what its parent could lend, for the resource
where that is most, divided by its weight. The node with the smaller share is admitted first and preempted last.
"""

from __future__ import annotations

import msgspec

from pykueue.core import amounts
from pykueue.core.cohort import QuotaNode


class DominantResourceShare(msgspec.Struct, frozen=True):
    """A share. `rank` orders shares: a node of weight zero that borrows comes after every other, and among such nodes
    the one that borrows less comes first ([FS6])."""

    rank: tuple[bool, float]
    borrowed: tuple[int, ...] = ()  # numbers of the flavor-resources used beyond quota
    dominant_resource: str = ""

    @property
    def is_borrowing(self) -> bool:
        """Whether it uses more than its quota; so it does even of a resource that cannot be lent, whose ratio is zero
        ([FS4])."""
        return bool(self.borrowed)

    @property
    def is_boundless(self) -> bool:
        return self.rank[0]


ZERO_SHARE = DominantResourceShare((False, 0.0))
LESS_THAN_ANY = (False, -1.0)
"""Below the rank of every share."""


def dominant_resource_share(node: QuotaNode) -> DominantResourceShare:
    """The share of a node in its parent, on the current usage. The share of a root is zero."""
    if node.parent is None:
        return ZERO_SHARE
    usage, subtree = node.usage, node.subtree
    borrowed = tuple(number for number in node.known if usage[number] > subtree[number])
    if not borrowed:
        return ZERO_SHARE
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
