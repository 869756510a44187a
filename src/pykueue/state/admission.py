"""A decision as `status.admission` of a Workload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pykueue.api import kueue, topology_encoding
from pykueue.core.requests import shown
from pykueue.core.topology import TopologyPlacement
from pykueue.core.workload import AssignedPodSet, WorkloadShape


def tree(cluster_queue: str, pod_sets: Iterable[AssignedPodSet], *, by_hostname_prefix: bool = True) -> dict[str, Any]:
    """Return `status.admission` as JSON. `by_hostname_prefix`: see `topology_encoding.encode`."""
    assigned = [_assignment(pod_set, by_hostname_prefix) for pod_set in pod_sets]
    return {"clusterQueue": cluster_queue, "podSetAssignments": assigned}


def typed(
    cluster_queue: str, pod_sets: Iterable[AssignedPodSet], *, by_hostname_prefix: bool = True
) -> kueue.Admission:
    """Return `status.admission` as a value."""
    return msgspec.convert(tree(cluster_queue, pod_sets, by_hostname_prefix=by_hostname_prefix), kueue.Admission)


def requests(shape: WorkloadShape) -> tuple[kueue.PodSetRequest, ...]:
    """Return `status.resourceRequests`: the total of each pod set, as quota counts it."""
    return tuple(
        kueue.PodSetRequest(name=pod_set.name, resources=shown(pod_set.requests)) for pod_set in shape.pod_sets
    )


def _assignment(pod_set: AssignedPodSet, by_hostname_prefix: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": pod_set.name,
        "count": pod_set.count,
        "flavors": dict(sorted(pod_set.flavors.items())),
        "resourceUsage": shown(pod_set.requests),
    }
    if pod_set.placement is not None:
        found["topologyAssignment"] = _placement(pod_set.placement, by_hostname_prefix)
    if pod_set.delayed is not None:
        found["delayedTopologyRequest"] = str(pod_set.delayed)  # YAML has no enumerations
    return found


def _placement(placement: TopologyPlacement, by_hostname_prefix: bool) -> dict[str, Any]:
    domains = [topology_encoding.EncodedDomain(domain.values, domain.count) for domain in placement.domains]
    return topology_encoding.encode(placement.levels, domains, by_hostname_prefix=by_hostname_prefix)
