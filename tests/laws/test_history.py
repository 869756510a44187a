"""Laws of the history: whatever happens to a Workload, its record adds up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from history.lives import START, Life
from pykueue.api import kueue
from pykueue.history import documents, records, rollups, swf
from pykueue.history.queries import RecordFilter
from pykueue.history.records import Seconds, WorkloadRecord
from pykueue.history.store import HistoryStore
from pykueue.lifecycle import states

PODS = 4


@dataclass(frozen=True)
class Seen:
    """A state, and when it was seen."""

    workload: kueue.Workload
    at: Seconds


@st.composite
def lives(draw: st.DrawFn, *, jumps: bool = False, uid: str = "a") -> list[Seen]:
    """The states of a Workload that is reserved, admitted, shrunk, evicted and finished in any order that is legal.

    With `jumps` the clock is set back and forth in between."""
    life, now, seen = Life(PODS, uid=uid), 0, []
    seen.append(Seen(life.workload, START))
    reclaimed = [0]  # how many pods are done, in a cell that the moves share
    for _ in range(draw(st.integers(0, 12))):
        now += draw(st.integers(-4000, 4000) if jumps else st.integers(0, 5000))
        state = states.state(life.workload)
        moves: dict[states.State, list[Callable[[int], kueue.Workload]]] = {
            states.State.PENDING: [life.reserved, life.started, lambda at: life.touched()],
            states.State.RESERVED: [life.admitted, life.evicted, life.released],
            states.State.ADMITTED: [life.evicted, life.finished, lambda at: life.reclaimable(reclaimed[0])],
            states.State.EVICTED: [life.released, life.finished],
            states.State.FINISHED: [lambda at: life.touched()],
        }
        if state is states.State.ADMITTED:
            reclaimed[0] = min(PODS - 1, reclaimed[0] + draw(st.integers(0, 1)))
        seen.append(Seen(draw(st.sampled_from(moves[state]))(now), START + now))
    return seen


def fold(life: list[Seen], record: WorkloadRecord | None = None) -> WorkloadRecord:
    for each in life:
        record = records.observe(record, each.workload, each.at)
    assert record is not None
    return record


def holds(workload: kueue.Workload) -> int:
    """What a Workload has reserved, as the API shows it: an independent reading."""
    if not states.is_reserved(workload) or states.is_finished(workload) or workload.status.admission is None:
        return 0
    done = sum(pod.count for pod in workload.status.reclaimable_pods)
    (assigned,) = workload.status.admission.pod_set_assignments
    return 1000 * max(0, (assigned.count or 0) - done)


@given(lives(), st.integers(0, 5000))
def test_segments_sum_to_the_usage_that_the_api_showed(life: list[Seen], more: int) -> None:
    """[HI-L2]"""
    record, end = fold(life), life[-1].at + more
    shown = sum(
        holds(each.workload) * (following - each.at)
        for each, following in zip(life, [*(each.at for each in life[1:]), end], strict=True)
    )
    recorded = sum(
        amount * ((end if segment.end is None else segment.end) - segment.start)
        for attempt in record.attempts
        for segment in attempt.segments
        for _, _, amount in segment.amounts
    )
    assert recorded == shown


@given(lives(), st.integers(0, 5000))
def test_waiting_and_running_equal_those_of_the_states(life: list[Seen], more: int) -> None:
    """[HI-L1]: a Workload runs while it is admitted and holds quota. Before that, and after a release, it waits."""
    record, end = fold(life), life[-1].at + more
    ran = waited = 0
    for each, following in zip(life, [*(each.at for each in life[1:]), end], strict=True):
        state, length = states.state(each.workload), following - each.at
        is_running = state is states.State.ADMITTED or (
            state is states.State.EVICTED and states.is_admitted(each.workload)
        )
        ran += length if is_running else 0
        waited += length if not is_running and state is not states.State.FINISHED else 0
    assert (record.ran(end), record.waited(end)) == (ran, waited)


@given(lives(jumps=True))
def test_attempts_do_not_overlap_and_lie_inside_their_record(life: list[Seen]) -> None:
    """[HI-L3], also with a clock that jumps."""
    record = fold(life)
    last = record.submitted
    for attempt in record.attempts:
        assert attempt.reserved >= last
        at = attempt.reserved
        for segment in attempt.segments:
            assert segment.start >= at
            assert segment.end is None or segment.end >= segment.start
            at = segment.start if segment.end is None else segment.end
        assert attempt.admitted is None or attempt.admitted >= attempt.reserved
        assert (attempt.released is None) == (attempt.segments[-1].end is None)
        if attempt.released is not None:
            assert attempt.released == attempt.segments[-1].end
            last = attempt.released
    assert record.ended is None or record.ended >= last
    assert record.waited(START) >= 0
    assert record.ran(START) >= 0


@given(lives(jumps=True), st.data())
def test_a_restart_at_any_point_and_repeated_states_change_nothing(life: list[Seen], data: st.DataObject) -> None:
    """[HI-L4]: what was stored is read again, with the states before it and after it."""
    with contextlib.closing(HistoryStore(None)) as store:
        stop = data.draw(st.integers(1, len(life)))
        store.save([fold(life[:stop])])
        (again,) = store.select(RecordFilter())[0]
        start = data.draw(st.integers(0, stop))
        assert fold(life[start:], again) == fold(life)
        store.save([fold(life)])
        store.save([fold(life)])
        assert store.select(RecordFilter())[0] == [fold(life)]


@given(st.data())
def test_usage_by_day_equals_the_sum_of_the_records(data: st.DataObject) -> None:
    """[HI-L5]: after any order of versions, deletions by retention and replaced names."""
    with contextlib.closing(HistoryStore(None)) as store:
        several = [data.draw(lives(uid=uid), label=uid) for uid in "abc"]
        everything: dict[str, WorkloadRecord] = {}
        for _ in range(data.draw(st.integers(1, 6))):
            life = data.draw(st.sampled_from(several))
            record = fold(life[: data.draw(st.integers(1, len(life)))])
            if record.revision > getattr(everything.get(record.uid), "revision", 0):
                everything[record.uid] = record
                store.save([record])
        wanted = rollups.total(everything.values())
        now = START + 10**6
        closed = store.usage(RecordFilter(), now)
        for record in everything.values():
            for key, amount in rollups.running(record, now).items():
                closed[key] -= amount
        assert {key: amount for key, amount in closed.items() if amount} == wanted
        assert store.check() == []
        store.purge(START + data.draw(st.integers(0, 50_000)))
        assert store.check() == []


@given(lives())
def test_swf_out_and_in_has_the_same_waiting_and_running(life: list[Seen]) -> None:
    """[HI-L6]"""
    record = fold(life)
    shown = documents.record_document(record, life[-1].at)
    jobs = swf.read(swf.trace([shown]).text, "trace").jobs
    if record.ended is None:
        assert jobs == ()
        return
    (job,) = jobs
    ran = [a for a in record.attempts if a.admitted is not None]
    assert job.waited == (-1 if record.started is None else record.started - record.submitted)
    assert job.ran == ((ran[-1].released or 0) - (ran[-1].admitted or 0) if ran else -1)
    assert job.requested_processors == PODS


@given(lives(jumps=True))
def test_an_older_state_is_ignored_wherever_it_arrives(life: list[Seen]) -> None:
    record = fold(life)
    for each in life:
        assert records.observe(record, each.workload, each.at + 10**6) is record
