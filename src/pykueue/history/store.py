"""Records in SQLite: one file, one connection, one thread. The only module of this package with SQL.

A record is one row, with its attempts as one value; charged usage by day is kept beside the rows and changed in the
transaction that changes them, by the difference between the old and the new row [HI-L5]. Names that repeat are stored
once, in `word`; pod sets in `shape`.

One connection for reading and writing: SQLite's WAL-reset bug (fixed in 3.51.3) needs two.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kubemachinery.filesystems import network_filesystem
from pykueue.errors import PykueueError
from pykueue.history import rollups
from pykueue.history.budget_accounts import Charge, ChargeCounter, ChargingRules
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.queries import NO_END, RecordFilter, WaitingRow, waiting_row
from pykueue.history.records import Attempt, Outcome, Seconds, WorkloadRecord
from pykueue.history.retention import ClockLook
from pykueue.history.rollups import DAY_SECONDS, RollupKey
from pykueue.history.trouble_records import TroubleRecord

T = TypeVar("T")

LAYOUT: Final = 1
PAGE_BYTES: Final = 8_192
LOG_BYTES_KEPT: Final = 16 * 1024 * 1024
# Rows that one transaction of the retention deletes.
PURGED_TOGETHER: Final = 1_000

_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE shape (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE record (
    id INTEGER PRIMARY KEY, uid NOT NULL UNIQUE, ended INTEGER NOT NULL, submitted INTEGER NOT NULL, started INTEGER,
    namespace INTEGER NOT NULL, queue INTEGER NOT NULL, cluster_queue INTEGER NOT NULL, user INTEGER NOT NULL,
    state INTEGER NOT NULL, evictions INTEGER NOT NULL, name TEXT NOT NULL, job_name TEXT NOT NULL,
    job_kind INTEGER NOT NULL, job_uid, priority INTEGER NOT NULL, priority_class INTEGER NOT NULL,
    pods INTEGER NOT NULL, shape INTEGER NOT NULL, ready INTEGER, exit_code INTEGER, limit_seconds INTEGER,
    expected_seconds INTEGER, slice_of TEXT, revision INTEGER NOT NULL, seen INTEGER NOT NULL,
    inexact INTEGER NOT NULL, attempts BLOB NOT NULL);
CREATE INDEX by_end ON record (ended);
CREATE INDEX by_start ON record (started, submitted);
CREATE INDEX by_user ON record (user, ended);
CREATE INDEX by_queue ON record (queue, ended);
CREATE TABLE usage (
    day INTEGER NOT NULL, namespace INTEGER NOT NULL, queue INTEGER NOT NULL, cluster_queue INTEGER NOT NULL,
    user INTEGER NOT NULL, flavor INTEGER NOT NULL, resource INTEGER NOT NULL, high INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (day, namespace, queue, cluster_queue, user, flavor, resource)) WITHOUT ROWID;
"""

# From layout n to n + 1, in order; each runs in the transaction that raises the number.
_MIGRATIONS: Final[Mapping[int, Callable[[sqlite3.Connection], None]]] = {}

_COLUMNS: Final = (
    "uid, ended, submitted, started, namespace, queue, cluster_queue, user, state, evictions, name, job_name, job_kind,"
    " job_uid, priority, priority_class, pods, shape, ready, exit_code, limit_seconds, expected_seconds, slice_of,"
    " revision, seen, inexact, attempts"
)
_UPSERT: Final = (
    f"INSERT INTO record ({_COLUMNS}) VALUES ({', '.join('?' * len(_COLUMNS.split(',')))})"
    " ON CONFLICT (uid) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in map(str.strip, _COLUMNS.split(",")) if name != "uid")
)

# The columns of words besides `user`.
_WORD_COLUMNS: Final = (
    *(("record", name) for name in ("namespace", "queue", "cluster_queue", "job_kind", "priority_class", "state")),
    *(("usage", name) for name in ("namespace", "queue", "cluster_queue", "flavor", "resource")),
)

_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Attempt, ...])
# Bytes times seconds can exceed 64 bits, so a sum is two numbers: high · 2⁴⁰ + low. Both are added to independently.
_LOW_BITS: Final = 40
_LOW_MASK: Final = 2**_LOW_BITS - 1


_FORECAST_SCORES: Final = """CREATE TABLE IF NOT EXISTS forecast_scores (
    cluster_queue TEXT PRIMARY KEY, scored INTEGER NOT NULL, covered INTEGER NOT NULL, scores TEXT NOT NULL)
    WITHOUT ROWID"""
_OPEN_FORECASTS: Final = """CREATE TABLE IF NOT EXISTS open_forecast (
    uid TEXT NOT NULL, made INTEGER NOT NULL, cluster_queue TEXT NOT NULL, waited INTEGER NOT NULL,
    p50 INTEGER NOT NULL, p90 INTEGER NOT NULL, shown_p90 INTEGER NOT NULL, PRIMARY KEY (uid, made)) WITHOUT ROWID"""
# The scores that count for P90. This table and the next are apart from the two above, which programs without them can
# still read and write. A ClusterQueue without a row here has scores that such a program wrote: all of them count.
_P90_SCORES: Final = """CREATE TABLE IF NOT EXISTS forecast_p90_scores (
    cluster_queue TEXT PRIMARY KEY, scores TEXT NOT NULL) WITHOUT ROWID"""
# The same by size class, and how many were scored and covered. What a program without this table scored is in no class.
_SIZE_SCORES: Final = """CREATE TABLE IF NOT EXISTS forecast_size_scores (
    cluster_queue TEXT NOT NULL, size TEXT NOT NULL, scored INTEGER NOT NULL, covered INTEGER NOT NULL,
    scores TEXT NOT NULL, PRIMARY KEY (cluster_queue, size)) WITHOUT ROWID"""
# The size classes of open forecasts, of those that have one.
_OPEN_SIZES: Final = """CREATE TABLE IF NOT EXISTS open_forecast_size (
    uid TEXT NOT NULL, made INTEGER NOT NULL, size TEXT NOT NULL, PRIMARY KEY (uid, made)) WITHOUT ROWID"""
# The open forecasts that do not count for P90.
_P50_ONLY: Final = """CREATE TABLE IF NOT EXISTS open_forecast_p50_only (
    uid TEXT NOT NULL, made INTEGER NOT NULL, PRIMARY KEY (uid, made)) WITHOUT ROWID"""
_TROUBLES: Final = """CREATE TABLE IF NOT EXISTS trouble (
    id INTEGER PRIMARY KEY, type TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, job TEXT NOT NULL,
    queue TEXT NOT NULL, cluster_queue TEXT NOT NULL, since INTEGER NOT NULL, found INTEGER NOT NULL,
    ended INTEGER NOT NULL, message TEXT NOT NULL, UNIQUE (type, namespace, name, found))"""
# The columns of a trouble are the fields of its record.
_TROUBLE_FIELDS: Final = TroubleRecord.__struct_fields__
_TROUBLE_COLUMNS: Final = ", ".join(_TROUBLE_FIELDS)


class StoredSizeScores(NamedTuple):
    """The scored forecasts of a size class: how many, how many of their P90 were kept, and the last that count for P90,
    each with the time that it was made at, in seconds, and its score of P90."""

    scored: int
    covered: int
    p90_scores: tuple[tuple[int, float], ...]


class StoredScores(NamedTuple):
    """The scored forecasts of a ClusterQueue: how many, how many of their P90 were kept, and the last ones, each with
    the time that it was made at, in seconds, and its scores of P50 and P90. Then the last that count for P90, each with
    this time and its score of P90; and those of each size class."""

    scored: int
    covered: int
    scores: tuple[tuple[int, float, float], ...]
    p90_scores: tuple[tuple[int, float], ...]
    sizes: Mapping[str, StoredSizeScores] = MappingProxyType({})


class StoredForecast(NamedTuple):
    """A forecast of a Workload that has not started, in seconds: when it was made, how long the Workload had waited,
    the distances of P50 and P90 before their correction, the P90 that was shown, whether it counts for the correction
    of P90, and the size class of the Workload, empty if it is not known."""

    made: Seconds
    cluster_queue: str
    waited: int
    p50: int
    p90: int
    shown_p90: Seconds
    counts_for_p90: bool
    size: str = ""


class RecordsAtRisk(NamedTuple):
    """How many records are not stored of Workloads that are deleted, and of those that no finalizer of ours holds:
    these may be deleted at any moment, also while no manager runs."""

    deleted: int
    released: int


NOTHING_AT_RISK: Final = RecordsAtRisk(0, 0)


class HistoryStoreError(PykueueError):
    """The store cannot be used; the message is a sentence for the operator."""


class DamagedStoreError(HistoryStoreError):
    """The file begins as a database, and a page or a record of it cannot be read."""


class MovedStoreError(HistoryStoreError):
    """The file was deleted, moved away or replaced while it was open: what is written to it now has no name."""


class NewerStoreError(HistoryStoreError):
    """A newer program wrote the file."""


class ForeignStoreError(HistoryStoreError):
    """The file is a database of another program, or no database."""


_MAGIC: Final = b"SQLite format 3\0"


class RiskNote:
    """The file of the lock of a history that cannot be opened: this process keeps the lock, and the numbers of records
    that would be lost if it were killed. Raises HistoryStoreError where no history was used before, or another process
    uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lock, is_new = _take_lock(path)
        self._lock: int | None = lock
        if is_new:
            with suppress(OSError):
                os.unlink(_lock_path(path))
            self.close()
            raise HistoryStoreError(f"{path}: was not used as a history before")
        # What the process that used the file before could not store.
        self.noted_before = _read_note(lock)

    def note_risk(self, risk: RecordsAtRisk) -> None:
        """Keep the numbers, as an open store does."""
        if self._lock is not None:
            with _reported(self._path):
                _write_note(self._lock, risk)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class HistoryStore:
    """The records of one cluster in one file. Calls come one at a time, and may block."""

    def __init__(self, path: Path | None, *, max_bytes: int = 0, reads_only: bool = False) -> None:
        """Open or create the file; None keeps the records in memory. Raises HistoryStoreError with the reason if it
        cannot be used. With `reads_only`, the file of another process is read beside it, and not changed."""
        self.path = path
        self._max_bytes = max_bytes
        self._lock: int | None = None
        is_new_lock = False
        if path is not None and not reads_only:
            self._lock, is_new_lock = _take_lock(path)
        try:
            with _reported(path):
                self._connection = self._open_for_reading() if reads_only else self._open()
        except BaseException:
            if is_new_lock:
                # Nothing is left beside a file that is not used.
                with suppress(OSError):
                    os.unlink(_lock_path(path))
            self._unlock()
            raise
        # What the process that used the file before could not store.
        self.noted_before = _read_note(self._lock) if self._lock is not None else NOTHING_AT_RISK
        self._identity = None if path is None else _identity(path)
        self._words: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._shapes: dict[bytes, int] = {}
        self._bodies: dict[int, bytes] = {}

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def note_risk(self, risk: RecordsAtRisk) -> None:
        """Keep how many records would be lost if this process were killed. The numbers are written over those before
        them, in the file of the lock: this needs no space on the disk."""
        if self._lock is not None:
            with _reported(self.path):
                _write_note(self._lock, risk)

    # --- The place of the file ----------------------------------------------------------------------------------------

    def is_in_place(self) -> bool:
        """Whether the path still names the file that is open."""
        return self.path is None or _identity(self.path) == self._identity

    def put_back(self) -> bool:
        """Write the content of the open file to its path again, if there is none any more; return whether that was
        done. What another program has put there is not touched."""
        if self.path is None or _identity(self.path) is not None:
            return False
        copied = self.path.with_name(f"{self.path.name}.restored")
        with _reported(self.path):
            copied.unlink(missing_ok=True)
            os.close(os.open(copied, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            target = sqlite3.connect(copied, isolation_level=None)
            try:
                self._connection.backup(target)
            finally:
                target.close()
            # The log of the deleted file is not that of the copy.
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            os.link(copied, self.path)  # fails if there is a file again, which a renaming would replace
            copied.unlink()
        return True

    # --- Opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.path is not None:
            # Created here and not by SQLite, so that it is never readable by others, not even for a moment.
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                self._refuse_no_database(os.pread(descriptor, len(_MAGIC), 0))
            finally:
                os.close(descriptor)
        connection = sqlite3.connect(self.path or ":memory:", isolation_level=None, check_same_thread=False)
        try:
            self._refuse_foreign(connection)
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal" and self.path is not None:
                raise HistoryStoreError(f"{self.path}: the file system does not support SQLite's write-ahead log")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}")
            # What power loss takes is read again from the objects.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA mmap_size = 1073741824")
            if self._max_bytes:
                connection.execute(f"PRAGMA max_page_count = {max(32, self._max_bytes // PAGE_BYTES)}")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_for_reading(self) -> sqlite3.Connection:
        assert self.path is not None, "a store in memory belongs to one process"
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)

    def _refuse_no_database(self, begin: bytes) -> None:
        """Refuse a file that was never a history, such as notes whose name was given by mistake: a damaged history is
        renamed, and this must not be. A first page of zeros is what power loss may leave of a history."""
        if begin.strip(b"\0") and begin != _MAGIC:
            raise ForeignStoreError(f"{self.path}: is not a history of Workloads, and is not changed")

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        """Refuse a database of another program, such as that of the API server, before anything is written to it."""
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and not {"meta", "record", "usage"} <= tables:
            raise ForeignStoreError(f"{self.path}: is a database, but not a history of Workloads")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]:
            with _transaction(connection):
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('layout', ?)", (LAYOUT,))
                connection.execute("INSERT INTO meta VALUES ('purged', 0)")
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise DamagedStoreError(f"{self.path}: the file is damaged: {'; '.join(found.splitlines())}")
        layout = self._layout(connection)
        if layout > LAYOUT:
            raise NewerStoreError(
                f"{self.path}: the history has layout {layout} and this program reads up to {LAYOUT};"
                " use the program that wrote it, or move the file away to start a new history"
            )
        for step in range(layout, LAYOUT):
            with _transaction(connection):
                _MIGRATIONS[step](connection)
                connection.execute("UPDATE meta SET value = ? WHERE key = 'layout'", (step + 1,))
        # Tables of their own, which programs of the same layout without forecasts or troubles do not read.
        connection.execute(_FORECAST_SCORES)
        connection.execute(_OPEN_FORECASTS)
        connection.execute(_P90_SCORES)
        connection.execute(_P50_ONLY)
        connection.execute(_SIZE_SCORES)
        connection.execute(_OPEN_SIZES)
        connection.execute(_TROUBLES)
        connection.execute("CREATE INDEX IF NOT EXISTS trouble_by_end ON trouble (ended)")

    def _layout(self, connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT value FROM meta WHERE key = 'layout'").fetchone()
        if row is None or not isinstance(row[0], int):
            raise DamagedStoreError(f"{self.path}: the number of its layout is missing")
        return int(row[0])

    # --- Writing ------------------------------------------------------------------------------------------------------

    def save(self, records: Sequence[WorkloadRecord]) -> None:
        """Store all records or, raising, none. A record that is stored already changes nothing [HI3]."""
        try:
            with _reported(self.path), _transaction(self._connection):
                changed: dict[RollupKey, int] = {}
                for record in records:
                    before = self._usage_before(record.uid)
                    after = rollups.closed(record)
                    if before or after:
                        rollups.add(changed, rollups.difference(before, after))
                    self._connection.execute(_UPSERT, self._row(record))
                self._add_usage(changed)
        except BaseException:
            # Numbers of words that the transaction would have added are not in the file.
            self._forget_words()
            raise

    def _forget_words(self) -> None:
        self._words.clear()
        self._texts.clear()
        self._shapes.clear()
        self._bodies.clear()

    def _usage_before(self, uid: str) -> dict[RollupKey, int]:
        found = self._connection.execute(
            "SELECT namespace, queue, user, attempts FROM record WHERE uid = ?", (_packed(uid),)
        ).fetchone()
        if found is None:
            return {}
        namespace, queue, user, attempts = found
        old = WorkloadRecord(
            uid=uid,
            namespace=self._text(namespace),
            name="",
            queue=self._text(queue),
            user=self._text(user),
            attempts=_DECODER.decode(attempts),
        )
        return rollups.closed(old)

    def _add_usage(self, changed: Mapping[RollupKey, int]) -> None:
        self._connection.executemany(
            "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " high = high + excluded.high, low = low + excluded.low",
            [
                (key.day, *map(self._word, key[1:]), amount >> _LOW_BITS, amount & _LOW_MASK)
                for key, amount in sorted(changed.items())
            ],
        )

    def _row(self, record: WorkloadRecord) -> tuple[Any, ...]:
        return (
            _packed(record.uid),
            NO_END if record.ended is None else record.ended,
            record.submitted,
            record.started,
            self._word(record.namespace),
            self._word(record.queue),
            self._word(record.cluster_queue),
            self._word(record.user),
            self._word(record.state),
            record.evictions,
            record.name,
            record.job_name,
            self._word(record.job_kind),
            _packed(record.job_uid),
            record.priority,
            self._word(record.priority_class),
            record.pods,
            self._shape(record.shape),
            record.ready,
            record.exit_code,
            record.limit_seconds,
            record.expected_seconds,
            record.slice_of or None,
            record.revision,
            record.seen,
            int(record.inexact),
            _ENCODER.encode(record.attempts),
        )

    # --- Reading ------------------------------------------------------------------------------------------------------

    def ask(self, question: Callable[[HistoryStore], T]) -> T:
        """Answer a question, with an error of SQLite as one of the store."""
        with _reported(self.path):
            return question(self)

    def find(self, uids: Iterable[str]) -> dict[str, WorkloadRecord]:
        """The stored records of some Workloads."""
        found: dict[str, WorkloadRecord] = {}
        for uid in uids:
            row = self._connection.execute(f"SELECT {_COLUMNS} FROM record WHERE uid = ?", (_packed(uid),)).fetchone()
            if row is not None:
                found[uid] = self._record(row)
        return found

    def open_records(self) -> list[WorkloadRecord]:
        """The records that have not ended."""
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM record WHERE ended = ?", (NO_END,))
        return [self._record(row) for row in rows.fetchall()]

    def select(
        self, wanted: RecordFilter, *, after: int = 0, limit: int | None = None, most_read: int | None = None
    ) -> tuple[list[WorkloadRecord], int]:
        """The records that match, in the order in which they were first stored; and from which to continue, or 0.

        `after` is what an earlier call returned; without a limit all are returned. At most `most_read` records are
        read: fewer of them may match than the limit allows, although there are more.
        """
        where, values = self._where(wanted)
        found: list[WorkloadRecord] = []
        query = f"SELECT id, {_COLUMNS} FROM record WHERE {where} AND id > ? ORDER BY id"
        rows = self._connection.execute(query, (*values, after))
        last = after
        for read, (identity, *row) in enumerate(rows):
            if len(found) == limit or read == most_read:
                rows.close()
                return found, last
            last = identity
            record = self._record(row)
            if not wanted.needs_record or wanted.matches(record):
                found.append(record)
        return found, 0

    def usage(self, wanted: RecordFilter, now: Seconds) -> dict[RollupKey, int]:
        """Charged usage by day, of the days that the window touches; usage that is still reserved counts until now.

        Filters by namespace, user and queue apply; the others do not."""
        first, last = wanted.since // DAY_SECONDS, (min(wanted.until, now + 1) - 1) // DAY_SECONDS
        chosen = {"namespace": wanted.namespace, "queue": wanted.queue, "user": wanted.user}
        chosen["cluster_queue"] = wanted.cluster_queue
        named = [(column, text) for column, text in chosen.items() if text]
        where = "".join(f" AND {column} = ?" for column, _ in named)
        rows = self._connection.execute(
            f"SELECT * FROM usage WHERE day BETWEEN ? AND ?{where}",
            (first, last, *(self._known(text) for _, text in named)),
        ).fetchall()
        totals = self._totals(rows)
        for record in self.open_records():
            for key, amount in rollups.running(record, now).items():
                matches = all(getattr(key, column) == text for column, text in named)
                if matches and first <= key.day <= last:
                    rollups.add(totals, {key: amount})
        return totals

    def _totals(self, rows: Iterable[Sequence[int]]) -> dict[RollupKey, int]:
        """Rows of `usage` as sums; those that have become zero are left out."""
        text = self._text
        return {
            RollupKey(day, *map(text, numbers)): total
            for day, *numbers, high, low in rows
            if (total := (high << _LOW_BITS) + low)
        }

    def waiting(self, wanted: RecordFilter, by: Sequence[str]) -> list[WaitingRow]:
        """The waiting of Workloads that started in the window, by group."""
        columns = {"clusterqueue": "cluster_queue", "day": f"started / {DAY_SECONDS}"}
        chosen = [columns.get(word, word) for word in by]
        where, values = self._where(RecordFilter(namespace=wanted.namespace, user=wanted.user, queue=wanted.queue))
        if wanted.cluster_queue:
            where, values = f"{where} AND cluster_queue = ?", [*values, self._known(wanted.cluster_queue)]
        rows = self._connection.execute(
            f"SELECT started - submitted{''.join(f', {column}' for column in chosen)} FROM record"
            f" WHERE started >= ? AND started < ? AND {where}",
            (wanted.since, wanted.until, *values),
        )
        found: dict[tuple[int, ...], list[int]] = {}
        for waited, *group in rows:
            found.setdefault(tuple(group), []).append(max(0, waited))

        def named(group: tuple[int, ...]) -> tuple[str | int, ...]:
            return tuple(
                number if word == "day" else self._text(number) for word, number in zip(by, group, strict=True)
            )

        return sorted(waiting_row(named(group), values) for group, values in found.items())

    def runs(self, limit: int) -> list[WorkloadRecord]:
        """The records that ended last and ran, oldest first: what run times are learned from."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM record WHERE ended < ? AND started IS NOT NULL"
            " ORDER BY ended DESC, id DESC LIMIT ?",
            (NO_END, limit),
        ).fetchall()
        return [self._record(row) for row in reversed(rows)]

    def last_row(self) -> int:
        """The number of the record that was first stored last; 0 without records."""
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM record").fetchone()[0])

    def charges(
        self, rules: ChargingRules, calendar: BudgetCalendar, first: Seconds, last_row: int, excluded: frozenset[str]
    ) -> dict[tuple[str, str, Seconds], Charge]:
        """The charges of ended records since a time, by group, resource and start of the period [BU8].

        Counted are the records up to a row, without some UIDs: those that may still change are counted by the caller.
        """
        rows = self._connection.execute(
            "SELECT uid, namespace, queue, user, attempts FROM record WHERE ended > ? AND ended < ? AND id <= ?",
            (first, NO_END, last_row),
        )
        left_out = {_packed(uid) for uid in excluded}
        counter = ChargeCounter(rules, calendar, first)
        decode, text = _DECODER.decode, self._text
        for uid, namespace, queue, user, attempts in rows:
            if uid not in left_out:
                counter.count(decode(attempts), text(namespace), text(queue), text(user))
        return counter.sums

    def submitted_since(self, since: Seconds, limit: int) -> list[WorkloadRecord]:
        """The records that were submitted at or after a time, in the order of submission; of more than `limit`, those
        that ended last."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM record WHERE ended >= ? AND submitted >= ? ORDER BY ended DESC LIMIT ?",
            (since, since, limit),
        ).fetchall()
        return sorted((self._record(row) for row in rows), key=lambda record: (record.submitted, record.uid))

    def first_submitted(self) -> Seconds | None:
        """When the first of the stored records was submitted, about: that of the one that ended first."""
        row = self._connection.execute("SELECT submitted FROM record ORDER BY ended LIMIT 1").fetchone()
        return None if row is None else int(row[0])

    # --- Forecasts ----------------------------------------------------------------------------------------------------

    def forecast_scores(self) -> dict[str, StoredScores]:
        """Of each ClusterQueue the scores of its last forecasts [FC3]."""
        rows = self._connection.execute("SELECT * FROM forecast_scores").fetchall()
        of_p90 = dict(self._connection.execute("SELECT cluster_queue, scores FROM forecast_p90_scores"))
        sizes: defaultdict[str, dict[str, StoredSizeScores]] = defaultdict(dict)
        for name, size, scored, covered, text in self._connection.execute("SELECT * FROM forecast_size_scores"):
            of_size = tuple((made, p90) for made, p90 in json.loads(text))
            sizes[name][size] = StoredSizeScores(scored, covered, of_size)
        found: dict[str, StoredScores] = {}
        for name, scored, covered, text in rows:
            scores = tuple((made, p50, p90) for made, p50, p90 in json.loads(text))
            p90_scores = json.loads(of_p90[name]) if name in of_p90 else ((made, p90) for made, _, p90 in scores)
            of_all = tuple((made, p90) for made, p90 in p90_scores)
            found[name] = StoredScores(scored, covered, scores, of_all, sizes[name])
        return found

    def save_forecast_scores(self, cluster_queue: str, values: StoredScores) -> None:
        row = cluster_queue, values.scored, values.covered, json.dumps(values.scores)
        of_p90 = cluster_queue, json.dumps(values.p90_scores)
        sizes = [
            (cluster_queue, size, each.scored, each.covered, json.dumps(each.p90_scores))
            for size, each in values.sizes.items()
        ]
        with _transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO forecast_scores VALUES (?, ?, ?, ?)", row)
            self._connection.execute("INSERT OR REPLACE INTO forecast_p90_scores VALUES (?, ?)", of_p90)
            self._connection.executemany("INSERT OR REPLACE INTO forecast_size_scores VALUES (?, ?, ?, ?, ?)", sizes)

    def open_forecasts(self) -> dict[str, list[StoredForecast]]:
        """By UID, the forecasts of Workloads that had not started, each in the order in which they were made [FC4]."""
        found: dict[str, list[StoredForecast]] = {}
        p50_only = set(self._connection.execute("SELECT uid, made FROM open_forecast_p50_only"))
        query = "SELECT uid, made, size FROM open_forecast_size"
        sizes = {(uid, made): size for uid, made, size in self._connection.execute(query)}
        for uid, made, *row in self._connection.execute("SELECT * FROM open_forecast ORDER BY uid, made"):
            counts, size = (uid, made) not in p50_only, sizes.get((uid, made), "")
            found.setdefault(uid, []).append(StoredForecast._make((made, *row, counts, size)))
        return found

    def save_open_forecasts(self, forecasts: Mapping[str, Sequence[StoredForecast]]) -> None:
        """Store the forecasts of Workloads, by UID, in place of those stored; none for one that has started."""
        rows = [(uid, *each[:-2]) for uid, found in forecasts.items() for each in found]
        p50_only = [(uid, each.made) for uid, found in forecasts.items() for each in found if not each.counts_for_p90]
        sizes = [(uid, each.made, each.size) for uid, found in forecasts.items() for each in found if each.size]
        with _reported(self.path), _transaction(self._connection):
            for table in ("open_forecast", "open_forecast_p50_only", "open_forecast_size"):
                self._connection.executemany(f"DELETE FROM {table} WHERE uid = ?", ((uid,) for uid in forecasts))
            self._connection.executemany("INSERT OR REPLACE INTO open_forecast VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._connection.executemany("INSERT OR REPLACE INTO open_forecast_p50_only VALUES (?, ?)", p50_only)
            self._connection.executemany("INSERT OR REPLACE INTO open_forecast_size VALUES (?, ?, ?)", sizes)

    # --- Troubles [LG9] -----------------------------------------------------------------------------------------------

    def save_troubles(self, found: Sequence[TroubleRecord]) -> None:
        """Store all records of troubles or, raising, none. One that is stored already is replaced."""
        query = (
            f"INSERT INTO trouble ({_TROUBLE_COLUMNS}) VALUES ({', '.join('?' * len(_TROUBLE_FIELDS))})"
            " ON CONFLICT (type, namespace, name, found)"
            " DO UPDATE SET ended = excluded.ended, message = excluded.message"
        )
        with _reported(self.path), _transaction(self._connection):
            self._connection.executemany(query, map(_trouble_row, found))

    def open_troubles(self) -> list[TroubleRecord]:
        """The records of troubles that have not ended."""
        return self._troubles("ended = ?", (NO_END,))

    def troubles(self, wanted: RecordFilter) -> list[TroubleRecord]:
        """The records of troubles that overlap the window, in the order in which they were found. Filters by namespace
        and queues apply; the others do not."""
        chosen = {"namespace": wanted.namespace, "queue": wanted.queue, "cluster_queue": wanted.cluster_queue}
        given = {column: text for column, text in chosen.items() if text}
        where = " AND ".join(("ended >= ?", "found < ?", *(f"{column} = ?" for column in given)))
        return self._troubles(where, (wanted.since, wanted.until, *given.values()))

    def _troubles(self, where: str, values: Sequence[Any]) -> list[TroubleRecord]:
        rows = self._connection.execute(
            f"SELECT {_TROUBLE_COLUMNS} FROM trouble WHERE {where} ORDER BY found, id", values
        ).fetchall()
        return [_trouble_record(row) for row in rows]

    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM record").fetchone()[0])

    def _where(self, wanted: RecordFilter) -> tuple[str, list[Any]]:
        """The condition of a filter on the stored columns. A name that no record has matches none."""
        terms: list[str] = ["1"]
        values: list[Any] = []

        def add(term: str, *given: object) -> None:
            terms.append(term)
            values.extend(given)

        if wanted.since:
            add("ended >= ?", wanted.since)
        if wanted.until != NO_END:
            add("submitted < ?", wanted.until)
        for column in ("namespace", "user", "queue", "cluster_queue"):
            if text := getattr(wanted, column):
                add(f"{column} = ?", self._known(text))
        if wanted.states:
            numbers = sorted(self._known(state) for state in wanted.states)
            add(f"state IN ({', '.join('?' * len(numbers))})", *numbers)
        if wanted.evicted:
            add("evictions > 0")
        if wanted.name:
            # GLOB and fnmatch agree, but for `[!…]`, which GLOB writes as `[^…]`.
            pattern = wanted.name.replace("[!", "[^")
            add("(job_name GLOB ? OR name GLOB ?)", pattern, pattern)
        return " AND ".join(terms), values

    def _record(self, row: Sequence[Any]) -> WorkloadRecord:
        (uid, ended, submitted, _, namespace, queue, _, user, state, evictions, name, job_name, job_kind, job_uid,
         priority, priority_class, pods, shape, ready, exit_code, limit_seconds, expected_seconds, slice_of, revision,
         seen, inexact, attempts) = row  # fmt: skip
        return WorkloadRecord(
            uid=_unpacked(uid),
            namespace=self._text(namespace),
            name=name,
            job_kind=self._text(job_kind),
            job_name=job_name,
            job_uid=_unpacked(job_uid),
            queue=self._text(queue),
            user=self._text(user),
            priority=priority,
            priority_class=self._text(priority_class),
            pods=pods,
            shape=self._shape_body(shape),
            submitted=submitted,
            ready=ready,
            ended=None if ended == NO_END else ended,
            outcome=Outcome.OPEN if ended == NO_END else self._outcome(state),
            exit_code=exit_code,
            evictions=evictions,
            limit_seconds=limit_seconds,
            expected_seconds=expected_seconds,
            slice_of=slice_of or "",
            attempts=_DECODER.decode(attempts),
            revision=revision,
            seen=seen,
            inexact=bool(inexact),
        )

    def _outcome(self, state: int) -> Outcome:
        """The outcome of a record that has ended."""
        found = _OUTCOMES.get(self._text(state), Outcome.OPEN)
        if found is Outcome.OPEN:
            raise DamagedStoreError(f"{self.path or 'history'}: a record cannot be read: its state is missing")
        return found

    # --- Retention ----------------------------------------------------------------------------------------------------

    def purge(self, before: Seconds, present: Collection[str] = ()) -> int:
        """Delete records, of Workloads and of troubles, that ended before a time: of each at most PURGED_TOGETHER.
        Return how many. Usage by day stays.

        The records of the Workloads with the UIDs `present` are kept: after a restart they would be recorded again
        from their objects, and their usage would be added again [HI-L5]."""
        kept = {_packed(uid) for uid in present}
        with _transaction(self._connection):
            rows = self._connection.execute("SELECT id, uid FROM record WHERE ended < ?", (before,))
            chosen = list(islice(((number,) for number, uid in rows if uid not in kept), PURGED_TOGETHER))
            rows.close()
            self._connection.executemany("DELETE FROM record WHERE id = ?", chosen)
            query = "DELETE FROM trouble WHERE id IN (SELECT id FROM trouble WHERE ended < ? LIMIT ?)"
            troubles = self._connection.execute(query, (before, PURGED_TOGETHER)).rowcount
            self._connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'purged'", (before,))
        return len(chosen) + troubles

    def clock_looks(self) -> tuple[ClockLook, ...]:
        """What the system clock showed at the last looks [HI15]. Without any, as in the file of an earlier version, the
        time of the newest record: the clock showed it before."""
        found = self._connection.execute("SELECT value FROM meta WHERE key = 'clock_looks'").fetchone()
        if found is not None:
            return msgspec.json.decode(found[0], type=tuple[ClockLook, ...])
        newest = self._connection.execute("SELECT max(max(submitted, seen)) FROM record").fetchone()[0]
        return () if newest is None else (ClockLook(0, newest),)

    def save_clock_looks(self, looks: Sequence[ClockLook]) -> None:
        text = msgspec.json.encode(looks).decode()
        with _transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('clock_looks', ?)", (text,))

    def anonymize(self, user: str) -> tuple[int, int]:
        """Replace a user name by a hash of it, in records and in usage; return how many records and rows of usage had
        it [HI10]. Usage is kept for longer than records."""
        # Records of which the user is not known have none that could be replaced.
        number = self._known(user) if user else 0
        alias = f"user-{hashlib.sha256(user.encode()).hexdigest()[:12]}"
        with _transaction(self._connection):
            other = self._word(alias)
            done = self._connection.execute("UPDATE record SET user = ? WHERE user = ?", (other, number))
            rows = self._connection.execute("SELECT * FROM usage WHERE user = ?", (number,)).fetchall()
            self._connection.execute("DELETE FROM usage WHERE user = ?", (number,))
            self._add_usage({key._replace(user=alias): amount for key, amount in self._totals(rows).items()})
            # The name itself may be that of a queue or a namespace too; those rows keep it.
            used = " UNION ".join(f"SELECT 1 FROM {table} WHERE {column} = :word" for table, column in _WORD_COLUMNS)
            if number and self._connection.execute(used, {"word": number}).fetchone() is None:
                self._connection.execute("DELETE FROM word WHERE id = ?", (number,))
                self._words.pop(user, None)
                self._texts.pop(number, None)
        return done.rowcount, len(rows)

    def check(self) -> list[str]:
        """Compare usage by day with the records; return a sentence for each difference [HI-L5].

        Days before the last deletion by retention are left out: their records are gone."""
        purged = self._connection.execute("SELECT value FROM meta WHERE key = 'purged'").fetchone()[0]
        first = -(-purged // DAY_SECONDS)
        expected: dict[RollupKey, int] = {}
        for row in self._connection.execute(f"SELECT {_COLUMNS} FROM record"):
            rollups.add(expected, rollups.closed(self._record(row)))
        stored = self._totals(self._connection.execute("SELECT * FROM usage").fetchall())
        return [
            f"usage of {key}: {stored.get(key, 0)} is stored, the records sum to {expected.get(key, 0)}"
            for key in sorted({**expected, **stored})
            if key.day >= first and stored.get(key, 0) != expected.get(key, 0)
        ]

    # --- Words --------------------------------------------------------------------------------------------------------

    def _word(self, text: str) -> int:
        """The number of a name, which is stored if it is new."""
        number = self._words.get(text)
        if number is None:
            number = self._known(text)
            if not number:
                number = self._connection.execute("INSERT INTO word (text) VALUES (?)", (text,)).lastrowid or 0
            self._words[text], self._texts[number] = number, text
        return number

    def _known(self, text: str) -> int:
        """The number of a name; 0, which no name has, if it is not stored."""
        if text in self._words:
            return self._words[text]
        found = self._connection.execute("SELECT id FROM word WHERE text = ?", (text,)).fetchone()
        return int(found[0]) if found is not None else 0

    def _text(self, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            found = self._connection.execute("SELECT text FROM word WHERE id = ?", (number,)).fetchone()
            text = self._texts[number] = found[0] if found is not None else ""
        return text

    def _shape(self, body: bytes) -> int:
        number = self._shapes.get(body)
        if number is None:
            digest = hashlib.sha256(body).digest()[:16]
            found = self._connection.execute("SELECT id FROM shape WHERE digest = ?", (digest,)).fetchone()
            if found is None:
                query = "INSERT INTO shape (digest, body) VALUES (?, ?)"
                number = self._connection.execute(query, (digest, body)).lastrowid or 0
            else:
                number = int(found[0])
            if len(self._shapes) >= _SHAPES_KEPT:
                self._shapes.clear()
            self._shapes[body] = number
        return number

    def _shape_body(self, number: int) -> bytes:
        body = self._bodies.get(number)
        if body is None:
            found = self._connection.execute("SELECT body FROM shape WHERE id = ?", (number,)).fetchone()
            if len(self._bodies) >= _SHAPES_KEPT:
                self._bodies.clear()
            body = self._bodies[number] = bytes(found[0]) if found is not None else b""
        return body


_SHAPES_KEPT: Final = 4096


def _trouble_row(record: TroubleRecord) -> tuple[Any, ...]:
    values = (getattr(record, name) for name in _TROUBLE_FIELDS)
    return tuple(NO_END if value is None else value for value in values)


def _trouble_record(row: Sequence[Any]) -> TroubleRecord:
    values = dict(zip(_TROUBLE_FIELDS, row, strict=True))
    return TroubleRecord(**values | {"ended": None if values["ended"] == NO_END else values["ended"]})


def set_aside(path: Path, stamp: str) -> Path:
    """Rename a damaged file, with its log, so that a new one can be started; return its new name."""
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{target}{suffix}")
    return target


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _reported(path: Path | None) -> Iterator[None]:
    """Raise an error of SQLite as one of the store: about the content of the file, or about the disk or the lock."""
    try:
        yield
    except msgspec.DecodeError as error:
        # SQLite has no checksums: it does not find damage within a value.
        raise DamagedStoreError(f"{path or 'history'}: a record cannot be read: {error}") from error
    except OSError as error:
        # A directory, or a file of another user. SQLite reports its own errors of the disk otherwise.
        raise HistoryStoreError(f"{path or 'history'}: {error.strerror or error}") from error
    except sqlite3.DatabaseError as error:
        sentence = f"{path or 'history'}: {error}"
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise HistoryStoreError(sentence) from error
        raise DamagedStoreError(sentence) from error


def _identity(path: Path) -> tuple[int, int] | None:
    """The device and the number of the file at a path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _packed(uid: str) -> bytes | str:
    """A UID as 16 bytes; any other text as it is."""
    try:
        found = uuid.UUID(uid)
    except ValueError:
        return uid
    return found.bytes if str(found) == uid else uid


def _unpacked(stored: bytes | str) -> str:
    if not isinstance(stored, bytes):
        return stored
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _lock_path(path: Path | None) -> str:
    return f"{path}.lock"


def _take_lock(path: Path) -> tuple[int, bool]:
    """Lock the file for this process, and return whether the file of the lock is new. One file has one writer."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kind := network_filesystem(path.parent):
            raise HistoryStoreError(f"{path}: is on a network file system ({kind}), where SQLite's locks do not hold")
        is_new = not os.path.lexists(_lock_path(path))
        descriptor = os.open(_lock_path(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HistoryStoreError(f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise HistoryStoreError(f"{path}: is in use by another manager") from None
    return descriptor, is_new


# The content of the file of the lock: numbers of this many digits. An earlier version wrote the first one only.
_DIGITS: Final = 19
_NOTE_BYTES: Final = len(RecordsAtRisk._fields) * (_DIGITS + 1) - 1


def _read_note(lock: int) -> RecordsAtRisk:
    """Return what is noted in the file of the lock, and make space for it where there is none yet."""
    found = NOTHING_AT_RISK
    with suppress(OSError):
        text = os.pread(lock, _NOTE_BYTES, 0)
        found = RecordsAtRisk(_number(text[:_DIGITS]), _number(text[_DIGITS + 1 :]))
        if len(text) < _NOTE_BYTES:
            _write_note(lock, found)
    return found


def _number(digits: bytes) -> int:
    return int(digits) if len(digits) == _DIGITS and digits.isdigit() else 0


def _write_note(lock: int, risk: RecordsAtRisk) -> None:
    os.pwrite(lock, b" ".join(b"%0*d" % (_DIGITS, number) for number in risk), 0)
