"""Our registry beside prometheus_client: the same series have the same text, byte for byte."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import prometheus_client
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kubemachinery.metrics import (
    CounterFamily,
    GaugeFamily,
    HistogramFamily,
    MetricRegistry,
    MetricType,
    ReadFamily,
    number,
)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Family(NamedTuple):
    """A metric, and what happens to its series: the values of the labels, and a number; None removes the series."""

    name: str
    help: str
    type: MetricType
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    events: tuple[tuple[tuple[str, ...], float | None], ...]


# --- Any series -------------------------------------------------------------------------------------------------------

_CHARACTERS = st.characters(exclude_categories=["Cs"])
_TEXTS = st.text(st.one_of(st.sampled_from('\\"\n{}%,= '), _CHARACTERS), max_size=8)
# Few values, so that the same series is changed several times and removed.
_VALUES = st.one_of(st.sampled_from(["a", "b", ""]), _TEXTS)
_LABELS = st.from_regex(r"\A[a-z][a-zA-Z0-9_]{0,5}\Z").filter(lambda name: name != "le")
_COUNTS = st.one_of(st.integers(0, 10**7), st.floats(0, allow_nan=False))
_NUMBERS = st.one_of(st.integers(-(10**18), 10**18), st.floats())
_OBSERVED = st.one_of(st.integers(-5, 10**7), st.floats(allow_nan=False))
_BUCKETS = st.lists(st.floats(0, 1e9), min_size=1, max_size=5, unique=True).map(sorted).map(tuple)
_AMOUNTS = {MetricType.COUNTER: _COUNTS, MetricType.GAUGE: _NUMBERS, MetricType.HISTOGRAM: _OBSERVED}


@st.composite
def families(draw: st.DrawFn, types: Sequence[MetricType] = tuple(MetricType)) -> list[Family]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        type_ = draw(st.sampled_from(types))
        labels = tuple(draw(st.lists(_LABELS, min_size=1, max_size=4, unique=True)))
        values = st.tuples(*(_VALUES for _ in labels))
        events = draw(st.lists(st.tuples(values, st.none() | _AMOUNTS[type_]), max_size=12))
        name = f"family{draw(st.sampled_from('zyx'))}_{index}" + ("_total" if type_ is MetricType.COUNTER else "")
        found.append(Family(name, draw(_TEXTS), type_, labels, draw(_BUCKETS), tuple(events)))
    return found


def text(registry: MetricRegistry) -> bytes:
    return "".join(registry.pieces()).encode()


def ours(rows: Iterable[Family]) -> bytes:
    registry = MetricRegistry()
    for row in rows:
        family: Any
        if row.type is MetricType.HISTOGRAM:
            family = registry.add(HistogramFamily(row.name, row.help, row.labels, row.buckets))
        else:
            kind = CounterFamily if row.type is MetricType.COUNTER else GaugeFamily
            family = registry.add(kind(row.name, row.help, row.labels))
        for values, amount in row.events:
            if amount is None:
                family.forget(**dict(zip(row.labels, values, strict=True)))
            else:
                _change(family[values], row.type, amount)
    return text(registry)


def theirs(rows: Iterable[Family]) -> bytes:
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    for row in rows:
        family: Any
        if row.type is MetricType.HISTOGRAM:
            family = prometheus_client.Histogram(row.name, row.help, row.labels, buckets=row.buckets, registry=registry)
        else:
            kind = prometheus_client.Counter if row.type is MetricType.COUNTER else prometheus_client.Gauge
            family = kind(row.name, row.help, row.labels, registry=registry)
        for values, amount in row.events:
            if amount is None:
                family.remove(*values)
            else:
                _change(family.labels(*values), row.type, amount)
    return prometheus_client.generate_latest(registry)


def _change(series: Any, type_: MetricType, amount: float) -> None:
    if type_ is MetricType.COUNTER:
        series.inc(amount)
    elif type_ is MetricType.GAUGE:
        series.set(amount)
    else:
        series.observe(amount)


@given(families())
@example([Family("escapes", 'back\\slash\n"', MetricType.GAUGE, ("b", "a"), (), ((('"\\\n', "{0}"), 1),))])
@example([Family("between", "", MetricType.HISTOGRAM, ("z", "a"), (1.0, 2.5), ((("x", "y"), 1.0), (("x", "y"), 9)))])
@example([Family("bound_zero", "", MetricType.HISTOGRAM, ("z",), (0.0, 1e6), ((("x",), -1), (("x",), 5e6)))])
def test_counted_families_have_the_text_of_prometheus_client(rows: list[Family]) -> None:
    assert ours(rows) == theirs(rows)


@given(families([MetricType.COUNTER, MetricType.GAUGE]))
def test_read_families_have_the_text_of_prometheus_client(rows: list[Family]) -> None:
    samples = [[(values, amount) for values, amount in row.events if amount is not None] for row in rows]
    registry = MetricRegistry()
    registry.add_reader(
        lambda: [
            ReadFamily(row.name, row.help, row.type, row.labels, read) for row, read in zip(rows, samples, strict=True)
        ]
    )

    class Read(Collector):
        def collect(self) -> Iterator[Any]:
            for row, read in zip(rows, samples, strict=True):
                make = CounterMetricFamily if row.type is MetricType.COUNTER else GaugeMetricFamily
                family = make(row.name, row.help, labels=row.labels)
                for values, amount in read:
                    family.add_metric(values, amount)
                yield family

    beside = prometheus_client.CollectorRegistry(auto_describe=False)
    beside.register(Read())
    assert text(registry) == prometheus_client.generate_latest(beside)


@given(st.one_of(_NUMBERS, st.integers(-(10**7), 10**7), st.floats(1e5, 1e17)))
@example(-0.0)
@example(999_999)
@example(1_000_000)
@example(1234567.5)
@example(-1234567.5)
@example(1e16)
@example(1e-7)
@example(True)
def test_numbers_have_the_text_of_prometheus_client(value: float) -> None:
    assert number(value) == floatToGoString(value)  # type: ignore[no-untyped-call]


def test_buckets_with_a_million_observations_have_exponents() -> None:
    registry = MetricRegistry()
    family = registry.add(HistogramFamily("h", "", ("queue",), (1.0, 2.0)))
    family["a",].counts[:] = [5, 1_499_995, 0]
    series = dict(line.split(" ") for line in text(registry).decode().splitlines() if not line.startswith("#"))
    assert series == {
        'h_bucket{le="1.0",queue="a"}': "5.0",
        'h_bucket{le="2.0",queue="a"}': "1.5e+06",
        'h_bucket{le="+Inf",queue="a"}': "1.5e+06",
        'h_count{queue="a"}': "1.5e+06",
        'h_sum{queue="a"}': "0.0",
    }


# --- Turns ------------------------------------------------------------------------------------------------------------


def test_series_may_be_added_changed_and_removed_between_pieces() -> None:
    registry = MetricRegistry()
    family = registry.add(HistogramFamily("h", "", ("queue",), (1.0,)))
    for index in range(1000):
        family[f"q{index}",].observe(0.5)
    found = []
    for turn, piece in enumerate(registry.pieces()):
        found.append(piece)
        family.forget(queue=f"q{2 * turn}")
        family.forget(queue=f"q{2 * turn + 1}")
        family[f"new{turn}",].observe(0.5)
        family["q999",].observe(2.0)
    assert len(found) > 5
    values = dict(line.split(" ") for line in "".join(found).splitlines() if not line.startswith("#"))
    # The first piece is the head. The series are those that there were after it.
    assert [name for name in values if "_count" in name] == [
        f'h_count{{queue="{queue}"}}' for queue in (*(f"q{index}" for index in range(2, 1000)), "new0")
    ]
    # The last series was rendered late, with what was observed until then, and its lines agree.
    assert float(values['h_count{queue="q999"}']) > 5
    assert values['h_count{queue="q999"}'] == values['h_bucket{le="+Inf",queue="q999"}']


def test_samples_are_read_when_their_text_is_asked_for() -> None:
    registry, state = MetricRegistry(), {"a": 1.0, "b": 1.0}

    def samples() -> Iterator[tuple[tuple[str, ...], float] | None]:
        for key in "ab":
            yield None
            yield (key,), state[key]

    def read() -> Iterator[ReadFamily]:
        for name in ("first", "second"):
            yield ReadFamily(name, "", MetricType.GAUGE, ("key",), samples())

    registry.add_reader(read)
    pieces = registry.pieces()
    assert next(pieces).startswith("# HELP first")
    assert next(pieces) == "", "a piece without a sample, where reading takes long"
    assert next(pieces) == 'first{key="a"} 1.0\n', "a piece ends there"
    state.update(a=2.0, b=2.0)
    rest = "".join(pieces)
    assert 'first{key="b"} 2.0\n' in rest
    assert 'second{key="a"} 2.0\n' in rest


# --- Broken invariants ------------------------------------------------------------------------------------------------


def test_forget_keeps_metrics_without_the_labels() -> None:
    family = CounterFamily("a_total", "", ("queue",))
    family["x",].inc()
    family.forget(queue="x", namespace="y")
    assert family["x",].value == 1
    family.forget(queue="x")
    assert family["x",].value == 0


@pytest.mark.parametrize(
    "build",
    [
        lambda: CounterFamily("without_suffix", "", ("a",)),
        lambda: GaugeFamily("with space", "", ("a",)),
        lambda: GaugeFamily("a", "", ()),
        lambda: GaugeFamily("a", "", ("b", "b")),
        lambda: GaugeFamily("a", "", ("{b}",)),
        lambda: GaugeFamily("a", "", ("__b",)),
        lambda: HistogramFamily("a", "", ("le",), (1.0,)),
        lambda: HistogramFamily("a", "", ("b",), ()),
        lambda: HistogramFamily("a", "", ("b",), (2.0, 1.0)),
        lambda: HistogramFamily("a", "", ("b",), (1.0, 1.0)),
        lambda: HistogramFamily("a", "", ("b",), (-1.0, 1.0)),
        lambda: HistogramFamily("a", "", ("b",), (1.0, math.inf)),
        lambda: GaugeFamily("a", "", ("b",))["x", "y"],
        lambda: CounterFamily("a_total", "", ("b",))["x",].inc(-1),
    ],
)
def test_metrics_that_have_no_text_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        build()
