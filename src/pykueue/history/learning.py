"""Run-time estimates, learned from past runs.

A *limit* is a time after which a run is ended; an *estimate* is a distribution. They are never mixed [RT1]: an estimate
comes from runs that are like the Workload, from what its user expects, or, spread below it, from its limit.

A run that was evicted, cancelled or ended by its limit would have taken longer: it counts as a run of at least its
length, by the product-limit (Kaplan–Meier) estimate [RT6].

    classes of runs, narrowest first ──▶ a mixture [RT10] ──▶ the level is shifted [RT11] ──▶ cut at the limit
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from statistics import NormalDist
from typing import Final, NamedTuple, TypeAlias

import msgspec

from pykueue.core.name_shape import name_shape as name_shape
from pykueue.history.records import FINISHED, Outcome, WorkloadRecord

# A class needs so many runs to be used, and keeps so many [RT4].
RUNS_MIN: Final = 5
RUNS_KEPT: Final = 128
CLASSES_MAX: Final = 50_000
# A class has the weight n / (n + WIDER_RUNS) of what narrower classes leave; the wider ones share the rest [RT10].
WIDER_RUNS: Final = 4
# Wider classes do not count where narrower ones leave less.
_LEFT_MIN: Final = 0.01
# Runs before the last RUNS_KEPT are remembered for what was known when a Workload was submitted [RT11].
_REMEMBERED: Final = 256
# So many estimates are kept until the next run is learned.
_ESTIMATES_MAX: Final = 10_000
# So many runs are put into the order of the others in less time than all are sorted.
_MOVED_MAX: Final = 6

ClassKey: TypeAlias = tuple[str, ...]


class Run(NamedTuple):
    """A length, or a ratio of lengths; `is_bound` if the run would have taken longer."""

    value: float
    is_bound: bool = False


_ROUNDING: Final = 1e-12


# --- Distributions ----------------------------------------------------------------------------------------------------


class _Steps(NamedTuple):
    """The lengths at which runs ended, in order, the share of runs that are longer, the longest run, and how many runs
    there are. Estimates refer to these sequences: they are never changed. A list is searched in half the time of an
    array."""

    times: list[float]
    shares: Sequence[float]
    longest: float
    runs: int
    # Of the runs that would have taken longer the lengths, negative and in ascending order.
    bounds: Sequence[float] = ()
    # The lengths from which on runs count, in ascending order; empty if all count from 0 on.
    entries: Sequence[float] = ()

    def fallen_between(self, first: float, last: float) -> tuple[int, int]:
        """The place of the first step at which no more runs than the share `first` are longer, and that of the share
        `last`, which is smaller. They may be one place too early, and too late."""
        count = len(self.times)
        if count < self.runs:
            return (
                bisect_left(self.shares, -first, key=float.__neg__),
                bisect_left(self.shares, -last, key=float.__neg__),
            )
        # Without bounds, each step is that of one run.
        low, high = int(count * (1.0 - first)) - 1, int(count * (1.0 - last)) + 1
        return (low if low > 0 else 0), (high if 0 < high < count else count if high > 0 else 0)


def _product_limit(lengths: Iterable[float]) -> _Steps:
    """The product-limit estimate of runs; of a bound, the length is negative [RT6]."""
    return _steps_of(sorted(lengths))


def _steps_of(ordered: list[float]) -> _Steps:
    """The product-limit estimate of lengths in ascending order: first the bounds, the longest one first."""
    count = len(ordered)
    if ordered[0] >= 0:
        return _Steps(ordered, _even_shares(count), ordered[-1], count)
    bounds = bisect_left(ordered, 0.0)
    times = ordered[bounds:]
    shares: list[float] = []
    share, left, ended = 1.0, count, 0
    # Up to the next bound, each run that ends takes the same share.
    for bound in (*reversed(ordered[:bounds]), -math.inf):
        # Of equal lengths, those that ended come first: a bound is longer.
        place = bisect_right(times, -bound, ended)
        if place > ended:
            each, until = share / left, left - place + ended
            shares.extend(map(each.__mul__, range(left - 1, until - 1, -1)))
            share, left, ended = each * until, until, place
        left -= 1
    return _Steps(times, shares, max(-ordered[0], ordered[-1]), count, ordered[:bounds])


def delayed_steps(runs: Sequence[tuple[float, float]]) -> _Steps:
    """The product-limit estimate with delayed entry: each run is given with the length from which on it counts. Of a
    bound, the length is negative.

    At each length at which a run ends, it is compared with the runs that count there: those that are not shorter, and
    that count from that length on or before. Where no other one counts, although longer ones are known, it takes half
    of the share, and not all of it."""
    ends = sorted((abs(length), length < 0) for length, _ in runs)
    entries = sorted(entry for _, entry in runs)
    times: list[float] = []
    shares: list[float] = []
    share, last = 1.0, len(ends) - 1
    # Of equal lengths, those that ended come first: a bound is longer.
    for shorter, (length, is_bound) in enumerate(ends):
        if not is_bound:
            counting = bisect_right(entries, length) - shorter
            share *= (counting - 1) / counting if counting > 1 or shorter == last else 0.5
            times.append(length)
            shares.append(share)
    return _Steps(times, shares, ends[-1][0], len(ends), sorted(length for length, _ in runs if length < 0), entries)


@lru_cache(maxsize=RUNS_KEPT)
def _even_shares(count: int) -> tuple[float, ...]:
    return tuple((count - place) / count for place in range(1, count + 1))


# Lengths that differ by less are equal: one that is a ratio, multiplied by a limit, is rounded.
_NEARLY: Final = 1.0 + 1e-12

# Without a shorter example, so little of a run without an example is there that it counts beyond all examples only.
_UNSEEN_MIN: Final = 1e-15
# A quantile of a run that has lasted is found to this part of it, or of a second.
_PRECISION: Final = 1e-5
_PRECISION_SECONDS: Final = 0.1
# A run ahead draws the length of every run that has not ended, and there are 19 of them and more: so many are kept.
_LASTING_MAX: Final = 2048


class _LastingSteps:
    """Of a class, the share of the runs that are longer than a length, among those that are longer than what a run has
    lasted for, `elapsed` [RT7].

    Beside the runs of the class counts a part of one without an example, of which elapsed / t is longer than t. Where
    one of Y runs ends that count, and u of that one is left, the share is multiplied by 1 - 1 / (Y + u); between two
    ends it falls as Y + u. So it falls as 1 / t where no run counts, and hardly where many do. By the product-limit
    estimate alone, which regards ends only, no run would end between the last run that is kept and the longest one that
    is still open, although hardly any was seen at these lengths."""

    __slots__ = ("_places", "_scales", "_starts", "_times", "_unseen")

    def __init__(self, steps: _Steps, elapsed: float) -> None:
        times, runs, bounds, entries = steps.times, steps.runs, steps.bounds, steps.entries
        self._times = times
        ended = bisect_right(times, elapsed)
        first_bound, first_entry = bisect_left(bounds, -elapsed), bisect_right(entries, elapsed)
        outlasted = ended + len(bounds) - first_bound
        # How many runs count, and those that have ended.
        place = (first_entry if entries else runs) - (len(bounds) - first_bound)
        count = place - ended
        self._unseen = unseen = elapsed * max(outlasted, _UNSEEN_MIN) / (outlasted + count + 1)
        # From each start on, up to the next one, the share is scale · (place - the runs that have ended + unseen / t).
        self._starts, self._places = [elapsed], [place]
        self._scales = [1.0 / (count + unseen / elapsed)]
        changes = [(-bound, True) for bound in bounds[:first_bound]]
        changes += [(entry, False) for entry in entries[first_entry:]]
        changes.sort()
        for length, is_bound in changes:
            # Of equal lengths, those that enter come first, then those that ended: a bound is longer.
            ended = bisect_right(times, length) if is_bound else bisect_left(times, length)
            share = self._scales[-1] * (place - ended + unseen / length)
            place += -1 if is_bound else 1
            self._starts.append(length)
            self._places.append(place)
            self._scales.append(share / (place - ended + unseen / length))

    def share(self, length: float) -> float:
        """The share of the runs that are longer."""
        segment = bisect_right(self._starts, length) - 1
        return self._scales[segment] * (
            self._places[segment] - bisect_right(self._times, length) + self._unseen / length
        )

    def ends(self, after: float, until: float) -> list[float]:
        """The lengths at which runs ended, after one and up to another."""
        return self._times[bisect_right(self._times, after) : bisect_right(self._times, until)]


class LastingMixture:
    """The lengths of a run that has lasted for some time, `elapsed`: a mixture of those of classes [RT7], [RT10]."""

    __slots__ = ("_elapsed", "_parts")

    def __init__(self, parts: Iterable[tuple[float, float, _Steps]], elapsed: float) -> None:
        self._elapsed = elapsed
        found: list[tuple[float, float, _Steps]] = []
        for weight, factor, steps in parts:
            place = bisect_right(steps.times, elapsed * _NEARLY / factor)
            left = weight * steps.shares[place - 1] if place else weight
            if left > _ROUNDING:
                found.append((left, factor, steps))
        whole = sum(weight for weight, _, _ in found)
        self._parts = [
            (weight / whole, factor, _LastingSteps(steps, elapsed * _NEARLY / factor))
            for weight, factor, steps in found
        ]

    def survival(self, length: float) -> float:
        """The share of the runs that are longer."""
        if not self._parts:
            return self._elapsed / length
        # The parts begin there: an end that is equal but for rounding has passed.
        length = max(length, self._elapsed * _NEARLY)
        left = 0.0
        for weight, factor, steps in self._parts:
            left += weight * steps.share(length / factor)
        return left

    def quantile(self, share: float) -> float:
        """The length that a share of the runs does not exceed."""
        if not self._parts:
            # No example is as long as this run is already.
            return self._elapsed / max(1.0 - share, 1e-9)
        # Rounding must not skip the step that reaches exactly the wanted share, nor find one before all steps.
        wanted = min(1.0 - share, 1.0 - 10.0 * _ROUNDING) + _ROUNDING
        low, high = self._elapsed, 2.0 * self._elapsed
        while self.survival(high) > wanted:
            low, high = high, 4.0 * high
        while high - low > max(_PRECISION * low, _PRECISION_SECONDS):
            middle = (low + high) / 2.0
            if self.survival(middle) <= wanted:
                high = middle
            else:
                low = middle
        # Between the two are mostly none.
        ends = (
            end * factor
            for _, factor, steps in self._parts
            for end in steps.ends(low / factor, high * _NEARLY / factor)
        )
        return next((end for end in sorted(ends) if self.survival(end * _NEARLY) <= wanted), high)


class RunMixture(msgspec.Struct, frozen=True):
    """A mixture of distributions, each with a weight and a factor for its lengths, which are above 0 [RT10]. The
    weights add up to 1.

    Beyond the longest run the survival falls as longest / t: a run that is longer than all examples is expected to take
    as long again [RT7]. The steps of the parts are not merged: only a few of them can be a given quantile."""

    parts: tuple[tuple[float, float, _Steps], ...]

    # By identity, to be found by `_lasting`: parts are many numbers, and of two equal mixtures both are kept.
    __hash__ = object.__hash__

    def survival(self, length: float) -> float:
        """The share of runs that are longer, up to the longest example."""
        length *= _NEARLY
        left = 0.0
        for weight, factor, (times, shares, _, _, _, _) in self.parts:
            place = bisect_right(times, length / factor)
            left += weight * shares[place - 1] if place else weight
        return left

    def quantile(self, share: float, elapsed: float = 0.0) -> float:
        """The length that a share of the runs that are longer than `elapsed` does not exceed."""
        if elapsed > 0.0:
            return self.lasting(elapsed).quantile(share)
        wanted = 1.0 - share
        # Rounding must not skip the step that reaches exactly the wanted share.
        found = self._first(wanted + _ROUNDING)
        if found is not None:
            return found
        # The longest runs were ended: all that is known is that they would have taken longer.
        longest = self._longest()
        return longest * self.survival(longest) / max(wanted, 1e-9)

    def lasting(self, elapsed: float) -> LastingMixture:
        """The mixture for a run that has lasted for some time [RT7]."""
        return _lasting(self, elapsed)

    def _longest(self) -> float:
        return max(factor * steps.longest for _, factor, steps in self.parts)

    def _first(self, share: float) -> float | None:
        """The first step at which at most this share of the runs is longer; None if there is none."""
        weight, factor, steps = self.parts[0]
        times, count = steps.times, len(steps.times)
        # Of the first part, which has most of the weight: it is no step before that part alone has fallen to the
        # share, nor one behind the step where it has fallen so far that the others may have their full weight. With
        # the weights of [RT10] these are five or six steps, however many runs the part has.
        low, high = steps.fallen_between(share / weight, (share - 1.0 + weight) / weight)
        while low < high:
            middle = (low + high) // 2
            if self._has_fallen(share, times[middle] * factor):
                high = middle
            else:
                low = middle + 1
        # Between that step and the one before it are steps of other parts.
        above = times[low - 1] * factor * _NEARLY if low else 0.0
        last = times[low] * factor if low < count else math.inf
        found: list[float] = []
        for _, factor, (times, _, _, _, _, _) in self.parts[1:]:
            place, behind = bisect_right(times, above / factor), last / factor
            if place < len(times) and times[place] < behind:
                found += [time * factor for time in times[place : bisect_left(times, behind, place)]]
        if found:
            found.sort()
            low, high = 0, len(found)
            while low < high:
                middle = (low + high) // 2
                if self._has_fallen(share, found[middle]):
                    high = middle
                else:
                    low = middle + 1
            if low < len(found):
                return found[low]
        return last if last < math.inf else None

    def _has_fallen(self, share: float, length: float) -> bool:
        """Whether at most this share of the runs is longer, as `survival`. Most of the weight is in the first parts, so
        that the others need not be searched."""
        length *= _NEARLY
        left, rest = 0.0, 1.0
        for weight, factor, (times, shares, _, _, _, _) in self.parts:
            place = bisect_right(times, length / factor)
            left += weight * shares[place - 1] if place else weight
            if left > share:
                return False
            rest -= weight
            if left + rest <= share:
                return True
        return True


@lru_cache(maxsize=_LASTING_MAX)
def _lasting(mixture: RunMixture, elapsed: float) -> LastingMixture:
    return LastingMixture(mixture.parts, elapsed)


def level_of(ordered: list[float], length: float, among: float) -> float:
    """The level from which on quantiles of runs reach a length. At equal examples, which any quantile reaches, it is
    the place `among` them, from 0 to 1: so runs that are all alike do not lower the levels of others."""
    count = len(ordered)
    if ordered[0] >= 0:
        place = bisect_left(ordered, length)
        return (place + (bisect_right(ordered, length, place) - place) * among) / count
    first = bisect_left(ordered, 0.0)
    place = bisect_left(ordered, length, first) - first
    behind = bisect_right(ordered, length, first + place) - first
    # As in the steps of the product-limit estimate, up to this length only.
    share, left, ended = 1.0, count, 0
    for bound in reversed(ordered[:first]):
        if -bound >= length:
            break
        until = bisect_right(ordered, -bound, first + ended) - first
        share, left, ended = share * (left - until + ended) / left, left - until + ended - 1, until
    before = share * (left - place + ended) / left if left else share
    after = share * (left - behind + ended) / left if left else share
    return 1.0 - before + (before - after) * among


@dataclass(frozen=True)
class RunDistribution:
    """The distribution of the lengths of runs, by the product-limit estimate."""

    runs: tuple[Run, ...]

    @cached_property
    def _steps(self) -> _Steps:
        return _product_limit(-run.value if run.is_bound else run.value for run in self.runs)

    def survival(self, length: float) -> float:
        """The share of runs that are longer, up to the longest example."""
        place = bisect_right(self._steps.times, length)
        return self._steps.shares[place - 1] if place else 1.0

    def quantile(self, share: float, elapsed: float = 0.0) -> float:
        """The length that a share of the runs that are longer than `elapsed` does not exceed; beyond the longest run
        as in a mixture."""
        times, shares, longest, *_ = self._steps
        left = self.survival(elapsed)
        if left <= _ROUNDING or elapsed >= longest:
            return max(longest, elapsed) / max(1.0 - share, 1e-9)
        wanted = left * (1.0 - share)
        place = bisect_left(shares, -wanted - _ROUNDING, bisect_right(times, elapsed), key=float.__neg__)
        if place < len(times):
            return times[place]
        return longest * (shares[-1] if shares else 1.0) / max(wanted, 1e-9)


# --- Levels -----------------------------------------------------------------------------------------------------------

# The levels whose coverage is followed, as log odds.
_LEVELS: Final = (0.1, 0.5, 0.9)
_KNOTS: Final = tuple(math.log(level / (1.0 - level)) for level in _LEVELS)
_ODDS_OF_LEVELS: Final = dict(zip(_LEVELS, _KNOTS, strict=True))
# How far one run shifts a level whose quantile it exceeds: much at 0.9, where few runs do.
_RATES: Final = (0.03, 0.01, 0.03)
_SHIFT_MAX: Final = 3.0
# Without a limit, which cuts an estimate, a larger shift covers few more runs by far longer times.
_SHIFT_MAX_UNLIMITED: Final = 0.5


class LevelShift(msgspec.Struct, frozen=True):
    """How far levels are shifted, as log odds, so that quantiles cover what they should [RT11].

    If runs exceed the P90 more often than one in ten times, the P90 is taken from a higher level of the distribution.
    Each run moves the shift up by the rate if it exceeds the quantile, less by the share that should: over many runs,
    the two cancel only if the quantile covers its share (adaptive conformal inference)."""

    knots: tuple[float, ...] = _KNOTS

    def shifted(self, share: float) -> float:
        """The level of the distribution that covers a share of the runs. It does not fall when the share grows."""
        if not 0.0 < share < 1.0:
            return share
        odds = _ODDS_OF_LEVELS.get(share)
        return _share(_along(_KNOTS, self.knots, _odds(share) if odds is None else odds))

    def covered(self, level: float) -> float:
        """The share of the runs that a level of the distribution covers: the inverse of `shifted`."""
        if not 0.0 < level < 1.0:
            return level
        return _share(_along(self.knots, _KNOTS, _odds(level)))

    def within(self, most: float) -> LevelShift:
        """The shift, of no level by more than this."""
        return LevelShift(tuple(min(max(k, at - most), at + most) for k, at in zip(self.knots, _KNOTS, strict=True)))

    def learned(self, level: float, *, is_bound: bool) -> LevelShift:
        """The shift after a run at a level of its own distribution; of a bound the level would have been higher."""
        moved: list[float] = []
        for share, knot, fixed, rate in zip(_LEVELS, self.knots, _KNOTS, _RATES, strict=True):
            missed = 1.0 if level >= _share(knot) else 0.0
            if is_bound and not missed:
                # As likely as it is after what the run has covered already.
                missed = min(1.0, (1.0 - share) / max(1.0 - self.covered(level), 1e-9))
            found = min(max(knot + rate * (missed - (1.0 - share)), fixed - _SHIFT_MAX), fixed + _SHIFT_MAX)
            # Knots stay apart, so that a higher share has a higher level.
            moved.append(max(found, moved[-1] + 0.01) if moved else found)
        return LevelShift(tuple(moved))


_NO_SHIFT: Final = LevelShift()

# Runs of a class are submitted together if it was within the same hour.
_TOGETHER_SECONDS: Final = 3600
_BATCHES_MAX: Final = 4096
# So many runs whose levels have nothing in common are assumed before the first one.
_UNCORRELATED_RUNS: Final = 50
_CORRELATION_MAX: Final = 0.9
# Of a level as a quantile of the standard normal distribution.
_SCORE_MAX: Final = 2.5


# Runs of one class that were submitted together: how many, the sum of their scores, and that of the squares.
_Batch: TypeAlias = list[float]


class LevelCorrelation:
    """How much the levels of runs have in common that are of one class and were submitted together [RT12].

    A level is taken as a score, a quantile of the standard normal distribution. The correlation is the mean product of
    two scores of a batch ÷ the mean square. All pairs of a batch count alike, in whatever order its runs end: those
    that end one after the other have similar lengths, and would seem to be correlated."""

    def __init__(self) -> None:
        self._batches: OrderedDict[tuple[ClassKey, int], _Batch] = OrderedDict()
        self._products = self._expected = 0.0

    @property
    def value(self) -> float:
        """The correlation, from 0 to 1; 0 without evidence."""
        return min(max(self._products / (self._expected + _UNCORRELATED_RUNS), 0.0), _CORRELATION_MAX)

    def learn(self, key: ClassKey, submitted: int, level: float) -> None:
        """Add a run of a class, at a level of its estimate."""
        score = min(max(_normal_quantile(min(max(level, 1e-6), 1.0 - 1e-6)), -_SCORE_MAX), _SCORE_MAX)
        place = key, submitted // _TOGETHER_SECONDS
        batch = self._batches.get(place)
        if batch is not None:
            self._count(batch, -1.0)
            batch[0] += 1.0
            batch[1] += score
            batch[2] += score * score
            self._count(batch, 1.0)
            return
        self._batches[place] = [1.0, score, score * score]
        if len(self._batches) > _BATCHES_MAX:
            self._count(self._batches.popitem(last=False)[1], -1.0)

    def _count(self, batch: _Batch, times: float) -> None:
        """Count a batch: the mean product of two of its scores, and what that would be if all were equal; each with the
        weight of its runs beside the first one. A batch of one run has no pair, and counts nothing."""
        runs, total, squares = batch
        times /= runs
        self._products += times * (total * total - squares)
        self._expected += times * (runs - 1.0) * squares


_normal_quantile: Final = NormalDist().inv_cdf


def _odds(share: float) -> float:
    bounded = min(max(share, 1e-12), 1.0 - 1e-12)
    return math.log(bounded / (1.0 - bounded))


def _share(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))


def _along(at: Sequence[float], values: Sequence[float], wanted: float) -> float:
    """The value between the knots; beyond them, as far from the last one as `wanted` is."""
    if wanted <= at[0]:
        return values[0] + wanted - at[0]
    for place in range(1, len(at)):
        if wanted <= at[place]:
            part = (wanted - at[place - 1]) / (at[place] - at[place - 1])
            return values[place - 1] + part * (values[place] - values[place - 1])
    return values[-1] + wanted - at[-1]


class RunEstimate(msgspec.Struct, frozen=True):
    """How long a Workload will run: a distribution, never beyond the limit; and where it comes from."""

    source: str
    # The past runs of the class that names it; 0 for a hint, which fewer than five runs may change [RT10].
    runs: int
    length: Callable[[float, float], float]
    limit_seconds: int | None = None
    # The class that it shares a part of its level with, and how large that part is: the correlation [RT12].
    alike: str = ""
    correlation: float = 0.0

    def quantile(self, share: float, elapsed_seconds: int = 0) -> int:
        """The seconds that the whole run takes at most, with this probability, after it has run for some already."""
        found = max(round(self.length(share, float(elapsed_seconds))), elapsed_seconds + 1)
        return found if self.limit_seconds is None else min(found, self.limit_seconds)


# --- Learning ---------------------------------------------------------------------------------------------------------


def _length_at(time: int, length: float, began: int, until: int) -> float:
    """The length that a run had at a time, if it has another one at `until`; 0 before it began."""
    return length * min(1.0, max(0, time - began) / max(1, until - began))


class PastRuns:
    """The last runs of a class, with the times at which they began and were learned: 24 bytes for a run, and 32 more
    for each of the last ones where an estimate has needed their order."""

    __slots__ = ("_added", "_begins", "_ends", "_lengths", "_ordered", "_steps", "count")

    def __init__(self) -> None:
        self.count = 0  # of the last runs
        self._lengths = array("d")  # negative for a bound
        self._begins = array("q")
        self._ends = array("q")
        # The lengths of the last runs in ascending order, but for those that were added since.
        self._ordered: list[float] | None = None
        self._added = 0
        self._steps: _Steps | None = None

    def add(self, length: float, seconds: int, ended: int) -> None:
        """Add a run, of so many seconds; of a bound, the length is negative."""
        self._lengths.append(length)
        self._begins.append(ended - seconds)
        self._ends.append(ended)
        self._added += 1
        self._steps = None
        if self.count < RUNS_KEPT:
            self.count += 1
        if len(self._ends) > _REMEMBERED + _REMEMBERED // 4:
            del self._lengths[:-_REMEMBERED], self._begins[:-_REMEMBERED], self._ends[:-_REMEMBERED]

    def forgotten(self) -> int | None:
        """When the last of the runs ended that are not kept; None if all are."""
        return self._ends[-RUNS_KEPT - 1] if len(self._ends) > RUNS_KEPT else None

    def entries(self, since: int) -> Iterator[tuple[float, float]]:
        """The lengths of the last runs, negative for bounds, each with the length that it had at a time."""
        last = zip(self._lengths[-RUNS_KEPT:], self._begins[-RUNS_KEPT:], self._ends[-RUNS_KEPT:], strict=True)
        return ((length, _length_at(since, abs(length), began, ended)) for length, began, ended in last)

    def latest(self) -> Sequence[float]:
        """The lengths of the last runs; negative for bounds."""
        return self._lengths[-RUNS_KEPT:]

    def steps(self) -> _Steps:
        """The distribution of the last runs."""
        if self._steps is None:
            self._steps = _steps_of(self.ordered(len(self._lengths)))
        return self._steps

    def known(self, time: int) -> int:
        """How many of the runs that are remembered were known at a time. Of a class with more runs since then than are
        remembered, some: its oldest ones are the nearest."""
        found = bisect_right(self._ends, time)
        return max(found, RUNS_KEPT // 4) if len(self._ends) >= _REMEMBERED else found

    def ordered(self, known: int) -> list[float]:
        """The lengths of the last of so many runs in ascending order, first the bounds."""
        lengths, count = self._lengths, len(self._lengths)
        first = max(0, known - RUNS_KEPT)
        if count - known > _MOVED_MAX:
            return sorted(lengths[first:known])
        ordered, added = self._ordered, self._added
        if ordered is None or added > _MOVED_MAX:
            ordered = sorted(lengths[-RUNS_KEPT:])
        elif added == 1:  # mostly
            ordered = ordered[:]
            if count > RUNS_KEPT:
                del ordered[bisect_left(ordered, lengths[-RUNS_KEPT - 1])]
            insort(ordered, lengths[-1])
        elif added:
            ordered = _moved(ordered, lengths[-RUNS_KEPT - added : -RUNS_KEPT], lengths[-added:])
        self._ordered, self._added = ordered, 0
        if known == count:
            return ordered
        return _moved(ordered, lengths[known:], lengths[first : max(0, count - RUNS_KEPT)])


def _moved(ordered: list[float], gone: Iterable[float], come: Iterable[float]) -> list[float]:
    """Lengths in ascending order without some of them, and with others."""
    ordered = ordered[:]
    for length in gone:
        del ordered[bisect_left(ordered, length)]
    for length in come:
        insort(ordered, length)
    return ordered


class OpenRuns:
    """Runs that have not ended yet: each is one of at least what it has lasted [RT6]. They are of one moment, `now` in
    seconds, so that estimates by them are kept with them.

    A class keeps its last runs. Those that ended before them are forgotten, so that what a run lasted in that time
    cannot be compared with them: it counts only from the length on that it had then. Otherwise the long runs of weeks,
    which are still open, would be compared with the short runs of the last hour."""

    def __init__(self, now: int) -> None:
        self.now = now
        # The length of each run of a class, negative, as those of bounds are; and when it began.
        self._runs: defaultdict[PastRuns, list[tuple[float, int]]] = defaultdict(list)
        self._steps: dict[PastRuns, _Steps] = {}
        self.estimates: dict[tuple[_Likeness, int | None], RunEstimate] = {}

    def add(self, kept: PastRuns, length: float, began: int) -> None:
        """Add a run of a class that has lasted for `length`."""
        self._runs[kept].append((-length, began))

    def steps(self, kept: PastRuns) -> _Steps:
        """The distribution of the last runs of a class, and of those that have not ended."""
        runs = self._runs.get(kept)
        if runs is None:
            return kept.steps()
        found = self._steps.get(kept)
        if found is None:
            since = kept.forgotten()
            if since is None:
                # The longest ones, if they are many.
                found = _product_limit((*kept.latest(), *sorted(length for length, _ in runs)[:RUNS_KEPT]))
            else:
                lasting = ((length, _length_at(since, -length, began, self.now)) for length, began in runs)
                found = delayed_steps((*kept.entries(since), *lasting))
            self._steps[kept] = found
        return found


_OF_QUEUES: Final = "%d runs of the LocalQueue", "%d runs of the ClusterQueue"


class RunTimes:
    """The runs of each class, learned from records in the order of their ends."""

    def __init__(self, classes_max: int = CLASSES_MAX) -> None:
        self._classes: OrderedDict[ClassKey, PastRuns] = OrderedDict()
        self._shift = _NO_SHIFT
        self._correlation = LevelCorrelation()
        self._classes_max = classes_max
        # Of Workloads that are alike, until a run is learned: a forecast asks for all that wait.
        self._estimates: dict[tuple[_Likeness, int | None], RunEstimate] = {}

    def learn(self, record: WorkloadRecord) -> None:
        """Add the runs of a record that has ended."""
        found = list(runs_of(record))
        if not found:
            return
        self._estimates.clear()
        last, ended = found[-1], max(attempt.released or 0 for attempt in record.attempts)
        classes = _classes(*_likeness(record))
        self._learn_level(record, classes, last)
        seconds = [int(run.value) for run in found]
        lengths = [-run.value if run.is_bound else run.value for run in found]
        for key in (*classes.like, *classes.like_with, *classes.of_user, *classes.fallbacks):
            self._add(key, lengths, seconds, ended)
        if record.expected_seconds:
            self._add(classes.expected, [lengths[-1] / record.expected_seconds], seconds[-1:], ended)
        if record.limit_seconds:
            # A run that its limit ended took all of it.
            ratio = [min(1.0, last.value / record.limit_seconds)]
            for key in (*classes.of_user_limits, classes.limits):
                self._add(key, ratio, seconds[-1:], ended)

    def _learn_level(self, record: WorkloadRecord, classes: _Classes, run: Run) -> None:
        """Compare a run with the estimate that there was when its Workload was submitted [RT11].

        What ended since then does not count: those are the shorter ones of the runs that began with it."""
        level, left, among = 0.0, 1.0, _among(record.uid)
        for kept, factor, _ in self._parts(record, classes):
            known = kept.known(record.submitted)
            if known:
                runs = min(known, RUNS_KEPT)
                weight = left * runs / (runs + WIDER_RUNS)
                level += weight * level_of(kept.ordered(known), run.value / factor, among)
                left -= weight
                if left < _LEFT_MIN:
                    break
        if left == 1.0:
            return
        hint = _hint(record)
        if hint is None:
            level /= 1.0 - left
        else:
            level += left * level_of(hint[1].times, run.value / hint[0], among)
        by_limit = record.limit_seconds is not None and run.value >= record.limit_seconds
        level = min(1.0, max(0.0, level))
        if not run.is_bound or by_limit:
            self._correlation.learn(classes.like_it[0], record.submitted, self._shift.covered(level))
        self._shift = self._shift.learned(level, is_bound=run.is_bound and not by_limit)

    def _add(self, key: ClassKey, lengths: Iterable[float], seconds: Iterable[int], ended: int) -> None:
        kept = self._classes.get(key)
        if kept is None:
            kept = self._classes[key] = PastRuns()
            if len(self._classes) > self._classes_max:
                self._classes.popitem(last=False)
        else:
            self._classes.move_to_end(key)
        for length, each in zip(lengths, seconds, strict=True):
            kept.add(length, each, ended)

    def estimate(self, record: WorkloadRecord, running: OpenRuns | None = None) -> RunEstimate | None:
        """The estimate of a Workload, also by runs that have not ended yet; None if nothing is known [RT3]."""
        like = _likeness(record)
        kept = self._estimates if running is None else running.estimates
        found = kept.get((like, record.expected_seconds))
        if found is None:
            found = self._estimate(record, _classes(*like), running)
            if found is not None and len(kept) < _ESTIMATES_MAX:
                kept[like, record.expected_seconds] = found
        return found

    def _estimate(self, record: WorkloadRecord, classes: _Classes, running: OpenRuns | None) -> RunEstimate | None:
        expected, limit = record.expected_seconds, record.limit_seconds
        parts: list[tuple[float, float, _Steps]] = []
        source, runs, left = "", 0, 1.0
        for kept, factor, words in self._parts(record, classes):
            known = kept.count
            if not runs and known >= RUNS_MIN:
                source, runs = words % known, known
            weight = left * known / (known + WIDER_RUNS)
            parts.append((weight, factor, kept.steps() if running is None else running.steps(kept)))
            left -= weight
            if left < _LEFT_MIN:
                break
        if not runs:
            # No class has enough runs to be a source: a hint is, if there is one.
            source = "the expected time" if expected else "the limit" if limit else ""
            if not source:
                return None
        alike, correlation = "/".join(classes.like_it[0]), self._correlation.value
        hint = _hint(record)
        if hint is not None:
            if not parts:
                return RunEstimate(source, runs, _Conditional(_alone(record)), limit, alike, correlation)
            parts.append((left, *hint))
        else:
            parts = [(weight / (1.0 - left), factor, steps) for weight, factor, steps in parts]
        shift = self._shift if limit else self._shift.within(_SHIFT_MAX_UNLIMITED)
        return RunEstimate(source, runs, _Covering(RunMixture(tuple(parts)), shift), limit, alike, correlation)

    def _parts(self, record: WorkloadRecord, classes: _Classes) -> Iterator[tuple[PastRuns, float, str]]:
        """The classes of a Workload that have runs, the narrowest first, with the factors of their lengths, and what an
        estimate that comes from so many of their runs is called [RT3], [RT4]."""
        get, limit, expected = self._classes.get, record.limit_seconds, record.expected_seconds
        for key in classes.like_it:
            if (kept := get(key)) is not None:
                yield kept, 1.0, "%d runs like it"
        for key, in_limits in zip(classes.of_user, classes.of_user_limits, strict=True):
            if limit and (kept := get(in_limits)) is not None and kept.count >= RUNS_MIN:
                yield kept, float(limit), "the limit, and %d runs of the user"
            elif (kept := get(key)) is not None:
                yield kept, 1.0, "%d runs of the user"
        if expected:
            if (kept := get(classes.expected)) is not None and kept.count >= RUNS_MIN:
                yield kept, float(expected), "the expected time, and %d runs of the user"
        elif limit:
            if (kept := get(classes.limits)) is not None and kept.count >= RUNS_MIN:
                yield kept, float(limit), "the limit, and %d runs of the LocalQueue"
        else:
            for key, words in zip(classes.fallbacks, _OF_QUEUES, strict=False):
                if (kept := get(key)) is not None:
                    yield kept, 1.0, words

    def open_runs(self, runs: Iterable[tuple[WorkloadRecord, int]], now: int) -> OpenRuns:
        """The runs of Workloads that have not ended, with the seconds that each has lasted until now."""
        found = OpenRuns(now)
        for record, seconds in runs:
            self.add_open(found, record, seconds)
        return found

    def add_open(self, runs: OpenRuns, record: WorkloadRecord, seconds: int) -> None:
        """Add a run that has not ended to the others, with the seconds that it has lasted."""
        if seconds <= 0:
            return
        classes, limit = _classes(*_likeness(record)), record.limit_seconds
        lengths = dict.fromkeys(
            (*classes.like, *classes.like_with, *classes.of_user, *classes.fallbacks), float(seconds)
        )
        if record.expected_seconds:
            lengths[classes.expected] = seconds / record.expected_seconds
        if limit:
            lengths |= dict.fromkeys((*classes.of_user_limits, classes.limits), min(1.0, seconds / limit))
        for key, length in lengths.items():
            if (kept := self._classes.get(key)) is not None:
                runs.add(kept, length, runs.now - seconds)

    def snapshot(self) -> tuple[dict[ClassKey, Sequence[float]], LevelShift, float]:
        """Everything that was learned, to compare: the lengths of each class, negative for bounds, the shift of levels,
        and their correlation [RT-L4]."""
        return {key: kept.latest() for key, kept in self._classes.items()}, self._shift, self._correlation.value


def runs_of(record: WorkloadRecord) -> Iterator[Run]:
    """The runs of a record that has ended: one for each admission [RT6]. None if a time in it is only a bound."""
    for attempt in () if record.inexact else record.attempts:
        if attempt.admitted is None or attempt.released is None:
            continue
        seconds = attempt.released - attempt.admitted
        ended_itself = attempt.reason == FINISHED and record.outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
        by_limit = (
            record.outcome is Outcome.FAILED and record.limit_seconds is not None and seconds >= record.limit_seconds
        )
        yield Run(float(max(seconds, 1)), not ended_itself or by_limit)


class _Classes(NamedTuple):
    """The classes of a Workload."""

    # Runs like it, the narrowest first; those of them that had its limit, or none as it has none.
    like: tuple[ClassKey, ...]
    like_with: tuple[ClassKey, ...]
    # The same, as an estimate takes them: with its limit and without one, if it has a limit [RT4].
    like_it: tuple[ClassKey, ...]
    # All runs of its user in its LocalQueue, and as shares of their limits; none without a user.
    of_user: tuple[ClassKey, ...]
    of_user_limits: tuple[ClassKey, ...]
    # All runs of its LocalQueue, and of its ClusterQueue.
    fallbacks: tuple[ClassKey, ...]
    # Ratios to expected times of its user, and to limits in its LocalQueue.
    expected: ClassKey
    limits: ClassKey


# LocalQueue, name shape, user, pod sets, limit and ClusterQueue: what the classes of a Workload depend on.
_Likeness: TypeAlias = tuple[str, str, str, bytes, int | None, str]


def _likeness(record: WorkloadRecord) -> _Likeness:
    return (
        f"{record.namespace}/{record.queue}",
        name_shape(record.job),
        record.user,
        record.shape,
        record.limit_seconds,
        record.cluster_queue,
    )


@lru_cache(maxsize=4096)
def _classes(
    queue: str, name: str, user: str, pod_sets: bytes, limit_seconds: int | None, cluster_queue: str
) -> _Classes:
    """The classes of Workloads that are alike: such are submitted again and again."""
    limit = str(limit_seconds or "")
    shape = blake2b(pod_sets, digest_size=8).hexdigest()
    same, named = ("same", user, queue, name, shape), ("name", queue, name)
    # A program with another limit has other work.
    like_with = (*same, limit), (*named, limit)
    like_it: tuple[ClassKey, ...] = (same, named)
    if limit:
        like_it = like_with[0], (*same, ""), like_with[1], (*named, "")
    fallbacks = (("queue", queue), ("clusterqueue", cluster_queue)) if cluster_queue else (("queue", queue),)
    of_user, of_user_limits = ((("user", user, queue),), (("limit", "user", user, queue),)) if user else ((), ())
    expected, limits = ("expected", user), ("limit", queue)
    return _Classes((same, named), like_with, like_it, of_user, of_user_limits, fallbacks, expected, limits)


def _hint(record: WorkloadRecord) -> tuple[float, _Steps] | None:
    """The expected time or the limit as a factor, and the ratios to it that are taken without experience."""
    if record.expected_seconds:
        return float(record.expected_seconds), _RATIOS_EXPECTED
    return (float(record.limit_seconds), _RATIOS_LIMIT) if record.limit_seconds else None


def _alone(record: WorkloadRecord) -> Callable[[float], float]:
    """The distribution of a hint that no run changes."""
    if record.expected_seconds:
        return _AroundExpected(record.expected_seconds)
    assert record.limit_seconds, "it has a hint"
    return _BelowLimit(record.limit_seconds)


def _among(uid: str) -> float:
    """A number between 0 and 1 that depends on the Workload alone."""
    return (int.from_bytes(blake2b(uid.encode(), digest_size=7).digest()) + 0.5) / 2.0**56


_P90: Final = NormalDist().inv_cdf(0.9)


def _spread(share: float) -> float:
    """The ratio of actual to expected time without experience: P10 is a half, P90 twice [RT3]."""
    return float(2.0 ** (NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6)) / _P90))


# Values and not closures: estimates are sent to another process.


class _Covering(msgspec.Struct, frozen=True):
    """The quantile of a mixture at the level that covers the share."""

    mixture: RunMixture
    shift: LevelShift

    def __call__(self, share: float, elapsed: float) -> float:
        if self.shift == _NO_SHIFT:
            return self.mixture.quantile(share, elapsed)
        if elapsed <= 0.0:
            return self.mixture.quantile(self.shift.shifted(share))
        # Among the runs that are longer than `elapsed`: the share of all of them that is covered then.
        passed = 1.0 - self.mixture.survival(elapsed)
        covered = self.shift.covered(passed)
        level = max(self.shift.shifted(covered + (1.0 - covered) * share), passed)
        return self.mixture.quantile((level - passed) / (1.0 - passed) if passed < 1.0 else share, elapsed)


class _AroundExpected(msgspec.Struct, frozen=True):
    expected: float

    def __call__(self, share: float) -> float:
        return self.expected * _spread(share)


class _BelowLimit(msgspec.Struct, frozen=True):
    limit: float

    def __call__(self, share: float) -> float:
        return self.limit * (0.1 + 0.9 * share)


class _Conditional(msgspec.Struct, frozen=True):
    """The quantile of a continuous distribution, for a run that is longer than `elapsed` already."""

    inverse: Callable[[float], float]

    def __call__(self, share: float, elapsed: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(40 if elapsed > 0 else 0):  # the probability of a run that is not longer than elapsed
            middle = (low + high) / 2
            low, high = (middle, high) if self.inverse(middle) <= elapsed else (low, middle)
        return self.inverse(low + (1.0 - low) * share) if low < 1.0 - 1e-6 else elapsed / max(1.0 - share, 1e-9)


# Ten ratios for each hint, at the middles of the tenths.
_TENTHS: Final = tuple((tenth + 0.5) / 10 for tenth in range(10))
_RATIOS_EXPECTED: Final = _product_limit(map(_AroundExpected(1.0), _TENTHS))
_RATIOS_LIMIT: Final = _product_limit(map(_BelowLimit(1.0), _TENTHS))
