"""The decision: a placement for every pod set of one Workload, or the first failure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from pykueue.core.topology import elastic, node_replacement
from pykueue.core.topology.failures import PlacementFailure, PlacementOutcome
from pykueue.core.topology.nodes import TopologyCache
from pykueue.core.topology.search import PlacementSearch
from pykueue.core.topology.values import PlacementRequest, TopologyPlacement


def place(
    topology_cache: TopologyCache, requests: Sequence[PlacementRequest], *, emptied: bool = False, explain: bool = True
) -> PlacementOutcome:
    """Place the pod sets of one Workload, given in the order of its spec.

    `emptied` ignores the usage of all placed Workloads. Without `explain` a failure does not count which nodes were
    excluded by what: the search for preemption targets calls this again and again, and that count is the costly part.
    """
    flavors = sorted({request.flavor for request in requests})
    search = PlacementSearch(topology_cache, flavors, emptied=emptied, explain=explain)
    placements: dict[str, TopologyPlacement] = {}
    failures: dict[str, PlacementFailure] = {}
    try:
        for flavor in flavors:
            for group in _groups(request for request in requests if request.flavor == flavor):
                answer = _place_group(search, group)
                if isinstance(answer, PlacementFailure):
                    failures[answer.pod_set] = answer
                    break
                placements.update(answer)
    finally:
        search.give_back()
    failed = next((failures[request.pod_set] for request in requests if request.pod_set in failures), None)
    return PlacementOutcome(placements, failed)


def _groups(requests: Iterable[PlacementRequest]) -> Iterable[list[PlacementRequest]]:
    """Pod sets of one group name together, every other alone, in the order of their first pod set."""
    groups: dict[object, list[PlacementRequest]] = {}
    for position, request in enumerate(requests):
        groups.setdefault(position if request.group is None else request.group, []).append(request)
    return groups.values()


def _place_group(
    search: PlacementSearch, group: list[PlacementRequest]
) -> dict[str, TopologyPlacement] | PlacementFailure:
    if any(request.node_replacement for request in group):
        return node_replacement.replace_nodes(search, group)
    workers, leader = _workers_and_leader(group)
    if search.topology_cache.options.elastic and workers.previous is not None:
        kept = elastic.resize(search, workers, leader)
        if kept is not None:
            return kept
    found = search.find(workers, leader)
    if isinstance(found, PlacementFailure):
        return replace(found, pod_set=group[0].pod_set)  # they fail together; the first of them is reported
    search.take(workers, found.workers)
    if leader is None or found.leader is None:
        return {workers.pod_set: found.workers}
    search.take(leader, found.leader)
    return {workers.pod_set: found.workers, leader.pod_set: found.leader}


def _workers_and_leader(group: list[PlacementRequest]) -> tuple[PlacementRequest, PlacementRequest | None]:
    """The smaller of two pod sets is the leader, the second on equal counts."""
    first, *others = group
    if not others:
        return first, None
    second = others[0]
    return (second, first) if second.count > first.count else (first, second)
