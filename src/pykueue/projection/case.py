"""The case of a run: typed objects, and the settings that they are decided under."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import Nanoseconds
from pykueue.api import kube, kueue, labels
from pykueue.core import requests
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.topology import PlacementOptions
from pykueue.lifecycle import facts, states
from pykueue.lifecycle.facts import LifecycleOptions
from pykueue.state.intake import WatchedObject
from pykueue.state.quota_windows import ScheduledWindows
from pykueue.state.world import World

_DEFAULT_NAMESPACE = "default"


class SchedulerCase(msgspec.Struct, frozen=True):
    """The objects of a scheduler, typed and complete, and the settings they are decided under."""

    objects: tuple[WatchedObject, ...]
    policy: SchedulingPolicy = msgspec.field(default_factory=SchedulingPolicy)
    accounting: requests.Accounting = requests.PLAIN
    profile: PlacementOptions | None = None
    lifecycle: LifecycleOptions = msgspec.field(default_factory=LifecycleOptions)
    windows: tuple[ScheduledWindows, ...] = ()  # of QuotaSchedules

    def world(self, now: Nanoseconds, *, explains: bool = True) -> World:
        """The scheduler's state after all objects were added. Workloads that have finished are left out."""
        world = World(self.policy, accounting=self.accounting, profile=self.profile, explains=explains)
        # Every server has this Namespace; one among the objects replaces it.
        default = meta.ObjectMeta(name=_DEFAULT_NAMESPACE, labels={labels.NAMESPACE_NAME: _DEFAULT_NAMESPACE})
        world.put(kube.Namespace(metadata=default), now)
        for thing in self.objects:
            if not isinstance(thing, kueue.Workload) or not states.is_finished(thing):
                world.put(thing, now)
        if self.windows:
            world.set_windows(self.windows, now)
        return world

    def workloads(self) -> Iterator[kueue.Workload]:
        return (thing for thing in self.objects if isinstance(thing, kueue.Workload))

    def with_objects(self, objects: Iterable[WatchedObject]) -> SchedulerCase:
        """The case with other objects and the same settings."""
        return replace(self, objects=tuple(objects))

    def within(self, cluster_queues: Collection[str]) -> SchedulerCase:
        """The case with the Workloads and queues of these ClusterQueues alone. Scheduling scopes do not affect each
        other, so for a whole scope the decisions are the same [RA5]."""
        local_queues = {
            (thing.metadata.namespace, thing.metadata.name): thing
            for thing in self.objects
            if isinstance(thing, kueue.LocalQueue)
        }

        def is_within(thing: WatchedObject) -> bool:
            match thing:
                case kueue.ClusterQueue():
                    return thing.metadata.name in cluster_queues
                case kueue.LocalQueue():
                    return thing.spec.cluster_queue in cluster_queues
                case kueue.Workload():
                    local = local_queues.get((thing.metadata.namespace, thing.spec.queue_name or ""))
                    return facts.cluster_queue_of(thing, local) in cluster_queues
            return True

        return self.with_objects(filter(is_within, self.objects))
