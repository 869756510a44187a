"""Counters and histograms that events update, and gauges that are read on a scrape."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubemachinery import meta, turns
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from pykueue import settings
from pykueue.api import kueue
from pykueue.api.conditions import (
    EvictedReason,
    FinishedReason,
    PreemptedReason,
    QuotaReservedReason,
    UnderlyingCause,
    WorkloadCondition,
)
from pykueue.api.config import CustomMetricLabel
from pykueue.core.decision import Admit, Preempt, Requeue, TargetWorkload, Wait
from pykueue.lifecycle.workload_changes import Admitted, Evicted, Finished, Released, Reserved, SetCondition
from pykueue.observe.custom_labels import CustomLabels
from pykueue.observe.gauges import Gauges, GaugeSources
from pykueue.observe.metrics import (
    BY_NAME,
    METRICS,
    OWN,
    EnabledBy,
    Metrics,
    MetricsOptions,
    ReplicaRole,
    custom_sources,
)
from scenarios import scenario_runner

RECORDED = Path(__file__).with_name("kueue-metrics.tsv")

EVERYTHING = MetricsOptions(on=frozenset(EnabledBy))


def series(metrics: Metrics) -> dict[str, float]:
    """Every series of an exposition with its value, by the text before it."""
    lines = metrics.exposition().decode().splitlines()
    return {
        text: float(value) for text, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def workload(queue: str = "lq", priority_class: str = "high", **status: Any) -> kueue.Workload:
    return kueue.Workload(
        metadata=meta.ObjectMeta(name="w", namespace="team", creation_timestamp="2026-01-01T00:00:00Z"),
        spec=kueue.WorkloadSpec(
            queue_name=queue, priority_class_ref=kueue.PriorityClassRef(name=priority_class) if priority_class else None
        ),
        status=kueue.WorkloadStatus(**status),
    )


# --- The table --------------------------------------------------------------------------------------------------------


def recorded_metrics() -> dict[str, tuple[str, list[str], list[float]]]:
    """name -> (type, labels, buckets) of every metric that Kueue registers."""
    rows = [line.split("\t") for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    return {
        name: (type_, labels.split(), [float(bound) for bound in buckets.split()])
        for name, type_, labels, _, buckets in rows
    }


def test_metrics_equal_the_recorded_list_of_kueue() -> None:
    declared = {
        metric.name: (metric.type.value, list(metric.labels), [round(bound, 9) for bound in metric.buckets])
        for metric in METRICS
        if not metric.name.startswith(OWN)
    }
    # Labels have no order in a scrape.
    by_set = {name: (type_, sorted(labels), buckets) for name, (type_, labels, buckets) in declared.items()}
    recorded = {name: (type_, sorted(labels), buckets) for name, (type_, labels, buckets) in recorded_metrics().items()}
    assert by_set == recorded
    assert len(recorded) == 64


def test_custom_labels_come_from_the_recorded_kinds() -> None:
    rows = [line.split("\t") for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    recorded = {name: kinds.split() for name, _, _, kinds, _ in rows}
    assert {name: sorted(custom_sources(BY_NAME[name])) for name in recorded} == recorded


def test_buckets_of_the_exposition_equal_the_recorded_list() -> None:
    metrics = Metrics(EVERYTHING)
    metrics.cycle([Admit(workload="a", cluster_queue="cq", pod_sets=(), is_admitted=True)], 0.001)
    bounds = re.findall(r'kueue_admission_attempt_duration_seconds_bucket\{le="([^"]+)"', metrics.exposition().decode())
    recorded = recorded_metrics()["kueue_admission_attempt_duration_seconds"][2]
    assert [float(bound) for bound in bounds] == [*recorded, float("inf")]


def test_metrics_of_multikueue_are_declared_and_have_no_series() -> None:
    metrics = Metrics(EVERYTHING)
    assert "# TYPE multikueue_workloads_dispatched_total counter" in metrics.exposition().decode()
    assert not [name for name in series(metrics) if name.startswith("multikueue_")]


def test_buckets_double() -> None:
    assert BY_NAME["kueue_quota_reserved_wait_time_seconds"].buckets[:4] == (1.0, 2.5, 5.0, 10.0)
    assert BY_NAME["kueue_admission_wait_time_seconds"].buckets[-1] == 2.5 * 2**14


def test_every_metric_has_a_help_of_its_own() -> None:
    helps = [metric.help for metric in METRICS]
    assert len(set(helps)) == len(helps)


# --- What happened ----------------------------------------------------------------------------------------------------


def test_an_admission_is_counted_for_both_queues_and_every_cohort_above() -> None:
    metrics = Metrics(EVERYTHING, role=ReplicaRole.LEADER, ancestors=lambda name: ("inner", "outer"))
    metrics.changes(workload(), (Reserved("cq", 3 * SECOND), Admitted("cq", 4 * SECOND, SECOND, had_checks=True)))
    found = series(metrics)
    of_queue = 'cluster_queue="cq",priority_class="high",replica_role="leader"'
    of_tenant = 'name="lq",namespace="team",priority_class="high",replica_role="leader"'
    assert found[f"kueue_quota_reserved_workloads_total{{{of_queue}}}"] == 1
    assert found[f"kueue_admitted_workloads_total{{{of_queue}}}"] == 1
    assert found[f"kueue_local_queue_admitted_workloads_total{{{of_tenant}}}"] == 1
    assert found[f"kueue_admission_wait_time_seconds_sum{{{of_queue}}}"] == 4
    assert found[f"kueue_admission_checks_wait_time_seconds_sum{{{of_queue}}}"] == 1
    for cohort in ("inner", "outer"):
        of_cohort = f'cohort="{cohort}",priority_class="high",replica_role="leader"'
        assert found[f"kueue_cohort_subtree_admitted_workloads_total{{{of_cohort}}}"] == 1


def test_without_checks_no_check_wait_time_is_observed() -> None:
    metrics = Metrics(EVERYTHING)
    metrics.changes(workload(), (Admitted("cq", SECOND, 0, had_checks=False),))
    assert not [name for name in series(metrics) if name.startswith("kueue_admission_checks_wait_time_seconds_sum")]


def test_eviction_is_counted_each_time_and_once_per_reason() -> None:
    metrics = Metrics(EVERYTHING)
    for is_first in (True, False):
        metrics.changes(
            workload(), (Evicted("cq", EvictedReason.PREEMPTED, UnderlyingCause.NONE, is_first, ready_for=SECOND),)
        )
    metrics.changes(workload(), (Released("cq", "Preempted", -5),))
    found = series(metrics)
    why = 'cluster_queue="cq",priority_class="high",reason="Preempted",replica_role="standalone",underlying_cause=""'
    assert found[f"kueue_evicted_workloads_total{{{why}}}"] == 2
    assert found[f"kueue_evicted_workloads_once_total{{{why}}}"] == 1
    assert (
        'kueue_pods_ready_to_evicted_time_seconds_count{cluster_queue="cq",reason="Preempted",replica_role="standalone",underlying_cause=""}'
        in found
    )
    # Clocks of two machines: a negative time is none.
    released = 'cluster_queue="cq",reason="Preempted",replica_role="standalone"'
    assert found[f"kueue_workload_eviction_latency_seconds_sum{{{released}}}"] == 0


def test_finish_is_counted_and_execution_time_only_if_it_ran() -> None:
    metrics = Metrics(EVERYTHING)
    metrics.changes(workload(), (Finished("cq", FinishedReason.SUCCEEDED, 60 * SECOND),))
    metrics.changes(workload(), (Finished("cq", FinishedReason.FAILED, None),))
    found = series(metrics)
    labels = 'cluster_queue="cq",priority_class="high",replica_role="standalone"'
    assert found[f"kueue_finished_workloads_total{{{labels}}}"] == 2
    assert found[f"kueue_execution_time_seconds_count{{{labels}}}"] == 1


def test_ready_pods_are_timed_from_queueing_and_from_admission() -> None:
    def condition(type_: str, at: str) -> meta.Condition:
        return meta.Condition(type=type_, status="True", reason="Started", message="", last_transition_time=at)

    ready = workload(
        conditions=(condition("Admitted", "2026-01-01T00:00:10Z"), condition("PodsReady", "2026-01-01T00:00:40Z")),
        admission=kueue.Admission(cluster_queue="cq"),
    )
    metrics = Metrics(EVERYTHING)
    metrics.changes(ready, (SetCondition(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, "Started", ""),))
    found = series(metrics)
    labels = 'cluster_queue="cq",priority_class="high",replica_role="standalone"'
    assert found[f"kueue_ready_wait_time_seconds_sum{{{labels}}}"] == 40
    assert found[f"kueue_admitted_until_ready_wait_time_seconds_sum{{{labels}}}"] == 30


def test_cycle_with_an_admission_is_a_success() -> None:
    metrics = Metrics(EVERYTHING)
    waits = Wait(workload="a", cluster_queue="cq", reason=QuotaReservedReason.WAITING_FOR_QUOTA, requeue=Requeue.NO_FIT)
    admits = Admit(workload="b", cluster_queue="cq", pod_sets=(), is_admitted=True)
    metrics.cycle([waits], 0.001)
    metrics.cycle([waits, admits], 0.001)
    metrics.cycle([], 0.001)
    found = series(metrics)
    assert found['kueue_admission_attempts_total{replica_role="standalone",result="inadmissible"}'] == 1
    assert found['kueue_admission_attempts_total{replica_role="standalone",result="success"}'] == 1


def test_preemption_is_counted_for_the_preemptor_when_issued() -> None:
    targets = (
        TargetWorkload("x", "lender", PreemptedReason.IN_COHORT_RECLAMATION),
        TargetWorkload("y", "lender", PreemptedReason.IN_COHORT_RECLAMATION, already_evicted=True),
    )
    metrics = Metrics(EVERYTHING)
    metrics.cycle(
        [Preempt(workload="a", cluster_queue="owner", reason=QuotaReservedReason.WAITING_FOR_QUOTA, targets=targets)],
        0.0,
    )
    labels = 'preempting_cluster_queue="owner",reason="InCohortReclamation",replica_role="standalone"'
    assert series(metrics)[f"kueue_preempted_workloads_total{{{labels}}}"] == 1


OVERLAP = (
    "cluster-queue p cohort=c cpu=5 reclaim=Any",
    "cluster-queue q cohort=c cpu=5 reclaim=Any",
    "cluster-queue r cohort=c cpu=0",
    "holds v queue=r cpu=10",
    "submit p1 queue=p cpu=5 at=1",
    "submit q1 queue=q cpu=5 at=2",
)
ELSEWHERE = (
    "cluster-queue p cohort=c cpu=5 reclaim=Any within=LowerPriority",
    "cluster-queue q cohort=c cpu=5 reclaim=Any within=LowerPriority",
    "cluster-queue r cohort=c cpu=0",
    "holds qown queue=q cpu=4 priority=1",
    "holds v queue=r cpu=6",
    "submit p1 queue=p cpu=5 at=1 priority=9",
    "submit q1 queue=q cpu=5 at=2 priority=9",
)


def measured_cycle(*commands: str) -> dict[str, float]:
    """The series that one cycle of a small world leaves."""
    runner, metrics = scenario_runner.ScenarioRunner(), Metrics(EVERYTHING)
    for command in commands:
        runner.run(command)
    metrics.cycle(runner.world.decide(runner.now), 0.0)
    return series(metrics)


def recomputations(found: dict[str, float]) -> dict[str, float]:
    metric = "kueue_preemption_target_recomputations_total"
    labels = 'cluster_queue="q",replica_role="standalone",result="'
    return {
        name.removeprefix(f"{metric}{{{labels}").removesuffix('"}'): value
        for name, value in found.items()
        if name.startswith(f"{metric}{{{labels}")
    }


def test_overlapping_targets_are_counted_as_deferred_fit() -> None:
    found = measured_cycle(*OVERLAP)
    assert recomputations(found) == {"deferred_fit": 1}
    assert not [name for name in found if name.startswith("kueue_admission_cycle_preemption_skips{")]


def test_overlapping_targets_are_counted_as_new_targets() -> None:
    found = measured_cycle(*ELSEWHERE)
    assert recomputations(found) == {"new_targets": 1}


def test_preemption_given_up_in_a_cycle_is_counted_as_skip() -> None:
    found = measured_cycle("gate RecomputeAssignmentUponPreemptionTargetsOverlap=off", *OVERLAP)
    assert found['kueue_admission_cycle_preemption_skips{cluster_queue="q",replica_role="standalone"}'] == 1
    assert recomputations(found) == {}


def test_preemption_skips_keep_the_count_of_the_last_cycle_that_had_some() -> None:
    def skip(workload: str) -> Wait:
        return Wait(
            workload=workload,
            cluster_queue="cq",
            reason=QuotaReservedReason.WAITING_FOR_QUOTA,
            requeue=Requeue.FAILED_AFTER_NOMINATION,
            skips_preemption=True,
        )

    metrics, name = (
        Metrics(EVERYTHING),
        'kueue_admission_cycle_preemption_skips{cluster_queue="cq",replica_role="standalone"}',
    )
    metrics.cycle([skip("a"), skip("b")], 0.0)
    assert series(metrics)[name] == 2
    metrics.cycle([skip("a")], 0.0)
    assert series(metrics)[name] == 1
    metrics.cycle([Admit(workload="b", cluster_queue="cq", pod_sets=(), is_admitted=True)], 0.0)
    assert series(metrics)[name] == 1
    metrics.forget_cluster_queue("cq")
    assert name not in series(metrics)


def test_series_of_a_deleted_queue_are_dropped() -> None:
    metrics = Metrics(EVERYTHING)
    metrics.changes(workload(), (Reserved("cq", 0),))
    metrics.changes(workload("other"), (Reserved("kept", 0),))
    metrics.forget_cluster_queue("cq")
    metrics.forget_local_queue("team", "lq")
    left = [name for name in series(metrics) if "_workloads_total" in name]
    assert left == [
        'kueue_quota_reserved_workloads_total{cluster_queue="kept",priority_class="high",replica_role="standalone"}',
        'kueue_local_queue_quota_reserved_workloads_total{name="other",namespace="team",priority_class="high",replica_role="standalone"}',
    ]
    metrics.changes(workload(), (Reserved("cq", 0),))  # and may come back


@pytest.mark.parametrize("on", [True, False])
def test_local_queue_series_are_configurable(on: bool) -> None:
    configuration = settings.load(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "metrics": {"localQueueMetrics": {"enable": on}},
        }
    )
    metrics = Metrics(MetricsOptions.of(configuration.configuration, configuration.gates))
    metrics.changes(workload(), (Reserved("cq", 0),))
    assert any("local_queue" in name for name in series(metrics)) is on


def test_a_local_queue_that_is_not_selected_has_none() -> None:
    metrics = Metrics(EVERYTHING, has_series=lambda namespace, name: name != "lq")
    metrics.changes(workload(), (Reserved("cq", 0),))
    assert not [name for name in series(metrics) if "local_queue" in name]


def test_local_queue_of_a_workload_is_looked_up_once_for_all_changes_of_a_write() -> None:
    asked: list[str] = []

    def has_series(namespace: str, name: str) -> bool:
        asked.append(name)
        return True

    metrics = Metrics(EVERYTHING, has_series=has_series)
    metrics.changes(workload(), (Reserved("cq", 0), Admitted("cq", 0, 0, had_checks=False)))
    assert asked == ["lq"]


# --- Custom labels ----------------------------------------------------------------------------------------------------

CUSTOM = CustomLabels(
    (
        CustomMetricLabel(name="team"),
        CustomMetricLabel(name="cost", source_annotation_key="example.com/cost"),
        CustomMetricLabel(name="zone", source_kind="Cohort", source_label_key="example.com/zone"),
        CustomMetricLabel(name="tenant", source_kind="LocalQueue"),
        CustomMetricLabel(name="tier", source_kind="Workload", tracked_values=("gold", "silver")),
    )
)


def metadata_of(source: str, namespace: str, name: str) -> meta.ObjectMeta | None:
    found = {
        ("ClusterQueue", "", "cq"): meta.ObjectMeta(labels={"team": "ml"}, annotations={"example.com/cost": "7"}),
        ("Cohort", "", "eng"): meta.ObjectMeta(labels={"example.com/zone": "eu"}),
        ("LocalQueue", "team", "lq"): meta.ObjectMeta(labels={"tenant": "blue"}),
    }
    return found.get((source, namespace, name))


def with_custom_labels() -> Metrics:
    options = MetricsOptions(on=frozenset(EnabledBy), custom=CUSTOM)
    return Metrics(options, ancestors=lambda name: ("eng",), metadata_of=metadata_of)


def tiered(tier: str) -> kueue.Workload:
    made = workload()
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels={"tier": tier}))


def test_custom_labels_are_added_by_source_kind() -> None:
    metrics = with_custom_labels()
    metrics.changes(tiered("gold"), (Admitted("cq", SECOND, 0, had_checks=False),))
    metrics.changes(tiered("other"), (Admitted("cq", SECOND, 0, had_checks=False),))
    metrics.workload_created("Job", SECOND, "team", "lq")
    found = series(metrics)
    of_queue = 'cluster_queue="cq",custom_cost="7",custom_team="ml",priority_class="high",replica_role="standalone"'
    of_cohort = 'cohort="eng",custom_zone="eu",priority_class="high",replica_role="standalone"'
    assert found[f"kueue_admitted_workloads_total{{{of_queue}}}"] == 2
    assert found[f"kueue_cohort_subtree_admitted_workloads_total{{{of_cohort}}}"] == 2
    created = 'custom_tenant="blue",job_kind="Job",replica_role="standalone"'
    assert found[f"kueue_workload_creation_latency_seconds_count{{{created}}}"] == 1
    for tier in ("gold", "kueue.x-k8s.io/_UNTRACKED_VALUE_"):
        labels = f'custom_tenant="blue",custom_tier="{tier}",name="lq",namespace="team",priority_class="high"'
        assert found[f'kueue_local_queue_admitted_workloads_total{{{labels},replica_role="standalone"}}'] == 1


def test_custom_labels_of_a_missing_object_are_empty() -> None:
    metrics = with_custom_labels()
    metrics.changes(workload(), (Reserved("gone", 0),))
    labels = 'cluster_queue="gone",custom_cost="",custom_team="",priority_class="high",replica_role="standalone"'
    assert series(metrics)[f"kueue_quota_reserved_workloads_total{{{labels}}}"] == 1


@pytest.mark.parametrize("on", [True, False])
def test_custom_labels_need_their_gate(on: bool) -> None:
    configuration = settings.load(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "metrics": {"customLabels": [{"name": "team"}]},
            "featureGates": {"CustomMetricLabels": on},
        }
    )
    metrics = Metrics(MetricsOptions.of(configuration.configuration, configuration.gates))
    metrics.changes(workload(), (Reserved("cq", 0),))
    assert any("custom_team" in name for name in series(metrics)) is on


# --- What is ----------------------------------------------------------------------------------------------------------


def measured(*commands: str) -> tuple[Metrics, Gauges]:
    """The metrics of a small world; LocalQueues are called like their ClusterQueue and live in `ns`."""
    runner = scenario_runner.ScenarioRunner()
    for command in commands:
        runner.run(command)
    world = runner.world
    names = sorted(world.cluster_queues)

    def local_queues() -> Iterable[kueue.LocalQueue]:
        return [
            kueue.LocalQueue(
                metadata=meta.ObjectMeta(name=name, namespace=scenario_runner.NAMESPACE),
                spec=kueue.LocalQueueSpec(cluster_queue=name),
            )
            for name in names
        ]

    metrics = Metrics(EVERYTHING)
    sources = GaugeSources(world, lambda: world.cluster_queues.values(), local_queues)
    return metrics, Gauges(metrics, sources)


WORLD = (
    "cluster-queue a  cohort=eng cpu=10+5",
    "cluster-queue b  cohort=eng cpu=10-4",
    "holds         b1 queue=b cpu=8",
    "submit        a1 queue=a cpu=14",
    "submit        a2 queue=a cpu=500m",
    "cycle",
)


def test_gauges_of_queues_match_the_state() -> None:
    metrics, _ = measured(*WORLD)
    found = series(metrics)
    assert found['kueue_reserving_active_workloads{cluster_queue="b",replica_role="standalone"}'] == 1
    assert found['kueue_local_queue_reserving_active_workloads{name="b",namespace="ns",replica_role="standalone"}'] == 1
    pending = [
        found[f'kueue_pending_workloads{{cluster_queue="a",replica_role="standalone",status="{status}"}}']
        for status in ("active", "inadmissible")
    ]
    assert sum(pending) == 2


def test_nothing_is_used_through_a_local_queue_whose_cluster_queue_was_deleted() -> None:
    metrics, gauges = measured(*WORLD)
    local_queue = 'name="b",namespace="ns",replica_role="standalone"'
    used = f'kueue_local_queue_resource_reservation{{flavor="default",{local_queue},resource="cpu"}}'
    assert series(metrics)[used] == 8
    world = gauges._world
    world.drop(world.cluster_queues["b"])
    found = series(metrics)
    assert used not in found
    assert found[f"kueue_local_queue_reserving_active_workloads{{{local_queue}}}"] == 0
    assert found[f"kueue_local_queue_admitted_active_workloads{{{local_queue}}}"] == 0


def test_reservations_in_another_cluster_queue_than_that_of_the_local_queue_do_not_count() -> None:
    """The LocalQueue was deleted and created again for another ClusterQueue, as Kueue counts."""
    runner = scenario_runner.ScenarioRunner()
    for command in WORLD:
        runner.run(command)
    metrics = Metrics(EVERYTHING)
    moved = kueue.LocalQueue(
        metadata=meta.ObjectMeta(name="b", namespace=scenario_runner.NAMESPACE),
        spec=kueue.LocalQueueSpec(cluster_queue="a"),
    )
    Gauges(metrics, GaugeSources(runner.world, lambda: (), lambda: [moved]))
    found = series(metrics)
    assert found['kueue_local_queue_reserving_active_workloads{name="b",namespace="ns",replica_role="standalone"}'] == 0


async def test_scrape_returns_what_is_counted_and_what_is_read() -> None:
    metrics, _ = measured(*WORLD)
    text = await metrics.scrape()
    assert text == metrics.exposition()
    assert b"kueue_build_info" in text
    assert b"kueue_pending_workloads" in text


async def test_series_may_change_while_they_are_scraped() -> None:
    metrics, _ = measured(*WORLD)
    for index in range(1000):
        metrics.changes(workload(), [Reserved(f"cq{index}", SECOND)])
    turns.limit(asyncio.get_running_loop(), -1)
    scraping = asyncio.create_task(metrics.scrape())
    changed = 0
    while not scraping.done():
        metrics.forget_cluster_queue(f"cq{changed}")
        metrics.changes(workload(), [Reserved("cq999", SECOND), Reserved(f"new{changed}", SECOND)])
        changed += 1
        await asyncio.sleep(0)
    assert changed > 20
    lines = (await scraping).decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    labels = 'cluster_queue="cq999",priority_class="high",replica_role="standalone"'
    bucket = labels.replace(",", ',le="+Inf",', 1)
    histogram = "kueue_quota_reserved_wait_time_seconds"
    assert 1 < float(found[f"{histogram}_count{{{labels}}}"]) < changed
    assert found[f"{histogram}_count{{{labels}}}"] == found[f"{histogram}_bucket{{{bucket}}}"]


async def test_the_state_may_change_while_gauges_are_read() -> None:
    """Between two samples, ClusterQueues, LocalQueues and Workloads come and go."""
    runner = scenario_runner.ScenarioRunner()
    for number in range(40):
        runner.run(f"cluster-queue q{number:02} cohort=c{number % 4} cpu=10")
        runner.run(f"holds held-{number:02} queue=q{number:02} cpu=4")
        runner.run(f"submit waits-{number:02} queue=q{number:02} cpu=8")
    runner.run("cycle")
    world = runner.world
    local_queues = {
        name: kueue.LocalQueue(
            metadata=meta.ObjectMeta(name=name, namespace=scenario_runner.NAMESPACE),
            spec=kueue.LocalQueueSpec(cluster_queue=name),
        )
        for name in world.cluster_queues
    }
    metrics = Metrics(EVERYTHING)
    sources = GaugeSources(
        world, lambda: (world.cluster_queues[name] for name in sorted(world.cluster_queues)), local_queues.values
    )
    Gauges(metrics, sources)
    turns.limit(asyncio.get_running_loop(), -1)
    scraping, pauses = asyncio.create_task(metrics.scrape()), 0
    while not scraping.done():
        await asyncio.sleep(0)
        pauses += 1
    assert pauses > 100
    for removed in range(10, 30):  # each time at another moment of a scrape
        scraping = asyncio.create_task(metrics.scrape())
        for _ in range(pauses * (removed - 10) // 40):
            await asyncio.sleep(0)
        assert not scraping.done()
        name = f"q{removed}"
        world.drop(world.cluster_queues[name])
        del local_queues[name]
        runner.run(f"finish held-{removed}")
        lines = (await scraping).decode().splitlines()
        assert 'kueue_cluster_queue_status{cluster_queue="q39",replica_role="standalone",status="active"} 0.0' in lines
        assert any(line.startswith("pykueue_oldest_pending_seconds") and '"q39"' in line for line in lines)


def test_quota_is_read_in_units_and_no_limit_is_infinite() -> None:
    found = series(measured(*WORLD)[0])

    def of(metric: str, queue: str) -> float:
        labels = f'cluster_queue="{queue}",cohort="eng",flavor="default",replica_role="standalone",resource="cpu"'
        return found[f"kueue_cluster_queue_{metric}{{{labels}}}"]

    assert (of("nominal_quota", "a"), of("borrowing_limit", "a"), of("lending_limit", "a")) == (10, 5, float("inf"))
    assert (of("borrowing_limit", "b"), of("lending_limit", "b")) == (float("inf"), 4)
    assert (of("resource_reservation", "b"), of("resource_reservation", "a")) == (8, 0)
    asked = 'cluster_queue="a",replica_role="standalone",resource="cpu"'
    assert found[f"kueue_cluster_queue_resource_pending{{{asked}}}"] == 14.5


def test_info_metrics_link_the_cohort_tree() -> None:
    found = series(measured(*WORLD)[0])
    link = 'cluster_queue="a",parent_cohort="eng",replica_role="standalone",root_cohort="eng"'
    assert found[f"kueue_cluster_queue_info{{{link}}}"] == 1
    assert found['kueue_cohort_info{cohort="eng",parent_cohort="",replica_role="standalone",root_cohort="eng"}'] == 1


TREE = (
    "cohort root",
    "cohort ch1 parent=root cpu=1",
    "cohort child parent=implied cpu=3",
    "cluster-queue a cohort=ch1 cpu=4",
    "cluster-queue b stopped cohort=ch1 cpu=2",
    "cluster-queue c cohort=root cpu=7",
    "holds a1 queue=a cpu=3",
    "holds b1 queue=b cpu=2",
    "holds c1 queue=c cpu=5",
    "cycle",
)


def of_cohorts(found: dict[str, float], metric: str) -> dict[str, float]:
    """cohort -> value of one metric."""
    rows = ((re.search(r'cohort="([^"]*)"', name), name, value) for name, value in found.items())
    return {match[1]: value for match, name, value in rows if match and name.startswith(f"kueue_{metric}{{")}


def test_cohort_reservations_are_the_sum_over_the_subtree_of_used_quota() -> None:
    found = of_cohorts(series(measured(*TREE)[0]), "cohort_subtree_resource_reservations")
    # Those of a stopped ClusterQueue count; cohorts without any have no series.
    assert found == {"ch1": 5, "root": 10}


def test_cohort_quota_has_series_where_there_is_quota() -> None:
    found = of_cohorts(series(measured(*TREE)[0]), "cohort_subtree_quota")
    assert found == {"ch1": 7, "root": 14, "implied": 3, "child": 3}


def test_implicit_cohorts_have_info_series() -> None:
    names = {name for name in series(measured(*TREE)[0]) if name.startswith("kueue_cohort_info{")}
    assert names == {
        f'kueue_cohort_info{{cohort="{cohort}",parent_cohort="{parent}",replica_role="standalone",root_cohort="{root}"}}'
        for cohort, parent, root in (
            ("root", "", "root"),
            ("ch1", "root", "root"),
            ("implied", "", "implied"),
            ("child", "implied", "implied"),
        )
    }


def test_finished_and_unadmitted_workloads_are_counted() -> None:
    metrics, gauges = measured("cluster-queue a cpu=10")

    def workload_with(**status: str) -> kueue.Workload:
        found = [meta.Condition(type=type_, status=value, reason="Why") for type_, value in status.items()]
        return kueue.Workload(
            metadata=meta.ObjectMeta(name="w", namespace=scenario_runner.NAMESPACE),
            spec=kueue.WorkloadSpec(queue_name="a"),
            status=kueue.WorkloadStatus(conditions=tuple(found), admission=kueue.Admission(cluster_queue="a")),
        )

    waiting = 'kueue_unadmitted_workloads{cluster_queue="a",reason="",replica_role="standalone",underlying_cause="Why"}'
    ended = 'kueue_finished_workloads{cluster_queue="a",replica_role="standalone"}'
    fresh, over = workload_with(QuotaReserved="False"), workload_with(Finished="True")
    gauges.workload_seen(None, fresh)
    assert (series(metrics)[waiting], series(metrics)[ended]) == (1, 0)
    gauges.workload_seen(fresh, over)
    assert (series(metrics).get(waiting), series(metrics)[ended]) == (None, 1)
    gauges.workload_seen(over, None)
    assert series(metrics)[ended] == 0


def test_counts_of_workloads_that_are_gone_are_deleted() -> None:
    """Queues and reasons come and go; what is kept of them would grow for as long as the manager runs."""
    _, gauges = measured("cluster-queue a cpu=10")
    fresh = kueue.Workload(metadata=meta.ObjectMeta(name="w"), spec=kueue.WorkloadSpec(queue_name="a"))
    over = replace(
        fresh, status=kueue.WorkloadStatus(conditions=(meta.Condition(type="Finished", status="True", reason="Why"),))
    )
    for old, new in ((None, fresh), (fresh, over), (over, None)):
        gauges.workload_seen(old, new)
    assert (dict(gauges._unadmitted), dict(gauges._finished)) == ({}, {})


def test_workload_that_finished_without_quota_counts_in_the_cluster_queue_of_its_local_queue() -> None:
    metrics, gauges = measured("cluster-queue a cpu=10")
    over = kueue.Workload(
        metadata=meta.ObjectMeta(name="w", namespace=scenario_runner.NAMESPACE),
        spec=kueue.WorkloadSpec(queue_name="a"),
        status=kueue.WorkloadStatus(conditions=(meta.Condition(type="Finished", status="True", reason="Why"),)),
    )
    gauges.workload_seen(None, over)
    assert series(metrics)['kueue_finished_workloads{cluster_queue="a",replica_role="standalone"}'] == 1


def test_exposition_is_repeatable() -> None:
    metrics, _ = measured(*WORLD)
    assert metrics.exposition() == metrics.exposition()


def test_requests_are_counted_by_verb_and_writes_per_admission() -> None:
    metrics, world = Metrics(EVERYTHING), scenario_runner.ScenarioRunner().world
    sent = {("PATCH", "workloads"): 2, ("POST", "events"): 1, ("GET", "leases"): 5, ("watch", "workloads"): 1}
    Gauges(metrics, GaugeSources(world, lambda: (), lambda: (), requests=lambda: sent))
    per_admission = 'pykueue_api_requests_per_admission{replica_role="standalone"}'
    assert per_admission not in series(metrics)
    metrics.changes(workload(), (Admitted("cq", SECOND, 0, had_checks=False),) * 2)
    found = series(metrics)
    assert found['pykueue_api_requests_total{replica_role="standalone",resource="leases",verb="GET"}'] == 5
    assert found[per_admission] == 1.5
