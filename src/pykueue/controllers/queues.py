"""The status of ClusterQueues, LocalQueues and Cohorts.

A status counts pending Workloads and usage, so every Workload that changes state concerns two of them. Each is written
at most once a second, and every five seconds under load; in a rush all of them together are few (`background_writes`).
A change by users waits for none of that.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery import codec, meta, patches
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.client.priority import LOW
from kubemachinery.clock import Clock
from kubemachinery.kinds import Kind
from pykueue.api import kueue, registry
from pykueue.controllers.admission_fair_sharing import UsageSampler
from pykueue.controllers.informers import Informers
from pykueue.controllers.scheduler import Scheduler
from pykueue.core import amounts, fair_sharing
from pykueue.core.cohort import QuotaNode
from pykueue.core.workload import Reservation
from pykueue.lifecycle import queues
from pykueue.lifecycle.queues import QueueCounts, QuotaUsage, Usage

CLUSTER_QUEUE: Final = registry.KUEUE.of(kueue.ClusterQueue)
LOCAL_QUEUE: Final = registry.KUEUE.of(kueue.LocalQueue)
COHORT: Final = registry.KUEUE.of(kueue.Cohort)

_BATCH_SECONDS: Final = 1.0
_RUSH_BATCH_SECONDS: Final = 5.0
_RUSH: Final = 5  # changes between two statuses
_COUNTS: Final = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")

Queue: TypeAlias = kueue.ClusterQueue | kueue.LocalQueue | kueue.Cohort


class QueueReference(NamedTuple):
    """A ClusterQueue, a LocalQueue or a Cohort: a key of this controller."""

    kind: str
    key: ObjectKey

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@lru_cache(maxsize=4_096)
def _queue_reference(kind: str, name: str, namespace: str = "") -> QueueReference:
    """Made once for each queue: every event of a Workload concerns two of them."""
    return QueueReference(kind, ObjectKey(namespace, name))


class QueuesController:
    def __init__(
        self, client: ApiClient, informers: Informers, scheduler: Scheduler, clock: Clock, rng: random.Random
    ) -> None:
        self._client = client.low_priority()
        self._informers = informers
        self._scheduler = scheduler
        self._world = scheduler.world
        self._background = scheduler.applier.background
        self._clock = clock
        self._usage = UsageSampler(self._world, informers, clock)
        self._changes: Counter[QueueReference] = Counter()  # since the last status
        self._in_a_rush: set[QueueReference] = set()
        self._due: set[QueueReference] = set()  # those of `_enqueue_now`, until they are reconciled
        self.loop: Controller[QueueReference] = Controller("queues", self._reconcile, rng, workers=2)
        informers.workloads.add_handler(self._workload_seen)
        informers.cluster_queues.add_handler(self._cluster_queue_seen)
        informers.local_queues.add_handler(self._local_queue_seen)
        informers.cohorts.add_handler(self._cohort_seen)
        for informer in (informers.flavors, informers.checks, informers.topologies):
            informer.add_handler(self._reference_seen)

    # --- Events that add keys -----------------------------------------------------------------------------------------

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        # Of a change, most often both states have the same queues; each is counted once.
        counted: QueueReference | None = None
        for workload in (change.old, change.new):
            if workload is not None:
                reference = _queue_reference(
                    LOCAL_QUEUE.kind, workload.spec.queue_name or "", workload.metadata.namespace
                )
                if reference != counted:
                    self._enqueue_later(reference)
                    counted = reference
        for workload in (change.old, change.new):
            if workload is not None:
                reference = _queue_reference(CLUSTER_QUEUE.kind, self._informers.cluster_queue_of(workload))
                if reference != counted:
                    self._enqueue_later(reference)
                    self._enqueue_ancestors(reference.key.name)
                    counted = reference

    def _cluster_queue_seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        self._enqueue_object(QueueReference(CLUSTER_QUEUE.kind, change.key), change)
        old, new = change.old, change.new
        if old is None or new is None or old.status.conditions != new.status.conditions:
            for key, _ in self._informers.local_queues.by_index("clusterQueue", change.key.name):
                self._enqueue_now(QueueReference(LOCAL_QUEUE.kind, key))
        if old is None or new is None or old.spec != new.spec:
            self._enqueue_shares()

    def _local_queue_seen(self, change: InformerEvent[kueue.LocalQueue]) -> None:
        self._enqueue_object(QueueReference(LOCAL_QUEUE.kind, change.key), change)
        for queue in (change.old, change.new):
            if queue is not None:
                self._enqueue_later(QueueReference(CLUSTER_QUEUE.kind, ObjectKey("", queue.spec.cluster_queue or "")))

    def _cohort_seen(self, change: InformerEvent[kueue.Cohort]) -> None:
        self._enqueue_object(QueueReference(COHORT.kind, change.key), change)
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._enqueue_shares()
            self._reference_seen(change)

    def _reference_seen(self, change: InformerEvent[Any]) -> None:
        for key, _ in self._informers.cluster_queues.items():
            self._enqueue_later(QueueReference(CLUSTER_QUEUE.kind, key))

    def _enqueue_shares(self) -> None:
        """Add every ClusterQueue and Cohort: what a tree can lend changed, and with it the shares of its nodes."""
        if self._world.policy.is_fair:
            for key, _ in self._informers.cluster_queues.items():
                self._enqueue_later(QueueReference(CLUSTER_QUEUE.kind, key))
            for key, _ in self._informers.cohorts.items():
                self._enqueue_later(QueueReference(COHORT.kind, key))

    def _enqueue_ancestors(self, cluster_queue: str) -> None:
        if self._world.policy.is_fair:
            node = self._world.queue_node(cluster_queue)
            for cohort in node.ancestors if node is not None else ():
                self._enqueue_later(QueueReference(COHORT.kind, ObjectKey("", cohort.name)))

    def _enqueue_object(self, reference: QueueReference, change: InformerEvent[Any]) -> None:
        """Add the key of a changed object at once; with only a new status, most likely our own, it can wait."""
        old, new = change.old, change.new
        if old is not None and new is not None and _written_by_users(old) == _written_by_users(new):
            self._enqueue_later(reference)
        else:
            self._enqueue_now(reference)

    def _enqueue_now(self, reference: QueueReference) -> None:
        self._due.add(reference)
        self.loop.add(reference)

    def _enqueue_later(self, reference: QueueReference) -> None:
        self._changes[reference] += 1
        # Admissions come first: a status waits longer while there are many of them.
        if reference in self._in_a_rush or self._background.is_rush:
            if self._changes[reference] == 1:  # later changes find it in the queue, due not later than this
                self.loop.queue.add_after(reference, _RUSH_BATCH_SECONDS, priority=LOW)
        else:
            self.loop.queue.add_after(reference, _BATCH_SECONDS, priority=LOW)

    # --- What it does -------------------------------------------------------------------------------------------------

    async def _reconcile(self, reference: QueueReference) -> float | None:
        if reference not in self._due:
            await self._background.take()
        self._due.discard(reference)
        if self._changes.pop(reference, 0) > _RUSH:
            self._in_a_rush.add(reference)
        else:
            self._in_a_rush.discard(reference)
        now = self._clock.now()
        self._world.settle(now)
        match reference.kind:
            case CLUSTER_QUEUE.kind:
                cluster_queue = self._informers.cluster_queues.get(reference.key.name)
                if cluster_queue is not None:
                    counted = self._counted(cluster_queue)
                    status = queues.cluster_queue_status(cluster_queue, self._informers.references(), counted, now)
                    await self._write(CLUSTER_QUEUE, cluster_queue, status)
            case LOCAL_QUEUE.kind:
                local_queue = self._informers.local_queues.get(reference.key.name, reference.key.namespace)
                if local_queue is not None:
                    return await self._local_queue(local_queue)
            case COHORT.kind:
                cohort = self._informers.cohorts.get(reference.key.name)
                if cohort is not None:
                    share = self._share(self._world.cohort_node(reference.key.name))
                    await self._write(COHORT, cohort, queues.cohort_status(share))
        return None

    async def _local_queue(self, local_queue: kueue.LocalQueue) -> float | None:
        cluster_queue = self._informers.cluster_queues.get(local_queue.spec.cluster_queue or "")
        counted = self._counted_through(local_queue)
        is_active = queues.is_local_queue_active(local_queue, cluster_queue)
        consumed, again = self._usage.sample(local_queue, is_active=is_active)
        now = self._clock.now()
        status = queues.local_queue_status(local_queue, cluster_queue, counted, now, consumed=consumed)
        await self._write(LOCAL_QUEUE, local_queue, status)
        return again

    async def _write(self, kind: Kind, thing: Queue, status: msgspec.Struct) -> None:
        if status == thing.status:
            return
        changed = patches.make_merge(codec.to_tree(thing.status), codec.to_tree(status))
        if not isinstance(status, kueue.CohortStatus):
            # Zeros are written: users and programs wait for a count to become 0, and absent is not 0.
            changed |= {name: codec.to_tree(status).get(name, 0) for name in _COUNTS}
        patch = {"metadata": {"resourceVersion": thing.metadata.resource_version}, "status": changed}
        metadata: meta.ObjectMeta = thing.metadata
        await self._client.patch_revision(kind, metadata.name, patch, metadata.namespace, subresource="status")

    # --- Counting -----------------------------------------------------------------------------------------------------

    def _counted(self, cluster_queue: kueue.ClusterQueue) -> QueueCounts:
        name = cluster_queue.metadata.name
        held = list(self._world.reservations_in(name))
        node = self._world.queue_node(name)
        waiting = self._world.queues.get(name)
        return replace(
            _taken(held, node),
            pending=waiting.pending_count if waiting is not None else 0,
            weighted_share=self._share(node),
        )

    def _counted_through(self, local_queue: kueue.LocalQueue) -> QueueCounts:
        key = ObjectKey(local_queue.metadata.namespace, local_queue.metadata.name)
        held = [
            reservation
            for reservation in self._world.reservations_in(local_queue.spec.cluster_queue or "")
            if reservation.local_queue == key.name and reservation.key.startswith(f"{key.namespace}/")
        ]
        return replace(_taken(held, None), pending=self._world.pending_count(str(key)))

    def _share(self, node: QuotaNode | None) -> float | None:
        if not self._world.policy.is_fair:
            return None
        share = fair_sharing.dominant_resource_share(node) if node is not None else fair_sharing.ZERO_SHARE
        return math.inf if share.is_boundless else share.rank[1]


def _written_by_users(queue: Queue) -> tuple[object, ...]:
    return queue.spec, queue.metadata.deletion_timestamp, queue.metadata.finalizers


def _taken(held: Iterable[Reservation], node: QuotaNode | None) -> QueueCounts:
    """Return the usage of all reservations and of admitted ones, with what is borrowed from the cohort."""
    reservations = list(held)
    admitted = [reservation for reservation in reservations if reservation.admitted]
    return QueueCounts(
        reserving=len(reservations),
        admitted=len(admitted),
        reservation=_usage(reservations, node),
        usage=_usage(admitted, node),
    )


def _usage(held: list[Reservation], node: QuotaNode | None) -> Usage:
    total: dict[tuple[str, str], int] = {}
    for reservation in held:
        for pair, amount in reservation.usage:
            total[pair.flavor, pair.resource] = amounts.add(total.get((pair.flavor, pair.resource), 0), amount)
    return {
        (flavor, resource): QuotaUsage(
            _text(resource, amount), _text(resource, _borrowed(node, flavor, resource, amount))
        )
        for (flavor, resource), amount in total.items()
    }


def _borrowed(node: QuotaNode | None, flavor: str, resource: str, amount: int) -> int:
    if node is None or node.parent is None:
        return 0
    return max(0, amounts.subtract(amount, node.subtree[node.tree.number(flavor, resource)]))


def _text(resource: str, amount: int) -> str:
    return amounts.as_quantity(resource, amount).canonical
