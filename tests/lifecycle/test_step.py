"""The rules together: their order, one write at a time, and the earliest time to look again."""

from __future__ import annotations

from pathlib import Path

from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import HOUR, MINUTE, SECOND
from lifecycle.workload_harness import ONE_CHECK, START, WorkloadHarness, facts_of, workload
from pykueue.api import kueue
from pykueue.api.conditions import DeactivationReason, WorkloadCondition
from pykueue.lifecycle import workload_changes
from pykueue.lifecycle.facts import LifecycleOptions, PodsReadyOptions
from pykueue.lifecycle.step import RULES, LifecycleStep
from pykueue.lifecycle.workload_changes import SetInactive, SetPreemptionGates


def test_each_rule_is_named_by_the_tests_that_show_it() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_rules_*.py"))
    assert [rule.__name__ for rule in RULES if f"`{rule.__name__}`" not in source] == []


def test_a_workload_with_which_all_is_well_is_left_alone() -> None:
    assert WorkloadHarness().step_once() == LifecycleStep()
    assert WorkloadHarness(options=LifecycleOptions(pods_ready=None)).reserved().step_once() == LifecycleStep()


def test_the_earliest_of_the_times_to_look_again_counts() -> None:
    options = LifecycleOptions(pods_ready=PodsReadyOptions(timeout=HOUR))
    harness = WorkloadHarness(workload(maximum_execution_time_seconds=60), options=options).reserved()
    assert harness.step_once().wake_at == START + MINUTE
    harness.write((workload_changes.SetRequeue(1, START + 5 * SECOND),))
    assert harness.step_once().wake_at == START + 5 * SECOND


def test_consecutive_changes_are_one_write() -> None:
    """A check's No to a waiting Workload: its delay, the eviction, the reset answers and their mirror."""
    harness = (
        WorkloadHarness(facts=facts_of(*ONE_CHECK)).reserved().check_state("c1", "Retry", requeue_after_seconds=60)
    )
    changes = harness.step_once().changes
    assert {type(one) for one in workload_changes.on_status(changes)} == {
        workload_changes.SetRequeue,
        workload_changes.SetCondition,
        workload_changes.SetChecks,
        workload_changes.SetCheckConditions,
        workload_changes.CountEviction,
    }
    assert harness.write(changes).step_once().changes == ()


def test_the_object_is_changed_only_once_nothing_is_due_on_the_status() -> None:
    """Of two writes one can fail, and what is then missing must be the later one."""
    harness = WorkloadHarness(
        workload(preemption_gates=(kueue.PreemptionGate(name="g"),)),
        options=LifecycleOptions(orchestrated_preemption=True),
    )
    harness.reserved().with_condition(
        WorkloadCondition.DEACTIVATION_TARGET, ConditionStatus.TRUE, DeactivationReason.ADMISSION_CHECK
    )
    first = harness.step_once().changes
    assert [type(one) for one in first] == [SetPreemptionGates]
    assert harness.write(first).step_once().changes == (SetInactive(),)


def test_jitter_changes_only_requeue_at() -> None:
    options = LifecycleOptions(
        pods_ready=PodsReadyOptions(timeout=SECOND, backoff_base_seconds=100_000, backoff_max_seconds=0)
    )
    harness = WorkloadHarness(options=options).reserved().after(1)
    early, late = harness.step_once().changes, harness.step_once(jitter=0.95).changes
    assert [one for one in early if one not in late] == [workload_changes.SetRequeue(1, harness.now + 100_000 * SECOND)]
    assert [one for one in late if one not in early] == [workload_changes.SetRequeue(1, harness.now + 100_009 * SECOND)]
