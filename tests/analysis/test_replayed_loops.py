"""Replays that would have no end: preemption loops, and samples of usage while a job never starts [PC10]."""

from __future__ import annotations

from msgspec.structs import replace

from analysis.comparison_cases import FAIR, START, case, job, queue, starts, trace
from kubemachinery.meta import SECOND, format_time
from pykueue.analysis import comparison_report
from pykueue.analysis.planner import Case
from pykueue.analysis.policy_comparison import CHANGED, REPLAYED, PolicyComparison, compare
from pykueue.analysis.traces import TraceJob

YEAR = 365 * 86_400
PREEMPTS = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
# Two queues of four cpus: job-1 and job-3 preempt each other in turns for the sake of job-2, which never starts.
LOOPING = [
    job(1, 0, run=600, cpus=6, queue="q0", priority=10),
    job(2, 1, run=600, cpus=6, queue="q1", priority=10),
    job(3, 2, run=600, cpus=3, queue="q1"),
]
# Decisions of a replay that follows every round until its bound: 200,000.
FEW = 300


def fair(**gates: bool) -> Case:
    gates = {"FairSharingPreemptionProgress": False, **gates}
    return case(
        {**FAIR, "featureGates": gates},
        *queue("q0", cpu=4, cohort="c", preemption=PREEMPTS),
        *queue("q1", cpu=4, cohort="c", preemption=PREEMPTS),
    )


def compared(jobs: list[TraceJob], changed: Case) -> PolicyComparison:
    return compare(trace(jobs), fair(FairSharingPreemptionProgress=True), changed, warm_up=0.0)


def decisions(found: PolicyComparison, column: str = CHANGED) -> int:
    shown = found.column(column)
    assert shown is not None
    return shown.replay.decisions


def test_replay_of_a_preemption_loop_ends_and_names_its_jobs() -> None:
    found = compared(LOOPING, fair())
    assert decisions(found) < FEW
    assert found.is_complete
    sentences = comparison_report.following(found)
    assert "With the change: 1 preemption loop." in sentences
    assert (
        "With the change: 3 jobs preempt each other in turns, and of a loop only three rounds are replayed:"
        " default/job-1, default/job-2, default/job-3."
    ) in sentences
    columns = comparison_report.tree(found)["columns"]
    assert columns["changed"]["inPreemptionLoops"] == ["default/job-1", "default/job-2", "default/job-3"]
    assert columns["replayed"]["inPreemptionLoops"] == []
    assert not [each for each in sentences if each.startswith("Replayed: ") and "loop" in each]


def test_jobs_after_a_preemption_loop_are_replayed() -> None:
    """The loop stays as it is for a day. Then a job arrives that keeps the others from preempting, and all jobs end."""
    late = job(4, 86_400, run=60, cpus=8, queue="q0", priority=1000)
    found = compared([*LOOPING, late], fair())
    assert decisions(found) < FEW
    shown = found.column(CHANGED)
    assert shown is not None
    last = {each.job.name: each.attempts[-1] for each in shown.replay.outcomes}
    assert {attempt.reason for attempt in last.values()} == {"Finished"}
    assert all((attempt.released or 0) > START + 86_400 for attempt in last.values())


def test_loop_that_the_guard_delays_ends_the_replay_with_the_time_and_the_reason() -> None:
    """With the guard a round takes ten minutes, and no job ends in them."""
    found = compared([replace(each, run_seconds=YEAR) for each in LOOPING], fair(LoopGuard=True))
    shown = found.column(CHANGED)
    assert shown is not None
    assert not found.is_complete
    assert not found.is_interrupted
    assert 10_000 < shown.replay.decisions < 11_000
    reached = format_time(shown.replay.reached * SECOND)
    reason = f"Workloads preempt each other in turns at {reached}, and no job ends or is submitted meanwhile"
    assert comparison_report.leading(found) == [f"Cut short, with the change: {reason}."]


def test_replay_with_admission_fair_sharing_ends_although_a_job_never_starts() -> None:
    sampling = {"usageHalfLifeTime": "1h", "usageSamplingInterval": "5m"}
    configuration = {**FAIR, "fairSharing": None, "admissionFairSharing": sampling}
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    shared = case(configuration, *queue(cpu=2, admissionScope=scope))
    found = compare(trace([job(1, 0, run=1000), job(2, 10, cpus=3)]), shared, shared, warm_up=0.0)
    assert starts(found, REPLAYED) == {"job-1": 0, "job-2": None}
    shown = found.column(REPLAYED)
    assert shown is not None
    assert shown.replay.reached == START + 1000
