"""The measures of a comparison, by hand-made outcomes [PC5]. Times are seconds; amounts of cpu are thousandths."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pykueue.analysis import measures
from pykueue.analysis.measures import JobOutcome, MeasuredRange, QueueQuota, Step, Unit
from pykueue.analysis.traces import TraceJob
from pykueue.api import kube, kueue
from pykueue.core import amounts
from pykueue.core.queue import FlavorResource
from pykueue.history.records import Attempt, UsageSegment

CPU = FlavorResource("default", "cpu")
GPU = FlavorResource("a100", "nvidia.com/gpu")


def pod_sets(count: int, **requests: str) -> tuple[kueue.PodSet, ...]:
    named: dict[str, str | int | float] = {
        name.replace("gpu", "nvidia.com/gpu"): each for name, each in requests.items()
    }
    container = kube.Container(name="main", resources=kube.ResourceRequirements(requests=named or {"cpu": "1"}))
    return (kueue.PodSet(count=count, template=kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))),)


def job(submitted: int = 0, cpus: int = 1, run: int | None = 100, name: str = "job") -> TraceJob:
    return TraceJob(
        uid=name, namespace="ns", name=name, queue="q", pod_sets=pod_sets(cpus), submitted=submitted, run_seconds=run
    )


def attempt(start: int, end: int | None, cpus: int = 1, reason: str = "Finished", queue: str = "a") -> Attempt:
    segment = UsageSegment(start, end, (("default", "cpu", cpus * 1000),))
    return Attempt(start, queue, start, start, end, reason if end is not None else "", "", (segment,))


def within(begin: int = 0, end: int = 1000, **quota: int) -> MeasuredRange:
    queues = {
        name: QueueQuota(tree="cohort/all", nominal={CPU: (Step(0, cpus * 1000),)})
        for name, cpus in (quota or {"a": 4}).items()
    }
    return MeasuredRange(begin=begin, end=end, queues=queues, cohorts={}, resource="cpu")


def value(outcomes: Sequence[JobOutcome], key: str, range_: MeasuredRange | None = None) -> float | None:
    found = [figure.value for figure in measures.measure(outcomes, range_ or within()) if figure.key == key]
    assert found, key
    return found[0]


def test_waiting_is_from_submission_to_the_first_admission() -> None:
    twice = JobOutcome(job(10), (attempt(30, 60, reason="Preempted"), attempt(90, 190)))
    assert measures.waiting(twice) == 20


@pytest.mark.parametrize(
    ("submitted", "start", "end", "expected"),
    [(0, 0, 100, 1.0), (0, 100, 200, 2.0), (0, 90, 91, 9.1), (0, 5, 8, 1.0)],
)
def test_slowdown_counts_short_runs_as_ten_seconds(submitted: int, start: int, end: int, expected: float) -> None:
    assert measures.bounded_slowdown(JobOutcome(job(submitted), (attempt(start, end),))) == pytest.approx(expected)


def test_slowdown_includes_lost_runs_and_needs_an_end() -> None:
    evicted = JobOutcome(job(0), (attempt(0, 100, reason="Preempted"), attempt(100, 200)))
    assert measures.bounded_slowdown(evicted) == pytest.approx(2.0)
    assert measures.bounded_slowdown(JobOutcome(job(0), (attempt(0, None),))) is None


def test_jobs_of_the_warm_up_do_not_count_and_those_that_did_not_start_are_counted_apart() -> None:
    outcomes = [
        JobOutcome(job(0, name="early"), (attempt(500, 600),)),
        JobOutcome(job(100, name="on time"), (attempt(130, 230),)),
        JobOutcome(job(200, name="late"), (attempt(210, 310),)),
        JobOutcome(job(400, name="never"), ()),
        JobOutcome(job(1000, name="after"), ()),
    ]
    range_ = within(begin=100)
    assert value(outcomes, "started", range_) == 2
    assert value(outcomes, "waiting.mean", range_) == 20
    assert value(outcomes, "waiting.p50", range_) == 10
    assert value(outcomes, "waiting.p90", range_) == 30
    assert value(outcomes, "waiting.longest", range_) == 30
    assert value(outcomes, "notStarted", range_) == 1
    assert value(outcomes, "notStarted.waited", range_) == 600


def test_waiting_is_also_by_size() -> None:
    outcomes = [
        JobOutcome(job(0, cpus=1, name="a"), (attempt(5, 100),)),
        JobOutcome(job(0, cpus=16, name="b"), (attempt(70, 100, cpus=16),)),
    ]
    assert value(outcomes, "waiting.size.1") == 5
    assert value(outcomes, "waiting.size.16-127") == 70


@pytest.mark.parametrize(("size", "name"), [(1, "1"), (2, "2-15"), (15, "2-15"), (16, "16-127"), (128, "128+")])
def test_size_classes(size: int, name: str) -> None:
    assert measures.size_class(size) == name


def test_use_is_the_share_of_nominal_quota_within_the_range() -> None:
    outcomes = [JobOutcome(job(), (attempt(-100, 500, cpus=2),)), JobOutcome(job(), (attempt(900, None, cpus=4),))]
    assert measures.usage_share(outcomes, within()) == {CPU: pytest.approx((2 * 500 + 4 * 100) / 4000)}


def test_use_follows_a_quota_that_changes() -> None:
    stepped = QueueQuota(tree="a", nominal={CPU: (Step(0, 4000), Step(500, 8000))})
    range_ = MeasuredRange(begin=0, end=1000, queues={"a": stepped}, cohorts={}, resource="cpu")
    outcomes = [JobOutcome(job(), (attempt(0, 1000, cpus=3),))]
    assert measures.usage_share(outcomes, range_) == {CPU: pytest.approx(3 / 6)}


def test_unlimited_quota_has_no_use() -> None:
    endless = QueueQuota(tree="a", nominal={CPU: (Step(0, amounts.UNLIMITED),)})
    range_ = MeasuredRange(begin=0, end=1000, queues={"a": endless}, cohorts={}, resource="cpu")
    assert measures.usage_share([JobOutcome(job(), (attempt(0, 10),))], range_) == {CPU: None}


def test_lost_hours_are_those_of_evicted_attempts_in_the_range() -> None:
    outcomes = [
        JobOutcome(job(), (attempt(-100, 3600, cpus=2, reason="Preempted"), attempt(3600, 3700))),
        JobOutcome(job(), (attempt(0, 3600, reason="Deleted"),)),
    ]
    assert measures.lost_hours(outcomes, within(end=7200)) == {"cpu": pytest.approx(2.0)}
    assert measures.evictions(outcomes, within(end=7200)) == 1
    assert measures.evictions(outcomes, within(end=3600)) == 0


@pytest.mark.parametrize(
    ("shares", "expected"),
    [([1.0, 1.0, 1.0], 1.0), ([1.0, 0.0], 0.5), ([1.0, 1.0, 0.0, 0.0], 0.5), ([3.0, 1.0], 0.8), ([1.0], None),
     ([], None), ([0.0, 0.0], None)],
)  # fmt: skip
def test_jains_index(shares: list[float], expected: float | None) -> None:
    found = measures.jain(shares)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_fairness_compares_used_to_entitled() -> None:
    """Both queues could have used all of it; one got three quarters of an equal entitlement."""
    outcomes = [
        JobOutcome(job(cpus=4, run=1000), (attempt(0, 750, cpus=4, queue="a"),)),
        JobOutcome(job(cpus=4, run=1000), (attempt(750, 1000, cpus=4, queue="b"),)),
    ]
    assert measures.fairness(outcomes, within(a=2, b=2)) == pytest.approx((1.5 + 0.5) ** 2 / (2 * (2.25 + 0.25)))


def test_a_queue_that_asks_for_little_is_entitled_to_no_more() -> None:
    outcomes = [
        JobOutcome(job(cpus=4, run=900), (attempt(0, 900, cpus=4, queue="a"),)),
        JobOutcome(job(cpus=1, run=100), (attempt(900, 1000, cpus=1, queue="b"),)),
    ]
    used = {"a": 3600, "b": 100}
    assert measures.entitlements(used, {"a": 3600, "b": 100}, within(a=2, b=2)) == {"a": 1850, "b": 100}
    assert measures.fairness(outcomes, within(a=2, b=2, idle=2)) is not None


@pytest.mark.parametrize(
    ("resources", "expected"),
    [(["cpu", "memory", "nvidia.com/gpu"], "nvidia.com/gpu"), (["memory", "cpu"], "cpu"), (["memory"], "memory"), ([], "cpu")],
)  # fmt: skip
def test_sizes_are_measured_in_accelerators_or_cpu(resources: list[str], expected: str) -> None:
    assert measures.main_resource(resources) == expected


def test_size_is_of_all_pods_in_whole_pieces() -> None:
    mixed = TraceJob(
        uid="u", namespace="n", name="j", queue="q", pod_sets=pod_sets(3, cpu="500m", gpu="2"), submitted=0
    )
    assert measures.size(mixed, "cpu") == 2
    assert measures.size(mixed, "nvidia.com/gpu") == 6
    assert measures.size(mixed, "memory") == 0


def test_without_jobs_there_is_nothing_to_measure() -> None:
    by_key = {figure.key: figure for figure in measures.measure([], within())}
    assert by_key["waiting.p50"].value is None
    assert by_key["slowdown.mean"].value is None
    assert by_key["fairness"].value is None
    assert by_key["use.default.cpu"] == ("use.default.cpu", "use of default/cpu", Unit.SHARE, 0.0)
