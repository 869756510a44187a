"""Gauges, read from the scheduler's state and the informers when the metrics are scraped.

Only two counts are maintained incrementally, because reading them would walk over all Workloads: finished and
unadmitted Workloads. `workload_seen` updates them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from kubemachinery import conditions
from kubemachinery.metrics import ReadFamily
from pykueue.api import kueue
from pykueue.api.conditions import ActiveCondition, WorkloadCondition
from pykueue.api.config import MetricLabelSource
from pykueue.core import amounts, fair_sharing
from pykueue.core.cohort import QuotaNode
from pykueue.core.queue import FlavorResource, Quota
from pykueue.core.workload import Reservation, WorkloadInfo
from pykueue.lifecycle import states, variants
from pykueue.observe.metrics import BY_NAME, EnabledBy, LocalQueueFilter, Metric, Metrics
from pykueue.state.world import World

# The values of the labels of a metric without the replica role, and the value.
Sample: TypeAlias = tuple[tuple[str, ...], float]
# The same with the values of custom labels before the value.
SplitSample: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], float]
# Samples; at None the state may change, as between samples.
Reading: TypeAlias = Iterator[Sample | None]

# The number of requests by (verb, resource).
Requests: TypeAlias = Callable[[], Mapping[tuple[str, str], int]]

_Key = TypeVar("_Key")

_STATES: Final = ("pending", "active", "terminating")
_READING: Final = ("GET", "watch")
_NANO: Final = 1_000_000_000
_AT_A_TIME: Final = 1_000
_ADMITTED: Final = WorkloadCondition.ADMITTED.value
_RESERVED: Final = WorkloadCondition.QUOTA_RESERVED.value


class GaugeSources(msgspec.Struct, frozen=True):
    """What the gauges are read from."""

    world: World
    cluster_queues: Callable[[], Iterable[kueue.ClusterQueue]]
    local_queues: Callable[[], Iterable[kueue.LocalQueue]]
    cohorts: Callable[[], Iterable[kueue.Cohort]] = lambda: ()
    requests: Requests = dict
    # How many kinds of each enabled framework are not served.
    waiting_frameworks: Callable[[], Mapping[str, int]] = dict
    # Budget, group, share of the limit.
    budget_ratios: Callable[[], Iterable[tuple[str, str, float]]] = tuple
    # Of a ClusterQueue, the quantile and the seconds; the share of starts that P90 covered; and that of a size class.
    forecast_waits: Callable[[], Iterable[tuple[str, str, float]]] = tuple
    forecast_coverage: Callable[[], Iterable[tuple[str, float]]] = tuple
    forecast_size_coverage: Callable[[], Iterable[tuple[str, str, float]]] = tuple
    workload: Callable[[str], kueue.Workload | None] = lambda key: None
    # By ClusterQueue.
    starving: Callable[[str], int] = lambda name: 0
    oldest_pending_seconds: Callable[[str], float] = lambda name: 0.0


class Gauges:
    """Reads the gauges of `Metrics` on every scrape."""

    def __init__(self, metrics: Metrics, sources: GaugeSources, has_series: LocalQueueFilter = lambda *_: True) -> None:
        self._metrics = metrics
        self._sources = sources
        self._world = sources.world
        self._has_series = has_series
        self._finished: Counter[tuple[str, str, str]] = Counter()  # ClusterQueue, LocalQueue, its namespace
        self._unadmitted: Counter[tuple[str, str, str, str, str]] = Counter()  # and the two reasons
        self._deleted_cohorts: set[str] = set()
        metrics.registry.add_reader(self.read)

    # --- Maintained counts --------------------------------------------------------------------------------------------

    def workload_seen(self, old: kueue.Workload | None, new: kueue.Workload | None) -> None:
        """Update the counts after a Workload was created, changed or deleted."""
        for workload, step in ((old, -1), (new, 1)):
            if workload is None or variants.parent_of(workload) is not None:
                continue  # a variant is not counted beside its parent
            if states.is_finished(workload):
                _count(self._finished, self._place(workload), step)
            elif not states.is_admitted(workload) and not workload.metadata.deletion_timestamp:
                _count(self._unadmitted, (*self._place(workload), *_reasons(workload)), step)

    def _place(self, workload: kueue.Workload) -> tuple[str, str, str]:
        return states.cluster_queue(workload), workload.spec.queue_name or "", workload.metadata.namespace

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self) -> Iterator[ReadFamily]:
        """Return the gauges one after the other. They are read when they are asked for; between two samples, and where
        a reading yields None, the state may change. What is counted over all Workloads does so after each
        ClusterQueue: with a hundred thousand of them a count takes long."""
        split = self._split_readings()
        for name, read in (*self._readings().items(), *self._own_readings().items()):
            metric = BY_NAME[name]
            if metric.enabled_by in self._metrics.options.on:
                samples = self._split(split[name]) if name in split else self._with_custom(metric, read)
                yield ReadFamily(metric.name, metric.help, metric.type, self._metrics.labels(metric), samples)

    def _with_custom(self, metric: Metric, read: Callable[[], Reading]) -> Reading:
        role, custom_values = self._metrics.role.value, self._metrics.custom_values
        for sample in read():
            if sample is None:
                yield None
            else:
                labels, value = sample
                yield (*labels, role, *custom_values(metric, labels)), value

    def _split(self, read: Callable[[], Iterator[SplitSample]]) -> Iterator[Sample]:
        role = self._metrics.role.value
        for labels, custom, value in read():
            yield (*labels, role, *custom), value

    def _split_readings(self) -> dict[str, Callable[[], Iterator[SplitSample]]]:
        """Gauges of several series where custom labels of Workloads, or of the ClusterQueues of a cohort, differ."""
        custom = self._metrics.options.custom
        found: dict[str, Callable[[], Iterator[SplitSample]]] = {}
        if custom.has(MetricLabelSource.CLUSTER_QUEUE):
            found["kueue_cohort_subtree_admitted_active_workloads"] = self._split_subtree_admitted
        if custom.has(MetricLabelSource.WORKLOAD):
            found["kueue_pending_workloads"] = self._split_pending
            found["kueue_admitted_active_workloads"] = self._split_admitted
            found["kueue_local_queue_admitted_active_workloads"] = self._split_tenants_admitted
        return found

    def _split_pending(self) -> Iterator[SplitSample]:
        for name, active, inadmissible in self._queues():
            for status, workloads in (("active", active), ("inadmissible", inadmissible)):
                yield from self._by_workload("kueue_pending_workloads", (name, status), (w.key for w in workloads))

    def _split_admitted(self) -> Iterator[SplitSample]:
        for name in self._names():
            held = (one.key for one in self._world.reservations_in(name) if one.admitted)
            yield from self._by_workload("kueue_admitted_active_workloads", (name,), held)

    def _split_tenants_admitted(self) -> Iterator[SplitSample]:
        held: dict[tuple[str, str], list[str]] = {}
        for reservations in self._reservations():
            for one in filter(_admitted, reservations):
                held.setdefault(_local_queue_key(one), []).append(one.key)
        for local_queue in self._local_queues():
            metric = "kueue_local_queue_admitted_active_workloads"
            yield from self._by_workload(metric, local_queue, held.get(local_queue, ()))

    def _by_workload(self, metric: str, labels: tuple[str, ...], keys: Iterable[str]) -> Iterator[SplitSample]:
        """The Workloads counted by the values of their custom labels."""
        counted: Counter[tuple[str, ...]] = Counter()
        for key in keys:
            workload = self._sources.workload(key)
            metadata = workload.metadata if workload is not None else None
            counted[self._metrics.custom_values(BY_NAME[metric], labels, metadata)] += 1
        for custom, count in sorted(counted.items()):
            yield labels, custom, count

    def _split_subtree_admitted(self) -> Iterator[SplitSample]:
        """Each cohort with the custom labels of every ClusterQueue below it: Kueue writes the figure of the cohort with
        the labels of the ClusterQueue that changed."""
        below: dict[str, set[tuple[str, ...]]] = {}
        metric = BY_NAME["kueue_cluster_queue_status"]
        for name, above in self._ancestors():
            for node in above:
                below.setdefault(node.name, set()).add(self._metrics.custom_values(metric, (name,)))
        for sample in self._subtree_admitted():
            if sample is not None:
                labels, count = sample
                for custom in sorted(below.get(labels[0], ())):
                    yield labels, custom, count

    def _readings(self) -> dict[str, Callable[[], Reading]]:
        public: dict[str, Callable[[], Reading]] = {
            "pending_workloads": self._pending,
            "local_queue_pending_workloads": self._local_queue_pending,
            "pending_scheduling_hashes": self._equivalence_classes,
            "reserving_active_workloads": lambda: self._holding(_any),
            "local_queue_reserving_active_workloads": lambda: self._local_queue_holding(_any),
            "admitted_active_workloads": lambda: self._holding(_admitted),
            "local_queue_admitted_active_workloads": lambda: self._local_queue_holding(_admitted),
            "finished_workloads": self._finished_workloads,
            "local_queue_finished_workloads": self._local_queue_ended,
            "unadmitted_workloads": self._waiting,
            "local_queue_unadmitted_workloads": self._local_queue_unadmitted,
            "cluster_queue_status": self._status,
            "local_queue_status": self._local_queue_status,
            "cluster_queue_resource_reservation": lambda: self._reserved_resources(_any),
            "cluster_queue_resource_usage": lambda: self._reserved_resources(_admitted),
            "cluster_queue_resource_pending": self._pending_resources,
            "cluster_queue_nominal_quota": lambda: self._quota(0),
            "cluster_queue_borrowing_limit": lambda: self._quota(1),
            "cluster_queue_lending_limit": lambda: self._quota(2),
            "local_queue_resource_reservation": lambda: self._local_queue_taken(_any),
            "local_queue_resource_usage": lambda: self._local_queue_taken(_admitted),
            "local_queue_admission_fair_sharing_usage": self._local_queue_usage_history,
            "cluster_queue_weighted_share": self._shares,
            "cohort_weighted_share": self._cohort_shares,
            "cohort_subtree_quota": self._subtree_quota,
            "cohort_subtree_resource_reservations": self._subtree_reservations,
            "cohort_subtree_admitted_active_workloads": self._subtree_admitted,
            "cohort_info": self._cohort_places,
            "cluster_queue_info": self._places,
        }
        return {f"kueue_{name}": read for name, read in public.items()}

    def _own_readings(self) -> dict[str, Callable[[], Reading]]:
        return {
            "pykueue_framework_waiting": self._waiting_frameworks,
            "pykueue_starving_workloads": self._starving,
            "pykueue_oldest_pending_seconds": self._oldest_pending,
            "pykueue_budget_spent_ratio": self._budget_ratios,
            "pykueue_forecast_wait_seconds": self._forecast_waits,
            "pykueue_forecast_coverage_ratio": self._forecast_coverage,
            "pykueue_forecast_size_coverage_ratio": self._forecast_size_coverage,
            "pykueue_api_requests_total": self._requests,
            "pykueue_api_requests_per_admission": self._requests_per_admission,
        }

    # --- Starvation ---------------------------------------------------------------------------------------------------

    def _starving(self) -> Iterator[Sample]:
        yield from (((name,), self._sources.starving(name)) for name in self._names())

    def _oldest_pending(self) -> Iterator[Sample]:
        yield from (((name,), self._sources.oldest_pending_seconds(name)) for name in self._names())

    # --- Requests -----------------------------------------------------------------------------------------------------

    def _waiting_frameworks(self) -> Iterator[Sample]:
        yield from (((framework,), absent) for framework, absent in sorted(self._sources.waiting_frameworks().items()))

    def _budget_ratios(self) -> Iterator[Sample]:
        yield from (((budget, group), ratio) for budget, group, ratio in list(self._sources.budget_ratios()))

    def _forecast_waits(self) -> Iterator[Sample]:
        yield from (((name, quantile), seconds) for name, quantile, seconds in list(self._sources.forecast_waits()))

    def _forecast_coverage(self) -> Iterator[Sample]:
        yield from (((name,), ratio) for name, ratio in list(self._sources.forecast_coverage()))

    def _forecast_size_coverage(self) -> Iterator[Sample]:
        yield from (((name, size), ratio) for name, size, ratio in list(self._sources.forecast_size_coverage()))

    def _requests(self) -> Iterator[Sample]:
        yield from sorted(self._sources.requests().items())

    def _requests_per_admission(self) -> Iterator[Sample]:
        if self._metrics.admissions:
            sent = sum(count for (verb, _), count in self._sources.requests().items() if verb not in _READING)
            yield (), sent / self._metrics.admissions

    # --- Queues -------------------------------------------------------------------------------------------------------

    def _queues(self) -> Iterator[tuple[str, list[WorkloadInfo], list[WorkloadInfo]]]:
        """Every ClusterQueue with its active and its inadmissible Workloads; an inactive ClusterQueue has no active
        ones."""
        for name, queue in sorted(self._world.queues.items()):
            active = [*queue.active(), *queue.in_flight.values()]
            inadmissible = list(queue.parked(with_resting=False))
            yield ((name, active, inadmissible) if self._world.is_active(name) else (name, [], active + inadmissible))

    def _pending(self) -> Iterator[Sample]:
        for name, active, inadmissible in self._queues():
            yield (name, "active"), len(active)
            yield (name, "inadmissible"), len(inadmissible)

    def _equivalence_classes(self) -> Iterator[Sample]:
        for name, active, inadmissible in self._queues():
            yield (name, "active"), len({workload.equivalence_class for workload in active})
            yield (name, "inadmissible"), len({workload.equivalence_class for workload in inadmissible})

    def _local_queue_pending(self) -> Reading:
        waiting: Counter[tuple[str, str, str]] = Counter()
        for _, active, inadmissible in self._queues():
            for status, workloads in (("active", active), ("inadmissible", inadmissible)):
                for workload in workloads:
                    waiting[workload.local_queue, workload.namespace, status] += 1
            yield None
        for name, namespace in self._local_queues():
            for status in ("active", "inadmissible"):
                yield (name, namespace, status), waiting[name, namespace, status]

    def _holding(self, counts: Callable[[Reservation], bool]) -> Iterator[Sample]:
        for name in self._names():
            yield (name,), sum(map(counts, self._world.reservations_in(name)))

    def _local_queue_holding(self, counts: Callable[[Reservation], bool]) -> Reading:
        held: Counter[tuple[str, str]] = Counter()
        for reservations in self._reservations():
            held.update(_local_queue_key(one) for one in reservations if counts(one))
            yield None
        for local_queue in self._local_queues():
            yield local_queue, held[local_queue]

    def _finished_workloads(self) -> Iterator[Sample]:
        # One that finished without quota, as an evicted slice that a larger one replaces, counts in the ClusterQueue of
        # its LocalQueue.
        targets = self._cluster_queues_by_local_queue()
        ended: Counter[str] = Counter()
        for (holder, name, namespace), count in self._finished.items():
            ended[holder or targets.get((name, namespace), "")] += count
        for name in self._names():
            yield (name,), ended[name]

    def _local_queue_ended(self) -> Iterator[Sample]:
        ended: Counter[tuple[str, str]] = Counter()
        for (_, name, namespace), count in self._finished.items():
            ended[name, namespace] += count
        for local_queue in self._local_queues():
            yield local_queue, ended[local_queue]

    def _waiting(self) -> Iterator[Sample]:
        targets = self._cluster_queues_by_local_queue()
        waiting: Counter[tuple[str, str, str]] = Counter()
        for (holder, name, namespace, *why), count in self._unadmitted.items():
            waiting[holder or targets.get((name, namespace), ""), why[0], why[1]] += count
        for labels, count in sorted(waiting.items()):
            if count and labels[0]:
                yield labels, count

    def _local_queue_unadmitted(self) -> Iterator[Sample]:
        targets = self._cluster_queues_by_local_queue()
        known = set(self._local_queues())
        for (holder, name, namespace, *why), count in sorted(self._unadmitted.items()):
            cluster_queue = holder or targets.get((name, namespace), "")
            if count and cluster_queue and (name, namespace) in known:
                yield (name, namespace, cluster_queue, *why), count

    def _status(self) -> Iterator[Sample]:
        for queue in list(self._sources.cluster_queues()):
            active = conditions.is_true(queue.status.conditions, ActiveCondition.ACTIVE)
            found = "terminating" if queue.metadata.deletion_timestamp else "active" if active else "pending"
            for status in _STATES:
                yield (queue.metadata.name, status), float(status == found)

    def _local_queue_status(self) -> Iterator[Sample]:
        for queue in list(self._sources.local_queues()):
            place = (queue.metadata.name, queue.metadata.namespace)
            if self._has_series(place[1], place[0]):
                condition = conditions.find(queue.status.conditions, ActiveCondition.ACTIVE)
                found = condition.status if condition is not None else "Unknown"
                for status in ("True", "False", "Unknown"):
                    yield (*place, status), float(status == found)

    # --- Quota --------------------------------------------------------------------------------------------------------

    def _reserved_resources(self, counts: Callable[[Reservation], bool]) -> Iterator[Sample]:
        for name in self._names():
            node = self._world.queue_node(name)
            total = dict.fromkeys(((pair.flavor, pair.resource) for pair in self._quotas(name)), 0)
            _add_up(total, filter(counts, self._world.reservations_in(name)))
            for (flavor, resource), amount in sorted(total.items()):
                yield (_parent(node), name, flavor, resource), _figure(resource, amount)

    def _local_queue_taken(self, counts: Callable[[Reservation], bool]) -> Reading:
        by_local_queue: dict[tuple[str, str], list[Reservation]] = {}
        for reservations in self._reservations():
            for one in filter(counts, reservations):
                by_local_queue.setdefault(_local_queue_key(one), []).append(one)
            yield None
        for local_queue in self._local_queues():
            total: dict[tuple[str, str], int] = {}
            _add_up(total, by_local_queue.get(local_queue, ()))
            for (flavor, resource), amount in sorted(total.items()):
                yield (*local_queue, flavor, resource), _figure(resource, amount)

    def _pending_resources(self) -> Iterator[Sample]:
        for name, active, inadmissible in self._queues():
            total = dict.fromkeys((pair.resource for pair in self._quotas(name)), 0)
            for workload in (*active, *inadmissible):
                for pod_set in workload.shape.pod_sets:
                    for resource, amount in pod_set.requests:
                        total[resource] = amounts.add(total.get(resource, 0), amount)
            for resource, amount in sorted(total.items()):
                yield (name, resource), _figure(resource, amount)

    def _quota(self, which: int) -> Iterator[Sample]:
        for name in self._names():
            node = self._world.queue_node(name)
            for pair, quota in sorted(self._quotas(name).items()):
                yield (_parent(node), name, pair.flavor, pair.resource), _figure(pair.resource, quota[which])

    def _local_queue_usage_history(self) -> Iterator[Sample]:
        targets = self._cluster_queues_by_local_queue()
        for name, namespace in self._local_queues():
            usage = self._world.weighted_usage(f"{namespace}/{name}")
            if usage is not None:
                yield (name, namespace, targets.get((name, namespace), "")), usage

    def _shares(self) -> Iterator[Sample]:
        if EnabledBy.RESOURCES not in self._metrics.options.on:
            return
        for name in self._names():
            node = self._world.queue_node(name)
            if node is not None:
                share = fair_sharing.dominant_resource_share(node)
                yield (name, _parent(node)), math.nan if share.is_boundless else share.rank[1]

    # --- Cohorts ------------------------------------------------------------------------------------------------------

    def cohort_deleted(self, name: str) -> None:
        """Drop the series of a cohort whose Cohort object was deleted. Where children still name it, it goes on as an
        implicit cohort and has series again with the next event in it, as in Kueue."""
        self._deleted_cohorts.add(name)

    def cohort_used(self, name: str) -> None:
        """Show the series of a cohort again: it was created, a child was changed, or a Workload below it was."""
        self._deleted_cohorts.discard(name)

    def _cohorts(self) -> Iterator[QuotaNode]:
        """Every cohort, implicit ones included."""
        yield from sorted(
            (node for node in self._world.cohort_nodes() if node.name not in self._deleted_cohorts),
            key=lambda node: node.name,
        )

    def _cohort_shares(self) -> Iterator[Sample]:
        """Kueue reports the share of cohorts that have an object."""
        explicit = {cohort.metadata.name for cohort in self._sources.cohorts()}
        for node in self._cohorts():
            if node.name in explicit:
                share = fair_sharing.dominant_resource_share(node)
                yield (node.name,), math.inf if share.is_boundless else share.rank[1]

    def _subtree_quota(self) -> Iterator[Sample]:
        for node in self._cohorts():
            for number in node.known:
                pair = node.tree.pairs[number]
                if node.subtree[number] > 0:
                    yield (node.name, pair.flavor, pair.resource), _figure(pair.resource, node.subtree[number])

    def _subtree_reservations(self) -> Reading:
        total: dict[str, dict[tuple[str, str], int]] = {}
        for name, above in self._ancestors():
            for node in above:
                _add_up(total.setdefault(node.name, {}), self._world.reservations_in(name))
            yield None
        for node in self._cohorts():
            for (flavor, resource), amount in sorted(total.get(node.name, {}).items()):
                if amount > 0:
                    yield (node.name, flavor, resource), _figure(resource, amount)

    def _subtree_admitted(self) -> Reading:
        admitted: Counter[str] = Counter()
        for name, above in self._ancestors():
            count = sum(map(_admitted, self._world.reservations_in(name)))
            admitted.update({node.name: count for node in above})
            yield None
        for node in self._cohorts():
            yield (node.name,), admitted[node.name]

    def _ancestors(self) -> Iterator[tuple[str, tuple[QuotaNode, ...]]]:
        """Every ClusterQueue with the cohorts above it. Inactive ones are included: what they hold is reserved."""
        for name in self._names():
            node = self._world.queue_node(name)
            if node is not None:
                yield name, node.ancestors

    def _cohort_places(self) -> Iterator[Sample]:
        for node in self._cohorts():
            yield (node.name, _parent(node), node.root.name), 1

    def _places(self) -> Iterator[Sample]:
        for name in self._names():
            node = self._world.queue_node(name)
            above = node.ancestors if node is not None else ()
            yield (name, _parent(node), above[-1].name if above else ""), 1

    # --- Objects ------------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return sorted(self._world.cluster_queues)

    def _reservations(self) -> Iterator[list[Reservation]]:
        """The reservations that count to a LocalQueue, a thousand at a time: those in its ClusterQueue, which exists.
        The status of a LocalQueue states the same."""
        known = self._world.cluster_queues
        targets = {key: name for key, name in self._cluster_queues_by_local_queue().items() if name in known}
        every = list(self._world.reservations.values())
        for start in range(0, len(every), _AT_A_TIME):
            some = every[start : start + _AT_A_TIME]
            yield [one for one in some if targets.get(_local_queue_key(one)) == one.cluster_queue]

    def _quotas(self, cluster_queue: str) -> Mapping[FlavorResource, Quota]:
        spec = self._world.queue_spec(cluster_queue)
        return spec.quotas if spec is not None else {}

    def _local_queues(self) -> Iterator[tuple[str, str]]:
        """The LocalQueues with series, each as (name, namespace)."""
        for queue in list(self._sources.local_queues()):
            if self._has_series(queue.metadata.namespace, queue.metadata.name):
                yield queue.metadata.name, queue.metadata.namespace

    def _cluster_queues_by_local_queue(self) -> dict[tuple[str, str], str]:
        """The ClusterQueue of each LocalQueue."""
        return {
            (queue.metadata.name, queue.metadata.namespace): queue.spec.cluster_queue or ""
            for queue in self._sources.local_queues()
        }


def _any(reservation: Reservation) -> bool:
    return True


def _admitted(reservation: Reservation) -> bool:
    return reservation.admitted


def _local_queue_key(reservation: Reservation) -> tuple[str, str]:
    return reservation.local_queue, reservation.key.partition("/")[0]


def _parent(node: QuotaNode | None) -> str:
    return node.parent.name if node is not None and node.parent is not None else ""


def _add_up(total: dict[tuple[str, str], int], reservations: Iterable[Reservation]) -> None:
    for reservation in reservations:
        for pair, amount in reservation.usage:
            total[pair.flavor, pair.resource] = amounts.add(total.get((pair.flavor, pair.resource), 0), amount)


def _figure(resource: str, amount: int) -> float:
    """Return an amount in the unit of the resource: cores, bytes, pieces."""
    if amount == amounts.UNLIMITED:
        return math.inf
    return amounts.as_quantity(resource, amount).rounded(-9) / _NANO


def _count(counts: Counter[_Key], key: _Key, step: int) -> None:
    """Add to a count. A count of 0 is deleted: names of queues and reasons come and go."""
    counts[key] += step
    if not counts[key]:
        del counts[key]


def _reasons(workload: kueue.Workload) -> tuple[str, str]:
    """Return the reasons of the conditions Admitted and QuotaReserved."""
    found = workload.status.conditions
    admitted, reserved = conditions.find(found, _ADMITTED), conditions.find(found, _RESERVED)
    return admitted.reason if admitted is not None else "", reserved.reason if reserved is not None else ""
