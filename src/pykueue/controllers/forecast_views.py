"""The views `forecast` of the API `views.pykueue.io`: when pending Workloads are expected to start.

clusterqueues/forecast  all pending Workloads of a ClusterQueue
localqueues/forecast    those of a LocalQueue; Workloads of other namespaces are not named
workloads/forecast      one Workload; the same
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubemachinery import codec, status
from kubemachinery.serving.views import QueryParameter, ReadDocument, SubresourceView, VirtualResource
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, schema
from pykueue.controllers.forecaster import Forecaster, ForecastFailed
from pykueue.controllers.informers import Informers
from pykueue.history.documents import GROUP, VERSION
from pykueue.lifecycle import states
from pykueue.projection import documents

_PARAMETERS: Final = {
    "thorough": QueryParameter("1 to compute it now, with ten times the effort.", default=0, maximum=1)
}


class _Forecasts:
    def __init__(self, forecaster: Forecaster, informers: Informers) -> None:
        self._forecaster = forecaster
        self._informers = informers

    async def of_cluster_queue(self, _: str, name: str, given: Mapping[str, int]) -> Tree:
        if self._informers.cluster_queues.get(name) is None:
            raise status.not_found(GROUP, "clusterqueues", name)
        return await self._read(name, given, lambda workload: True, lambda key: True, name)

    async def of_local_queue(self, namespace: str, name: str, given: Mapping[str, int]) -> Tree:
        found = self._informers.local_queues.get(name, namespace)
        if found is None:
            raise status.not_found(GROUP, "localqueues", name)

        def is_in_queue(workload: kueue.Workload) -> bool:
            return workload.metadata.namespace == namespace and workload.spec.queue_name == name

        return await self._read(found.spec.cluster_queue or "", given, is_in_queue, _within(namespace), name)

    async def of_workload(self, namespace: str, name: str, given: Mapping[str, int]) -> Tree:
        workload = self._informers.workloads.get(name, namespace)
        if workload is None:
            raise status.not_found(GROUP, "workloads", name)
        local_queue = self._informers.local_queues.get(workload.spec.queue_name or "", namespace)
        cluster_queue = local_queue.spec.cluster_queue or "" if local_queue is not None else ""

        def is_it(other: kueue.Workload) -> bool:
            return states.key(other) == states.key(workload)

        return await self._read(cluster_queue, given, is_it, _within(namespace), name)

    async def _read(
        self,
        cluster_queue: str,
        given: Mapping[str, int],
        shows: Callable[[kueue.Workload], bool],
        may_name: Callable[[str], bool],
        name: str,
    ) -> Tree:
        try:
            found = await self._forecaster.of(cluster_queue, is_thorough=bool(given["thorough"]))
        except ForecastFailed as error:
            # Not 503: clients repeat such a request, and each attempt may take a minute again.
            raise status.StatusError(500, "InternalError", f"there is no forecast: {error}") from None

        def is_shown(key: str) -> bool:
            namespace, _, workload_name = key.partition("/")
            workload = self._informers.workloads.get(workload_name, namespace)
            return workload is not None and self._is_of(workload, cluster_queue) and shows(workload)

        made = documents.document(
            found.answer.result, found.answer.assumes, warning=found.warning, shows=is_shown, may_name=may_name
        )
        return {"metadata": {"name": name}, **codec.to_tree(made)}

    def _is_of(self, workload: kueue.Workload, cluster_queue: str) -> bool:
        queue = self._informers.local_queues.get(workload.spec.queue_name or "", workload.metadata.namespace)
        return queue is not None and queue.spec.cluster_queue == cluster_queue


def _within(namespace: str) -> Callable[[str], bool]:
    return lambda key: key.startswith(f"{namespace}/")


def rows(forecaster: Forecaster | None, informers: Informers) -> tuple[VirtualResource, ...]:
    """Return the resources; none with the gate off."""
    if forecaster is None:
        return ()
    made = _Forecasts(forecaster, informers)

    def resource(kind: str, plural: str, read: ReadDocument, *, namespaced: bool = True) -> VirtualResource:
        view = SubresourceView(
            kind="Forecast",
            read=read,
            schema=lambda: schema.of_type(documents.ForecastDocument),
            parameters=_PARAMETERS,
        )
        return VirtualResource(
            group=GROUP,
            version=VERSION,
            kind=kind,
            plural=plural,
            namespaced=namespaced,
            views={documents.FORECAST: view},
        )

    return (
        resource("ClusterQueue", "clusterqueues", made.of_cluster_queue, namespaced=False),
        resource("LocalQueue", "localqueues", made.of_local_queue),
        resource("Workload", "workloads", made.of_workload),
    )
