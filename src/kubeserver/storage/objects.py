"""The current state and the recent history of every object, in memory, as encoded bytes.

Two layers. *Committed* is what clients read: it is on the disk. *Pending* is what writers build upon: accepted,
numbered, on its way to the disk. A write takes the newest layer, is given the next revision and queued; one batch at a
time goes to the journal, and whatever arrived meanwhile is the next batch. When a batch is kept, its changes become
committed, then watches get the events in order of revision, then writers get their response.

Everything here runs on the event loop's thread, so between reading an object and queuing its successor nothing can
come in between. The journal's calls run on one thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubemachinery import status
from kubemachinery.clock import Clock
from kubemachinery.meta import MINUTE
from kubeserver.protocol import memory
from kubeserver.storage.entries import ObjectCollection, ObjectEntry, Place, StoreChange
from kubeserver.storage.sqlite import FIRST_REVISION, Journal, JournalRecord, LoadedState, StoreKey, WriteOperation

log = logging.getLogger(__name__)

BATCH_MAX: Final = 512
COMPACTION_STEP: Final = 500
COMPACTION_SECONDS: Final = 30.0
# How many times its size the history may have before it is compacted sooner.
OVERFULL: Final = 1.125
# Two MiB at a time, as a long step would hold up the writers.
SHRINK_PAGES: Final = 256
SHRINK_PAUSE_SECONDS: Final = 0.01
# Free memory is given back after so many bytes of history were dropped; and after so many writes, once a round of the
# compaction sees fewer than these: a burst is over, though its Events may be written for a while.
TRIM_BYTES: Final = 8 * 1024 * 1024
TRIM_WRITES: Final = 1_000
QUIET_WRITES: Final = 1_000
RECOVERY_SECONDS: Final = 1.0
RECOVERY_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class HistoryBounds:
    """How much history is kept: both minima hold, within the limit of bytes."""

    revisions_min: int = 10_000
    age_min: int = 10 * MINUTE
    bytes_max: int = 64 * 1024 * 1024


class _Batch:
    """Writes that are committed together, or not at all; and the future with the outcome."""

    __slots__ = ("kept", "records")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.records: list[tuple[JournalRecord, ObjectEntry]] = []
        self.kept: asyncio.Future[None] = loop.create_future()
        # A writer may have disconnected; then its outcome is dropped, without a warning.
        self.kept.add_done_callback(lambda future: future.cancelled() or future.exception())


class Objects:
    """All objects. The module's docstring defines committed and pending."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        loaded: LoadedState | None = None,
        executor: Executor | None = None,
        bounds: HistoryBounds | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        # None: the journal never blocks (memory), so it is called in line and a run stays on one thread.
        self._executor = executor
        self._bounds = bounds or HistoryBounds()
        self._collections: dict[str, ObjectCollection] = {}
        # The newest write of each key on its way to the disk: its revision, and what it leaves behind (None: nothing).
        self._pending: dict[StoreKey, tuple[int, ObjectEntry | None]] = {}
        self._log: deque[StoreChange] = deque()
        self._log_bytes = 0
        self._is_overfull = asyncio.Event()
        # What was forgotten since memory was given back.
        self._forgotten_bytes = 0
        # The number of writes at the last round of the compaction, and when memory was last given back.
        self._writes_before = 0
        self._writes_trimmed = 0
        self._open: _Batch | None = None
        self._in_flight: _Batch | None = None
        self._failure = ""
        self._closed = False
        self._recovery: asyncio.Task[None] | None = None
        self._reached: list[tuple[int, asyncio.Future[None]]] = []
        # Called for every change, after the watches of its resource.
        self.listeners: list[Callable[[StoreChange], None]] = []
        self.commits = 0
        self.writes = 0
        self.revision = FIRST_REVISION
        self.compacted = FIRST_REVISION
        self.cluster_id = ""
        if loaded is not None:
            self._load(loaded)
        self._assigned = self.revision

    def _load(self, loaded: LoadedState) -> None:
        self.revision, self.compacted, self.cluster_id = loaded.revision, loaded.compacted, loaded.cluster_id
        latest: dict[StoreKey, ObjectEntry] = {}
        for record in loaded.records:
            if record.revision <= loaded.compacted:
                continue
            previous = latest.get(record.key)
            key, uid = (record.key, record.uid) if previous is None else previous.identity(record.key, record.uid)
            entry = ObjectEntry(key, uid, record.revision, record.created_revision, record.body)
            forgotten = record.op is not WriteOperation.ADDED and previous is None
            self._remember(
                StoreChange(
                    record.op, entry, None if record.op is WriteOperation.ADDED else previous, record.at, forgotten
                )
            )
            latest[key] = entry
        for row in loaded.rows:
            entry = latest.get(row.key) or ObjectEntry(row.key, row.uid, row.revision, row.created_revision, row.body)
            if entry.revision != row.revision:
                entry = ObjectEntry(row.key, row.uid, row.revision, row.created_revision, row.body)
            collection = self.collection(row.key.resource)
            collection.entries[row.key.namespace, row.key.name] = entry
        for collection in self._collections.values():
            collection.keys = sorted(collection.entries)

    # --- Reading ------------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> str:
        """Why writes fail at present, or ""."""
        return self._failure

    def collection(self, resource: str) -> ObjectCollection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = ObjectCollection()
        return found

    @property
    def resources(self) -> list[str]:
        return sorted(self._collections)

    def get(self, key: StoreKey) -> ObjectEntry | None:
        """Return the committed object."""
        return self.collection(key.resource).entries.get((key.namespace, key.name))

    def latest(self, key: StoreKey) -> ObjectEntry | None:
        """Return the newest object: pending, else committed."""
        if key in self._pending:
            return self._pending[key][1]
        return self.get(key)

    async def settled(self, key: StoreKey) -> None:
        """Wait until what `latest` returned is committed, so that a response based on it is true."""
        if key in self._pending:
            await self.flushed()

    async def flushed(self) -> None:
        """Wait until everything written so far is committed."""
        batch = self._open or self._in_flight
        if batch is not None:
            await asyncio.shield(batch.kept)

    async def reach(self, revision: int, seconds: float) -> bool:
        """Wait until `revision` is committed; False when it does not come in time."""
        if self.revision >= revision:
            return True
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (revision, reached)
        self._reached.append(waiting)
        try:
            await asyncio.wait_for(reached, seconds)
        except TimeoutError:
            return self.revision >= revision
        finally:
            if waiting in self._reached:
                self._reached.remove(waiting)
        return True

    def at(self, resource: str, revision: int, namespace: str, after: Place | None) -> Iterator[ObjectEntry]:
        """The objects as they were at `revision`, in order. Raises 410 where that history was compacted."""
        if revision < self.compacted:
            raise status.expired(
                f"The provided resourceVersion {revision} is too old: history begins at {self.compacted}"
            )
        collection = self.collection(resource)
        undone: dict[Place, ObjectEntry | None] = {}
        for change in reversed(collection.history):
            if change.revision <= revision:
                break
            if change.forgotten:
                raise status.expired(f"The history of {resource} at revision {revision} is no longer complete")
            undone[change.entry.key.namespace, change.entry.key.name] = change.previous
        if not undone:
            return collection.between(namespace, after)
        return self._with_undone(collection, undone, namespace, after)

    @staticmethod
    def _with_undone(
        collection: ObjectCollection,
        undone: dict[Place, ObjectEntry | None],
        namespace: str,
        after: Place | None,
    ) -> Iterator[ObjectEntry]:
        keys = sorted(collection.entries.keys() | undone.keys())
        for key in keys:
            if (namespace and key[0] != namespace) or (after is not None and key <= after):
                continue
            entry = undone[key] if key in undone else collection.entries[key]
            if entry is not None:
                yield entry

    def changes_since(self, resource: str, revision: int) -> list[StoreChange]:
        """Return the changes after `revision`, oldest first. The caller has compared it with `compacted`, or with what
        the collection has forgotten."""
        found: list[StoreChange] = []
        for change in reversed(self.collection(resource).history):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    # --- Writing ------------------------------------------------------------------------------------------------------

    @property
    def next_revision(self) -> int:
        """The revision that the next write will have: put it into the body, then call `write` at once."""
        return self._assigned + 1

    def write(
        self, op: WriteOperation, key: StoreKey, uid: str, body: bytes, *, ephemeral: bool = False
    ) -> tuple[ObjectEntry, asyncio.Future[None]]:
        """Queue a write upon `latest(key)`. The future is done when it is committed; shield it when awaiting."""
        self.refuse_when_failed()
        previous = self.latest(key)
        if (previous is None) != (op is WriteOperation.ADDED):
            raise AssertionError(f"{op.name} of {key} does not fit what is there")
        self._assigned += 1
        created = self._assigned if previous is None else previous.created_revision
        if previous is not None:
            key, uid = previous.identity(key, uid)
        entry = ObjectEntry(key, uid, self._assigned, created, body)
        record = JournalRecord(
            key=key,
            op=op,
            revision=self._assigned,
            previous_revision=previous.revision if previous else 0,
            created_revision=created,
            uid=uid,
            body=body,
            at=self._clock.now(),
            ephemeral=ephemeral,
        )
        self._pending[key] = (entry.revision, None if op is WriteOperation.DELETED else entry)
        if self._open is None:
            loop = asyncio.get_running_loop()
            self._open = _Batch(loop)
            if self._in_flight is None:
                # Not at once: whatever else this turn of the loop brings joins the same commit.
                loop.call_soon(self._send)
        self._open.records.append((record, entry))
        return entry, self._open.kept

    def refuse_when_failed(self) -> None:
        if self._failure:
            raise status.unavailable(f"nothing can be written at present: {self._failure}", retry_seconds=1)
        if self._closed:
            raise status.unavailable("the server is shutting down")

    def _send(self) -> None:
        batch = self._open
        if batch is None or self._in_flight is not None:
            return
        self._open = None
        self._in_flight = batch
        if len(batch.records) > BATCH_MAX:
            rest = _Batch(asyncio.get_running_loop())
            rest.records = batch.records[BATCH_MAX:]
            del batch.records[BATCH_MAX:]
            # The writers of the rest hold the first future; it is answered with the second.
            held, batch.kept = batch.kept, rest.kept
            rest.kept = held
            self._open = rest
        records = [record for record, _ in batch.records]
        if self._executor is None:
            self._finish(batch, self._try(records))
            return
        sending = asyncio.get_running_loop().run_in_executor(self._executor, self._try, records)
        sending.add_done_callback(lambda done: self._finish(batch, done.result()))

    def _try(self, records: list[JournalRecord]) -> Exception | None:
        try:
            self._journal.commit(records)
        except Exception as error:
            return error
        return None

    def _finish(self, batch: _Batch, error: Exception | None) -> None:
        self._in_flight = None
        if error is not None:
            self._fail(batch, error)
            return
        self.commits += 1
        self.writes += len(batch.records)
        for record, entry in batch.records:
            self._publish(record, entry)
            # A later write of the same key may still be pending; its revision is another one.
            if self._pending.get(record.key, (0, None))[0] == record.revision:
                del self._pending[record.key]
        if not batch.kept.done():
            batch.kept.set_result(None)
        self._notify_reached()
        if self._open is not None:
            asyncio.get_running_loop().call_soon(self._send)

    def _publish(self, record: JournalRecord, entry: ObjectEntry) -> None:
        collection = self.collection(record.key.resource)
        previous = collection.entries.get((record.key.namespace, record.key.name))
        if record.op is WriteOperation.DELETED:
            collection.remove(record.key.namespace, record.key.name)
        else:
            collection.place(entry)
        change = StoreChange(record.op, entry, previous, record.at)
        self.revision = record.revision
        self._remember(change)
        for listener in (*collection.listeners, *self.listeners):
            try:
                listener(change)
            except Exception:
                # The write is committed and its writers wait for a response: one poison object must not stop others.
                log.exception("a listener failed on %s at revision %d", "/".join(record.key), record.revision)

    def _remember(self, change: StoreChange) -> None:
        self.collection(change.entry.key.resource).history.append(change)
        self._log.append(change)
        self._log_bytes += len(change.entry.body)
        if self._log_bytes > self._bounds.bytes_max * OVERFULL:
            self._is_overfull.set()

    def _notify_reached(self) -> None:
        for revision, reached in self._reached:
            if revision <= self.revision and not reached.done():
                reached.set_result(None)

    # --- Failing, and coming back -------------------------------------------------------------------------------------

    def _fail(self, batch: _Batch, error: Exception) -> None:
        """A commit failed: drop what was pending. It was never acknowledged, and no client has read it."""
        log.error("a commit failed, writes are refused until the store works again: %s", error)
        self._failure = str(error) or type(error).__name__
        lost = [batch] if self._open is None else [batch, self._open]
        self._open = None
        self._pending.clear()
        for one in lost:
            if not one.kept.done():
                one.kept.set_exception(
                    status.unavailable(f"the write could not be made durable, and may or may not be kept: {error}")
                )
        if self._recovery is None and not self._closed:
            self._recovery = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> None:
        """Read from disk what became of the failed batch; then continue."""
        pause = RECOVERY_SECONDS
        while self._failure and not self._closed:
            await asyncio.sleep(pause)
            try:
                records = await self._on_journal_thread(self._journal.since, self.revision)
            except Exception as error:
                self._failure = str(error) or type(error).__name__
                # Looking means reading the whole file; a disk that is full now will be full in a moment, too.
                pause = min(pause * 2, RECOVERY_SECONDS_MAX)
                continue
            for record in records:
                entry = ObjectEntry(record.key, record.uid, record.revision, record.created_revision, record.body)
                self._publish(record, entry)
            # Revisions of lost writes are not used again: a client may have read them in an error.
            self._assigned = max(self._assigned, self.revision)
            self._notify_reached()
            self._failure = ""
            log.warning("the store works again; %d writes of the failed batch had been kept", len(records))
        self._recovery = None

    async def _on_journal_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._executor is None:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    # --- Forgetting ---------------------------------------------------------------------------------------------------

    def compaction_target(self) -> int:
        """Return the revision up to which history may be compacted now."""
        bounds, now = self._bounds, self._clock.now()
        size, target = self._log_bytes, self.compacted
        for position, change in enumerate(self._log):
            spare = len(self._log) - position > bounds.revisions_min and now - change.at > bounds.age_min
            if not spare and size <= bounds.bytes_max:
                break
            size -= len(change.entry.body)
            target = change.revision
        return target

    async def compact(self, revision: int | None = None) -> None:
        """Delete history up to `revision` (by default as much as the bounds allow), in small steps."""
        target = min(self.compaction_target() if revision is None else revision, self.revision)
        if target <= self.compacted:
            return
        # First refuse watches that start there; then delete it.
        self.compacted = target
        while self._log and self._log[0].revision <= target:
            change = self._log.popleft()
            self._log_bytes -= len(change.entry.body)
            self._forgotten_bytes += len(change.entry.body)
            collection = self.collection(change.entry.key.resource)
            collection.history.popleft()
            collection.forgotten = change.revision
        more = True
        while more and not self._failure:
            # Batches of writes get their turn between two steps: the thread takes its calls in order.
            more = bool(await self._on_journal_thread(self._journal.compact, target, COMPACTION_STEP))

    async def shrink(self) -> None:
        """Release the disk space of compacted history, in small steps, and the memory."""
        more = True
        while more and not self._failure:
            more = await self._on_journal_thread(self._journal.shrink, SHRINK_PAGES)
            await asyncio.sleep(SHRINK_PAUSE_SECONDS if more else 0)
        is_over = self.writes - self._writes_trimmed > TRIM_WRITES and self.writes - self._writes_before < QUIET_WRITES
        self._writes_before = self.writes
        if self._executor is not None and (is_over or self._forgotten_bytes > TRIM_BYTES):
            self._forgotten_bytes, self._writes_trimmed = 0, self.writes
            await self._on_journal_thread(self._journal.release_memory)
            await asyncio.to_thread(memory.give_back)

    async def keep_compacting(self) -> None:
        """Compact from time to time, and at once when the history is much larger than it should be."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMPACTION_SECONDS):
                    await self._is_overfull.wait()
            self._is_overfull.clear()
            try:
                await self.compact()
                await self.shrink()
            except Exception as error:
                # Compaction is only ever late, never lost: the next round begins where this one stopped.
                log.warning("compaction will be tried again: %s", error)

    async def backup(self, target: Path) -> None:
        await self.flushed()
        await self._on_journal_thread(self._journal.backup, target)

    async def close(self) -> None:
        """Commit what was accepted, then close the journal."""
        self._closed = True
        if self._recovery is not None:
            self._recovery.cancel()
        while (self._open or self._in_flight) and not self._failure:
            try:
                await self.flushed()
            except status.StatusError:
                break
        await self._on_journal_thread(self._journal.close)
