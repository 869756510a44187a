"""Laws of run-time estimates."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from history.lives import START
from pykueue.history.learning import Run, RunDistribution, RunTimes
from pykueue.history.queries import RecordFilter
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore

runs = st.lists(
    st.builds(Run, st.integers(1, 10**6).map(float), st.booleans()), min_size=1, max_size=64
).map(tuple)  # fmt: skip
shares = st.floats(0.0, 0.999)


@st.composite
def records(draw: st.DrawFn, uid: str = "", ended: int = 0) -> WorkloadRecord:
    """A record that has ended."""
    seconds = draw(st.integers(0, 100_000))
    outcome = draw(st.sampled_from([Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED]))
    reason = "Deleted" if outcome is Outcome.CANCELLED else "Finished"
    begin = START + ended - seconds
    segment = UsageSegment(begin, START + ended, ())
    return WorkloadRecord(
        uid=uid,
        namespace="ns",
        name="w",
        job_name=draw(st.sampled_from(["train", "test-1", "test-2"])),
        queue=draw(st.sampled_from(["one", "two"])),
        user=draw(st.sampled_from(["", "ana", "bob"])),
        submitted=begin,
        ended=START + ended,
        outcome=outcome,
        limit_seconds=draw(st.none() | st.integers(1, 100_000)),
        expected_seconds=draw(st.none() | st.integers(1, 100_000)),
        attempts=(Attempt(begin, "cq", begin, begin, START + ended, reason, segments=(segment,)),),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[WorkloadRecord]:
    return [draw(records(uid=str(number), ended=200_000 + number)) for number in range(draw(st.integers(0, 20)))]


def learned(past: list[WorkloadRecord]) -> RunTimes:
    found = RunTimes()
    for record in past:
        found.learn(record)
    return found


@given(histories(), records(), shares, st.integers(0, 200_000))
def test_no_quantile_exceeds_the_limit_and_each_exceeds_the_elapsed_time(
    past: list[WorkloadRecord], wanted: WorkloadRecord, share: float, elapsed: int
) -> None:
    """[RT-L1], [RT-L2]"""
    estimate = learned(past).estimate(wanted)
    if estimate is None:
        return
    found = estimate.quantile(share, elapsed)
    if wanted.limit_seconds is not None:
        assert found <= wanted.limit_seconds
    if wanted.limit_seconds is None or elapsed < wanted.limit_seconds:
        assert found > elapsed


@given(runs, shares, shares, st.floats(0, 10**6))
def test_quantiles_do_not_fall_when_the_probability_grows(
    given_runs: tuple[Run, ...], one: float, other: float, elapsed: float
) -> None:
    """[RT-L5]"""
    found = RunDistribution(given_runs)
    low, high = sorted((one, other))
    assert found.quantile(low, elapsed) <= found.quantile(high, elapsed) + 1e-9


@given(st.integers(1, 10**6), st.integers(5, 64), shares)
def test_after_runs_of_one_length_every_quantile_is_that_length(length: int, count: int, share: float) -> None:
    """[RT-L6]"""
    found = RunDistribution(tuple(Run(float(length)) for _ in range(count)))
    assert found.quantile(share) == length


@given(histories(), records(uid="new"))
def test_a_run_changes_only_the_classes_of_its_own_workload(past: list[WorkloadRecord], new: WorkloadRecord) -> None:
    """[RT-L3]"""
    times = learned(past)
    before = times.snapshot()
    times.learn(new)
    own = f"{new.namespace}/{new.queue}"
    for key, kept in times.snapshot().items():
        if kept != before.get(key):
            assert own in key or new.user in key or new.cluster_queue in key


@given(histories())
def test_run_times_rebuilt_from_the_history_equal_those_that_were_kept(past: list[WorkloadRecord]) -> None:
    """[RT-L4]"""
    with contextlib.closing(HistoryStore(None)) as store:
        store.save(past)
        assert len(store.select(RecordFilter())[0]) == len(past)
        assert learned(store.runs(1000)).snapshot() == learned(past).snapshot()
