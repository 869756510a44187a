"""Resizing of an elastic Workload: running pods stay where they are, and only the difference is placed or released."""

from __future__ import annotations

from msgspec.structs import replace

from pykueue.core.topology.failures import PlacementFailure
from pykueue.core.topology.free_capacity import FlavorDomains
from pykueue.core.topology.node_replacement import merge
from pykueue.core.topology.search import PlacementSearch
from pykueue.core.topology.values import DomainPods, PlacementRequest, TopologyPlacement


def resize(
    search: PlacementSearch, workers: PlacementRequest, leader: PlacementRequest | None
) -> dict[str, TopologyPlacement] | PlacementFailure | None:
    """The placements of the new size; None where a node of the old placement no longer exists: then all pods are placed
    again."""
    domains = search.topology_cache.domains(workers.flavor)
    previous = workers.previous
    leader_placement = None if leader is None else leader.previous
    if (
        domains is None
        or previous is None
        or not all(_has_all_leaves(domains, kept) for kept in (previous, leader_placement) if kept)
    ):
        return None
    if workers.count > previous.count:
        return _grow(search, domains, workers, previous, leader)
    placements = {workers.pod_set: truncated(previous, workers.count)}
    if leader is not None and leader_placement is not None:
        placements[leader.pod_set] = leader_placement
        search.take(leader, leader_placement)
    search.take(workers, placements[workers.pod_set])
    return placements


def truncated(placement: TopologyPlacement, count: int) -> TopologyPlacement:
    """The first `count` pods of a placement: scaling down releases from the end of the list."""
    kept: list[DomainPods] = []
    for domain in placement.domains:
        if count <= 0:
            break
        kept.append(DomainPods(domain.values, min(domain.count, count)))
        count -= domain.count
    return TopologyPlacement(placement.levels, tuple(kept))


def _grow(
    search: PlacementSearch,
    domains: FlavorDomains,
    workers: PlacementRequest,
    previous: TopologyPlacement,
    leader: PlacementRequest | None,
) -> dict[str, TopologyPlacement] | PlacementFailure:
    search.take(workers, previous)
    placements: dict[str, TopologyPlacement] = {}
    unplaced = leader
    if leader is not None and leader.previous is not None:
        search.take(leader, leader.previous)
        placements[leader.pod_set] = leader.previous
        unplaced = None
    found = search.find(replace(workers, count=workers.count - previous.count, previous=None), unplaced)
    if isinstance(found, PlacementFailure):
        return found
    search.take(workers, found.workers)
    placements[workers.pod_set] = merge(domains, found.workers, previous)
    if unplaced is not None and found.leader is not None:
        search.take(unplaced, found.leader)
        placements[unplaced.pod_set] = found.leader
    return placements


def _has_all_leaves(domains: FlavorDomains, placement: TopologyPlacement) -> bool:
    return all(domains.leaf(domain.values) is not None for domain in placement.domains)
