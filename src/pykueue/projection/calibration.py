"""The correction of forecasts by the starts of Workloads that were forecast before [FC3].

A *score* compares a start with the forecast before its correction: the logarithm of the wait, divided by the distance
of the quantile; both with an allowance, so that a distance of zero can be corrected too. If 90 % of the scores of P90
are not above a, then distances that are multiplied by exp(a) cover 90 % of the starts. So the correction is a quantile
of the last scores.

Two things would make that quantile too small, and forecasts worse than without a correction. A Workload that starts
early is scored early, while others that were forecast at the same time still wait: so those count as well, with a
score of which only a lower bound is known (the product-limit estimate). And a score must not depend on the correction
that was in force: when it changes, the forecasts of which the result is not known yet must not count twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Final, NamedTuple

import msgspec

from kubemachinery.meta import MINUTE, Nanoseconds

# How many forecasts of a ClusterQueue count: the last ones. With fewer scores, the correction is reduced in proportion:
# forecasts that are made one after another share their long waits, and prove less than as many independent ones.
WINDOW: Final = 200
ALLOWANCE: Final = 5 * MINUTE
CORRECTION_MIN: Final = -1.0
CORRECTION_MAX: Final = 3.0


class Correction(NamedTuple):
    """The logarithms by which the distances of P50 and P90 of a ClusterQueue are multiplied [FC3]."""

    p50: float = 0.0
    p90: float = 0.0


NO_CORRECTION: Final = Correction()


class ForecastScore(NamedTuple):
    """How late a Workload started, compared with P50 and P90 before their correction; 0: exactly then."""

    p50: float
    p90: float


def corrected_distance(distance: Nanoseconds, by: float) -> Nanoseconds:
    """A distance after its correction; never negative."""
    return max(0, int((distance + ALLOWANCE) * exp(by)) - ALLOWANCE)


def score(wait: Nanoseconds, distance: Nanoseconds) -> float:
    """The correction that would have made a distance equal to the wait."""
    return log((wait + ALLOWANCE) / (distance + ALLOWANCE))


class OpenForecast(msgspec.Struct, frozen=True):
    """A forecast whose Workload has not started: when it was made, and its distances before the correction."""

    made: Nanoseconds
    p50: Nanoseconds
    p90: Nanoseconds

    def score(self, at: Nanoseconds) -> ForecastScore:
        """The score of a start at a time; for a Workload that still waits then, the lower bound of its score."""
        wait = max(0, at - self.made)
        return ForecastScore(score(wait, self.p50), score(wait, self.p90))


class CalibrationWindow(msgspec.Struct):
    """The last forecasts of one ClusterQueue: those that were scored, and those that are open."""

    # In the order in which the forecasts were made, with the time of each.
    scores: list[tuple[Nanoseconds, ForecastScore]] = msgspec.field(default_factory=list)

    def add(self, forecast: OpenForecast, started: Nanoseconds) -> None:
        """Score a forecast whose Workload has started."""
        self.scores.append((forecast.made, forecast.score(started)))
        self.scores.sort(key=lambda each: each[0])
        del self.scores[:-WINDOW]

    def correction(self, waiting: Iterable[OpenForecast], now: Nanoseconds) -> Correction:
        """The correction after the scores, and after the waits of forecasts that are still open."""
        if not self.scores:
            return NO_CORRECTION
        first = self.scores[0][0] if len(self.scores) == WINDOW else 0
        bounds = [each.score(now) for each in waiting if each.made >= first]
        known = [each for _, each in self.scores]
        share = len(known) / WINDOW
        return Correction(
            share * _quantile([each.p50 for each in known], [each.p50 for each in bounds], 0.5),
            share * _quantile([each.p90 for each in known], [each.p90 for each in bounds], 0.9),
        )


def _quantile(known: Sequence[float], bounds: Sequence[float], target: float) -> float:
    """The smallest known score that the target share of all does not exceed, by the product-limit estimate. Where the
    bounds leave that open, the largest one; within the limits of corrections."""
    # One score more than there are: the next one is covered with the target probability only then.
    wanted = 1.0 - min(target * (len(known) + 1) / len(known), 1.0)
    ordered = sorted([*((value, False) for value in known), *((value, True) for value in bounds)])
    found, left, share = ordered[-1][0], len(ordered), 1.0
    for value, is_bound in ordered:
        if not is_bound:
            share *= (left - 1) / left
            if share <= wanted + 1e-12:
                found = value
                break
        left -= 1
    return min(max(found, CORRECTION_MIN), CORRECTION_MAX)
