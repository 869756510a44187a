"""Run-time estimates: where each comes from, and what it is worth."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from history.lives import START, Life
from pykueue.history import records
from pykueue.history.learning import LevelShift, RunDistribution, RunTimes, name_shape
from pykueue.history.learning import Run as PastRun
from pykueue.history.records import WorkloadRecord


def run(
    uid: str, seconds: int, *, job: str = "train-1", user: str = "ana", reason: str = "Succeeded", evicted: bool = False,
    at: int = 0, **hints: str,
) -> WorkloadRecord:  # fmt: skip
    """The record of a Workload that ran."""
    life = Life(uid=uid, job=job, at=at)
    end = at + seconds
    states = [life.annotated(submitted_by=user, **hints), life.started(at)]
    if evicted:
        states += [life.evicted(end), life.released(end), life.deleting(end)]
    else:
        states.append(life.finished(end, reason))
    record: WorkloadRecord | None = None
    for workload in states:
        record = records.observe(record, workload, START + at)
    assert record is not None
    return records.gone(record, life.workload, START + end)


def waiting(job: str = "train-2", user: str = "ana", **hints: str) -> WorkloadRecord:
    return records.observe(None, Life(uid="w", job=job).annotated(submitted_by=user, **hints), START)


def learned(*past: WorkloadRecord) -> RunTimes:
    found = RunTimes()
    for record in past:
        found.learn(record)
    return found


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("train-llm-20261115-x7k2p", "train-llm-#-#"),
        ("report-1794830578", "report-#"),
        ("report-nqzxv", "report-#"),
        ("nightly.v2.report", "nightly.#.report"),
        ("train", "train"),
        ("train-llama", "train-llama"),
    ],
)
def test_the_shape_of_a_name(name: str, shape: str) -> None:
    assert name_shape(name) == shape


def test_without_limit_and_history_there_is_no_estimate() -> None:
    assert RunTimes().estimate(waiting()) is None


def test_a_limit_alone_is_spread_below_it() -> None:
    found = RunTimes().estimate(waiting(active_deadline_seconds="3600"))
    assert found is not None
    assert (found.source, found.quantile(0.0), found.quantile(1.0)) == ("the limit", 360, 3600)


def test_an_expected_time_is_spread_around_it_and_cut_at_the_limit() -> None:
    found = RunTimes().estimate(waiting(expected_time="2h"))
    assert found is not None
    assert (found.source, found.quantile(0.1), found.quantile(0.5), found.quantile(0.9)) == (
        "the expected time", 3600, 7200, 14400,
    )  # fmt: skip
    cut = RunTimes().estimate(waiting(expected_time="2h", active_deadline_seconds="3600"))
    assert cut is not None
    assert cut.quantile(0.5) == 3600


def test_five_runs_like_it_count_more_than_hints() -> None:
    times = learned(*(run(str(n), 600) for n in range(5)))
    found = times.estimate(waiting(expected_time="9h", active_deadline_seconds="36000"))
    assert found is not None
    assert (found.source, found.runs, found.quantile(0.5), found.quantile(0.9)) == ("5 runs like it", 5, 600, 600)


def test_four_runs_are_not_enough() -> None:
    times = learned(*(run(str(n), 600) for n in range(4)))
    assert times.estimate(waiting()) is None


def test_runs_of_another_user_with_the_same_name_count() -> None:
    times = learned(*(run(str(n), 600, user="bob") for n in range(5)))
    found = times.estimate(waiting(user="ana"))
    assert found is not None
    assert found.source == "5 runs like it"
    other = times.estimate(waiting(job="other", user="ana"))
    assert other is not None
    assert other.source == "5 runs of the LocalQueue"


def test_names_with_timestamps_are_one_class() -> None:
    times = learned(*(run(str(n), 60, job=f"nightly-{1794830000 + n}", user=f"u{n}") for n in range(5)))
    found = times.estimate(waiting(job="nightly-1794999999", user="another"))
    assert found is not None
    assert found.quantile(0.5) == 60


def test_runs_that_were_all_evicted_only_bound_the_estimate_from_below() -> None:
    times = learned(*(run(str(n), 300, evicted=True) for n in range(5)))
    found = times.estimate(waiting())
    assert found is not None
    assert found.quantile(0.5) > 300


def test_a_run_that_its_limit_ended_would_have_taken_longer() -> None:
    past = [run(str(n), 600, reason="Failed", active_deadline_seconds="600") for n in range(5)]
    found = learned(*past).estimate(waiting())
    assert found is not None
    assert found.quantile(0.5) > 600


def test_a_failed_run_counts_as_it_is() -> None:
    found = learned(*(run(str(n), 60, reason="Failed") for n in range(5))).estimate(waiting())
    assert found is not None
    assert found.quantile(0.9) == 60


def test_a_run_whose_end_is_not_known_is_not_learned() -> None:
    lost = [records.with_exit_code(run(str(n), 60), 137, is_end_known=False) for n in range(5)]
    assert learned(*lost).estimate(waiting()) is None
    assert learned(*(records.with_exit_code(run(str(n), 60), 137) for n in range(5))).estimate(waiting()) is not None


def test_a_run_longer_than_all_examples_is_expected_to_take_as_long_again() -> None:
    found = learned(*(run(str(n), 600) for n in range(5))).estimate(waiting())
    assert found is not None
    assert found.quantile(0.5, 3 * 3600) == 6 * 3600
    assert found.quantile(0.5, 6 * 3600) == 12 * 3600


def test_a_run_near_the_longest_example_may_outlast_it() -> None:  # [RT7]
    """As likely as not: of two runs that have lasted as long, each may be the longer one."""
    found = learned(*(run(str(n), 60 * n) for n in range(1, 41))).estimate(waiting())
    assert found is not None
    elapsed = 60 * 40 - 5
    assert found.quantile(0.2, elapsed) == 2400
    assert found.quantile(0.8, elapsed) > 3000


def test_runs_that_have_not_ended_are_of_at_least_what_they_have_lasted() -> None:  # [RT6]
    """Of those that began together, the short ones end first."""
    times = learned(*(run(str(n), 600 if n < 6 else 7200) for n in range(11)))
    now = START + 7200
    beside = times.estimate(waiting(), times.open_runs([(waiting(), 3600)] * 5, now))
    alone = times.estimate(waiting())
    assert alone is not None
    assert beside is not None
    assert (alone.quantile(0.5), beside.quantile(0.5)) == (600, 7200)
    # At once they are no examples.
    assert times.estimate(waiting(), times.open_runs([(waiting(), 0)] * 5, now)) == alone


def test_a_run_that_has_not_ended_counts_from_its_length_on_before_the_kept_runs_ended() -> None:  # [RT6]
    """Thirty runs that began before 1,280 others are no fifth beside the 128 that are kept: what they lasted before
    these is known of no other run of that time."""
    times = learned(*(run(str(n), 60, at=60 * n) for n in range(1280)))
    now = START + 60 * 1280
    old = times.estimate(waiting(), times.open_runs([(waiting(), 60 * 1280)] * 30, now))
    recent = times.estimate(waiting(), times.open_runs([(waiting(), 60 * 100)] * 30, now))
    assert old is not None
    assert recent is not None
    assert (old.quantile(0.9), old.quantile(0.99)) == (60, 60)
    # A run that has lasted longer than 60 s is expected to take as long again, until it is compared with them. [RT7]
    assert old.quantile(0.5, 61) == 122
    assert abs(old.quantile(0.5, 60 * 100) - 60 * 200) < 60
    assert old.quantile(0.5, 60 * 1200) > 60 * 1280
    # Those that began after the first of the kept runs are a fifth of the runs since then.
    assert recent.quantile(0.75) == 60
    assert recent.quantile(0.9) > 60 * 100


def test_runs_that_were_submitted_together_are_correlated() -> None:  # [RT12]
    times = learned(*(run(f"first-{n}", 600 + n) for n in range(10)))
    for batch in range(60):
        # Each hour five runs that are all short or all long.
        length = 100 if batch % 2 else 5000
        begin = START + 10_000 + 3600 * batch
        for n in range(5):
            times.learn(replace(run(f"{batch}-{n}", length + n), submitted=begin))
    one, other = times.estimate(waiting("train-7")), times.estimate(waiting("other-7"))
    assert one is not None
    assert other is not None
    assert one.correlation == other.correlation > 0.5
    assert one.alike != other.alike
    assert one.alike == getattr(times.estimate(waiting("train-8")), "alike", "")


def test_a_run_longer_than_all_examples_of_several_classes_is_expected_to_take_as_long_again() -> None:
    """Also with shifted levels: no share of the examples is left that rounding could make one of."""
    past = [run(f"o{n}", 6000 + n, job="other") for n in range(6)] + [run(str(n), 600 + n) for n in range(7)]
    times = learned(*past, replace(run("later", 6100), submitted=START + 6020))
    assert times.snapshot()[1] != LevelShift()
    found = times.estimate(waiting())
    assert found is not None
    assert (found.quantile(0.5, 36_000), found.quantile(0.9, 36_000)) == (72_000, 360_000)


def test_the_users_own_ratios_correct_an_expected_time() -> None:
    past = [run(str(n), 7200, job=f"job-{chr(97 + n)}", expected_time="1h") for n in range(5)]
    wanted = replace(waiting(job="another", user="ana", expected_time="3h"), queue="other")
    found = learned(*past).estimate(wanted)
    assert found is not None
    assert (found.source, found.quantile(0.5)) == ("the expected time, and 5 runs of the user", 6 * 3600)


def test_another_program_of_the_user_takes_the_same_share_of_its_limit() -> None:
    past = [run(str(n), 1800, job="short", active_deadline_seconds="3600") for n in range(5)]
    found = learned(*past).estimate(waiting("long", active_deadline_seconds="36000"))
    assert found is not None
    assert (found.source, found.quantile(0.5)) == ("the limit, and 5 runs of the user", 18_000)
    # Without a limit, or of past runs without one, the lengths themselves count.
    found = learned(*past).estimate(waiting("long"))
    assert found is not None
    assert (found.source, found.quantile(0.5)) == ("5 runs of the user", 1800)
    past = [run(str(n), 1800, job="short") for n in range(5)]
    found = learned(*past).estimate(waiting("long", active_deadline_seconds="36000"))
    assert found is not None
    assert (found.source, found.quantile(0.5)) == ("5 runs of the user", 1800)


def test_runs_of_the_same_program_with_another_limit_count_as_shares_of_their_limits() -> None:
    past = [run(str(n), 1800, active_deadline_seconds="3600") for n in range(5)]
    found = learned(*past).estimate(waiting(active_deadline_seconds="36000"))
    assert found is not None
    assert (found.source, found.quantile(0.5)) == ("the limit, and 5 runs of the user", 18_000)
    found = learned(*past).estimate(waiting(active_deadline_seconds="3600"))
    assert found is not None
    assert (found.source, found.quantile(0.5)) == ("5 runs like it", 1800)


def test_wider_classes_count_with_the_weight_that_narrow_ones_leave() -> None:
    """Five runs of the program have 5/9 of the weight; the other runs of the user keep the P90 above the longest."""
    past = [run(f"o{n}", 6000, job="other") for n in range(20)] + [run(str(n), 600) for n in range(5)]
    found = learned(*past).estimate(waiting())
    assert found is not None
    assert (found.source, found.quantile(0.5), found.quantile(0.9)) == ("5 runs like it", 600, 6000)
    # With more runs of its own, they count less.
    found = learned(*past, *(run(f"m{n}", 600) for n in range(59))).estimate(waiting())
    assert found is not None
    assert (found.source, found.quantile(0.9)) == ("64 runs like it", 600)


def test_a_run_is_compared_with_what_was_known_when_it_was_submitted() -> None:
    """Runs that began with it and ended before it are the shorter ones: they do not count."""
    past = [run(str(n), 600) for n in range(20)]
    times = learned(*past, run("long", 6000))
    assert times.snapshot()[1] == LevelShift()
    later = replace(run("later", 6000), submitted=START + 601)
    times.learn(later)
    assert times.snapshot()[1].shifted(0.9) > 0.9


def test_only_the_last_runs_of_a_class_count() -> None:
    times = learned(*(run(str(n), 60) for n in range(128)), *(run(f"n{n}", 600) for n in range(128)))
    found = times.estimate(waiting())
    assert found is not None
    assert (found.runs, found.quantile(0.1)) == (128, 600)


def test_the_class_that_was_used_longest_ago_is_dropped() -> None:
    times = RunTimes(classes_max=6)
    for number in range(5):
        times.learn(run(str(number), 60, job=f"job-{chr(97 + number)}", user=f"u{number}"))
    assert len(times.snapshot()[0]) == 6


def test_the_product_limit_estimate_of_a_known_sample() -> None:
    """1, 2+, 3, 4+, 5: survival after 1 is 4/5, after 3 is 4/5 · 2/3, after 5 is 0."""
    found = RunDistribution((PastRun(1), PastRun(2, True), PastRun(3), PastRun(4, True), PastRun(5)))
    assert [round(found.survival(t), 4) for t in (0, 1, 2, 3, 4, 5)] == [1.0, 0.8, 0.8, 0.5333, 0.5333, 0.0]
    assert [found.quantile(u) for u in (0.1, 0.2, 0.4, 0.5, 0.9)] == [1, 1, 3, 5, 5]


def test_of_equal_lengths_a_run_that_was_ended_is_the_longer_one() -> None:
    """1, 2, 2+, 3: survival after 2 is 3/4 · 2/3."""
    found = RunDistribution((PastRun(1), PastRun(2, True), PastRun(2), PastRun(3)))
    assert [round(found.survival(t), 4) for t in (1, 2, 3)] == [0.75, 0.5, 0.0]


def test_workloads_that_are_alike_have_one_estimate_until_a_run_is_learned() -> None:
    times = learned(*(run(str(n), 600) for n in range(5)))
    first = times.estimate(waiting("train-2"))
    assert first is not None
    assert times.estimate(waiting("train-3")) is first
    for n in range(30):
        times.learn(run(f"later-{n}", 1200))
    again = times.estimate(waiting("train-2"))
    assert again is not None
    assert (first.quantile(0.5), again.source, again.quantile(0.5)) == (600, "35 runs like it", 1200)


def test_an_estimate_depends_on_the_limit_and_on_the_expected_time() -> None:
    times = learned(*(run(str(n), 600, user="ben", job="other") for n in range(5)))
    hints = [{}, {"expected_time": "1h"}, {"expected_time": "2h"}, {"active_deadline_seconds": "7200"}]
    found = [times.estimate(waiting(user="eve", **each)) for each in hints * 2]
    medians = [each.quantile(0.5) for each in found if each is not None]
    assert medians[:4] == medians[4:]
    assert len(set(medians)) == 4
