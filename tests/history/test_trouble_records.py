"""The records of troubles [LG9]: when they begin and end, what a restart leaves, and how they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pykueue.history.queries import RecordFilter
from pykueue.history.store import HistoryStore
from pykueue.history.trouble_records import GONE_SECONDS, TroubleLog, TroubleRecord

AT = 1_800_000_000


def trouble(name: str = "w", *, at: int = AT, type_: str = "Starving", message: str = "waits") -> TroubleRecord:
    return TroubleRecord(
        type=type_,
        namespace="ns",
        name=name,
        job=name,
        queue="lq",
        cluster_queue="cq",
        since=at - 100,
        found=at,
        message=message,
    )


# --- What begins and ends -------------------------------------------------------------------------------------------


def test_trouble_that_is_not_found_for_a_minute_ends_where_it_was_missed_first() -> None:
    log = TroubleLog()
    assert log.compare([trouble()], AT) == [trouble()]
    assert log.compare([trouble(at=AT + 60, message="still waits")], AT + 60) == []
    assert log.compare([], AT + 120) == []
    assert log.compare([], AT + 120 + GONE_SECONDS - 1) == []
    (ended,) = log.compare([], AT + 120 + GONE_SECONDS)
    assert ended == replace(trouble(), ended=AT + 120, message="still waits")
    assert log.compare([], AT + 1000) == []


def test_trouble_that_is_found_again_within_a_minute_goes_on() -> None:
    log = TroubleLog()
    log.compare([trouble()], AT)
    log.compare([], AT + 60)
    assert log.compare([trouble(at=AT + 119)], AT + 119) == []
    assert log.compare([], AT + 170) == []  # missed since now, and not since the first time
    assert [record.ended for record in log.compare([], AT + 230)] == [AT + 170]


def test_open_record_has_its_beginning_and_the_message_of_now() -> None:  # [LG10]
    log = TroubleLog()
    log.compare([trouble()], AT)
    log.compare([], AT + 30)
    log.compare([trouble(at=AT + 60, message="still waits")], AT + 60)
    assert log.open_record(trouble().key) == replace(trouble(), message="still waits")
    log.compare([], AT + 120)
    log.compare([], AT + 120 + GONE_SECONDS)
    assert log.open_record(trouble().key) is None


def test_loop_that_is_over_before_the_first_look_has_a_record() -> None:
    log = TroubleLog()
    assert log.begin([trouble(type_="EvictionLoop")]) == [trouble(type_="EvictionLoop")]
    assert log.begin([trouble(type_="EvictionLoop", at=AT + 5)]) == []
    assert log.compare([], AT + 30) == []
    assert [record.ended for record in log.compare([], AT + 90)] == [AT + 30]


def test_troubles_of_one_workload_are_recorded_by_type() -> None:
    log = TroubleLog()
    both = [trouble(), trouble(type_="Thrashing")]
    assert log.compare(both, AT) == both


def test_restart_continues_the_open_records() -> None:
    log = TroubleLog()
    assert log.resume([trouble(at=AT - 3600), trouble("gone", at=AT - 3600)]) == []
    assert log.compare([trouble()], AT) == []
    (ended,) = log.compare([trouble(at=AT + 60)], AT + 60)
    assert (ended.name, ended.found, ended.ended) == ("gone", AT - 3600, AT)


def test_trouble_that_is_found_before_the_history_is_read_ends_the_earlier_record() -> None:
    log = TroubleLog()
    log.begin([trouble()])
    assert log.resume([trouble(at=AT - 3600)]) == [replace(trouble(at=AT - 3600), ended=AT)]


@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(-200, 200)), max_size=20))
def test_records_of_one_trouble_do_not_overlap_whatever_the_clock_does(steps: list[tuple[set[str], int]]) -> None:
    """Each begins once and ends once, not before it began; after it is missing for long, none is open."""
    log, now, rows = TroubleLog(), AT, list[TroubleRecord]()
    for names, passed in steps:
        now += passed
        rows += log.compare([trouble(name, at=now) for name in sorted(names)], now)
    rows += log.compare([], now)
    rows += log.compare([], now + GONE_SECONDS)
    for name in "abc":
        mine = [row for row in rows if row.name == name]
        assert [row.ended is None for row in mine] == [True, False] * (len(mine) // 2)
        assert all(first.found == last.found for first, last in zip(mine[::2], mine[1::2], strict=True))
        assert all(row.ended is None or row.ended >= row.found for row in mine)


# --- The store --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    made = HistoryStore(tmp_path / "history.db")
    yield made
    made.close()


def test_record_is_replaced_by_its_end(store: HistoryStore) -> None:
    store.save_troubles([trouble()])
    assert store.open_troubles() == [trouble()]
    store.save_troubles([replace(trouble(), ended=AT + 60, message="waited")])
    assert store.open_troubles() == []
    assert store.troubles(RecordFilter()) == [replace(trouble(), ended=AT + 60, message="waited")]


def test_window_and_queues_choose_records(store: HistoryStore) -> None:
    first = replace(trouble("a"), ended=AT + 60)
    second = replace(trouble("b", at=AT + 100), queue="other", cluster_queue="cq2")
    foreign = replace(trouble("c", at=AT + 200), namespace="ns2", ended=AT + 300)
    store.save_troubles([first, second, foreign])

    def names(**wanted: object) -> str:
        return "".join(record.name for record in store.troubles(RecordFilter(**wanted)))  # type: ignore[arg-type]

    assert names() == "abc"
    assert names(since=AT + 60) == "abc"
    assert names(since=AT + 61) == "bc"
    assert names(since=AT + 301) == "b"  # not ended
    assert names(until=AT + 100) == "a"
    assert names(namespace="ns") == "ab"
    assert names(queue="other") == "b"
    assert names(cluster_queue="cq") == "ac"


def test_records_are_deleted_after_their_retention(store: HistoryStore) -> None:
    store.save_troubles([replace(trouble(f"w{number}"), ended=AT + number) for number in range(3)])
    store.save_troubles([trouble("open")])
    assert store.purge(AT + 2) == 2
    assert [record.name for record in store.troubles(RecordFilter())] == ["w2", "open"]
    assert store.purge(AT + 2) == 0


def test_file_without_the_table_gets_it(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history.db")
    store._connection.execute("DROP TABLE trouble")
    store.close()
    store = HistoryStore(tmp_path / "history.db")
    store.save_troubles([trouble()])
    assert store.open_troubles() == [trouble()]
    store.close()
