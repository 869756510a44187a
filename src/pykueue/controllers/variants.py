"""Workloads that are tried on several flavors at once: a parent and its variants are kept by the policy of their
ClusterQueue (gate ConcurrentAdmission). `lifecycle.variants` decides, this writes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.errors import AlreadyExists
from kubemachinery.client.informer import InformerEvent, ObjectKey
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND
from pykueue.api import kueue, registry
from pykueue.controllers.informers import Informers
from pykueue.controllers.scheduler import Scheduler
from pykueue.controllers.workload_writer import WorkloadWriter, revision
from pykueue.lifecycle import states, variants
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.lifecycle.variants import ChangeMember, CreateVariant, FamilyPolicy
from pykueue.observe.events import CONCURRENT_ADMISSION

_WORKLOAD: Final = registry.KUEUE.of(kueue.Workload)
_BY_PARENT: Final = "parent"
_BEHIND_SECONDS: Final = 0.05


class VariantsController:
    """Creates, changes and deletes the variants of each parent of concurrent admission. A key is that of a parent."""

    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        writer: WorkloadWriter,
        scheduler: Scheduler,
        options: LifecycleOptions,
        clock: Clock,
        rng: random.Random,
        *,
        short_names: bool = False,
    ) -> None:
        self._client = client
        self._informers = informers
        self._writer = writer
        self._scheduler = scheduler
        self._options = options
        self._clock = clock
        self._short_names = short_names
        self.loop: Controller[ObjectKey] = Controller("concurrent-admission", self._reconcile, rng, workers=4)
        informers.workloads.add_index(_BY_PARENT, _parent_words)
        informers.workloads.add_handler(self._workload_seen)
        informers.cluster_queues.add_handler(self._cluster_queue_seen)
        informers.local_queues.add_handler(self._local_queue_seen)
        scheduler.applier.on_settled.append(self._settled)

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        for workload in (change.old, change.new):
            if workload is not None:
                self._add(change.key, workload)

    def _settled(self, key: ObjectKey) -> None:
        workload = self._writer.current(key)
        if workload is not None:
            self._add(key, workload)

    def _add(self, key: ObjectKey, workload: kueue.Workload) -> None:
        parent = variants.parent_of(workload)
        if parent is not None:
            self.loop.add(ObjectKey(key.namespace, parent.name))
        elif variants.is_parent(workload):
            self.loop.add(key)

    def _cluster_queue_seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        """Queue every parent of the ClusterQueue: an added or removed flavor adds or removes a variant."""
        old, new = (FamilyPolicy.of(each) if each is not None else None for each in (change.old, change.new))
        if old == new:
            return
        for key, _ in self._informers.workloads_of(change.key.name):
            workload = self._writer.current(key)
            if workload is not None and variants.is_parent(workload):
                self.loop.add(key)

    def _local_queue_seen(self, change: InformerEvent[kueue.LocalQueue]) -> None:
        """Queue every parent of a LocalQueue that was created, possibly for another ClusterQueue than before."""
        if change.old is not None and change.new is not None:
            return
        for key, workload in self._informers.workloads.by_index("queue", str(change.key)):
            if variants.is_parent(workload):
                self.loop.add(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        parent = self._writer.current(key)
        if parent is None or not variants.is_parent(parent):
            return None
        found = (
            self._writer.current(each)
            for each, _ in self._informers.workloads.by_index(_BY_PARENT, parent.metadata.uid)
        )
        family = [each for each in found if each is not None]
        cluster_queue = self._cluster_queue_of(parent, family)
        if cluster_queue is None:
            return None
        policy = FamilyPolicy.of(cluster_queue)
        now = self._clock.now()
        step = variants.decide(parent, family, policy, self._options, now, short_names=self._short_names)
        is_behind = False
        for action in step.actions:
            match action:
                case CreateVariant(variant, event):
                    with suppress(AlreadyExists):
                        await self._client.create(_WORKLOAD, codec.to_tree(variant))
                        self._writer.emit(parent, event, CONCURRENT_ADMISSION)
                case ChangeMember():
                    is_behind = not await self._apply(parent, action) or is_behind
        if is_behind:
            return _BEHIND_SECONDS
        return None if step.wake_at is None else max(0.0, (step.wake_at - now) / SECOND)

    def _cluster_queue_of(self, parent: kueue.Workload, family: Sequence[kueue.Workload]) -> kueue.ClusterQueue | None:
        """The ClusterQueue of the parent. While its LocalQueue is missing, that of a variant with quota: its end is not
        to wait for the LocalQueue."""
        members = (parent, *filter(states.is_reserved, family))
        named = next(filter(None, map(self._informers.cluster_queue_of, members)), "")
        return self._informers.cluster_queues.get(named)

    async def _apply(self, parent: kueue.Workload, action: ChangeMember) -> bool:
        """Write a change if the object is still the revision that was decided on; whether it was."""
        decided_on = action.workload
        key = ObjectKey(decided_on.metadata.namespace, decided_on.metadata.name)
        async with self._writer.turn(key):
            current = self._writer.current(key)
            if current is None:
                return True
            if revision(current) != revision(decided_on) or self._scheduler.world.is_assumed(states.key(current)):
                return False
            await self._writer.workload(current, action.changes, CONCURRENT_ADMISSION, self._clock.now())
            if action.event is not None:
                self._writer.emit(parent, action.event, CONCURRENT_ADMISSION)
            return True


def _parent_words(workload: kueue.Workload) -> tuple[str, ...]:
    parent = variants.parent_of(workload)
    return (parent.uid,) if parent is not None else ()
