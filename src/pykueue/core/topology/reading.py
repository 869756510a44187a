"""From API objects to the small values that placement works on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykueue.core.topology.values import Flavor, Node, NodeTerms, Wish

if TYPE_CHECKING:
    from pykueue.api import kube, kueue


def node_of(node: kube.Node) -> Node | None:
    """The node as placement sees it, or None while it is not Ready or is unschedulable."""
    raise NotImplementedError


def flavor_of(flavor: kueue.ResourceFlavor, topology: kueue.Topology) -> Flavor:
    """A flavor with its topology's levels."""
    raise NotImplementedError


def counts_outside(pod: kube.Pod) -> bool:
    """Whether the pod runs on a node without a placement that accounts for it (its figure plus 1 `pods` is in use)."""
    raise NotImplementedError


def wish_of(request: kueue.PodSetTopologyRequest | None) -> Wish:
    """What a pod set asks of the topology; None, or nothing asked, is the implied unconstrained wish."""
    raise NotImplementedError


def terms_of(spec: kube.PodSpec, updates: Iterable[kueue.PodSetUpdate] = ()) -> NodeTerms:
    """What the pod asks of its node, with the selectors and tolerations that Ready admission checks added."""
    raise NotImplementedError
