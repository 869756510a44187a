"""The nodes of the cluster by topology flavor, and their usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from pykueue.core.topology import tree
from pykueue.core.topology.capacity import Capacity
from pykueue.core.topology.free_capacity import FlavorDomains
from pykueue.core.topology.values import (
    DEFAULT,
    PODS,
    Figure,
    PlacedPods,
    PlacementOptions,
    PlacementRequest,
    TopologyFlavor,
    TopologyNode,
    TopologyRequest,
)

# How many nodes of a tree are changed one by one: so many, and of a large tree one in so many.
_FOLLOWED_MIN: Final = 4
_FOLLOWED_SHARE: Final = 256


class TopologyCache:
    """Nodes, topology flavors and usage. Permanent changes and what-ifs have separate methods; see the package
    docstring.

    A permanent change while a what-if is open would be lost when that is undone, so it is refused.
    """

    def __init__(self, profile: PlacementOptions = DEFAULT) -> None:
        self.options = profile
        self._nodes: dict[str, TopologyNode] = {}
        self._flavors: dict[str, TopologyFlavor] = {}
        self._outside: dict[str, dict[str, int]] = {}
        # Per flavor and leaf, the amounts that reservations use. Kept apart from the trees, so that a tree can be built
        # again, and so that usage on a node that was deleted counts again when the node returns.
        self._booked: dict[str, dict[tuple[str, ...], Counter[str]]] = {}
        self._built: dict[str, FlavorDomains] = {}
        # Per flavor with a tree, the nodes that changed since the tree was used.
        self._changed: dict[str, dict[str, None]] = {}
        self._what_ifs: list[tuple[Capacity, int, Figure, int]] = []
        # Flavor, UID of the Workload and pod set of each search for a placement in this cycle.
        self._weighed: set[tuple[str, str, str]] = set()

    # Permanent changes, from watched objects.

    def put_node(self, node: TopologyNode) -> bool:
        """Add or update a Ready, schedulable node; whether anything changed: an unchanged node costs nothing."""
        known = self._nodes.get(node.name)
        if known == node:
            return False
        self._refuse_during_what_if()
        self._nodes[node.name] = node
        self._note_change([node] if known is None else [known, node])
        return True

    def drop_node(self, name: str) -> bool:
        """Remove a node that was deleted or is not Ready or unschedulable; usage recorded on it is kept for its return.
        Whether it was there."""
        node = self._nodes.get(name)
        if node is None:
            return False
        self._refuse_during_what_if()
        del self._nodes[name]
        self._note_change([node])
        return True

    def put_flavor(self, flavor: TopologyFlavor) -> None:
        """Add or update a ResourceFlavor whose topology is known; one without levels counts as unknown."""
        if not flavor.levels:
            self.drop_flavor(flavor.name)
        elif self._flavors.get(flavor.name) != flavor:
            self._refuse_during_what_if()
            self._flavors[flavor.name] = flavor
            # Which flavors share their usage may have changed with it.
            self._built.clear()
            self._changed.clear()

    def drop_flavor(self, name: str) -> None:
        if name in self._flavors:
            self._refuse_during_what_if()
            del self._flavors[name]
            self._built.clear()
            self._changed.clear()

    def put_outside_usage(self, node: str, amounts: Mapping[str, int]) -> None:
        """Replace what pods without a placement use on the node, `pods` included."""
        before = self._outside.get(node, {})
        if before == amounts:
            return
        self._refuse_during_what_if()
        delta = {
            resource: amounts.get(resource, 0) - before.get(resource, 0)
            for resource in dict.fromkeys((*before, *amounts))
        }
        self._outside[node] = dict(amounts)
        for domains in self._built.values():
            domains.use_outside(node, delta)

    def book(self, usage: Iterable[PlacedPods]) -> None:
        """Record the usage of a reservation; it counts for every flavor that selects these nodes."""
        self._book(usage, 1)

    def release(self, usage: Iterable[PlacedPods]) -> None:
        """Remove the usage of a reservation that was booked."""
        self._book(usage, -1)

    # Queries.

    def has_flavor(self, name: str) -> bool:
        """Whether the flavor's topology is known."""
        return name in self._flavors

    def has_levels(self, flavor: str, request: TopologyRequest) -> bool:
        """Whether the flavor's topology has every level that the request names."""
        known = self._flavors.get(flavor)
        return known is not None and all(level in known.levels for level in request.levels())

    def fits(self, usage: Iterable[PlacedPods]) -> bool:
        """Whether every domain of the usage still holds its pods, each pod set tested alone, `pods` not counted.

        This tests less than `place` does, as in Kueue; what it misses is found by the next placement.
        """
        for pods in usage:
            domains = self.domains(pods.flavor)
            if domains is None:
                return False
            for domain in pods.placement.domains:
                leaf = domains.leaf(domain.values)
                if leaf is None or domains.remaining.pods_held(leaf, pods.pod) < domain.count:
                    return False
        return True

    def left(self, flavor: str) -> dict[tuple[str, ...], dict[str, int]]:
        """What is left of every resource on every leaf: for display, and to compare two caches."""
        domains = self.domains(flavor)
        if domains is None:
            return {}
        columns = sorted(domains.remaining.amounts.items())
        return {
            values: {resource: column[leaf] for resource, column in columns}
            for values, leaf in domains.tree.leaf_by_values.items()
        }

    def domains(self, flavor: str) -> FlavorDomains | None:
        """The flavor's tree, built when first needed; None where the flavor is not known.

        The nodes that changed since it was last used are changed in it, one by one while they are few.
        """
        built = self._built.get(flavor)
        if built is not None and (names := self._changed.pop(flavor, None)) and not self._follow(built, names):
            built = None
        if built is None:
            known = self._flavors.get(flavor)
            if known is None:
                return None
            built = self._built[flavor] = self._build(known)
        return built

    def share(self, flavor: str, other: str) -> bool:
        """Whether usage on one flavor counts for the other: where leaves are nodes, yes; otherwise only its own."""
        if flavor == other:
            return True
        one, two = self._flavors.get(flavor), self._flavors.get(other)
        both_on_hosts = one is not None and two is not None and one.is_host_topology and two.is_host_topology
        return both_on_hosts and self.options.overlapping_flavors

    def flavors_using(self, usage: Iterable[PlacedPods]) -> frozenset[str]:
        """Return the flavors in which the usage takes capacity: its own, and those that share its nodes."""
        return frozenset(
            name
            for pods in usage
            for name in self._flavors
            if name == pods.flavor or (self.share(name, pods.flavor) and self._has_leaf_of(name, pods))
        )

    def flavors_of_node(self, name: str) -> frozenset[str]:
        """Return the flavors that select the node; none if it is not Ready or not schedulable."""
        node = self._nodes.get(name)
        if node is None:
            return frozenset()
        return frozenset(flavor for flavor, known in self._flavors.items() if tree.selects(known, node))

    # The weights of preferred node affinity within a cycle.

    def begin_cycle(self) -> None:
        """Let preferred weights count again in the first search for every pod set."""
        self._weighed.clear()

    def was_weighed(self, request: PlacementRequest) -> bool:
        """Whether a placement of the pod set on the flavor was searched in this cycle already (W10)."""
        return (request.flavor, request.weighed_as, request.pod_set) in self._weighed

    def note_weighed(self, request: PlacementRequest) -> None:
        """Record that a placement of the pod set on the flavor was searched in this cycle."""
        self._weighed.add((request.flavor, request.weighed_as, request.pod_set))

    # What-ifs; they change the flavor that they name only.

    def assume(self, usage: Iterable[PlacedPods]) -> None:
        """Count the usage until it is undone."""
        self._suppose(usage, 1)

    def remove(self, usage: Iterable[PlacedPods]) -> None:
        """Count the usage as ended until it is undone."""
        self._suppose(usage, -1)

    def mark(self) -> int:
        """A point for `undo`."""
        return len(self._what_ifs)

    def undo(self, mark: int) -> None:
        """Undo every `assume` and `remove` since `mark`; marks are undone latest first."""
        while len(self._what_ifs) > mark:
            capacity, leaf, pod, count = self._what_ifs.pop()
            capacity.add_pods(leaf, pod, count)

    def _has_leaf_of(self, flavor: str, pods: PlacedPods) -> bool:
        domains = self.domains(flavor)
        return domains is not None and any(domains.leaf(domain.values) is not None for domain in pods.placement.domains)

    def _suppose(self, usage: Iterable[PlacedPods], sign: int) -> None:
        for pods in usage:
            domains = self.domains(pods.flavor)
            if domains is None:
                continue
            for domain in pods.placement.domains:
                leaf = domains.leaf(domain.values)
                if leaf is not None:
                    count = sign * domain.count
                    domains.remaining.add_pods(leaf, pods.pod, -count)
                    self._what_ifs.append((domains.remaining, leaf, pods.pod, count))

    def _book(self, usage: Iterable[PlacedPods], sign: int) -> None:
        self._refuse_during_what_if()
        for pods in usage:
            booked = self._booked.setdefault(pods.flavor, {})
            seen_by = [domains for name, domains in self._built.items() if self.share(name, pods.flavor)]
            for domain in pods.placement.domains:
                count = sign * domain.count
                amounts = booked.setdefault(domain.values, Counter())
                amounts[PODS] += count
                for resource, amount in pods.pod:
                    amounts[resource] += amount * count
                for domains in seen_by:
                    leaf = domains.leaf(domain.values)
                    if leaf is not None:
                        domains.remaining.add_pods(leaf, pods.pod, -count)

    def _build(self, flavor: TopologyFlavor) -> FlavorDomains:
        self._changed.pop(flavor.name, None)
        nodes = [node for node in self._nodes.values() if tree.selects(flavor, node)]
        domains = FlavorDomains(flavor, nodes, self.options)
        for node in nodes:
            if outside := self._outside.get(node.name):
                domains.use_outside(node.name, outside)
        for other in self._flavors:
            if self.share(flavor.name, other):
                for values, amounts in self._booked.get(other, {}).items():
                    leaf = domains.leaf(values)
                    if leaf is not None:
                        domains.remaining.add(leaf, [(resource, -amount) for resource, amount in amounts.items()])
        return domains

    def _note_change(self, nodes: Iterable[TopologyNode]) -> None:
        """Note for every tree that has or should have one of these nodes that it changed."""
        for node in nodes:
            for name, built in self._built.items():
                if tree.selects(built.flavor, node):
                    self._changed.setdefault(name, {})[node.name] = None

    def _follow(self, built: FlavorDomains, names: Iterable[str]) -> bool:
        """Change nodes in a tree. False where building it again is cheaper, or the only way."""
        changed = list(names)
        if len(changed) > _FOLLOWED_MIN + len(built.tree.nodes) // _FOLLOWED_SHARE:
            return False
        for name in changed:
            at = built.tree.leaf_by_node.get(name)
            known = None if at is None else next(each for each in built.tree.nodes[at] if each.name == name)
            node = self._nodes.get(name)
            if node is not None and not tree.selects(built.flavor, node):
                node = None
            if known is None and node is None:
                continue
            outside = self._outside.get(name, {})
            built.use_outside(name, {resource: -amount for resource, amount in outside.items()})
            if not built.change_node(known, node, partial(self._used_at, built.flavor.name)):
                return False
            built.use_outside(name, outside)
        return True

    def _used_at(self, flavor: str, values: tuple[str, ...]) -> list[tuple[str, int]]:
        """What reservations take from a leaf of a flavor, as negative amounts."""
        return [
            (resource, -amount)
            for other in self._flavors
            if self.share(flavor, other)
            for resource, amount in self._booked.get(other, {}).get(values, {}).items()
        ]

    def _refuse_during_what_if(self) -> None:
        if self._what_ifs:
            raise RuntimeError("a permanent change to the topology cache while a what-if is open; undo it first")
