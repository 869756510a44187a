"""Which Workloads a ClusterQueue accepts: those of the namespaces that it selects [AM22]."""

from __future__ import annotations

from collections.abc import Mapping

from pykueue.api import kube
from pykueue.api.conditions import QuotaReservedReason
from pykueue.core.cycle import NominationRefusal
from pykueue.core.decision import Requeue
from pykueue.core.workload import WorkloadInfo
from pykueue.state.structure import Structure


class Namespaces:
    """The labels of every namespace, matched with the selectors of ClusterQueues."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._labels: dict[str, Mapping[str, str]] = {}

    def put(self, namespace: kube.Namespace) -> set[str] | None:
        """Put a namespace; return the ClusterQueues that newly select it, None if its labels did not change."""
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

    def accepts(self, workload: WorkloadInfo) -> bool:
        """Whether the Workload's ClusterQueue exists and selects its namespace."""
        labels = self._labels.get(workload.namespace)
        selector = self._structure.selectors.get(workload.cluster_queue)
        return labels is not None and selector is not None and selector.matches(labels)

    def refusal(self, workload: WorkloadInfo) -> NominationRefusal | None:
        """Return why a Workload cannot be nominated: its namespace, the selector, or a problem of its own shape."""
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
