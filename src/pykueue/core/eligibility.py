"""Whether a pod set is eligible for a flavor, before any quota is considered ([FL32], [FL33])."""

from __future__ import annotations

from collections.abc import Sequence

from pykueue.api import nodes
from pykueue.core.decision import Cause, FlavorFinding
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.queue import FlavorSpec, ResourceGroupInfo
from pykueue.core.snapshot import Queue, Snapshot
from pykueue.core.topology import NodeTerms
from pykueue.core.workload import PodSetResources

_CACHE_MAX = 65_536


def obstacle(
    snapshot: Snapshot,
    policy: SchedulingPolicy,
    queue: Queue,
    flavor: str,
    group: ResourceGroupInfo,
    pod_sets: Sequence[PodSetResources],
) -> FlavorFinding | None:
    """The first cause that makes any of the pod sets ineligible for the flavor; None: all are eligible.

    It depends on nothing that a cycle changes, so it is computed once and kept in `snapshot.eligibility_cache`, which
    `state` clears when flavors, topologies or ClusterQueues change.
    """
    cache = snapshot.eligibility_cache
    for pod_set in pod_sets:
        key = (queue.name, flavor, pod_set)
        if key in cache:
            found = cache[key]
        else:
            if len(cache) >= _CACHE_MAX:
                cache.clear()
            found = cache[key] = _obstacle(snapshot, policy, queue, flavor, group, pod_set)
        if found is not None:
            return found
    return None


def _obstacle(
    snapshot: Snapshot,
    policy: SchedulingPolicy,
    queue: Queue,
    flavor: str,
    group: ResourceGroupInfo,
    pod_set: PodSetResources,
) -> FlavorFinding | None:
    spec = snapshot.flavors.get(flavor)
    if spec is None:
        return FlavorFinding(Cause.NOT_ELIGIBLE, flavor, detail=f"flavor {flavor} not found")
    if policy.topology:
        mismatch = _topology_mismatch(snapshot, queue, spec, group, pod_set)
        if mismatch:
            return FlavorFinding(Cause.NOT_ELIGIBLE, flavor, detail=mismatch)
    taint = nodes.untolerated(spec.taints, (*pod_set.terms.tolerations, *spec.tolerations))
    if taint is not None:
        # The form in which Kueue writes a taint.
        untolerated = f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {flavor}"
        return FlavorFinding(Cause.NOT_ELIGIBLE, flavor, detail=untolerated)
    if any(spec.node_labels[key] != value for key, value in pod_set.terms.node_selector if key in spec.node_labels):
        return FlavorFinding(Cause.NOT_ELIGIBLE, flavor, detail=f"flavor {flavor} doesn't match node affinity")
    return _affinity_obstacle(pod_set.terms, spec)


def _topology_mismatch(
    snapshot: Snapshot, queue: Queue, flavor: FlavorSpec, group: ResourceGroupInfo, pod_set: PodSetResources
) -> str:
    """Why the flavor's topology does not suit the pod set; empty where it does ([FL33])."""
    if pod_set.topology_request is None:
        if queue.spec.is_topology_only or flavor.topology is None:
            return ""
        return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
    if flavor.topology is None:
        # Resources that exist in quota only (made by transformations) may come from a flavor without a topology.
        if any(resource in group.resources for resource, _ in pod_set.pod):
            return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
        return ""
    if not snapshot.topology_cache.has_flavor(flavor.name):
        return f'Flavor "{flavor.name}" information missing in TAS cache'
    if not snapshot.topology_cache.has_levels(flavor.name, pod_set.topology_request):
        return f'Flavor "{flavor.name}" does not contain the requested level'
    return ""


def _affinity_obstacle(terms: NodeTerms, flavor: FlavorSpec) -> FlavorFinding | None:
    """Test the node affinity against a node that has exactly the flavor's labels; only keys that the flavor has are
    considered ([FL11])."""
    if terms.required_affinity is None:
        return None
    related = nodes.related(terms.required_affinity, flavor.node_labels.keys())
    if related is None:
        return None
    alternatives = nodes.compile(related)
    if any(term.matches(flavor.node_labels, "") for term in alternatives):
        return None
    messages = [message for term in alternatives for message in term.messages]
    if messages:
        return FlavorFinding(Cause.BROKEN, flavor.name, detail=f"node affinity is malformed: {messages[0]}")
    return FlavorFinding(Cause.NOT_ELIGIBLE, flavor.name, detail=f"flavor {flavor.name} doesn't match node affinity")
