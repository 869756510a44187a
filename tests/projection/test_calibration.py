"""Corrections of forecasts: what they learn from starts, and from Workloads that still wait [FC3]."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.meta import HOUR, MINUTE, SECOND
from pykueue.projection import calibration
from pykueue.projection.calibration import (
    CORRECTION_MAX,
    CORRECTION_MIN,
    NO_CORRECTION,
    WINDOW,
    CalibrationWindow,
    OpenForecast,
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
