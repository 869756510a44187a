"""Node selection for a pod: the first node, by name, that it may run on and that has enough free capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from kubemachinery import codec, quantity
from kubemachinery.unstructured import Tree
from pykueue.api import kube, nodes
from pykueue.core import amounts, requests
from pykueue.core.amounts import Amount


class NodeAllocations(msgspec.Struct):
    """The allocated resources of each node: those of the pods that are bound to it and have not ended."""

    _of: dict[str, tuple[str, dict[str, Amount]]] = msgspec.field(default_factory=dict)
    _taken: dict[str, Counter[str]] = msgspec.field(default_factory=dict)

    def take(self, uid: str, node: str, pod: Tree) -> None:
        """Count a pod on a node; idempotent."""
        if uid not in self._of:
            asked = needs(codec.from_json_tree(pod, kube.Pod))
            self._of[uid] = (node, asked)
            self._taken.setdefault(node, Counter()).update(asked)

    def free(self, uid: str) -> bool:
        """Release the resources of a pod that has ended or was deleted; returns whether it held any."""
        held = self._of.pop(uid, None)
        if held is not None:
            self._taken[held[0]].subtract(held[1])
        return held is not None

    def taken(self, node: str) -> Mapping[str, Amount]:
        return self._taken.get(node, {})


def needs(pod: kube.Pod) -> dict[str, Amount]:
    """Return what a pod takes of a node: its requests, and one of the pods."""
    return {**requests.in_amounts(requests.read(pod.spec).figure), amounts.PODS: 1}


def select_node(pod: Tree, among: Iterable[Tree], allocations: NodeAllocations) -> str:
    """Return the first node that fits a pod; raise `LookupError` with the reasons if none does."""
    wanted = codec.from_json_tree(pod, kube.Pod)
    demand = PodDemand.of(wanted)
    reasons: list[str] = []
    for tree in among:
        node = codec.from_json_tree(tree, kube.Node)
        why = demand.unfit_reason(node, allocations.taken(node.metadata.name))
        if not why:
            return node.metadata.name
        reasons.append(why)
    raise LookupError(unschedulable_message(reasons))


def unschedulable_message(reasons: Collection[str]) -> str:
    """Return why no node fits, from the reason of each: `no node fits: 2 of 3 have too little cpu, 1 of 3 is not
    ready`."""
    if not reasons:
        return "no node fits: there are no nodes"
    of = len(reasons)
    counted = [f"{n} of {of} {why if n == 1 else _plural(why)}" for why, n in sorted(Counter(reasons).items())]
    return f"no node fits: {', '.join(counted)}"


def _plural(reason: str) -> str:
    verb, _, rest = reason.partition(" ")
    return f"{_PLURALS[verb]} {rest}"


_PLURALS: Final = {"is": "are", "has": "have", "lacks": "lack"}


class PodDemand(msgspec.Struct, frozen=True):
    """The constraints and requests that a node must satisfy for a pod."""

    required: nodes.RequiredNodeAffinity
    tolerations: tuple[kube.Toleration, ...]
    asked: Mapping[str, Amount]

    @classmethod
    def of(cls, pod: kube.Pod) -> PodDemand:
        return cls(nodes.required(pod.spec.node_selector, pod.spec.affinity), tuple(pod.spec.tolerations), needs(pod))

    def unfit_reason(self, node: kube.Node, taken: Mapping[str, Amount]) -> str:
        """Return why the node does not fit, as a predicate about it (`is not ready`); empty if it fits."""
        if node.spec.unschedulable:
            return "is unschedulable"
        if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
            return "is not ready"
        if not self.required.matches(node.metadata.labels, node.metadata.name):
            return "lacks the labels that the pod selects"
        if taint := nodes.untolerated(node.spec.taints, self.tolerations):
            return f"has taint {taint.key}, which the pod does not tolerate"
        for resource, amount in sorted(self.asked.items()):
            if amount and allocatable(node, resource) - taken.get(resource, 0) < amount:
                return "has too many pods" if resource == amounts.PODS else f"has too little {resource}"
        return ""


def allocatable(node: kube.Node, resource: str) -> Amount:
    has = node.status.allocatable.get(resource)
    return amounts.of_request(resource, quantity.parse(has)) if has is not None else 0
