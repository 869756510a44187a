"""The rules about admission checks: `check_list`, `rejected`, `retry`, `check_delay`, `admitted` (KEP-993)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_

from kubemachinery import meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import MINUTE, SECOND, Condition
from lifecycle.workload_harness import ONE_CHECK, START, TWO_CHECKS, WorkloadHarness, assigned, facts_of, workload
from pykueue.api import kueue
from pykueue.api.conditions import EvictedReason, WorkloadCondition
from pykueue.api.kueue import CheckState, StopPolicy
from pykueue.lifecycle import checks, eviction, states, workload_changes
from pykueue.lifecycle.facts import CheckFacts, ClusterQueueFacts, LocalQueueFacts, WorkloadFacts

BOTH = pytest.mark.parametrize("asked", [ONE_CHECK, TWO_CHECKS], ids=["one check", "two checks"])


def reserving(asked: tuple[CheckFacts, ...] = ONE_CHECK) -> WorkloadHarness:
    return WorkloadHarness(facts=facts_of(*asked)).settle().reserved()


# --- check_list -------------------------------------------------------------------------------------------------------


def test_before_quota_only_checks_of_every_flavor_are_required() -> None:
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
    harness = WorkloadHarness(facts=facts_of(*TWO_CHECKS)).settle().check_state("c2", "Ready")
    harness.facts = facts_of(CheckFacts("c0"), CheckFacts("c2"))
    assert harness.settle().checks == {"c0": "Pending", "c2": "Ready"}
    harness.facts = facts_of()
    assert harness.settle().checks == {}
    assert harness.mirror == {}


def test_a_queue_that_is_not_known_leaves_the_list_alone() -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).settle()
    harness.facts = with_(harness.facts, cluster_queue=None)
    assert harness.settle().checks == {"c1": "Pending"}


OF_ONE_FLAVOR = CheckFacts("c1", frozenset({"special"}), retry_delay_minutes=0)


def test_checks_of_the_flavor_that_a_workload_had_are_kept_for_a_moment() -> None:
    """Who gets quota again at once goes on counting retries."""
    harness = (
        WorkloadHarness(facts=facts_of(OF_ONE_FLAVOR))
        .reserved("special", "c1")
        .check_state("c1", "Retry")
        .settle()
        .released()
        .settle()
    )
    assert harness.checks == {"c1": "Pending"}
    assert harness.workload.status.admission_checks[0].retry_count == 1
    assert harness.step_once().wake_at == harness.now + 2 * SECOND
    assert harness.after(2).settle().checks == {}


def test_stopped_local_queue_adds_no_checks() -> None:
    harness = WorkloadHarness(facts=facts_of(OF_ONE_FLAVOR)).reserved("special", "c1")
    harness.facts = with_(harness.facts, local_queue=LocalQueueFacts(stop_policy=StopPolicy.HOLD))
    assert harness.settle().after(60).settle().checks == {"c1": "Pending"}
    assert not harness.holds


def answered(harness: WorkloadHarness, status: str, reason: str, at: int) -> WorkloadHarness:
    """A check's controller answers in the proposal's own form."""
    condition = Condition(
        type="c1", status=status, reason=reason, message="reported", last_transition_time=meta.format_time(at)
    )
    return harness.write((workload_changes.SetCheckConditions((condition,)),))


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
    harness = answered(reserving(), "True", "Passed", START + 5 * SECOND).after(6).settle()
    assert harness.checks == {"c1": "Ready"}
    assert harness.conditions["Admitted"] == "True/Admitted"


def test_a_newer_state_shows_in_the_condition() -> None:
    harness = reserving().after(5).check_state("c1", "Ready").settle()
    assert harness.mirror == {"c1": "True/Ready"}


@pytest.mark.parametrize("is_condition", [True, False], ids=["as condition", "as state"])
def test_pending_check_with_a_future_time_is_older_than_any_answer(is_condition: bool) -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).after(3600).settle().reserved().after(-3600)
    assert harness.checks == {"c1": "Pending"}
    answer = (
        answered(harness, "True", "Passed", START + SECOND)
        if is_condition
        else harness.after(1).check_state("c1", "Ready")
    )
    answer.after(1).settle()
    assert (harness.checks, harness.mirror["c1"].partition("/")[0]) == ({"c1": "Ready"}, "True")


def test_where_both_are_equally_old_the_state_counts() -> None:
    harness = answered(reserving(), "True", "Passed", START).after(6).settle()
    assert harness.checks == {"c1": "Pending"}
    assert harness.mirror == {"c1": "Unknown/Pending"}


def test_check_answer_before_the_list_is_kept() -> None:
    harness = answered(WorkloadHarness(facts=facts_of(*ONE_CHECK)), "True", "Passed", START).settle()
    assert harness.checks == {"c1": "Ready"}


# --- admitted ---------------------------------------------------------------------------------------------------------


@BOTH
def test_admitted_when_the_last_check_is_ready(asked: tuple[CheckFacts, ...]) -> None:
    harness = reserving(asked)
    for check in asked:
        assert harness.settle().conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
        harness.after(4).check_state(check.name, "Ready")
    assert harness.settle().conditions["Admitted"] == "True/Admitted"
    assert harness.events == ["Normal QuotaReserved", "Normal Admitted"]
    (admitted,) = [one for one in harness.notifications if isinstance(one, workload_changes.Admitted)]
    assert (admitted.checked, admitted.had_checks) == (4 * len(asked) * SECOND, True)


def test_before_it_is_admitted_the_scheduler_looks_at_the_reservation_once_more() -> None:
    harness = reserving().after(3).check_state("c1", "Ready")
    harness.facts = with_(harness.facts, reservation_holds=None)
    assert harness.step_once().recheck
    assert harness.settle().conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"
    harness.facts = with_(harness.facts, reservation_holds=True)
    assert not harness.step_once().recheck
    assert harness.settle().conditions["Admitted"] == "True/Admitted"


@BOTH
def test_a_reservation_that_does_not_hold_any_more_is_given_up(asked: tuple[CheckFacts, ...]) -> None:
    harness = reserving(asked)
    for check in asked:
        harness.after(3).check_state(check.name, "Ready")
    harness.facts = with_(harness.facts, reservation_holds=False)
    harness.settle()
    assert harness.conditions == {"QuotaReserved": "False/PendingEvaluation", "Admitted": "False/NoReservation"}
    assert set(harness.checks.values()) == {"Pending"}
    assert harness.workload.spec.active


def test_reservation_is_not_evaluated_again_while_a_check_is_open_or_once_admitted() -> None:
    harness = reserving()
    harness.facts = with_(harness.facts, reservation_holds=None)
    assert not harness.step_once().recheck
    harness = WorkloadHarness(facts=harness.facts).reserved("default", "none-of-the-queue")
    harness.facts = facts_of()
    assert not harness.settle().step_once().recheck


def test_check_answer_during_an_eviction_does_not_admit() -> None:
    harness = reserving().check_state("c1", "Retry").settle().check_state("c1", "Ready").settle()
    assert harness.conditions["Admitted"] == "False/UnsatisfiedAdmissionChecks"


def test_a_placement_that_is_still_missing_is_waited_for() -> None:
    delayed = kueue.PodSetAssignment(name="main", flavors={"cpu": "default"}, delayed_topology_request="Pending")
    harness = reserving().write((workload_changes.SetAdmission(replace(assigned(), pod_set_assignments=(delayed,))),))
    harness.after(3).check_state("c1", "Ready").settle()
    assert harness.conditions["Admitted"] == "False/PendingDelayedTopologyRequests"
    assert states.is_topology_pending(harness.workload)


# --- rejected ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [False, True], ids=["waiting for its checks", "running"])
@BOTH
def test_one_rejection_deactivates(asked: tuple[CheckFacts, ...], running: bool) -> None:
    harness = reserving(asked)
    if running:
        for check in asked:
            harness.after(1).check_state(check.name, "Ready")
        assert harness.settle().conditions["Admitted"] == "True/Admitted"
    harness.after(3).check_state("c1", "Rejected", message="over budget")
    harness.write(harness.step_once().changes)
    assert harness.conditions["DeactivationTarget"] == "True/AdmissionCheck"
    assert harness.events[-1] == "Warning AdmissionCheckRejected"
    harness.settle()
    assert not harness.workload.spec.active
    assert harness.conditions["Evicted"] == "True/DeactivatedDueToAdmissionCheck"
    assert "DeactivationTarget" not in harness.conditions
    assert harness.events[-1] == "Normal EvictedDueToDeactivatedDueToAdmissionCheck"
    assert harness.evictions == {"Deactivated/AdmissionCheck": 1}
    harness.released().settle()
    assert harness.conditions["QuotaReserved"] == "False/Deactivated"
    assert harness.conditions["Requeued"] == "False/DeactivatedDueToAdmissionCheck"
    assert harness.checks["c1"] == "Pending"


def test_rejected_check_wins_over_retry_and_is_named_alone() -> None:
    harness = (
        reserving(TWO_CHECKS)
        .check_state("c1", "Retry", message="busy")
        .check_state("c2", "Rejected", message="over budget")
    )
    harness.write(harness.step_once().changes)
    assert "Evicted" not in harness.conditions
    assert harness.message(WorkloadCondition.DEACTIVATION_TARGET).endswith('"c2" (over budget)')


# --- retry and check_delay --------------------------------------------------------------------------------------------


@BOTH
def test_retry_without_delay_releases_quota_and_requeues_at_once(asked: tuple[CheckFacts, ...]) -> None:
    harness = reserving(asked).after(2).check_state("c1", "Retry").settle()
    assert harness.conditions["Evicted"] == "True/AdmissionCheck"
    assert harness.workload.status.requeue_state is None
    assert set(harness.checks.values()) == {"Pending"}
    harness.released()
    assert harness.conditions["Requeued"] == "False/AdmissionCheck"
    assert harness.settle().conditions["Requeued"] == "True/BackoffFinished"


def test_retry_releases_quota_before_the_delay_ends() -> None:
    """The delay keeps the Workload out of the queue; its quota is released at once [LD1]."""
    harness = reserving((CheckFacts("c1", retry_delay_minutes=1),)).after(2).check_state("c1", "Retry")
    found = harness.step_once()
    harness.write(found.changes)
    assert harness.conditions["Evicted"] == "True/AdmissionCheck"
    assert states.requeue_at(harness.workload) == START + 2 * SECOND + MINUTE
    assert found.wake_at == START + 2 * SECOND + MINUTE
    harness.released().after(59).settle()
    assert harness.conditions["Requeued"] == "False/AdmissionCheck"
    harness.after(1).settle()
    assert harness.conditions["Requeued"] == "True/BackoffFinished"
    assert harness.workload.status.requeue_state is None


def test_the_default_delay_is_a_quarter_of_an_hour() -> None:
    harness = reserving((CheckFacts("c1"),)).check_state("c1", "Retry").settle()
    assert states.requeue_at(harness.workload) == START + 15 * MINUTE


@pytest.mark.parametrize(("seconds", "at"), [(6, START + 6 * SECOND), (0, None)])
def test_the_checks_own_delay_takes_the_place_of_the_other(seconds: int, at: int | None) -> None:
    harness = reserving((CheckFacts("c1", retry_delay_minutes=30),)).check_state(
        "c1", "Retry", requeue_after_seconds=seconds
    )
    assert states.requeue_at(harness.settle().workload) == at


def test_of_two_delays_the_later_end_counts_not_the_larger_number() -> None:
    harness = reserving(TWO_CHECKS).check_state("c2", "Retry", requeue_after_seconds=10)
    harness.after(10).check_state("c1", "Retry", requeue_after_seconds=5)
    assert states.requeue_at(harness.settle().workload) == START + 15 * SECOND


def test_requeue_at_only_moves_later() -> None:
    harness = reserving().write((workload_changes.SetRequeue(1, START + 60 * SECOND),))
    harness.check_state("c1", "Retry", requeue_after_seconds=10).settle()
    assert states.requeue_at(harness.workload) == START + 60 * SECOND
    assert states.requeue_count(harness.workload) == 1


def test_retry_while_running_evicts_and_requeues() -> None:
    harness = (
        reserving()
        .after(1)
        .check_state("c1", "Ready")
        .settle()
        .after(5)
        .check_state("c1", "Retry", requeue_after_seconds=4)
        .settle()
    )
    assert harness.conditions["Evicted"] == "True/AdmissionCheck"
    harness.released().after(4).settle()
    assert harness.conditions["Requeued"] == "True/BackoffFinished"
    assert harness.workload.spec.active


def test_a_retry_during_an_eviction_is_no_second_eviction() -> None:
    harness = (
        reserving()
        .check_state("c1", "Retry")
        .settle()
        .after(1)
        .check_state("c1", "Retry", requeue_after_seconds=30)
        .settle()
    )
    assert harness.evictions == {"AdmissionCheck/": 1}
    assert states.requeue_at(harness.workload) == START + 31 * SECOND


def test_retry_sets_no_requeue_at_on_an_inactive_workload() -> None:
    harness = reserving((CheckFacts("c1"),)).activate(False).settle().check_state("c1", "Retry").settle()
    assert harness.workload.status.requeue_state is None


def test_retry_without_quota_is_reset_after_its_delay() -> None:
    """Otherwise it would stay in Retry, because the scheduler does not evaluate such a Workload."""
    harness = (
        WorkloadHarness(facts=facts_of(CheckFacts("c1", retry_delay_minutes=1)))
        .settle()
        .check_state("c1", "Retry")
        .settle()
    )
    assert harness.checks == {"c1": "Retry"}
    assert harness.step_once().wake_at == START + MINUTE
    assert harness.after(60).settle().checks == {"c1": "Pending"}
    assert harness.workload.status.requeue_state is None


def test_the_retry_count_stays_when_another_answer_is_reset() -> None:
    harness = reserving().check_state("c1", "Retry").settle()
    assert harness.workload.status.admission_checks[0].retry_count == 1
    harness.released().settle().reserved().check_state("c1", "Ready").settle()
    harness.write(eviction.evict(harness.workload, EvictedReason.PREEMPTED, "made room", harness.now))
    assert harness.workload.status.admission_checks[0].retry_count == 1


def test_the_retry_count_stays_when_a_rejected_workload_is_deactivated() -> None:
    harness = (
        reserving()
        .check_state("c1", "Retry")
        .settle()
        .released()
        .settle()
        .reserved()
        .check_state("c1", "Rejected")
        .settle()
    )
    assert harness.conditions["Evicted"] == "True/DeactivatedDueToAdmissionCheck"
    [check] = harness.workload.status.admission_checks
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
    harness = WorkloadHarness(facts=WorkloadFacts(reservation_holds=None))
    harness.write(
        (
            workload_changes.SetAdmission(assigned()),
            workload_changes.SetCondition(WorkloadCondition.QUOTA_RESERVED, ConditionStatus.TRUE, "x", ""),
        )
    )
    assert not harness.step_once().recheck
    assert harness.settle().conditions["Admitted"] == "True/Admitted"
    assert harness.conditions["QuotaReserved"] == "True/x"


def test_reservation_is_evaluated_again_after_checks_and_cleared_with_the_reason() -> None:
    harness = reserving().check_state("c1", "Ready")
    harness.facts = with_(harness.facts, reservation_holds=None)
    assert harness.step_once().recheck
    harness.facts = with_(harness.facts, reservation_holds=False, reservation_lost="the quota is gone")
    harness.settle()
    assert harness.conditions["QuotaReserved"] == "False/PendingEvaluation"
    [reserved] = [each for each in harness.workload.status.conditions if each.type == "QuotaReserved"]
    assert reserved.message.endswith("the quota is gone")
