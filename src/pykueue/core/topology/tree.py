"""The domains of a flavor as dense integers.

At every level the domains are numbered in ascending order of their path, so

* comparing two numbers of a level *is* comparing their paths (which decides every tie in placement), and
* the children of a domain, and all leaves below it, are one contiguous range.

Sums over children are then sums over slices of flat lists, which makes counting fast. A tree does not change: another
one is made of it when a node comes or goes, and what did not change is shared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from pykueue.core.topology.values import TopologyFlavor, TopologyNode

Path: TypeAlias = tuple[str, ...]
T = TypeVar("T")


class DomainTree(msgspec.Struct, frozen=True):
    """Domains per level, coarse to fine; `levels[-1]` are the leaves."""

    levels: tuple[str, ...]
    is_host: bool
    paths: tuple[tuple[Path, ...], ...]
    # Children of domain d at level k: first_child[k][d] up to first_child[k][d + 1], at level k + 1.
    first_child: tuple[tuple[int, ...], ...]
    parents: tuple[tuple[int, ...], ...]  # parents[0] is empty
    nodes: tuple[tuple[TopologyNode, ...], ...]  # per leaf, by name; more than one only where a leaf is not a host
    leaf_by_values: dict[Path, int]
    leaf_by_node: dict[str, int]

    @property
    def finest(self) -> int:
        return len(self.levels) - 1

    def level(self, key: str) -> int | None:
        """The index of a level, None where this topology does not have it."""
        return self.levels.index(key) if key in self.levels else None

    def children(self, level: int, domain: int) -> range:
        starts = self.first_child[level]
        return range(starts[domain], starts[domain + 1])

    def leaves_below(self, level: int, domain: int) -> range:
        first, end = domain, domain + 1
        for starts in self.first_child[level:]:
            first, end = starts[first], starts[end]
        return range(first, end)

    def ancestor(self, leaf: int, level: int) -> int:
        for k in range(self.finest, level, -1):
            leaf = self.parents[k][leaf]
        return leaf

    def recorded(self, leaf: int) -> Path:
        """The level values that a placement records for a leaf: the hostname alone, or the whole path where leaves are
        not hosts."""
        path = self.paths[-1][leaf]
        return path[-1:] if self.is_host else path

    @property
    def recorded_levels(self) -> tuple[str, ...]:
        return self.levels[-1:] if self.is_host else self.levels

    def with_nodes(self, leaf: int, nodes: tuple[TopologyNode, ...]) -> DomainTree:
        """The same domains with other nodes on a leaf that has some."""
        by_node = self.leaf_by_node
        before = {node.name for node in self.nodes[leaf]}
        if before != {node.name for node in nodes}:
            by_node = {name: at for name, at in by_node.items() if at != leaf} | {node.name: leaf for node in nodes}
        return replace(self, nodes=_replaced(self.nodes, leaf, nodes), leaf_by_node=by_node)

    def with_leaf(self, path: Path, node: TopologyNode) -> DomainTree:
        """The tree with one more leaf, on which this node is."""
        paths, parents, first_child = list(self.paths), list(self.parents), list(self.first_child)
        at = 0  # the domain of the path, level by level
        for level in range(len(self.levels)):
            parent, domain = at, path[: level + 1]
            at = bisect_left(paths[level], domain)
            if paths[level][at : at + 1] == (domain,):
                continue
            paths[level] = _inserted(paths[level], at, domain)
            if level > 0:
                parents[level] = _inserted(parents[level], at, parent)
                first_child[level - 1] = _shifted(first_child[level - 1], parent + 1, 1)
            if level < self.finest:
                first_child[level] = _inserted(first_child[level], at, first_child[level][at])
                parents[level + 1] = tuple(number + (number >= at) for number in parents[level + 1])
        values = path[-1:] if self.is_host else path
        return replace(
            self,
            paths=tuple(paths),
            parents=tuple(parents),
            first_child=tuple(first_child),
            nodes=_inserted(self.nodes, at, (node,)),
            leaf_by_values={each: leaf + (leaf >= at) for each, leaf in self.leaf_by_values.items()} | {values: at},
            leaf_by_node={each: leaf + (leaf >= at) for each, leaf in self.leaf_by_node.items()} | {node.name: at},
        )

    def without_leaf(self, leaf: int) -> DomainTree:
        """The tree without a leaf, and without the domains that had no other."""
        paths, parents, first_child = list(self.paths), list(self.parents), list(self.first_child)
        at = leaf
        for level in range(self.finest, -1, -1):
            paths[level] = _removed(paths[level], at)
            if level == 0:
                break
            parent = parents[level][at]
            parents[level] = _removed(parents[level], at)
            starts = _shifted(first_child[level - 1], parent + 1, -1)
            if starts[parent] < starts[parent + 1]:
                first_child[level - 1] = starts
                break
            first_child[level - 1] = _removed(starts, parent)
            parents[level] = tuple(number - (number > parent) for number in parents[level])
            at = parent
        return replace(
            self,
            paths=tuple(paths),
            parents=tuple(parents),
            first_child=tuple(first_child),
            nodes=_removed(self.nodes, leaf),
            leaf_by_values={each: at - (at > leaf) for each, at in self.leaf_by_values.items() if at != leaf},
            leaf_by_node={each: at - (at > leaf) for each, at in self.leaf_by_node.items() if at != leaf},
        )


def _inserted(row: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*row[:at], value, *row[at:])


def _removed(row: tuple[T, ...], at: int) -> tuple[T, ...]:
    return row[:at] + row[at + 1 :]


def _replaced(row: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*row[:at], value, *row[at + 1 :])


def _shifted(starts: tuple[int, ...], first: int, by: int) -> tuple[int, ...]:
    return starts[:first] + tuple(start + by for start in starts[first:])


def path_of(flavor: TopologyFlavor, node: TopologyNode) -> Path:
    """The level values of a node that the flavor selects."""
    return tuple(node.labels[key] for key in flavor.levels)


def selects(flavor: TopologyFlavor, node: TopologyNode) -> bool:
    """Whether the flavor selects the node: the node has all labels of the flavor, and every level label."""
    labels = node.labels
    return all(labels.get(key) == value for key, value in flavor.node_labels) and all(
        key in labels for key in flavor.levels
    )


def build(flavor: TopologyFlavor, nodes: Iterable[TopologyNode]) -> DomainTree:
    """The tree of a flavor over the nodes that it selects."""
    is_host = flavor.is_host_topology
    first_path: dict[Path, Path] = {}
    nodes_at: dict[Path, list[TopologyNode]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        path = path_of(flavor, node)
        values = path[-1:] if is_host else path
        # Two nodes with one hostname are one leaf, at the path of the first of them by name.
        first_path.setdefault(values, path)
        nodes_at.setdefault(values, []).append(node)
    leaves = sorted(first_path, key=first_path.__getitem__)
    paths = _paths_per_level([first_path[values] for values in leaves], len(flavor.levels))
    parents, first_child = _edges(paths)
    return DomainTree(
        levels=flavor.levels,
        is_host=is_host,
        paths=paths,
        first_child=first_child,
        parents=parents,
        nodes=tuple(tuple(nodes_at[values]) for values in leaves),
        leaf_by_values={values: leaf for leaf, values in enumerate(leaves)},
        leaf_by_node={node.name: leaf for leaf, values in enumerate(leaves) for node in nodes_at[values]},
    )


def _paths_per_level(leaves: Sequence[Path], depth: int) -> tuple[tuple[Path, ...], ...]:
    coarse = (tuple(dict.fromkeys(path[:length] for path in leaves)) for length in range(1, depth))
    return (*coarse, tuple(leaves))


def _edges(paths: Sequence[Sequence[Path]]) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Parents per level, and where the children of each domain begin (with the end of the last one appended)."""
    parents: list[tuple[int, ...]] = [()]
    first_child: list[tuple[int, ...]] = []
    for above, below in pairwise(paths):
        number = {path: domain for domain, path in enumerate(above)}
        parent = tuple(number[path[:-1]] for path in below)
        starts = [0] * (len(above) + 1)
        for domain in parent:
            starts[domain + 1] += 1
        for domain in range(len(above)):
            starts[domain + 1] += starts[domain]
        parents.append(parent)
        first_child.append(tuple(starts))
    return tuple(parents), tuple(first_child)
