"""After 300 scored forecasts the corrected quantiles cover as they should, whatever the model gets wrong [FC-L6]; the
correction of a size class is between that of its ClusterQueue and its own [FC-L7].

The world is one server with a queue in the order of arrival, so that waits are a simple sum. The model counts the jobs
ahead and takes run times that are wrong by a factor. A forecast is scored only when its job starts, as in a manager.
"""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.meta import HOUR, MINUTE, SECOND
from pykueue.projection import calibration
from pykueue.projection.calibration import WINDOW, CalibrationWindow, OpenForecast, SizeClass

MEAN, SPREAD = 600.0, 0.7  # seconds; sigma of the logarithm
JOBS, LEARNING = 1200, 300


def deviation() -> float:
    return MEAN * math.sqrt(math.exp(SPREAD**2) - 1.0)


def coverage(load: float, factor: float, seed: int) -> tuple[float, float]:
    """The shares of starts that are not later than P50 and P90, after the first forecasts."""
    rng = random.Random(seed)
    # The size classes do not differ in their waits.
    sizes = random.Random(seed + 1)
    window, waiting = CalibrationWindow(), list[tuple[int, int, OpenForecast]]()
    covered50 = covered90 = counted = 0
    now, free = 0.0, 0.0
    starts: list[float] = []
    number = 0
    while number < JOBS:
        now += rng.expovariate(load / MEAN)
        at = int(now * SECOND)
        while waiting and waiting[0][0] <= at:
            started, _, found = heapq.heappop(waiting)
            window.add(found, started)
        ahead = sum(start > now for start in starts[-400:]) + (1 if free > now else 0)
        start = max(now, free)
        free = start + rng.lognormvariate(math.log(MEAN) - SPREAD**2 / 2, SPREAD)
        starts.append(start)
        if start == now:
            continue  # it is not pending, and is not forecast
        p50 = int(factor * ahead * MEAN * SECOND)
        p90 = int(factor * (ahead * MEAN + 1.28 * deviation() * math.sqrt(ahead)) * SECOND)
        size = sizes.choice((SizeClass.SMALL, SizeClass.SMALL, SizeClass.BIG))
        by = window.correction((each for _, _, each in waiting), at, size)
        wait = int(start * SECOND) - at
        if number >= LEARNING:
            counted += 1
            covered50 += wait <= calibration.corrected_distance(p50, by.p50)
            covered90 += wait <= calibration.corrected_distance(p90, by.p90)
        heapq.heappush(waiting, (at + wait, number, OpenForecast(at, p50, p90, size=size)))
        number += 1
    return covered50 / counted, covered90 / counted


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("load", [0.8, 0.9, 0.95])
def test_corrected_quantiles_cover_as_many_starts_as_they_should(load: float, factor: float) -> None:
    p50, p90 = coverage(load, factor, seed=4)
    assert 0.40 <= p50 <= 0.60
    assert 0.85 <= p90 <= 0.95


waits = st.tuples(st.sampled_from(SizeClass), st.integers(min_value=0, max_value=40 * HOUR))


@given(st.lists(waits, min_size=1, max_size=60), st.sampled_from(SizeClass))
def test_the_correction_of_a_size_class_is_between_that_of_its_cluster_queue_and_its_own(
    found: list[tuple[SizeClass, int]], size: SizeClass
) -> None:
    window, alone = CalibrationWindow(), CalibrationWindow()
    for number, (each, wait) in enumerate(found):
        made = OpenForecast(number * MINUTE, HOUR, 2 * HOUR, size=each)
        window.add(made, made.made + wait)
        if each is size:
            alone.add(made, made.made + wait)
    whole, of_class = window.correction([], 0).p90, window.correction([], 0, size).p90
    count = len(alone.scores)
    # Its own, reduced for few scores as that of the ClusterQueue is, and not as if there were no others.
    own = alone.correction([], 0).p90 / (count / WINDOW) * (len(found) / WINDOW) if count else whole
    assert min(whole, own) - 1e-9 <= of_class <= max(whole, own) + 1e-9
