"""Quantiles, corrections and words of forecasts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.meta import HOUR, SECOND
from pykueue.projection import forecast, words
from pykueue.projection.calibration import CORRECTION_MAX, CORRECTION_MIN, Correction
from pykueue.projection.forecast import StartForecast

NOW = 1_800_000_000 * SECOND
leads = st.integers(min_value=0, max_value=6 * 24 * HOUR)
values = st.floats(min_value=CORRECTION_MIN, max_value=CORRECTION_MAX)


@given(leads, leads, values, values)
def test_p50_is_never_later_than_p90(one: int, other: int, p50: float, p90: float) -> None:  # [FC-L1]
    early, late = sorted((one, other))
    item = StartForecast("ns/w", p50=NOW + early, p90=NOW + late)
    shown = forecast.corrected(item, Correction(p50, p90), NOW, forecast.HORIZON)
    assert shown.p50 is not None
    assert shown.p90 is None or shown.p50 <= shown.p90
    assert shown.p90 is not None or shown.p90_is_beyond


@given(leads, leads, leads)
def test_a_planned_start_bounds_p50_and_p90(one: int, other: int, planned: int) -> None:  # [FC8]
    early, late = sorted((one, other))
    shown = forecast.bounded(StartForecast("ns/w", p50=NOW + early, p90=NOW + late), NOW + planned)
    assert shown.p50 == NOW + min(early, planned)
    assert shown.p90 == NOW + min(late, planned)


def test_a_planned_start_replaces_a_start_beyond_the_horizon() -> None:  # [FC8]
    item = StartForecast("ns/w", p50_is_beyond=True, p90_is_beyond=True)
    shown = forecast.bounded(item, NOW + HOUR)
    assert (shown.p50, shown.p90, shown.p50_is_beyond, shown.p90_is_beyond) == (NOW + HOUR, NOW + HOUR, False, False)


@pytest.mark.parametrize(
    ("distance", "shown"),
    [
        (timedelta(minutes=12, seconds=10), "09:13"),
        (timedelta(hours=2, minutes=1), "11:05"),
        (timedelta(hours=6, minutes=1), "15:15"),
        (timedelta(hours=20), "Tue 05:00"),
        (timedelta(days=3), "Thursday"),
    ],
)
def test_times_are_rounded_by_their_distance(distance: timedelta, shown: str) -> None:  # [FC5]
    now = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
    assert words.rounded(now + distance, now) == shown
