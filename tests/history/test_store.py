"""Records in the store: what is written is read, counted once, and survives what happens to the file."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from history.lives import START, Life
from pykueue.history import records, rollups
from pykueue.history.queries import RecordFilter, grouped, larger_than
from pykueue.history.records import WorkloadRecord
from pykueue.history.rollups import DAY_SECONDS
from pykueue.history.store import (
    DamagedStoreError,
    ForeignStoreError,
    HistoryStore,
    HistoryStoreError,
    NewerStoreError,
    RecordsAtRisk,
    StoredForecast,
    StoredScores,
    StoredSizeScores,
    set_aside,
)


def ended(uid: str, *, at: int = 0, ran: int = 60, user: str = "ana", evicted: bool = False) -> WorkloadRecord:
    """The record of a Workload that waited ten seconds and ran."""
    life = Life(uid=uid, at=at, job=f"train-{uid}")
    states = [life.annotated(submitted_by=user), life.started(at + 10)]
    if evicted:
        states += [life.evicted(at + 11), life.released(at + 12), life.started(at + 13)]
    record: WorkloadRecord | None = None
    for workload in (*states, life.finished(at + 10 + ran)):
        record = records.observe(record, workload, START + at)
    assert record is not None
    return record


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    store = HistoryStore(tmp_path / "history.db")
    yield store
    store.close()


def test_a_record_is_read_as_it_was_written(store: HistoryStore) -> None:
    wanted = [ended("a", evicted=True), ended("0e6f4a52-1c1e-4f6e-9d68-0f6a1f2b3c4d")]
    store.save(wanted)
    assert store.select(RecordFilter()) == (wanted, 0)
    assert store.find(["a", "missing"]) == {"a": wanted[0]}


def test_saving_twice_counts_usage_once(store: HistoryStore) -> None:
    record = ended("a")
    store.save([record])
    store.save([record, record])
    (usage,) = store.usage(RecordFilter(), START + 100).values()
    assert usage == 4000 * 60
    assert store.check() == []


def test_usage_that_is_still_reserved_counts_until_now(store: HistoryStore) -> None:
    life = Life()
    store.save([records.observe(None, life.started(0), START)])
    (usage,) = store.usage(RecordFilter(), START + 50).values()
    assert usage == 4000 * 50
    assert store.usage(RecordFilter(user="another"), START + 50) == {}


def test_usage_is_split_at_midnight(store: HistoryStore) -> None:
    store.save([ended("a", ran=DAY_SECONDS)])
    days = grouped(store.usage(RecordFilter(), START + 2 * DAY_SECONDS), ["day"])
    assert len(days) == 2
    assert sum(row.amount_seconds for row in days) == 4000 * DAY_SECONDS
    assert days[0].amount_seconds == 4000 * (15 * 3600 - 10)


def test_sums_beyond_64_bits_are_exact(store: HistoryStore) -> None:
    life = Life(cpu=str(2**50))
    record = records.observe(None, life.started(0), START)
    record = records.observe(record, life.finished(DAY_SECONDS), START)
    store.save([record])
    total = sum(store.usage(RecordFilter(), START + DAY_SECONDS).values())
    assert total == 4 * 2**50 * 1000 * DAY_SECONDS > 2**63


@pytest.mark.parametrize(
    ("wanted", "uids"),
    [
        (RecordFilter(), "abc"),
        (RecordFilter(user="bob"), "b"),
        (RecordFilter(user="absent"), ""),
        (RecordFilter(since=START + 300), "c"),
        (RecordFilter(until=START + 300), "ab"),
        (RecordFilter(namespace="ns", queue="research", cluster_queue="physics"), "abc"),
        (RecordFilter(namespace="other"), ""),
        (RecordFilter(name="train-[bc]"), "bc"),
        (RecordFilter(name="train-[!bc]"), "a"),
        (RecordFilter(evicted=True), "b"),
        (RecordFilter(states=frozenset({"Succeeded"})), "abc"),
        (RecordFilter(states=frozenset({"Failed", "Running"})), ""),
        (RecordFilter(flavor="a100"), "abc"),
        (RecordFilter(flavor="h100"), ""),
        (RecordFilter(larger_than=larger_than(["cpu=3"])), "abc"),
        (RecordFilter(larger_than=larger_than(["cpu=4"])), ""),
    ],
)
def test_filters_of_the_store_agree_with_the_filter_of_a_record(
    store: HistoryStore, wanted: RecordFilter, uids: str
) -> None:
    all_records = [ended("a"), ended("b", user="bob", evicted=True), ended("c", at=1000)]
    store.save(all_records)
    assert "".join(record.uid for record in store.select(wanted)[0]) == uids
    assert "".join(record.uid for record in all_records if wanted.matches(record)) == uids


def test_pages_together_are_the_list(store: HistoryStore) -> None:
    store.save([ended(str(number)) for number in range(7)])
    found, after = [], 0
    while True:
        page, after = store.select(RecordFilter(), after=after, limit=3)
        found += [record.uid for record in page]
        if not after:
            break
    assert found == [str(number) for number in range(7)]


@pytest.mark.parametrize("most_read", [1, 2, 5, 7, 8])
def test_parts_of_few_read_records_together_are_the_list(store: HistoryStore, most_read: int) -> None:
    store.save([ended(str(number)) for number in range(7)])
    for flavor, wanted in (("a100", [str(number) for number in range(7)]), ("h100", [])):
        found, after, parts = [], 0, 0
        while True:
            part, after = store.select(RecordFilter(flavor=flavor), after=after, most_read=most_read)
            found += [record.uid for record in part]
            parts += 1
            if not after:
                break
        assert found == wanted
        assert parts == -(-7 // most_read)


def test_waiting_is_reported_by_group_with_its_quantiles(store: HistoryStore) -> None:
    store.save([ended(str(number), user="ana" if number < 3 else "bob") for number in range(4)])
    rows = store.waiting(RecordFilter(since=START, until=START + 100), ["user"])
    assert [(row.group, row.started, row.p50, row.p99) for row in rows] == [
        (("ana",), 3, 10, 10),
        (("bob",), 1, 10, 10),
    ]
    assert store.waiting(RecordFilter(since=START + 100), ["user"]) == []


def test_retention_deletes_records_and_keeps_usage(store: HistoryStore) -> None:
    store.save([ended("old"), ended("new", at=30 * DAY_SECONDS)])
    before = store.usage(RecordFilter(), START + 31 * DAY_SECONDS)
    assert store.purge(START + 23 * DAY_SECONDS) == 1
    assert [record.uid for record in store.select(RecordFilter())[0]] == ["new"]
    assert store.usage(RecordFilter(), START + 31 * DAY_SECONDS) == before
    assert store.check() == []


def test_retention_keeps_the_records_of_present_workloads(store: HistoryStore) -> None:
    packed = "6f1c2f0e-8f0b-4a53-9a65-0b9d2a0d2f11"
    store.save([ended(uid) for uid in ("a", packed, "b")])
    assert store.purge(START + DAY_SECONDS, present=("a", packed)) == 1
    assert [record.uid for record in store.select(RecordFilter())[0]] == ["a", packed]
    assert store.purge(START + DAY_SECONDS, present=("a", packed)) == 0


def test_the_name_of_a_user_is_replaced_everywhere_and_usage_is_kept(store: HistoryStore, tmp_path: Path) -> None:
    store.save([ended("a", user="person@example.org"), ended("b", user="bob")])
    before = sum(store.usage(RecordFilter(), START + 100).values())
    assert store.anonymize("person@example.org") == (1, 1)
    assert store.anonymize("person@example.org") == (0, 0)
    assert sum(store.usage(RecordFilter(), START + 100).values()) == before
    assert store.check() == []
    store.close()
    connection = sqlite3.connect(tmp_path / "history.db")
    connection.execute("VACUUM")
    connection.close()
    assert b"person@example.org" not in (tmp_path / "history.db").read_bytes()


def test_the_name_of_a_user_is_replaced_in_usage_that_has_outlived_its_records(store: HistoryStore) -> None:
    store.save([ended("a", user="ana")])
    assert store.purge(START + 30 * DAY_SECONDS) == 1
    assert store.anonymize("ana") == (0, 1)
    (key,) = store.usage(RecordFilter(), START + 100)
    assert key.user.startswith("user-")


def test_records_without_a_user_get_no_name(store: HistoryStore) -> None:
    store.save([ended("a", user="")])
    assert store.anonymize("") == (0, 0)
    assert [record.user for record in store.select(RecordFilter())[0]] == [""]


def test_a_queue_named_like_the_user_keeps_its_name(store: HistoryStore) -> None:
    store.save([ended("a", user="research")])
    store.anonymize("research")
    (record,) = store.select(RecordFilter())[0]
    assert (record.queue, record.user.startswith("user-")) == ("research", True)


# --- The file ---------------------------------------------------------------------------------------------------------


def test_a_failed_transaction_stores_nothing(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "history.db", max_bytes=1)
    rows = [ended(f"u{number}", user=f"user-{number}") for number in range(3000)]
    with pytest.raises(HistoryStoreError, match="full"):
        store.save(rows)
    assert store.count() == 0
    assert store.usage(RecordFilter(), START) == {}
    # Numbers of names that were rolled back are not used again.
    store.save(rows[:1])
    assert store.select(RecordFilter())[0] == rows[:1]
    store.close()


def test_a_second_manager_cannot_use_the_file(tmp_path: Path, store: HistoryStore) -> None:
    with pytest.raises(HistoryStoreError, match="is in use by another manager"):
        HistoryStore(tmp_path / "history.db")
    store.close()
    HistoryStore(tmp_path / "history.db").close()


SIZES = {"big": StoredSizeScores(1, 0, ((20, 0.125),)), "small": StoredSizeScores(1, 1, ((10, 0.0),))}
SCORES = StoredScores(3, 2, ((10, 0.5, -0.25), (10, 0.75, 0.0), (20, -1.0, 0.125)), ((10, 0.0), (20, 0.125)), SIZES)
FORECASTS = {
    "a": [
        StoredForecast(10, "physics", 1, 60, 90, 100, True, "big"),
        StoredForecast(20, "physics", 11, 50, 80, 100, False, "small"),
    ],
    "b": [StoredForecast(10, "physics", 2, 70, 95, 105, False)],
}


def test_scores_and_open_forecasts_keep_their_size_class_and_whether_they_count_for_p90(
    tmp_path: Path, store: HistoryStore
) -> None:
    store.save_forecast_scores("physics", SCORES)
    store.save_open_forecasts(FORECASTS)
    store.close()
    again = HistoryStore(tmp_path / "history.db")
    assert again.forecast_scores() == {"physics": SCORES}
    assert again.open_forecasts() == FORECASTS
    # A Workload that has started leaves nothing; a later forecast of the same second counts by its own value.
    again.save_open_forecasts({"a": [], "b": [FORECASTS["b"][0]._replace(counts_for_p90=True)]})
    assert again.open_forecasts() == {"b": [FORECASTS["b"][0]._replace(counts_for_p90=True)]}
    again.close()


def test_stored_scores_and_forecasts_without_that_information_all_count_for_p90(
    tmp_path: Path, store: HistoryStore
) -> None:
    """Of a program without the two tables."""
    store.save_forecast_scores("physics", SCORES)
    store.save_open_forecasts(FORECASTS)
    store.close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("DROP TABLE forecast_p90_scores")
        connection.execute("DROP TABLE open_forecast_p50_only")
    connection.close()
    again = HistoryStore(tmp_path / "history.db")
    assert again.forecast_scores()["physics"].p90_scores == tuple((made, p90) for made, _, p90 in SCORES.scores)
    found = again.open_forecasts()
    assert found == {uid: [each._replace(counts_for_p90=True) for each in rows] for uid, rows in FORECASTS.items()}
    again.close()


def test_stored_scores_and_forecasts_of_an_earlier_program_have_no_size_class(
    tmp_path: Path, store: HistoryStore
) -> None:
    store.save_forecast_scores("physics", SCORES)
    store.save_open_forecasts(FORECASTS)
    store.close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("DROP TABLE forecast_size_scores")
        connection.execute("DROP TABLE open_forecast_size")
    connection.close()
    again = HistoryStore(tmp_path / "history.db")
    assert again.forecast_scores() == {"physics": SCORES._replace(sizes={})}
    found = again.open_forecasts()
    assert found == {uid: [each._replace(size="") for each in rows] for uid, rows in FORECASTS.items()}
    again.close()


def test_a_newer_file_is_refused_and_not_changed(tmp_path: Path, store: HistoryStore) -> None:
    store.save([ended("a")])
    store.close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'layout'")
    connection.close()
    with pytest.raises(NewerStoreError, match="has layout 99 and this program reads up to"):
        HistoryStore(tmp_path / "history.db")


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + bytes(9000), bytes(4096) + b"\1" * 100, bytes(3)])
def test_a_damaged_file_is_named_as_such_and_can_be_set_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError):
        HistoryStore(path)
    moved = set_aside(path, "now")
    assert moved.read_bytes() == content
    HistoryStore(path).close()


def test_a_damaged_page_is_found_when_the_file_is_opened(tmp_path: Path, store: HistoryStore) -> None:
    store.save([ended(f"u{number}", user=f"user-{number}") for number in range(500)])
    store.close()
    path = tmp_path / "history.db"
    content = bytearray(path.read_bytes())
    content[8192 * 5 : 8192 * 6] = bytes(8192)
    path.write_bytes(content)
    with pytest.raises(DamagedStoreError, match=r"history\.db: the file is damaged: "):
        HistoryStore(path)


def test_files_of_the_history_are_private(tmp_path: Path, store: HistoryStore) -> None:
    store.save([ended("a")])
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_usage_that_differs_from_the_records_is_reported(tmp_path: Path, store: HistoryStore) -> None:
    store.save([ended("a")])
    store.close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("UPDATE usage SET low = low + 1")
    connection.close()
    again = HistoryStore(tmp_path / "history.db")
    (sentence,) = again.check()
    again.close()
    assert "240001 is stored, the records sum to 240000" in sentence


def test_a_time_that_is_centuries_off_is_summed_over_a_century_only() -> None:
    assert sum(seconds for _, seconds in rollups.days(0, 2**40)) == 36_525 * DAY_SECONDS


@pytest.mark.parametrize("table", ["meta (key, value)", "change (id)"])
def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path, table: str) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ForeignStoreError, match=r"state.db: is a database, but not a history of Workloads"):
        HistoryStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"thesis, chapter one\n", b"x", b"SQLite", b"\x89PNG" + bytes(5000)])
def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ForeignStoreError, match=r"notes.txt: is not a history of Workloads, and is not changed"):
        HistoryStore(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"


def test_the_lock_of_another_manager_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"notes")
    lock = tmp_path / "notes.txt.lock"
    lock.touch()
    with pytest.raises(ForeignStoreError):
        HistoryStore(path)
    assert lock.exists()


@pytest.mark.parametrize(
    ("content", "noted"),
    [
        (b"", RecordsAtRisk(0, 0)),
        (b"0000000000000000003", RecordsAtRisk(3, 0)),  # an earlier version wrote one number
        (b"0000000000000000003 0000000000000000070", RecordsAtRisk(3, 70)),
        (b"0000000000000000003 000", RecordsAtRisk(3, 0)),
        (b"3 7\n", RecordsAtRisk(0, 0)),
    ],
)
def test_records_at_risk_are_noted_in_the_file_of_the_lock(
    tmp_path: Path, content: bytes, noted: RecordsAtRisk
) -> None:
    path, lock = tmp_path / "history.db", tmp_path / "history.db.lock"
    lock.write_bytes(content)
    with contextlib.closing(HistoryStore(path)) as store:
        assert store.noted_before == noted
        space = lock.stat().st_size
        store.note_risk(RecordsAtRisk(50_000, 2))
        assert lock.stat().st_size == space
    with contextlib.closing(HistoryStore(path)) as store:
        assert store.noted_before == RecordsAtRisk(50_000, 2)


def test_a_history_without_the_number_of_its_layout_is_damaged(tmp_path: Path, store: HistoryStore) -> None:
    store.close()
    with sqlite3.connect(tmp_path / "history.db") as connection:
        connection.execute("DELETE FROM meta WHERE key = 'layout'")
    connection.close()
    with pytest.raises(DamagedStoreError, match="the number of its layout is missing"):
        HistoryStore(tmp_path / "history.db")


def test_a_directory_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(HistoryStoreError, match="Is a directory"):
        HistoryStore(tmp_path)
