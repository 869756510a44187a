"""Topology-aware scheduling after admission: pods are ungated and bound to their nodes, and failed nodes are reported.

UngatingController     one Workload: its gated pods get the node labels of their domain, and the gate is removed
NodeController         one node: it is added to status.unhealthyNodes of its Workloads, or removed; pods that are
                       pinned to it and can never run there are failed

When a node is unhealthy for a Workload that is placed on it (the rule of Kueue's tas/node_controller):

    node                                       with TASReplaceNodeOnPodTermination           without
    deleted, or without a condition Ready      at once                                       at once
    not Ready                                  once none of its pods goes on there; with     30 s after it turned so
                                               TASReplaceNodeDueToNotReadyOverFixedTime
                                               at the latest 30 s after it turned so
    Ready, a NoSchedule or NoExecute taint     once none of its pods goes on there           at once
      that a pod set placed there does not
      tolerate (TASReplaceNodeOnNodeTaints)
    the same, tolerated for a time             once none of its pods goes on there           the same

Pods that are pinned to a node by its hostname, not scheduled, Pending and past the topology gate are failed where the
node ails while pods are looked at (all rows but those with "at once" without the gate), and where the Workload is
not placed on the node at all (stray pods, made late from a template of before a replacement). Workloads that are
finished or evicted are left alone, and so are their pods.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, parse_time
from pykueue.api import kube, kueue, labels, nodes, registry, topology_encoding
from pykueue.api.conditions import EvictedReason, PodConditionReason, PodConditionType
from pykueue.controllers import topology_ranks
from pykueue.controllers.informers import Informers
from pykueue.controllers.pod_failure import fail_pod
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.lifecycle import eviction, states, variants
from pykueue.lifecycle.workload_changes import Changes, EventType, SetUnhealthyNodes
from pykueue.observe.events import POD_TERMINATION, WORKLOADS, Reporter

POD: Final = registry.KUBERNETES.of(kube.Pod)

_POD_DELAY_SECONDS: Final = 1.0
_NODE_DELAY_SECONDS: Final = 0.1
_BEHIND_SECONDS: Final = 0.05
_BY_WORKLOAD: Final = "workload"
_BY_NODE: Final = "node"
_PINNED_TO_NODE: Final = "node that a pod waits for"
_BY_UNHEALTHY_NODE: Final = "unhealthy node"
_BY_SLICE_NAME: Final = "slice name"
_TAINTS: Final = frozenset({"NoSchedule", "NoExecute"})
# A node that is not Ready for less than this may come back; what happens then is in the table above.
_NOT_READY_NANOSECONDS: Final = 30 * SECOND
# Annotations of pods whose place was chosen by topology.
_TOPOLOGY: Final = (
    labels.PODSET_REQUIRED_TOPOLOGY,
    labels.PODSET_PREFERRED_TOPOLOGY,
    labels.PODSET_UNCONSTRAINED_TOPOLOGY,
    labels.PODSET_SLICE_REQUIRED_TOPOLOGY,
    labels.PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
)


# Called when a scheduling gate of a pod of a Workload was removed.
Passed: TypeAlias = Callable[[kueue.Workload, str], None]


class UngatingController:
    def __init__(
        self, client: ApiClient, informers: Informers, writer: WorkloadWriter, rng: random.Random, passed: Passed
    ) -> None:
        self._client = client
        self._passed = passed
        self._informers = informers
        self._writer = writer
        self._issued: dict[str, int] = {}  # pod's UID -> the revision at which its gate was removed
        self.loop: Controller[ObjectKey] = Controller("topology-gate", self._reconcile, rng, workers=4)
        informers.pods.add_index(_BY_WORKLOAD, _workload_words)
        informers.pods.add_handler(self._pod_seen)
        informers.workloads.add_index(_BY_SLICE_NAME, _slice_words, of="metadata.annotations")
        informers.workloads.add_handler(self._workload_seen)

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        # The pods of a job are those of its own Workload; a variant of that has none. Pods that are created later queue
        # it themselves, and most Workloads have none before they are admitted.
        new = change.new
        if new is not None and _is_placed(new) and variants.parent_of(new) is None:
            pods = self._informers.pods
            if any(True for word in _slice_words(new) for _ in pods.by_index(_BY_WORKLOAD, word)):
                self.loop.add(change.key)

    def _pod_seen(self, change: InformerEvent[kube.Pod]) -> None:
        pod = change.new or change.old
        if pod is None:
            return
        if change.new is None or not topology_ranks.is_gated(pod):
            self._issued.pop(pod.metadata.uid, None)
        if change.new is None or topology_ranks.is_gated(pod):
            # A pod always has the name of the first slice; the slice that has its placement may be a later one.
            for word in _workload_words(pod):
                for key, _ in self._informers.workloads.by_index(_BY_SLICE_NAME, word):
                    self.loop.queue.add_after(key, _POD_DELAY_SECONDS)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        workload = self._writer.current(key)
        if workload is None or not states.is_admitted(workload) or not _is_placed(workload):
            return None
        if states.is_finished(workload):
            return None  # a slice that was replaced keeps its assignment, which no longer counts
        assert workload.status.admission is not None
        lost = {node.name for node in workload.status.unhealthy_nodes}
        given = {assigned.name: assigned for assigned in workload.status.admission.pod_set_assignments}
        for pod_set in workload.spec.pod_sets:
            assigned = given.get(pod_set.name)
            if assigned is None or assigned.topology_assignment is None:
                continue
            pods = list(self._pods(key, workload, pod_set.name))
            if any(self._is_behind(pod) for pod in pods):
                return _BEHIND_SECONDS
            offset = topology_ranks.offset_of(pod_set, workload.spec.pod_sets)
            for pod, place in topology_ranks.places(pods, pod_set, assigned.topology_assignment, offset=offset):
                if lost.isdisjoint(place.values()):
                    await self._release(pod, place)
                    self._passed(workload, labels.TOPOLOGY_GATE)
        return None

    def _pods(self, key: ObjectKey, workload: kueue.Workload, pod_set: str) -> Iterator[kube.Pod]:
        """The pods of a pod set that have not ended, by name."""
        slice_name = workload.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, key.name)
        for _, pod in self._informers.pods.by_index(_BY_WORKLOAD, f"{key.namespace}/{slice_name}"):
            if pod.metadata.labels.get(labels.PODSET) == pod_set and not pod.status.has_ended:
                yield pod

    def _is_behind(self, pod: kube.Pod) -> bool:
        """Whether the informer has not seen yet that the gate of this pod was removed."""
        passed_at = self._issued.get(pod.metadata.uid)
        return passed_at is not None and int(pod.metadata.resource_version or 0) < passed_at

    async def _release(self, pod: kube.Pod, place: topology_ranks.Place) -> None:
        gates = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != labels.TOPOLOGY_GATE]
        patch = {
            "metadata": {"resourceVersion": pod.metadata.resource_version, "uid": pod.metadata.uid},
            "spec": {"schedulingGates": gates or None, "nodeSelector": dict(place)},
        }
        made = await self._client.patch_revision(POD, pod.metadata.name, patch, pod.metadata.namespace)
        self._issued[pod.metadata.uid] = int(made)


def _workload_words(pod: kube.Pod) -> tuple[str, ...]:
    """The Workload, or the chain of elastic slices, that a pod belongs to."""
    marks = pod.metadata.annotations
    name = marks.get(labels.WORKLOAD_SLICE_NAME) or marks.get(labels.WORKLOAD)
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


def _slice_words(workload: kueue.Workload) -> tuple[str, ...]:
    """The name under which pods look for a Workload: that of its first slice, or its own."""
    name = workload.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, workload.metadata.name)
    return (f"{workload.metadata.namespace}/{name}",)


def _is_placed(workload: kueue.Workload) -> bool:
    admission = workload.status.admission
    return admission is not None and any(
        assigned.topology_assignment is not None for assigned in admission.pod_set_assignments
    )


# --- Nodes that fail --------------------------------------------------------------------------------------------------


class NodeFailureOptions(msgspec.Struct, frozen=True):
    """The feature gates that decide when a node counts as failed."""

    on_pod_termination: bool = True
    on_taints: bool = True
    after_fixed_time: bool = False


class _Judgement(msgspec.Struct, frozen=True):
    """The state of a node for a Workload: whether it is lost, and whether pods that are pinned to it are failed."""

    is_lost: bool
    fails_pending: bool


class NodeController:
    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        writer: WorkloadWriter,
        reporter: Reporter,
        choices: NodeFailureOptions,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._informers = informers
        self._writer = writer
        self._reporter = reporter
        self._choices = choices
        self._clock = clock
        self.loop: Controller[str] = Controller("nodes", self._reconcile, rng)
        informers.workloads.add_index(_BY_NODE, _hosts, of="status.admission")
        informers.workloads.add_index(_BY_UNHEALTHY_NODE, _unhealthy, of="status.unhealthy_nodes")
        informers.pods.add_index(_PINNED_TO_NODE, lambda pod: _nodes_of_pod(pod) if _is_pinned(pod) else ())
        informers.nodes.add_handler(self._node_seen)
        informers.pods.add_handler(self._pod_seen)
        informers.workloads.add_handler(self._workload_seen)

    def _node_seen(self, change: InformerEvent[kube.Node]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or (_health(old), old.spec) != (_health(new), new.spec):
            self.loop.add(change.key.name)

    def _pod_seen(self, change: InformerEvent[kube.Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                for node in _nodes_of_pod(pod):
                    self.loop.queue.add_after(node, _NODE_DELAY_SECONDS)

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        """A placement that is new may be on a node that was lost while it was being decided; the one that it replaces
        may leave pods behind that are pinned to its nodes. A node may have recovered before the watch shows that the
        Workload lists it."""
        old, new = change.old, change.new
        if new is None:
            return
        if old is None or old.status.admission != new.status.admission:
            for node in _hosts(old) if old is not None else ():
                self.loop.add(node)
            for node in _hosts(new):
                if not self._is_healthy(self._informers.nodes.get(node)):
                    self.loop.add(node)
        if old is None or old.status.unhealthy_nodes != new.status.unhealthy_nodes:
            for node in _unhealthy(new):
                self.loop.add(node)

    async def _reconcile(self, name: str) -> float | None:
        node = self._informers.nodes.get(name)
        waits = self._may_come_back(node)
        if waits > 0 and not self._choices.on_pod_termination:
            return waits / SECOND
        # Many Workloads may be placed on a node. If it is healthy for all of them, only those that list it change.
        index = _BY_UNHEALTHY_NODE if self._is_healthy(node) else _BY_NODE
        pinned: dict[ObjectKey, list[kube.Pod]] = {
            key: [] for key, _ in self._informers.workloads.by_index(index, name)
        }
        for _, pod in self._informers.pods.by_index(_PINNED_TO_NODE, name):
            pinned.setdefault(ObjectKey(pod.metadata.namespace, pod.metadata.annotations[labels.WORKLOAD]), []).append(
                pod
            )
        for key in sorted(pinned):
            await self._judge(key, name, node, pinned[key])
        return waits / SECOND if waits > 0 and self._choices.after_fixed_time else None

    def _is_healthy(self, node: kube.Node | None) -> bool:
        """Whether a node is healthy for every Workload, whatever its pods tolerate."""
        if node is None or (ready := _ready(node)) is None:
            return False
        return ready.status == ConditionStatus.TRUE and not self._taints(node)

    def _may_come_back(self, node: kube.Node | None) -> int:
        """How long, in nanoseconds, a node that is not Ready may come back."""
        ready = _ready(node) if node is not None else None
        if ready is None or ready.status == ConditionStatus.TRUE:
            return 0
        since = ready.last_transition_time
        return 0 if since is None else parse_time(since) + _NOT_READY_NANOSECONDS - self._clock.now()

    async def _judge(self, key: ObjectKey, name: str, node: kube.Node | None, pinned: Sequence[kube.Pod]) -> None:
        async with self._writer.turn(key):
            workload, now = self._writer.current(key), self._clock.now()
            if workload is None or states.is_finished(workload) or states.is_evicted(workload):
                return
            if name not in _hosts(workload):
                # Pods of a chain of elastic slices are stray only for the slice that they name.
                found, why = _Judgement(False, True), f"is not among the nodes that Workload {key.name} is placed on"
            elif states.is_admitted(workload):
                found, why = self._judged(key, workload, name, node), "is lost"
                pinned = [pod for pod in self._pods(key, workload) if name in _nodes_of_pod(pod) and _is_pinned(pod)]
            else:
                return
            changes = _mark_unhealthy(workload, name, now) if found.is_lost else _forgotten(workload, name)
            if changes:
                await self._writer.workload(workload, changes, WORKLOADS, now)
            evicts = (
                found.is_lost and not any(isinstance(each, SetUnhealthyNodes) for each in changes) and bool(changes)
            )
        if found.fails_pending and not evicts:
            for pod in pinned:
                await self._end(pod, f"The node {name} that the pod is pinned to {why}")

    def _judged(self, key: ObjectKey, workload: kueue.Workload, name: str, node: kube.Node | None) -> _Judgement:
        """The state of a node for a Workload that is placed on it; see the table above."""
        if node is None or (ready := _ready(node)) is None:
            return _Judgement(True, True)
        goes_on = any(pod.spec.node_name == name and _goes_on(pod) for pod in self._pods(key, workload))
        after_its_pods = _Judgement(not goes_on, True)
        ailing = after_its_pods if self._choices.on_pod_termination else _Judgement(True, False)
        if ready.status != ConditionStatus.TRUE:
            is_over = self._choices.after_fixed_time and self._may_come_back(node) <= 0
            return _Judgement(True, True) if is_over else ailing
        taints = self._taints(node)
        borne = list(self._tolerations(workload, name))
        if any(not nodes.tolerated(taint, each) for taint in taints for each in borne):
            return ailing
        lasting = [[one for one in each if one.toleration_seconds is None] for each in borne]
        if any(not nodes.tolerated(taint, each) for taint in taints for each in lasting):
            return after_its_pods
        return _Judgement(False, False)

    def _taints(self, node: kube.Node) -> list[kube.Taint]:
        """The taints of a node that count: those that keep pods away, or end them."""
        return [taint for taint in node.spec.taints if taint.effect in _TAINTS] if self._choices.on_taints else []

    def _pods(self, key: ObjectKey, workload: kueue.Workload) -> Iterator[kube.Pod]:
        slice_name = workload.metadata.annotations.get(labels.WORKLOAD_SLICE_NAME, key.name)
        for _, pod in self._informers.pods.by_index(_BY_WORKLOAD, f"{key.namespace}/{slice_name}"):
            yield pod

    def _tolerations(self, workload: kueue.Workload, name: str) -> Iterator[list[kube.Toleration]]:
        """What the pods of each pod set on a node tolerate: by their template, their flavors and their checks."""
        assert workload.status.admission is not None
        written = {pod_set.name: pod_set.template.spec.tolerations for pod_set in workload.spec.pod_sets}
        for assigned in workload.status.admission.pod_set_assignments:
            if name not in _hosts_of(assigned) or assigned.name not in written:
                continue
            found = list(written[assigned.name])
            for flavor in map(self._informers.flavors.get, dict.fromkeys(assigned.flavors.values())):
                found += flavor.spec.tolerations if flavor is not None else ()
            for check in workload.status.admission_checks:
                for update in check.pod_set_updates:
                    found += update.tolerations if update.name == assigned.name else ()
            yield found

    async def _end(self, pod: kube.Pod, message: str) -> None:
        """Fail a pod that can never run on the node it is pinned to, so that it is replaced."""
        type, reason = PodConditionType.TERMINATED_BY_KUEUE, PodConditionReason.UNSCHEDULABLE_ON_ASSIGNED_NODE
        await fail_pod(self._client, pod, type, reason, message, self._clock.now())
        self._reporter.event(pod, EventType.NORMAL, "PodTerminatedByKueue", message, POD_TERMINATION)


def _hosts(workload: kueue.Workload) -> tuple[str, ...]:
    """The nodes that a Workload is placed on, where its placement goes down to nodes."""
    admission = workload.status.admission
    if admission is None:
        return ()
    return tuple(dict.fromkeys(node for assigned in admission.pod_set_assignments for node in _hosts_of(assigned)))


def _unhealthy(workload: kueue.Workload) -> tuple[str, ...]:
    """The nodes that a Workload lists as unhealthy."""
    return tuple(node.name for node in workload.status.unhealthy_nodes)


def _hosts_of(assigned: kueue.PodSetAssignment) -> tuple[str, ...]:
    """The nodes of one pod set."""
    assignment = assigned.topology_assignment
    if assignment is None or not assignment.levels or assignment.levels[-1] != labels.HOSTNAME:
        return ()
    return tuple(domain.values[-1] for domain in topology_encoding.domains_of(assignment))


def _nodes_of_pod(pod: kube.Pod) -> tuple[str, ...]:
    """The node that a pod of a placed Workload runs on, or is bound for."""
    if not _workload_words(pod):
        return ()
    name = pod.spec.node_name or pod.spec.node_selector.get(labels.HOSTNAME, "")
    return (name,) if name else ()


def _goes_on(pod: kube.Pod) -> bool:
    return not pod.status.has_ended and pod.metadata.deletion_timestamp is None


def _is_pinned(pod: kube.Pod) -> bool:
    """Whether a pod waits for the one node that its node selector names: placed by topology, past the gate, and not
    scheduled."""
    marks = pod.metadata.annotations
    waits = not pod.spec.node_name and not topology_ranks.is_gated(pod) and pod.status.phase in ("", "Pending")
    return waits and labels.WORKLOAD in marks and any(key in marks for key in _TOPOLOGY)


def _ready(node: kube.Node) -> kube.NodeCondition | None:
    return next((each for each in node.status.conditions if each.type == "Ready"), None)


def _health(node: kube.Node) -> tuple[tuple[str, str], ...]:
    return tuple((each.type, each.status) for each in node.status.conditions)


def _mark_unhealthy(workload: kueue.Workload, name: str, now: int) -> Changes:
    """One lost node is replaced; with a second one the Workload is evicted."""
    listed = _unhealthy(workload)
    if name in listed:
        return ()
    if listed:
        message = f"More nodes are lost than can be replaced: {', '.join((*listed, name))}"
        return eviction.evict(workload, EvictedReason.NODE_FAILURES, message, now)
    return (SetUnhealthyNodes((kueue.UnhealthyNode(name=name),)),)


def _forgotten(workload: kueue.Workload, name: str) -> Changes:
    kept = tuple(node for node in workload.status.unhealthy_nodes if node.name != name)
    return (SetUnhealthyNodes(kept),) if kept != workload.status.unhealthy_nodes else ()
