"""Decisions of the ReplicaSet controller: a ReplicaSet and its pods in; a status, pods to create and to delete out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.runner import replicas
from pykueue.runner.replicas import PodsPlan, ReplicaView

KIND: Final = Kind("apps", "ReplicaSet", "replicasets", (Version("v1", storage=True),))


def decide(tree: Tree, pods: Sequence[Tree], now: int) -> PodsPlan:
    """Return the plan for a ReplicaSet; `pods` are all pods that it owns."""
    owner = ObjectView(tree)
    active = [pod for pod in map(ReplicaView, pods) if pod.is_active]
    wanted = replicas.number(owner.spec, "replicas", 1)
    surplus = sorted(active, key=_worth)[max(wanted, 0) :]
    missing = 0 if owner.is_deleting else min(max(wanted - len(active), 0), replicas.AT_ONCE_MAX)
    ready, available, wait = replicas.counted(active, owner.spec, now)
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": available,
        "observedGeneration": owner.generation,
    }
    template = owner.spec.get("template")
    return PodsPlan(
        status,
        delete=tuple(pod.tree for pod in surplus),
        create=tuple(replicas.pod_of(owner, KIND, template, generateName=f"{owner.name}-") for _ in range(missing)),
        requeue_after_seconds=wait,
    )


def _worth(pod: ReplicaView) -> tuple[Any, ...]:
    """Sort key: those to keep first. Ready before not ready, running before waiting, older first."""
    return (not pod.is_ready, pod.phase != "Running", pod.creation_timestamp, pod.name)
