"""From API objects to the values of placement; quantities that cannot be parsed are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubemachinery import quantity
from kubemachinery.quantity import QuantityError, QuantityText
from pykueue.api import kube, kueue, labels, nodes
from pykueue.core import amounts
from pykueue.core.topology.values import (
    NodeTerms,
    SliceLayer,
    TopologyFlavor,
    TopologyNode,
    TopologyRequest,
    TopologyRequestMode,
)

_PLACED_BY: Final = (
    labels.PODSET_REQUIRED_TOPOLOGY,
    labels.PODSET_PREFERRED_TOPOLOGY,
    labels.PODSET_UNCONSTRAINED_TOPOLOGY,
    labels.PODSET_SLICE_REQUIRED_TOPOLOGY,
    labels.PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
)
"""Annotations of pods whose usage is counted by a placement."""

NOWHERE: Final = ""
"""The level of a topology request that names none though it should; no topology has it, so no flavor is eligible."""


def topology_node_of(node: kube.Node) -> TopologyNode | None:
    """The node for placement; None while it is not Ready or is unschedulable."""
    is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    if node.spec.unschedulable or not is_ready:
        return None
    return TopologyNode(node.metadata.name, node.metadata.labels, _amounts(node.status.allocatable), node.spec.taints)


def topology_flavor_of(flavor: kueue.ResourceFlavor, topology: kueue.Topology) -> TopologyFlavor:
    """A flavor with its topology's levels."""
    return TopologyFlavor(
        name=flavor.metadata.name,
        topology=topology.metadata.name,
        levels=tuple(level.node_label for level in topology.spec.levels),
        node_labels=tuple(sorted(flavor.spec.node_labels.items())),
        tolerations=flavor.spec.tolerations,
    )


def counts_outside(pod: kube.Pod) -> bool:
    """Whether the pod runs on a node and no placement counts its usage (its figure plus 1 `pods`)."""
    has_ended = pod.status.has_ended
    return bool(pod.spec.node_name) and not has_ended and pod.metadata.annotations.keys().isdisjoint(_PLACED_BY)


def topology_request_of(request: kueue.PodSetTopologyRequest | None) -> TopologyRequest:
    """The topology request of a pod set; None, or an empty one, is an implied unconstrained request."""
    if request is None:
        return TopologyRequest()
    slices = tuple(
        SliceLayer(layer.topology, layer.size) for layer in request.podset_slice_required_topology_constraints
    )
    if not slices and request.pod_set_slice_required_topology is not None:
        slices = (SliceLayer(request.pod_set_slice_required_topology, request.pod_set_slice_size or 0),)
    if request.required is not None:
        return TopologyRequest(TopologyRequestMode.REQUIRED, request.required, slices)
    if request.preferred is not None:
        return TopologyRequest(TopologyRequestMode.PREFERRED, request.preferred, slices)
    # A slice size without a level, or `unconstrained: false`, requests topology without a level.
    is_vague = request.pod_set_slice_size is not None or request.unconstrained is False
    if is_vague and not slices and not request.unconstrained:
        return TopologyRequest(TopologyRequestMode.UNCONSTRAINED, NOWHERE)
    return TopologyRequest(TopologyRequestMode.UNCONSTRAINED, None, slices)


def terms_of(spec: kube.PodSpec, updates: Iterable[kueue.PodSetUpdate] = ()) -> NodeTerms:
    """What the pod requires of its node, with the selectors and tolerations that Ready admission checks added.

    An update that contradicts the pod's own selector adds to it all the same, so that no node matches both.
    """
    selectors = dict.fromkeys(spec.node_selector.items())
    tolerations = dict.fromkeys(spec.tolerations)
    for update in updates:
        selectors |= dict.fromkeys(update.node_selector.items())
        tolerations |= dict.fromkeys(update.tolerations)
    return NodeTerms(
        node_selector=tuple(sorted(selectors)),
        tolerations=tuple(tolerations),
        required_affinity=nodes.required_terms(spec.affinity),
        preferred_affinity=nodes.preferred_terms(spec.affinity),
    )


def _amounts(resources: Mapping[str, QuantityText]) -> dict[str, int]:
    read: dict[str, int] = {}
    for resource, text in resources.items():
        try:
            read[resource] = amounts.of_request(resource, quantity.parse(text))
        except QuantityError:
            continue  # a resource with a malformed quantity has no capacity
    return read
