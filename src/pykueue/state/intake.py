"""Event intake: watched API objects in, the parts of the World updated.

One table maps each kind to its handlers. Changes that shape cohort trees are only noted; the next query builds the
trees. Every change that is not a consequence of the scheduler's own decisions is reported to the preemption loop
detector here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, TypeVar

from kubemachinery.meta import Nanoseconds
from pykueue.api import backfill, kube, kueue, labels
from pykueue.core import topology
from pykueue.lifecycle import states
from pykueue.state import assumed, specs, workload_info
from pykueue.state.assumed import ReadOutcome
from pykueue.state.non_tas_usage import UsageDelta
from pykueue.state.parts import WorldParts
from pykueue.state.pending_index import QueueTarget
from pykueue.state.replaced_pods import PodLikeness

WatchedObject: TypeAlias = (
    kueue.Workload
    | kueue.ClusterQueue
    | kueue.Cohort
    | kueue.LocalQueue
    | kueue.ResourceFlavor
    | kueue.Topology
    | kueue.AdmissionCheck
    | kube.Namespace
    | kube.LimitRange
    | kube.RuntimeClass
    | kube.Node
    | kube.Pod
)
"""The kinds that scheduling depends on."""

T = TypeVar("T", bound=WatchedObject)


class Intake:
    """Applies watched objects to the parts of a World."""

    def __init__(self, parts: WorldParts) -> None:
        self._parts = parts
        self._policy = parts.policy
        self._structure = parts.structure
        self._pending = parts.pending
        self._scopes = parts.scopes
        self._consumed = parts.consumed
        self._shapes = parts.shapes
        self._assumed = parts.assumed
        self._reservations = parts.reservations
        self._loops = parts.loops

    def put(self, thing: WatchedObject, now: Nanoseconds) -> None:
        """Apply an object that was created or changed."""
        _handlers(thing).put(self, thing, now)

    def drop(self, thing: WatchedObject) -> None:
        """Apply the deletion of an object, given its last known state."""
        _handlers(thing).drop(self, thing)

    def _mark_changed(self, cluster_queue: str) -> None:
        """Report an outside change in one ClusterQueue. No decision depends on a ClusterQueue that does not exist."""
        if cluster_queue in self._structure.cluster_queues:
            self._loops.changed(cluster_queue)

    # ClusterQueues, cohorts and what they refer to.

    def _put_cluster_queue(self, cluster_queue: kueue.ClusterQueue, now: Nanoseconds) -> None:
        name = cluster_queue.metadata.name
        excluded = self._parts.excluded_by(name)
        if not self._structure.put_cluster_queue(cluster_queue):
            return
        self._loops.changed()
        if self._parts.excluded_by(name) != excluded:
            self._parts.outdated.update(self._pending.waiting_for(name))
        self._pending.open(name, now)
        self._scopes.release((name,))

    def _drop_cluster_queue(self, cluster_queue: kueue.ClusterQueue) -> None:
        name = cluster_queue.metadata.name
        self._loops.cluster_queue_deleted(name)
        self._parts.starts.forget(name)
        if self._parts.preemption_order is not None:
            self._parts.preemption_order.cluster_queue_deleted(name)
        self._scopes.release(self._structure.tree_queues(name))
        self._structure.drop_cluster_queue(name)
        self._pending.close(name)

    def _put_cohort(self, cohort: kueue.Cohort) -> None:
        if self._structure.put_cohort(specs.cohort_spec(cohort)):
            self._loops.changed()

    def _drop_cohort(self, cohort: kueue.Cohort) -> None:
        """Remove the cohort's quota and its place in the tree at once; Workloads of the tree may fit now (W13)."""
        self._loops.changed()
        self._scopes.release(self._structure.queues_under(cohort.metadata.name))
        self._structure.drop_cohort(cohort.metadata.name)

    def _put_flavor(self, flavor: kueue.ResourceFlavor) -> None:
        self._release_users(self._structure.put_flavor(flavor))

    def _drop_flavor(self, flavor: kueue.ResourceFlavor) -> None:
        self._release_users(self._structure.drop_flavor(flavor.metadata.name))

    def _put_topology(self, found: kueue.Topology) -> None:
        self._release_users(self._structure.put_topology(found))

    def _drop_topology(self, found: kueue.Topology) -> None:
        if self._structure.drop_topology(found.metadata.name):
            self._loops.changed()

    def _put_check(self, check: kueue.AdmissionCheck) -> None:
        self._release_users(self._structure.put_check(check))

    def _drop_check(self, check: kueue.AdmissionCheck) -> None:
        if self._structure.drop_check(check.metadata.name):
            self._loops.changed()

    def _release_users(self, queues: Iterable[str]) -> None:
        """Retry the inadmissible Workloads of the ClusterQueues that use a changed object, if there are any."""
        users = tuple(queues)
        if users:
            self._loops.changed()
            self._scopes.release(users)

    def _put_local_queue(self, local_queue: kueue.LocalQueue, now: Nanoseconds) -> None:
        key, spec = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}", local_queue.spec
        target = QueueTarget(spec.cluster_queue or "", spec.stop_policy != kueue.StopPolicy.NONE)
        if self._consumed is not None:
            self._consumed.weights[key] = specs.weight(spec.fair_sharing)
            past = specs.past_usage(local_queue)
            if past is None:
                self._consumed.seed(key, {}, now)
            else:
                self._consumed.seed(key, past.consumed, past.at or now)
            read = self._structure.read.get(target.cluster_queue)
            if read is None or read.spec.is_usage_based:  # in other queues a new sample changes no order
                self._scopes.invalidate(target.cluster_queue)
        if self._pending.put_local_queue(key, target, now):
            self._loops.changed()

    def _drop_local_queue(self, local_queue: kueue.LocalQueue) -> None:
        key = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}"
        self._loops.changed()
        self._pending.drop_local_queue(key)
        if self._consumed is not None:
            self._consumed.close(key)

    # Namespaces and what requests are computed from.

    def _put_namespace(self, namespace: kube.Namespace) -> None:
        newly_selected_by = self._parts.namespaces.put(namespace)
        if newly_selected_by is not None:
            self._scopes.release(newly_selected_by)
            self._invalidate_queues_of(namespace.metadata.name)

    def _drop_namespace(self, namespace: kube.Namespace) -> None:
        self._parts.namespaces.drop(namespace.metadata.name)
        self._invalidate_queues_of(namespace.metadata.name)

    def _invalidate_queues_of(self, namespace: str) -> None:
        """Retry the queues where Workloads of the namespace are pending: the selector may match, or not any more."""
        self._loops.changed()
        for queue in self._pending.targets(namespace):
            self._scopes.invalidate(queue)

    def _put_limit_range(self, limit_range: kube.LimitRange) -> None:
        self._shapes.put_limit_range(limit_range)
        self._parts.outdated.update(self._pending.waiting(limit_range.metadata.namespace))

    def _drop_limit_range(self, limit_range: kube.LimitRange) -> None:
        self._shapes.drop_limit_range(limit_range)
        self._parts.outdated.update(self._pending.waiting(limit_range.metadata.namespace))

    def _put_runtime_class(self, runtime_class: kube.RuntimeClass) -> None:
        self._shapes.put_runtime_class(runtime_class)
        self._parts.outdated.update(self._pending.waiting())

    def _drop_runtime_class(self, runtime_class: kube.RuntimeClass) -> None:
        self._shapes.drop_runtime_class(runtime_class)
        self._parts.outdated.update(self._pending.waiting())

    # Nodes and pods.

    def _put_node(self, node: kube.Node) -> None:
        if not self._policy.topology:
            return
        read = topology.topology_node_of(node)
        if read is None:
            self._drop_node(node)
        elif self._parts.snapshot.topology_cache.put_node(read):
            self._release_users(self._structure.topology_queues())

    def _drop_node(self, node: kube.Node) -> None:
        """Remove a node; Workloads that were to be placed on it may fit elsewhere now."""
        if self._parts.snapshot.topology_cache.drop_node(node.metadata.name):
            self._release_users(self._structure.topology_queues())

    def _put_pod(self, pod: kube.Pod) -> None:
        if self._policy.topology:
            self._apply_usage_delta(pod, self._parts.non_tas_usage.put(pod))

    def _drop_pod(self, pod: kube.Pod) -> None:
        self._apply_usage_delta(pod, self._parts.non_tas_usage.drop(pod))

    def _apply_usage_delta(self, pod: kube.Pod, delta: UsageDelta) -> None:
        if delta is UsageDelta.NONE:
            return
        # Only placements on this node depend on it. The pods of a Workload start and stop as a consequence of its
        # admission and eviction: were they outside changes, no loop of running Workloads would ever be found.
        flavors = self._parts.snapshot.topology_cache.flavors_of_node(pod.spec.node_name)
        queues = self._structure.topology_queues(flavors)
        is_outside = pod.metadata.labels.keys().isdisjoint((labels.PODSET, labels.MANAGED))
        for name in queues:
            if is_outside:
                self._loops.changed(name)
            self._scopes.invalidate(name)
        if delta is UsageDelta.RELEASED:
            self._scopes.release(queues)

    # Workloads.

    def _put_workload(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        key, revision, revisions = states.key(workload), workload.metadata.resource_version, self._parts.revisions
        if assumed.is_older(revision, revisions.get(key, "")):
            return  # a watch event older than a direct read must not undo what that read showed
        self._parts.outdated.discard(key)
        if key not in revisions and not self._replaces_pod(workload, now):
            self._mark_changed(self._parts.target_of(workload))
        is_new_revision = revisions.get(key) != revision
        revisions[key] = revision
        # A parent shows the admission of its variant; the variant holds the quota.
        holds_quota = workload_info.holds_quota(workload) and not workload_info.has_variants(workload, self._policy)
        if key in self._assumed:
            if states.is_finished(workload) or not states.is_active(workload):
                self._assumed.end(key)
            elif self._assumed.read(key, revision, shows_it=holds_quota) is ReadOutcome.KEEP:
                return  # older than our own write: the assumed reservation stands
        if holds_quota:
            self._parts.confirm_reservation(key)
            self._pending.forget(key)
            self._put_reservation(workload, now)
            return
        self._parts.forget_replaced(key)
        held = self._reservations.held.get(key)
        if held is not None:
            if not workload_info.was_preempted(workload, held) and not self._is_evicted_pod(workload):
                self._mark_changed(held.cluster_queue)
            self._parts.end_reservation(key)
        if workload_info.may_queue(workload, self._policy):
            was_pending = self._pending.pending(key) is not None
            self._put_pending(workload, now)
            if was_pending and is_new_revision:
                self._pending.count(key)
        elif self._pending.pending(key) is not None:
            self._mark_ended(workload)
            self._pending.forget(key)

    def _replaces_pod(self, workload: kueue.Workload, now: Nanoseconds) -> bool:
        """Whether a Workload that arrives is a pod that a controller created in place of a preempted one [LG3]."""
        if not self._loops.awaits_pods or not states.is_owned_by_single_pod(workload):
            return False
        key, queue = states.key(workload), workload.spec.queue_name or ""
        shape = self._shapes.shape(workload, self._parts.excluded_by(self._parts.target_of(workload)))
        return self._loops.replaces_pod(key, PodLikeness.of(key, queue, shape), now)

    def _mark_ended(self, workload: kueue.Workload) -> None:
        """Report the end of a Workload as an outside change, unless it is a consequence of its preemption."""
        key = states.key(workload)
        if self._parts.thrashing is not None:
            self._parts.thrashing.forget(key)
        if not self._is_evicted_pod(workload):
            self._mark_changed(self._parts.target_of(workload))

    def _is_evicted_pod(self, workload: kueue.Workload) -> bool:
        """Whether a Workload that ends is a pod that was preempted: another one may take its place [LG3]."""
        return states.is_owned_by_single_pod(workload) and self._loops.is_evicted_pod(states.key(workload))

    def _drop_workload(self, workload: kueue.Workload) -> None:
        key = states.key(workload)
        self._assumed.end(key)
        self._mark_ended(workload)
        self._parts.revisions.pop(key, None)
        self._parts.assumed_preemptors.pop(key, None)
        self._parts.forget_replaced(key)
        pending = self._pending.pending(key)
        if key in self._reservations.held:
            self._parts.end_reservation(key)
        elif pending is not None:
            self._scopes.release((self._pending.target(f"{pending.namespace}/{pending.local_queue}"),))
        self._pending.forget(key)
        self._loops.forget(key)

    def _put_pending(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        cluster_queue = self._parts.target_of(workload)
        shape = self._shapes.shape(workload, self._parts.excluded_by(cluster_queue))
        pending = workload_info.pending(workload, shape, cluster_queue, self._policy)
        before = self._pending.pending(pending.key)
        if before is not None and pending.differs_from(before):
            self._mark_changed(cluster_queue)
        self._pending.put(pending, now)
        if self._parts.planning is not None and self._policy.planned_backfill and before is None:
            text = workload.metadata.annotations.get(backfill.PLANNED_START)
            self._parts.planning.announced(pending.key, workload_info.time_of(text) or None)

    def _put_reservation(self, workload: kueue.Workload, now: Nanoseconds) -> None:
        shape = self._shapes.shape(workload, self._parts.excluded_by(self._parts.target_of(workload)))
        read = workload_info.reservation(workload, shape, self._policy)
        before = self._reservations.held.get(read.key)
        reservation = self._reservations.put(read)
        if before is not None and (before.usage != reservation.usage or before.priority != reservation.priority):
            self._mark_changed(before.cluster_queue)
        if workload_info.needs_second_pass(workload):
            head = workload_info.pending(workload, shape, reservation.cluster_queue, self._policy)
            self._parts.second_passes.put(head, reservation, now)
        else:
            self._parts.second_passes.end(reservation.key)


class _Handlers(NamedTuple):
    put: Callable[[Intake, Any, Nanoseconds], None]
    drop: Callable[[Intake, Any], None]


def _row(
    kind: type[T], put: Callable[[Intake, T, Nanoseconds], None], drop: Callable[[Intake, T], None]
) -> tuple[type, _Handlers]:
    """Build a row of the table whose handlers take the row's kind; mypy checks that."""
    return kind, _Handlers(put, drop)


def _timeless(put: Callable[[Intake, T], None]) -> Callable[[Intake, T, Nanoseconds], None]:
    """Adapt a handler that does not depend on the time."""
    return lambda intake, thing, now: put(intake, thing)


_HANDLERS: Final[Mapping[type, _Handlers]] = dict(
    (
        _row(kueue.Workload, Intake._put_workload, Intake._drop_workload),
        _row(kueue.ClusterQueue, Intake._put_cluster_queue, Intake._drop_cluster_queue),
        _row(kueue.Cohort, _timeless(Intake._put_cohort), Intake._drop_cohort),
        _row(kueue.LocalQueue, Intake._put_local_queue, Intake._drop_local_queue),
        _row(kueue.ResourceFlavor, _timeless(Intake._put_flavor), Intake._drop_flavor),
        _row(kueue.Topology, _timeless(Intake._put_topology), Intake._drop_topology),
        _row(kueue.AdmissionCheck, _timeless(Intake._put_check), Intake._drop_check),
        _row(kube.Namespace, _timeless(Intake._put_namespace), Intake._drop_namespace),
        _row(kube.LimitRange, _timeless(Intake._put_limit_range), Intake._drop_limit_range),
        _row(kube.RuntimeClass, _timeless(Intake._put_runtime_class), Intake._drop_runtime_class),
        _row(kube.Node, _timeless(Intake._put_node), Intake._drop_node),
        _row(kube.Pod, _timeless(Intake._put_pod), Intake._drop_pod),
    )
)


def _handlers(thing: object) -> _Handlers:
    found = _HANDLERS.get(type(thing))
    if found is None:
        raise TypeError(f"scheduling does not depend on objects of type {type(thing).__name__}")
    return found


def is_watched(thing: object) -> TypeGuard[WatchedObject]:
    """Whether `World.put` takes an object of this kind."""
    return type(thing) in _HANDLERS
