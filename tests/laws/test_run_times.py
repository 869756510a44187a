"""Laws of run-time estimates."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from history.lives import START
from pykueue.history.learning import (
    LevelCorrelation,
    LevelShift,
    OpenRuns,
    PastRuns,
    Run,
    RunDistribution,
    RunMixture,
    RunTimes,
    delayed_steps,
    level_of,
)
from pykueue.history.queries import RecordFilter
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore
from pykueue.projection import correlated

runs = st.lists(
    st.builds(Run, st.integers(1, 10**6).map(float), st.booleans()), min_size=1, max_size=64
).map(tuple)  # fmt: skip
shares = st.floats(0.0, 0.999)


@st.composite
def records(draw: st.DrawFn, uid: str = "", ended: int = 0) -> WorkloadRecord:
    """A record that has ended."""
    seconds = draw(st.integers(0, 100_000))
    outcome = draw(st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED]))
    reason = "Deleted" if outcome is Outcome.CANCELLED else "Finished"
    begin = START + ended - seconds
    segment = UsageSegment(begin, START + ended, ())
    return WorkloadRecord(
        uid=uid,
        namespace="ns",
        name="w",
        job_name=draw(st.sampled_from(["train", "test-1", "test-2"])),
        queue=draw(st.sampled_from(["one", "two"])),
        user=draw(st.sampled_from(["", "ana", "bob"])),
        submitted=begin,
        ended=START + ended,
        outcome=outcome,
        limit_seconds=draw(st.none() | st.integers(1, 100_000)),
        expected_seconds=draw(st.none() | st.integers(1, 100_000)),
        attempts=(Attempt(begin, "cq", begin, begin, START + ended, reason, segments=(segment,)),),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[WorkloadRecord]:
    return [draw(records(uid=str(number), ended=200_000 + number)) for number in range(draw(st.integers(0, 20)))]


def learned(past: list[WorkloadRecord]) -> RunTimes:
    found = RunTimes()
    for record in past:
        found.learn(record)
    return found


@given(histories(), records(), shares, st.integers(0, 200_000))
def test_no_quantile_exceeds_the_limit_and_each_exceeds_the_elapsed_time(
    past: list[WorkloadRecord], wanted: WorkloadRecord, share: float, elapsed: int
) -> None:
    """[RT-L1], [RT-L2]"""
    estimate = learned(past).estimate(wanted)
    if estimate is None:
        return
    found = estimate.quantile(share, elapsed)
    if wanted.limit_seconds is not None:
        assert found <= wanted.limit_seconds
    if wanted.limit_seconds is None or elapsed < wanted.limit_seconds:
        assert found > elapsed


@given(runs, shares, shares, st.floats(0, 10**6))
def test_quantiles_do_not_fall_when_the_probability_grows(
    given_runs: tuple[Run, ...], one: float, other: float, elapsed: float
) -> None:
    """[RT-L5]"""
    found = RunDistribution(given_runs)
    low, high = sorted((one, other))
    assert found.quantile(low, elapsed) <= found.quantile(high, elapsed) + 1e-9


@given(st.integers(1, 10**6), st.integers(5, 64), shares)
def test_after_runs_of_one_length_every_quantile_is_that_length(length: int, count: int, share: float) -> None:
    """[RT-L6]"""
    found = RunDistribution(tuple(Run(float(length)) for _ in range(count)))
    assert found.quantile(share) == length


@given(histories(), records(uid="new"))
def test_a_run_changes_only_the_classes_of_its_own_workload(past: list[WorkloadRecord], new: WorkloadRecord) -> None:
    """[RT-L3]"""
    times = learned(past)
    before = times.snapshot()[0]
    times.learn(new)
    own = f"{new.namespace}/{new.queue}"
    for key, kept in times.snapshot()[0].items():
        if kept != before.get(key):
            assert own in key or new.user in key or new.cluster_queue in key


@given(histories(), records(), shares, shares, st.integers(0, 200_000))
def test_quantiles_of_an_estimate_do_not_fall_when_the_probability_grows(
    past: list[WorkloadRecord], wanted: WorkloadRecord, one: float, other: float, elapsed: int
) -> None:
    """[RT-L5], of mixtures with shifted levels."""
    estimate = learned(past).estimate(wanted)
    if estimate is not None:
        low, high = sorted((one, other))
        assert estimate.quantile(low, elapsed) <= estimate.quantile(high, elapsed)


@given(histories(), records())
def test_run_times_rebuilt_from_the_history_equal_those_that_were_kept(
    past: list[WorkloadRecord], wanted: WorkloadRecord
) -> None:
    """[RT-L4]"""
    with contextlib.closing(HistoryStore(None)) as store:
        store.save(past)
        assert len(store.select(RecordFilter())[0]) == len(past)
        kept, rebuilt = learned(past), learned(store.runs(1000))
        assert rebuilt.snapshot() == kept.snapshot()
        one, other = kept.estimate(wanted), rebuilt.estimate(wanted)
        assert (one and one.quantile(0.9)) == (other and other.quantile(0.9))


# --- Classes and mixtures ---------------------------------------------------------------------------------------------

# Negative for a run that would have taken longer; few values, so that many are equal.
signed = st.integers(1, 40).map(float) | st.integers(-40, 300).filter(bool).map(float)


def past_runs(lengths: list[float], asked: Callable[[int], bool] = lambda _: False) -> PastRuns:
    """The runs of a class, one learned each second; after some of them, its distribution is asked for."""
    kept = PastRuns()
    for number, length in enumerate(lengths):
        kept.add(length, round(abs(length)), number)
        if asked(number):
            kept.steps()
    return kept


@given(st.integers(0, 300), st.lists(signed, min_size=1, max_size=20), st.integers(1, 9), st.integers(0, 120))
def test_a_distribution_that_is_kept_up_to_date_equals_one_that_is_computed_at_once(
    count: int, last: list[float], every: int, since: int
) -> None:
    rng = random.Random(count)
    lengths = [*(float(rng.randint(1, 300)) for _ in range(count)), *last]
    kept = past_runs(lengths, lambda number: number % every == 0)
    assert kept.steps() == past_runs(lengths).steps()
    # The same of those that were known at a time.
    known = lengths[: max(1, len(lengths) - since)]
    assert kept.ordered(kept.known(len(known) - 1)) == past_runs(known).ordered(len(known))


def mixture_of(drawn: list[tuple[float, float, list[float]]]) -> RunMixture:
    """The mixture of classes, each with a weight, a factor and its runs."""
    total = sum(weight for weight, _, _ in drawn)
    return RunMixture(tuple((weight / total, factor, past_runs(runs).steps()) for weight, factor, runs in drawn))


@given(
    st.lists(
        st.tuples(
            st.floats(0.05, 1.0), st.sampled_from([1.0, 3600.0]), st.lists(signed, min_size=1, max_size=70)
        ),
        min_size=1, max_size=4,
    ),
    st.just(0.0) | shares,
)  # fmt: skip
def test_a_quantile_of_a_mixture_is_the_first_step_that_leaves_no_larger_share(
    drawn: list[tuple[float, float, list[float]]], share: float
) -> None:
    """[RT10]"""
    mixture = mixture_of(drawn)
    found = mixture.quantile(share)
    longest = max(factor * steps.longest for _, factor, steps in mixture.parts)
    every = sorted(time * factor for _, factor, steps in mixture.parts for time in steps.times)
    fallen = [time for time in every if mixture.survival(time) <= 1.0 - share + 1e-12]
    if fallen:
        assert found == fallen[0]
    else:
        assert found >= longest


@given(
    st.lists(
        st.tuples(
            st.floats(0.05, 1.0), st.sampled_from([1.0, 3600.0]), st.lists(signed, min_size=1, max_size=70)
        ),
        min_size=1, max_size=4,
    ),
    st.floats(0.001, 0.999),
    st.integers(1, 400),
)  # fmt: skip
def test_a_quantile_of_a_run_that_has_lasted_is_the_first_length_that_leaves_no_larger_share(
    drawn: list[tuple[float, float, list[float]]], share: float, elapsed: int
) -> None:
    """[RT7], [RT10]: to a part in 100,000, or a tenth of a second."""
    lasting = mixture_of(drawn).lasting(float(elapsed))
    found = lasting.quantile(share)
    assert found > elapsed
    assert lasting.survival(found * (1 + 1e-9)) <= 1.0 - share + 1e-9
    before = found * (1 - 1e-4) - 0.2
    assert before <= elapsed or lasting.survival(before) > 1.0 - share - 1e-9


@given(st.integers(1, 10**6), st.integers(5, 64), shares, st.floats(0.0, 0.999))
def test_a_run_that_has_outlasted_no_example_ends_with_them(length: int, count: int, share: float, part: float) -> None:
    """[RT7], [RT-L6]: after runs of one length, every quantile is that length until it has passed."""
    mixture = RunMixture(((1.0, 1.0, past_runs([float(length)] * count).steps()),))
    assert mixture.quantile(share, part * length) == length


@given(st.integers(2, 128), st.data())
def test_the_chance_to_outlast_all_examples_grows_as_they_become_fewer(count: int, data: st.DataObject) -> None:
    """[RT7]: after all but k of n examples it is 1 / (k + 1), less the part by which it is 0 if none was outlasted."""
    mixture = RunMixture(((1.0, 1.0, past_runs([float(each) for each in range(1, count + 1)]).steps()),))
    left = data.draw(st.integers(1, count - 1))
    elapsed = count - left + 0.5
    chance = (count - left) / ((left + 1) * count)
    lasting = mixture.lasting(elapsed)
    # Of a run without an example, elapsed / t is longer than t.
    for length in (count, 2.0 * count, 100.0 * count):
        assert abs(lasting.survival(length) - chance * elapsed / length) < 1e-9


@given(histories(), st.lists(st.tuples(records(), st.integers(0, 200_000)), max_size=20), records(), shares)
def test_runs_that_have_not_ended_make_no_estimate_shorter(
    past: list[WorkloadRecord], open_runs: list[tuple[WorkloadRecord, int]], wanted: WorkloadRecord, share: float
) -> None:
    """[RT-L9]"""
    times = learned(past)
    before = times.snapshot()
    one, other = times.estimate(wanted), times.estimate(wanted, times.open_runs(open_runs, START + 400_000))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert other.quantile(share) >= one.quantile(share)
        assert other.source == one.source
    assert times.snapshot() == before


# Lengths, negative for bounds, each with the part of it that a run does not count for.
delayed = st.tuples(signed, st.sampled_from([0.0, 0.0, 0.5, 0.9, 1.0])).map(lambda run: (run[0], abs(run[0]) * run[1]))


@given(st.lists(signed, min_size=1, max_size=70))
def test_runs_that_count_from_their_beginning_on_have_the_product_limit_estimate(lengths: list[float]) -> None:
    """[RT6]"""
    found = delayed_steps([(length, 0.0) for length in lengths])
    usual = RunDistribution(tuple(Run(abs(each), each < 0) for each in lengths))
    assert found.times == sorted(each for each in lengths if each > 0)
    assert found.longest == max(map(abs, lengths))
    last = dict(zip(found.times, found.shares, strict=True))
    assert all(abs(share - usual.survival(time)) < 1e-9 for time, share in last.items())


@given(st.lists(delayed, min_size=1, max_size=70))
def test_the_share_of_longer_runs_falls_at_each_end_of_a_run(runs: list[tuple[float, float]]) -> None:
    """[RT6]: to 0 only where the longest of all ends."""
    found = delayed_steps(runs)
    falls = list(itertools.pairwise([1.0, *found.shares]))
    assert all(before > after >= 0.0 for before, after in falls)
    longest = max(abs(length) for length, _ in runs)
    assert [time for time, share in zip(found.times, found.shares, strict=True) if share == 0.0] in ([], [longest])


def share_left(runs: list[tuple[float, float]], elapsed: float, length: float) -> float:
    """Of the runs that are longer than `elapsed` the share that is longer than a length, by the rule: run by run."""

    def counting(at: float, *, is_end: bool) -> int:
        return sum(
            entry <= at and (abs(run) > at or (is_end and abs(run) == at)) for run, entry in runs
        )  # fmt: skip

    shorter = sum(abs(run) <= elapsed for run, _ in runs)
    unseen = max(shorter, 1e-15) / (shorter + counting(elapsed, is_end=False) + 1) * elapsed
    places = sorted({abs(run) for run, _ in runs} | {entry for _, entry in runs})
    share, last = 1.0, elapsed
    for place in [each for each in places if elapsed < each <= length]:
        # As many as count between the two, and at the second one until its runs have ended.
        between = counting(last, is_end=False)
        share *= (between + unseen / place) / (between + unseen / last)
        left = counting(place, is_end=True)
        for _ in range(runs_that_end(runs, place)):
            share *= (left - 1 + unseen / place) / (left + unseen / place)
            left -= 1
        last = place
    between = counting(last, is_end=False)
    return share * (between + unseen / length) / (between + unseen / last)


def runs_that_end(runs: list[tuple[float, float]], at: float) -> int:
    return sum(run == at for run, _ in runs)


@given(st.lists(delayed, min_size=1, max_size=40), st.integers(1, 300), st.integers(1, 600))
def test_a_run_that_has_lasted_is_compared_at_each_length_with_the_runs_that_count_there(
    runs: list[tuple[float, float]], elapsed: int, beyond: int
) -> None:
    """[RT7], [RT6]"""
    steps = delayed_steps(runs)
    if elapsed < steps.longest and steps.shares and RunMixture(((1.0, 1.0, steps),)).survival(elapsed) > 0:
        lasting = RunMixture(((1.0, 1.0, steps),)).lasting(float(elapsed))
        length = (elapsed + beyond) * (1 + 1e-9)
        assert abs(lasting.survival(length) - share_left(runs, elapsed * (1 + 1e-12), length)) < 1e-6


@given(st.lists(delayed, min_size=1, max_size=40), st.integers(1, 300), st.floats(1.01, 5.0), st.floats(1.01, 5.0))
def test_the_share_of_a_run_that_has_lasted_does_not_grow(
    runs: list[tuple[float, float]], elapsed: int, one: float, other: float
) -> None:
    """[RT-L5]"""
    lasting = RunMixture(((1.0, 1.0, delayed_steps(runs)),)).lasting(float(elapsed))
    low, high = sorted((one, other))
    left = [lasting.survival(elapsed * part) for part in (1.0, low, high)]
    assert 1.0 + 1e-9 >= left[0] >= left[1] - 1e-9 >= left[2] - 2e-9 >= -1e-9


@given(st.lists(delayed, min_size=1, max_size=70), signed, st.integers(0, 300))
def test_a_run_changes_nothing_up_to_the_length_that_it_counts_from(
    runs: list[tuple[float, float]], length: float, part: int
) -> None:
    """[RT6]: but that the longest of all ends with no longer one known."""
    entry = abs(length) * part / 300
    one, other = delayed_steps(runs), delayed_steps([*runs, (length, entry)])
    unchanged = [time for time in one.times if time < entry and time < one.longest]
    assert other.times[: len(unchanged)] == unchanged
    assert other.shares[: len(unchanged)] == one.shares[: len(unchanged)]


@given(st.lists(delayed, min_size=1, max_size=70), st.integers(1, 300), st.integers(0, 300))
def test_a_run_that_has_not_ended_makes_no_length_less_likely(
    runs: list[tuple[float, float]], lasted: int, part: int
) -> None:
    """[RT-L9]"""
    one, other = delayed_steps(runs), delayed_steps([*runs, (-float(lasted), lasted * part / 300)])
    assert other.times == one.times
    assert all(after >= before for before, after in zip(one.shares, other.shares, strict=True))


@given(st.integers(50, 500), st.integers(2, 10), st.integers(0, 50))
def test_short_runs_and_long_ones_that_began_before_them_have_their_shares(long: int, every: int, phase: int) -> None:
    """[RT-L11]: a class keeps the runs of a few minutes, and some take more than an hour. Runs that end are a fair sample
    by themselves: with all that have not ended as whole examples, long ones would seem up to three times as many."""
    kept, now = PastRuns(), 4000 + phase
    lengths = {begin: 10 * long if begin % every == 0 else 5 for begin in range(now)}
    for end, begin in sorted((begin + length, begin) for begin, length in lengths.items()):
        if end <= now:
            kept.add(float(lengths[begin]), lengths[begin], end)
    running = OpenRuns(now)
    for begin, length in lengths.items():
        if begin + length > now:
            running.add(kept, float(now - begin), began=begin)
    found = RunMixture(((1.0, 1.0, running.steps(kept)),))
    assert abs(found.survival(5.0) - 1 / every) < 0.05
    assert found.quantile(1.0 - 0.5 / every) > 5.0


@given(st.lists(st.integers(-9, 9).filter(bool).map(float), min_size=1, max_size=70), st.integers(1, 10))
def test_the_level_of_a_length_is_the_share_of_the_runs_that_are_shorter(lengths: list[float], length: int) -> None:
    """[RT6], [RT11]: among equal lengths, from the first to the last of them."""
    survival = RunDistribution(tuple(Run(abs(each), each < 0) for each in lengths)).survival
    ordered = past_runs(lengths).ordered(len(lengths))
    assert abs(level_of(ordered, float(length), 0.0) - (1.0 - survival(length - 0.5))) < 1e-9
    assert abs(level_of(ordered, float(length), 1.0) - (1.0 - survival(length))) < 1e-9


# --- Correlation ------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.sampled_from([0.0, 0.3, 0.6]), st.integers(0, 2**32), st.booleans())
def test_the_correlation_of_runs_that_were_submitted_together_is_found(
    correlation: float, seed: int, is_sorted: bool
) -> None:
    """[RT12], [RT-L10]: in whatever order they end."""
    rng, found = random.Random(seed), LevelCorrelation()
    for batch in range(400):
        common = rng.random()
        levels = [correlated(rng.random(), common, correlation) for _ in range(rng.randint(1, 12))]
        for level in sorted(levels) if is_sorted else levels:
            found.learn(("same", "ana"), batch * 3600, level)
    assert abs(found.value - correlation) < 0.15


@given(st.lists(st.floats(0.0, 1.0), max_size=200))
def test_without_runs_that_were_submitted_together_there_is_no_correlation(levels: list[float]) -> None:
    """[RT-L10]"""
    found = LevelCorrelation()
    for number, level in enumerate(levels):
        found.learn(("same", str(number % 3)), number * 3600, level)
    assert found.value == 0.0


def test_batches_of_long_ago_are_forgotten() -> None:
    """[RT12]"""
    rng, found = random.Random(5), LevelCorrelation()
    for batch in range(6000):
        common = rng.random()
        for _ in range(3):
            found.learn(("same", "ana"), batch * 3600, common if batch < 1500 else rng.random())
    assert found.value < 0.05


# --- Levels -----------------------------------------------------------------------------------------------------------

levels = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=200)


def shift_after(seen: list[tuple[float, bool]]) -> LevelShift:
    shift = LevelShift()
    for level, is_bound in seen:
        shift = shift.learned(level, is_bound=is_bound)
    return shift


@given(st.floats(0.0, 1.0))
def test_without_evidence_no_level_is_shifted(share: float) -> None:
    """[RT-L7]"""
    assert abs(LevelShift().shifted(share) - share) < 1e-9


@given(levels, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_shifted_levels_keep_their_order_and_can_be_undone(
    seen: list[tuple[float, bool]], one: float, other: float
) -> None:
    """[RT-L5]"""
    shift = shift_after(seen)
    low, high = sorted((one, other))
    assert 0.0 <= shift.shifted(low) <= shift.shifted(high) <= 1.0
    if 0.01 < one < 0.99:
        assert abs(shift.covered(shift.shifted(one)) - one) < 1e-6


@given(st.integers(1, 400))
def test_without_a_limit_levels_are_shifted_less(count: int) -> None:
    """[RT11]: of runs that exceed every example, the P90 stays below a level of 0.94, and levels keep their order."""
    shift = shift_after([(1.0, False)] * count).within(0.5)
    assert 0.9 < shift.shifted(0.9) < 0.94
    assert shift.shifted(0.1) < shift.shifted(0.5) < shift.shifted(0.9)


@given(levels)
def test_a_run_that_was_evicted_at_once_shifts_no_level(seen: list[tuple[float, bool]]) -> None:
    """[RT11]: nothing is known of its length."""
    shift = shift_after(seen)
    for before, after in zip(shift.knots, shift.learned(0.0, is_bound=True).knots, strict=True):
        assert abs(before - after) < 1e-9


@given(st.lists(st.floats(1.0, 10.0), min_size=1, max_size=3), st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_levels_are_shifted_until_they_cover_their_share(powers: list[float], seed: int) -> None:
    """[RT-L8]: of runs whose levels are anything but evenly spread, nine of ten are below the shifted level of 0.9."""
    rng, shift, below = random.Random(seed), LevelShift(), 0
    for number in range(6000):
        level = rng.random() ** (1.0 / powers[number % len(powers)])
        below += number >= 2000 and level < shift.shifted(0.9)
        shift = shift.learned(level, is_bound=False)
    assert 0.88 <= below / 4000 <= 0.92


def coverage(jobs: int, seconds: Callable[[int], float]) -> tuple[float, float]:
    """The shares of the jobs of one program, in the second half, that ran no longer than their P50 and their P90 when
    they were submitted."""
    times = RunTimes()
    running: list[tuple[int, int, WorkloadRecord]] = []
    covered = [0, 0]
    for number in range(jobs):
        now = START + 600 * number
        while running and running[0][0] <= now:
            times.learn(heapq.heappop(running)[2])
        ran = max(1, round(seconds(number)))
        attempt = Attempt(now, "cq", now, now, now + ran, "Finished")
        record = WorkloadRecord(
            uid=str(number), namespace="ns", name="w", job_name="train", queue="one", user="ana", submitted=now,
            outcome=Outcome.SUCCEEDED, limit_seconds=10**6, attempts=(attempt,),
        )  # fmt: skip
        estimate = times.estimate(record)
        assert estimate is not None
        if number >= jobs // 2:
            for place, share in enumerate((0.5, 0.9)):
                covered[place] += ran <= estimate.quantile(share)
        heapq.heappush(running, (now + ran, number, record))
    return covered[0] / (jobs - jobs // 2), covered[1] / (jobs - jobs // 2)


@given(st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_quantiles_cover_their_shares_after_jobs_became_three_times_longer(seed: int) -> None:
    """[RT-L8]"""
    rng = random.Random(seed)
    p50, p90 = coverage(1200, lambda number: rng.lognormvariate(6, 0.5) * (3 if number >= 600 else 1))
    assert 0.4 <= p50 <= 0.6
    assert 0.84 <= p90 <= 0.95


@given(st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_quantiles_cover_their_shares_while_jobs_become_longer_and_longer(seed: int) -> None:
    """[RT-L8]: the last runs are always shorter than the next one, which only a shift of levels can make good."""
    rng = random.Random(seed)
    p50, p90 = coverage(1600, lambda number: 20 * 1.004**number * rng.lognormvariate(0, 0.2))
    assert 0.4 <= p50 <= 0.6
    assert 0.85 <= p90 <= 0.95
