"""Replays that would have no end: preemption loops, and samples of usage while a job never starts [PC10]."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analysis.comparison_cases import FAIR, START, case, job, queue, starts, trace
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
        "With the change: 3 jobs preempt each other in turns, and of a loop only the first rounds are replayed:"
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


def guarded(jobs: list[TraceJob]) -> PolicyComparison:
    """A comparison of runs of a year, of which the guard delays each round by ten minutes: 50,000 rounds."""
    return compared([*(replace(each, run_seconds=YEAR) for each in LOOPING), *jobs], fair(LoopGuard=True))


def test_loop_that_the_guard_delays_is_replayed_until_its_rounds_are_alike() -> None:  # [RA9]
    found = guarded([])
    assert found.is_complete
    assert decisions(found) < FEW
    assert comparison_report.leading(found) == []
    assert (
        "With the change: 3 jobs preempt each other in turns, and of a loop only the first rounds are replayed:"
        " default/job-1, default/job-2, default/job-3."
    ) in comparison_report.following(found)
    shown = found.column(CHANGED)
    assert shown is not None
    # Delays of 30 s, twice as long each further time, up to ten minutes; four of these.
    assert 3000 < shown.replay.reached - START < 6 * 3600


def test_jobs_after_a_loop_that_the_guard_delays_are_replayed() -> None:  # [RA9]
    """The loop stays as it is for a month. Then a job arrives that keeps the others from preempting, and all end."""
    month = 30 * 86_400
    found = guarded([job(4, month, run=60, cpus=8, queue="q0", priority=1000)])
    assert decisions(found) < FEW
    shown = found.column(CHANGED)
    assert shown is not None
    last = {each.job.name: each.attempts[-1] for each in shown.replay.outcomes}
    assert {attempt.reason for attempt in last.values()} == {"Finished"}
    assert all((attempt.released or 0) > START + month for attempt in last.values())


def test_jobs_beside_a_loop_that_the_guard_delays_run_when_they_would() -> None:  # [RA9]
    """Those of another cohort tree end a hundred times while the loop stays as it is."""
    others = [job(10 + number, number * 86_400, run=3600, queue="elsewhere") for number in range(100)]
    loops = [replace(each, run_seconds=YEAR) for each in LOOPING]
    changed = fair(LoopGuard=True)
    apart = case(*queue("elsewhere", cpu=1))
    found = compare(
        trace([*loops, *others]),
        apart.with_objects((*fair(FairSharingPreemptionProgress=True).objects, *apart.objects)),
        replace(changed, objects=(*changed.objects, *apart.objects)),
        warm_up=0.0,
    )
    assert found.is_complete
    assert decisions(found) < FEW + 2 * len(others)
    begun = starts(found, CHANGED)
    assert [begun[each.name] for each in others] == [number * 86_400 for number in range(100)]


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


SAMPLING = {"usageHalfLifeTime": "10m", "usageSamplingInterval": "1m"}


@pytest.mark.parametrize("has_other_events", [False, True])
def test_samples_alone_let_the_job_of_another_local_queue_start(has_other_events: bool) -> None:  # [RA10]
    """LocalQueue `a` has used more, so that the big job of `b` blocks the queue. What `a` has used decays while a job of
    `b` runs on: after about seventeen minutes `a` has used less, and its job starts. So it is in a manager."""
    configuration = {**FAIR, "fairSharing": None, "admissionFairSharing": SAMPLING}
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    queues = queue("a", cpu=4, strategy="StrictFIFO", admissionScope=scope)
    second = {**queues[1], "metadata": {"name": "b", "namespace": "default"}}
    shared = case(configuration, *queues, second, *queue("other", cpu=1))
    jobs = [
        job(1, 0, run=1200, cpus=3, queue="a"),
        job(2, 1201, run=None, queue="b"),
        job(3, 1202, run=100, cpus=4, queue="b"),
        job(4, 1203, run=100, queue="a"),
    ]
    if has_other_events:
        jobs += [job(5, 1204, run=86_400, queue="other")]
    found = compare(trace(jobs), shared, shared, warm_up=0.0)
    begun = starts(found, REPLAYED)
    assert begun["job-3"] is None
    assert begun["job-4"] is not None
    assert 1203 + 15 * 60 <= begun["job-4"] <= 1203 + 18 * 60
    assert decisions(found, REPLAYED) < FEW


@pytest.mark.parametrize(("blocked", "starts_at_rest"), [(1, True), (-1, False)])
def test_usages_that_decay_to_nothing_are_followed_to_their_end(blocked: int, starts_at_rest: bool) -> None:  # [RA10]
    """Nothing runs. Usage is rounded down, so that that of both LocalQueues becomes 0; then priority decides."""
    configuration = {**FAIR, "fairSharing": None, "admissionFairSharing": SAMPLING}
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    queues = queue("a", cpu=4, strategy="StrictFIFO", admissionScope=scope)
    second = {**queues[1], "metadata": {"name": "b", "namespace": "default"}}
    shared = case(configuration, *queues, second)
    jobs = [
        job(1, 0, run=1200, cpus=3, queue="a"),
        job(2, 1300, run=100, cpus=9, queue="b"),
        job(3, 1301, run=100, queue="a", priority=blocked),
    ]
    found = compare(trace(jobs), shared, shared, warm_up=0.0)
    begun = starts(found, REPLAYED)["job-3"]
    assert found.is_complete
    assert (begun is not None) is starts_at_rest
    if begun is not None:
        assert 3600 < begun < 86_400
