"""What was acknowledged is kept: over kills, torn logs, full disks and restarts; and the counter never falls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import filesystems
from kubemachinery.clock import SystemClock
from kubemachinery.status import StatusError
from kubeserver.protocol import memory
from kubeserver.storage import objects as objects_module
from kubeserver.storage import sqlite as store_module
from kubeserver.storage.objects import HistoryBounds, Objects
from kubeserver.storage.sqlite import (
    FIRST_REVISION,
    RESTORED_SKIP,
    ROWS_TOGETHER,
    Durability,
    JournalRecord,
    LoadedState,
    SqliteJournal,
    StoreError,
    StoreKey,
    WriteOperation,
)
from waiting import eventually

KILLS = int(os.environ.get("APISERVER_KILLS", "4"))
PREFIXES = int(os.environ.get("APISERVER_PREFIXES", "60"))


def record(
    revision: int, op: WriteOperation = WriteOperation.ADDED, name: str = "", previous: int = 0, **more: Any
) -> JournalRecord:
    key = StoreKey("things", "default", name or f"n{revision}")
    body = more.pop("body", f'{{"revision":{revision}}}'.encode())
    return JournalRecord(
        key, op, revision, previous, revision, f"uid-{key.name}-{previous or revision}", body, 0, **more
    )


def stored(folder: Path) -> LoadedState:
    """What a server that starts finds in the files."""
    with contextlib.closing(SqliteJournal(folder)) as journal:
        return journal.load()


class TestOneFile:
    def test_batches_of_every_size_come_back_with_few_prepared_statements(self, tmp_path: Path) -> None:
        store_module._with_rows.cache_clear()
        sizes, revision = range(1, 2 * ROWS_TOGETHER + 2), FIRST_REVISION
        kept: dict[str, int] = {}
        with contextlib.closing(SqliteJournal(tmp_path, durability=Durability.RELAXED)) as journal:
            for size in sizes:
                for op in (WriteOperation.ADDED, WriteOperation.MODIFIED, WriteOperation.DELETED):
                    batch = []
                    # Of each size one object stays.
                    for index in range(size - (op is WriteOperation.DELETED)):
                        revision += 1
                        name = f"n{size}-{index}"
                        batch.append(record(revision, op, name, kept.get(name, 0)))
                        kept[name] = revision
                    journal.commit(batch)
                    if op is WriteOperation.DELETED:
                        for one in batch:
                            del kept[one.key.name]
            assert store_module._with_rows.cache_info().currsize == 4 * len([1, 2, 4, 8, 16, 32, 64])
        loaded = stored(tmp_path)
        assert {row.key.name: row.revision for row in loaded.rows} == kept
        assert [one.revision for one in loaded.records] == list(range(FIRST_REVISION + 1, revision + 1))

    def test_writes_come_back(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a"), record(1002, name="b")])
        journal.commit(
            [record(1003, WriteOperation.MODIFIED, "a", 1001), record(1004, WriteOperation.DELETED, "b", 1002)]
        )
        journal.close()
        loaded = stored(tmp_path)
        assert [(row.key.name, row.revision) for row in loaded.rows] == [("a", 1003)]
        assert [(r.revision, r.op) for r in loaded.records] == [
            (1001, WriteOperation.ADDED),
            (1002, WriteOperation.ADDED),
            (1003, WriteOperation.MODIFIED),
            (1004, WriteOperation.DELETED),
        ]
        assert loaded.revision == 1004

    def test_a_batch_is_kept_whole_or_not_at_all(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a")])
        with pytest.raises(StoreError, match="0 of 1 objects"):
            journal.commit([record(1002, name="b"), record(1003, WriteOperation.MODIFIED, "a", 999)])
        journal.close()
        loaded = stored(tmp_path)
        assert [row.key.name for row in loaded.rows] == ["a"]
        assert loaded.revision == 1001

    def test_what_happens_to_one_key_in_one_batch_comes_to_its_end(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="changed"), record(1002, name="replaced"), record(1003, name="gone")])
        journal.commit(
            [
                record(1004, WriteOperation.MODIFIED, "changed", 1001),
                record(1005, WriteOperation.MODIFIED, "changed", 1004),
                record(1006, WriteOperation.DELETED, "replaced", 1002),
                record(1007, WriteOperation.ADDED, "replaced"),
                record(1008, WriteOperation.MODIFIED, "gone", 1003),
                record(1009, WriteOperation.DELETED, "gone", 1008),
                record(1010, WriteOperation.ADDED, "flash"),
                record(1011, WriteOperation.DELETED, "flash", 1010),
                record(1012, WriteOperation.ADDED, "new"),
                record(1013, WriteOperation.MODIFIED, "new", 1012),
            ]
        )
        journal.close()
        loaded = stored(tmp_path)
        assert {row.key.name: row.revision for row in loaded.rows} == {"changed": 1005, "replaced": 1007, "new": 1013}
        assert {row.key.name: row.created_revision for row in loaded.rows}["replaced"] == 1007
        assert [r.revision for r in loaded.records] == list(range(1001, 1014))

    def test_the_counter_does_not_follow_the_rows_down(self, tmp_path: Path) -> None:
        """After a compaction and a restart the greatest row may be old; the revisions handed out are not."""
        journal = SqliteJournal(tmp_path)
        journal.commit(
            [record(1001, name="a"), record(1002, name="b"), record(1003, WriteOperation.DELETED, "b", 1002)]
        )
        while journal.compact(1003, 2):
            pass
        journal.close()
        loaded = stored(tmp_path)
        assert max(row.revision for row in loaded.rows) == 1001
        assert loaded.records == []
        assert (loaded.revision, loaded.compacted) == (1003, 1003)

    def test_compaction_runs_in_small_steps(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001 + index) for index in range(10)])
        assert [journal.compact(1008, 3) for _ in range(4)] == [3, 3, 2, 0]
        assert [r.revision for r in journal.load().records] == [1009, 1010]
        journal.close()

    def test_short_lived_things_have_a_file_of_their_own(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001), record(1002, ephemeral=True)])
        journal.close()
        for file, revision in (("state.db", 1001), ("events.db", 1002)):
            with sqlite3.connect(tmp_path / file) as connection:
                assert connection.execute("SELECT rev FROM object").fetchall() == [(revision,)]
            connection.close()
        assert stored(tmp_path).revision == 1002

    def test_files_are_readable_by_their_owner_only(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path / "data")
        journal.commit([record(1001)])
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        for path in (tmp_path / "data").iterdir():
            assert path.stat().st_mode & 0o077 == 0, path.name
        journal.close()

    def test_what_is_synced_before_an_answer(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path, durability=Durability.FULL)
        asked = journal._connection.execute
        assert asked("PRAGMA main.synchronous").fetchone()[0] == 2
        assert asked("PRAGMA events.synchronous").fetchone()[0] == 1
        assert asked("PRAGMA main.journal_mode").fetchone()[0] == "wal"
        journal.close()

    def test_a_layout_of_the_future_is_refused(self, tmp_path: Path) -> None:
        SqliteJournal(tmp_path).close()
        with sqlite3.connect(tmp_path / "state.db") as connection:
            connection.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
        connection.close()
        with pytest.raises(StoreError, match="layout 99"):
            SqliteJournal(tmp_path)

    def test_an_older_layout_is_brought_up_to_date(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        SqliteJournal(tmp_path).close()
        monkeypatch.setattr(store_module, "SCHEMA_VERSION", 2)
        monkeypatch.setitem(
            store_module._MIGRATIONS, 1, lambda connection: connection.execute("CREATE TABLE IF NOT EXISTS more (x)")
        )
        journal = SqliteJournal(tmp_path)
        assert journal._connection.execute("SELECT count(*) FROM main.more").fetchone() == (0,)
        journal.close()
        SqliteJournal(tmp_path).close()

    def test_a_file_that_is_no_database_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "state.db").write_bytes(b"this is not a database, but it is long enough to look at" * 100)
        with pytest.raises(StoreError, match=r"state\.db"):
            SqliteJournal(tmp_path)

    def damage(self, directory: Path, table: str, name: str) -> None:
        connection = sqlite3.connect(directory / "state.db")
        connection.execute(f"UPDATE {table} SET body = ? WHERE name = ?", (b'{"half":', name))
        connection.commit()
        connection.close()

    def test_damaged_body_is_taken_from_its_change(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a"), record(1002, name="b")])
        journal.close()
        self.damage(tmp_path, "object", "a")
        journal = SqliteJournal(tmp_path)
        assert {row.key.name: row.body for row in journal.load().rows} == {
            "a": b'{"revision":1001}',
            "b": b'{"revision":1002}',
        }
        assert not (tmp_path / "damaged").exists()
        journal.close()

    def test_damaged_row_is_set_aside_and_its_name_is_free_again(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a"), record(1002, name="b")])
        journal.close()
        self.damage(tmp_path, "object", "a")
        self.damage(tmp_path, "change", "a")
        journal = SqliteJournal(tmp_path)
        loaded = journal.load()
        assert [row.key.name for row in loaded.rows] == ["b"]
        assert (loaded.revision, loaded.compacted) == (1002, 1001)
        assert [one.revision for one in loaded.records] == [1002]
        assert "the stored things default/a is no JSON object" in caplog.text
        (aside,) = (tmp_path / "damaged").iterdir()
        assert aside.read_bytes() == b'{"half":'
        journal.commit([record(1003, name="a")])
        journal.close()
        assert sorted(row.key.name for row in stored(tmp_path).rows) == ["a", "b"]

    def test_damaged_change_is_dropped_with_what_is_before_it(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a"), record(1002, name="b"), record(1003, name="c")])
        journal.close()
        self.damage(tmp_path, "change", "b")
        loaded = stored(tmp_path)
        assert [row.key.name for row in loaded.rows] == ["a", "b", "c"]
        assert (loaded.compacted, [one.revision for one in loaded.records]) == (1002, [1003])


class TestOneServer:
    def test_the_error_of_a_second_server_names_the_first_ones_process(self, tmp_path: Path) -> None:
        first = SqliteJournal(tmp_path)
        with pytest.raises(StoreError, match=rf"process {os.getpid()}\b"):
            SqliteJournal(tmp_path)
        first.close()
        SqliteJournal(tmp_path).close()

    def test_network_file_systems_are_refused(self) -> None:
        mounts = ["/dev/sda / ext4 rw 0 0", "server:/share /mnt/share nfs4 rw 0 0"]
        assert filesystems.filesystem(Path("/mnt/share/data"), mounts) == "nfs4"
        assert filesystems.filesystem(Path("/mnt/shared"), mounts) == "ext4"


class TestBackups:
    def test_a_restored_backup_does_not_repeat_revisions(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path / "data")
        journal.commit([record(1001, name="a"), record(1002, name="e", ephemeral=True)])
        journal.backup(tmp_path / "copy")
        journal.commit([record(1003, WriteOperation.MODIFIED, "a", 1001)])
        journal.close()
        restored = SqliteJournal(tmp_path / "copy")
        loaded = restored.load()
        assert {row.key.name for row in loaded.rows} == {"a", "e"}
        assert loaded.revision == loaded.compacted == loaded.restored == 1002 + RESTORED_SKIP
        restored.close()
        again = SqliteJournal(tmp_path / "copy")
        assert again.load().revision == 1002 + RESTORED_SKIP, "skipped once, not at every start"
        assert again.load().restored == 1002 + RESTORED_SKIP, "it stays known that it was restored"
        again.close()


class TestTornLogs:
    def test_every_prefix_of_the_log_is_a_moment_that_was(self, tmp_path: Path) -> None:
        """Cut the write-ahead log anywhere: what is recovered is the state after some batch, and all of it."""
        rng = random.Random(5)
        journal = SqliteJournal(tmp_path / "data")
        states: dict[int, dict[str, int]] = {FIRST_REVISION: {}}
        lengths = [((tmp_path / "data" / "state.db-wal").stat().st_size, FIRST_REVISION)]
        present: dict[str, int] = {}
        revision = FIRST_REVISION
        for _ in range(40):
            batch = []
            for _ in range(rng.randint(1, 4)):
                name, revision = f"n{rng.randint(0, 5)}", revision + 1
                if name not in present:
                    batch.append(record(revision, WriteOperation.ADDED, name))
                    present[name] = revision
                elif rng.random() < 0.3:
                    batch.append(record(revision, WriteOperation.DELETED, name, present.pop(name)))
                else:
                    batch.append(record(revision, WriteOperation.MODIFIED, name, present[name]))
                    present[name] = revision
            journal.commit(batch)
            states[revision] = dict(present)
            lengths.append(((tmp_path / "data" / "state.db-wal").stat().st_size, revision))
        whole = (tmp_path / "data" / "state.db-wal").read_bytes()
        base = (tmp_path / "data" / "state.db").read_bytes()
        events = (tmp_path / "data" / "events.db").read_bytes()
        cuts = sorted({length for length, _ in lengths} | {rng.randint(0, len(whole)) for _ in range(PREFIXES)})
        for cut in cuts:
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            (copy / "state.db").write_bytes(base)
            (copy / "events.db").write_bytes(events)
            (copy / "state.db-wal").write_bytes(whole[:cut])
            if cut == 0 and not lengths[0][0]:
                continue
            recovered = SqliteJournal(copy)
            loaded = recovered.load()
            recovered.close()
            acknowledged = max((revision for length, revision in lengths if length <= cut), default=FIRST_REVISION)
            assert loaded.revision >= acknowledged, f"a log of {cut} bytes held {acknowledged}"
            assert {row.key.name: row.revision for row in loaded.rows} == states[loaded.revision]
        journal.close()


async def write(objects: Objects, name: str, size: int = 100) -> int:
    key = StoreKey("things", "default", name)
    live = objects.latest(key)
    revision = objects.next_revision
    body = json.dumps({"metadata": {"name": name, "resourceVersion": str(revision)}, "x": "y" * size}).encode()
    _, kept = objects.write(
        WriteOperation.MODIFIED if live else WriteOperation.ADDED, key, live.uid if live else f"u{revision}", body
    )
    await asyncio.shield(kept)
    return revision


async def recovered(objects: Objects) -> None:
    await eventually(lambda: not objects.failure)


class TestFailures:
    async def test_a_full_disk_refuses_writes_and_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects_module, "RECOVERY_SECONDS", 0.05)
        journal = SqliteJournal(tmp_path, max_bytes=600 * 1024)
        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            acknowledged: dict[str, int] = {}

            async def fill() -> None:
                for index in range(1000):
                    acknowledged[f"n{index}"] = await write(objects, f"n{index}", 20_000)

            with pytest.raises(StatusError, match="full") as refused:
                await fill()
            assert refused.value.code == 503
            assert "Retry-After" not in refused.value.headers, "whether this very write was kept is not known"
            with pytest.raises(StatusError, match="nothing can be written at present"):
                await write(objects, "later")
            # Reading goes on, and shows what was acknowledged and nothing else.
            assert {e.key.name: e.revision for e in objects.collection("things")} == acknowledged
            journal._max_bytes = 0
            await recovered(objects)
            acknowledged["later"] = await write(objects, "later")
            await objects.close()
        loaded = stored(tmp_path)
        assert {row.key.name: row.revision for row in loaded.rows} == acknowledged

    async def test_what_became_of_a_failed_commit_is_asked_of_the_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An error may come after the commit was done. The state in memory is then read from the disk, and watches get the events."""
        monkeypatch.setattr(objects_module, "RECOVERY_SECONDS", 0.02)
        journal = SqliteJournal(tmp_path)
        commit = journal.commit

        def commit_and_fail(records: Any) -> None:
            commit(records)
            monkeypatch.setattr(journal, "commit", commit)
            raise OSError("the disk went away")

        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            reported: list[int] = []
            objects.listeners.append(lambda change: reported.append(change.revision))
            monkeypatch.setattr(journal, "commit", commit_and_fail)
            with pytest.raises(StatusError, match="may or may not be kept"):
                await write(objects, "a")
            assert objects.get(StoreKey("things", "default", "a")) is None
            await recovered(objects)
            found = objects.get(StoreKey("things", "default", "a"))
            assert found is not None
            assert reported == [found.revision]
            assert await write(objects, "a") > found.revision
            await objects.close()


class TestGroupCommit:
    async def test_writes_that_wait_together_are_kept_together(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            await asyncio.gather(*(write(objects, f"n{index}") for index in range(200)))
            assert objects.writes == 200
            assert objects.commits < 20
            await objects.close()

    async def test_a_reader_never_sees_what_is_not_kept(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        commit, seen = journal.commit, []

        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)

            def slow(records: Any) -> None:
                seen.append(len(list(objects.collection("things"))))
                commit(records)

            journal.commit = slow  # type: ignore[method-assign]
            await write(objects, "a")
            assert seen == [0]
            assert len(list(objects.collection("things"))) == 1
            await objects.close()


class TestListeners:
    async def test_a_failing_listener_does_not_stop_others(self) -> None:
        objects = Objects(store_module.MemoryJournal(), SystemClock())
        reported: list[int] = []

        def poison(change: Any) -> None:
            raise ValueError("this one cannot be understood")

        objects.listeners += [poison, lambda change: reported.append(change.revision)]
        revision = await write(objects, "a")
        assert reported == [revision]


class TestHistory:
    async def test_is_kept_by_count_and_age_and_bounded_by_bytes(self) -> None:
        class Late(SystemClock):
            later = 0

            def now(self) -> int:
                return self.later

        clock = Late()
        bounds = HistoryBounds(revisions_min=5, age_min=1000, bytes_max=10_000)
        objects = Objects(store_module.MemoryJournal(), clock, bounds=bounds)
        for index in range(20):
            await write(objects, f"n{index}")
        assert objects.compaction_target() == FIRST_REVISION, "twenty are enough, but none is old enough"
        clock.later = 2000
        assert objects.compaction_target() == FIRST_REVISION + 15
        for index in range(20):
            await write(objects, f"m{index}", 2000)
        assert objects.compaction_target() > FIRST_REVISION + 30, "too many bytes: age does not matter then"

    async def test_is_compacted_at_once_when_it_is_much_too_large(self) -> None:
        objects = Objects(store_module.MemoryJournal(), SystemClock(), bounds=HistoryBounds(bytes_max=100_000))
        compacting = asyncio.create_task(objects.keep_compacting())
        for index in range(50):
            await write(objects, f"n{index}", 2000)
        await asyncio.sleep(0)
        assert objects.compacted == FIRST_REVISION, "not before it is an eighth too large"
        for index in range(10):
            await write(objects, f"m{index}", 2000)
        await eventually(lambda: objects.compacted > FIRST_REVISION)
        kept = sum(len(change.entry.body) for change in objects.changes_since("things", objects.compacted))
        assert kept <= 112_500, "of 120,000"
        compacting.cancel()

    async def test_files_shrink_after_a_churn(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """To 1.25 times what is in use, and the free pages that are kept for the next writes; logs become empty."""
        monkeypatch.setattr(store_module, "FREE_PAGES_MIN", 32)
        journal = SqliteJournal(tmp_path, durability=Durability.RELAXED)
        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            for index in range(600):
                body = f'{{"n":{index},"x":"{"y" * 20_000}"}}'.encode()
                for ephemeral in (False, True):
                    key = StoreKey("events" if ephemeral else "things", "default", f"n{index}")
                    await objects.write(WriteOperation.ADDED, key, f"u{index}", body, ephemeral=ephemeral)[1]
                    if index >= 20:
                        await objects.write(WriteOperation.DELETED, key, f"u{index}", body, ephemeral=ephemeral)[1]
            await objects.flushed()
            largest = {name: (tmp_path / name).stat().st_size for name in ("state.db", "events.db")}
            await objects.compact(objects.revision)
            await objects.shrink()
            for name, before in largest.items():
                in_use = 20 * 24 * 1024 + 32 * store_module.PAGE_BYTES
                after = (tmp_path / name).stat().st_size
                assert before > 10_000_000
                assert after < 1.25 * in_use + 32 * store_module.PAGE_BYTES, name
                assert (tmp_path / f"{name}-wal").stat().st_size == 0
            await write(objects, "after")
            assert (tmp_path / "state.db-wal").stat().st_size > 0
            await objects.shrink()
            assert (tmp_path / "state.db-wal").stat().st_size == 0, "also where no page is free"
            await objects.close()
        assert len(stored(tmp_path).rows) == 41

    @pytest.mark.parametrize("is_busy", [False, True])
    async def test_memory_is_given_back_once_it_is_quiet_after_many_writes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool
    ) -> None:
        given: list[int] = []
        released: list[int] = []
        monkeypatch.setattr(objects_module, "TRIM_WRITES", 20)
        monkeypatch.setattr(objects_module, "QUIET_WRITES", 5)
        journal = SqliteJournal(tmp_path, durability=Durability.RELAXED)
        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            monkeypatch.setattr(memory, "give_back", lambda: given.append(objects.writes))
            monkeypatch.setattr(journal, "release_memory", lambda: released.append(objects.writes))
            for index in range(30):
                await write(objects, f"a{index}")
            await objects.shrink()
            assert given == [], "the writes may go on"
            for index in range(10 if is_busy else 2):
                await write(objects, f"b{index}")
            await objects.shrink()
            assert given == ([] if is_busy else [32])
            await objects.shrink()
            assert given == ([40] if is_busy else [32]), "once after a busy time"
            assert released == given
            await objects.close()

    @pytest.mark.parametrize("name", ["state.db", "events.db"])
    def test_a_file_of_an_earlier_version_becomes_one_that_shrinks(self, tmp_path: Path, name: str) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a"), record(1002, name="b", ephemeral=True)])
        journal.close()
        with contextlib.closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as old:
            old.execute("PRAGMA auto_vacuum = NONE")
            old.execute("VACUUM")
        again = SqliteJournal(tmp_path)
        assert [row.key.name for row in again.load().rows] == ["a", "b"]
        again.close()
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as now:
            assert now.execute("PRAGMA auto_vacuum").fetchone()[0] == 2

    def test_log_of_a_deleted_database_is_not_read_into_a_new_one(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        journal.commit([record(1001, name="a"), record(1002, name="b", ephemeral=True)])
        logs = {name: (tmp_path / name).read_bytes() for name in ("state.db-wal", "events.db-wal")}
        journal.close()
        for name, log in logs.items():
            (tmp_path / name.removesuffix("-wal")).unlink()
            (tmp_path / name).write_bytes(log)
        again = SqliteJournal(tmp_path)
        assert again.load().rows == []
        again.commit([record(1003, name="c")])
        again.close()
        assert [row.key.name for row in stored(tmp_path).rows] == ["c"]

    async def test_survives_a_restart(self, tmp_path: Path) -> None:
        journal = SqliteJournal(tmp_path)
        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            first = await write(objects, "a")
            second = await write(objects, "a")
            await objects.close()
        journal = SqliteJournal(tmp_path)
        again = Objects(journal, SystemClock(), loaded=journal.load())
        assert [change.revision for change in again.changes_since("things", first)] == [second]
        assert [entry.revision for entry in again.at("things", first, "", None)] == [first]
        await again.close()

    async def test_all_revisions_of_an_object_have_one_key_and_one_uid(self, tmp_path: Path) -> None:
        """The history has many revisions of each object, so equal values are kept once."""

        def identities(objects: Objects) -> tuple[int, int, int]:
            entries = [change.entry for change in objects.changes_since("things", FIRST_REVISION)]
            return len(entries), len({id(entry.key) for entry in entries}), len({id(entry.uid) for entry in entries})

        journal = SqliteJournal(tmp_path)
        with ThreadPoolExecutor(1) as executor:
            objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
            for _ in range(3):
                await write(objects, "a")
            assert identities(objects) == (3, 1, 1)
            await objects.close()
        journal = SqliteJournal(tmp_path)
        again = Objects(journal, SystemClock(), loaded=journal.load())
        assert identities(again) == (3, 1, 1)
        await again.close()


WRITER = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import SqliteJournal
from kubemachinery import filesystems
from kubemachinery.clock import SystemClock
from server.test_sqlite import write

async def main():
    journal = SqliteJournal(Path(sys.argv[1]))
    objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=ThreadPoolExecutor(1))
    async def work(worker):
        turn = 0
        while True:
            revision = await write(objects, f"w{worker}", 3000)
            print(f"w{worker} {revision}", flush=True)
            turn += 1
            if turn % 50 == 0:
                await objects.compact(objects.revision - 10)
    await asyncio.gather(*(work(worker) for worker in range(8)))

asyncio.run(main())
"""


def test_a_kill_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """Eight writers, kill -9, recover, compare with the acknowledged writes; again on the same files."""
    rng = random.Random(11)
    tests = str(Path(__file__).parents[1])
    before = FIRST_REVISION
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "data"), tests], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        reported: dict[str, int] = {}
        for _ in range(rng.randint(20, 400)):
            line = process.stdout.readline()
            assert line, "the writer ended by itself"
            name, revision = line.split()
            reported[name] = int(revision)
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout.read().splitlines():
            name, _, revision = line.partition(" ")
            if revision.isdecimal():
                reported[name] = max(reported.get(name, 0), int(revision))
        process.wait()
        process.stdout.close()
        journal = SqliteJournal(tmp_path / "data")
        loaded = journal.load()
        found = {row.key.name: row.revision for row in loaded.rows}
        for name, acknowledged in reported.items():
            assert found[name] >= acknowledged, "an acknowledged write is lost"
        assert loaded.revision >= max(reported.values()) > before, "revisions only grow"
        before = loaded.revision
        journal.close()
