"""The journal in SQLite: current objects, recent history, and the revision counter. The only module with SQL.

Two files and one connection. `state.db` is synced to the disk before any answer (`synchronous=FULL`); `events.db`,
attached to the same connection, holds what may be lost with the power (Events: one in three writes of a busy cluster).
One connection, used from one thread: SQLite's WAL-reset bug (fixed in 3.51.3) needs two, and so do all lock errors.

The counter lives in `meta`, written in the transaction of the rows that it numbers. It is never derived from the rows:
after a compaction and a crash the greatest row may be older than a revision that a client has already seen.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

import msgspec

from kubemachinery.filesystems import network_filesystem
from kubemachinery.key_pairs import write_private

log = logging.getLogger(__name__)

FIRST_REVISION: Final = 1_000
RESTORED_SKIP: Final = 1_000_000
SCHEMA_VERSION: Final = 1
PAGE_BYTES: Final = 8_192
FREE_PAGES_MIN: Final = 8 * 1024 * 1024 // PAGE_BYTES
# What of the write-ahead log stays on the disk after it was copied.
LOG_BYTES_KEPT: Final = 16 * 1024 * 1024


def _is_object(body: object) -> bool:
    try:
        return isinstance(body, bytes) and _OBJECT.decode(body) is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class StoreError(Exception):
    """The store cannot be used; the message is a sentence for the operator."""


class WriteOperation(IntEnum):
    ADDED = 1
    MODIFIED = 2
    DELETED = 3


class Durability(StrEnum):
    """When a write is acknowledged: on the disk, with the operating system, or in memory."""

    FULL = "full"
    RELAXED = "relaxed"
    MEMORY = "memory"


class StoreKey(NamedTuple):
    """The identity of an object. `resource` is the plural with its group: `workloads.kueue.x-k8s.io`."""

    resource: str
    namespace: str
    name: str


class JournalRecord(NamedTuple):
    """One write: a row of `change`, and what becomes of the row of `object`.

    `body` is the object at this revision; of a deletion, its last state under the deletion's own revision.
    """

    key: StoreKey
    op: WriteOperation
    revision: int
    previous_revision: int
    created_revision: int
    uid: str
    body: bytes
    at: int
    ephemeral: bool = False


class JournalRow(NamedTuple):
    """One current object."""

    key: StoreKey
    uid: str
    revision: int
    created_revision: int
    body: bytes


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """Which database was opened: its cluster, the last restore of a backup, and the revision that it had."""

    cluster_id: str
    restored: int
    revision: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The state of a store when it was opened."""

    revision: int
    compacted: int
    cluster_id: str
    rows: list[JournalRow]
    records: list[JournalRecord]
    # The revision with which it went on when a backup was last restored; 0 where none was.
    restored: int = 0

    @property
    def identity(self) -> DatabaseIdentity:
        return DatabaseIdentity(self.cluster_id, self.restored, self.revision, is_new=not self.rows)


class Journal(Protocol):
    """Durable storage of writes. Calls come one at a time, and may block."""

    def commit(self, records: Sequence[JournalRecord]) -> None:
        """Commit all records or, raising, none."""
        ...

    def compact(self, revision: int, rows_max: int) -> int:
        """Delete at most `rows_max` changes up to `revision`; return their number."""
        ...

    def shrink(self, pages_max: int) -> bool:
        """Release at most `pages_max` free pages of each file; return whether there are more."""
        ...

    def release_memory(self) -> None:
        """Release memory that only makes later calls faster."""
        ...

    def since(self, revision: int) -> list[JournalRecord]:
        """Reopen after a failure and return the records after `revision`. Raises while writing is still impossible."""
        ...

    def backup(self, target: Path) -> None: ...

    def close(self) -> None: ...


class MemoryJournal:
    """A journal that stores nothing: for tests, simulations and `memory` durability."""

    def commit(self, records: Sequence[JournalRecord]) -> None:
        return

    def compact(self, revision: int, rows_max: int) -> int:
        return 0

    def shrink(self, pages_max: int) -> bool:
        return False

    def release_memory(self) -> None:
        return

    def since(self, revision: int) -> list[JournalRecord]:
        return []

    def backup(self, target: Path) -> None:
        raise StoreError("a server that keeps its objects in memory has nothing to back up")

    def close(self) -> None:
        return


_TABLES: Final = """
CREATE TABLE {db}.meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE {db}.object (
    gr TEXT NOT NULL, ns TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
    rev INTEGER NOT NULL, created_rev INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (gr, ns, name)) WITHOUT ROWID;
CREATE TABLE {db}.change (
    rev INTEGER PRIMARY KEY, gr TEXT NOT NULL, ns TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
    op INTEGER NOT NULL, prev_rev INTEGER NOT NULL, created_rev INTEGER NOT NULL, body BLOB NOT NULL,
    at INTEGER NOT NULL);
"""

# From schema version n to n + 1, in order; each runs in the transaction that raises the number.
_MIGRATIONS: Final[dict[int, Callable[[sqlite3.Connection], None]]] = {}

_FILES: Final = ("main", "events")
_INCREMENTAL: Final = 2

Cells: TypeAlias = tuple[object, ...]

# Well below the number of values that SQLite takes in one statement. Fewer rows are filled up to a power of two with
# rows of NULL, which meet nothing: a prepared statement takes some KiB for a row, those for each number of rows 25 MiB.
ROWS_TOGETHER: Final = 64


class SqliteJournal:
    """Stores writes in a data directory, and holds its lock."""

    def __init__(
        self, directory: Path, *, durability: Durability = Durability.FULL, cluster_id: str = "", max_bytes: int = 0
    ) -> None:
        self._directory = directory
        self._durability = durability
        self._max_bytes = max_bytes
        self._lock = _take_lock(directory)
        try:
            self._connection = self._open(cluster_id)
        except BaseException:
            self._lock.close()
            raise

    # --- Opening ------------------------------------------------------------------------------------------------------

    def _open(self, cluster_id: str) -> sqlite3.Connection:
        state, events = self._directory / "state.db", self._directory / "events.db"
        for path in (state, events):
            # Created here and not by SQLite, so that it is never readable by others, not even for a moment.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        try:
            for path in (state, events):
                if not path.stat().st_size:
                    _lay_out(path)
                _make_shrinkable(path)
            # Used by one thread at a time, though not always by the same one.
            connection = sqlite3.connect(state, isolation_level=None, check_same_thread=False, cached_statements=512)
            try:
                connection.execute("ATTACH DATABASE ? AS events", (str(events),))
                for name in _FILES:
                    self._prepare(connection, name, cluster_id)
                self._settle_restored(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{state}: {error}") from error
        return connection

    def _prepare(self, connection: sqlite3.Connection, name: str, cluster_id: str) -> None:
        self._configure(connection, name)
        tables = connection.execute(f"SELECT count(*) FROM {name}.sqlite_master WHERE name = 'meta'").fetchone()[0]
        if not tables:
            _create_tables(connection, name, cluster_id)
        self._bring_up_to_date(connection, name)

    def _configure(self, connection: sqlite3.Connection, name: str) -> None:
        kept_hard = name == "main" and self._durability is Durability.FULL
        mode = connection.execute(f"PRAGMA {name}.journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{self._directory}: the file system does not support SQLite's write-ahead log")
        connection.execute(f"PRAGMA {name}.journal_size_limit = {LOG_BYTES_KEPT}")
        connection.execute(f"PRAGMA {name}.synchronous = {'FULL' if kept_hard else 'NORMAL'}")
        if self._max_bytes:
            connection.execute(f"PRAGMA {name}.max_page_count = {max(16, self._max_bytes // PAGE_BYTES)}")
        found = connection.execute(f"PRAGMA {name}.quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StoreError(f"{self._directory}: the database is damaged ({found}); restore a backup")

    def _bring_up_to_date(self, connection: sqlite3.Connection, name: str) -> None:
        version = _meta(connection, name, "schema")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self._directory}: the database has layout {version} and this program knows up to {SCHEMA_VERSION}; "
                "use the newer program that wrote it"
            )
        for step in range(version, SCHEMA_VERSION):
            connection.execute("BEGIN IMMEDIATE")
            _MIGRATIONS[step](connection)
            connection.execute(f"UPDATE {name}.meta SET value = ? WHERE key = 'schema'", (step + 1,))
            connection.execute("COMMIT")

    def _settle_restored(self, connection: sqlite3.Connection) -> None:
        """Skip revisions after a restore: clients may have seen those that were assigned after the backup."""
        if not any(_meta(connection, name, "backup") for name in _FILES):
            return
        revision = max(_meta(connection, name, "revision") for name in _FILES) + RESTORED_SKIP
        connection.execute("BEGIN IMMEDIATE")
        for name in _FILES:
            connection.execute(f"DELETE FROM {name}.change")
            connection.executemany(
                f"UPDATE {name}.meta SET value = ? WHERE key = ?",
                [(revision, "revision"), (revision, "compacted"), (0, "backup")],
            )
        connection.execute("DELETE FROM main.meta WHERE key = 'restored'")
        connection.execute("INSERT INTO main.meta VALUES ('restored', ?)", (revision,))
        connection.execute("COMMIT")

    # --- Reading ------------------------------------------------------------------------------------------------------

    def load(self) -> LoadedState:
        connection = self._connection
        rows: list[JournalRow] = []
        for name in _FILES:
            query = f"SELECT gr, ns, name, uid, rev, created_rev, body FROM {name}.object"
            for gr, ns, n, uid, rev, born, body in connection.execute(query):
                rows.append(JournalRow(StoreKey(gr, ns, n), uid, rev, born, body))
        records = self._records(0)
        counted = max(_meta(connection, name, "revision") for name in _FILES)
        seen = max((row.revision for row in rows), default=0)
        revision = max(counted, seen, records[-1].revision if records else 0)
        compacted = max(_meta(connection, name, "compacted") for name in _FILES)
        if unreadable := [record.revision for record in records if not _is_object(record.body)]:
            # A watch cannot pass a change that cannot be decoded: clients list again after it.
            compacted = max(compacted, *unreadable)
            log.error("the history up to revision %d is dropped: a change in it is no JSON object", compacted)
        rows = self._readable(rows, {(one.key, one.revision): one.body for one in records if _is_object(one.body)})
        records = [record for record in records if record.revision > compacted]
        return LoadedState(
            revision=revision,
            compacted=compacted,
            cluster_id=connection.execute("SELECT value FROM main.meta WHERE key = 'cluster_id'").fetchone()[0],
            rows=rows,
            records=records,
            restored=(connection.execute("SELECT value FROM main.meta WHERE key = 'restored'").fetchone() or (0,))[0],
        )

    def _readable(self, rows: list[JournalRow], changes: Mapping[tuple[StoreKey, int], bytes]) -> list[JournalRow]:
        """The rows that hold an object; a damaged body is taken from the change that wrote it, if that is still there.

        One damaged row must neither keep the others of its kind from being listed nor the server from starting. What
        cannot be recovered is moved into the folder `damaged`, so that its name can be used again.
        """
        out: list[JournalRow] = []
        for row in rows:
            body = row.body if _is_object(row.body) else changes.get((row.key, row.revision))
            if body is not None:
                out.append(row if body is row.body else row._replace(body=body))
                continue
            self._set_aside(row)
        return out

    def _set_aside(self, row: JournalRow) -> None:
        folder = self._directory / "damaged"
        folder.mkdir(mode=0o700, exist_ok=True)
        file = folder / quote(f"{row.key.resource}_{row.key.namespace}_{row.key.name}_{row.revision}", safe="")
        raw: object = row.body  # SQLite gives back whatever was written, also a text
        write_private(file, raw if isinstance(raw, bytes) else str(raw).encode())
        for name in _FILES:
            self._connection.execute(
                f"DELETE FROM {name}.object WHERE gr = ? AND ns = ? AND name = ? AND rev = ?", (*row.key, row.revision)
            )
        place = "/".join(filter(None, (row.key.namespace, row.key.name)))
        log.error(
            "the stored %s %s is no JSON object: it is not served, its bytes are in %s", row.key.resource, place, file
        )

    def _records(self, after: int) -> list[JournalRecord]:
        found: list[JournalRecord] = []
        for name in _FILES:
            query = (
                f"SELECT rev, gr, ns, name, uid, op, prev_rev, created_rev, body, at FROM {name}.change "
                "WHERE rev > ? ORDER BY rev"
            )
            for rev, gr, ns, n, uid, op, previous, born, body, at in self._connection.execute(query, (after,)):
                found.append(
                    JournalRecord(
                        StoreKey(gr, ns, n), WriteOperation(op), rev, previous, born, uid, body, at, name == "events"
                    )
                )
        found.sort(key=lambda record: record.revision)
        return found

    # --- Writing ------------------------------------------------------------------------------------------------------

    def commit(self, records: Sequence[JournalRecord]) -> None:
        """One transaction, in as few statements as there are sorts of change.

        Every statement gives up Python's lock and has to win it back from the event loop, which costs milliseconds when
        that is busy: a statement for each row would make a batch of sixty take half a second.
        """
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for name, ephemeral in (("main", False), ("events", True)):
                batch = [record for record in records if record.ephemeral is ephemeral]
                if batch:
                    self._write(name, batch)
                    execute(f"UPDATE {name}.meta SET value = ? WHERE key = 'revision'", (batch[-1].revision,))
            execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise

    def _write(self, name: str, records: Sequence[JournalRecord]) -> None:
        self._many(
            f"INSERT INTO {name}.change SELECT * FROM (VALUES {{rows}}) WHERE column1 IS NOT NULL",
            [(r.revision, *r.key, r.uid, r.op, r.previous_revision, r.created_revision, r.body, r.at) for r in records],
        )
        added: list[Cells] = []
        modified: list[Cells] = []
        deleted: list[Cells] = []
        for before, last in _net(records):
            if last.op is not WriteOperation.DELETED:
                row = (*last.key, last.uid, last.revision, last.created_revision, last.body)
                if before:
                    modified.append((*row, before))
                else:
                    added.append(row)
            elif before:
                deleted.append((*last.key, before))
        self._many(f"INSERT INTO {name}.object SELECT * FROM (VALUES {{rows}}) WHERE column1 IS NOT NULL", added)
        # The memory compared already; if the file disagrees, the memory is wrong and must be rebuilt from it.
        self._many(
            f"UPDATE {name}.object SET uid = v.column4, rev = v.column5, created_rev = v.column6, body = v.column7 "
            "FROM (VALUES {rows}) AS v "
            "WHERE gr = v.column1 AND ns = v.column2 AND name = v.column3 AND rev = v.column8",
            modified,
        )
        self._many(f"DELETE FROM {name}.object WHERE (gr, ns, name, rev) IN (VALUES {{rows}})", deleted)

    def _many(self, statement: str, rows: Sequence[Cells]) -> None:
        """Run a statement over many rows of values, and see that it met every one of them."""
        for start in range(0, len(rows), ROWS_TOGETHER):
            some = rows[start : start + ROWS_TOGETHER]
            number, columns = 1 << (len(some) - 1).bit_length(), len(some[0])
            cells = [cell for row in some for cell in row]
            cells += [None] * ((number - len(some)) * columns)
            done = self._connection.execute(_with_rows(statement, number, columns), cells)
            if done.rowcount != len(some):
                raise StoreError(f"{done.rowcount} of {len(some)} objects are on the disk as they were expected to be")

    def compact(self, revision: int, rows_max: int) -> int:
        """Small steps between the batches of writes: a long one would be felt as a stall by every client."""
        connection, removed = self._connection, 0
        connection.execute("BEGIN IMMEDIATE")
        try:
            for name in _FILES:
                newest = connection.execute(
                    f"SELECT max(rev) FROM (SELECT rev FROM {name}.change WHERE rev <= ? ORDER BY rev LIMIT ?)",
                    (revision, rows_max),
                ).fetchone()[0]
                if newest is None:
                    continue
                removed += connection.execute(f"DELETE FROM {name}.change WHERE rev <= ?", (newest,)).rowcount
                connection.execute(f"UPDATE {name}.meta SET value = ? WHERE key = 'compacted'", (newest,))
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return removed

    def shrink(self, pages_max: int) -> bool:
        """Free pages are kept for the writes to come: a quarter of those in use, and at least 8 MiB. The rest is cut
        off, in small steps for the same reason; then the log is emptied, which is as long as its last burst of writes.
        """
        connection, more = self._connection, False
        for name in _FILES:
            pages, free = (
                connection.execute(f"PRAGMA {name}.{what}").fetchone()[0] for what in ("page_count", "freelist_count")
            )
            surplus = free - max(FREE_PAGES_MIN, (pages - free) // 4)
            if surplus > 0:
                # As a script: `execute` takes one step of a statement without columns, which is one page of them.
                connection.executescript(f"PRAGMA {name}.incremental_vacuum({min(surplus, pages_max)})")
            if surplus > pages_max:
                more = True
            else:
                # The file is cut when the log is copied into it.
                connection.execute(f"PRAGMA {name}.wal_checkpoint(TRUNCATE)").fetchall()
        return more

    def release_memory(self) -> None:
        """Empty the caches of pages, 2 MiB for each file after many writes."""
        self._connection.execute("PRAGMA shrink_memory")

    def since(self, revision: int) -> list[JournalRecord]:
        with suppress(sqlite3.Error):
            self._connection.close()
        self._connection = self._open("")
        # Check that writing works before the store is reported as healthy.
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("UPDATE main.meta SET value = value WHERE key = 'revision'")
        self._connection.execute("INSERT OR REPLACE INTO main.meta VALUES ('probe', zeroblob(65536))")
        self._connection.execute("COMMIT")
        return self._records(revision)

    def backup(self, target: Path) -> None:
        """A copy of the whole state, taken between two batches; starting from it skips the revisions since."""
        # `parents` would make the folder above with the modes that the shell has set.
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.parent.chmod(0o700)
        target.mkdir(mode=0o700, exist_ok=False)
        for name, file in (("main", "state.db"), ("events", "events.db")):
            path = target / file
            self._connection.execute(f"VACUUM {name} INTO ?", (str(path),))
            os.chmod(path, 0o600)
            copy = sqlite3.connect(path, isolation_level=None)
            try:
                copy.execute("UPDATE meta SET value = 1 WHERE key = 'backup'")
            finally:
                copy.close()

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        self._lock.close()


def _lay_out(path: Path) -> None:
    """Replace an empty file by a database without tables, in the layout that can be cut shorter. SQLite would sync each
    setting for itself; this file is synced once, before it gets its name."""
    aside = path.with_name(f"{path.name}.new")
    # The log of an earlier database of this name would be taken for the log of this one.
    for old in (aside, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))):
        old.unlink(missing_ok=True)
    try:
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
        _sync(aside)
        aside.replace(path)
        _sync(path.parent)
    except (OSError, sqlite3.OperationalError):
        # The disk is full or cannot be written: the next write gets the error.
        aside.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_shrinkable(path: Path) -> None:
    """Give a file the layout that can be cut shorter. SQLite takes these settings for a main database only, and for one
    that holds tables already (written by an earlier version) only while it copies the whole of it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] == _INCREMENTAL:
            return
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # The disk is full or cannot be written: the next write gets the error.
        with suppress(sqlite3.OperationalError):
            connection.execute("VACUUM")


def _create_tables(connection: sqlite3.Connection, name: str, cluster_id: str) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.format(db=name).split(";"):
        connection.execute(statement)
    connection.executemany(
        f"INSERT INTO {name}.meta VALUES (?, ?)",
        [
            ("schema", SCHEMA_VERSION),
            ("cluster_id", cluster_id),
            ("revision", FIRST_REVISION),
            ("compacted", FIRST_REVISION),
            ("backup", 0),
        ],
    )
    connection.execute("COMMIT")


def _meta(connection: sqlite3.Connection, name: str, key: str) -> int:
    return int(connection.execute(f"SELECT value FROM {name}.meta WHERE key = ?", (key,)).fetchone()[0])


def _net(records: Sequence[JournalRecord]) -> Iterator[tuple[int, JournalRecord]]:
    """What a batch comes to for each key: the revision it had before (0: none), and its last record."""
    before: dict[StoreKey, int] = {}
    last: dict[StoreKey, JournalRecord] = {}
    for record in records:
        before.setdefault(record.key, record.previous_revision)
        last[record.key] = record
    return ((before[key], record) for key, record in last.items())


@lru_cache(maxsize=128)
def _with_rows(statement: str, rows: int, columns: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement.format(rows=", ".join([row] * rows))


# --- The data directory -----------------------------------------------------------------------------------------------


class _Lock:
    """An exclusive lock on a directory, with the holder's process id inside."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _take_lock(directory: Path) -> _Lock:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if kind := network_filesystem(directory):
        raise StoreError(f"{directory} is on a network file system ({kind}), where SQLite's locks do not hold")
    descriptor = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreError(
            f"{directory} is in use by another server (process {holder or 'unknown'}); one data directory, one server"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return _Lock(descriptor)
