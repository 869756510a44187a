"""Quota given and given back, and what follows from it for Admitted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from lifecycle.stories import ONE_CHECK, START, Life, assigned, workload, world
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, QuotaReservedReason, WorkloadCondition
from pykueue.lifecycle import eviction, reservation, workload_changes
from pykueue.lifecycle.facts import CheckFacts, LifecycleOptions


def test_without_checks_quota_and_admission_go_out_in_one_write() -> None:
    life = Life().after(7).reserved()
    assert life.conditions == {"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted"}
    assert life.workload.status.admission == assigned()
    assert life.events == ["Normal QuotaReserved", "Normal Admitted"]
    assert workload_changes.Reserved("cq", 7 * SECOND) in life.news
    assert workload_changes.Admitted("cq", 7 * SECOND, 0, had_checks=False) in life.news


def test_with_checks_the_reservation_lists_them_and_admits_nobody() -> None:
    life = Life(facts=world(*ONE_CHECK)).reserved()
    assert life.conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
    assert life.checks == {"c1": "Pending"}
    assert life.mirror == {"c1": "Unknown/Pending"}
    assert life.events == ["Normal QuotaReserved"]


def test_a_check_that_was_passed_before_the_reservation_stays_passed() -> None:
    life = Life(facts=world(*ONE_CHECK)).steps().says("c1", "Ready").reserved()
    assert life.conditions["Admitted"] == "True/Admitted"


def test_a_check_of_the_assigned_flavor_only_leaves_no_instant_of_admission() -> None:
    queue = world(CheckFacts("c1", on_flavors=frozenset({"special"})), CheckFacts("c2"))
    life = Life(facts=queue).steps().says("c2", "Ready")
    assert life.checks == {"c2": "Ready"}
    life.reserved("special", "c1", "c2")
    assert life.conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
    assert life.checks == {"c1": "Pending", "c2": "Ready"}


def test_a_new_reservation_ends_what_the_eviction_said_and_quotes_it() -> None:
    life = Life().reserved()
    life.write(eviction.preempt(life.workload, PreemptedReason.IN_CLUSTER_QUEUE, "made room", life.now))
    life.released().reserved()
    assert life.conditions["Evicted"] == "False/QuotaReserved"
    assert life.conditions["Preempted"] == "False/QuotaReserved"
    assert life.message(WorkloadCondition.EVICTED) == "Previously: made room"


def test_requests_are_shown_only_while_there_is_no_quota() -> None:
    life = Life().write((workload_changes.SetRequests((kueue.PodSetRequest(name="main", resources={"cpu": "1"}),)),))
    assert life.reserved().workload.status.resource_requests == ()


def test_the_time_of_an_admission_is_banked_when_it_ends() -> None:
    life = Life().reserved().after(60.9)
    life.write(reservation.clear(life.workload, QuotaReservedReason.ON_HOLD, "scaled to 0", life.options, life.now))
    assert life.workload.status.accumulated_past_execution_time_seconds == 60
    assert life.workload.status.admission is None
    assert life.conditions["QuotaReserved"] == "False/OnHold"
    assert life.conditions["Admitted"] == "False/NoReservation"
    life.reserved().after(10)
    life.write(reservation.clear(life.workload, QuotaReservedReason.ON_HOLD, "again", life.options, life.now))
    assert life.workload.status.accumulated_past_execution_time_seconds == 70


def test_the_bank_holds_no_more_than_its_field() -> None:
    life = Life().write((workload_changes.SetPastExecution(2**31 - 2),)).reserved().after(60)
    life.write(reservation.clear(life.workload, QuotaReservedReason.ON_HOLD, "", life.options, life.now))
    assert life.workload.status.accumulated_past_execution_time_seconds == 2**31 - 1


def test_time_that_ran_out_is_not_banked_so_that_a_reactivated_workload_has_it_all() -> None:
    reason = EvictedReason.DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED
    life = Life().reserved().after(60).told(WorkloadCondition.EVICTED, ConditionStatus.TRUE, reason).released()
    assert life.workload.status.accumulated_past_execution_time_seconds is None


def test_a_reservation_that_is_given_up_asks_the_checks_anew_and_is_no_eviction() -> None:
    life = (
        Life(facts=world(*ONE_CHECK)).reserved().says("c1", "Ready", pod_set_updates=(kueue.PodSetUpdate(name="main"),))
    )
    life.after(5).write(reservation.give_up(life.workload, "quota was lowered", life.options, life.now))
    assert life.checks == {"c1": "Pending"}
    assert life.mirror == {"c1": "Unknown/Pending"}
    assert life.workload.status.admission is None
    assert life.conditions == {"QuotaReserved": "False/PendingEvaluation", "Admitted": "False/NoReservation"}
    assert life.workload.spec.active


def test_a_repaired_placement_is_not_told_again() -> None:
    life = Life().reserved().write((workload_changes.SetUnhealthyNodes((kueue.UnhealthyNode(name="n1"),)),))
    life.news.clear()
    life.write(reservation.repair(life.workload, assigned()))
    assert life.workload.status.unhealthy_nodes == ()
    assert life.news == []


def test_pods_that_get_a_place_later_keep_what_was_given_though_fewer_are_left() -> None:
    """An elastic job may shrink while it waits for its nodes. What it holds cannot be changed: such a write is refused."""
    life = Life().reserved()
    given = life.workload.status.admission
    assert given is not None
    [pods] = given.pod_set_assignments
    place = kueue.TopologyAssignment(levels=("rack",))
    fewer = replace(pods, count=0, resource_usage={"cpu": "0"}, topology_assignment=place)
    life.write(reservation.repair(life.workload, replace(given, pod_set_assignments=(fewer,))))
    assert life.workload.status.admission == replace(
        given, pod_set_assignments=(replace(pods, topology_assignment=place),)
    )


@pytest.mark.parametrize(
    ("reason", "old"),
    [
        (QuotaReservedReason.SUSPENDED, "Inadmissible"),
        (QuotaReservedReason.MISCONFIGURED, "Inadmissible"),
        (QuotaReservedReason.WAITING_FOR_PODS_READY, "Waiting"),
        (QuotaReservedReason.WAITING_FOR_QUOTA, "Pending"),
        (QuotaReservedReason.ON_HOLD, "OnHold"),
    ],
)
def test_the_older_words_when_the_gate_is_off(reason: QuotaReservedReason, old: str) -> None:
    assert reservation.written_reason(reason, LifecycleOptions(observability=False)) == old
    assert reservation.written_reason(reason, LifecycleOptions()) == reason


def test_with_the_gate_off_no_is_said_only_to_one_that_was_told_yes() -> None:
    life = Life(options=LifecycleOptions(observability=False))
    life.write(reservation.clear(life.workload, QuotaReservedReason.SUSPENDED, "stopped", life.options, life.now))
    assert "Admitted" not in life.conditions
    life.reserved()
    life.write(reservation.clear(life.workload, QuotaReservedReason.SUSPENDED, "stopped", life.options, life.now))
    assert life.conditions["Admitted"] == "False/NoReservation"


def test_nothing_is_said_of_admission_before_anything_was_said_of_quota() -> None:
    assert reservation.admitted(workload(), LifecycleOptions(), START) == ()
    assert reservation.admitted(workload(), LifecycleOptions(explicit_status=True), START) != ()
