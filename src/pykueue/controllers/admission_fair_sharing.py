"""Admission fair sharing: samples the usage of LocalQueues and writes it to their status.

The usage is kept and decays in the scheduler's state (`state.usage_history`); the status keeps it over a restart.
"""

from __future__ import annotations

from typing import Final

from kubemachinery.client.informer import InformerEvent
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from kubemachinery.quantity import Quantity, QuantityText
from pykueue.api import kueue
from pykueue.controllers.informers import Informers, queue_of
from pykueue.lifecycle import states
from pykueue.state.world import World

_BILLIONTH: Final = -9


class UsageSampler:
    def __init__(self, world: World, informers: Informers, clock: Clock) -> None:
        self._world = world
        self._informers = informers
        self._clock = clock
        self._sampled_at: dict[str, Nanoseconds] = {}
        if world.policy.usage_history is not None:
            informers.workloads.add_handler(self._workload_seen)

    def sample(
        self, local_queue: kueue.LocalQueue, *, is_active: bool
    ) -> tuple[kueue.AdmissionFairSharingStatus | None, float | None]:
        """Return what is written to the status, and in how many seconds the next sample is due; None if none is taken.

        As in Kueue, every active LocalQueue is sampled as soon as the Configuration has `admissionFairSharing`, also
        where its ClusterQueue has no `admissionScope`: so there is a history when the scope is turned on.
        """
        key = f"{local_queue.metadata.namespace}/{local_queue.metadata.name}"
        history, now = self._world.policy.usage_history, self._clock.now()
        if history is None or not is_active:
            return None, None
        interval = int(history.sampling_interval_seconds * SECOND)
        if not 0 <= now - self._sampled_at.get(key, -interval) < interval:
            self._world.sample_usage(key, self._world.local_queue_usage(key, local_queue.spec.cluster_queue or ""), now)
            self._sampled_at[key] = now
        last = self._sampled_at[key]
        consumed: dict[str, QuantityText] = {
            name: Quantity(amount, _BILLIONTH).canonical for name, amount in sorted(self._world.consumed(key).items())
        }
        status = kueue.AdmissionFairSharingStatus(consumed_resources=consumed, last_update=format_time(last))
        return status, (last + interval - now) / SECOND

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        """Turn the entry penalty into past usage at admission [AF6]; remove it if there is no admission [AF7]."""
        old, new = change.old, change.new
        workload = new or old
        if workload is None:
            return
        key, queue = str(change.key), queue_of(workload)
        if new is None or (not states.is_reserved(new) and (states.is_finished(new) or not states.is_active(new))):
            self._world.forgive_usage(queue, key)
        elif old is not None and queue_of(old) != queue:
            self._world.forgive_usage(queue_of(old), key)
        elif states.is_admitted(new) and (old is None or not states.is_admitted(old)) and states.is_active(new):
            cluster_queue = states.cluster_queue(new)
            if not change.initial and self._counts(cluster_queue):
                in_use = self._world.local_queue_usage(queue, cluster_queue)
                self._world.settle_usage(queue, key, in_use, self._clock.now())
                # Its next status shows the settled figures.
                self._sampled_at.pop(queue, None)

    def _counts(self, cluster_queue: str) -> bool:
        spec = self._world.queue_spec(cluster_queue)
        return spec is not None and spec.is_usage_based
