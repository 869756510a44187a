"""A check of MultiKueue, which is not implemented, does not hold quota."""

from __future__ import annotations

from lifecycle.workload_harness import ONE_CHECK, START, TWO_CHECKS, WorkloadHarness, facts_of
from pykueue.api.conditions import WorkloadCondition
from pykueue.lifecycle import multikueue, states, workload_changes

NAME = ONE_CHECK[0].name


def test_a_reservation_that_waits_for_the_check_is_given_back() -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).settle().reserved()
    changes = multikueue.release(harness.workload, {NAME}, START)
    harness.workload = workload_changes.apply_to(harness.workload, changes, START)
    assert harness.checks == {NAME: "Retry"}
    harness.settle()
    assert states.has(harness.workload, WorkloadCondition.EVICTED)
    evicted = next(each for each in harness.workload.status.conditions if each.type == WorkloadCondition.EVICTED)
    assert "MultiKueue is not implemented in this version" in evicted.message
    assert multikueue.release(harness.workload, {NAME}, START) == (), "once is enough"


def test_other_checks_and_workloads_without_quota_are_left_alone() -> None:
    waiting = WorkloadHarness(facts=facts_of(*TWO_CHECKS)).settle()
    assert multikueue.release(waiting.workload, {NAME}, START) == ()
    reserved = waiting.reserved()
    assert multikueue.release(reserved.workload, (), START) == ()
    (answer,) = multikueue.release(reserved.workload, {NAME}, START)
    assert isinstance(answer, workload_changes.SetChecks)
    others = {check.name: check.state for check in answer.checks if check.name != NAME}
    assert set(others.values()) == {"Pending"}


def test_what_is_admitted_is_left_alone() -> None:
    harness = WorkloadHarness(facts=facts_of(*ONE_CHECK)).settle().reserved().check_state(NAME, "Ready").settle()
    assert states.is_admitted(harness.workload)
    assert multikueue.release(harness.workload, {NAME}, START) == ()
