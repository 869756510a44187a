"""Every metric, declared once; and how changes and cycles are read into those that count.

What happens is counted when it is told (`changes`, `cycle` and the few questions below them): counters and histograms.
What is, is read when somebody asks (`gauges`, which joins in): nothing has to be kept in step, nothing to be cleared.

    metrics = Metrics(choices)
    metrics.changes(workload, changes)      wherever a Workload's changes have been written
    metrics.cycle(decisions, seconds)       after every scheduling cycle
    metrics.exposition()                    what `/metrics` answers

Names, types, labels and buckets are those of Kueue; dashboards and alerts keep working. What only this program counts
begins with `pykueue_`. The two metrics of MultiKueue are declared and have no series, because this program dispatches
no Workload to other clusters: a series that is always zero would be wrong.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kubemachinery import selectors
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds, ObjectMeta
from kubemachinery.selectors import Selector
from pykueue.api import config, kueue
from pykueue.api.conditions import PodsReadyReason, WorkloadCondition
from pykueue.api.config import MetricLabelSource
from pykueue.core.decision import Admit, Decision, Preempt, SecondPassFailed
from pykueue.lifecycle import states
from pykueue.lifecycle.workload_changes import Admitted, Change, Evicted, Finished, Released, Reserved, SetCondition
from pykueue.observe.custom_labels import CustomLabels
from pykueue.version import __version__

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


# --- The table --------------------------------------------------------------------------------------------------------


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class EnabledBy(StrEnum):
    """What has to be switched on for a metric to be fed."""

    ALWAYS = "always"
    LOCAL_QUEUES = "metrics.localQueueMetrics.enable"
    RESOURCES = "metrics.enableClusterQueueResources"
    TREE = "the gate MetricsForCohorts"
    FAIR_SHARING = "fair sharing"
    HASHING = "the gate SchedulingEquivalenceHashing"
    CREATION = "the gate MetricForWorkloadCreationLatency"
    NEVER = "never: MultiKueue is not implemented, the metric has no series"


class Metric(NamedTuple):
    """One row."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    enabled_by: EnabledBy = EnabledBy.ALWAYS


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2**step for step in range(count))


E14: Final = (1.0, *_doubling(2.5, 13))
E16: Final = (1.0, *_doubling(2.5, 15))
F11: Final = _doubling(0.01, 11)
# The default buckets of the Go client, which Kueue uses; those of the Python client are others.
DEFAULT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

OWN: Final = "pykueue_"
ROLE: Final = "replica_role"
_PRIORITY: Final = "priority_class"
_QUEUE: Final = ("cluster_queue",)
_TENANT: Final = ("name", "namespace")
_QUOTA: Final = ("cohort", "cluster_queue", "flavor", "resource")


def _counter(name: str, labels: tuple[str, ...], help: str, enabled_by: EnabledBy = EnabledBy.ALWAYS) -> Metric:
    return Metric(f"kueue_{name}", MetricType.COUNTER, (*labels, ROLE), help, (), enabled_by)


def _gauge(name: str, labels: tuple[str, ...], help: str, enabled_by: EnabledBy = EnabledBy.ALWAYS) -> Metric:
    return Metric(f"kueue_{name}", MetricType.GAUGE, (*labels, ROLE), help, (), enabled_by)


def _histogram(
    name: str, labels: tuple[str, ...], help: str, buckets: tuple[float, ...], enabled_by: EnabledBy = EnabledBy.ALWAYS
) -> Metric:
    return Metric(f"kueue_{name}", MetricType.HISTOGRAM, (*labels, ROLE), help, buckets, enabled_by)


def _twice(metric: Metric, *, buckets: tuple[float, ...] = (), names_both: bool = False) -> tuple[Metric, Metric]:
    """A metric of a ClusterQueue, and the same for each LocalQueue, which may name the ClusterQueue, too."""
    tenant = metric._replace(
        name=f"kueue_local_queue_{metric.name.removeprefix('kueue_')}",
        labels=(*_TENANT, *metric.labels[0 if names_both else 1 :]),
        help=f"{metric.help} By LocalQueue.",
        buckets=buckets or metric.buckets,
        enabled_by=EnabledBy.LOCAL_QUEUES,
    )
    return metric, tenant


METRICS: Final[tuple[Metric, ...]] = (
    # Cycles.
    _counter("admission_attempts_total", ("result",), "Scheduling cycles that had something to decide, by outcome."),
    _histogram("admission_attempt_duration_seconds", ("result",), "How long a scheduling cycle took.", DEFAULT),
    _counter("preempted_workloads_total", ("preempting_cluster_queue", "reason"), "Workloads told to make room."),
    _gauge(
        "admission_cycle_preemption_skips",
        _QUEUE,
        "Preemptions that the last scheduling cycle with any gave up, because an earlier entry took the preemption "
        "targets or the quota.",
    ),
    _counter(
        "preemption_target_recomputations_total",
        (*_QUEUE, "result"),
        "Assignments computed again because an earlier entry of the cycle took the preemption targets: new_targets, "
        "deferred_fit or skipped.",
    ),
    # Lives.
    *_twice(_counter("quota_reserved_workloads_total", (*_QUEUE, _PRIORITY), "Reservations of quota.")),
    *_twice(_histogram("quota_reserved_wait_time_seconds", (*_QUEUE, _PRIORITY), "From queueing to reservation.", E14)),
    *_twice(_counter("admitted_workloads_total", (*_QUEUE, _PRIORITY), "Admissions.")),
    *_twice(
        _histogram("admission_wait_time_seconds", (*_QUEUE, _PRIORITY), "From queueing to admission.", E16),
        buckets=E14,
    ),
    *_twice(
        _histogram("admission_checks_wait_time_seconds", (*_QUEUE, _PRIORITY), "From reservation to admission.", E14)
    ),
    *_twice(_histogram("ready_wait_time_seconds", (*_QUEUE, _PRIORITY), "From queueing to ready pods.", E14)),
    *_twice(
        _histogram("admitted_until_ready_wait_time_seconds", (*_QUEUE, _PRIORITY), "From admission to ready pods.", E14)
    ),
    *_twice(
        _counter(
            "evicted_workloads_total",
            (*_QUEUE, "reason", "underlying_cause", _PRIORITY),
            "Workloads that had to give their quota up.",
        )
    ),
    _counter(
        "evicted_workloads_once_total",
        (*_QUEUE, "reason", "underlying_cause", _PRIORITY),
        "Workloads that had to give their quota up for this reason for the first time.",
    ),
    _histogram(
        "pods_ready_to_evicted_time_seconds",
        (*_QUEUE, "reason", "underlying_cause"),
        "From ready pods to eviction.",
        E14,
    ),
    _histogram(
        "workload_eviction_latency_seconds", (*_QUEUE, "reason"), "From eviction to the return of the quota.", E14
    ),
    *_twice(_counter("finished_workloads_total", (*_QUEUE, _PRIORITY), "Workloads that came to their end.")),
    *_twice(_histogram("execution_time_seconds", (*_QUEUE, _PRIORITY), "Time admitted, all admissions together.", E16)),
    _counter("cohort_subtree_admitted_workloads_total", ("cohort", _PRIORITY), "Admissions below a cohort."),
    _counter("replaced_workload_slices_total", _QUEUE, "Elastic slices that a larger or smaller one replaced."),
    # Jobs.
    _histogram(
        "workload_creation_latency_seconds", ("job_kind",), "From a job to its Workload.", F11, EnabledBy.CREATION
    ),
    _histogram(
        "pod_scheduling_gate_removal_seconds",
        ("name", *_QUEUE, "is_group"),
        "From admission until a pod may be scheduled.",
        DEFAULT,
    ),
    # Queues, as they are now.
    *_twice(_gauge("pending_workloads", (*_QUEUE, "status"), "Workloads that wait; `inadmissible` ones are parked.")),
    _gauge(
        "pending_scheduling_hashes",
        (*_QUEUE, "status"),
        "Different shapes among the Workloads that wait.",
        EnabledBy.HASHING,
    ),
    *_twice(_gauge("reserving_active_workloads", _QUEUE, "Workloads that hold quota.")),
    *_twice(_gauge("admitted_active_workloads", _QUEUE, "Workloads that may run.")),
    *_twice(_gauge("finished_workloads", _QUEUE, "Workloads that have ended and are still stored.")),
    *_twice(
        _gauge(
            "unadmitted_workloads",
            (*_QUEUE, "reason", "underlying_cause"),
            "Workloads that may not run, by why they are not admitted and why they have no quota.",
        ),
        names_both=True,
    ),
    _gauge("cluster_queue_status", (*_QUEUE, "status"), "1 for the state it is in: pending, active or terminating."),
    _gauge("local_queue_status", (*_TENANT, "active"), "1 for whether it is active.", EnabledBy.LOCAL_QUEUES),
    # Quota, as it is now.
    _gauge("cluster_queue_resource_reservation", _QUOTA, "Quota that is reserved.", EnabledBy.RESOURCES),
    _gauge("cluster_queue_resource_usage", _QUOTA, "Quota that admitted Workloads use.", EnabledBy.RESOURCES),
    _gauge(
        "cluster_queue_resource_pending", (*_QUEUE, "resource"), "What waiting Workloads ask for.", EnabledBy.RESOURCES
    ),
    _gauge("cluster_queue_nominal_quota", _QUOTA, "Quota that it has.", EnabledBy.RESOURCES),
    _gauge("cluster_queue_borrowing_limit", _QUOTA, "How much it may borrow.", EnabledBy.RESOURCES),
    _gauge("cluster_queue_lending_limit", _QUOTA, "How much it may lend.", EnabledBy.RESOURCES),
    _gauge(
        "local_queue_resource_reservation",
        (*_TENANT, "flavor", "resource"),
        "Quota that is reserved through it.",
        EnabledBy.LOCAL_QUEUES,
    ),
    _gauge(
        "local_queue_resource_usage",
        (*_TENANT, "flavor", "resource"),
        "Quota that admitted Workloads use through it.",
        EnabledBy.LOCAL_QUEUES,
    ),
    _gauge(
        "local_queue_admission_fair_sharing_usage",
        (*_TENANT, *_QUEUE),
        "What it used lately, weighted and halved as time goes by.",
        EnabledBy.LOCAL_QUEUES,
    ),
    _gauge(
        "cluster_queue_weighted_share",
        (*_QUEUE, "cohort"),
        "How far it is beyond its quota; NaN where its weight is 0 and it borrows.",
        EnabledBy.FAIR_SHARING,
    ),
    # Cohorts, as they are now.
    _gauge("cohort_weighted_share", ("cohort",), "How far it is beyond its quota.", EnabledBy.FAIR_SHARING),
    _gauge("cohort_subtree_quota", ("cohort", "flavor", "resource"), "Quota of a cohort and of everything below it."),
    _gauge(
        "cohort_subtree_resource_reservations",
        ("cohort", "flavor", "resource"),
        "Quota reserved in the ClusterQueues below it.",
    ),
    _gauge("cohort_subtree_admitted_active_workloads", ("cohort",), "Workloads that may run below it."),
    _gauge(
        "cohort_info", ("cohort", "parent_cohort", "root_cohort"), "1; where a cohort is in the tree.", EnabledBy.TREE
    ),
    _gauge(
        "cluster_queue_info",
        (*_QUEUE, "parent_cohort", "root_cohort"),
        "1; where a ClusterQueue is in the tree.",
        EnabledBy.TREE,
    ),
    # MultiKueue.
    Metric(
        "multikueue_workloads_dispatched_total",
        MetricType.COUNTER,
        (*_QUEUE, "cluster", ROLE),
        "Workloads created in worker clusters.",
        enabled_by=EnabledBy.NEVER,
    ),
    Metric(
        "multikueue_workloads_admitted_total",
        MetricType.COUNTER,
        (*_QUEUE, "cluster", ROLE),
        "Workloads admitted in worker clusters.",
        enabled_by=EnabledBy.NEVER,
    ),
    # This program itself; the public system has no such figures.
    Metric(f"{OWN}api_requests_total", MetricType.COUNTER, ("verb", "resource", ROLE), "Requests to the API server."),
    Metric(
        f"{OWN}api_requests_per_admission",
        MetricType.GAUGE,
        (ROLE,),
        "Requests that write for each admission, Events and the statuses of queues included.",
    ),
    Metric(
        f"{OWN}memory_audits_total",
        MetricType.COUNTER,
        (ROLE,),
        "How often the memory was held against one built anew.",
    ),
    Metric(
        f"{OWN}memory_differences_total",
        MetricType.COUNTER,
        (ROLE,),
        "What the two did not agree about. Anything above 0 is a fault of this program.",
    ),
    Metric(f"{OWN}sweeps_total", MetricType.COUNTER, (ROLE,), "How often all who wait were tried again for no cause."),
    Metric(
        f"{OWN}admitted_by_sweep_total",
        MetricType.COUNTER,
        (ROLE,),
        "Who got in only then. Anything above 0 is a fault of this program: a cause that woke nobody.",
    ),
    Metric(
        f"{OWN}eviction_loops_total",
        MetricType.COUNTER,
        (*_QUEUE, ROLE),
        "Preemption loops: Workloads that preempt each other in turns without any other change.",
    ),
    Metric(
        "kueue_build_info",
        MetricType.GAUGE,
        ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
        "1; what runs here. Labels that make no sense for this program are empty.",
    ),
)

# Gauges that are written, not read.
_WRITTEN: Final = ("kueue_build_info", "kueue_admission_cycle_preemption_skips")

BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}


_OF_COHORTS: Final = frozenset(
    {
        "kueue_cohort_weighted_share",
        "kueue_cohort_subtree_quota",
        "kueue_cohort_subtree_admitted_workloads_total",
        "kueue_cohort_subtree_resource_reservations",
        "kueue_cohort_info",
    }
)
_OF_WORKLOADS_TOO: Final = frozenset(
    {
        "kueue_pending_workloads",
        "kueue_admitted_active_workloads",
        "kueue_local_queue_admitted_active_workloads",
        "kueue_local_queue_admitted_workloads_total",
        "kueue_local_queue_admission_wait_time_seconds",
    }
)
_WITHOUT_CUSTOM: Final = frozenset(
    {"kueue_admission_attempts_total", "kueue_admission_attempt_duration_seconds", "kueue_build_info"}
)


def custom_sources(metric: Metric) -> tuple[MetricLabelSource, ...]:
    """The kinds of objects whose custom labels a metric carries."""
    name = metric.name
    if name in _WITHOUT_CUSTOM or not name.startswith("kueue_"):
        return ()
    if name in _OF_COHORTS:
        return (MetricLabelSource.COHORT,)
    of_tenant = name.startswith("kueue_local_queue_") or name == "kueue_workload_creation_latency_seconds"
    queue = MetricLabelSource.LOCAL_QUEUE if of_tenant else MetricLabelSource.CLUSTER_QUEUE
    return (queue, MetricLabelSource.WORKLOAD) if name in _OF_WORKLOADS_TOO else (queue,)


# --- What the operator chose ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricsOptions:
    """Which metrics are fed."""

    on: frozenset[EnabledBy] = frozenset(
        {
            EnabledBy.ALWAYS,
            EnabledBy.LOCAL_QUEUES,
            EnabledBy.TREE,
            EnabledBy.HASHING,
            EnabledBy.CREATION,
            EnabledBy.NEVER,
        }
    )
    # The LocalQueues that have series of their own.
    tenants: Selector = field(default_factory=lambda: selectors.EVERYTHING)
    custom: CustomLabels = field(default_factory=CustomLabels)

    @classmethod
    def of(cls, configuration: config.Configuration, gates: Mapping[str, bool]) -> MetricsOptions:
        chosen = configuration.metrics or config.ControllerMetrics()
        tenants = chosen.local_queue_metrics or config.LocalQueueMetrics(enable=True)
        switched = {
            EnabledBy.ALWAYS: True,
            EnabledBy.LOCAL_QUEUES: bool(tenants.enable) and gates["LocalQueueMetrics"],
            EnabledBy.RESOURCES: chosen.enable_cluster_queue_resources,
            EnabledBy.TREE: gates["MetricsForCohorts"],
            EnabledBy.FAIR_SHARING: configuration.fair_sharing is not None,
            EnabledBy.HASHING: gates["SchedulingEquivalenceHashing"],
            EnabledBy.CREATION: gates["MetricForWorkloadCreationLatency"],
            EnabledBy.NEVER: True,
        }
        selector = tenants.local_queue_selector
        return cls(
            frozenset(enabled_by for enabled_by, is_on in switched.items() if is_on),
            selectors.EVERYTHING if selector is None else selectors.compile(selector),
            CustomLabels(chosen.custom_labels if gates["CustomMetricLabels"] else ()),
        )


# --- Counting ---------------------------------------------------------------------------------------------------------

Labels: TypeAlias = tuple[str, ...]


class _Series:
    """The series of one metric. Each is looked up in the library once, and then at hand."""

    def __init__(self, made: Counter | Gauge | Histogram, labels: tuple[str, ...]) -> None:
        self._made = made
        self._labels = labels
        self._bound: dict[Labels, Any] = {}

    def __getitem__(self, values: Labels) -> Any:
        bound = self._bound.get(values)
        if bound is None:
            bound = self._bound[values] = self._made.labels(*values)
        return bound

    def forget(self, **labels: str) -> None:
        """Drop the series that have all of these labels, where the metric has them."""
        places = [(self._labels.index(name), value) for name, value in labels.items() if name in self._labels]
        if len(places) < len(labels):
            return
        for values in [one for one in self._bound if all(one[place] == value for place, value in places)]:
            del self._bound[values]
            self._made.remove(*values)


class ReplicaRole(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    STANDALONE = "standalone"


# Whether a LocalQueue has series of its own: (namespace, name).
LocalQueueFilter: TypeAlias = Callable[[str, str], bool]
# The cohorts above a ClusterQueue.
Ancestors: TypeAlias = Callable[[str], Iterable[str]]
# The metadata of an object that custom labels are read from: (kind, namespace, name). None: there is no such object.
MetadataOf: TypeAlias = Callable[[MetricLabelSource, str, str], ObjectMeta | None]


class Metrics:
    """The counters and histograms of one manager."""

    def __init__(
        self,
        options: MetricsOptions,
        *,
        role: ReplicaRole = ReplicaRole.STANDALONE,
        has_series: LocalQueueFilter = lambda namespace, name: True,
        ancestors: Ancestors = lambda cluster_queue: (),
        metadata_of: MetadataOf = lambda source, namespace, name: None,
    ) -> None:
        # The library would add a series with the time of birth to each of ours.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.options: Final = options
        self.role = role
        self.admissions = 0
        self.registry: Final = CollectorRegistry(auto_describe=False)
        self._has_series = has_series
        self._ancestors = ancestors
        self._metadata_of = metadata_of
        self._series: Final = {
            metric.name: _Series(self._made(metric), self.labels(metric))
            for metric in METRICS
            if metric.enabled_by in options.on and not is_read(metric)
        }
        self._set("kueue_build_info", __version__, "", "", "", platform.python_implementation(), _platform())

    def _made(self, metric: Metric) -> Counter | Gauge | Histogram:
        name, labels = metric.name, self.labels(metric)
        match metric.type:
            case MetricType.COUNTER:
                return Counter(name, metric.help, labels, registry=self.registry)
            case MetricType.GAUGE:
                return Gauge(name, metric.help, labels, registry=self.registry)
            case MetricType.HISTOGRAM:
                return Histogram(name, metric.help, labels, buckets=metric.buckets, registry=self.registry)

    def labels(self, metric: Metric) -> tuple[str, ...]:
        """All labels of a metric, those that the Configuration adds included."""
        return (*metric.labels, *self.options.custom.names(custom_sources(metric)))

    def custom_values(
        self, metric: Metric, labels: Labels, workload: ObjectMeta | None = None, local_queue: str = ""
    ) -> Labels:
        """The values of the labels that the Configuration adds. `labels` are the values of the others; `workload` and
        `local_queue` are for metrics whose other labels do not name these objects."""
        if not self.options.custom.rows:
            return ()
        named = dict(zip(metric.labels, labels, strict=False))
        values: list[str] = []
        for source in sorted(custom_sources(metric)):
            if source is MetricLabelSource.WORKLOAD:
                found = workload
            elif source is MetricLabelSource.COHORT:
                found = self._metadata_of(source, "", named["cohort"])
            elif source is MetricLabelSource.CLUSTER_QUEUE:
                name = named.get("cluster_queue") or named.get("preempting_cluster_queue", "")
                found = self._metadata_of(source, "", name)
            else:
                namespace = named.get("namespace") or (workload.namespace if workload is not None else "")
                found = self._metadata_of(source, namespace, local_queue or named.get("name", ""))
            values += self.options.custom.values(source, found)
        return tuple(values)

    def exposition(self) -> bytes:
        """Everything, in the text format."""
        text: bytes = prometheus_client.generate_latest(self.registry)
        return text

    def forget_cluster_queue(self, name: str) -> None:
        """A ClusterQueue is gone, and its series with it."""
        for series in self._series.values():
            series.forget(cluster_queue=name)

    def forget_cohort(self, name: str) -> None:
        """Drop what was counted for a cohort that does not exist any more."""
        self._series["kueue_cohort_subtree_admitted_workloads_total"].forget(cohort=name)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        for series in self._series.values():
            series.forget(namespace=namespace, name=name)

    # --- What happened to a Workload ----------------------------------------------------------------------------------

    def changes(self, workload: kueue.Workload, changes: Iterable[Change]) -> None:
        """Read what was written about a Workload; `workload` is as it is after that."""
        for change in changes:
            match change:
                case Reserved(cluster_queue, waited):
                    self._count("quota_reserved_workloads_total", workload, cluster_queue)
                    self._time("quota_reserved_wait_time_seconds", workload, cluster_queue, waited)
                case Admitted():
                    self._admitted(workload, change)
                case Evicted():
                    self._evicted(workload, change)
                case Released(cluster_queue, reason, after):
                    self._observe("kueue_workload_eviction_latency_seconds", max(after, 0), cluster_queue, reason)
                case Finished(cluster_queue, _, executed):
                    self._count("finished_workloads_total", workload, cluster_queue)
                    if executed is not None:
                        self._time("execution_time_seconds", workload, cluster_queue, max(executed, 0))
                case SetCondition(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, PodsReadyReason.STARTED):
                    self._ready(workload)

    def _admitted(self, workload: kueue.Workload, change: Admitted) -> None:
        self.admissions += 1
        self._count("admitted_workloads_total", workload, change.cluster_queue)
        self._time("admission_wait_time_seconds", workload, change.cluster_queue, change.waited)
        if change.had_checks:
            self._time("admission_checks_wait_time_seconds", workload, change.cluster_queue, change.checked)
        for cohort in self._ancestors(change.cluster_queue):
            self._add("kueue_cohort_subtree_admitted_workloads_total", cohort, _class_of(workload))

    def _evicted(self, workload: kueue.Workload, change: Evicted) -> None:
        why = (str(change.reason), str(change.cause))
        self._count("evicted_workloads_total", workload, change.cluster_queue, *why)
        if change.is_first:
            self._add("kueue_evicted_workloads_once_total", change.cluster_queue, *why, _class_of(workload))
        if change.ready_for is not None:
            self._observe("kueue_pods_ready_to_evicted_time_seconds", change.ready_for, change.cluster_queue, *why)

    def _ready(self, workload: kueue.Workload) -> None:
        """The pods became ready, and were not before: the condition says since when."""
        ready = states.since(workload, WorkloadCondition.PODS_READY)
        admitted = states.since(workload, WorkloadCondition.ADMITTED)
        if ready is None or admitted is None:
            return
        cluster_queue = states.cluster_queue(workload)
        self._time("ready_wait_time_seconds", workload, cluster_queue, ready - states.queued_since(workload))
        self._time("admitted_until_ready_wait_time_seconds", workload, cluster_queue, ready - admitted)

    # --- What happened otherwise --------------------------------------------------------------------------------------

    def cycle(self, decisions: Iterable[Decision], seconds: float) -> None:
        """Read what a scheduling cycle decided."""
        found = list(decisions)
        if not found:
            return
        succeeded = any(isinstance(one, Admit) for one in found)
        result = "success" if succeeded else "inadmissible"
        self._add("kueue_admission_attempts_total", result)
        self._observe("kueue_admission_attempt_duration_seconds", int(seconds * SECOND), result)
        skips: dict[str, int] = {}
        for decision in found:
            if decision.skips_preemption:
                skips[decision.cluster_queue] = skips.get(decision.cluster_queue, 0) + 1
            if decision.recomputation is not None:
                result = str(decision.recomputation)
                self._add("kueue_preemption_target_recomputations_total", decision.cluster_queue, result)
            for victim in decision.targets if isinstance(decision, Preempt | SecondPassFailed) else ():
                if not victim.already_evicted:
                    self._add("kueue_preempted_workloads_total", decision.cluster_queue, str(victim.reason))
        # A cycle without skips leaves the figure of the last one that had some, as Kueue does.
        for cluster_queue, count in skips.items():
            self._bound("kueue_admission_cycle_preemption_skips", (cluster_queue,)).set(count)

    def audited(self, differences: int) -> None:
        """The memory was held against one that was built anew."""
        for name, count in (("audits", 1), ("differences", differences)):
            self._series[f"{OWN}memory_{name}_total"][self.role.value,].inc(count)

    def swept(self, admitted: int) -> None:
        """All who wait were tried again for no cause."""
        for name, count in (("sweeps", 1), ("admitted_by_sweep", admitted)):
            self._series[f"{OWN}{name}_total"][self.role.value,].inc(count)

    def loop_found(self, cluster_queue: str) -> None:
        """Count a preemption loop."""
        self._add(f"{OWN}eviction_loops_total", cluster_queue)

    def slice_replaced(self, cluster_queue: str) -> None:
        self._add("kueue_replaced_workload_slices_total", cluster_queue)

    def workload_created(self, job_kind: str, after: Nanoseconds, namespace: str = "", local_queue: str = "") -> None:
        """A Workload was made for a job, so long after the job."""
        self._observe(
            "kueue_workload_creation_latency_seconds",
            max(after, 0),
            job_kind,
            workload=ObjectMeta(namespace=namespace),
            local_queue=local_queue,
        )

    def gate_removed(self, gate: str, cluster_queue: str, after: Nanoseconds, *, is_group: bool) -> None:
        """A pod may be scheduled, so long after the admission of its Workload."""
        grouped = "true" if is_group else "false"
        self._observe("kueue_pod_scheduling_gate_removal_seconds", max(after, 0), gate, cluster_queue, grouped)

    # --- Writing ------------------------------------------------------------------------------------------------------

    def _count(self, name: str, workload: kueue.Workload, cluster_queue: str, *labels: str) -> None:
        """Count a Workload for its ClusterQueue, and for its LocalQueue where that has series of its own."""
        told = (*labels, _class_of(workload))
        self._add(f"kueue_{name}", cluster_queue, *told)
        for tenant in self._tenant(workload):
            self._add(f"kueue_local_queue_{name}", *tenant, *told, workload=workload.metadata)

    def _time(self, name: str, workload: kueue.Workload, cluster_queue: str, lasted: Nanoseconds) -> None:
        told = _class_of(workload)
        self._observe(f"kueue_{name}", lasted, cluster_queue, told)
        for tenant in self._tenant(workload):
            self._observe(f"kueue_local_queue_{name}", lasted, *tenant, told, workload=workload.metadata)

    def _tenant(self, workload: kueue.Workload) -> Iterator[tuple[str, str]]:
        name, namespace = workload.spec.queue_name or "", workload.metadata.namespace
        if EnabledBy.LOCAL_QUEUES in self.options.on and self._has_series(namespace, name):
            yield name, namespace

    def _add(self, name: str, *labels: str, workload: ObjectMeta | None = None) -> None:
        if name in self._series:
            self._bound(name, labels, workload).inc()

    def _observe(
        self,
        name: str,
        lasted: Nanoseconds,
        *labels: str,
        workload: ObjectMeta | None = None,
        local_queue: str = "",
    ) -> None:
        if name in self._series:
            self._bound(name, labels, workload, local_queue).observe(lasted / SECOND)

    def _bound(self, name: str, labels: Labels, workload: ObjectMeta | None = None, local_queue: str = "") -> Any:
        custom = self.custom_values(BY_NAME[name], labels, workload, local_queue)
        return self._series[name][(*labels, self.role.value, *custom)]

    def _set(self, name: str, *labels: str) -> None:
        self._series[name][labels].set(1)


def is_read(metric: Metric) -> bool:
    """Whether it is read when the metrics are scraped, as gauges are. One gauge is written once, one by scheduling
    cycles, and one counter is kept elsewhere."""
    return metric.name == f"{OWN}api_requests_total" or (
        metric.type is MetricType.GAUGE and metric.name not in _WRITTEN
    )


def _class_of(workload: kueue.Workload) -> str:
    """The priority class of a Workload as a label."""
    reference = workload.spec.priority_class_ref
    return reference.name if reference is not None else ""


def _platform() -> str:
    return f"{platform.system().lower()}/{platform.machine()}"
