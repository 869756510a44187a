"""The search for one pod set (and perhaps its leader) on the nodes of one flavor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from pykueue.core.topology import balanced, domain_counts, domain_selection, leaf_distribution
from pykueue.core.topology.capacity import Capacity
from pykueue.core.topology.domain_counts import DomainCounts, Measure
from pykueue.core.topology.domain_selection import Shortage, SliceRequest
from pykueue.core.topology.failures import Exclusions, LayerFit, PlacementFailure
from pykueue.core.topology.free_capacity import FlavorDomains
from pykueue.core.topology.leaf_distribution import DomainShare
from pykueue.core.topology.node_matching import Match
from pykueue.core.topology.nodes import TopologyCache
from pykueue.core.topology.tree import DomainTree
from pykueue.core.topology.values import (
    DomainPods,
    Figure,
    PlacedPods,
    PlacementRequest,
    TopologyPlacement,
    TopologyRequest,
    TopologyRequestMode,
)


class FoundPlacement(msgspec.Struct, frozen=True):
    """The placement of the workers, and that of the leader if there is one."""

    workers: TopologyPlacement
    leader: TopologyPlacement | None = None


class PlacementSearch:
    """The search for one Workload: capacity that its earlier pod sets were given is used for the later ones.

    `give_back` restores all of it at the end, so that the cache is as it was. `flavors` are those of the requests.
    """

    def __init__(self, topology_cache: TopologyCache, flavors: Iterable[str], *, emptied: bool, explain: bool) -> None:
        self.topology_cache = topology_cache
        self._flavors = tuple(flavors)
        self._emptied = emptied
        self._explain = explain
        self._to_take: list[PlacedPods] = []
        self._taken: list[tuple[Capacity, int, Figure, int]] = []

    def take(self, request: PlacementRequest, placement: TopologyPlacement) -> None:
        """Count a placement as used from the next search on, by its flavor and those that may select the same nodes."""
        self._to_take.append(PlacedPods(request.flavor, request.pod, placement))

    def _take_all(self) -> None:
        for pods in self._to_take:
            for flavor in self._flavors:
                domains = (
                    self.topology_cache.domains(flavor) if self.topology_cache.share(flavor, pods.flavor) else None
                )
                if domains is None:
                    continue
                capacity = self._capacity(domains)
                for domain in pods.placement.domains:
                    leaf = domains.leaf(domain.values)
                    if leaf is not None:
                        capacity.add_pods(leaf, pods.pod, -domain.count)
                        self._taken.append((capacity, leaf, pods.pod, domain.count))
        self._to_take.clear()

    def give_back(self) -> None:
        while self._taken:
            capacity, leaf, pod, count = self._taken.pop()
            capacity.add_pods(leaf, pod, count)

    def find(
        self, request: PlacementRequest, leader: PlacementRequest | None = None, within: range | None = None
    ) -> FoundPlacement | PlacementFailure:
        """A placement for the pods of one request; `within` are the leaves that may be used, all if absent."""
        self._take_all()
        domains = self.topology_cache.domains(request.flavor)
        if domains is None:
            return PlacementFailure(
                request.pod_set,
                request.flavor,
                "",
                problem=f'Flavor "{request.flavor}" information missing in TAS cache',
            )
        resolved = _resolve(domains.tree, request.topology_request)
        terms = request.terms
        if request.weighed_as and self.topology_cache.was_weighed(request):
            terms = replace(terms, preferred_affinity=())
        match = domains.match(terms)
        problem = resolved if isinstance(resolved, str) else match.problem
        if isinstance(resolved, str) or problem:
            return PlacementFailure(request.pod_set, request.flavor, domains.flavor.topology, problem=problem)
        if not domains.tree.nodes:
            nothing = f"no topology domains at level: {domains.tree.levels[resolved.level]}"
            return PlacementFailure(request.pod_set, request.flavor, domains.flavor.topology, problem=nothing)

        if request.weighed_as:
            self.topology_cache.note_weighed(request)
        leader_pod = None if leader is None else leader.pod
        measure = Measure(request.pod, leader_pod, resolved.slice_size, resolved.slice_level, resolved.multiples)
        counts_cache = domains.counts_cache(emptied=self._emptied)
        counted = (
            counts_cache.of(measure, terms, match) if within is None else counts_cache.within(within, measure, match)
        )
        slices = SliceRequest(
            slices=request.count // resolved.slice_size,
            mode=request.topology_request.mode,
            best_fit=not (
                request.topology_request.mode is TopologyRequestMode.UNCONSTRAINED and self.topology_cache.options.mixed
            ),
        )
        shares = self._shares(counted, resolved.level, slices)
        if isinstance(shares, Shortage):
            return self._failure(domains, request, counted, match, slices, shares, within)
        return _found(domains.tree, shares, leader is not None)

    def _shares(self, counted: DomainCounts, level: int, slices: SliceRequest) -> list[DomainShare] | Shortage:
        if self.topology_cache.options.balanced and slices.mode is TopologyRequestMode.PREFERRED:
            even = balanced.spread(counted, level, slices)
            if even is not None:
                return even
        start = domain_selection.choose(counted, level, slices)
        if isinstance(start, Shortage):
            return start
        shares = leaf_distribution.spread(counted, start, slices)
        return Shortage(start.level, 0) if shares is None else shares

    def _capacity(self, domains: FlavorDomains) -> Capacity:
        return domains.counts_cache(emptied=self._emptied).capacity

    def _failure(
        self,
        domains: FlavorDomains,
        request: PlacementRequest,
        counted: DomainCounts,
        match: Match,
        slices: SliceRequest,
        shortage: Shortage,
        within: range | None,
    ) -> PlacementFailure:
        failure = PlacementFailure(
            request.pod_set,
            request.flavor,
            domains.flavor.topology,
            fitting=shortage.fitting,
            needed=slices.slices,
            slice_size=counted.measure.slice_size,
        )
        if not self._explain:
            return failure
        return replace(
            failure,
            layers=_layers(counted, shortage.level, request) if len(request.topology_request.slices) > 1 else (),
            exclusions=_exclusions(counted, self._capacity(domains), match, within),
        )


class _ResolvedLevels(msgspec.Struct, frozen=True):
    """A topology request, resolved to the levels of one topology."""

    level: int
    slice_level: int
    slice_size: int
    multiples: tuple[int, ...]


def _resolve(tree: DomainTree, request: TopologyRequest) -> _ResolvedLevels | str:
    """Resolve a topology request to level indices and slice sizes, or return what is wrong with it."""
    default = 0 if request.slices else tree.finest
    level = default if request.level is None else tree.level(request.level)
    if level is None:
        return f"no requested topology level: {request.level}"
    multiples = [1] * len(tree.levels)
    if not request.slices:
        return _ResolvedLevels(level, tree.finest, 1, tuple(multiples))
    outer, *inner = request.slices
    slice_level = tree.level(outer.level)
    if slice_level is None:
        return f"no requested topology level for slices: {outer.level}"
    if outer.size <= 0:
        return "slices are requested without a size"
    if slice_level < level:
        return f"podset slice topology {outer.level} is above the podset topology {tree.levels[level]}"
    above, above_size = slice_level, outer.size
    for layer in inner:
        here = tree.level(layer.level)
        if here is None:
            return f"no requested topology level for additional slice layer: {layer.level}"
        if here <= above:
            lower = f"must be at a lower level than {tree.levels[above]}"
            return f"additional slice layer topology {layer.level} {lower}"
        if layer.size <= 0 or above_size % layer.size:
            return f"additional slice layer size {layer.size} must evenly divide parent layer size {above_size}"
        # Levels between two layers are filled in units of the finer one.
        multiples[above + 1 : here + 1] = [layer.size] * (here - above)
        above, above_size = here, layer.size
    return _ResolvedLevels(level, slice_level, outer.size, tuple(multiples))


def _found(tree: DomainTree, shares: Sequence[DomainShare], has_leader: bool) -> FoundPlacement:
    by_path = sorted(shares)
    workers = TopologyPlacement(
        tree.recorded_levels,
        tuple(DomainPods(tree.recorded(share.domain), share.pods) for share in by_path if share.pods),
    )
    if not has_leader:
        return FoundPlacement(workers)
    hosts = tuple(DomainPods(tree.recorded(share.domain), 1) for share in by_path if share.leader)
    return FoundPlacement(workers, TopologyPlacement(tree.recorded_levels, hosts))


def _layers(counted: DomainCounts, level: int, request: PlacementRequest) -> tuple[LayerFit, ...]:
    """Per layer, the slices that fit in the domain with the most capacity."""
    slices = counted.level(level).slices
    best = max(range(len(slices)), key=lambda domain: (slices[domain], -domain))
    fits: list[LayerFit] = []
    for layer in request.topology_request.slices:
        at = counted.tree.levels.index(layer.level)
        first, end = best, best + 1
        for starts in counted.tree.first_child[level:at]:
            first, end = starts[first], starts[end]
        fitting = sum(pods // layer.size for pods in counted.level(at).pods[first:end])
        fits.append(LayerFit(layer.level, fitting, request.count // layer.size))
    return tuple(fits)


def _exclusions(counted: DomainCounts, capacity: Capacity, match: Match, within: range | None) -> Exclusions:
    """Why nodes are excluded: the causes of the match, then for every node that holds no pod its scarcest resource."""
    pods = counted.level(counted.tree.finest).pods
    taking_part = range(len(pods)) if match.leaves is None else match.leaves
    inside = [leaf for leaf in taking_part if within is None or leaf in within]
    scarce = Counter(domain_counts.limiting(capacity, counted.measure.pod, leaf) for leaf in inside if pods[leaf] == 0)
    return replace(
        match.exclusions,
        outside_domain=len(taking_part) - len(inside),
        resources=tuple(sorted(scarce.items())),
    )
