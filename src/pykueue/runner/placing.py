"""Which node a pod goes to: the first, by name, that it may run on and that has room. Words for why none will do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pykueue.api import codec, kube, nodes, quantity
from pykueue.api.trees import Tree
from pykueue.core import amounts, requests
from pykueue.core.amounts import Amount


@dataclass(slots=True)
class Room:
    """What is taken of each node, by the pods that are bound to it and have not ended."""

    _of: dict[str, tuple[str, dict[str, Amount]]] = field(default_factory=dict)
    _taken: dict[str, Counter[str]] = field(default_factory=dict)

    def take(self, uid: str, node: str, pod: Tree) -> None:
        """The pod is on the node; saying so again changes nothing."""
        if uid not in self._of:
            asked = needs(codec.from_tree(pod, kube.Pod))
            self._of[uid] = (node, asked)
            self._taken.setdefault(node, Counter()).update(asked)

    def free(self, uid: str) -> bool:
        """The pod has ended or is gone; says whether that made room."""
        held = self._of.pop(uid, None)
        if held is not None:
            self._taken[held[0]].subtract(held[1])
        return held is not None

    def taken(self, node: str) -> Mapping[str, Amount]:
        return self._taken.get(node, {})


def needs(pod: kube.Pod) -> dict[str, Amount]:
    """What a pod takes of a node: what it asks for, and a place among its pods."""
    return {**requests.in_amounts(requests.read(pod.spec).figure), amounts.PODS: 1}


def choose(pod: Tree, among: Iterable[Tree], room: Room) -> str:
    """The node for a pod; `LookupError` with the reasons where there is none."""
    wanted = codec.from_tree(pod, kube.Pod)
    required = nodes.required(wanted.spec.node_selector, wanted.spec.affinity)
    asked = needs(wanted)
    reasons: Counter[str] = Counter()
    for tree in among:
        node = codec.from_tree(tree, kube.Node)
        why = _why_not(wanted, required, asked, node, room.taken(node.metadata.name))
        if not why:
            return node.metadata.name
        reasons[why] += 1
    told = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
    raise LookupError(f"none of {reasons.total()} nodes will do: {told}" if reasons else "there are no nodes")


def _why_not(
    pod: kube.Pod, required: nodes.Required, asked: Mapping[str, Amount], node: kube.Node, taken: Mapping[str, Amount]
) -> str:
    if node.spec.unschedulable:
        return "unschedulable"
    if not any(each.type == "Ready" and each.status == "True" for each in node.status.conditions):
        return "not ready"
    if not required.matches(node.metadata.labels, node.metadata.name):
        return "without the labels that the pod wants"
    if taint := nodes.untolerated(node.spec.taints, pod.spec.tolerations):
        return f"with taint {taint.key}, which the pod does not tolerate"
    for resource, amount in sorted(asked.items()):
        has = node.status.allocatable.get(resource)
        there = amounts.of_request(resource, quantity.parse(has)) if has is not None else 0
        if amount and there - taken.get(resource, 0) < amount:
            return f"without enough {resource}"
    return ""
