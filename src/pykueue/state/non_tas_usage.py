"""Pods that no placement accounts for: they take room on their nodes all the same."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from pykueue.api import kube
from pykueue.core import amounts, requests, topology
from pykueue.core.topology import Fleet


class UsageDelta(Enum):
    """What became of the room on a node."""

    NONE = auto()
    ADDED = auto()
    RELEASED = auto()  # even if some of it was taken again


class NonTASUsage:
    """What such pods take, told to the fleet as one figure for each node."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._uses: dict[str, dict[str, Mapping[str, int]]] = {}  # node -> pod -> what it uses
        self._node_of: dict[str, str] = {}

    def put(self, pod: kube.Pod) -> UsageDelta:
        key, node = _key(pod), pod.spec.node_name
        uses = _usage(pod) if topology.counts_outside(pod) else None
        if uses is not None and self._uses.get(node, {}).get(key) == uses:
            return UsageDelta.NONE
        delta = self.drop(pod)
        if uses is None:
            return delta
        self._node_of[key] = node
        self._uses.setdefault(node, {})[key] = uses
        self._tell(node)
        return UsageDelta.ADDED if delta is UsageDelta.NONE else delta

    def drop(self, pod: kube.Pod) -> UsageDelta:
        key = _key(pod)
        node = self._node_of.pop(key, None)
        if node is None:
            return UsageDelta.NONE
        del self._uses[node][key]
        self._tell(node)
        return UsageDelta.RELEASED

    def _tell(self, node: str) -> None:
        total: dict[str, int] = {}
        for used in self._uses[node].values():
            for resource, amount in used.items():
                total[resource] = total.get(resource, 0) + amount
        self._fleet.put_outside_usage(node, total)


def _key(pod: kube.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _usage(pod: kube.Pod) -> dict[str, int]:
    """[TS3] What a running pod takes on its node, itself included."""
    return {**requests.in_amounts(requests.read(pod.spec).figure), amounts.PODS: 1}
