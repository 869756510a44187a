"""Run-time estimates, learned from past runs.

A *limit* is a time after which a run is ended; an *estimate* is a distribution. They are never mixed [RT1]: an estimate
comes from runs that are like the Workload, from what its user expects, or, spread below it, from its limit.

A run that was evicted, cancelled or ended by its limit would have taken longer: it counts as a run of at least its
length, by the product-limit (Kaplan–Meier) estimate [RT6].
"""

from __future__ import annotations

import bisect
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from statistics import NormalDist
from typing import Final, NamedTuple, TypeAlias

import msgspec

from pykueue.core.name_shape import name_shape as name_shape
from pykueue.history.records import FINISHED, Outcome, WorkloadRecord

# A class needs so many runs to be used, and keeps so many [RT4].
RUNS_MIN: Final = 5
RUNS_KEPT: Final = 64
CLASSES_MAX: Final = 50_000

ClassKey: TypeAlias = tuple[str, ...]


class Run(NamedTuple):
    """A length, or a ratio of lengths; `is_bound` if the run would have taken longer."""

    value: float
    is_bound: bool = False


# --- Distributions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunDistribution:
    """The distribution of the lengths of runs, by the product-limit estimate.

    Beyond the longest run the survival falls as longest / t: a run that is longer than all examples is expected to take
    as long again [RT7]."""

    runs: tuple[Run, ...]

    @cached_property
    def _steps(self) -> tuple[list[float], list[float]]:
        """The lengths at which runs ended, and the share of runs that are longer."""
        ordered = sorted(self.runs)
        times: list[float] = []
        survival: list[float] = []
        left, share = len(ordered), 1.0
        for value, is_bound in ordered:
            if not is_bound:
                share *= (left - 1) / left
                if times and times[-1] == value:
                    survival[-1] = share
                else:
                    times.append(value)
                    survival.append(share)
            left -= 1
        return times, survival

    @cached_property
    def longest(self) -> float:
        return max(run.value for run in self.runs)

    def survival(self, length: float) -> float:
        """The share of runs that are longer, up to the longest example."""
        times, shares = self._steps
        place = bisect.bisect_right(times, length)
        return shares[place - 1] if place else 1.0

    def quantile(self, share: float, elapsed: float = 0.0) -> float:
        """The length that a share of the runs that are longer than `elapsed` does not exceed."""
        left = self.survival(elapsed)
        times, shares = self._steps
        longest = max(self.longest, elapsed)
        if left <= 0.0 or elapsed >= self.longest:
            # No example is as long as this run is already.
            return longest / max(1.0 - share, 1e-9)
        wanted = left * (1.0 - share)
        # Rounding must not skip the step that reaches exactly the wanted share.
        for time, survives in zip(times, shares, strict=True):
            if time > elapsed and survives <= wanted + 1e-12:
                return time
        # The longest runs were ended: all that is known is that they would have taken longer.
        last = shares[-1] if shares else 1.0
        return longest * last / max(wanted, 1e-9)


class RunEstimate(msgspec.Struct, frozen=True):
    """How long a Workload will run: a distribution, never beyond the limit; and where it comes from."""

    source: str
    # The past runs that it rests on; 0 for one that rests on a hint alone.
    runs: int
    length: Callable[[float, float], float]
    limit_seconds: int | None = None

    def quantile(self, share: float, elapsed_seconds: int = 0) -> int:
        """The seconds that the whole run takes at most, with this probability, after it has run for some already."""
        found = max(round(self.length(share, float(elapsed_seconds))), elapsed_seconds + 1)
        return found if self.limit_seconds is None else min(found, self.limit_seconds)


# --- Learning ---------------------------------------------------------------------------------------------------------


class RunTimes:
    """The runs of each class, learned from records in the order of their ends."""

    def __init__(self, classes_max: int = CLASSES_MAX) -> None:
        self._classes: OrderedDict[ClassKey, deque[Run]] = OrderedDict()
        self._classes_max = classes_max

    def learn(self, record: WorkloadRecord) -> None:
        """Add the runs of a record that has ended."""
        found = list(runs_of(record))
        if not found:
            return
        for key in (*_like(record), *_of_user_in_queue(record), *_fallbacks(record)):
            self._add(key, found)
        last = found[-1]
        if record.expected_seconds:
            self._add(_of_user(record), [Run(last.value / record.expected_seconds, last.is_bound)])
        if record.limit_seconds:
            # A run that its limit ended took all of it.
            for key in (_of_limits(record), *map(_limits_in, _of_user_in_queue(record))):
                self._add(key, [Run(min(1.0, last.value / record.limit_seconds))])

    def _add(self, key: ClassKey, runs: Iterable[Run]) -> None:
        kept = self._classes.get(key)
        if kept is None:
            kept = self._classes[key] = deque(maxlen=RUNS_KEPT)
        kept.extend(runs)
        self._classes.move_to_end(key)
        if len(self._classes) > self._classes_max:
            self._classes.popitem(last=False)

    def estimate(self, record: WorkloadRecord) -> RunEstimate | None:
        """The estimate of a Workload; None if nothing is known [RT3]."""
        limit = record.limit_seconds
        for key in _like(record):
            if (known := self._enough(key)) is not None:
                return RunEstimate(f"{len(known.runs)} runs like it", len(known.runs), known.quantile, limit)
        for key in _of_user_in_queue(record):
            if limit and (ratios := self._enough(_limits_in(key))) is not None:
                source = f"the limit, and {len(ratios.runs)} runs of the user"
                return RunEstimate(source, len(ratios.runs), _Scaled(ratios, limit), limit)
            if (known := self._enough(key)) is not None:
                return RunEstimate(f"{len(known.runs)} runs of the user", len(known.runs), known.quantile, limit)
        if record.expected_seconds:
            return self._expected(record, record.expected_seconds)
        if limit:
            return self._limited(record, limit)
        for key, word in zip(_fallbacks(record), ("the LocalQueue", "the ClusterQueue"), strict=False):
            if (known := self._enough(key)) is not None:
                return RunEstimate(f"{len(known.runs)} runs of {word}", len(known.runs), known.quantile, limit)
        return None

    def _expected(self, record: WorkloadRecord, expected: int) -> RunEstimate:
        ratios = self._enough(_of_user(record))
        if ratios is None:
            return RunEstimate("the expected time", 0, _Conditional(_AroundExpected(expected)), record.limit_seconds)
        source = f"the expected time, and {len(ratios.runs)} runs of the user"
        return RunEstimate(source, len(ratios.runs), _Scaled(ratios, expected), record.limit_seconds)

    def _limited(self, record: WorkloadRecord, limit: int) -> RunEstimate:
        ratios = self._enough(_of_limits(record))
        if ratios is None:
            return RunEstimate("the limit", 0, _Conditional(_BelowLimit(limit)), limit)
        source = f"the limit, and {len(ratios.runs)} runs of the LocalQueue"
        return RunEstimate(source, len(ratios.runs), _Scaled(ratios, limit), limit)

    def _enough(self, key: ClassKey) -> RunDistribution | None:
        found = self._classes.get(key)
        return RunDistribution(tuple(found)) if found is not None and len(found) >= RUNS_MIN else None

    def snapshot(self) -> dict[ClassKey, tuple[Run, ...]]:
        """Everything that was learned, to compare [RT-L4]."""
        return {key: tuple(runs) for key, runs in self._classes.items()}


def runs_of(record: WorkloadRecord) -> Iterator[Run]:
    """The runs of a record that has ended: one for each admission [RT6]."""
    for attempt in record.attempts:
        if attempt.admitted is None or attempt.released is None:
            continue
        seconds = attempt.released - attempt.admitted
        ended_itself = attempt.reason == FINISHED and record.outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
        by_limit = (
            record.outcome is Outcome.FAILED and record.limit_seconds is not None and seconds >= record.limit_seconds
        )
        yield Run(float(max(seconds, 1)), not ended_itself or by_limit)


def _like(record: WorkloadRecord) -> tuple[ClassKey, ...]:
    """The classes of runs like it, the narrowest first [RT4]."""
    queue, name = f"{record.namespace}/{record.queue}", name_shape(record.job)
    shape = blake2b(record.shape, digest_size=8).hexdigest()
    return ("same", record.user, queue, name, shape), ("name", queue, name)


def _of_user_in_queue(record: WorkloadRecord) -> tuple[ClassKey, ...]:
    """The class of all runs of a user in a LocalQueue."""
    return (("user", record.user, f"{record.namespace}/{record.queue}"),) if record.user else ()


def _limits_in(key: ClassKey) -> ClassKey:
    """The class of the same runs as shares of their limits."""
    return ("limit", *key)


def _fallbacks(record: WorkloadRecord) -> tuple[ClassKey, ...]:
    cluster_queue = ("clusterqueue", record.cluster_queue)
    return (("queue", f"{record.namespace}/{record.queue}"), *((cluster_queue,) if record.cluster_queue else ()))


def _of_user(record: WorkloadRecord) -> ClassKey:
    return ("expected", record.user)


def _of_limits(record: WorkloadRecord) -> ClassKey:
    return ("limit", f"{record.namespace}/{record.queue}")


_P90: Final = NormalDist().inv_cdf(0.9)


def _spread(share: float) -> float:
    """The ratio of actual to expected time without experience: P10 is a half, P90 twice [RT3]."""
    return float(2.0 ** (NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6)) / _P90))


# Values and not closures: estimates are sent to another process.


class _Scaled(msgspec.Struct, frozen=True):
    """The quantile of a length whose ratios to a known length are known."""

    ratios: RunDistribution
    length: float

    def __call__(self, share: float, elapsed: float) -> float:
        return self.length * self.ratios.quantile(share, elapsed / self.length)


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
