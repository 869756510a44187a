"""Usage of nodes by pods without a topology assignment."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from pykueue.api import kube
from pykueue.core import amounts, requests, topology
from pykueue.core.topology import TopologyCache


class UsageDelta(Enum):
    """How the usage of a node changed."""

    NONE = auto()
    ADDED = auto()
    RELEASED = auto()  # even if some of it was added again


class NonTASUsage:
    """The usage of such pods, given to the topology cache as one sum per node."""

    def __init__(self, topology_cache: TopologyCache) -> None:
        self._topology_cache = topology_cache
        self._uses: dict[str, dict[str, Mapping[str, int]]] = {}  # node -> pod -> its usage
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
        self._update(node)
        return UsageDelta.ADDED if delta is UsageDelta.NONE else delta

    def drop(self, pod: kube.Pod) -> UsageDelta:
        key = _key(pod)
        node = self._node_of.pop(key, None)
        if node is None:
            return UsageDelta.NONE
        del self._uses[node][key]
        self._update(node)
        return UsageDelta.RELEASED

    def _update(self, node: str) -> None:
        total: dict[str, int] = {}
        for used in self._uses[node].values():
            for resource, amount in used.items():
                total[resource] = total.get(resource, 0) + amount
        self._topology_cache.put_outside_usage(node, total)


def _key(pod: kube.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _usage(pod: kube.Pod) -> dict[str, int]:
    """Return what a running pod uses on its node, its pod slot included [TS3]."""
    return {**requests.in_amounts(requests.read(pod.spec).figure), amounts.PODS: 1}
