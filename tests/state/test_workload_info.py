"""What the memory reads off a Workload: whether it may queue, and where in line."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MILLISECOND, SECOND
from lifecycle.workload_harness import START, WorkloadHarness, placed, workload
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, PreemptedReason, QuotaReservedReason, WorkloadCondition
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.timeline import ENDLESS
from pykueue.core.workload import WorkloadShape
from pykueue.lifecycle import workload_changes
from pykueue.state import workload_info


@pytest.mark.parametrize(
    "harness",
    [
        WorkloadHarness().annotated(**{labels.ADMISSION_GATED_BY: "x/y"}),
        WorkloadHarness().activate(False),
        WorkloadHarness().reserved(),
        WorkloadHarness().with_condition(WorkloadCondition.FINISHED, ConditionStatus.TRUE, "Succeeded"),
        WorkloadHarness().with_condition(
            WorkloadCondition.QUOTA_RESERVED, ConditionStatus.FALSE, QuotaReservedReason.ON_HOLD
        ),
        WorkloadHarness().with_condition(
            WorkloadCondition.WAITING_FOR_REPLACEMENT_PODS, ConditionStatus.TRUE, "Preempted"
        ),
    ],
)
def test_what_keeps_a_workload_out_of_the_queue(harness: WorkloadHarness) -> None:
    assert workload_info.may_queue(workload(), SchedulingPolicy())
    assert not workload_info.may_queue(harness.workload, SchedulingPolicy())


def test_an_empty_gate_annotation_and_a_disabled_gate_do_not_gate_admission() -> None:
    assert workload_info.may_queue(
        WorkloadHarness().annotated(**{labels.ADMISSION_GATED_BY: ""}).workload, SchedulingPolicy()
    )
    gated = WorkloadHarness().annotated(**{labels.ADMISSION_GATED_BY: "x/y"}).workload
    assert workload_info.may_queue(gated, SchedulingPolicy(admission_gated_by=False))


def test_the_place_in_the_queue_after_an_eviction() -> None:
    late = (
        WorkloadHarness()
        .after(60)
        .with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PODS_READY_TIMEOUT)
        .workload
    )
    assert workload_info.queue_time(late, SchedulingPolicy()) == START + 60 * SECOND
    assert workload_info.queue_time(late, SchedulingPolicy(order_by_eviction=False)) == START
    retried = (
        WorkloadHarness()
        .after(60)
        .with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.ADMISSION_CHECK)
        .workload
    )
    assert workload_info.queue_time(retried, SchedulingPolicy(order_by_eviction=False)) == START + 60 * SECOND
    victim = (
        WorkloadHarness()
        .after(60)
        .with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PREEMPTED)
        .workload
    )
    assert workload_info.queue_time(victim, SchedulingPolicy()) == START


def test_a_victim_of_a_borrower_goes_behind_it_where_cohorts_are_not_sorted() -> None:
    reason = PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING
    victim = (
        WorkloadHarness().after(60).with_condition(WorkloadCondition.PREEMPTED, ConditionStatus.TRUE, reason).workload
    )
    assert (
        workload_info.queue_time(victim, SchedulingPolicy(priority_sorting_within_cohort=False))
        == START + 60 * SECOND + MILLISECOND
    )
    assert workload_info.queue_time(victim, SchedulingPolicy()) == START


@pytest.mark.parametrize(("boost", "priority"), [("5", 15), ("-20", -10), ("lots", 10), ("", 10), (str(2**31), 10)])
def test_the_boost_is_added_where_it_is_a_32_bit_number(boost: str, priority: int) -> None:
    found = WorkloadHarness(workload(priority=10)).annotated(**{labels.PRIORITY_BOOST: boost}).workload
    assert workload_info.priority(found, SchedulingPolicy(priority_boost=True)) == priority
    assert workload_info.priority(found, SchedulingPolicy()) == 10


def test_a_second_pass_is_for_a_placement_that_waited_for_its_checks() -> None:
    delayed = kueue.PodSetAssignment(name="main", delayed_topology_request="Pending")
    harness = WorkloadHarness().reserved("default", "c1")
    harness.write((workload_changes.SetAdmission(kueue.Admission(cluster_queue="cq", pod_set_assignments=(delayed,))),))
    assert not workload_info.needs_second_pass(harness.workload)
    assert workload_info.needs_second_pass(harness.check_state("c1", "Ready").workload)
    evicted = harness.with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PREEMPTED)
    assert not workload_info.needs_second_pass(evicted.workload)


@pytest.mark.parametrize(("unhealthy", "needed"), [((), False), (("elsewhere",), False), (("elsewhere", "n1"), True)])
def test_a_second_pass_is_for_an_unhealthy_node_of_the_placement(unhealthy: tuple[str, ...], needed: bool) -> None:
    harness = WorkloadHarness().reserved().write((workload_changes.SetAdmission(placed("n1")),))
    harness.write((workload_changes.SetUnhealthyNodes(tuple(kueue.UnhealthyNode(name=name) for name in unhealthy)),))
    assert workload_info.needs_second_pass(harness.workload) is needed


@pytest.mark.parametrize(
    ("maximum", "past", "deadline", "expected"),
    [
        (3600, None, None, (3600, 60)),
        (3600, 600, None, (3000, 60)),
        (3600, 7200, None, (0, 60)),
        (None, None, "1800", (1800, 120)),
        (1800, None, "1790", (1800, 60)),  # 1,860 s, and 1,910 s until the job has started and its pods have stopped
        (None, None, "soon", None),
        (None, None, None, None),
    ],
)
def test_the_limit_of_a_run_is_the_one_that_releases_quota_first(
    maximum: int | None, past: int | None, deadline: str | None, expected: tuple[int, int] | None
) -> None:
    """TL1: what is left of the maximum execution time, or the deadline of the job, and when quota is back after it."""
    found = workload(maximum_execution_time_seconds=maximum)
    marks = {labels.ACTIVE_DEADLINE_SECONDS: deadline} if deadline is not None else {}
    found = replace(
        found,
        metadata=replace(found.metadata, annotations=marks),
        status=replace(found.status, accumulated_past_execution_time_seconds=past),
    )
    limit = workload_info.run_limit(found)
    assert (None if limit is None else (limit.time // SECOND, limit.allowance // SECOND)) == expected


def test_limits_are_read_only_where_the_timeline_is_used() -> None:
    """TL10."""
    found = workload(maximum_execution_time_seconds=60)
    shape = WorkloadShape(())
    with_timeline = SchedulingPolicy(planned_backfill=True)
    assert workload_info.pending(found, shape, "cq", SchedulingPolicy()).limit is None
    assert workload_info.pending(found, shape, "cq", with_timeline).limit == (60 * SECOND, 60 * SECOND)


def test_the_hard_end_counts_from_the_admission_and_needs_one() -> None:
    """TL1: a Workload that waits for its checks has no hard end."""
    limited = WorkloadHarness(workload(maximum_execution_time_seconds=60))
    waiting = limited.reserved("default", "a-check").workload
    assert workload_info.hard_end(waiting) == ENDLESS
    admitted = limited.with_condition(WorkloadCondition.ADMITTED, ConditionStatus.TRUE, "Admitted").workload
    assert workload_info.hard_end(admitted) == START + 120 * SECOND
