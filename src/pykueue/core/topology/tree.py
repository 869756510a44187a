"""The domains of a flavor as dense integers.

At every level the domains are numbered in ascending order of their path, so

* comparing two numbers of a level *is* comparing their paths (which decides every tie in placement), and
* the children of a domain, and all leaves below it, are one contiguous range.

Sums over children are then sums over slices of flat lists, which makes counting fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from pykueue.core.topology.values import TopologyFlavor, TopologyNode

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DomainTree:
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


def selects(flavor: TopologyFlavor, node: TopologyNode) -> bool:
    """Whether the flavor selects the node: the node has all labels of the flavor, and every level label."""
    labels = node.labels
    return all(labels.get(key) == value for key, value in flavor.node_labels) and all(
        key in labels for key in flavor.levels
    )


def build(flavor: TopologyFlavor, nodes: Iterable[TopologyNode]) -> DomainTree:
    """The tree of a flavor over the nodes that it selects."""
    is_host = flavor.is_host_topology
    path_of: dict[Path, Path] = {}
    nodes_at: dict[Path, list[TopologyNode]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        path = tuple(node.labels[key] for key in flavor.levels)
        values = path[-1:] if is_host else path
        # Two nodes with one hostname are one leaf, at the path of the first of them by name.
        path_of.setdefault(values, path)
        nodes_at.setdefault(values, []).append(node)
    leaves = sorted(path_of, key=path_of.__getitem__)
    paths = _paths_per_level([path_of[values] for values in leaves], len(flavor.levels))
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
