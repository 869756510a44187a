"""The rules `deactivation_target`, `inactive`, `reactivated` and `backoff`."""

from __future__ import annotations

import pytest

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MINUTE, SECOND
from lifecycle.workload_harness import START, WorkloadHarness
from pykueue.api.conditions import DeactivationReason, EvictedReason, PreemptedReason, WorkloadCondition
from pykueue.lifecycle import eviction, states, workload_changes


def test_a_running_workload_that_is_deactivated_is_evicted() -> None:
    harness = WorkloadHarness().reserved().activate(False).settle()
    assert harness.conditions["Evicted"] == "True/Deactivated"
    assert harness.events[-1] == "Normal EvictedDueToDeactivated"
    harness.released().settle()
    assert harness.conditions["QuotaReserved"] == "False/Deactivated"
    assert harness.conditions["Requeued"] == "False/Deactivated"
    assert harness.activate(True).settle().conditions["Requeued"] == "True/Reactivated"


def test_giving_back_the_quota_of_an_inactive_workload_leaves_nothing_more_to_write() -> None:
    harness = WorkloadHarness().reserved().activate(False).settle().released()
    assert harness.step_once().changes == ()


def test_a_waiting_workload_is_evicted_too_without_a_word_and_is_queued_at_once_when_active() -> None:
    harness = WorkloadHarness().activate(False).settle()
    assert harness.conditions == {
        "Evicted": "True/Deactivated",
        "QuotaReserved": "False/Deactivated",
        "Admitted": "False/NoReservation",
    }
    assert harness.events == []
    assert harness.evictions == {"Deactivated/": 1}
    assert harness.activate(True).settle().conditions["QuotaReserved"] == "False/PendingEvaluation"


@pytest.mark.parametrize("cause", list(DeactivationReason))
def test_deactivation_sets_the_target_then_active_false_then_evicts_with_the_cause(
    cause: DeactivationReason,
) -> None:
    harness = WorkloadHarness().reserved().write((workload_changes.SetRequeue(3, None),))
    harness.with_condition(WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, cause, "enough")
    assert harness.step_once().changes == (workload_changes.SetInactive(),)
    harness.settle()
    assert harness.conditions["Evicted"] == f"True/DeactivatedDueTo{cause}"
    assert "DeactivationTarget" not in harness.conditions
    assert harness.workload.status.requeue_state is None
    assert harness.message(WorkloadCondition.EVICTED).endswith("enough")
    assert harness.events[-1] == f"Normal EvictedDueToDeactivatedDueTo{cause}"
    assert harness.evictions == {f"Deactivated/{cause}": 1}


@pytest.mark.parametrize("reason", [reason for reason in EvictedReason if reason.startswith("Deactivated")])
def test_reactivation_queues_it_whatever_the_deactivation_was_for(reason: EvictedReason) -> None:
    """After a deactivation with any cause, not only by a user [LD2]."""
    harness = WorkloadHarness().with_condition(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, reason).settle()
    assert harness.conditions["Requeued"] == "True/Reactivated"


def test_a_reason_it_was_evicted_for_already_stays() -> None:
    harness = WorkloadHarness().reserved().write((workload_changes.SetRequeue(2, START + MINUTE),))
    harness.write(eviction.preempt(harness.workload, PreemptedReason.IN_CLUSTER_QUEUE, "made room", harness.now))
    harness.activate(False).settle()
    assert harness.conditions["Evicted"] == "True/Preempted"
    assert harness.workload.status.requeue_state is None
    assert harness.evictions == {"Preempted/": 1}


def test_out_of_the_queue_until_its_time_and_the_count_stays() -> None:
    harness = (
        WorkloadHarness()
        .write((workload_changes.SetRequeue(2, START + MINUTE),))
        .with_condition(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, EvictedReason.PODS_READY_TIMEOUT)
    )
    assert harness.step_once() == harness.step_once().__class__((), START + MINUTE)
    harness.after(60).settle()
    assert states.requeue_at(harness.workload) is None
    assert states.requeue_count(harness.workload) == 2
    assert harness.conditions["Requeued"] == "True/BackoffFinished"


def test_workload_with_quota_keeps_requeue_at() -> None:
    harness = WorkloadHarness().reserved().write((workload_changes.SetRequeue(1, START + SECOND),))
    harness.with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PODS_READY_TIMEOUT).after(
        5
    ).settle()
    assert states.requeue_at(harness.workload) == START + SECOND


def test_preempted_workload_is_not_requeued_by_the_rules() -> None:
    harness = (
        WorkloadHarness()
        .with_condition(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, EvictedReason.PREEMPTED)
        .settle()
    )
    assert harness.conditions["Requeued"] == "False/Preempted"
