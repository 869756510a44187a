"""Node replacement: only the pods of a lost node are placed again, where the rest of the pod set allows it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pykueue.core.topology.failures import PlacementFailure
from pykueue.core.topology.free_capacity import FlavorDomains
from pykueue.core.topology.search import PlacementSearch
from pykueue.core.topology.tree import DomainTree
from pykueue.core.topology.values import DomainPods, PlacementRequest, TopologyPlacement, TopologyRequestMode


def replace_nodes(
    search: PlacementSearch, group: Sequence[PlacementRequest]
) -> dict[str, TopologyPlacement] | PlacementFailure:
    """The placements of a group's pod sets, each with its lost node replaced."""
    placements: dict[str, TopologyPlacement] = {}
    for request in group:
        if request.node_replacement is None:
            continue
        answer = _replace_node(search, request)
        if isinstance(answer, PlacementFailure):
            return answer
        placements[request.pod_set] = answer
    return placements


def _replace_node(search: PlacementSearch, request: PlacementRequest) -> TopologyPlacement | PlacementFailure:
    domains = search.topology_cache.domains(request.flavor)
    if domains is None or request.node_replacement is None:
        return _problem(request, "", f'Flavor "{request.flavor}" information missing in TAS cache')
    held, lost = request.node_replacement.held, request.node_replacement.lost
    kept = TopologyPlacement(held.levels, tuple(domain for domain in held.domains if domain.values[-1:] != (lost,)))
    stale_domain = next((domain for domain in kept.domains if domains.leaf(domain.values) is None), None)
    if stale_domain is not None:
        stale = "existing topologyAssignment is invalid, as it contains the stale domain"
        why = f"Cannot replace the node, because the {stale} [{' '.join(stale_domain.values)}]"
        return _problem(request, domains.flavor.topology, why)
    missing = replace(request, count=held.count - kept.count, node_replacement=None)
    within = None
    if all(layer.size > 0 for layer in request.topology_request.slices):  # the search reports it where they are not
        within = _allowed_leaves(domains.tree, missing, kept)
    if within is not None and missing.count % _outer_size(missing):
        missing = _in_units_that_divide(missing)
    found = search.find(missing, within=within)
    if isinstance(found, PlacementFailure):
        return found
    if not found.workers.domains:
        why = f"cannot find replacement assignment for unhealthy node: {lost}"
        return _problem(request, domains.flavor.topology, why)
    search.take(request, found.workers)
    return merge(domains, found.workers, kept)


def merge(domains: FlavorDomains, added: TopologyPlacement, kept: TopologyPlacement) -> TopologyPlacement:
    """Merge two placements, in path order; counts on equal leaves are added."""
    pods: dict[int, int] = {}
    for domain in (*added.domains, *kept.domains):
        leaf = domains.tree.leaf_by_values[domain.values]
        pods[leaf] = pods.get(leaf, 0) + domain.count
    return TopologyPlacement(
        added.levels, tuple(DomainPods(domains.tree.recorded(leaf), pods[leaf]) for leaf in sorted(pods))
    )


def _allowed_leaves(tree: DomainTree, missing: PlacementRequest, kept: TopologyPlacement) -> range | None:
    """The leaves that the replacement must stay on; None for anywhere.

    If the lost pods are not whole slices, some domain has an incomplete slice, and only there it can be completed; with
    several layers the innermost incomplete one decides. Otherwise only a *required* level ties the new pods to the old.
    """
    if not kept.domains:
        return None
    if missing.count % _outer_size(missing):
        broken = next(layer for layer in reversed(missing.topology_request.slices) if missing.count % layer.size)
        level = tree.level(broken.level)
        return None if level is None else _incomplete(tree, kept, level, missing.count, broken.size)
    level = None if missing.topology_request.level is None else tree.level(missing.topology_request.level)
    if missing.topology_request.mode is not TopologyRequestMode.REQUIRED or level is None:
        return None
    leaf = tree.leaf_by_values[kept.domains[0].values]
    return tree.leaves_below(level, tree.ancestor(leaf, level))


def _incomplete(tree: DomainTree, kept: TopologyPlacement, level: int, missing: int, size: int) -> range | None:
    """The leaves of the first domain, by path, whose slices the missing pods would complete."""
    pods: dict[int, int] = {}
    for domain in kept.domains:
        at = tree.ancestor(tree.leaf_by_values[domain.values], level)
        pods[at] = pods.get(at, 0) + domain.count
    whole = (domain for domain in sorted(pods) if (pods[domain] + missing) % size == 0)
    chosen = next(whole, None)
    return None if chosen is None else tree.leaves_below(level, chosen)


def _in_units_that_divide(missing: PlacementRequest) -> PlacementRequest:
    """The request for the pods of an incomplete slice, in units of the innermost layer that divides them, else one by
    one."""
    unit = next((layer for layer in reversed(missing.topology_request.slices) if missing.count % layer.size == 0), None)
    return replace(missing, topology_request=replace(missing.topology_request, slices=() if unit is None else (unit,)))


def _outer_size(request: PlacementRequest) -> int:
    return request.topology_request.slices[0].size if request.topology_request.slices else 1


def _problem(request: PlacementRequest, topology: str, problem: str) -> PlacementFailure:
    return PlacementFailure(request.pod_set, request.flavor, topology, problem=problem)
