"""The metrics of a manager: what is counted on events, and where gauges are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kubemachinery import conditions, meta, unstructured
from kubemachinery.client.informer import InformerEvent as News
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import Nanoseconds
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.api.config import MetricLabelSource
from pykueue.controllers import elastic
from pykueue.controllers.informers import Informers
from pykueue.jobs import pod, triggers, ungating
from pykueue.jobs.actions import CreateWorkload, ReplaceObject
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.pod import PodView
from pykueue.lifecycle import eviction, finishing, states
from pykueue.lifecycle.workload_changes import Admitted, Change, Finished, Released, Reserved
from pykueue.observe.gauges import Gauges, GaugeSources, Requests
from pykueue.observe.metrics import Metrics, MetricsOptions
from pykueue.state import troubles
from pykueue.state.troubles import StarvationRules
from pykueue.state.world import World

_USES_QUOTA: Final = (Reserved, Admitted, Released)
_COUNTED_BY_WATCH: Final = (Finished, Released)


class ManagerMetrics:
    """Counts what the controllers write and decide; `metrics.exposition()` also reads state and informers."""

    def __init__(
        self, options: MetricsOptions, world: World, informers: Informers, clock: Clock, requests: Requests = dict
    ) -> None:
        self._world = world
        self._informers = informers
        self._clock = clock
        # How many kinds of each enabled framework are not served.
        self.waiting_frameworks: Callable[[], Mapping[str, int]] = dict
        # When a Workload counts as starving.
        self.starvation_rules: Callable[[], StarvationRules] = StarvationRules
        # The share of its Budget that a group has spent, of the fullest groups.
        self.budget_ratios: Callable[[], Iterable[tuple[str, str, float]]] = tuple
        # The waits of the last forecasts, and how often their P90 was right.
        self.forecast_waits: Callable[[], Iterable[tuple[str, str, float]]] = tuple
        self.forecast_coverage: Callable[[], Iterable[tuple[str, float]]] = tuple
        self.forecast_size_coverage: Callable[[], Iterable[tuple[str, str, float]]] = tuple
        self.metrics = Metrics(
            options, has_series=self._has_series, ancestors=self._ancestors, metadata_of=self._metadata_of
        )
        sources = GaugeSources(
            world,
            informers.cluster_queues.values,
            informers.local_queues.values,
            informers.cohorts.values,
            requests=requests,
            waiting_frameworks=lambda: self.waiting_frameworks(),
            budget_ratios=lambda: self.budget_ratios(),
            forecast_waits=lambda: self.forecast_waits(),
            forecast_coverage=lambda: self.forecast_coverage(),
            forecast_size_coverage=lambda: self.forecast_size_coverage(),
            workload=self._workload,
            starving=lambda name: troubles.starving_count(world, name, clock.now(), self.starvation_rules()),
            oldest_pending_seconds=lambda name: troubles.oldest_pending_seconds(world, name, clock.now()),
        )
        self._gauges = Gauges(self.metrics, sources, self._has_series)
        informers.workloads.add_handler(self._workload_seen)
        informers.cluster_queues.add_handler(self._cluster_queue_seen)
        informers.local_queues.add_handler(self._local_queue_seen)
        informers.cohorts.add_handler(self._cohort_seen)

    def job_action(self, row: JobIntegration, action: CreateWorkload | ReplaceObject, after: Tree) -> None:
        """Observe an action of the job reconciler: Workload creation latency, and how long pods were gated."""
        match action:
            case CreateWorkload(_, job) if ObjectView(job).generation <= 1:
                created = ObjectView(after)
                queue = unstructured.text(created.spec.get("queueName"))
                latency = _created(created) - _created(ObjectView(job))
                self.metrics.workload_created(row.kind.kind, latency, created.namespace, queue)
            case ReplaceObject(kind, before) if kind == pod.KIND:
                gated = PodView(before)
                for gate in sorted(gated.gates - PodView(after).gates):
                    is_elastic = gate == labels.ELASTIC_JOB_GATE
                    workload = self._active_slice(before) if is_elastic else self._workload_of(gated)
                    if workload is not None:
                        self.gate_removed(workload, gate)

    def gate_removed(self, workload: kueue.Workload, gate: str) -> None:
        """Observe that a scheduling gate of a Workload's pod was removed."""
        since = states.since(workload, WorkloadCondition.ADMITTED)
        if states.is_admitted(workload) and since is not None:
            is_group = workload.metadata.annotations.get(labels.IS_GROUP_WORKLOAD) == "true"
            waited = self._clock.now() - since
            self.metrics.gate_removed(gate, states.cluster_queue(workload), waited, is_group=is_group)

    def _workload_of(self, view: PodView) -> kueue.Workload | None:
        """Return the Workload of a pod: the one it names, that of its group, or its own."""
        namespace, name, annotations = view.namespace, view.name, view.annotations
        group = view.labels.get(labels.POD_GROUP_NAME, "")
        named = annotations.get(labels.WORKLOAD) or annotations.get(labels.POD_GROUP_NAME) or group
        if named:
            return self._informers.workloads.get(named, namespace)
        owned = self._informers.workloads.by_index(triggers.OWNER, triggers.owner_key(pod.KIND, namespace, name))
        return next((workload for _, workload in owned), None)

    def _active_slice(self, member: Tree) -> kueue.Workload | None:
        """Return the slice that has a place for a pod. The pod may name an earlier one: its template is that with which
        the job started."""
        found = (
            workload
            for key in ungating.slice_keys(member)
            for _, workload in self._informers.workloads.by_index(elastic.SLICES, key)
        )
        return ungating.active_slice(found)

    def written(self, workload: kueue.Workload, changes: Sequence[Change]) -> None:
        """Observe changes that were written to a Workload.

        Its end and the release of its quota are counted by the watch, because other clients may write them.
        """
        counted: list[Change] = []
        for change in changes:
            if isinstance(change, _USES_QUOTA):
                for cohort in self._ancestors(change.cluster_queue):
                    self._gauges.cohort_used(cohort)
            if not isinstance(change, _COUNTED_BY_WATCH):
                counted.append(change)
        self.metrics.changes(workload, counted)

    def _workload_seen(self, news: News[kueue.Workload]) -> None:
        old, new = news.old, news.new
        self._gauges.workload_seen(old, new)
        if old is None or new is None or states.is_finished(old):
            return
        released = eviction.released(old, new, self._clock.now())
        if released is not None:
            self.metrics.changes(new, (released,))
        over = conditions.find(new.status.conditions, WorkloadCondition.FINISHED)
        if over is not None and over.status == ConditionStatus.TRUE:
            at = states.since(new, WorkloadCondition.FINISHED) or 0
            # Which end it was makes no difference to the figures but one.
            ended = finishing.finish(old, FinishedReason.SUCCEEDED, "", at)
            holder = states.cluster_queue(old)
            # One that finished without quota counts in the ClusterQueue of its LocalQueue.
            counted_in = self._informers.cluster_queue_of(old)
            self.metrics.changes(
                new, [replace(change, cluster_queue=counted_in) for change in ended if isinstance(change, Finished)]
            )
            if over.reason == FinishedReason.WORKLOAD_SLICE_REPLACED and holder:
                self.metrics.slice_replaced(holder)

    def _has_series(self, namespace: str, name: str) -> bool:
        """Whether a LocalQueue exists, and its labels select it for series of its own."""
        found = self._informers.local_queues.get(name, namespace)
        return found is not None and self.metrics.options.local_queues.matches(found.metadata.labels)

    def _workload(self, key: str) -> kueue.Workload | None:
        namespace, _, name = key.rpartition("/")
        return self._informers.workloads.get(name, namespace)

    def _metadata_of(self, source: MetricLabelSource, namespace: str, name: str) -> meta.ObjectMeta | None:
        """Return the object that custom labels are read from."""
        found: kueue.ClusterQueue | kueue.LocalQueue | kueue.Cohort | None
        match source:
            case MetricLabelSource.CLUSTER_QUEUE:
                found = self._informers.cluster_queues.get(name)
            case MetricLabelSource.LOCAL_QUEUE:
                found = self._informers.local_queues.get(name, namespace)
            case MetricLabelSource.COHORT:
                found = self._informers.cohorts.get(name)
            case MetricLabelSource.WORKLOAD:
                return None
        return found.metadata if found is not None else None

    def _ancestors(self, cluster_queue: str) -> Iterable[str]:
        node = self._world.queue_node(cluster_queue)
        return [above.name for above in node.ancestors] if node is not None else []

    def _cluster_queue_seen(self, news: News[kueue.ClusterQueue]) -> None:
        if news.new is None:
            self.metrics.forget_cluster_queue(news.key.name)
        before, after = (each.spec if each is not None else None for each in (news.old, news.new))
        if before != after:
            self._parent_changed(before.cohort_name if before else None, after.cohort_name if after else None)

    def _cohort_seen(self, news: News[kueue.Cohort]) -> None:
        """Drop the counters of a cohort: when its object is deleted, or, if implicit, with its last child."""
        before, after = (each.spec if each is not None else None for each in (news.old, news.new))
        if after is None:
            self.metrics.forget_cohort(news.key.name)
            self._gauges.cohort_deleted(news.key.name)
        elif before != after:
            self._gauges.cohort_used(news.key.name)
        if before != after:
            self._parent_changed(before.parent_name if before else None, after.parent_name if after else None)

    def _parent_changed(self, before: str | None, after: str | None) -> None:
        """Handle a child of a cohort that was created, changed, moved or deleted."""
        if after:
            self._gauges.cohort_used(after)
        if before and before != after and not self._is_cohort(before):
            self.metrics.forget_cohort(before)
            self._gauges.cohort_used(before)

    def _is_cohort(self, name: str) -> bool:
        """Whether a Cohort object has this name, or a child names it."""
        return (
            self._informers.cohorts.get(name) is not None
            or any(queue.spec.cohort_name == name for queue in self._informers.cluster_queues.values())
            or any(cohort.spec.parent_name == name for cohort in self._informers.cohorts.values())
        )

    def _local_queue_seen(self, news: News[Any]) -> None:
        if news.new is None or not self._has_series(news.key.namespace, news.key.name):
            self.metrics.forget_local_queue(news.key.namespace, news.key.name)


def _created(view: ObjectView) -> Nanoseconds:
    return meta.parse_time(view.creation_timestamp)
