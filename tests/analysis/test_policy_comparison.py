"""Comparisons of configurations on a trace: the scenarios of the specification, on small traces worked out by hand."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from msgspec.structs import replace

from analysis.comparison_cases import FAIR, START, case, job, queue, starts, trace
from kubemachinery.meta import SECOND, format_time
from pykueue.analysis import comparison_report, policy_comparison, whatif
from pykueue.analysis.planner import Case
from pykueue.analysis.policy_comparison import CHANGED, RECORDED, REPLAYED, PolicyComparison, compare
from pykueue.analysis.replay_processes import ReplayTask, run_all
from pykueue.analysis.trace_replay import INTERRUPTED, TraceDraws, replay
from pykueue.analysis.traces import Trace, TraceJob
from pykueue.api import kueue
from pykueue.history.records import Attempt, UsageSegment
from pykueue.projection import ProjectedAttempt


def changed(base: Case, *objects: dict[str, Any]) -> Case:
    return whatif.changed_by(base, case(*objects), [], START)


def attempt(start: int, end: int | None, cpus: int = 1, reason: str = "Finished", name: str = "physics") -> Attempt:
    begin, released = START + start, None if end is None else START + end
    segment = UsageSegment(begin, released, (("default", "cpu", cpus * 1000),))
    return Attempt(begin, name, begin, begin, released, reason if end is not None else "", "", (segment,))


def value(found: PolicyComparison, column: str, key: str) -> float | None:
    shown = found.column(column)
    assert shown is not None
    return shown.value(key)


# Four jobs of two cpus, one after the other on a queue of two.
FOUR = [job(number, at=number, cpus=2) for number in range(4)]


def test_doubled_quota_halves_the_waiting_and_the_use() -> None:
    base = case(*queue(cpu=2))
    found = compare(trace(FOUR), base, changed(base, *queue(cpu=4)), warm_up=0.0)
    assert starts(found, REPLAYED) == {"job-0": 0, "job-1": 100, "job-2": 200, "job-3": 300}
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": 1, "job-2": 100, "job-3": 101}
    assert value(found, REPLAYED, "waiting.longest") == 297
    assert value(found, CHANGED, "waiting.longest") == 98
    assert (value(found, REPLAYED, "waiting.mean") or 0) > (value(found, CHANGED, "waiting.mean") or 0)
    _, *rows = comparison_report.table(found)
    assert ["waiting, longest", "4m57s", "1m38s", "-67 %"] in rows


def test_strict_order_lets_no_small_job_pass() -> None:
    jobs = [job(0, 0, cpus=3), job(1, 1, cpus=4), job(2, 2, cpus=1)]
    base = case(*queue(cpu=4))
    found = compare(trace(jobs), base, changed(base, *queue(cpu=4, strategy="StrictFIFO")))
    assert starts(found, REPLAYED) == {"job-0": 0, "job-1": 102, "job-2": 2}
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": 100, "job-2": 200}


def test_a_change_that_takes_a_flavor_away_names_the_jobs_that_never_start() -> None:
    base = case(*queue(cpu=2), *queue("chemistry", cpu=2))
    jobs = [*FOUR, job(9, 1, queue="chemistry")]
    gone = whatif.changed_by(base, case(), [(type(base.objects[-1]), "default", "chemistry")], START)
    found = compare(trace(jobs), base, gone, warm_up=0.0)
    assert value(found, REPLAYED, "notStarted") == 0
    assert value(found, CHANGED, "notStarted") == 1
    assert "With the change: 1 job does not start: default/job-9." in comparison_report.following(found)


def test_fair_sharing_in_the_change_only_evicts_and_loses_work() -> None:
    """A Configuration may be part of the change."""
    preempts: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}}
    base = case(*queue("a", cpu=2, cohort="all"), *queue("b", cpu=2, cohort="all"))
    fair = changed(
        base, FAIR, *queue("a", cpu=2, cohort="all", **preempts), *queue("b", cpu=2, cohort="all", **preempts)
    )
    jobs = [job(number, 0, run=1000, queue="a") for number in range(4)] + [job(9, 100, run=50, queue="b")]
    found = compare(trace(jobs, end=5000), base, fair, warm_up=0.0)
    assert starts(found, REPLAYED)["job-9"] == 1000
    # Pods take a second to stop.
    assert starts(found, CHANGED)["job-9"] == 101
    assert (value(found, REPLAYED, "evictions"), value(found, CHANGED, "evictions")) == (0, 1)
    assert value(found, REPLAYED, "lost.cpu") == 0
    assert value(found, CHANGED, "lost.cpu") == pytest.approx(101 / 3600)


def test_equal_configurations_give_equal_columns() -> None:
    """[PC-L3]"""
    base = case(*queue(cpu=2))
    found = compare(trace(FOUR), base, base)
    assert found.columns[0].figures == found.columns[1].figures


# --- History ----------------------------------------------------------------------------------------------------------


def recorded(jobs: list[TraceJob], end: int = 1000, **more: Any) -> Trace:
    return trace(jobs, end=end, has_recorded=True, **more)


def test_a_range_of_the_history_has_three_columns_and_the_distance() -> None:
    """[PC1]"""
    base = case(*queue(cpu=2))
    # As it would be replayed, but for a start that was two minutes late.
    jobs = [
        job(0, 0, cpus=2, attempts=(attempt(0, 100, 2),)),
        job(1, 110, cpus=2, attempts=(attempt(230, 330, 2),)),
    ]
    found = compare(recorded(jobs), base, base, warm_up=0.0)
    assert [column.name for column in found.columns] == [RECORDED, REPLAYED, CHANGED]
    assert (value(found, RECORDED, "waiting.longest"), value(found, REPLAYED, "waiting.longest")) == (120, 0)
    assert found.distance == 0.0  # the median is that of the first job
    late = compare(recorded([jobs[1]]), base, base, warm_up=0.0)
    assert late.distance == 1.0
    assert comparison_report.leading(late) == [
        "Read with care: the replay differs from what was recorded by 100 % in the median waiting time."
    ]
    assert "The replay differs from what was recorded by 0 % in the median waiting time." in (
        comparison_report.following(found)
    )


def test_what_ran_when_the_range_began_keeps_its_quota_until_its_recorded_end() -> None:
    """[PC3]"""
    held = job(0, -50, run=150, cpus=2, attempts=(attempt(-40, 110, 2),))
    waits = job(1, -10, cpus=2, attempts=(attempt(110, 210, 2),))
    found = compare(recorded([held, waits]), case(*queue(cpu=2)), case(*queue(cpu=4)), warm_up=0.0)
    assert starts(found, REPLAYED) == {"job-0": -40, "job-1": 110}
    assert starts(found, CHANGED) == {"job-0": -40, "job-1": 0}


def test_the_warm_up_and_jobs_that_did_not_start_do_not_count() -> None:
    """[PC3]"""
    jobs = [job(0, 0, cpus=2, run=500), job(1, 150, cpus=2, run=5000), job(2, 160, cpus=2)]
    found = compare(recorded(jobs), case(*queue(cpu=2)), case(*queue(cpu=2)))
    assert value(found, REPLAYED, "started") == 1
    assert value(found, REPLAYED, "waiting.mean") == 350
    assert value(found, REPLAYED, "notStarted") == 1
    assert value(found, REPLAYED, "notStarted.waited") == 840


def test_a_job_that_was_deleted_while_waiting_leaves_the_queue_then() -> None:
    jobs = [job(0, 0, cpus=2, run=500), job(1, 1, cpus=2, run=None, withdrawn=START + 200), job(2, 2, cpus=2)]
    found = compare(recorded(jobs), case(*queue(cpu=2, strategy="StrictFIFO")), case(*queue(cpu=4)), warm_up=0.0)
    assert starts(found, REPLAYED) == {"job-0": 0, "job-1": None, "job-2": 500}
    # With more quota it starts before it would have been deleted.
    assert starts(found, CHANGED)["job-1"] == 1


def test_unknown_run_times_are_drawn_above_what_was_seen_and_are_the_same_on_both_sides() -> None:
    """[PC2], [RA2]"""
    known = [job(n, n, run=200, cpus=1, attempts=(attempt(n, n + 200),)) for n in range(8)]
    cut = job(90, 50, run=None, ran_at_least=150, attempts=(attempt(50, 200, reason="Deleted"),))
    found = compare(recorded([*known, cut], end=5000), case(*queue(cpu=20)), case(*queue(cpu=10)), warm_up=0.0)
    assert (found.drawn, found.endless) == (1, 0)
    lengths = set()
    for column in found.columns[1:]:
        (outcome,) = (each for each in column.replay.outcomes if each.job.uid == cut.uid)
        lengths.add((outcome.finished or 0) - (outcome.started or 0))
    assert lengths == {200}
    assert "1 job did not end by itself: its run time is drawn." in comparison_report.following(found)


def test_a_job_of_which_nothing_is_known_runs_until_the_end() -> None:
    found = compare(recorded([job(0, 0, run=None)]), case(*queue()), case(*queue()), warm_up=0.0)
    assert found.endless == 1
    assert "No run time is known of 1 job: counted until the end." in comparison_report.following(found)


def test_repeated_draws_show_their_range() -> None:
    """[PC7]"""
    known = [job(n, n, run=100 * n, attempts=(attempt(n, n + 100 * n),)) for n in range(1, 9)]
    cut = [job(90 + n, 50, cpus=4, run=None, ran_at_least=5) for n in range(4)]
    found = compare(recorded([*known, *cut], end=9000), case(*queue(cpu=4)), case(*queue(cpu=8)), warm_up=0.0, repeat=5)
    replayed = found.column(REPLAYED)
    assert replayed is not None
    least, most = replayed.ranges["waiting.mean"]
    assert least < most
    assert least <= (replayed.value("waiting.mean") or 0) <= most
    assert " to " in {row[0]: row[2] for row in comparison_report.table(found)}["waiting, mean"]


def test_signs_of_another_quota_are_reported() -> None:
    """[PC4]"""
    jobs = [job(0, 0, cpus=6, attempts=(attempt(0, 100, 6),)), job(1, 0, attempts=(attempt(0, 100, name="old"),))]
    found = compare(recorded(jobs), case(*queue(cpu=4)), case(*queue(cpu=4)))
    assert found.notices == (
        "ClusterQueue old was used and does not exist now",
        "at 2027-01-15T08:00:00Z, 7 cpu of flavor default were in use, and the quota is 4 now: it was changed since",
    )


# --- QuotaSchedules and Budgets ---------------------------------------------------------------------------------------


def closed(on_start: str) -> dict[str, Any]:
    """A window without quota, from second 50 to second 300."""
    quotas = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "0"}]}]
    span = {"start": format_time((START + 50) * SECOND), "end": format_time((START + 300) * SECOND)}
    spec = {
        "windows": [{"name": "w", **span}],
        "targets": [{"clusterQueue": "physics", "flavors": quotas}],
        "onStart": on_start,
    }
    return {"apiVersion": "pykueue.io/v1alpha1", "kind": "QuotaSchedule", "metadata": {"name": "night"}, "spec": spec}


def gate(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {name: True},
    }


@pytest.mark.parametrize(("on_start", "first_attempts"), [("Keep", [(0, 100)]), ("Evict", [(0, 51), (300, 400)])])
def test_the_windows_of_a_schedule_are_replayed(on_start: str, first_attempts: list[tuple[int, int]]) -> None:
    """[PC11] The second job waits for the end of the window; the first one runs on, or is evicted and runs again."""
    base = case(*queue(cpu=2))
    found = compare(
        trace([job(0, 0, cpus=2), job(1, 60, cpus=1)]), base, changed(base, closed(on_start), gate("QuotaCalendar"))
    )
    assert starts(found, REPLAYED) == {"job-0": 0, "job-1": 100}
    assert starts(found, CHANGED) == {"job-0": 0, "job-1": 400 if on_start == "Evict" else 300}
    shown = found.column(CHANGED)
    assert shown is not None
    attempts = [(each.reserved - START, (each.released or 0) - START) for each in shown.replay.outcomes[0].attempts]
    assert attempts == first_attempts
    assert found.notices == ()


def test_use_is_relative_to_the_quota_that_the_windows_leave() -> None:
    """[PC5] Until the window ends, two cpus for 50 seconds are all of the quota, and the first job uses them."""
    base = case(*queue(cpu=2))
    jobs = [job(0, 0, run=50, cpus=2), job(1, 299, run=50)]
    found = compare(trace(jobs), base, changed(base, closed("Keep"), gate("QuotaCalendar")), warm_up=0.0)
    assert value(found, REPLAYED, "use.default.cpu") == pytest.approx(101 / 600)
    assert value(found, CHANGED, "use.default.cpu") == 1.0


def test_schedules_without_their_gate_are_reported() -> None:
    base = case(*queue())
    found = compare(trace(FOUR), base, changed(base, closed("Keep")))
    sentence = "With the change: QuotaSchedules have no effect, because the gate QuotaCalendar is off."
    assert sentence in comparison_report.following(found)


def test_admission_checks_last_as_long_as_they_did() -> None:
    late = Attempt(START, "physics", START, START + 30, START + 130, "Finished", "", ())
    jobs = [job(0, 0, attempts=(late,)), job(1, 5)]
    draws = TraceDraws(recorded(jobs), 0)
    attempt = ProjectedAttempt("default/job-0", "", 0, "physics", START)
    assert [draws.check_seconds(each.workload(), attempt, 0) for each in jobs] == [30, 30]


# --- Interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [0, 1, 3, 6, 9])
def test_an_interrupted_comparison_has_what_there_is_so_far(calls: int) -> None:
    left = calls

    def may_go_on() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    jobs = [job(n, n, cpus=2, attempts=(attempt(n * 100, n * 100 + 100, 2),)) for n in range(4)]
    found = compare(recorded(jobs), case(*queue(cpu=2)), case(*queue(cpu=4)), may_go_on=may_go_on)
    assert not found.is_complete
    assert comparison_report.leading(found)[0].startswith("Interrupted")
    assert comparison_report.table(found)
    assert json.loads(json.dumps(comparison_report.tree(found)))["complete"] is False
    comparison_report.html(found)
    assert len({column.within.end for column in found.columns}) <= 1


# --- Side by side -----------------------------------------------------------------------------------------------------


def test_replays_side_by_side_give_what_they_give_in_turn() -> None:
    base = case(*queue(cpu=2))
    other = changed(base, *queue(cpu=4))
    jobs = recorded([*FOUR, job(8, 1, run=None, ran_at_least=5)], end=5000)
    in_turn = compare(jobs, base, other, repeat=2)
    assert in_turn.drawn
    assert compare(jobs, base, other, repeat=2, processes=3) == in_turn


class EndsOtherProcesses(TraceDraws):
    """Run times that end every process but the one they were made in."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self.made_in = os.getpid()

    def run_seconds(self, workload: kueue.Workload, elapsed_seconds: int) -> int | None:
        if os.getpid() != self.made_in:
            os._exit(3)
        return super().run_seconds(workload, elapsed_seconds)


def test_a_replay_whose_process_was_killed_is_run_again(caplog: pytest.LogCaptureFixture) -> None:
    jobs = trace(FOUR)
    task = ReplayTask(REPLAYED, case(*queue(cpu=2)), jobs, EndsOtherProcesses(jobs))
    first, second = run_all([task, task], processes=2)
    assert first == second
    assert first is not None
    assert first.is_complete
    assert "the process of a replay ended with exit code 3; the replay is run again" in caplog.text


def test_replays_side_by_side_end_when_they_are_interrupted() -> None:
    """The trace would take minutes; the second process is stopped by the first."""
    left = 50

    def may_go_on() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    jobs = trace([job(number, number, cpus=2) for number in range(100_000)])
    tasks = [ReplayTask(name, case(*queue(cpu=2)), jobs, TraceDraws(jobs)) for name in (REPLAYED, CHANGED)]
    found = run_all(tasks, processes=2, may_go_on=may_go_on)
    assert [each.ended_early for each in found if each is not None] == [INTERRUPTED, INTERRUPTED]


# --- Output -----------------------------------------------------------------------------------------------------------


def test_the_report_is_one_file_without_scripts_and_references() -> None:
    base = case(*queue(cpu=2))
    text = comparison_report.html(compare(trace(FOUR, source="a <trace>"), base, changed(base, *queue(cpu=4))))
    assert text.count("<svg") == 3
    assert "a &lt;trace&gt;" in text
    for word in ("<script", "href=", "src=", "url(", "@import"):
        assert word not in text
    assert "Not known: with other waiting times, users would have submitted other jobs" in text


def test_a_document_has_every_column_and_figure() -> None:
    base = case(*queue(cpu=2))
    tree = comparison_report.tree(compare(trace(FOUR), base, changed(base, *queue(cpu=4)), warm_up=0.0))
    assert list(tree["columns"]) == ["replayed", "changed"]
    assert tree["columns"]["replayed"]["figures"]["waiting.longest"] == 297
    assert tree["columns"]["changed"]["figures"]["started"] == 4
    assert tree["complete"] is True
    assert tree["distance"] is None
    assert tree["notKnown"] == list(policy_comparison.CANNOT_KNOW)


def test_one_replay_counts_its_decisions() -> None:
    jobs = trace(FOUR)
    found = replay(case(*queue(cpu=2)), replace(jobs), TraceDraws(jobs, 0))
    assert found.decisions >= 4
    assert found.is_complete
