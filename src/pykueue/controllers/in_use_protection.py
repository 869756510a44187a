"""Keeps objects that others refer to: the finalizer of queues, flavors, checks and topologies.

There is no timer: whenever an object that may have been the last user is deleted or changes, what it referred to is
reconciled. A user may remove the finalizer of a flavor or a check, to delete it although it is in use: it is set when
the object is created, and when a manager starts, and not again at a later change [OC6].
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import Informer, InformerEvent
from pykueue.api import kueue
from pykueue.controllers.informers import Informers
from pykueue.controllers.scheduler import Scheduler
from pykueue.lifecycle import queues


class _Kept(msgspec.Struct, frozen=True):
    """A kind of which objects are kept: its informer, and whether an object is in use."""

    objects: Informer[Any]
    is_used: Callable[[str], bool]
    # Whether a change of an object that is not being deleted leaves its finalizers as they are.
    is_set_once: bool = False


class InUseController:
    def __init__(
        self, client: ApiClient, informers: Informers, scheduler: Scheduler, rng: random.Random, *, topology: bool
    ) -> None:
        self._client = client
        self._informers = informers
        self._kept: dict[str, _Kept] = {
            "ClusterQueue": _Kept(
                informers.cluster_queues, lambda name: any(True for _ in scheduler.world.reservations_in(name))
            ),
            "ResourceFlavor": _Kept(
                informers.flavors,
                lambda name: any(name in flavors_of(queue) for queue in informers.cluster_queues.values()),
                is_set_once=True,
            ),
            "AdmissionCheck": _Kept(
                informers.checks,
                lambda name: any(name in checks_of(queue) for queue in informers.cluster_queues.values()),
                is_set_once=True,
            ),
        }
        if topology:
            self._kept["Topology"] = _Kept(
                informers.topologies,
                lambda name: any(name == flavor.spec.topology_name for flavor in informers.flavors.values()),
            )
        self.loop: Controller[tuple[str, str]] = Controller("in-use", self._reconcile, rng)
        for kind, kept in self._kept.items():
            kept.objects.add_handler(self._adder(kind, is_set_once=kept.is_set_once))
        informers.workloads.add_handler(self._workload_seen)
        informers.cluster_queues.add_handler(self._cluster_queue_seen)
        informers.flavors.add_handler(self._flavor_seen)

    def _adder(self, kind: str, *, is_set_once: bool) -> Callable[[InformerEvent[Any]], None]:
        def add(change: InformerEvent[Any]) -> None:
            is_created = change.old is None
            is_deleting = change.new is None or change.new.metadata.deletion_timestamp is not None
            if is_created or is_deleting or not is_set_once:
                self.loop.add((kind, change.key.name))

        return add

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        admission = change.old.status.admission if change.old is not None else None
        if admission is not None:
            # One that is not being deleted keeps its finalizer, whether quota is reserved in it or not.
            cluster_queue = self._informers.cluster_queues.get(admission.cluster_queue)
            if cluster_queue is not None and cluster_queue.metadata.deletion_timestamp is not None:
                self.loop.add(("ClusterQueue", admission.cluster_queue))

    def _cluster_queue_seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        if change.old is None:
            return
        for kind, named in (("ResourceFlavor", flavors_of), ("AdmissionCheck", checks_of)):
            left = named(change.new) if change.new is not None else frozenset()
            for name in sorted(named(change.old) - left):
                self.loop.add((kind, name))

    def _flavor_seen(self, change: InformerEvent[kueue.ResourceFlavor]) -> None:
        if change.old is not None and change.old.spec.topology_name and "Topology" in self._kept:
            self.loop.add(("Topology", change.old.spec.topology_name))

    async def _reconcile(self, which: tuple[str, str]) -> None:
        kind, name = which
        kept = self._kept[kind]
        thing = kept.objects.get(name)
        if thing is None:
            return
        metadata: meta.ObjectMeta = thing.metadata
        wanted = queues.finalizers(metadata, is_used=kept.is_used(name))
        if wanted != metadata.finalizers:
            patch = {"metadata": {"finalizers": list(wanted) or None, "resourceVersion": metadata.resource_version}}
            await self._client.patch_revision(kept.objects.kind, name, patch)


def flavors_of(cluster_queue: kueue.ClusterQueue) -> frozenset[str]:
    return frozenset(flavor.name for group in cluster_queue.spec.resource_groups for flavor in group.flavors)


def checks_of(cluster_queue: kueue.ClusterQueue) -> frozenset[str]:
    strategy = cluster_queue.spec.admission_checks_strategy
    return frozenset(rule.name for rule in strategy.admission_checks) if strategy is not None else frozenset()
