"""The correction of forecasts by the starts of Workloads that were forecast before [FC3].

A *score* compares a start with the forecast before its correction: the logarithm of the wait, divided by the distance
of the quantile; both with an allowance, so that a distance of zero can be corrected too. If 90 % of the scores of P90
are not above a, then distances that are multiplied by exp(a) cover 90 % of the starts. So the correction is a quantile
of the last scores.

Two things would make that quantile too small, and forecasts worse than without a correction. A Workload that starts
early is scored early, while others that were forecast at the same time still wait: so those count as well, with a
score of which only a lower bound is known (the product-limit estimate). And a score must not depend on the correction
that was in force: when it changes, the forecasts of which the result is not known yet must not count twice.

Scores are not independent: Workloads that wait at the same time start late together. One bad day may be half of the
window, and its median then describes that day. So the median is compared with those that the window has without each
tenth of its time: if they differ much, the correction of P50 is reduced, and P50 stays nearly as it was. P90 is made
later as far as the scores show it: after a day of late starts more of them may follow, and a P90 that is too early is
worse than one that is too late. For the same reason it is made earlier only as far as that is sure, by one standard
error.

When hundreds of Workloads are forecast at one moment, they would be the whole window. So at most MOMENT_MAX of them
count for P90, whose window then covers ten such moments. P50 is reduced by its standard error already, and all count.

Large Workloads wait otherwise than small ones. So the correction of P90 is moved towards that of the scores of the
Workload's size class, the more the more of them there are: by n / (n + SIZE_SCORES) of the difference.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import exp, log, sqrt
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from kubemachinery.meta import MINUTE, Nanoseconds

# How many forecasts of a ClusterQueue count: the last ones. With fewer scores, the correction is reduced in proportion:
# forecasts that are made one after another share their long waits, and prove less than as many independent ones.
WINDOW: Final = 200
# How many forecasts count for P90, of those of a ClusterQueue that are made together.
MOMENT_MAX: Final = 20
# The time that the window covers is divided into so many equal parts.
PARTS: Final = 10
# A Workload is big if it requests at least this part of the nominal quota of its ClusterQueue, of any resource.
BIG_SHARE: Final = 1 / 8
# With so many scores of a size class, half of the difference of its correction to that of the ClusterQueue counts.
SIZE_SCORES: Final = 200
ALLOWANCE: Final = 5 * MINUTE
CORRECTION_MIN: Final = -3.0
CORRECTION_MAX: Final = 3.0


class SizeClass(StrEnum):
    """Whether a Workload is small or big for its ClusterQueue [FC3]."""

    SMALL = "small"
    BIG = "big"


def size_class(share: float) -> SizeClass:
    """The size class of a Workload that requests this part of the nominal quota of its ClusterQueue."""
    return SizeClass.BIG if share >= BIG_SHARE else SizeClass.SMALL


class Correction(NamedTuple):
    """The logarithms by which the distances of P50 and P90 are multiplied, of a ClusterQueue or one of its size classes
    [FC3]."""

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


def counting_for_p90(count: int) -> frozenset[int]:
    """Which of so many forecasts of a ClusterQueue that are made together count for P90, by their positions in the
    answer, which is in the order of names: all, or the middle of each of MOMENT_MAX equal parts."""
    if count <= MOMENT_MAX:
        return frozenset(range(count))
    return frozenset((2 * part + 1) * count // (2 * MOMENT_MAX) for part in range(MOMENT_MAX))


class OpenForecast(msgspec.Struct, frozen=True):
    """A forecast whose Workload has not started: when it was made, and its distances before the correction."""

    made: Nanoseconds
    p50: Nanoseconds
    p90: Nanoseconds
    # False: the correction of P90 does not regard it, because enough others were made together with it.
    counts_for_p90: bool = True
    # None: not known, as of a forecast that an earlier version stored.
    size: SizeClass | None = None

    def score(self, at: Nanoseconds) -> ForecastScore:
        """The score of a start at a time; for a Workload that still waits then, the lower bound of its score."""
        wait = max(0, at - self.made)
        return ForecastScore(score(wait, self.p50), score(wait, self.p90))


class CalibrationWindow(msgspec.Struct):
    """The last forecasts of one ClusterQueue: those that were scored, and those that are open."""

    # In the order in which the forecasts were made, with the time of each: the last of all, the last that count for
    # P90, and the last of these of each size class.
    scores: list[tuple[Nanoseconds, ForecastScore]] = msgspec.field(default_factory=list)
    p90_scores: list[tuple[Nanoseconds, float]] = msgspec.field(default_factory=list)
    size_scores: dict[SizeClass, list[tuple[Nanoseconds, float]]] = msgspec.field(default_factory=dict)

    def add(self, forecast: OpenForecast, started: Nanoseconds) -> None:
        """Score a forecast whose Workload has started."""
        found = forecast.score(started)
        self.scores.append((forecast.made, found))
        if forecast.counts_for_p90:
            self.p90_scores.append((forecast.made, found.p90))
            if forecast.size is not None:
                self.size_scores.setdefault(forecast.size, []).append((forecast.made, found.p90))
        self._keep_last()

    def joined(self, later: CalibrationWindow) -> CalibrationWindow:
        """The last scores of both."""
        both = CalibrationWindow(
            [*self.scores, *later.scores],
            [*self.p90_scores, *later.p90_scores],
            {size: [*self.size_scores.get(size, ()), *later.size_scores.get(size, ())] for size in SizeClass},
        )
        both._keep_last()
        return both

    def _keep_last(self) -> None:
        self.scores.sort(key=lambda each: each[0])
        del self.scores[:-WINDOW]
        for scores in (self.p90_scores, *self.size_scores.values()):
            scores.sort(key=lambda each: each[0])
            del scores[:-WINDOW]

    def correction(
        self, waiting: Iterable[OpenForecast], now: Nanoseconds, size: SizeClass | None = None
    ) -> Correction:
        """The correction after the scores, and after the waits of forecasts that are still open; of a size class, or of
        a Workload whose size is not known."""
        if not self.scores:
            return NO_CORRECTION
        bounds = [(each, each.score(now)) for each in waiting]
        p50s = _Scores(
            [(made, each.p50) for made, each in self.scores], [(each.made, bound.p50) for each, bound in bounds]
        )
        p50 = p50s.share * p50s.proven(0.5)
        if not self.p90_scores:
            return Correction(p50)
        counting = [(each, bound.p90) for each, bound in bounds if each.counts_for_p90]
        p90s = _Scores(self.p90_scores, [(each.made, bound) for each, bound in counting])
        p90 = p90s.careful(0.9)
        if size is not None and (of_size := self.size_scores.get(size)):
            own = _Scores(of_size, [(each.made, bound) for each, bound in counting if each.size is size])
            p90 += len(of_size) / (len(of_size) + SIZE_SCORES) * (own.careful(0.9) - p90)
        return Correction(p50, p90s.share * p90)


class _RankedScore(NamedTuple):
    value: float
    # The part of the window that the forecast was made in.
    part: int
    # How many bounds are not below it: of the Workloads that still wait, those that may have a higher score.
    bounds: int


class _Scores:
    """Scores by their values, and the lower bounds of those that are not known; of one quantile, each given with the
    time that its forecast was made at."""

    def __init__(
        self, scores: Sequence[tuple[Nanoseconds, float]], bounds: Iterable[tuple[Nanoseconds, float]]
    ) -> None:
        first, last = scores[0][0], scores[-1][0]
        since = first if len(scores) == WINDOW else 0
        ordered = sorted(bound for made, bound in bounds if made >= since)
        parts = ((value, (made - first) * PARTS // (last - first + 1)) for made, value in scores)
        self._ranked = [
            _RankedScore(value, part, len(ordered) - bisect_left(ordered, value)) for value, part in sorted(parts)
        ]
        # How much of the window is filled.
        self.share = len(scores) / WINDOW
        self._highest = ordered[-1] if ordered else CORRECTION_MIN

    def quantile(self, target: float) -> float:
        return _quantile(self._ranked, self._highest, target)

    def proven(self, target: float) -> float:
        """The quantile a, multiplied by a² / (a² + e²), where e is its standard error. Scores of a single part count as
        one."""
        whole, error = self.quantile(target), self._error(target)
        if error is None:
            return whole / len(self._ranked)
        return whole**3 / (whole**2 + error**2) if whole else 0.0

    def careful(self, target: float) -> float:
        """The quantile; below 0 with its standard error added, at most 0. There, scores of a single part count as
        one."""
        whole = self.quantile(target)
        if whole >= 0.0:
            return whole
        error = self._error(target)
        return whole / len(self._ranked) if error is None else min(0.0, whole + error)

    def _error(self, target: float) -> float | None:
        """The standard error of the quantile, by the jackknife that leaves out one part of the window after the other;
        None with a single part."""
        parts = {each.part for each in self._ranked}
        if len(parts) == 1:
            return None
        without = [
            _quantile([each for each in self._ranked if each.part != part], self._highest, target) for part in parts
        ]
        mean, count = fmean(without), len(without)
        return sqrt((count - 1) / count * sum((each - mean) ** 2 for each in without))


def _quantile(ranked: Sequence[_RankedScore], highest: float, target: float) -> float:
    """The smallest score that the target share of all does not exceed, by the product-limit estimate. Where the
    bounds leave that open, the largest of scores and bounds; within the limits of corrections."""
    count = len(ranked)
    # One score more than there are: the next one is covered with the target probability only then.
    wanted = 1.0 - min(target * (count + 1) / count, 1.0)
    found, share = max(ranked[-1].value, highest), 1.0
    for number, each in enumerate(ranked):
        left = count - number + each.bounds
        share *= (left - 1) / left
        if share <= wanted + 1e-12:
            found = each.value
            break
    return min(max(found, CORRECTION_MIN), CORRECTION_MAX)
