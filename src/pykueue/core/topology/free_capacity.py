"""The nodes of one flavor as a tree of domains, with the free capacity of every leaf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from pykueue.core.topology import capacity, node_matching, tree
from pykueue.core.topology.capacity import Capacity
from pykueue.core.topology.domain_counts import DomainCountsCache
from pykueue.core.topology.node_matching import Match
from pykueue.core.topology.values import NodeTerms, PlacementOptions, TopologyFlavor, TopologyNode

MATCHES_MAX = 256
UsageOf: TypeAlias = Callable[[tree.Path], list[tuple[str, int]]]
"""What placed Workloads add to a leaf with these level values: negative amounts."""


class FlavorDomains:
    """The tree of one flavor and two capacities over its leaves.

    `free` is what nodes offer less what pods without a placement use; `remaining` is `free` less the usage of placed
    Workloads. The first is what an emptied cluster would have, the second is the current state.
    """

    __slots__ = ("_matches", "_of_free", "_of_remaining", "_offered", "flavor", "free", "options", "remaining", "tree")

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
        # How many nodes offer a resource: one that no node offers has no list.
        self._offered = Counter(name for at_leaf in self.tree.nodes for node in at_leaf for name in node.allocatable)

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

    def change_node(self, known: TopologyNode | None, node: TopologyNode | None, used: UsageOf) -> bool:
        """Replace a node of the tree by its new state; None for one that is new or gone. Whether that was possible.

        It is not where several nodes have the same hostname, or where the node offers a resource that no node of the
        tree offers: the tree has to be built again. `used` is asked for the usage of a leaf that is added.
        """
        if node is not None and any(resource not in self._offered for resource in node.allocatable):
            return False
        # The new state counts first: a resource that only this node offers keeps its list.
        self._count_offers(node, 1)
        if known is not None and node is not None and self._path(known) == self._path(node):
            self._update(known, node)
        elif self.tree.is_host and len(self.tree.leaf_by_node) > len(self.tree.nodes):
            return False
        else:
            if known is not None:
                self._remove(known)
            if node is not None and not self._insert(node, used):
                return False
            self._forget_counts()
        self._count_offers(known, -1)
        return True

    def _update(self, known: TopologyNode, node: TopologyNode) -> None:
        leaf = self.tree.leaf_by_node[known.name]
        self.tree = self.tree.with_nodes(leaf, tuple(node if each is known else each for each in self.tree.nodes[leaf]))
        self._add(leaf, _negated(known.allocatable))
        self._add(leaf, node.allocatable.items())
        if (known.labels, known.taints) == (node.labels, node.taints):
            for counts in (self._of_free, self._of_remaining):
                counts.move_to(self.tree)
        else:
            self._forget_counts()

    def _remove(self, node: TopologyNode) -> None:
        leaf = self.tree.leaf_by_node[node.name]
        others = tuple(each for each in self.tree.nodes[leaf] if each is not node)
        if others:
            self.tree = self.tree.with_nodes(leaf, others)
            self._add(leaf, _negated(node.allocatable))
        else:
            self.tree = self.tree.without_leaf(leaf)
            self.free.remove_leaf(leaf)
            self.remaining.remove_leaf(leaf)

    def _insert(self, node: TopologyNode, used: UsageOf) -> bool:
        path = self._path(node)
        values = path[-1:] if self.tree.is_host else path
        leaf = self.leaf(values)
        if leaf is None:
            self.tree = self.tree.with_leaf(path, node)
            leaf = self.tree.leaf_by_values[values]
            self.free.insert_leaf(leaf)
            self.remaining.insert_leaf(leaf)
            self.remaining.add(leaf, used(values))
        elif self.tree.is_host:
            return False
        else:
            nodes = sorted((*self.tree.nodes[leaf], node), key=lambda each: each.name)
            self.tree = self.tree.with_nodes(leaf, tuple(nodes))
        self._add(leaf, node.allocatable.items())
        return True

    def _path(self, node: TopologyNode) -> tree.Path:
        return tree.path_of(self.flavor, node)

    def _count_offers(self, node: TopologyNode | None, sign: int) -> None:
        for resource in node.allocatable if node is not None else ():
            self._offered[resource] += sign
            if not self._offered[resource]:
                del self._offered[resource]
                for capacity_ in (self.free, self.remaining):
                    del capacity_.amounts[resource]

    def _add(self, leaf: int, amounts: Iterable[tuple[str, int]]) -> None:
        listed = list(amounts)
        self.free.add(leaf, listed)
        self.remaining.add(leaf, listed)

    def _forget_counts(self) -> None:
        self._of_free = DomainCountsCache(self.tree, self.free)
        self._of_remaining = DomainCountsCache(self.tree, self.remaining)
        self._matches.clear()

    def leaf(self, values: tuple[str, ...]) -> int | None:
        """The leaf with these level values; None where its node no longer exists."""
        return self.tree.leaf_by_values.get(values)

    def use_outside(self, node: str, amounts: Mapping[str, int]) -> None:
        """Add usage of pods without a placement on a node (negative: remove it)."""
        leaf = self.tree.leaf_by_node.get(node)
        if leaf is not None:
            self._add(leaf, _negated(amounts))


def _negated(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(resource, -amount) for resource, amount in amounts.items()]
