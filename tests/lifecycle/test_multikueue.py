"""A check of MultiKueue, which is not implemented, does not hold quota."""

from __future__ import annotations

from lifecycle.stories import ONE_CHECK, START, TWO_CHECKS, Life, world
from pykueue.api.conditions import WorkloadCondition
from pykueue.lifecycle import multikueue, states, workload_changes

NAME = ONE_CHECK[0].name


def test_a_reservation_that_waits_for_the_check_is_given_back() -> None:
    life = Life(facts=world(*ONE_CHECK)).steps().reserved()
    changes = multikueue.release(life.workload, {NAME}, START)
    life.workload = workload_changes.apply_to(life.workload, changes, START)
    assert life.checks == {NAME: "Retry"}
    life.steps()
    assert states.has(life.workload, WorkloadCondition.EVICTED)
    evicted = next(each for each in life.workload.status.conditions if each.type == WorkloadCondition.EVICTED)
    assert "MultiKueue is not implemented in this version" in evicted.message
    assert multikueue.release(life.workload, {NAME}, START) == (), "once is enough"


def test_other_checks_and_workloads_without_quota_are_left_alone() -> None:
    waiting = Life(facts=world(*TWO_CHECKS)).steps()
    assert multikueue.release(waiting.workload, {NAME}, START) == ()
    reserved = waiting.reserved()
    assert multikueue.release(reserved.workload, (), START) == ()
    (answer,) = multikueue.release(reserved.workload, {NAME}, START)
    assert isinstance(answer, workload_changes.SetChecks)
    others = {check.name: check.state for check in answer.checks if check.name != NAME}
    assert set(others.values()) == {"Pending"}


def test_what_is_admitted_is_left_alone() -> None:
    life = Life(facts=world(*ONE_CHECK)).steps().reserved().says(NAME, "Ready").steps()
    assert states.is_admitted(life.workload)
    assert multikueue.release(life.workload, {NAME}, START) == ()
