"""The gate FailureRecoveryPolicy: pods that hang while they are deleted on an unreachable node are deleted by force.

    a pod with the annotation safe-to-forcefully-delete: "true", deleted, its grace period over for a minute
        its node has the taint node.kubernetes.io/unreachable    failed, with a condition and an Event, and deleted
        any other node, or none                                  left alone, until its node gets the taint

The kubelet of such a node does not answer, so the pod would stay until the node returns, and its job could not replace
it. The process may still run there: therefore only pods that allow it are deleted.
"""

from __future__ import annotations

import random
from typing import Final

from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND, Nanoseconds, parse_time
from pykueue.api import kube, labels, registry
from pykueue.api.conditions import PodConditionReason, PodConditionType
from pykueue.controllers.informers import Informers
from pykueue.controllers.pod_failure import fail_pod
from pykueue.lifecycle.workload_changes import EventType
from pykueue.observe.events import POD_TERMINATION, Reporter

FORCED_AFTER_SECONDS: Final = 60

_POD: Final = registry.KUBERNETES.of(kube.Pod)
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_BY_NODE: Final = "node of a pod that may be deleted by force"


class FailureRecoveryController:
    """A key is a pod that is being deleted and allows force."""

    def __init__(
        self, client: ApiClient, informers: Informers, reporter: Reporter, clock: Clock, rng: random.Random
    ) -> None:
        self._client = client
        self._informers = informers
        self._reporter = reporter
        self._clock = clock
        self.loop: Controller[ObjectKey] = Controller("failure-recovery", self._reconcile, rng)
        informers.pods.add_index(_BY_NODE, lambda pod: (pod.spec.node_name,) if _allows_force(pod) else ())
        informers.pods.add_handler(self._pod_seen)
        informers.nodes.add_handler(self._node_seen)

    def _pod_seen(self, change: InformerEvent[kube.Pod]) -> None:
        if change.new is not None and _allows_force(change.new):
            self.loop.add(change.key)

    def _node_seen(self, change: InformerEvent[kube.Node]) -> None:
        if _is_unreachable(change.new) and not _is_unreachable(change.old):
            for key, _ in self._informers.pods.by_index(_BY_NODE, change.key.name):
                self.loop.add(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        pod = self._informers.pods.get(key.name, key.namespace)
        if pod is None or not _allows_force(pod):
            return None
        due = due_at(pod)
        if due > self._clock.now():
            return (due - self._clock.now()) / SECOND
        if not _is_unreachable(self._informers.nodes.get(pod.spec.node_name)):
            return None
        if not _is_marked(pod):
            await self._fail(pod)
        if pod.metadata.deletion_grace_period_seconds:
            await self._client.delete(_POD, key.name, key.namespace, uid=pod.metadata.uid, grace_seconds=0)
        return None

    async def _fail(self, pod: kube.Pod) -> None:
        """Give the pod its condition, and the phase Failed unless it has ended: its job may replace it from here on."""
        message = (
            f"Deleted by force {FORCED_AFTER_SECONDS} s after its grace period: node {pod.spec.node_name} is "
            f"unreachable, and the annotation {labels.SAFE_TO_FORCEFULLY_DELETE} allows it"
        )
        type, reason = PodConditionType.KUEUE_FAILURE_RECOVERY, PodConditionReason.KUEUE_FORCEFULLY_DELETED
        await fail_pod(self._client, pod, type, reason, message, self._clock.now())
        self._reporter.event(pod, EventType.WARNING, reason, message, POD_TERMINATION)


def due_at(pod: kube.Pod) -> Nanoseconds:
    """Return when a pod that is being deleted may be deleted by force. Its deletionTimestamp is the end of its grace
    period."""
    assert pod.metadata.deletion_timestamp is not None
    return parse_time(pod.metadata.deletion_timestamp) + FORCED_AFTER_SECONDS * SECOND


def _allows_force(pod: kube.Pod) -> bool:
    """Whether a pod is being deleted and allows force."""
    allows = pod.metadata.annotations.get(labels.SAFE_TO_FORCEFULLY_DELETE) == "true"
    return allows and pod.metadata.deletion_timestamp is not None


def _is_unreachable(node: kube.Node | None) -> bool:
    return node is not None and any(taint.key == _UNREACHABLE for taint in node.spec.taints)


def _is_marked(pod: kube.Pod) -> bool:
    """Whether the pod has its condition: its deletion had failed."""
    return any(each.type == PodConditionType.KUEUE_FAILURE_RECOVERY for each in pod.status.conditions)
