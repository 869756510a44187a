"""Counters, gauges and histograms, and their text for Prometheus (format 0.0.4).

    registry = MetricRegistry()
    admissions = registry.add(CounterFamily("admissions_total", "Admissions.", ("queue",)))
    admissions["main",].inc()
    registry.add_reader(lambda: [ReadFamily("depth", "Pending.", MetricType.GAUGE, ("queue",), [(("main",), 3)])])
    b"".join(piece.encode() for piece in registry.pieces())

One thread changes series and renders them, so series have no locks. `MetricRegistry.pieces` may be consumed in turns
(`kubemachinery.turns`): between two pieces, series may be added, changed and removed. A series is always within one
piece, therefore the buckets of a histogram agree with its sum.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

# The values of the labels of a series, in the order of the family's labels.
Labels: TypeAlias = tuple[str, ...]

# How many series are rendered at once: half a millisecond for histograms of 17 buckets.
_PIECE: Final = 100
# Samples that are read are rendered in smaller pieces: reading one may take as long as rendering many.
_READ_PIECE: Final = 10
# From here on, numbers have an exponent, as those that Go writes.
_MILLION: Final = 1_000_000
_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_LE: Final = "le"

S = TypeVar("S")
F = TypeVar("F", bound="_Rendered")


class MetricType(StrEnum):
    """The types of Prometheus metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


# --- Series -----------------------------------------------------------------------------------------------------------


class Counter:
    """A series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        if amount < 0:
            raise ValueError(f"a counter cannot be decreased by {-amount}")
        self.value += amount


class Gauge:
    """A series that is set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    """Observations counted by bucket. `counts` has one more than there are bounds, for what is above the last."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value, which is not NaN, in the bucket with the lowest bound that is not below it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


# --- Families ---------------------------------------------------------------------------------------------------------

V = TypeVar("V", bound=Counter | Gauge)


class _Rendered(Protocol):
    def pieces(self) -> Iterator[str]:
        """Return the text in pieces; see `MetricRegistry.pieces`."""


class _Family(Generic[S]):
    """All series of one metric, by the values of their labels, in the order of their creation."""

    def __init__(self, name: str, help: str, type: MetricType, labels: Labels, new: Callable[[], S]) -> None:
        self._name = name
        self._labels = labels
        self._new = new
        self._head = _head(name, help, type, labels)
        self._series: dict[Labels, S] = {}

    def __getitem__(self, values: Labels) -> S:
        """Return the series with these values of the labels; a new one if there is none."""
        found = self._series.get(values)
        if found is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {self._labels}, not values for {len(values)}: {values}")
            found = self._series[values] = self._new()
        return found

    def forget(self, **labels: str) -> None:
        """Drop the series that have all of these labels, where the metric has them."""
        places = [(self._labels.index(name), value) for name, value in labels.items() if name in self._labels]
        if len(places) < len(labels):
            return
        for values in [one for one in self._series if all(one[place] == value for place, value in places)]:
            del self._series[values]

    def pieces(self) -> Iterator[str]:
        yield self._head
        # A copy, because series may be added and removed between two pieces.
        series = list(self._series.items())
        for start in range(0, len(series), _PIECE):
            yield "".join([self._text(values, one) for values, one in series[start : start + _PIECE]])

    def _text(self, values: Labels, series: S) -> str:
        raise NotImplementedError


class _ValueFamily(_Family[V]):
    """The series of a metric that has one value for each."""

    def __init__(self, name: str, help: str, type: MetricType, labels: Labels, new: Callable[[], V]) -> None:
        super().__init__(name, help, type, labels, new)
        self._template = _template(name, labels)

    def _text(self, values: Labels, series: V) -> str:
        return f"{self._template.format(*_escaped(values))} {number(series.value)}\n"


class CounterFamily(_ValueFamily[Counter]):
    """The series of a counter. Its name ends in `_total`."""

    def __init__(self, name: str, help: str, labels: Labels) -> None:
        super().__init__(name, help, MetricType.COUNTER, labels, Counter)


class GaugeFamily(_ValueFamily[Gauge]):
    """The series of a gauge."""

    def __init__(self, name: str, help: str, labels: Labels) -> None:
        super().__init__(name, help, MetricType.GAUGE, labels, Gauge)


class HistogramFamily(_Family[Histogram]):
    """The series of a histogram. `buckets` are the upper bounds in ascending order, without infinity."""

    def __init__(self, name: str, help: str, labels: Labels, buckets: Sequence[float]) -> None:
        bounds = tuple(buckets)
        super().__init__(name, help, MetricType.HISTOGRAM, labels, lambda: Histogram(bounds))
        if _LE in labels:
            raise ValueError(f"{name}: the label {_LE} is that of the buckets")
        if not buckets or list(buckets) != sorted(set(buckets)) or buckets[0] < 0 or math.isinf(buckets[-1]):
            raise ValueError(f"{name}: the bounds of buckets ascend from 0 or more and are finite, unlike {buckets}")
        self._bounds = [number(bound) for bound in (*buckets, math.inf)]
        # The bound of a bucket is between these two, because labels are sorted by name.
        bucket = _template(f"{name}_bucket", (*labels, _LE))
        self._before, _, self._after = bucket.partition(f"{{{len(labels)}}}")
        self._template = _template("", labels)

    def _text(self, values: Labels, series: Histogram) -> str:
        escaped = _escaped(values)
        before, after = self._before.format(*escaped), self._after.format(*escaped)
        totals = list(accumulate(series.counts))
        count = number(totals[-1])
        if totals[-1] < _MILLION:  # then no bucket needs an exponent
            lines = [f"{before}{bound}{after} {total}.0\n" for bound, total in zip(self._bounds, totals, strict=True)]
        else:
            lines = [
                f"{before}{bound}{after} {number(total)}\n" for bound, total in zip(self._bounds, totals, strict=True)
            ]
        labels = self._template.format(*escaped)
        lines.append(f"{self._name}_count{labels} {count}\n{self._name}_sum{labels} {number(series.sum)}\n")
        return "".join(lines)


class ReadFamily:
    """The samples of a counter or gauge that is read for each scrape: the values of the labels, and the value.

    Samples are read while they are rendered. None among them is no sample: it ends a piece where reading takes long.
    """

    def __init__(
        self, name: str, help: str, type: MetricType, labels: Labels, samples: Iterable[tuple[Labels, float] | None]
    ) -> None:
        self._head = _head(name, help, type, labels)
        self._template = _template(name, labels)
        self._samples = samples

    def pieces(self) -> Iterator[str]:
        yield self._head
        write = self._template.format
        lines: list[str] = []
        for sample in self._samples:
            if sample is not None:
                values, value = sample
                lines.append(f"{write(*_escaped(values))} {number(value)}\n")
            if sample is None or len(lines) == _READ_PIECE:
                yield "".join(lines)
                lines.clear()
        yield "".join(lines)


# Reads families from the state of the program.
Reader: TypeAlias = Callable[[], Iterable[ReadFamily]]


class MetricRegistry:
    """All families of a program, in the order in which they were added, and then those that are read."""

    def __init__(self) -> None:
        self._families: list[_Rendered] = []
        self._readers: list[Reader] = []

    def add(self, family: F) -> F:
        self._families.append(family)
        return family

    def add_reader(self, reader: Reader) -> None:
        self._readers.append(reader)

    def pieces(self) -> Iterator[str]:
        """Return the text of all families in pieces. Each takes about a millisecond at most, as far as those who read
        samples see to it."""
        for family in self._families:
            yield from family.pieces()
        for reader in self._readers:
            for read in reader():
                yield from read.pieces()


# --- Text -------------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number as Go writes it: `1.0`, `1.5e+06`, `+Inf`, `NaN`. Negative numbers and those from 1e16 on are
    written as in Python, which every reader of the format accepts."""
    if type(value) is int and -_MILLION < value < _MILLION:
        return f"{value}.0"
    value = float(value)
    text = repr(value)
    if -_MILLION < value < _MILLION:
        return text
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    whole, point, fraction = text.partition(".")
    if value < 0 or not point or len(whole) <= 1:
        return text
    digits = (whole + fraction).rstrip("0")
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e+{len(whole) - 1:02}"


def _head(name: str, help: str, type: MetricType, labels: Labels) -> str:
    """Return the lines before the series of a metric."""
    if not _METRIC_NAME.fullmatch(name) or (type is MetricType.COUNTER and not name.endswith("_total")):
        raise ValueError(f"{name!r} is no name for a {type}")
    if not labels or len(set(labels)) < len(labels) or not all(map(_LABEL_NAME.fullmatch, labels)):
        raise ValueError(f"{name}: a metric has at least one label, each of another name, unlike {labels}")
    escaped = help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped}\n# TYPE {name} {type}\n"


def _template(name: str, labels: Labels) -> str:
    """Return the format of a series, whose arguments are the values of the labels; the labels are sorted by name."""
    pairs = ",".join(f'{label}="{{{labels.index(label)}}}"' for label in sorted(labels))
    return f"{name}{{{{{pairs}}}}}"


def _escaped(values: Labels) -> Labels:
    text = "".join(values)
    if "\\" in text or '"' in text or "\n" in text:
        return tuple(value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for value in values)
    return values
