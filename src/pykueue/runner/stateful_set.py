"""Decisions of the StatefulSet controller: a StatefulSet and its pods in; a status, pods to create and to delete out.

Pods have ordinals, and with policy OrderedReady each is created, and deleted, only when the others are ready. A new
template is rolled out from the highest ordinal down to `partition`. Not implemented: `volumeClaimTemplates`, and
ControllerRevisions: a pod below the partition that is created again has the new template, since the old one is not
stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubemachinery import unstructured
from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.runner import replicas
from pykueue.runner.replicas import PodsPlan, ReplicaView

KIND: Final = Kind("apps", "StatefulSet", "statefulsets", (Version("v1", storage=True),))
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
REVISION: Final = "controller-revision-hash"


def ignored(tree: Tree) -> str:
    """What of a StatefulSet has no effect here; empty if nothing is."""
    spec = ObjectView(tree).spec
    if unstructured.sequence(spec.get("volumeClaimTemplates")):
        return "spec.volumeClaimTemplates has no effect: this machine has no volumes for claims"
    if unstructured.get(spec, "updateStrategy", "rollingUpdate", "partition"):
        return "a pod below spec.updateStrategy.rollingUpdate.partition that is created again has the new template"
    return ""


def decide(tree: Tree, pods: Sequence[Tree], now: int) -> PodsPlan:
    """Return the plan for a StatefulSet; `pods` are all pods that it owns."""
    return _Set(tree, pods, now).plan()


class _Set:
    def __init__(self, tree: Tree, pods: Sequence[Tree], now: int) -> None:
        self._owner = ObjectView(tree)
        self._now = now
        spec = self._owner.spec
        start = unstructured.integer(unstructured.get(spec, "ordinals", "start")) or 0
        self._ordinals = range(start, start + replicas.number(spec, "replicas", 1))
        self._ordered = spec.get("podManagementPolicy") != "Parallel"
        self._revision = f"{self._owner.name}-{replicas.template_hash(spec.get('template'))}"
        found = {self._ordinal(pod): pod for pod in map(ReplicaView, pods)}
        self._pods = {ordinal: found[ordinal] for ordinal in sorted(found) if ordinal >= 0}

    def _ordinal(self, pod: ReplicaView) -> int:
        written = pod.name.removeprefix(f"{self._owner.name}-")
        return int(written) if written.isdigit() else -1

    def plan(self) -> PodsPlan:
        status, wait = self._status()
        create: list[Tree] = []
        delete: list[Tree] = []
        if not self._owner.is_deleting:
            settled = self._fill(create, delete)
            settled = settled and self._shrink(delete)
            if settled or not self._ordered:
                self._update(delete)
        return PodsPlan(status, tuple(delete), tuple(create), requeue_after_seconds=wait)

    def _fill(self, create: list[Tree], delete: list[Tree]) -> bool:
        """Create missing pods and replace ended ones; whether all of them are ready, or their order does not matter."""
        for ordinal in self._ordinals:
            pod = self._pods.get(ordinal)
            if pod is not None and pod.is_over and not pod.is_deleting:
                delete.append(pod.tree)
            elif pod is None:
                create.append(self._pod(ordinal))
                if len(create) == replicas.AT_ONCE_MAX:
                    return False
            elif pod.is_ready and not pod.is_deleting:
                continue
            if self._ordered:
                return False
        return not create and not delete

    def _shrink(self, delete: list[Tree]) -> bool:
        """Delete pods beyond the replicas, the highest first; whether there are none."""
        surplus = [self._pods[ordinal] for ordinal in reversed(self._pods) if ordinal not in self._ordinals]
        for pod in surplus:
            if not pod.is_deleting:
                delete.append(pod.tree)
            if self._ordered:
                break
        return not surplus

    def _update(self, delete: list[Tree]) -> None:
        """Delete one pod of an older revision, the highest first, once those above it are ready again."""
        strategy = unstructured.mapping(self._owner.spec.get("updateStrategy"))
        if strategy.get("type") == "OnDelete" or delete:
            return
        partition = unstructured.integer(unstructured.get(strategy, "rollingUpdate", "partition")) or 0
        for ordinal in reversed(self._ordinals):
            pod = self._pods.get(ordinal)
            if ordinal < partition or pod is None or pod.is_deleting:
                return
            if pod.labels.get(REVISION) != self._revision:
                delete.append(pod.tree)
                return
            if not pod.is_ready:
                return

    def _pod(self, ordinal: int) -> Tree:
        name = f"{self._owner.name}-{ordinal}"
        marks = {POD_NAME: name, labels.STATEFUL_SET_POD_INDEX: str(ordinal), REVISION: self._revision}
        tree = replicas.pod_of(self._owner, KIND, self._owner.spec.get("template"), name=name, labels=marks)
        tree["spec"]["hostname"] = name
        if service := unstructured.text(self._owner.spec.get("serviceName")):
            tree["spec"]["subdomain"] = service
        return tree

    def _status(self) -> tuple[Tree, float | None]:
        pods = list(self._pods.values())
        ready, available, wait = replicas.counted([pod for pod in pods if pod.is_active], self._owner.spec, self._now)
        current = unstructured.text(self._owner.status.get("currentRevision")) or self._revision
        of_current = sum(pod.labels.get(REVISION) == current for pod in pods)
        updated = sum(pod.labels.get(REVISION) == self._revision for pod in pods)
        if updated == len(pods) == ready == len(self._ordinals):
            current, of_current = self._revision, updated
        status: Tree = {
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": available,
            "currentReplicas": of_current,
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": self._revision,
            "observedGeneration": self._owner.generation,
        }
        return status, wait
