"""The nodes of one flavor as a tree of domains, with the free capacity of every leaf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykueue.core.topology import capacity, node_matching, tree
from pykueue.core.topology.capacity import Capacity
from pykueue.core.topology.domain_counts import DomainCountsCache
from pykueue.core.topology.node_matching import Match
from pykueue.core.topology.values import NodeTerms, PlacementOptions, TopologyFlavor, TopologyNode

MATCHES_MAX = 256


class FlavorDomains:
    """The tree of one flavor and two capacities over its leaves.

    `free` is what nodes offer less what pods without a placement use; `remaining` is `free` less the usage of placed
    Workloads. The first is what an emptied cluster would have, the second is the current state.
    """

    __slots__ = ("_matches", "_of_free", "_of_remaining", "flavor", "free", "options", "remaining", "tree")

    def __init__(self, flavor: TopologyFlavor, nodes: Iterable[TopologyNode], profile: PlacementOptions) -> None:
        self.flavor = flavor
        self.options = profile
        self.tree = tree.build(flavor, nodes)
        leaves = len(self.tree.nodes)
        amounts = capacity.columns([node.allocatable for node in at_leaf] for at_leaf in self.tree.nodes)
        self.free = Capacity(amounts, leaves)
        self.remaining = self.free.copy(leaves)
        self._of_free = DomainCountsCache(self.tree, self.free)
        self._of_remaining = DomainCountsCache(self.tree, self.remaining)
        self._matches: dict[NodeTerms, Match] = {}

    def counts_cache(self, *, emptied: bool = False) -> DomainCountsCache:
        """Counts of the current state, or of an emptied cluster."""
        return self._of_free if emptied else self._of_remaining

    def match(self, terms: NodeTerms) -> Match:
        """Which leaves a pod with these terms may use; computed once per distinct terms."""
        known = self._matches.get(terms)
        if known is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            known = node_matching.match(
                self.tree, terms, self.flavor.tolerations, with_scores=self.options.preferred_affinity
            )
            self._matches[terms] = known
        return known

    def leaf(self, values: tuple[str, ...]) -> int | None:
        """The leaf with these level values; None where its node no longer exists."""
        return self.tree.leaf_by_values.get(values)

    def use_outside(self, node: str, amounts: Mapping[str, int]) -> None:
        """Add usage of pods without a placement on a node (negative: remove it)."""
        leaf = self.tree.leaf_by_node.get(node)
        if leaf is not None:
            taken = [(resource, -amount) for resource, amount in amounts.items()]
            self.free.add(leaf, taken)
            self.remaining.add(leaf, taken)
