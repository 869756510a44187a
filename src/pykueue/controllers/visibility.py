"""The visibility API: pending Workloads, answered from the scheduler's state of this process and never stored.

rows(world, informers)                     what a server in this process is extended with
aggregated_api.handler(rows(...), admit)   the same behind the API server of a cluster
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from kubemachinery import meta, status
from kubemachinery.serving.views import QueryParameter, SubresourceView, VirtualResource
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.controllers.forecaster import Forecaster
from pykueue.controllers.informers import Informers
from pykueue.lifecycle import states
from pykueue.lifecycle.facts import LocalQueueFacts
from pykueue.observe import visibility
from pykueue.observe.visibility import GROUP, KIND, LIMIT, LIMIT_MAX, VERSIONS, QueuePosition
from pykueue.state.world import World

# (namespace, name, parameters) -> the document
Read: TypeAlias = Callable[[str, str, Mapping[str, int]], Tree]

_PARAMETERS: Final = {
    "offset": QueryParameter("How many to leave out before the first one.", default=0, maximum=2**31 - 1),
    "limit": QueryParameter(
        "How many to show at most; 0 for as many as usual.", default=LIMIT, minimum=-1, maximum=LIMIT_MAX
    ),
}


class _Lists(msgspec.Struct, frozen=True):
    world: World
    informers: Informers
    forecaster: Forecaster | None

    def of_cluster_queue(self, _: str, name: str, page: Mapping[str, int]) -> Tree:
        queue = self.world.queues.get(name)
        if queue is None:
            raise status.not_found(GROUP, "clusterqueues", name)
        return self._page(visibility.in_cluster_queue(queue), page)

    def of_local_queue(self, namespace: str, name: str, page: Mapping[str, int]) -> Tree:
        """Return the pending Workloads of a LocalQueue. A stopped one counts as absent; one without a ClusterQueue is
        empty."""
        local_queue = self.informers.local_queues.get(name, namespace)
        if local_queue is None or LocalQueueFacts.of(local_queue).is_stopped:
            raise status.not_found(GROUP, "localqueues", name)
        queue = self.world.queues.get(local_queue.spec.cluster_queue or "")
        return self._page(visibility.in_local_queue(queue, namespace, name) if queue is not None else (), page)

    def _page(self, places: Iterable[QueuePosition], page: Mapping[str, int]) -> Tree:
        offset, limit = page["offset"], max(0, page["limit"] or LIMIT)
        return visibility.summary(islice(places, offset, offset + limit), self._find, self._annotations)

    def _annotations(self, workload: kueue.Workload) -> dict[str, str]:
        """Return the forecast of the start, where one was made before. None is computed."""
        queue = self.informers.local_queues.get(workload.spec.queue_name or "", workload.metadata.namespace)
        if self.forecaster is None or queue is None:
            return {}
        found = self.forecaster.of_workload(states.key(workload), queue.spec.cluster_queue or "")
        times = {} if found is None else {labels.START_P50: found.p50, labels.START_P90: found.p90}
        return {name: meta.format_time(time) for name, time in times.items() if time is not None}

    def _find(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.partition("/")
        return self.informers.workloads.get(name, namespace)


def rows(world: World, informers: Informers, forecaster: Forecaster | None = None) -> tuple[VirtualResource, ...]:
    """Return both lists in both versions."""
    lists = _Lists(world, informers, forecaster)

    def shown(read: Read) -> Mapping[str, SubresourceView]:
        view = SubresourceView(kind=KIND, read=read, schema=visibility.summary_schema, parameters=_PARAMETERS)
        return {"pendingworkloads": view}

    of_cluster_queue, of_local_queue = shown(lists.of_cluster_queue), shown(lists.of_local_queue)
    return tuple(
        row
        for version in VERSIONS
        for row in (
            VirtualResource(
                group=GROUP,
                version=version,
                kind="ClusterQueue",
                plural="clusterqueues",
                namespaced=False,
                views=of_cluster_queue,
            ),
            VirtualResource(
                group=GROUP, version=version, kind="LocalQueue", plural="localqueues", views=of_local_queue
            ),
        )
    )
