"""The rules about admission checks: `check_list`, `rejected`, `retry`, `check_delay`, `admitted` (KEP-993)."""

from __future__ import annotations

from dataclasses import replace as with_

import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MINUTE, SECOND, Condition
from lifecycle.stories import ONE_CHECK, START, TWO_CHECKS, Life, assigned, workload, world
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, WorkloadCondition
from pykueue.api.kueue import CheckState, StopPolicy
from pykueue.lifecycle import checks, eviction, states, workload_changes
from pykueue.lifecycle.facts import CheckFacts, ClusterQueueFacts, LocalQueueFacts, WorkloadFacts

BOTH = pytest.mark.parametrize("asked", [ONE_CHECK, TWO_CHECKS], ids=["one check", "two checks"])


def reserving(asked: tuple[CheckFacts, ...] = ONE_CHECK) -> Life:
    return Life(facts=world(*asked)).steps().reserved()


# --- check_list -------------------------------------------------------------------------------------------------------


def test_before_quota_only_checks_of_every_flavor_are_asked() -> None:
    queue = ClusterQueueFacts(
        "cq",
        flavors=frozenset({"one", "two"}),
        checks=(
            CheckFacts("z"),
            CheckFacts("some", frozenset({"one"})),
            CheckFacts("all", frozenset({"one", "two", "more"})),
        ),
    )
    assert checks.required(queue, None) == ("all", "z")
    assert checks.required(queue, assigned("one")) == ("all", "some", "z")
    assert checks.required(queue, assigned("two")) == ("all", "z")


def test_the_list_follows_the_queue_and_answers_survive() -> None:
    life = Life(facts=world(*TWO_CHECKS)).steps().says("c2", "Ready")
    life.facts = world(CheckFacts("c0"), CheckFacts("c2"))
    assert life.steps().checks == {"c0": "Pending", "c2": "Ready"}
    life.facts = world()
    assert life.steps().checks == {}
    assert life.mirror == {}


def test_a_queue_that_is_not_known_leaves_the_list_alone() -> None:
    life = Life(facts=world(*ONE_CHECK)).steps()
    life.facts = with_(life.facts, cluster_queue=None)
    assert life.steps().checks == {"c1": "Pending"}


OF_ONE_FLAVOR = CheckFacts("c1", frozenset({"special"}), retry_delay_minutes=0)


def test_checks_of_the_flavor_that_a_workload_had_are_kept_for_a_moment() -> None:
    """Who gets quota again at once goes on counting retries."""
    life = Life(facts=world(OF_ONE_FLAVOR)).reserved("special", "c1").says("c1", "Retry").steps().released().steps()
    assert life.checks == {"c1": "Pending"}
    assert life.workload.status.admission_checks[0].retry_count == 1
    assert life.look().wake_at == life.now + 2 * SECOND
    assert life.after(2).steps().checks == {}


def test_a_local_queue_that_is_stopped_leads_nobody_to_checks() -> None:
    life = Life(facts=world(OF_ONE_FLAVOR)).reserved("special", "c1")
    life.facts = with_(life.facts, local_queue=LocalQueueFacts(stop_policy=StopPolicy.HOLD))
    assert life.steps().after(60).steps().checks == {"c1": "Pending"}
    assert not life.holds


def answered(life: Life, status: str, reason: str, at: int) -> Life:
    """A check's controller answers in the proposal's own form."""
    condition = Condition(
        type="c1", status=status, reason=reason, message="said so", last_transition_time=meta.format_time(at)
    )
    return life.write((workload_changes.SetCheckConditions((condition,)),))


@pytest.mark.parametrize(
    ("status", "reason", "state"),
    [
        ("True", "Passed", CheckState.READY),
        ("Unknown", "Pending", CheckState.PENDING),
        ("False", "Retry", CheckState.RETRY),
        ("False", "Reject", CheckState.REJECTED),
        ("False", "NobodyKnows", CheckState.RETRY),
        ("Unknown", "PreemptionRequired", CheckState.PREEMPTION_REQUIRED),
    ],
)
def test_what_a_condition_means(status: str, reason: str, state: CheckState) -> None:
    assert checks.meaning(Condition(type="c1", status=status, reason=reason)) is state


@pytest.mark.parametrize("state", list(CheckState))
def test_each_answer_reads_the_same_in_both_forms(state: CheckState) -> None:
    check = kueue.AdmissionCheckState(name="c1", state=state, last_transition_time="2026-01-01T00:00:00Z", message="m")
    assert checks.meaning(checks.as_condition(check)) is state
    assert checks.as_state(checks.as_condition(check), check) == check


def test_a_newer_condition_is_an_answer() -> None:
    life = answered(reserving(), "True", "Passed", START + 5 * SECOND).after(6).steps()
    assert life.checks == {"c1": "Ready"}
    assert life.conditions["Admitted"] == "True/Admitted"


def test_a_newer_state_shows_in_the_condition() -> None:
    life = reserving().after(5).says("c1", "Ready").steps()
    assert life.mirror == {"c1": "True/Ready"}


@pytest.mark.parametrize("is_condition", [True, False], ids=["as condition", "as state"])
def test_a_question_that_was_asked_on_a_fast_clock_does_not_outlive_its_answer(is_condition: bool) -> None:
    life = Life(facts=world(*ONE_CHECK)).after(3600).steps().reserved().after(-3600)
    assert life.checks == {"c1": "Pending"}
    answer = answered(life, "True", "Passed", START + SECOND) if is_condition else life.after(1).says("c1", "Ready")
    answer.after(1).steps()
    assert (life.checks, life.mirror["c1"].partition("/")[0]) == ({"c1": "Ready"}, "True")


def test_where_both_are_equally_old_the_state_counts() -> None:
    life = answered(reserving(), "True", "Passed", START).after(6).steps()
    assert life.checks == {"c1": "Pending"}
    assert life.mirror == {"c1": "Unknown/Pending"}


def test_an_answer_that_comes_before_the_list_is_not_lost() -> None:
    life = answered(Life(facts=world(*ONE_CHECK)), "True", "Passed", START).steps()
    assert life.checks == {"c1": "Ready"}


# --- admitted ---------------------------------------------------------------------------------------------------------


@BOTH
def test_admitted_when_the_last_check_is_ready(asked: tuple[CheckFacts, ...]) -> None:
    life = reserving(asked)
    for check in asked:
        assert life.steps().conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
        life.after(4).says(check.name, "Ready")
    assert life.steps().conditions["Admitted"] == "True/Admitted"
    assert life.events == ["Normal QuotaReserved", "Normal Admitted"]
    (admitted,) = [one for one in life.news if isinstance(one, workload_changes.Admitted)]
    assert (admitted.checked, admitted.had_checks) == (4 * len(asked) * SECOND, True)


def test_before_it_is_admitted_the_scheduler_looks_at_the_reservation_once_more() -> None:
    life = reserving().after(3).says("c1", "Ready")
    life.facts = with_(life.facts, reservation_holds=None)
    assert life.look().recheck
    assert life.steps().conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
    life.facts = with_(life.facts, reservation_holds=True)
    assert not life.look().recheck
    assert life.steps().conditions["Admitted"] == "True/Admitted"


@BOTH
def test_a_reservation_that_does_not_hold_any_more_is_given_up(asked: tuple[CheckFacts, ...]) -> None:
    life = reserving(asked)
    for check in asked:
        life.after(3).says(check.name, "Ready")
    life.facts = with_(life.facts, reservation_holds=False)
    life.steps()
    assert life.conditions == {"QuotaReserved": "False/PendingEvaluation", "Admitted": "False/NoReservation"}
    assert set(life.checks.values()) == {"Pending"}
    assert life.workload.spec.active


def test_nobody_looks_again_while_a_check_is_open_or_once_it_is_admitted() -> None:
    life = reserving()
    life.facts = with_(life.facts, reservation_holds=None)
    assert not life.look().recheck
    life = Life(facts=life.facts).reserved("default", "none-of-the-queue")
    life.facts = world()
    assert not life.steps().look().recheck


def test_an_answer_during_an_eviction_admits_nobody() -> None:
    life = reserving().says("c1", "Retry").steps().says("c1", "Ready").steps()
    assert life.conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"


def test_a_placement_that_is_still_missing_is_waited_for() -> None:
    delayed = kueue.PodSetAssignment(name="main", flavors={"cpu": "default"}, delayed_topology_request="Pending")
    life = reserving().write((workload_changes.SetAdmission(replace(assigned(), pod_set_assignments=(delayed,))),))
    life.after(3).says("c1", "Ready").steps()
    assert life.conditions["Admitted"] == "False/PendingDelayedTopologyRequests"
    assert states.is_topology_pending(life.workload)


# --- rejected ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [False, True], ids=["waiting for its checks", "running"])
@BOTH
def test_one_rejection_deactivates(asked: tuple[CheckFacts, ...], running: bool) -> None:
    life = reserving(asked)
    if running:
        for check in asked:
            life.after(1).says(check.name, "Ready")
        assert life.steps().conditions["Admitted"] == "True/Admitted"
    life.after(3).says("c1", "Rejected", message="over budget")
    life.write(life.look().changes)
    assert life.conditions["DeactivationTarget"] == "True/AdmissionCheck"
    assert life.events[-1] == "Warning AdmissionCheckRejected"
    life.steps()
    assert not life.workload.spec.active
    assert life.conditions["Evicted"] == "True/DeactivatedDueToAdmissionCheck"
    assert "DeactivationTarget" not in life.conditions
    assert life.events[-1] == "Normal EvictedDueToDeactivatedDueToAdmissionCheck"
    assert life.evictions == {"Deactivated/AdmissionCheck": 1}
    life.released().steps()
    assert life.conditions["QuotaReserved"] == "False/Deactivated"
    assert life.conditions["Requeued"] == "False/DeactivatedDueToAdmissionCheck"
    assert life.checks["c1"] == "Pending"


def test_a_rejection_counts_more_than_a_retry_and_names_only_who_rejected() -> None:
    life = reserving(TWO_CHECKS).says("c1", "Retry", message="busy").says("c2", "Rejected", message="over budget")
    life.write(life.look().changes)
    assert "Evicted" not in life.conditions
    assert life.message(WorkloadCondition.DEACTIVATION_TARGET).endswith('"c2" (over budget)')


# --- retry and check_delay --------------------------------------------------------------------------------------------


@BOTH
def test_a_retry_gives_the_quota_back_and_without_a_delay_it_may_come_at_once(asked: tuple[CheckFacts, ...]) -> None:
    life = reserving(asked).after(2).says("c1", "Retry").steps()
    assert life.conditions["Evicted"] == "True/AdmissionCheck"
    assert life.workload.status.requeue_state is None
    assert set(life.checks.values()) == {"Pending"}
    life.released()
    assert life.conditions["Requeued"] == "False/AdmissionCheck"
    assert life.steps().conditions["Requeued"] == "True/BackoffFinished"


def test_the_quota_goes_back_at_once_though_the_delay_lasts() -> None:
    """S1: the delay keeps the Workload out of the queue, not the quota taken."""
    life = reserving((CheckFacts("c1", retry_delay_minutes=1),)).after(2).says("c1", "Retry")
    found = life.look()
    life.write(found.changes)
    assert life.conditions["Evicted"] == "True/AdmissionCheck"
    assert states.requeue_at(life.workload) == START + 2 * SECOND + MINUTE
    assert found.wake_at == START + 2 * SECOND + MINUTE
    life.released().after(59).steps()
    assert life.conditions["Requeued"] == "False/AdmissionCheck"
    life.after(1).steps()
    assert life.conditions["Requeued"] == "True/BackoffFinished"
    assert life.workload.status.requeue_state is None


def test_the_default_delay_is_a_quarter_of_an_hour() -> None:
    life = reserving((CheckFacts("c1"),)).says("c1", "Retry").steps()
    assert states.requeue_at(life.workload) == START + 15 * MINUTE


@pytest.mark.parametrize(("seconds", "at"), [(6, START + 6 * SECOND), (0, None)])
def test_the_checks_own_delay_takes_the_place_of_the_other(seconds: int, at: int | None) -> None:
    life = reserving((CheckFacts("c1", retry_delay_minutes=30),)).says("c1", "Retry", requeue_after_seconds=seconds)
    assert states.requeue_at(life.steps().workload) == at


def test_of_two_delays_the_later_end_counts_not_the_larger_number() -> None:
    life = reserving(TWO_CHECKS).says("c2", "Retry", requeue_after_seconds=10)
    life.after(10).says("c1", "Retry", requeue_after_seconds=5)
    assert states.requeue_at(life.steps().workload) == START + 15 * SECOND


def test_the_time_to_come_back_only_moves_later() -> None:
    life = reserving().write((workload_changes.SetRequeue(1, START + 60 * SECOND),))
    life.says("c1", "Retry", requeue_after_seconds=10).steps()
    assert states.requeue_at(life.workload) == START + 60 * SECOND
    assert states.requeue_count(life.workload) == 1


def test_a_retry_while_running_stops_the_job_and_it_comes_back() -> None:
    life = (
        reserving().after(1).says("c1", "Ready").steps().after(5).says("c1", "Retry", requeue_after_seconds=4).steps()
    )
    assert life.conditions["Evicted"] == "True/AdmissionCheck"
    life.released().after(4).steps()
    assert life.conditions["Requeued"] == "True/BackoffFinished"
    assert life.workload.spec.active


def test_a_retry_during_an_eviction_is_no_second_eviction() -> None:
    life = reserving().says("c1", "Retry").steps().after(1).says("c1", "Retry", requeue_after_seconds=30).steps()
    assert life.evictions == {"AdmissionCheck/": 1}
    assert states.requeue_at(life.workload) == START + 31 * SECOND


def test_a_retry_does_not_give_an_inactive_workload_a_time_to_come_back() -> None:
    life = reserving((CheckFacts("c1"),)).activate(False).steps().says("c1", "Retry").steps()
    assert life.workload.status.requeue_state is None


def test_a_retry_without_quota_is_asked_anew_after_its_delay() -> None:
    """Otherwise nobody would ever ask again, because the scheduler leaves such a Workload alone."""
    life = Life(facts=world(CheckFacts("c1", retry_delay_minutes=1))).steps().says("c1", "Retry").steps()
    assert life.checks == {"c1": "Retry"}
    assert life.look().wake_at == START + MINUTE
    assert life.after(60).steps().checks == {"c1": "Pending"}
    assert life.workload.status.requeue_state is None


def test_the_retry_count_stays_when_another_answer_is_reset() -> None:
    life = reserving().says("c1", "Retry").steps()
    assert life.workload.status.admission_checks[0].retry_count == 1
    life.released().steps().reserved().says("c1", "Ready").steps()
    life.write(eviction.evict(life.workload, EvictedReason.PREEMPTED, "made room", life.now))
    assert life.workload.status.admission_checks[0].retry_count == 1


def test_the_retry_count_stays_when_a_rejected_workload_is_deactivated() -> None:
    life = reserving().says("c1", "Retry").steps().released().steps().reserved().says("c1", "Rejected").steps()
    assert life.conditions["Evicted"] == "True/DeactivatedDueToAdmissionCheck"
    [check] = life.workload.status.admission_checks
    assert (check.state, check.retry_count) == ("Pending", 1)


# --- preemption that waits for checks ---------------------------------------------------------------------------------

DEFERRING = CheckFacts("slow", defers_preemption=True)


@pytest.mark.parametrize(
    ("asked", "answers", "may"),
    [
        ((CheckFacts("c1"),), {"c1": "Pending"}, True),
        ((DEFERRING,), {"slow": "Pending"}, False),
        ((DEFERRING,), {}, False),
        ((DEFERRING,), {"slow": "Ready"}, True),
        ((DEFERRING,), {"slow": "PreemptionRequired"}, True),
        ((DEFERRING, CheckFacts("c1")), {"slow": "Ready", "c1": "Pending"}, True),
        ((DEFERRING, CheckFacts("c1")), {"slow": "Pending", "c1": "PreemptionRequired"}, True),
        ((DEFERRING, CheckFacts("more", defers_preemption=True)), {"slow": "Ready", "more": "Pending"}, False),
        ((CheckFacts("slow", frozenset({"other"}), defers_preemption=True),), {}, True),
    ],
)
def test_when_preemptions_may_be_issued(asked: tuple[CheckFacts, ...], answers: dict[str, str], may: bool) -> None:
    listed = tuple(kueue.AdmissionCheckState(name=name, state=state) for name, state in answers.items())
    found = replace(workload(), status=kueue.WorkloadStatus(admission=assigned(), admission_checks=listed))
    assert checks.may_preempt(found, ClusterQueueFacts("cq", checks=asked)) is may


# --- Reservations that other clients wrote ----------------------------------------------------------------------------


def test_a_reservation_without_checks_is_admitted_as_it_stands() -> None:
    """As Kueue does for its importer: neither the queues nor the quota are looked at (decision 0015)."""
    life = Life(facts=WorkloadFacts(reservation_holds=None))
    life.write(
        (
            workload_changes.SetAdmission(assigned()),
            workload_changes.SetCondition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.TRUE, "x", ""),
        )
    )
    assert not life.look().recheck
    assert life.steps().conditions["Admitted"] == "True/Admitted"
    assert life.conditions["QuotaReserved"] == "True/x"


def test_a_reservation_whose_checks_have_passed_is_evaluated_again_and_given_back_with_the_reason() -> None:
    life = reserving().says("c1", "Ready")
    life.facts = with_(life.facts, reservation_holds=None)
    assert life.look().recheck
    life.facts = with_(life.facts, reservation_holds=False, reservation_lost="the quota is gone")
    life.steps()
    assert life.conditions["QuotaReserved"] == "False/PendingEvaluation"
    [said] = [each for each in life.workload.status.conditions if each.type == "QuotaReserved"]
    assert said.message.endswith("the quota is gone")
