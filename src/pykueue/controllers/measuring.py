"""The metrics of a manager: who tells them what happened, and where they read what is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pykueue.api import conditions, kueue
from pykueue.api.conditions import FinishedReason, Status, WorkloadCondition
from pykueue.controllers.views import Views
from pykueue.kube.informer import Change as News
from pykueue.lifecycle import ending, states
from pykueue.lifecycle.change import Change, Finished
from pykueue.observe.gauges import Gauges, Requests, Sources
from pykueue.observe.metrics import Choices, Metrics
from pykueue.state.world import World


class Measures:
    """Counts what the controllers write and decide; `metrics.exposition()` also reads the memory and the copies."""

    def __init__(self, choices: Choices, world: World, views: Views, requests: Requests = dict) -> None:
        self._world = world
        self._views = views
        self.metrics = Metrics(choices, counts_tenant=self._counts_tenant, ancestors=self._ancestors)
        sources = Sources(
            world, views.cluster_queues.values, views.local_queues.values, views.cohorts.values, requests=requests
        )
        self._gauges = Gauges(self.metrics, sources, self._counts_tenant)
        views.workloads.subscribe(self._workload_seen)
        views.cluster_queues.subscribe(self._cluster_queue_seen)
        views.local_queues.subscribe(self._local_queue_seen)

    def written(self, workload: kueue.Workload, changes: Sequence[Change]) -> None:
        """What was written about a Workload. Its end is counted when it is seen: others may write that too."""
        self.metrics.changes(workload, [change for change in changes if not isinstance(change, Finished)])

    def _workload_seen(self, news: News[kueue.Workload]) -> None:
        old, new = news.old, news.new
        self._gauges.workload_seen(old, new)
        if old is None or new is None or states.is_finished(old):
            return
        over = conditions.find(new.status.conditions, WorkloadCondition.FINISHED)
        if over is not None and over.status == Status.TRUE:
            at = states.since(new, WorkloadCondition.FINISHED) or 0
            # Which end it was makes no difference to the figures but one.
            ended = ending.finish(old, FinishedReason.SUCCEEDED, "", at)
            self.metrics.changes(new, [change for change in ended if isinstance(change, Finished)])
            if over.reason == FinishedReason.WORKLOAD_SLICE_REPLACED:
                self.metrics.slice_replaced(states.cluster_queue(old))

    def _counts_tenant(self, namespace: str, name: str) -> bool:
        """Whether a LocalQueue is there, and chosen by its labels to have series of its own."""
        found = self._views.local_queues.get(name, namespace)
        return found is not None and self.metrics.choices.tenants.matches(found.metadata.labels)

    def _ancestors(self, cluster_queue: str) -> Iterable[str]:
        node = self._world.structure.node(cluster_queue)
        return [above.name for above in node.ancestors] if node is not None else []

    def _cluster_queue_seen(self, news: News[Any]) -> None:
        if news.new is None:
            self.metrics.forget_cluster_queue(news.key.name)

    def _local_queue_seen(self, news: News[Any]) -> None:
        if news.new is None or not self._counts_tenant(news.key.namespace, news.key.name):
            self.metrics.forget_local_queue(news.key.namespace, news.key.name)
