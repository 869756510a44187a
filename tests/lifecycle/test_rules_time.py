"""The rules that a clock drives: `pods_ready`, `execution_time`, `finished`; and `orphan`, `claims`, `preemption_gates`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import HOUR, MINUTE, SECOND, Condition, format_time
from laws.random_workloads import CLAIMING
from lifecycle.workload_harness import START, WorkloadHarness, facts_of, workload
from pykueue.api import kueue, labels
from pykueue.api.conditions import EvictedReason, FinishedReason, WorkloadCondition
from pykueue.lifecycle import backoff, finishing, readiness, states, workload_changes
from pykueue.lifecycle.facts import CheckFacts, LifecycleOptions, PodsReadyOptions, WorkloadFacts
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer

QUICK = LifecycleOptions(
    pods_ready=PodsReadyOptions(timeout=10 * SECOND, recovery_timeout=5 * SECOND, backoff_base_seconds=60)
)


def limited(most: int | None) -> LifecycleOptions:
    return LifecycleOptions(pods_ready=PodsReadyOptions(timeout=10 * SECOND, backoff_limit_count=most))


# --- pods_ready -------------------------------------------------------------------------------------------------------


def test_pods_that_do_not_start_in_time_cost_the_place() -> None:
    harness = WorkloadHarness(options=QUICK).reserved()
    assert harness.step_once().wake_at == START + 10 * SECOND
    harness.after(10).settle()
    assert harness.conditions["Evicted"] == "True/PodsReadyTimeout"
    assert harness.evictions == {"PodsReadyTimeout/WaitForStart": 1}
    assert states.requeue_count(harness.workload) == 1
    assert states.requeue_at(harness.workload) == START + 70 * SECOND
    harness.released().after(60).settle()
    assert harness.conditions["Requeued"] == "True/BackoffFinished"


def test_requeue_at_is_removed_after_the_backoff_also_while_quota_is_held() -> None:
    """As when the job has not stopped yet: `Requeued` is False, and the quota is not given back."""
    harness = WorkloadHarness(options=QUICK).reserved().after(10).settle()
    harness.with_condition(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, "PodsReadyTimeout").after(60).settle()
    assert states.is_reserved(harness.workload)
    assert harness.conditions["Requeued"] == "True/BackoffFinished"
    assert states.requeue_at(harness.workload) is None
    assert states.requeue_count(harness.workload) == 1


@pytest.mark.parametrize("ahead", [MINUTE, 240 * HOUR])
def test_a_backoff_that_began_while_the_clock_was_ahead_ends_after_its_longest_length(ahead: int) -> None:
    """[LC107] `requeueAt` is written once, and the backoff ends although the eviction stays in the future."""
    harness = WorkloadHarness(options=QUICK).reserved().after(ahead // SECOND).settle().released()
    at = states.requeue_at(harness.workload)
    harness.after(-(ahead // SECOND)).settle()
    bounded = states.requeue_at(harness.workload)
    assert at == START + ahead + MINUTE
    assert bounded == harness.now + 61 * SECOND
    harness.after(30).settle()
    assert states.requeue_at(harness.workload) == bounded
    harness.after(31).settle()
    assert states.requeue_at(harness.workload) is None
    assert harness.conditions["Requeued"] == "True/BackoffFinished"


def test_a_backoff_of_a_check_that_began_while_the_clock_was_ahead_ends_after_its_length() -> None:
    """[LC107]"""
    harness = WorkloadHarness(options=QUICK)
    harness.facts = facts_of(CheckFacts("c"))
    harness.after(240 * 3600).reserved().check_state("c", "Retry", requeue_after_seconds=30).settle().released()
    assert states.requeue_at(harness.workload) == START + 240 * HOUR + 30 * SECOND
    harness.after(-240 * 3600).settle()
    assert states.requeue_at(harness.workload) == START + 31 * SECOND
    harness.after(31).settle()
    assert harness.conditions["Requeued"] == "True/BackoffFinished"


@pytest.mark.parametrize("seconds", [0, 1, 9])
def test_a_later_requeue_at_of_a_past_eviction_is_waited_for(seconds: int) -> None:
    """[LC54] Also if the clock of the manager that wrote it was ahead by a few seconds."""
    harness = WorkloadHarness(options=QUICK).reserved().after(10).settle().released()
    harness.write((workload_changes.SetRequeue(1, START + 5 * HOUR),)).after(-seconds).settle()
    assert states.requeue_at(harness.workload) == START + 5 * HOUR


def test_recovery_timeout_evicts_by_its_own_clock() -> None:
    harness = WorkloadHarness(options=QUICK).reserved().after(2)
    harness.write(readiness.pods_ready(harness.workload, True, harness.options)).after(100)
    assert harness.step_once().wake_at is None
    harness.write(readiness.pods_ready(harness.workload, False, harness.options))
    assert harness.step_once().wake_at == harness.now + 5 * SECOND
    harness.after(5).settle()
    assert harness.evictions == {"PodsReadyTimeout/WaitForRecovery": 1}


def test_a_recovery_from_before_the_admission_starts_no_clock() -> None:
    """[LC51] The pods that were to recover are those of an earlier admission."""
    harness = WorkloadHarness(options=QUICK)
    harness.with_condition(WorkloadCondition.PODS_READY, ConditionStatus.FALSE, "WaitForRecovery").after(100).reserved()
    assert harness.conditions["PodsReady"] == "False/WaitForStart"
    assert harness.step_once().wake_at == harness.now + 10 * SECOND
    harness.after(10).settle()
    assert harness.evictions == {"PodsReadyTimeout/WaitForStart": 1}


def test_a_recovery_that_is_written_after_the_admission_counts_from_its_transition() -> None:
    """[LC51] Also if the client that writes it gives it a transition time from before the admission, as in Kueue."""
    harness = WorkloadHarness(options=QUICK)
    began = format_time(harness.now)
    harness.after(3).reserved()
    written = Condition(
        type="PodsReady", status="False", reason="WaitForRecovery", message="", last_transition_time=began
    )
    status = replace(harness.workload.status, conditions=(*harness.workload.status.conditions, written))
    harness.workload = replace(harness.workload, status=status)
    assert harness.step_once().wake_at == harness.now + 2 * SECOND
    harness.after(2).settle()
    assert harness.evictions == {"PodsReadyTimeout/WaitForRecovery": 1}


def test_no_recovery_timeout_means_that_recovery_may_take_for_ever() -> None:
    harness = WorkloadHarness(options=LifecycleOptions(pods_ready=PodsReadyOptions(recovery_timeout=0))).reserved()
    harness.with_condition(WorkloadCondition.PODS_READY, ConditionStatus.FALSE, "WaitForRecovery").after(10**6)
    assert harness.step_once().changes == ()
    assert harness.step_once().wake_at is None


@pytest.mark.parametrize("most", [0, 1, 2])
def test_after_so_many_times_it_is_deactivated(most: int) -> None:
    harness = WorkloadHarness(options=limited(most))
    for _ in range(most):
        harness.reserved().after(10).settle().released().after(3600).settle()
        assert harness.workload.spec.active
    harness.reserved().after(10).settle()
    assert not harness.workload.spec.active
    assert harness.conditions["Evicted"] == "True/DeactivatedDueToRequeuingLimitExceeded"
    assert harness.workload.status.requeue_state is None
    assert harness.evictions.get("PodsReadyTimeout/WaitForStart", 0) == most


def test_later_requeue_at_is_kept() -> None:
    harness = (
        WorkloadHarness(options=QUICK)
        .reserved()
        .write((workload_changes.SetRequeue(None, START + HOUR),))
        .after(10)
        .settle()
    )
    assert states.requeue_at(harness.workload) == START + HOUR


def test_a_variant_and_a_switched_off_timeout_wait_for_ever() -> None:
    assert WorkloadHarness(options=LifecycleOptions(pods_ready=None)).reserved().step_once().wake_at is None
    variant = WorkloadHarness(options=QUICK).reserved().after(60)
    variant.facts = WorkloadFacts(variant.facts.local_queue, variant.facts.cluster_queue, is_variant=True)
    assert variant.step_once().changes == ()


@pytest.mark.parametrize(
    ("attempt", "longest", "seconds"), [(1, 3600, 60), (2, 3600, 120), (7, 3600, 3600), (7, 0, 3840), (99999, 0, None)]
)
def test_each_wait_is_twice_the_last_up_to_the_longest(attempt: int, longest: int, seconds: int | None) -> None:
    wait = backoff.delay_seconds(attempt, 60, longest)
    assert wait == seconds if seconds is not None else wait > 10**9
    assert backoff.delay_seconds(attempt, 60, 0) < backoff.delay_seconds(attempt, 60, 0, jitter=0.9) < wait * 1000


def test_chance_only_lengthens_a_wait_a_little() -> None:
    assert 60 < backoff.delay_seconds(1, 60, 3600, jitter=0.999) < 60.01


# --- PodsReady, as the job reconciler writes it ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "is_ready", "after"),
    [
        (None, False, "False/WaitForStart"),
        (None, True, "True/Started"),
        (("False", "WaitForStart"), True, "True/Started"),
        (("False", "PodsReady"), True, "True/Started"),
        (("True", "Started"), True, "True/Started"),
        (("True", "Started"), False, "False/WaitForRecovery"),
        (("False", "WaitForRecovery"), False, "False/WaitForRecovery"),
        (("False", "WaitForRecovery"), True, "True/Recovered"),
        (("True", "Recovered"), True, "True/Recovered"),
        (("True", "Recovered"), False, "False/WaitForRecovery"),
        (("False", "SomethingElse"), False, "False/WaitForStart"),
    ],
)
def test_pods_ready_transitions(before: tuple[str, str] | None, is_ready: bool, after: str) -> None:
    harness = WorkloadHarness().reserved()
    if before:
        harness.with_condition(WorkloadCondition.PODS_READY, ConditionStatus(before[0]), before[1])
    harness.write(readiness.pods_ready(harness.workload, is_ready, harness.options))
    assert harness.conditions["PodsReady"] == after


def test_pods_ready_of_an_unadmitted_workload_is_wait_for_start() -> None:
    harness = WorkloadHarness().with_condition(WorkloadCondition.PODS_READY, ConditionStatus.TRUE, "Started")
    harness.write(readiness.pods_ready(harness.workload, True, harness.options))
    assert harness.conditions["PodsReady"] == "False/WaitForStart"
    assert readiness.pods_ready(harness.workload, True, harness.options) == ()
    assert readiness.pods_ready(workload(), True, LifecycleOptions(pods_ready=None)) == ()


def test_no_more_pods_are_reclaimed_than_there_are() -> None:
    harness = WorkloadHarness().reserved()
    harness.write(readiness.reclaim(harness.workload, {"main": 9, "unheard-of": 1}))
    assert harness.workload.status.reclaimable_pods == (kueue.ReclaimablePod(name="main", count=4),)
    assert readiness.reclaim(harness.workload, {"main": 4}) == ()


def test_reclaimable_pods_do_not_decrease_while_quota_is_reserved() -> None:
    """A job that is admitted again with fewer pods has fewer reclaimable pods; the released quota is usable."""
    harness = WorkloadHarness().reserved()
    harness.write(readiness.reclaim(harness.workload, {"main": 3}))
    assert readiness.reclaim(harness.workload, {"main": 1}) == readiness.reclaim(harness.workload, {}) == ()
    harness.workload = replace(harness.workload, status=replace(harness.workload.status, admission=None))
    assert readiness.reclaim(harness.workload, {}) == (workload_changes.SetReclaimable(()),), (
        "without quota it counts from zero"
    )


# --- execution_time ---------------------------------------------------------------------------------------------------


def test_time_is_up_once_all_admissions_together_took_it() -> None:
    harness = WorkloadHarness(
        workload(maximum_execution_time_seconds=100), options=LifecycleOptions(pods_ready=None)
    ).reserved()
    assert harness.step_once().wake_at == START + 100 * SECOND
    harness.after(60).with_condition(
        WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PREEMPTED
    ).released().after(1000).reserved()
    assert harness.step_once().wake_at == harness.now + 40 * SECOND
    harness.after(40)
    harness.write(harness.step_once().changes)
    assert harness.conditions["DeactivationTarget"] == "True/MaximumExecutionTimeExceeded"
    assert harness.workload.status.accumulated_past_execution_time_seconds is None
    assert harness.events[-1] == "Warning MaximumExecutionTimeExceeded"
    harness.settle().released().settle()
    assert harness.conditions["Evicted"] == "True/DeactivatedDueToMaximumExecutionTimeExceeded"
    assert harness.events.count("Warning MaximumExecutionTimeExceeded") == 1


def test_a_workload_that_is_activated_again_has_its_full_time() -> None:
    """The accumulated time does not change after the limit expired [LD11]."""
    harness = (
        WorkloadHarness(workload(maximum_execution_time_seconds=100), options=LifecycleOptions(pods_ready=None))
        .reserved()
        .after(100)
    )
    harness.settle().after(5).released().settle().activate(True).settle().reserved()
    assert harness.step_once().wake_at == harness.now + 100 * SECOND


# --- finished, orphan -------------------------------------------------------------------------------------------------


def held(**metadata: object) -> WorkloadHarness:
    harness = WorkloadHarness()
    harness.workload = replace(
        harness.workload,
        metadata=replace(
            harness.workload.metadata, finalizers=("their/own", labels.RESOURCE_IN_USE_FINALIZER), **metadata
        ),
    )
    return harness


def finished(harness: WorkloadHarness, keep: int | None) -> WorkloadHarness:
    harness.options = LifecycleOptions(keep_finished=keep)
    return harness.write(finishing.finish(harness.workload, FinishedReason.SUCCEEDED, "done", harness.now))


def test_finished_workloads_are_kept_without_a_retention_policy() -> None:
    assert finished(held(), None).after(10**8).step_once() == held().step_once()
    harness = finished(held(), HOUR)
    assert harness.step_once().wake_at == START + HOUR
    assert harness.step_once().changes == ()
    changes = harness.after(3600).step_once().changes
    assert changes[:2] == (RemoveFinalizer(), DeleteWorkload())
    assert [one.reason for one in changes[2:] if isinstance(one, workload_changes.EmitEvent)] == ["Deleted"]


def test_finished_workload_that_is_being_deleted_is_not_deleted_again() -> None:
    harness = finished(held(deletion_timestamp=meta.format_time(START)), 0)
    assert harness.step_once().changes == (RemoveFinalizer(),)
    assert harness.settle().workload.metadata.finalizers == ("their/own",)


def test_finishing_keeps_the_admission_and_reports_the_execution_time() -> None:
    harness = WorkloadHarness().write((workload_changes.SetPastExecution(60),)).reserved().after(30)
    finished(harness, None)
    assert harness.conditions["QuotaReserved"] == "True/QuotaReserved"
    assert harness.conditions["Admitted"] == "True/Admitted"
    assert harness.notifications[-1] == workload_changes.Finished("cq", FinishedReason.SUCCEEDED, 90 * SECOND)
    assert WorkloadHarness().write(finishing.finish(workload(), FinishedReason.FAILED, "", START)).notifications == [
        workload_changes.Finished("", FinishedReason.FAILED, None)
    ]


def test_orphan_is_finished_and_loses_its_finalizer() -> None:
    harness = held(owner_references=(), labels={labels.JOB_UID: "u1"}).settle()
    assert harness.conditions["Finished"] == "True/OwnerNotFound"
    assert harness.workload.metadata.finalizers == ("their/own",)


def test_a_workload_made_by_hand_is_no_orphan_and_neither_is_one_with_the_gate_off() -> None:
    assert held(owner_references=()).step_once().changes == ()
    harness = held(owner_references=(), labels={labels.JOB_UID: "u1"})
    harness.options = LifecycleOptions(finish_orphaned=False)
    assert harness.step_once().changes == ()


def test_workload_with_an_owner_is_no_orphan() -> None:
    assert held(labels={labels.JOB_UID: "u1"}).step_once().changes == ()
    going = held(labels={labels.JOB_UID: "u1"}, deletion_timestamp=meta.format_time(START))
    assert going.step_once().changes == (), "its job has to be stopped first"


def test_deleted_orphan_loses_its_finalizer_without_being_finished() -> None:
    harness = held(owner_references=(), deletion_timestamp=meta.format_time(START)).settle()
    assert harness.conditions == {}
    assert harness.workload.metadata.finalizers == ("their/own",)


# --- claims, preemption_gates -----------------------------------------------------------------------------------------


def test_resource_claims_are_inadmissible_without_the_gate() -> None:
    harness = WorkloadHarness(options=LifecycleOptions())
    harness.workload = replace(harness.workload, spec=replace(harness.workload.spec, pod_sets=(CLAIMING,)))
    assert harness.settle().conditions == {
        "QuotaReserved": "False/Misconfigured",
        "Admitted": "False/NoReservation",
        "Requeued": "False/Inadmissible",
    }
    for options in (LifecycleOptions(dynamic_resources=True), LifecycleOptions(refuse_claims=False)):
        assert (
            WorkloadHarness(replace(workload(), spec=harness.workload.spec), options=options).step_once().changes == ()
        )


def test_new_preemption_gates_are_closed_and_old_ones_removed() -> None:
    gates = (kueue.PreemptionGate(name="a"), kueue.PreemptionGate(name="b"))
    opened = kueue.PreemptionGateState(name="b", position="Open", last_transition_time="2026-01-01T00:00:00Z")
    stale = replace(opened, name="z")
    harness = WorkloadHarness(workload(preemption_gates=gates)).write(
        (workload_changes.SetPreemptionGates((stale, opened)),)
    )
    assert harness.step_once().changes == ()
    harness.options = LifecycleOptions(orchestrated_preemption=True)
    positions = [(gate.name, gate.position) for gate in harness.settle().workload.status.preemption_gates]
    assert positions == [("a", "Closed"), ("b", "Open")]


def test_times_are_written_in_whole_seconds_and_years_of_four_digits() -> None:
    assert backoff.written(START + MINUTE + 5) == START + MINUTE
    assert meta.format_time(backoff.written(2**70)) == "9999-12-31T23:59:59Z"
