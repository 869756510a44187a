"""Corrections of forecasts: what they learn from starts, and from Workloads that still wait [FC3]."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.meta import HOUR, MINUTE, SECOND
from pykueue.projection import calibration
from pykueue.projection.calibration import (
    CORRECTION_MAX,
    CORRECTION_MIN,
    MOMENT_MAX,
    NO_CORRECTION,
    SIZE_SCORES,
    WINDOW,
    CalibrationWindow,
    OpenForecast,
    SizeClass,
    counting_for_p90,
    size_class,
)

NOW = 1_800_000_000 * SECOND
durations = st.integers(min_value=0, max_value=30 * 24 * HOUR)


def forecast(number: int, distance: int = HOUR) -> OpenForecast:
    """A forecast that was made in the given minute, with a P90 of twice its P50."""
    return OpenForecast(NOW + number * MINUTE, distance, 2 * distance)


def after(waits: list[int], waiting: list[OpenForecast] | None = None, now: int = NOW) -> calibration.Correction:
    window = CalibrationWindow()
    for number, wait in enumerate(waits):
        made = forecast(number)
        window.add(made, made.made + wait)
    return window.correction(waiting or [], now)


@given(st.lists(durations, max_size=50), st.lists(durations, max_size=10))
def test_corrections_stay_within_their_bounds(waits: list[int], waiting: list[int]) -> None:
    found = after(waits, [OpenForecast(NOW - each, HOUR, 2 * HOUR) for each in waiting])
    assert all(CORRECTION_MIN <= each <= CORRECTION_MAX for each in found)


def test_without_a_start_there_is_no_correction() -> None:
    assert after([], [forecast(0)]) == NO_CORRECTION


def test_starts_at_the_forecast_time_need_no_correction() -> None:
    assert after([HOUR] * WINDOW).p50 == pytest.approx(0.0)
    assert after([2 * HOUR] * WINDOW).p90 == pytest.approx(0.0)


def test_a_corrected_distance_covers_nine_of_ten_starts() -> None:
    rng = random.Random(1)
    waits = [int(rng.expovariate(1.0) * 6 * HOUR) for _ in range(WINDOW)]
    shown = calibration.corrected_distance(2 * HOUR, after(waits).p90)
    assert 0.88 <= sum(wait <= shown for wait in waits) / WINDOW <= 0.93


def test_a_single_start_counts_little() -> None:
    assert after([0]).p90 == pytest.approx(after([0] * WINDOW).p90 / WINDOW)
    assert after([0]).p90 < 0


def test_forecasts_of_one_moment_count_as_one_for_p50() -> None:
    """They wait for the same ends."""
    window = CalibrationWindow()
    for _ in range(WINDOW):
        window.add(forecast(0), NOW + 20 * HOUR)
    assert window.correction([], NOW + 20 * HOUR).p50 == pytest.approx(after([20 * HOUR]).p50)


def test_early_starts_of_one_moment_count_as_one_for_p90() -> None:
    window = CalibrationWindow()
    for _ in range(WINDOW):
        window.add(forecast(0), NOW)
    assert window.correction([], NOW).p90 == pytest.approx(after([0]).p90)


@given(st.integers(min_value=0, max_value=2_000))
def test_at_most_twenty_forecasts_of_a_moment_count_for_p90_evenly_chosen(count: int) -> None:
    counting = sorted(counting_for_p90(count))
    assert len(counting) == min(count, MOMENT_MAX)
    assert set(counting) <= set(range(count))
    # As many are before the first as after the last, and as many between any two; but for one.
    gaps = [after - before for before, after in itertools.pairwise(counting)]
    assert not gaps or max(gaps) - min(gaps) <= 1
    if count > MOMENT_MAX:
        assert abs(counting[0] - (count - 1 - counting[-1])) <= 1
        assert abs(2 * counting[0] - gaps[0]) <= 2


def moments(*waits: list[int], limited: bool = True) -> CalibrationWindow:
    """Forecasts of several moments, an hour apart, with their waits; without the limit all of them count."""
    window = CalibrationWindow()
    for hour, together in enumerate(waits):
        counting = counting_for_p90(len(together))
        for number, wait in enumerate(together):
            made = NOW + hour * HOUR
            counts = number in counting or not limited
            window.add(OpenForecast(made, HOUR, 2 * HOUR, counts), made + wait)
    return window


def test_one_moment_does_not_fill_the_window_of_p90() -> None:
    """Nine moments of twenty late starts each, and one with many early ones."""
    window = moments(*[[20 * HOUR] * MOMENT_MAX] * 9, [0] * 3 * WINDOW)
    assert len(window.p90_scores) == WINDOW
    assert window.correction([], NOW).p90 == pytest.approx(calibration.score(20 * HOUR, 2 * HOUR))
    every = moments(*[[20 * HOUR] * MOMENT_MAX] * 9, [0] * 3 * WINDOW, limited=False)
    assert every.correction([], NOW).p90 < 0


def test_two_moments_count_for_p90_each() -> None:
    window = moments([HOUR] * 300, [2 * HOUR] * 300)
    assert [made for made, _ in window.p90_scores] == [NOW] * MOMENT_MAX + [NOW + HOUR] * MOMENT_MAX


def test_all_of_a_few_forecasts_of_a_moment_count() -> None:
    few = [number * HOUR for number in range(MOMENT_MAX)]
    assert moments(few, few).correction([], NOW) == moments(few, few, limited=False).correction([], NOW)


@given(st.lists(st.lists(durations, max_size=60), min_size=1, max_size=6), st.lists(durations, max_size=10))
def test_p50_does_not_depend_on_what_counts_for_p90(waits: list[list[int]], waiting: list[int]) -> None:
    open_ones = [OpenForecast(NOW - each, HOUR, 2 * HOUR, bool(number % 2)) for number, each in enumerate(waiting)]
    every = [OpenForecast(each.made, HOUR, 2 * HOUR) for each in open_ones]
    found = moments(*waits).correction(open_ones, NOW)
    assert found.p50 == moments(*waits, limited=False).correction(every, NOW).p50


def test_open_forecasts_that_do_not_count_bound_p50_alone() -> None:
    window = moments(*[[10 * MINUTE] * MOMENT_MAX] * 10)
    now = NOW + 30 * HOUR
    late = [OpenForecast(NOW + 10 * HOUR, HOUR, 2 * HOUR, False)] * 3 * WINDOW
    assert window.correction(late, now).p90 == window.correction([], now).p90
    assert window.correction(late, now).p50 > window.correction([], now).p50


def test_without_a_start_that_counts_p90_is_not_corrected() -> None:
    window = CalibrationWindow()
    window.add(OpenForecast(NOW, HOUR, 2 * HOUR, False), NOW + 20 * HOUR)
    found = window.correction([], NOW + 20 * HOUR)
    assert found.p50 > 0
    assert found.p90 == 0


def test_bad_days_count_less_for_p50_than_as_many_late_starts_at_all_times() -> None:
    """104 of 200 starts are ten times later than P50; the others are exactly then."""
    late, exact = 10 * HOUR + 9 * 5 * MINUTE, HOUR
    scattered = after([late if number % 25 < 13 else exact for number in range(WINDOW)])
    together = after([late if number < 104 else exact for number in range(WINDOW)])
    assert scattered.p50 == pytest.approx(math.log(10), rel=1e-4)
    # Without one of the first five parts the median would be zero: e² is 0.9 · 10 · 0.25 · a², and a / 3.25 is left.
    assert together.p50 == pytest.approx(math.log(10) / 3.25, rel=1e-4)
    # P90 is corrected as far, whenever they were.
    assert together.p90 == scattered.p90 > 1.0


def test_p90_is_made_earlier_only_as_far_as_it_is_sure() -> None:
    """Ten starts in ten parts of the time."""
    window = CalibrationWindow()
    for number in range(10):
        distance = HOUR
        wait = int((distance + 5 * MINUTE) * math.exp(-(number + 1) / 20)) - 5 * MINUTE
        window.add(OpenForecast(NOW + number * HOUR, distance, distance), NOW + number * HOUR + wait)
    # P90 of ten scores is the highest one, -0.05, and without it -0.1.
    error = math.sqrt(0.9 * (0.9**2 + 9 * 0.1**2)) * 0.05
    assert window.correction([], NOW + 10 * HOUR).p90 == pytest.approx((error - 0.05) * 10 / WINDOW, rel=1e-3)
    # Early starts at all times.
    assert after([HOUR] * WINDOW).p90 == pytest.approx(math.log(65 / 125))


@given(st.lists(durations, min_size=2, max_size=50), st.lists(durations, max_size=10))
def test_a_correction_is_the_quantile_or_a_part_of_it(waits: list[int], waiting: list[int]) -> None:
    """That of P50 is reduced by what single parts of the time contribute, and never points the other way."""
    window = CalibrationWindow()
    for number, wait in enumerate(waits):
        window.add(forecast(number), NOW + number * MINUTE + wait)
    open_ones = [OpenForecast(NOW - each, HOUR, 2 * HOUR) for each in waiting]
    bounds = [each.score(NOW) for each in open_ones]
    known = [each for _, each in window.scores]
    p50 = product_limit([each.p50 for each in known], [each.p50 for each in bounds], 0.5) * len(waits) / WINDOW
    p90 = product_limit([each.p90 for each in known], [each.p90 for each in bounds], 0.9) * len(waits) / WINDOW
    found = window.correction(open_ones, NOW)
    # Of P90 only what makes it earlier is reduced.
    assert found.p90 == pytest.approx(p90) if p90 >= 0.0 else p90 - 1e-12 <= found.p90 <= 0.0
    assert abs(found.p50) <= abs(p50) + 1e-12
    assert found.p50 * p50 >= 0.0


def product_limit(known: list[float], bounds: list[float], target: float) -> float:
    """The quantile by its definition: at each known score, the share that is left of those that reached it."""
    survived = 1.0
    for value in sorted(set(known)):
        reached = sum(each >= value for each in (*known, *bounds))
        equal = known.count(value)
        survived *= (reached - equal) / reached
        if survived <= 1.0 - min(target * (len(known) + 1) / len(known), 1.0) + 1e-12:
            return min(max(value, CORRECTION_MIN), CORRECTION_MAX)
    return min(max(*known, *bounds, CORRECTION_MIN), CORRECTION_MAX)


def test_the_standard_error_is_that_of_the_jackknife() -> None:
    """Ten starts in ten parts of the time: the medians without each of them, by hand."""
    window = CalibrationWindow()
    scores = [-0.5, 0.1, 0.9, 0.3, 0.7, -0.2, 0.4, 0.6, 0.2, 0.8]
    for number, each in enumerate(scores):
        distance = HOUR
        wait = int((distance + 5 * MINUTE) * math.exp(each)) - 5 * MINUTE
        window.add(OpenForecast(NOW + number * HOUR, distance, distance), NOW + number * HOUR + wait)
    # Of ten scores number 6 (0.5 times 11, rounded up), 0.4; without one of them number 5 of nine: 0.4 without one of
    # the five lowest, else 0.3.
    error_squared = 0.9 * sum((each - 0.35) ** 2 for each in [0.4] * 5 + [0.3] * 5)
    expected = 0.4**3 / (0.4**2 + error_squared) * 10 / WINDOW
    assert window.correction([], NOW + 10 * HOUR).p50 == pytest.approx(expected, rel=1e-3)


def test_the_last_forecasts_count() -> None:
    assert after([20 * HOUR] * WINDOW + [2 * HOUR] * WINDOW).p90 == pytest.approx(0.0)


def test_workloads_that_still_wait_raise_the_correction() -> None:
    """Half of the forecasts had an early start. The others are late already, and are not scored yet."""
    started = [10 * MINUTE] * WINDOW
    late = [OpenForecast(NOW, HOUR, 2 * HOUR)] * WINDOW
    now = NOW + 10 * HOUR
    assert after(started).p90 < -0.9
    assert after(started, late, now).p90 == pytest.approx(calibration.score(10 * HOUR, 2 * HOUR))


def test_workloads_that_were_forecast_just_now_change_nothing() -> None:
    started = [2 * HOUR] * 100
    fresh = [OpenForecast(NOW, HOUR, 2 * HOUR)] * 100
    assert after(started, fresh, NOW + SECOND).p90 == pytest.approx(0.0)


def test_a_distance_of_zero_can_be_corrected() -> None:
    assert calibration.corrected_distance(0, calibration.score(HOUR, 0)) == pytest.approx(HOUR, rel=1e-9)


@given(durations, st.floats(min_value=CORRECTION_MIN, max_value=CORRECTION_MAX))
def test_a_corrected_distance_is_never_negative(distance: int, by: float) -> None:
    assert calibration.corrected_distance(distance, by) >= 0


# --- Size classes -----------------------------------------------------------------------------------------------------

# A wait that the P90 of `of_size` is right for, and one that is much longer.
ON_TIME, LATE = 2 * HOUR, 20 * HOUR


def of_size(number: int, size: SizeClass | None) -> OpenForecast:
    return OpenForecast(NOW + number * MINUTE, HOUR, 2 * HOUR, size=size)


def sized(*forecasts: tuple[SizeClass | None, int]) -> CalibrationWindow:
    """Forecasts of Workloads of size classes, with their waits."""
    window = CalibrationWindow()
    for number, (size, wait) in enumerate(forecasts):
        made = of_size(number, size)
        window.add(made, made.made + wait)
    return window


SMALL_ON_TIME, BIG_LATE = (SizeClass.SMALL, ON_TIME), (SizeClass.BIG, LATE)


def test_an_eighth_of_the_quota_is_big() -> None:
    assert size_class(0.125) is SizeClass.BIG
    assert size_class(0.124) is SizeClass.SMALL


def test_p90_of_a_size_class_is_moved_towards_its_own_scores() -> None:
    window = sized(*[SMALL_ON_TIME, BIG_LATE] * WINDOW)
    late = calibration.score(LATE, 2 * HOUR)
    assert window.correction([], NOW).p90 == pytest.approx(late)
    assert window.correction([], NOW, SizeClass.BIG).p90 == pytest.approx(late)
    # Of 200 scores of its own, which are 0, half of the difference counts.
    assert window.correction([], NOW, SizeClass.SMALL).p90 == pytest.approx(late / 2)
    few = sized(*[BIG_LATE] * WINDOW, *[SMALL_ON_TIME] * 10)
    expected = late * (1 - 10 / (10 + SIZE_SCORES))
    assert few.correction([], NOW, SizeClass.SMALL).p90 == pytest.approx(expected)


def test_p50_is_that_of_the_cluster_queue_for_each_size_class() -> None:
    window = sized(*[SMALL_ON_TIME, BIG_LATE] * WINDOW)
    assert len({window.correction([], NOW, size).p50 for size in (None, *SizeClass)}) == 1


def test_a_size_class_without_scores_has_the_correction_of_the_cluster_queue() -> None:
    window = sized(*[BIG_LATE] * WINDOW)
    assert window.correction([], NOW, SizeClass.SMALL) == window.correction([], NOW)


def test_a_forecast_without_a_size_class_counts_for_the_cluster_queue_alone() -> None:
    window = sized(*[(None, LATE)] * WINDOW, *[SMALL_ON_TIME] * 20)
    without = sized(*[SMALL_ON_TIME] * 20)
    assert window.size_scores[SizeClass.SMALL] == [
        (made + WINDOW * MINUTE, score) for made, score in without.size_scores[SizeClass.SMALL]
    ]
    assert set(window.size_scores) == {SizeClass.SMALL}
    assert window.correction([], NOW).p90 > 0


def test_the_last_scores_of_a_size_class_count_also_behind_those_of_the_other() -> None:
    window = sized(*[SMALL_ON_TIME] * 2 * WINDOW, *[BIG_LATE] * WINDOW)
    assert [len(window.size_scores[size]) for size in SizeClass] == [WINDOW, WINDOW]
    late = calibration.score(LATE, 2 * HOUR)
    assert window.correction([], NOW).p90 == pytest.approx(late)
    assert window.correction([], NOW, SizeClass.SMALL).p90 == pytest.approx(late / 2)


def test_what_waits_of_the_other_size_class_does_not_raise_the_scores_of_a_class() -> None:
    window = sized(*[SMALL_ON_TIME, (SizeClass.BIG, ON_TIME)] * WINDOW)
    now = NOW + 40 * HOUR
    waiting = [of_size(2 * WINDOW - 1, SizeClass.BIG)] * WINDOW
    whole = window.correction(waiting, now).p90
    assert whole > 1
    assert window.correction(waiting, now, SizeClass.BIG).p90 > whole / 2
    assert window.correction(waiting, now, SizeClass.SMALL).p90 == pytest.approx(whole / 2)


def test_forecasts_that_do_not_count_for_p90_do_not_count_for_a_size_class() -> None:
    window = CalibrationWindow()
    window.add(OpenForecast(NOW, HOUR, 2 * HOUR, counts_for_p90=False, size=SizeClass.BIG), NOW + LATE)
    assert window.size_scores == {}


def test_joined_windows_have_the_last_scores_of_each_size_class() -> None:
    first, later = sized(*[BIG_LATE] * WINDOW, SMALL_ON_TIME), sized(*[SMALL_ON_TIME] * 2, BIG_LATE)
    both = first.joined(later)
    assert [len(both.size_scores[size]) for size in SizeClass] == [3, WINDOW]
    assert (
        sized(BIG_LATE).joined(CalibrationWindow()).size_scores[SizeClass.BIG]
        == sized(BIG_LATE).size_scores[SizeClass.BIG]
    )
