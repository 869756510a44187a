"""The best possible estimates of generated jobs: what is left of the loss when nothing can be learned better.

`known_quantile` is that of an estimate that knows the distribution of each program. No estimate has a smaller expected
loss, but one that learns cannot reach it: it has to see a program run first. `LearnedProgram` knows how programs are
drawn (`bench._weeks`) and which program a job is of, and learns the rest from the runs that have ended: by Bayes' rule,
over a grid of spreads and of typical run times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import Final

from bench._weeks import LIMITS, SHORTEST, SPREADS, TYPICAL, WeekProgram

_NORMAL: Final = NormalDist()
_SPREADS: Final = tuple(SPREADS[0] + (SPREADS[1] - SPREADS[0]) * (place + 0.5) / 10 for place in range(10))
_TYPICALS: Final = tuple((place + 0.5) / 9 for place in range(9))


def known_quantile(program: WeekProgram, share: float) -> float:
    """The quantile of the distribution that the run times of a program are drawn from."""
    length = program.typical * math.exp(program.spread * _NORMAL.inv_cdf(share))
    return min(float(program.limit), max(float(SHORTEST), length))


class LearnedProgram:
    """What can be known of one program after some of its runs."""

    def __init__(self) -> None:
        self._runs, self._sum, self._squares = 0, 0.0, 0.0

    def learn(self, seconds: int) -> None:
        length = math.log(seconds)
        self._runs, self._sum, self._squares = self._runs + 1, self._sum + length, self._squares + length**2

    def quantile(self, share: float, limit: int) -> float:
        """The quantile of the next run of the program, which has this limit."""
        parts = list(self._parts(limit))
        wanted = share * sum(weight for weight, _, _ in parts)
        low, high = 0.0, math.log(limit)
        for _ in range(20):
            middle = (low + high) / 2
            below = sum(weight * _NORMAL.cdf((middle - log) / spread) for weight, log, spread in parts)
            low, high = (middle, high) if below < wanted else (low, middle)
        return max(float(SHORTEST), math.exp(high))

    def _parts(self, limit: int) -> Iterator[tuple[float, float, float]]:
        """The weight, the logarithm of the typical run time and the spread of the distributions that it may have."""
        found = [each for spread in _SPREADS if (each := self._with_spread(spread, limit))[0] > -math.inf]
        likeliest = max(each[0] for each in found)
        for log_weight, spread, mean, deviation, below, within in found:
            weight = math.exp(log_weight - likeliest)
            if weight > 1e-3:
                for place in _TYPICALS:
                    level = min(max(below + within * place, 1e-12), 1 - 1e-12)
                    yield weight, mean + deviation * _NORMAL.inv_cdf(level), spread

    def _with_spread(self, spread: float, limit: int) -> tuple[float, float, float, float, float, float]:
        """The logarithm of the likelihood of a spread; given it, the normal distribution of the logarithm of the
        typical run time, and the range of it that the limit allows: a user asks for twice the typical time."""
        prior, variance, runs = TYPICAL[0], TYPICAL[1] ** 2, self._runs
        precision = 1 / variance + runs / spread**2
        mean, deviation = (prior / variance + self._sum / spread**2) / precision, precision**-0.5
        place = LIMITS.index(limit)
        below = _NORMAL.cdf((math.log(LIMITS[place - 1] / 2) - mean) / deviation) if place else 0.0
        above = _NORMAL.cdf((math.log(limit / 2) - mean) / deviation) if limit < LIMITS[-1] else 1.0
        weight = math.log(above - below) if above - below > 1e-12 else -math.inf
        if runs:
            average = self._sum / runs
            rest, total = self._squares - runs * average**2, variance + spread**2 / runs
            weight -= (runs - 1) * math.log(spread) + rest / (2 * spread**2)
            weight -= math.log(total) / 2 + (average - prior) ** 2 / (2 * total)
        return weight, spread, mean, deviation, below, above - below
