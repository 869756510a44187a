"""What holds for every Workload, whatever its object contains and whatever the facts around it are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kubemachinery import conditions
from laws import random_workloads
from laws.random_workloads import NOW
from pykueue.api import kueue
from pykueue.api.conditions import FinishedReason, PreemptedReason, QuotaReservedReason
from pykueue.lifecycle import (
    checks,
    eviction,
    finishing,
    pending_status,
    readiness,
    reservation,
    states,
    workload_changes,
)
from pykueue.lifecycle.facts import LifecycleOptions, WorkloadFacts
from pykueue.lifecycle.rules import RuleContext, RuleResult
from pykueue.lifecycle.step import RULES, RUNNING_RULES, WAITING_RULES, step
from pykueue.lifecycle.workload_changes import Changes, DeleteWorkload

LIVES = settings(max_examples=100)
# The request to deactivate, the deactivation, the eviction it leads to; and an orphan that is finished, freed and deleted.
MOST_WRITES = 4


def at_rest(workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions) -> kueue.Workload | None:
    """The Workload after as many writes as any life needs at one moment; None when it was deleted."""
    for _ in range(MOST_WRITES):
        changes = step(workload, facts, options, NOW).changes
        if DeleteWorkload() in changes:
            return None
        workload = workload_changes.apply_to(workload, changes, NOW)
    return workload


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_steps_reach_a_fixed_point(workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions) -> None:
    """After a few writes nothing more is due: no two rules undo each other's work."""
    rested = at_rest(workload, facts, options)
    assert rested is None or step(rested, facts, options, NOW).changes == ()


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_step_needs_one_write(workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions) -> None:
    """A step changes the status or the object, never both, and what changes the status leaves nothing due on it."""
    found = step(workload, facts, options, NOW)
    assert not (workload_changes.on_status(found.changes) and workload_changes.on_object(found.changes))
    if workload_changes.on_status(found.changes):
        after = workload_changes.apply_to(workload, found.changes, NOW)
        assert after.status != workload.status
        assert workload_changes.on_status(step(after, facts, options, NOW).changes) == ()


@LIVES
@given(random_workloads.waiting_workloads, random_workloads.facts, random_workloads.options)
def test_rules_that_a_workload_that_only_waits_does_not_need_have_no_result(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    assert states.only_waits(workload)
    left_out = [rule for rule in RULES if rule not in WAITING_RULES]
    results = [rule(RuleContext(workload, facts, options, NOW)) for rule in left_out]
    assert all(result in (None, RuleResult()) for result in results)


@LIVES
@given(random_workloads.running_workloads, random_workloads.facts, random_workloads.options)
def test_rules_that_a_workload_that_only_runs_does_not_need_have_no_result(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    assert states.only_runs(workload)
    left_out = [rule for rule in RULES if rule not in RUNNING_RULES]
    results = [rule(RuleContext(workload, facts, options, NOW)) for rule in left_out]
    assert all(result in (None, RuleResult()) for result in results)


def test_rules_of_waiting_and_of_running_workloads_are_in_the_order_of_all() -> None:
    assert tuple(rule for rule in RULES if rule in WAITING_RULES) == WAITING_RULES
    assert tuple(rule for rule in RULES if rule in RUNNING_RULES) == RUNNING_RULES


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_events_are_emitted_only_with_a_change(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    """Otherwise every reconcile of a Workload would emit the same Event again."""
    found = step(workload, facts, options, NOW)
    assert (
        not workload_changes.notifications(found.changes)
        or workload_changes.on_status(found.changes)
        or workload_changes.on_object(found.changes)
    )


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_next_reconcile_is_in_the_future(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    """A next reconcile in the past would make the controller spin."""
    found = step(workload, facts, options, NOW)
    assert found.wake_at is None or found.wake_at > NOW


def _writes(workload: kueue.Workload, options: LifecycleOptions) -> list[Changes]:
    """What scheduler and job controllers might write for this Workload, whatever its state."""
    assigned = kueue.Admission(cluster_queue="cq", pod_set_assignments=(kueue.PodSetAssignment(name="main"),))
    waits = QuotaReservedReason.WAITING_FOR_QUOTA
    return [
        reservation.reserve(workload, assigned, ("a",), options, NOW),
        reservation.clear(workload, QuotaReservedReason.SUSPENDED, "stopped", options, NOW),
        reservation.give_up(workload, "quota was lowered", options, NOW),
        eviction.preempt(workload, PreemptedReason.IN_CLUSTER_QUEUE, "preempted", NOW),
        eviction.release(workload, options, NOW),
        pending_status.wait(workload, waits, "cpu: 3 more needed", (), options, NOW),
        finishing.finish(workload, FinishedReason.SUCCEEDED, "done", NOW),
        readiness.pods_ready(workload, True, options),
        readiness.reclaim(workload, {"main": 2}),
    ]


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_transition_times_move_only_with_the_status(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    """Otherwise a timeout that is measured from the transition would never expire."""
    for changes in [*_writes(workload, options), step(workload, facts, options, NOW).changes]:
        for after in workload_changes.apply_to(workload, changes, NOW).status.conditions:
            before = conditions.find(workload.status.conditions, after.type)
            if before is not None and before.status == after.status and before.last_transition_time:
                assert after.last_transition_time == before.last_transition_time


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options, st.sampled_from(FinishedReason))
def test_finished_is_final(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions, reason: FinishedReason
) -> None:
    """Once a Workload is finished, the only rule that applies is the one that deletes it; it is not finished twice."""
    over = workload_changes.apply_to(workload, finishing.finish(workload, reason, "done", NOW), NOW)
    assert states.is_finished(over)
    found = step(over, facts, options, NOW)
    assert all(
        isinstance(one, workload_changes.SetPreemptionGates) for one in workload_changes.on_status(found.changes)
    )
    assert states.is_finished(workload_changes.apply_to(over, found.changes, NOW))
    assert finishing.finish(over, FinishedReason.FAILED, "again", NOW) == ()


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_no_workload_is_admitted_without_quota(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    """Once nothing is due, Admitted means that quota is reserved."""
    rested = at_rest(workload, facts, options)
    if rested is not None and not states.is_finished(rested) and rested.metadata.deletion_timestamp is None:
        assert states.is_reserved(rested) or not states.is_admitted(rested)


@LIVES
@given(random_workloads.workloads, random_workloads.facts, random_workloads.options)
def test_the_two_forms_of_an_answer_agree(
    workload: kueue.Workload, facts: WorkloadFacts, options: LifecycleOptions
) -> None:
    """Once nothing is due, every listed check has a condition with the same state."""
    rested = at_rest(workload, facts, options)
    is_refused = options.refuse_claims and not options.dynamic_resources and states.uses_claims(workload)
    if rested is None or is_refused or states.is_finished(rested) or rested.metadata.deletion_timestamp is not None:
        return
    recorded = {condition.type: checks.meaning(condition) for condition in rested.status.admission_checks_conditions}
    assert [recorded.get(check.name) for check in rested.status.admission_checks] == [
        checks.answer(check) for check in rested.status.admission_checks
    ]
