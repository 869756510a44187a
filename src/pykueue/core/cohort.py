"""The tree of cohorts and ClusterQueues: its shape, its quota and its usage.

A `CohortTree` is everything under one root cohort (or one ClusterQueue without cohort), so nothing outside it can
change what fits inside. Pairs of flavor and resource are numbered per tree, and every node keeps its quota and usage in
plain lists by that number: a lookup is an index, and a change in one tree costs nothing in the others.

A tree is built whole from the specs (`CohortTree.build`) and never reshaped: quotas and parents change rarely, usage
changes all the time. Usage is written only through `core.quota`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pykueue.core import amounts
from pykueue.core.amounts import UNLIMITED
from pykueue.core.queue import CohortInfo, FlavorResource, QueueSpec, Quota


class QuotaNode:
    """A cohort or a ClusterQueue, with its figures by flavor-resource number.

    `subtree` is what its children lend it plus its own nominal quota (for a ClusterQueue: the nominal quota),
    `guaranteed` the part it does not lend to its parent, `potential` what it could use if nothing else were in use.
    """

    __slots__ = (
        "ancestors",
        "borrowing_limit",
        "cohorts",
        "descent",
        "guaranteed",
        "height",
        "is_queue",
        "known",
        "lendable",
        "name",
        "parent",
        "potential",
        "queues",
        "root",
        "subtree",
        "tree",
        "usage",
        "weight",
    )

    def __init__(self, tree: CohortTree, name: str, parent: QuotaNode | None, weight: float, *, is_queue: bool) -> None:
        self.tree = tree
        self.name = name
        self.parent = parent
        self.ancestors: tuple[QuotaNode, ...] = () if parent is None else (parent, *parent.ancestors)
        self.descent: tuple[QuotaNode, ...] = (
            () if parent is None else (*parent.descent, self)
        )  # from the child of the root to this node
        self.root: QuotaNode = self if parent is None else parent.root
        self.weight = weight
        self.is_queue = is_queue
        self.cohorts: list[QuotaNode] = []  # child cohorts by name
        self.queues: list[QuotaNode] = []  # child ClusterQueues by name, without inactive ones
        self.height = 0
        self.subtree: list[int] = []
        self.guaranteed: list[int] = []
        self.borrowing_limit: list[int] = []
        self.potential: list[int] = []
        self.usage: list[int] = []
        self.known: tuple[int, ...] = ()  # pairs that this node or one below it has quota for, even of zero
        self.lendable: Mapping[str, int] = {}  # resource -> what a child could borrow at most

    def __repr__(self) -> str:
        return f"<{'queue' if self.is_queue else 'cohort'} {self.name}>"

    def subtree_queues(self) -> Iterator[QuotaNode]:
        """Every active ClusterQueue below: those of this cohort first, then cohort by cohort."""
        yield from self.queues
        for cohort in self.cohorts:
            yield from cohort.subtree_queues()

    def _add_number(self) -> None:
        self.subtree.append(0)
        self.guaranteed.append(0)
        self.borrowing_limit.append(UNLIMITED)
        self.potential.append(0)
        self.usage.append(0)


class CohortTree:
    """All nodes under one root, and the numbers of flavor-resources that their figures share."""

    __slots__ = ("nodes", "numbers", "pairs", "queues", "root")

    def __init__(self) -> None:
        self.pairs: list[FlavorResource] = []
        self.numbers: dict[FlavorResource, int] = {}
        self.nodes: list[QuotaNode] = []  # parents before children
        self.queues: dict[str, QuotaNode] = {}
        self.root: QuotaNode

    def number(self, flavor: str, resource: str) -> int:
        """The number of a pair. A pair without quota (a flavor that was removed while Workloads use it) gets a number,
        too: its usage still counts in the tree, and a cohort above may have quota for it."""
        pair = FlavorResource(flavor, resource)
        known = self.numbers.get(pair)
        if known is not None:
            return known
        self.numbers[pair] = len(self.pairs)
        self.pairs.append(pair)
        for node in self.nodes:
            node._add_number()
        return len(self.pairs) - 1

    def clear_usage(self) -> None:
        """Set the usage of every node to 0."""
        for node in self.nodes:
            node.usage = [0] * len(self.pairs)

    def without_usage(self) -> CohortTree:
        """A copy of the tree without usage, with the same numbers."""
        copy = CohortTree()
        copy.pairs, copy.numbers = list(self.pairs), dict(self.numbers)
        copies: dict[str, QuotaNode] = {}  # cohorts: a ClusterQueue is no parent
        for node in self.nodes:
            parent = copies[node.parent.name] if node.parent is not None else None
            twin = QuotaNode(copy, node.name, parent, node.weight, is_queue=node.is_queue)
            twin.height, twin.known, twin.lendable = node.height, node.known, node.lendable
            twin.subtree, twin.guaranteed = node.subtree.copy(), node.guaranteed.copy()
            twin.borrowing_limit, twin.potential = node.borrowing_limit.copy(), node.potential.copy()
            twin.usage = [0] * len(self.pairs)
            copy.nodes.append(twin)
            if node.is_queue:
                copy.queues[node.name] = twin
            else:
                copies[node.name] = twin
            if parent is None:
                copy.root = twin
        for node, twin in zip(self.nodes, copy.nodes, strict=True):
            twin.cohorts = [copies[child.name] for child in node.cohorts]
            twin.queues = [copy.queues[child.name] for child in node.queues]
        return copy

    @staticmethod
    def build(plan: TreePlan, numbered: Iterable[FlavorResource] = ()) -> CohortTree:
        """Build the tree that the plan describes, with no usage in it. `numbered` pairs get the first numbers, in this
        order, with or without quota."""
        tree = CohortTree()
        quotas: list[tuple[QuotaNode, Mapping[FlavorResource, Quota]]] = []

        def add_cohort(name: str, parent: QuotaNode | None) -> None:
            spec = plan.cohorts.get(name)
            node = QuotaNode(tree, name, parent, spec.weight if spec else 1.0, is_queue=False)
            tree.nodes.append(node)
            quotas.append((node, spec.quotas if spec else {}))
            if parent is None:
                tree.root = node
            else:
                parent.cohorts.append(node)
            for child in plan.children.get(name, ()):
                add_cohort(child, node)
            for queue in plan.queues.get(name, ()):
                quotas.append((tree._add_queue(queue, node), queue.quotas))

        if plan.single is not None:
            quotas.append((tree._add_queue(plan.single, None), plan.single.quotas))
        else:
            add_cohort(plan.root, None)
        for pair in numbered:
            tree.number(pair.flavor, pair.resource)
        for _, of_node in quotas:
            for pair in of_node:
                tree.number(pair.flavor, pair.resource)
        _fill(tree, quotas)
        return tree

    def _add_queue(self, spec: QueueSpec, parent: QuotaNode | None) -> QuotaNode:
        node = QuotaNode(self, spec.name, parent, spec.weight, is_queue=True)
        self.nodes.append(node)
        self.queues[spec.name] = node
        if parent is None:
            self.root = node
        elif spec.listed:
            parent.queues.append(node)
        return node


def _fill(tree: CohortTree, quotas: list[tuple[QuotaNode, Mapping[FlavorResource, Quota]]]) -> None:
    """Fill in quotas bottom-up (what each node lends its parent), then potential and lendable top-down."""
    offered: dict[QuotaNode, dict[int, int]] = {}
    # Children before parents: the quota of a cohort includes what its children lend.
    for node, own in reversed(quotas):
        known = {tree.numbers[pair] for pair in own} | offered.get(node, {}).keys()
        node.known = tuple(sorted(known))
        for number in node.known:
            quota = own.get(tree.pairs[number], Quota(0))
            subtree = amounts.add(quota.nominal, offered.get(node, {}).get(number, 0))
            node.subtree[number] = subtree
            # What a node does not lend is its own: a loan of another never takes it.
            if quota.lending_limit != UNLIMITED:
                node.guaranteed[number] = max(0, amounts.subtract(subtree, quota.lending_limit))
            node.borrowing_limit[number] = quota.borrowing_limit
            if node.parent is not None:
                above = offered.setdefault(node.parent, {})
                lent = amounts.subtract(subtree, node.guaranteed[number])
                above[number] = amounts.add(above.get(number, 0), lent)
        if not node.is_queue:
            node.height = max([1 if node.queues else 0, *(child.height + 1 for child in node.cohorts)])
    # Parents before children: what a node can have at most depends on what its parent can have at most.
    for node in tree.nodes:
        if node.parent is None:
            node.potential = list(node.subtree)
        else:
            for number in range(len(tree.pairs)):
                reach = amounts.add(node.guaranteed[number], node.parent.potential[number])
                cap = amounts.add(node.subtree[number], node.borrowing_limit[number])
                node.potential[number] = min(reach, cap)
        if not node.is_queue:
            lendable: dict[str, int] = {}
            for number in tree.root.known:
                resource = tree.pairs[number].resource
                lendable[resource] = amounts.add(lendable.get(resource, 0), node.potential[number])
            node.lendable = lendable


class TreePlan(msgspec.Struct, frozen=True):
    """The specs of one tree. Two plans of the very same specs build the same tree."""

    root: str
    single: QueueSpec | None = None  # a ClusterQueue without cohort: a tree of its own
    cohorts: Mapping[str, CohortInfo] = msgspec.field(default_factory=dict)  # implicit cohorts are not in here
    children: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    queues: Mapping[str, tuple[QueueSpec, ...]] = msgspec.field(default_factory=dict)

    def members(self) -> Iterator[QueueSpec]:
        if self.single is not None:
            yield self.single
        for queues in self.queues.values():
            yield from queues

    def spec_ids(self) -> frozenset[int]:
        """The identities of all specs: equal where nothing in the tree changed, because specs are never edited."""
        return frozenset({id(spec) for spec in self.members()} | {id(spec) for spec in self.cohorts.values()})


class Forest(msgspec.Struct, frozen=True):
    """All ClusterQueues and Cohorts grouped into trees, and the ClusterQueues left out because of a cohort cycle
    ([TR2])."""

    trees: tuple[TreePlan, ...]
    in_cohort_cycle: frozenset[str]  # the names of ClusterQueues


def plan_trees(queues: Iterable[QueueSpec], cohorts: Mapping[str, CohortInfo]) -> Forest:
    """Group ClusterQueues and Cohorts into trees. A cohort that is only referred to exists, without quota or parent
    ([TR1])."""
    queues_of: dict[str, list[QueueSpec]] = {}
    singles: list[QueueSpec] = []
    for queue in sorted(queues, key=lambda spec: spec.name):
        if queue.cohort:
            queues_of.setdefault(queue.cohort, []).append(queue)
        else:
            singles.append(queue)
    parents = {name: spec.parent for name, spec in cohorts.items()}
    for name in (*queues_of, *parents.values()):
        parents.setdefault(name, "")
    parents.pop("", None)
    # None for every cohort of a cycle and below one: these belong to no tree.
    roots = {name: _root(name, parents) for name in sorted(parents)}
    children: dict[str, list[str]] = {}
    for name, parent in sorted(parents.items()):
        if parent and roots[name] is not None:
            children.setdefault(parent, []).append(name)
    members: dict[str, list[str]] = {}
    for name, root in roots.items():
        if root is not None:
            members.setdefault(root, []).append(name)
    return Forest(
        trees=(
            *(TreePlan(root=queue.name, single=queue) for queue in singles),
            *(
                TreePlan(
                    root=root,
                    cohorts={name: cohorts[name] for name in names if name in cohorts},
                    children={name: tuple(children[name]) for name in names if name in children},
                    queues={name: tuple(queues_of[name]) for name in names if name in queues_of},
                )
                for root, names in sorted(members.items())
            ),
        ),
        in_cohort_cycle=frozenset(
            queue.name for cohort, below in queues_of.items() if roots[cohort] is None for queue in below
        ),
    )


def _root(name: str, parents: Mapping[str, str]) -> str | None:
    """The root above a cohort; None where the parents form a cycle."""
    visited = {name}
    while parent := parents.get(name, ""):
        if parent in visited:
            return None
        visited.add(parent)
        name = parent
    return name
