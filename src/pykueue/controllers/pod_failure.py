"""Pods that the manager fails: the phase and a condition with the reason, in one write."""

from __future__ import annotations

from typing import Final

from kubemachinery.client.client import STRATEGIC, ApiClient
from kubemachinery.meta import Nanoseconds, format_time
from pykueue.api import kube, registry
from pykueue.api.conditions import PodConditionReason, PodConditionType

POD: Final = registry.KUBERNETES.of(kube.Pod)


async def fail_pod(
    client: ApiClient,
    pod: kube.Pod,
    type: PodConditionType,
    reason: PodConditionReason,
    message: str,
    now: Nanoseconds,
) -> None:
    """Give the pod the condition, and the phase Failed unless it has ended: its job may replace it from here on."""
    condition = {
        "type": type,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now),
    }
    phase = {} if pod.status.has_ended else {"phase": "Failed"}
    patch = {
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {**phase, "conditions": [condition]},
    }
    name, namespace = pod.metadata.name, pod.metadata.namespace
    await client.patch_revision(POD, name, patch, namespace, subresource="status", content_type=STRATEGIC)
