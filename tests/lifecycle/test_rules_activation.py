"""The rules `deactivation_target`, `inactive`, `reactivated` and `backoff`."""

from __future__ import annotations

import pytest

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MINUTE, SECOND
from lifecycle.stories import START, Life
from pykueue.api.conditions import DeactivationReason, EvictedReason, PreemptedReason, WorkloadCondition
from pykueue.lifecycle import eviction, states, workload_changes


def test_a_running_workload_that_is_deactivated_is_evicted() -> None:
    life = Life().reserved().activate(False).steps()
    assert life.conditions["Evicted"] == "True/Deactivated"
    assert life.events[-1] == "Normal EvictedDueToDeactivated"
    life.released().steps()
    assert life.conditions["QuotaReserved"] == "False/Deactivated"
    assert life.conditions["Requeued"] == "False/Deactivated"
    assert life.activate(True).steps().conditions["Requeued"] == "True/Reactivated"


def test_giving_back_the_quota_of_an_inactive_workload_leaves_nothing_more_to_write() -> None:
    life = Life().reserved().activate(False).steps().released()
    assert life.look().changes == ()


def test_a_waiting_workload_is_evicted_too_without_a_word_and_is_queued_at_once_when_active() -> None:
    life = Life().activate(False).steps()
    assert life.conditions == {
        "Evicted": "True/Deactivated",
        "QuotaReserved": "False/Deactivated",
        "Admitted": "False/NoReservation",
    }
    assert life.events == []
    assert life.evictions == {"Deactivated/": 1}
    assert life.activate(True).steps().conditions["QuotaReserved"] == "False/PendingEvaluation"


@pytest.mark.parametrize("cause", list(DeactivationReason))
def test_a_deactivation_of_our_own_is_a_wish_first_then_done_then_an_eviction_with_the_cause(
    cause: DeactivationReason,
) -> None:
    life = Life().reserved().write((workload_changes.SetRequeue(3, None),))
    life.told(WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, cause, "enough")
    assert life.look().changes == (workload_changes.DeactivateWorkload(),)
    life.steps()
    assert life.conditions["Evicted"] == f"True/DeactivatedDueTo{cause}"
    assert "DeactivationTarget" not in life.conditions
    assert life.workload.status.requeue_state is None
    assert life.message(WorkloadCondition.EVICTED).endswith("enough")
    assert life.events[-1] == f"Normal EvictedDueToDeactivatedDueTo{cause}"
    assert life.evictions == {f"Deactivated/{cause}": 1}


@pytest.mark.parametrize("reason", [reason for reason in EvictedReason if reason.startswith("Deactivated")])
def test_reactivation_queues_it_whatever_the_deactivation_was_for(reason: EvictedReason) -> None:
    """S2: not only after a deactivation without a cause."""
    life = Life().told(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, reason).steps()
    assert life.conditions["Requeued"] == "True/Reactivated"


def test_a_reason_it_was_evicted_for_already_stays() -> None:
    life = Life().reserved().write((workload_changes.SetRequeue(2, START + MINUTE),))
    life.write(eviction.preempt(life.workload, PreemptedReason.IN_CLUSTER_QUEUE, "made room", life.now))
    life.activate(False).steps()
    assert life.conditions["Evicted"] == "True/Preempted"
    assert life.workload.status.requeue_state is None
    assert life.evictions == {"Preempted/": 1}


def test_out_of_the_queue_until_its_time_and_the_count_stays() -> None:
    life = (
        Life()
        .write((workload_changes.SetRequeue(2, START + MINUTE),))
        .told(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, EvictedReason.PODS_READY_TIMEOUT)
    )
    assert life.look() == life.look().__class__((), START + MINUTE)
    life.after(60).steps()
    assert states.requeue_at(life.workload) is None
    assert states.requeue_count(life.workload) == 2
    assert life.conditions["Requeued"] == "True/BackoffFinished"


def test_one_that_still_holds_quota_keeps_its_time_to_come_back() -> None:
    life = Life().reserved().write((workload_changes.SetRequeue(1, START + SECOND),))
    life.told(WorkloadCondition.EVICTED, ConditionStatus.TRUE, EvictedReason.PODS_READY_TIMEOUT).after(5).steps()
    assert states.requeue_at(life.workload) == START + SECOND


def test_a_preempted_workload_is_not_released_from_what_it_was_not_kept_by() -> None:
    life = Life().told(WorkloadCondition.REQUEUED, ConditionStatus.FALSE, EvictedReason.PREEMPTED).steps()
    assert life.conditions["Requeued"] == "False/Preempted"
