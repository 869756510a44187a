"""Quota given and given back, and what follows from it for Admitted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND
from lifecycle.workload_harness import ONE_CHECK, START, WorkloadHarness, assigned, facts_of, workload
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, PreemptedReason, QuotaReservedReason, WorkloadCondition
from pykueue.lifecycle import eviction, reservation, workload_changes
from pykueue.lifecycle.facts import CheckFacts, LifecycleOptions


def test_without_checks_reservation_and_admission_are_one_write() -> None:
    harness = WorkloadHarness().after(7).reserved()
    assert harness.conditions == {"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted"}
    assert harness.workload.status.admission == assigned()
    assert harness.events == ["Normal QuotaReserved", "Normal Admitted"]
    assert workload_changes.Reserved("cq", 7 * SECOND) in harness.notifications
    assert workload_changes.Admitted("cq", 7 * SECOND, 0, had_checks=False) in harness.notifications


def test_reservation_with_checks_lists_them_and_does_not_admit() -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).reserved()
    assert harness.conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
    assert harness.checks == {"c1": "Pending"}
    assert harness.mirror == {"c1": "Unknown/Pending"}
    assert harness.events == ["Normal QuotaReserved"]


def test_a_check_that_was_passed_before_the_reservation_stays_passed() -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).settle().check_state("c1", "Ready").reserved()
    assert harness.conditions["Admitted"] == "True/Admitted"


def test_a_check_of_the_assigned_flavor_only_leaves_no_instant_of_admission() -> None:
    queue = facts_of(CheckFacts("c1", on_flavors=frozenset({"special"})), CheckFacts("c2"))
    harness = WorkloadHarness(facts=queue).settle().check_state("c2", "Ready")
    assert harness.checks == {"c2": "Ready"}
    harness.reserved("special", "c1", "c2")
    assert harness.conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
    assert harness.checks == {"c1": "Pending", "c2": "Ready"}


def test_reservation_sets_evicted_to_false_with_the_previous_message() -> None:
    harness = WorkloadHarness().reserved()
    harness.write(eviction.preempt(harness.workload, PreemptedReason.IN_CLUSTER_QUEUE, "made room", harness.now))
    harness.released().reserved()
    assert harness.conditions["Evicted"] == "False/QuotaReserved"
    assert harness.conditions["Preempted"] == "False/QuotaReserved"
    assert harness.message(WorkloadCondition.EVICTED) == "Previously: made room"


def test_requests_are_shown_only_while_there_is_no_quota() -> None:
    harness = WorkloadHarness().write(
        (workload_changes.SetRequests((kueue.PodSetRequest(name="main", resources={"cpu": "1"}),)),)
    )
    assert harness.reserved().workload.status.resource_requests == ()


def test_the_time_of_an_admission_is_banked_when_it_ends() -> None:
    harness = WorkloadHarness().reserved().after(60.9)
    harness.write(
        reservation.clear(harness.workload, QuotaReservedReason.ON_HOLD, "scaled to 0", harness.options, harness.now)
    )
    assert harness.workload.status.accumulated_past_execution_time_seconds == 60
    assert harness.workload.status.admission is None
    assert harness.conditions["QuotaReserved"] == "False/OnHold"
    assert harness.conditions["Admitted"] == "False/NoReservation"
    harness.reserved().after(10)
    harness.write(
        reservation.clear(harness.workload, QuotaReservedReason.ON_HOLD, "again", harness.options, harness.now)
    )
    assert harness.workload.status.accumulated_past_execution_time_seconds == 70


def test_the_bank_holds_no_more_than_its_field() -> None:
    harness = WorkloadHarness().write((workload_changes.SetPastExecution(2**31 - 2),)).reserved().after(60)
    harness.write(reservation.clear(harness.workload, QuotaReservedReason.ON_HOLD, "", harness.options, harness.now))
    assert harness.workload.status.accumulated_past_execution_time_seconds == 2**31 - 1


def test_time_that_ran_out_is_not_banked_so_that_a_reactivated_workload_has_it_all() -> None:
    reason = EvictedReason.DEACTIVATED_DUE_TO_MAXIMUM_EXECUTION_TIME_EXCEEDED
    harness = (
        WorkloadHarness()
        .reserved()
        .after(60)
        .with_condition(WorkloadCondition.EVICTED, ConditionStatus.TRUE, reason)
        .released()
    )
    assert harness.workload.status.accumulated_past_execution_time_seconds is None


def test_lost_reservation_resets_checks_without_eviction() -> None:
    harness = (
        WorkloadHarness(facts=facts_of(*ONE_CHECK))
        .reserved()
        .check_state("c1", "Ready", pod_set_updates=(kueue.PodSetUpdate(name="main"),))
    )
    harness.after(5).write(reservation.give_up(harness.workload, "quota was lowered", harness.options, harness.now))
    assert harness.checks == {"c1": "Pending"}
    assert harness.mirror == {"c1": "Unknown/Pending"}
    assert harness.workload.status.admission is None
    assert harness.conditions == {"QuotaReserved": "False/PendingEvaluation", "Admitted": "False/NoReservation"}
    assert harness.workload.spec.active


def test_second_pass_emits_no_event() -> None:
    harness = (
        WorkloadHarness().reserved().write((workload_changes.SetUnhealthyNodes((kueue.UnhealthyNode(name="n1"),)),))
    )
    harness.notifications.clear()
    harness.write(reservation.repair(harness.workload, assigned()))
    assert harness.workload.status.unhealthy_nodes == ()
    assert harness.notifications == []


def test_delayed_topology_assignment_keeps_the_assigned_counts() -> None:
    """An elastic job may shrink while it waits for its nodes. What it holds cannot be changed: such a write is refused."""
    harness = WorkloadHarness().reserved()
    given = harness.workload.status.admission
    assert given is not None
    [pods] = given.pod_set_assignments
    place = kueue.TopologyAssignment(levels=("rack",))
    fewer = replace(pods, count=0, resource_usage={"cpu": "0"}, topology_assignment=place)
    harness.write(reservation.repair(harness.workload, replace(given, pod_set_assignments=(fewer,))))
    assert harness.workload.status.admission == replace(
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


def test_without_observability_admitted_false_only_follows_true() -> None:
    harness = WorkloadHarness(options=LifecycleOptions(observability=False))
    harness.write(
        reservation.clear(harness.workload, QuotaReservedReason.SUSPENDED, "stopped", harness.options, harness.now)
    )
    assert "Admitted" not in harness.conditions
    harness.reserved()
    harness.write(
        reservation.clear(harness.workload, QuotaReservedReason.SUSPENDED, "stopped", harness.options, harness.now)
    )
    assert harness.conditions["Admitted"] == "False/NoReservation"


def test_admitted_is_not_written_before_quota_reserved() -> None:
    assert reservation.admitted(workload(), LifecycleOptions(), START) == ()
    assert reservation.admitted(workload(), LifecycleOptions(explicit_status=True), START) != ()
