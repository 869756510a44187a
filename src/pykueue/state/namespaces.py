"""Which Workloads a ClusterQueue takes at all: those of the namespaces it selects (§1.10)."""

from __future__ import annotations

from collections.abc import Mapping

from pykueue.api import kube
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core.cycle import NominationRefusal
from pykueue.core.decision import Requeue
from pykueue.core.workload import WorkloadInfo
from pykueue.state.structure import Structure


class Namespaces:
    """The labels of every namespace, held against what ClusterQueues select."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._labels: dict[str, Mapping[str, str]] = {}

    def put(self, namespace: kube.Namespace) -> set[str] | None:
        """The ClusterQueues that take the namespace from now on; None where nothing in it has changed."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        before = self._labels.get(name)
        self._labels[name] = labels
        if before == labels:
            return None
        return {
            queue
            for queue, selector in self._structure.selectors.items()
            if selector.matches(labels) and (before is None or not selector.matches(before))
        }

    def drop(self, name: str) -> None:
        self._labels.pop(name, None)

    def are_right_for(self, workload: WorkloadInfo) -> bool:
        """Whether the Workload's queue is there and takes its namespace."""
        labels = self._labels.get(workload.namespace)
        selector = self._structure.selectors.get(workload.cluster_queue)
        return labels is not None and selector is not None and selector.matches(labels)

    def refusal(self, workload: WorkloadInfo) -> NominationRefusal | None:
        """Namespace, selector, and then the problem of its own that the Workload may have."""
        labels = self._labels.get(workload.namespace)
        if labels is None:
            return NominationRefusal(
                QuotaReservedReason.MISCONFIGURED, f'workload namespace "{workload.namespace}" does not exist'
            )
        selector = self._structure.selectors.get(workload.cluster_queue)
        if selector is not None and not selector.matches(labels):
            return NominationRefusal(
                QuotaReservedReason.MISCONFIGURED,
                "workload namespace doesn't match ClusterQueue selector",
                Requeue.NAMESPACE_MISMATCH,
            )
        if workload.shape.problem:
            return NominationRefusal(QuotaReservedReason.MISCONFIGURED, workload.shape.problem)
        return None
