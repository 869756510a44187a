"""The table of all metrics, and the counters and histograms that changes and cycles update.

Counters and histograms are updated when something happens (`changes`, `cycle` and the methods below them). Gauges are
read from the state on every scrape (`gauges`), so that nothing has to be kept in sync or cleared.

    metrics = Metrics(options)
    metrics.changes(workload, changes)      after changes of a Workload were written
    metrics.cycle(decisions, seconds)       after every scheduling cycle
    await metrics.scrape()                  the content of `/metrics`

Names, types, labels and buckets are those of Kueue, so that dashboards and alerts keep working. Metrics that only this
program has begin with `pykueue_`. The two metrics of MultiKueue are declared and have no series, because this program
dispatches no Workload to other clusters: a series that is always zero would be wrong.
"""

from __future__ import annotations

import io
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kubemachinery import selectors
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds, ObjectMeta
from kubemachinery.metrics import CounterFamily, GaugeFamily, HistogramFamily, Labels, MetricRegistry, MetricType
from kubemachinery.selectors import Selector
from kubemachinery.turns import in_turns
from pykueue.api import config, kueue
from pykueue.api.conditions import PodsReadyReason, WorkloadCondition
from pykueue.api.config import MetricLabelSource
from pykueue.core.decision import Admit, Decision, Preempt, SecondPassFailed
from pykueue.lifecycle import states
from pykueue.lifecycle.workload_changes import Admitted, Change, Evicted, Finished, Released, Reserved, SetCondition
from pykueue.observe.custom_labels import CustomLabels
from pykueue.state.planning import PlanChange, PlanEvent
from pykueue.version import __version__

# --- The table --------------------------------------------------------------------------------------------------------


class EnabledBy(StrEnum):
    """What enables a metric."""

    ALWAYS = "always"
    LOCAL_QUEUES = "metrics.localQueueMetrics.enable"
    RESOURCES = "metrics.enableClusterQueueResources"
    COHORTS = "the gate MetricsForCohorts"
    FAIR_SHARING = "fair sharing"
    HASHING = "the gate SchedulingEquivalenceHashing"
    CREATION = "the gate MetricForWorkloadCreationLatency"
    NEVER = "never: MultiKueue is not implemented, the metric has no series"


class Metric(NamedTuple):
    """One row of the table."""

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
# The default buckets of the Go client, which Kueue uses.
DEFAULT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

OWN: Final = "pykueue_"
ROLE: Final = "replica_role"
_PRIORITY: Final = "priority_class"
_CLUSTER_QUEUE: Final = ("cluster_queue",)
_LOCAL_QUEUE: Final = ("name", "namespace")
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
    """Return a metric by ClusterQueue, and the same by LocalQueue, optionally with the ClusterQueue as a label."""
    local_queue = metric._replace(
        name=f"kueue_local_queue_{metric.name.removeprefix('kueue_')}",
        labels=(*_LOCAL_QUEUE, *metric.labels[0 if names_both else 1 :]),
        help=f"{metric.help} By LocalQueue.",
        buckets=buckets or metric.buckets,
        enabled_by=EnabledBy.LOCAL_QUEUES,
    )
    return metric, local_queue


METRICS: Final[tuple[Metric, ...]] = (
    # Cycles.
    _counter("admission_attempts_total", ("result",), "Scheduling cycles with at least one Workload, by result."),
    _histogram("admission_attempt_duration_seconds", ("result",), "Duration of a scheduling cycle.", DEFAULT),
    _counter(
        "preempted_workloads_total",
        ("preempting_cluster_queue", "reason"),
        "Preempted Workloads, by the ClusterQueue that preempts and the reason.",
    ),
    _gauge(
        "admission_cycle_preemption_skips",
        _CLUSTER_QUEUE,
        "Preemptions that the last scheduling cycle with any gave up, because an earlier entry took the preemption "
        "targets or the quota.",
    ),
    _counter(
        "preemption_target_recomputations_total",
        (*_CLUSTER_QUEUE, "result"),
        "Assignments computed again because an earlier entry of the cycle took the preemption targets: new_targets, "
        "deferred_fit or skipped.",
    ),
    # Workloads.
    *_twice(_counter("quota_reserved_workloads_total", (*_CLUSTER_QUEUE, _PRIORITY), "Quota reservations.")),
    *_twice(
        _histogram(
            "quota_reserved_wait_time_seconds",
            (*_CLUSTER_QUEUE, _PRIORITY),
            "Time from queueing to quota reservation.",
            E14,
        )
    ),
    *_twice(_counter("admitted_workloads_total", (*_CLUSTER_QUEUE, _PRIORITY), "Admissions.")),
    *_twice(
        _histogram(
            "admission_wait_time_seconds", (*_CLUSTER_QUEUE, _PRIORITY), "Time from queueing to admission.", E16
        ),
        buckets=E14,
    ),
    *_twice(
        _histogram(
            "admission_checks_wait_time_seconds",
            (*_CLUSTER_QUEUE, _PRIORITY),
            "Time from quota reservation to admission.",
            E14,
        )
    ),
    *_twice(
        _histogram(
            "ready_wait_time_seconds", (*_CLUSTER_QUEUE, _PRIORITY), "Time from queueing until the pods are ready.", E14
        )
    ),
    *_twice(
        _histogram(
            "admitted_until_ready_wait_time_seconds",
            (*_CLUSTER_QUEUE, _PRIORITY),
            "Time from admission until the pods are ready.",
            E14,
        )
    ),
    *_twice(
        _counter(
            "evicted_workloads_total",
            (*_CLUSTER_QUEUE, "reason", "underlying_cause", _PRIORITY),
            "Evictions, by reason.",
        )
    ),
    _counter(
        "evicted_workloads_once_total",
        (*_CLUSTER_QUEUE, "reason", "underlying_cause", _PRIORITY),
        "Workloads evicted for the first time for this reason.",
    ),
    _histogram(
        "pods_ready_to_evicted_time_seconds",
        (*_CLUSTER_QUEUE, "reason", "underlying_cause"),
        "Time from ready pods to eviction.",
        E14,
    ),
    _histogram(
        "workload_eviction_latency_seconds",
        (*_CLUSTER_QUEUE, "reason"),
        "Time from eviction to the release of the quota, of active Workloads.",
        E14,
    ),
    *_twice(_counter("finished_workloads_total", (*_CLUSTER_QUEUE, _PRIORITY), "Finished Workloads.")),
    *_twice(
        _histogram(
            "execution_time_seconds",
            (*_CLUSTER_QUEUE, _PRIORITY),
            "Time admitted, summed over all admissions of a Workload.",
            E16,
        )
    ),
    _counter(
        "cohort_subtree_admitted_workloads_total", ("cohort", _PRIORITY), "Admissions in the subtree of a cohort."
    ),
    _counter("replaced_workload_slices_total", _CLUSTER_QUEUE, "Workload slices replaced by a larger or smaller one."),
    # Jobs.
    _histogram(
        "workload_creation_latency_seconds",
        ("job_kind",),
        "Time from the creation of a job to its Workload.",
        F11,
        EnabledBy.CREATION,
    ),
    _histogram(
        "pod_scheduling_gate_removal_seconds",
        ("name", *_CLUSTER_QUEUE, "is_group"),
        "Time from admission to the removal of a scheduling gate from a pod.",
        DEFAULT,
    ),
    # Current state of queues.
    *_twice(
        _gauge(
            "pending_workloads",
            (*_CLUSTER_QUEUE, "status"),
            "Pending Workloads; `inadmissible` ones wait for a change that could admit them.",
        )
    ),
    _gauge(
        "pending_scheduling_hashes",
        (*_CLUSTER_QUEUE, "status"),
        "Scheduling equivalence classes among the pending Workloads.",
        EnabledBy.HASHING,
    ),
    *_twice(_gauge("reserving_active_workloads", _CLUSTER_QUEUE, "Workloads with a quota reservation.")),
    *_twice(_gauge("admitted_active_workloads", _CLUSTER_QUEUE, "Admitted Workloads that have not finished.")),
    *_twice(_gauge("finished_workloads", _CLUSTER_QUEUE, "Finished Workloads that are not deleted yet.")),
    *_twice(
        _gauge(
            "unadmitted_workloads",
            (*_CLUSTER_QUEUE, "reason", "underlying_cause"),
            "Workloads that are not admitted, by the reasons of the conditions Admitted and QuotaReserved.",
        ),
        names_both=True,
    ),
    _gauge(
        "cluster_queue_status",
        (*_CLUSTER_QUEUE, "status"),
        "1 for the current status of the ClusterQueue: pending, active or terminating.",
    ),
    _gauge(
        "local_queue_status",
        (*_LOCAL_QUEUE, "active"),
        "1 for the current status of the condition Active: True, False or Unknown.",
        EnabledBy.LOCAL_QUEUES,
    ),
    # Current quota and usage.
    _gauge("cluster_queue_resource_reservation", _QUOTA, "Reserved quota.", EnabledBy.RESOURCES),
    _gauge("cluster_queue_resource_usage", _QUOTA, "Quota used by admitted Workloads.", EnabledBy.RESOURCES),
    _gauge(
        "cluster_queue_resource_pending",
        (*_CLUSTER_QUEUE, "resource"),
        "Requests of pending Workloads.",
        EnabledBy.RESOURCES,
    ),
    _gauge("cluster_queue_nominal_quota", _QUOTA, "Nominal quota.", EnabledBy.RESOURCES),
    _gauge("cluster_queue_borrowing_limit", _QUOTA, "Borrowing limit.", EnabledBy.RESOURCES),
    _gauge("cluster_queue_lending_limit", _QUOTA, "Lending limit.", EnabledBy.RESOURCES),
    _gauge(
        "local_queue_resource_reservation",
        (*_LOCAL_QUEUE, "flavor", "resource"),
        "Quota reserved by Workloads of the LocalQueue.",
        EnabledBy.LOCAL_QUEUES,
    ),
    _gauge(
        "local_queue_resource_usage",
        (*_LOCAL_QUEUE, "flavor", "resource"),
        "Quota used by admitted Workloads of the LocalQueue.",
        EnabledBy.LOCAL_QUEUES,
    ),
    _gauge(
        "local_queue_admission_fair_sharing_usage",
        (*_LOCAL_QUEUE, *_CLUSTER_QUEUE),
        "Past usage for admission fair sharing, weighted, with exponential decay.",
        EnabledBy.LOCAL_QUEUES,
    ),
    _gauge(
        "cluster_queue_weighted_share",
        (*_CLUSTER_QUEUE, "cohort"),
        "Fair share value of the ClusterQueue; NaN if its weight is 0 and it borrows.",
        EnabledBy.FAIR_SHARING,
    ),
    # Current state of cohorts.
    _gauge("cohort_weighted_share", ("cohort",), "Fair share value of the cohort.", EnabledBy.FAIR_SHARING),
    _gauge("cohort_subtree_quota", ("cohort", "flavor", "resource"), "Quota of a cohort and its subtree."),
    _gauge(
        "cohort_subtree_resource_reservations",
        ("cohort", "flavor", "resource"),
        "Quota reserved in the subtree of a cohort.",
    ),
    _gauge("cohort_subtree_admitted_active_workloads", ("cohort",), "Admitted Workloads in the subtree of a cohort."),
    _gauge(
        "cohort_info",
        ("cohort", "parent_cohort", "root_cohort"),
        "Always 1; the labels give the position of a cohort in its tree.",
        EnabledBy.COHORTS,
    ),
    _gauge(
        "cluster_queue_info",
        (*_CLUSTER_QUEUE, "parent_cohort", "root_cohort"),
        "Always 1; the labels give the position of a ClusterQueue in its tree.",
        EnabledBy.COHORTS,
    ),
    # MultiKueue.
    Metric(
        "multikueue_workloads_dispatched_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, "cluster", ROLE),
        "Workloads created in worker clusters.",
        enabled_by=EnabledBy.NEVER,
    ),
    Metric(
        "multikueue_workloads_admitted_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, "cluster", ROLE),
        "Workloads admitted in worker clusters.",
        enabled_by=EnabledBy.NEVER,
    ),
    # Metrics that Kueue does not have.
    Metric(
        f"{OWN}framework_waiting",
        MetricType.GAUGE,
        ("framework", ROLE),
        "Kinds that an enabled job framework needs and the API server does not serve; 0 while it is reconciled.",
    ),
    Metric(
        f"{OWN}forecast_wait_seconds",
        MetricType.GAUGE,
        ("cluster_queue", "quantile", ROLE),
        "The forecast wait of the pending Workload of median P50, in the last forecast of the ClusterQueue.",
    ),
    Metric(
        f"{OWN}forecast_coverage_ratio",
        MetricType.GAUGE,
        ("cluster_queue", ROLE),
        "The share of scored starts that were not later than the P90 of their forecast; 0.9 is exact.",
    ),
    Metric(
        f"{OWN}forecast_size_coverage_ratio",
        MetricType.GAUGE,
        ("cluster_queue", "size", ROLE),
        "The same of the Workloads of a size class; `big` are those that request at least 1/8 of the nominal quota.",
    ),
    Metric(
        f"{OWN}budget_spent_ratio",
        MetricType.GAUGE,
        ("budget", "group", ROLE),
        "The share of its Budget that a group has spent in this period; of the 100 fullest groups of each Budget.",
    ),
    Metric(f"{OWN}api_requests_total", MetricType.COUNTER, ("verb", "resource", ROLE), "Requests to the API server."),
    Metric(
        f"{OWN}api_requests_per_admission",
        MetricType.GAUGE,
        (ROLE,),
        "Write requests per admission, including Events and the statuses of queues.",
    ),
    Metric(
        f"{OWN}memory_audits_total",
        MetricType.COUNTER,
        (ROLE,),
        "Audits: comparisons of the scheduler state with one rebuilt from the objects.",
    ),
    Metric(
        f"{OWN}memory_differences_total",
        MetricType.COUNTER,
        (ROLE,),
        "Differences found by audits. A value above 0 is a bug of this program.",
    ),
    Metric(
        f"{OWN}sweeps_total",
        MetricType.COUNTER,
        (ROLE,),
        "Periodic retries of all inadmissible Workloads without a triggering event.",
    ),
    Metric(
        f"{OWN}admitted_by_sweep_total",
        MetricType.COUNTER,
        (ROLE,),
        "Workloads admitted only by a sweep. A value above 0 is a bug of this program: an event did not requeue them.",
    ),
    Metric(
        f"{OWN}eviction_loops_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, ROLE),
        "Preemption loops: Workloads that preempt each other in turns without any other change.",
    ),
    Metric(
        f"{OWN}event_loop_delay_seconds",
        MetricType.HISTOGRAM,
        (ROLE,),
        "By how much timers of the event loop are late: no request is answered and no decision made meanwhile.",
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    ),
    Metric(
        f"{OWN}starving_workloads",
        MetricType.GAUGE,
        (*_CLUSTER_QUEUE, ROLE),
        "Pending Workloads that wait for longer than --starving-after, and that ten later ones have passed.",
    ),
    Metric(
        f"{OWN}oldest_pending_seconds",
        MetricType.GAUGE,
        (*_CLUSTER_QUEUE, ROLE),
        "How long the oldest pending Workload waits; 0 without one.",
    ),
    Metric(
        f"{OWN}planned_starts_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, ROLE),
        "Workloads whose start was planned (gate PlannedBackfill).",
    ),
    Metric(
        f"{OWN}planned_starts_kept_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, ROLE),
        "Workloads with a planned start that got their quota.",
    ),
    Metric(
        f"{OWN}planned_starts_withdrawn_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, "cause", ROLE),
        "Planned starts that were withdrawn or moved to a later date, by cause.",
    ),
    Metric(
        f"{OWN}backfilled_workloads_total",
        MetricType.COUNTER,
        (*_CLUSTER_QUEUE, ROLE),
        "Workloads that were admitted before a Workload with a planned start that precedes them in queue order.",
    ),
    Metric(
        f"{OWN}history_gaps_total",
        MetricType.COUNTER,
        (ROLE,),
        "Workloads of which the history has no end, or no record.",
    ),
    Metric(
        "kueue_build_info",
        MetricType.GAUGE,
        ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
        "Always 1; the labels describe this build. Labels without meaning for a Python program are empty.",
    ),
)

# Gauges that are set by events instead of being read on a scrape.
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
    of_local_queue = name.startswith("kueue_local_queue_") or name == "kueue_workload_creation_latency_seconds"
    queue = MetricLabelSource.LOCAL_QUEUE if of_local_queue else MetricLabelSource.CLUSTER_QUEUE
    return (queue, MetricLabelSource.WORKLOAD) if name in _OF_WORKLOADS_TOO else (queue,)


# --- Options ----------------------------------------------------------------------------------------------------------


class MetricsOptions(msgspec.Struct, frozen=True):
    """Which metrics are enabled."""

    on: frozenset[EnabledBy] = frozenset(
        {
            EnabledBy.ALWAYS,
            EnabledBy.LOCAL_QUEUES,
            EnabledBy.COHORTS,
            EnabledBy.HASHING,
            EnabledBy.CREATION,
            EnabledBy.NEVER,
        }
    )
    # The LocalQueues that have series.
    local_queues: Selector = msgspec.field(default_factory=lambda: selectors.EVERYTHING)
    custom: CustomLabels = msgspec.field(default_factory=CustomLabels)

    @classmethod
    def of(cls, configuration: config.Configuration, gates: Mapping[str, bool]) -> MetricsOptions:
        chosen = configuration.metrics or config.ControllerMetrics()
        local_queues = chosen.local_queue_metrics or config.LocalQueueMetrics(enable=True)
        switched = {
            EnabledBy.ALWAYS: True,
            EnabledBy.LOCAL_QUEUES: bool(local_queues.enable) and gates["LocalQueueMetrics"],
            EnabledBy.RESOURCES: chosen.enable_cluster_queue_resources,
            EnabledBy.COHORTS: gates["MetricsForCohorts"],
            EnabledBy.FAIR_SHARING: configuration.fair_sharing is not None,
            EnabledBy.HASHING: gates["SchedulingEquivalenceHashing"],
            EnabledBy.CREATION: gates["MetricForWorkloadCreationLatency"],
            EnabledBy.NEVER: True,
        }
        selector = local_queues.local_queue_selector
        return cls(
            frozenset(enabled_by for enabled_by, is_on in switched.items() if is_on),
            selectors.EVERYTHING if selector is None else selectors.compile(selector),
            CustomLabels(chosen.custom_labels if gates["CustomMetricLabels"] else ()),
        )


# --- Counting ---------------------------------------------------------------------------------------------------------


class ReplicaRole(StrEnum):
    """The values of the label `replica_role`."""

    LEADER = "leader"
    FOLLOWER = "follower"
    STANDALONE = "standalone"


# Whether a LocalQueue has series: (namespace, name).
LocalQueueFilter: TypeAlias = Callable[[str, str], bool]
# The cohorts above a ClusterQueue.
Ancestors: TypeAlias = Callable[[str], Iterable[str]]
# The metadata of an object that custom labels are read from: (kind, namespace, name). None: there is no such object.
MetadataOf: TypeAlias = Callable[[MetricLabelSource, str, str], ObjectMeta | None]


class _Subject(msgspec.Struct, frozen=True, gc=False):
    """The Workload that changes are counted for, with the labels that all of them have."""

    workload: kueue.Workload
    priority_class: str
    local_queues: tuple[tuple[str, str], ...]  # the one that has series: its name and namespace


# What `Metrics.changes` counts; most changes of a write are conditions and Events.
_COUNTED: Final = (Reserved, Admitted, Evicted, Released, Finished, SetCondition)
_LOOP_DELAY: Final = f"{OWN}event_loop_delay_seconds"


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
        self.options: Final = options
        self.set_role(role)
        self.admissions = 0
        self.registry: Final = MetricRegistry()
        self._has_series = has_series
        self._ancestors = ancestors
        self._metadata_of = metadata_of
        self._counters: Final[dict[str, CounterFamily]] = {}
        self._gauges: Final[dict[str, GaugeFamily]] = {}
        self._histograms: Final[dict[str, HistogramFamily]] = {}
        for metric in METRICS:
            if metric.enabled_by in options.on and not is_read(metric):
                self._declare(metric)
        build = (__version__, "", "", "", platform.python_implementation(), _platform())
        self._gauges["kueue_build_info"][build].set(1)

    @property
    def role(self) -> ReplicaRole:
        """The role of this replica, a label of every series."""
        return self._role

    def set_role(self, role: ReplicaRole) -> None:
        """Count in the series of a role from now on."""
        self._role, self._role_label = role, role.value

    def _declare(self, metric: Metric) -> None:
        name, help, labels = metric.name, metric.help, self.labels(metric)
        match metric.type:
            case MetricType.COUNTER:
                self._counters[name] = self.registry.add(CounterFamily(name, help, labels))
            case MetricType.GAUGE:
                self._gauges[name] = self.registry.add(GaugeFamily(name, help, labels))
            case MetricType.HISTOGRAM:
                self._histograms[name] = self.registry.add(HistogramFamily(name, help, labels, metric.buckets))

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
        """Return all metrics in the Prometheus text format."""
        return "".join(self.registry.pieces()).encode()

    async def scrape(self) -> bytes:
        """Return the same without blocking the event loop for long: it continues between pieces of the text."""
        text = io.BytesIO()  # joining the pieces at the end would copy the text, tens of MiB, in one step
        async for piece in in_turns(self.registry.pieces()):
            text.write(piece.encode())
        return text.getvalue()

    def forget_cluster_queue(self, name: str) -> None:
        """Drop the series of a deleted ClusterQueue."""
        for family in self._families():
            family.forget(cluster_queue=name)

    def forget_cohort(self, name: str) -> None:
        """Drop the counts of a deleted cohort."""
        self._counters["kueue_cohort_subtree_admitted_workloads_total"].forget(cohort=name)

    def forget_local_queue(self, namespace: str, name: str) -> None:
        for family in self._families():
            family.forget(namespace=namespace, name=name)

    def _families(self) -> Iterator[CounterFamily | GaugeFamily | HistogramFamily]:
        yield from self._counters.values()
        yield from self._gauges.values()
        yield from self._histograms.values()

    # --- Changes of Workloads -----------------------------------------------------------------------------------------

    def changes(self, workload: kueue.Workload, changes: Iterable[Change]) -> None:
        """Count the changes that were written to a Workload; `workload` includes them."""
        found = [change for change in changes if isinstance(change, _COUNTED)]
        if not found:
            return
        about = _Subject(workload, _class_of(workload), self._local_queues(workload))
        for change in found:
            match change:
                case Reserved(cluster_queue, waited):
                    self._count("quota_reserved_workloads_total", about, cluster_queue)
                    self._time("quota_reserved_wait_time_seconds", about, cluster_queue, waited)
                case Admitted():
                    self._admitted(about, change)
                case Evicted():
                    self._evicted(about, change)
                case Released(cluster_queue, reason, after):
                    self._observe("kueue_workload_eviction_latency_seconds", max(after, 0), cluster_queue, reason)
                case Finished(cluster_queue, _, executed):
                    self._count("finished_workloads_total", about, cluster_queue)
                    if executed is not None:
                        self._time("execution_time_seconds", about, cluster_queue, max(executed, 0))
                case SetCondition(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, PodsReadyReason.STARTED):
                    self._ready(about)

    def _admitted(self, about: _Subject, change: Admitted) -> None:
        self.admissions += 1
        self._count("admitted_workloads_total", about, change.cluster_queue)
        self._time("admission_wait_time_seconds", about, change.cluster_queue, change.waited)
        if change.had_checks:
            self._time("admission_checks_wait_time_seconds", about, change.cluster_queue, change.checked)
        for cohort in self._ancestors(change.cluster_queue):
            self._add("kueue_cohort_subtree_admitted_workloads_total", cohort, about.priority_class)

    def _evicted(self, about: _Subject, change: Evicted) -> None:
        why = (str(change.reason), str(change.cause))
        self._count("evicted_workloads_total", about, change.cluster_queue, *why)
        if change.is_first:
            self._add("kueue_evicted_workloads_once_total", change.cluster_queue, *why, about.priority_class)
        if change.ready_for is not None:
            self._observe("kueue_pods_ready_to_evicted_time_seconds", change.ready_for, change.cluster_queue, *why)

    def _ready(self, about: _Subject) -> None:
        """Observe the time until the pods became ready, from the transition time of the condition."""
        workload = about.workload
        ready = states.since(workload, WorkloadCondition.PODS_READY)
        admitted = states.since(workload, WorkloadCondition.ADMITTED)
        if ready is None or admitted is None:
            return
        cluster_queue = states.cluster_queue(workload)
        self._time("ready_wait_time_seconds", about, cluster_queue, ready - states.queued_since(workload))
        self._time("admitted_until_ready_wait_time_seconds", about, cluster_queue, ready - admitted)

    # --- Other events -------------------------------------------------------------------------------------------------

    def cycle(self, decisions: Iterable[Decision], seconds: float) -> None:
        """Count the decisions of a scheduling cycle."""
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
        # A cycle without skips keeps the value of the last cycle with skips, as in Kueue.
        for cluster_queue, count in skips.items():
            name = "kueue_admission_cycle_preemption_skips"
            self._gauges[name][self._values(name, (cluster_queue,))].set(count)

    def audited(self, differences: int) -> None:
        """Count an audit of the scheduler state and its differences."""
        for name, count in (("audits", 1), ("differences", differences)):
            self._counters[f"{OWN}memory_{name}_total"][self.role.value,].inc(count)

    def swept(self, admitted: int) -> None:
        """Count a sweep: a periodic retry of all inadmissible Workloads."""
        for name, count in (("sweeps", 1), ("admitted_by_sweep", admitted)):
            self._counters[f"{OWN}{name}_total"][self.role.value,].inc(count)

    def loop_found(self, cluster_queue: str) -> None:
        """Count a preemption loop."""
        self._add(f"{OWN}eviction_loops_total", cluster_queue)

    def loop_delayed(self, seconds: float) -> None:
        """Observe by how much a timer of the event loop was late."""
        self._histograms[_LOOP_DELAY][self._role_label,].observe(seconds)

    def plan_changed(self, change: PlanChange) -> None:
        """Count a change of a planned start."""
        match change.event:
            case PlanEvent.PLANNED:
                self._add(f"{OWN}planned_starts_total", change.cluster_queue)
            case PlanEvent.KEPT:
                self._add(f"{OWN}planned_starts_kept_total", change.cluster_queue)
            case PlanEvent.BACKFILLED:
                self._add(f"{OWN}backfilled_workloads_total", change.cluster_queue)
            case PlanEvent.REPLANNED | PlanEvent.WITHDRAWN if change.cause is not None:
                self._add(f"{OWN}planned_starts_withdrawn_total", change.cluster_queue, str(change.cause))

    def history_gaps(self, count: int) -> None:
        """Count Workloads that the history does not have as they were."""
        self._counters[f"{OWN}history_gaps_total"][self.role.value,].inc(count)

    def slice_replaced(self, cluster_queue: str) -> None:
        self._add("kueue_replaced_workload_slices_total", cluster_queue)

    def workload_created(self, job_kind: str, after: Nanoseconds, namespace: str = "", local_queue: str = "") -> None:
        """Observe the time from the creation of a job to its Workload."""
        self._observe(
            "kueue_workload_creation_latency_seconds",
            max(after, 0),
            job_kind,
            workload=ObjectMeta(namespace=namespace),
            local_queue=local_queue,
        )

    def gate_removed(self, gate: str, cluster_queue: str, after: Nanoseconds, *, is_group: bool) -> None:
        """Observe the time from admission to the removal of a scheduling gate."""
        grouped = "true" if is_group else "false"
        self._observe("kueue_pod_scheduling_gate_removal_seconds", max(after, 0), gate, cluster_queue, grouped)

    # --- Updates ------------------------------------------------------------------------------------------------------

    def _count(self, name: str, about: _Subject, cluster_queue: str, *labels: str) -> None:
        """Count a Workload for its ClusterQueue, and for its LocalQueue if that has series."""
        values = (*labels, about.priority_class)
        self._add(f"kueue_{name}", cluster_queue, *values)
        for local_queue in about.local_queues:
            self._add(f"kueue_local_queue_{name}", *local_queue, *values, workload=about.workload.metadata)

    def _time(self, name: str, about: _Subject, cluster_queue: str, lasted: Nanoseconds) -> None:
        self._observe(f"kueue_{name}", lasted, cluster_queue, about.priority_class)
        for local_queue in about.local_queues:
            labels = (*local_queue, about.priority_class)
            self._observe(f"kueue_local_queue_{name}", lasted, *labels, workload=about.workload.metadata)

    def _local_queues(self, workload: kueue.Workload) -> tuple[tuple[str, str], ...]:
        """The LocalQueue of a Workload if it has series, else nothing."""
        name, namespace = workload.spec.queue_name or "", workload.metadata.namespace
        has_series = EnabledBy.LOCAL_QUEUES in self.options.on and self._has_series(namespace, name)
        return ((name, namespace),) if has_series else ()

    def _add(self, name: str, *labels: str, workload: ObjectMeta | None = None) -> None:
        family = self._counters.get(name)
        if family is not None:
            family[self._values(name, labels, workload)].inc()

    def _observe(
        self,
        name: str,
        lasted: Nanoseconds,
        *labels: str,
        workload: ObjectMeta | None = None,
        local_queue: str = "",
    ) -> None:
        family = self._histograms.get(name)
        if family is not None:
            family[self._values(name, labels, workload, local_queue)].observe(lasted / SECOND)

    def _values(self, name: str, labels: Labels, workload: ObjectMeta | None = None, local_queue: str = "") -> Labels:
        """Return the values of all labels of a series; `labels` are those before the role."""
        if not self.options.custom.rows:
            return (*labels, self._role_label)
        return (*labels, self._role_label, *self.custom_values(BY_NAME[name], labels, workload, local_queue))


def is_read(metric: Metric) -> bool:
    """Whether the metric is read on a scrape, as gauges are. Exceptions: two gauges are set by events, and one counter
    is
    read from the client."""
    return metric.name == f"{OWN}api_requests_total" or (
        metric.type is MetricType.GAUGE and metric.name not in _WRITTEN
    )


def _class_of(workload: kueue.Workload) -> str:
    """The priority class of a Workload as a label."""
    reference = workload.spec.priority_class_ref
    return reference.name if reference is not None else ""


def _platform() -> str:
    return f"{platform.system().lower()}/{platform.machine()}"
