"""Keeps the history: every state of a Workload that the manager reads or writes becomes a part of its record.

States come from the watch and from the writes of this manager, so a transition that the manager made is recorded even
if the watch is lost before it shows it. Only the leader records. Nothing waits for the store but the removal of a
Workload's finalizer, at most COMMIT_SECONDS: while the store fails, records are kept in memory, and queueing continues.

    read or written ──▶ records (live) ──▶ unsaved ──▶ store, every second, in one transaction
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from kubemachinery import meta
from kubemachinery.client.informer import Informer, InformerEvent
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND
from kubemachinery.turns import in_turns
from pykueue.api import kube, kueue, labels
from pykueue.history import records, retention
from pykueue.history import store as stores
from pykueue.history.learning import RunTimes
from pykueue.history.records import Seconds, WorkloadRecord
from pykueue.history.retention import ClockLook
from pykueue.history.store import (
    NOTHING_AT_RISK,
    DamagedStoreError,
    ForeignStoreError,
    HistoryStore,
    HistoryStoreError,
    MovedStoreError,
    NewerStoreError,
    RecordsAtRisk,
    RiskNote,
)
from pykueue.history.trouble_records import TroubleKey, TroubleRecord
from pykueue.lifecycle import states, variants

log = logging.getLogger(__name__)

T = TypeVar("T")

_NOT_OPEN_YET: Final = "the history is not open yet"
# How long the removal of a finalizer waits for the record of the Workload [HI6].
COMMIT_SECONDS: Final = 5.0
_BATCH_SECONDS: Final = 1.0
_BATCH_ROWS: Final = 500
_RETRY_SECONDS: Final = 5.0
_OPEN_RETRY_SECONDS: Final = 30.0
_PURGE_SECONDS: Final = 3600.0
# How far the clock may be ahead of the time of the retention without a line in the log.
_CLOCK_AHEAD_SECONDS: Final = 86_400
DEFAULT_RETENTION_SECONDS: Final = 400 * 86_400
# Of how many past runs the run times are learned at start.
RUNS_LEARNED: Final = 200_000
# Records of deleted Workloads that are kept in memory while the store fails.
UNSAVED_MAX: Final = 50_000
# Records of troubles that are kept in memory while the store fails.
UNSAVED_TROUBLES_MAX: Final = 10_000


class StoreWorker(Protocol):
    """Runs the blocking calls of the store, one at a time."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


def thread_worker() -> StoreWorker:
    """Return a worker with a thread of its own: a slow disk does not delay the event loop."""
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")

    async def run(work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    return run


async def inline_worker(work: Callable[[], T]) -> T:
    """Call the store on the event loop: for tests and simulations on a virtual clock, which has no threads."""
    return work()


class HistoryOptions(msgspec.Struct, frozen=True):
    """Where the history is kept and for how long. `path` None keeps it in memory."""

    path: Path | None
    # None keeps records for ever.
    retention_seconds: int | None = DEFAULT_RETENTION_SECONDS
    # The label that names the user of a Workload without the annotation `pykueue.io/submitted-by`.
    user_label: str = ""
    worker: Callable[[], StoreWorker] = thread_worker


class HistoryUnavailable(HistoryStoreError):
    """The history cannot be read now; the message has the reason."""


class RecordListener(Protocol):
    """Follows the records: the accounts of Budgets."""

    def availability_changed(self) -> None:
        """The stored records can be read, or cannot for a new reason."""

    def recorded(self, record: WorkloadRecord) -> None:
        """A record is new or has changed."""

    def dropped(self, uid: str) -> None:
        """The Workload is deleted: its record does not change any more."""


class HistoryRecorder:
    """Records the Workloads of an informer while it runs."""

    def __init__(
        self,
        options: HistoryOptions,
        workloads: Informer[kueue.Workload],
        pods: Informer[kube.Pod] | None,
        clock: Clock,
        count_gaps: Callable[[int], None] = lambda gaps: None,
    ) -> None:
        self._options = options
        self._workloads = workloads
        self._pods = pods
        self._clock = clock
        self._count_gaps = count_gaps
        self._work = options.worker()
        self._file: HistoryStore | None = None  # from the moment in which it is open
        self._store: HistoryStore | None = None  # once the records of live Workloads are read from it
        self._problem = _NOT_OPEN_YET
        self._records: dict[str, WorkloadRecord] = {}
        # Those of variants are not stored: their parent has their admission, and is the record of the job [HI5].
        self._variants: dict[str, WorkloadRecord] = {}
        self._unsaved: dict[str, WorkloadRecord] = {}
        self._saving: dict[str, WorkloadRecord] = {}  # the batch that is being stored
        self._unsaved_troubles: dict[tuple[TroubleKey, Seconds], TroubleRecord] = {}
        # The last states of Workloads that were deleted before the store could be read.
        self._missed: dict[str, tuple[kueue.Workload, Seconds]] = {}
        # Workloads that ended before the watch of pods showed an exit code, by the UIDs that own their pods.
        self._without_exit_code: dict[str, kueue.Workload] = {}
        # Workloads of which no record is stored; of them those that are deleted, and those that our finalizer does not
        # hold. If this process is killed, only their numbers are known to the next one [HI16].
        self._never_stored: set[str] = set()
        self._deleted: set[str] = set()
        self._released: set[str] = set()
        self._noted = NOTHING_AT_RISK
        # While this manager leads and the file cannot be opened: where the numbers are kept; what the process before
        # this one had noted, None until that is read; and the Workloads that existed when this one began to lead. Which
        # of these have records is not known; later ones have none.
        self._unopened: HistoryStore | RiskNote | None = None
        self._noted_before: RecordsAtRisk | None = None
        self._present_at_start: frozenset[str] | None = None
        # While this manager does not record: the Workloads that were over when it saw them first, and those that it
        # noted when it led before. They may be noted in the file, and their deletion is seen here: they are not lost.
        self._over_at_first: set[str] = set()
        self._left_deleted: frozenset[str] = frozenset()
        self._left_released: frozenset[str] = frozenset()
        self._left = NOTHING_AT_RISK
        self._noting: asyncio.Future[bool] | None = None
        self._risk_changed = asyncio.Event()
        # By how many seconds the system clock was ahead of the monotonic clock: now, and when the last time of each
        # record was recorded.
        self._offset = 0.0
        self._offsets: dict[str, float] = {}
        self._run_times = RunTimes()
        self._is_reading = False
        self._is_failing = False
        # Whether the store has not answered for as long as a finalizer waits.
        self._is_hanging = False
        self._is_clock_ahead = False
        self._has_work = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._saved: asyncio.Future[None] | None = None
        self.opened = asyncio.Event()  # set while the stored records can be read
        self.listeners: list[RecordListener] = []
        workloads.add_handler(self._seen)
        if pods is not None:
            pods.add_index("owner", _owners)
            pods.add_handler(self._pod_seen)

    @property
    def path(self) -> Path | None:
        """The file of the history; None if it is kept in memory."""
        return self._options.path

    # --- Observing ----------------------------------------------------------------------------------------------------

    def _seen(self, change: InformerEvent[kueue.Workload]) -> None:
        if change.new is not None:
            if change.old is None and not self._is_reading:
                self._first_seen(change.new)
            self._observe(change.new)
        elif change.old is not None:
            self._gone(change.old)

    def _first_seen(self, workload: kueue.Workload) -> None:
        """Note what is known of a Workload while this manager does not record."""
        uid = workload.metadata.uid
        if variants.parent_of(workload) is not None:
            return
        if _is_over(workload):
            self._over_at_first.add(uid)
        if self._present_at_start is not None and uid not in self._present_at_start:
            self._never_stored.add(uid)

    def _pod_seen(self, change: InformerEvent[kube.Pod]) -> None:
        """The watch of pods may be behind that of Workloads."""
        if self._without_exit_code and change.new is not None:
            for uid in _owners(change.new):
                if (workload := self._without_exit_code.get(uid)) is not None:
                    self.observe(workload)

    def observe(self, workload: kueue.Workload) -> None:
        """Record a state that was written. The answer to a write may come after the deletion of its Workload was seen,
        which ended the record."""
        if self._is_present(workload):
            self._observe(workload)

    def _is_present(self, workload: kueue.Workload) -> bool:
        shown = self._workloads.get(workload.metadata.name, workload.metadata.namespace)
        return shown is not None and shown.metadata.uid == workload.metadata.uid

    def _observe(self, workload: kueue.Workload) -> None:
        if not self._is_reading:
            return
        uid, before = workload.metadata.uid, self._records.get(workload.metadata.uid)
        if variants.parent_of(workload) is not None:
            known = self._variants.get(uid)
            self._variants[uid] = records.observe(known, workload, self._now(), user_label=self._options.user_label)
            return
        after = records.observe(before, workload, self._now(), user_label=self._options.user_label)
        after = self._compared_with_clock(before, after)
        if after.ended is not None and after.exit_code is None:
            after = self._with_exit_code(after, workload)
            is_known = after.exit_code is not None or after.outcome is records.Outcome.REPLACED
            self._note_exit_code(workload, is_known=is_known)
        if after is before:
            return
        self._records[uid] = after
        if before is None:
            self._never_stored.add(uid)
        if before is None or not records.is_like(before, after):
            self._save_soon(after, is_new_end=not after.is_open and (before is None or before.is_open))

    def _gone(self, last: kueue.Workload) -> None:
        uid, now = last.metadata.uid, self._now()
        if variants.parent_of(last) is not None:
            self._variants.pop(uid, None)
            for listener in self.listeners:
                listener.dropped(uid)
            return
        if not self._is_reading:
            self._missed[uid] = last, now
            self._note_risk(uid)
            if len(self._missed) > UNSAVED_MAX:
                self._forget_missed(next(iter(self._missed)))
            return
        self._observe(last)
        self._note_exit_code(last, is_known=True)  # none comes any more
        record = self._records.pop(uid, None)
        if record is not None and record.is_open:
            ended = self._compared_with_clock(record, records.gone(record, last, now))
            self._save_soon(ended, is_new_end=True)
        self._offsets.pop(uid, None)
        self._note_risk(uid)
        for listener in self.listeners:
            listener.dropped(uid)

    def _forget_missed(self, uid: str) -> None:
        """Drop the last state of a Workload that was deleted before the store could be read: there are too many."""
        del self._missed[uid]
        self._over_at_first.discard(uid)
        if uid in self._never_stored:  # otherwise another manager may have its record
            self._stored((uid,))
            self._count_gaps(1)

    def _compared_with_clock(self, before: WorkloadRecord | None, after: WorkloadRecord) -> WorkloadRecord:
        """Return the record after a change, marked if the system clock was set since the time that was recorded before:
        the monotonic clock of this process shows it. One that is marked because of the clock is a gap [HI17]."""
        offset = self._clock.now() / SECOND - self._clock.monotonic()
        if abs(offset - self._offset) > records.CLOCK_SET_SECONDS:
            self._offset = offset
        known = self._offsets.setdefault(after.uid, self._offset)
        was_inexact = before is not None and before.inexact
        if before is None or records.has_other_times(before, after):
            self._offsets[after.uid] = self._offset
            if known != self._offset and not after.inexact:
                after = records.with_clock_set(after)
        if after.inexact and not was_inexact and (known != self._offset or not after.is_open):
            self._count_gaps(1)
        return after

    def _note_risk(self, uid: str) -> None:
        """Note that the object of a Workload is deleted, so that its record cannot be made again from it."""
        if uid in self._never_stored:
            self._deleted.add(uid)
            self._released.discard(uid)
            self._risk_changed.set()

    async def _keep_risk(self) -> None:
        """Keep the numbers of records that are at risk at the time of the call in the store, if it has others."""
        for _ in range(2):  # what is being written may have been counted before
            noting = self._noting
            if noting is None or noting.done():
                keeper, risk = self._store or self._unopened, self._risk()
                if keeper is None or risk == self._noted:
                    return
                noting = self._noting = asyncio.ensure_future(self._write_risk(keeper, risk))
            await asyncio.wait([noting])
            if not noting.result():
                return

    def _risk(self) -> RecordsAtRisk:
        """The numbers of records that are at risk. What the process before noted is among them until the file is open
        and the losses are counted."""
        before = (self._noted_before or NOTHING_AT_RISK) if self._store is None else NOTHING_AT_RISK
        return RecordsAtRisk(before.deleted + len(self._deleted), before.released + len(self._released))

    async def _write_risk(self, keeper: HistoryStore | RiskNote, risk: RecordsAtRisk) -> bool:
        """Write the numbers; return whether they are written."""
        try:
            await self._work(lambda: keeper.note_risk(risk))
        except HistoryStoreError as error:
            log.error("the number of records that are not stored cannot be kept: %s", error)
            return False
        finally:
            self._is_hanging = False
        self._noted = risk
        return True

    def _save_soon(self, record: WorkloadRecord, *, is_new_end: bool = False) -> None:
        self._unsaved[record.uid] = record
        for listener in self.listeners:
            listener.recorded(record)
        if is_new_end:
            self._run_times.learn(record)
        self._has_work.set()

    def _with_exit_code(self, record: WorkloadRecord, workload: kueue.Workload) -> WorkloadRecord:
        """Return the record with the exit code of the pods: of the container that failed last, or 0 if containers ended
        and none failed, or the Workload succeeded after all [HI12]. One of which no end was recorded makes the end of
        the record inexact."""
        # The job of a slice that was replaced goes on.
        if self._pods is None or record.outcome is records.Outcome.REPLACED:
            return record
        pods = [pod for uid in _owner_uids(workload) for _, pod in self._pods.by_index("owner", uid)]
        ended = [
            (state.finished_at or "", state.exit_code, state.reason in kube.UNKNOWN_ENDS)
            for pod in pods
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
            if status.state is not None and (state := status.state.terminated) is not None
        ]
        failed = [each for each in ended if each[1]]
        if not failed or record.outcome is records.Outcome.SUCCEEDED:
            return records.with_exit_code(record, 0 if ended else None)
        _, code, is_unknown = max(failed)
        return records.with_exit_code(record, code, is_end_known=not is_unknown)

    def _note_exit_code(self, workload: kueue.Workload, *, is_known: bool) -> None:
        for uid in _owner_uids(workload) if self._pods is not None else ():
            if is_known:
                self._without_exit_code.pop(uid, None)
            else:
                self._without_exit_code[uid] = workload

    def _now(self) -> Seconds:
        return self._clock.now() // SECOND

    # --- Committing ---------------------------------------------------------------------------------------------------

    async def commit(self, workload: kueue.Workload, *, is_deleted: bool) -> None:
        """Store the record of a Workload before its finalizer is removed, or before it is deleted [HI6].

        The wait is bounded, and there is none while the store fails: queueing does not depend on the history.
        """
        uid = workload.metadata.uid
        if not self._is_present(workload):
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + COMMIT_SECONDS
        if not self._is_reading:
            if uid in self._never_stored:
                await self._note_released(uid, until)
            return
        self._observe(workload)
        record = self._records.get(uid)
        if record is not None and record.is_open and is_deleted:
            record = self._compared_with_clock(record, records.gone(record, workload, self._now()))
            self._records[record.uid] = record
            self._save_soon(record, is_new_end=True)
        if (uid in self._unsaved or uid in self._saving) and not self._is_failing:
            await self._wait_until_saved()
        if self._is_failing and uid in self._never_stored and uid in self._records:
            await self._note_released(uid, until)

    async def _note_released(self, uid: str, until: float) -> None:
        """Note a Workload whose finalizer is about to go: from then on it may be deleted at any moment, with its job or
        by a user."""
        self._released.add(uid)
        if not self._is_hanging:
            kept = asyncio.ensure_future(self._keep_risk())
            await asyncio.wait([kept], timeout=until - asyncio.get_running_loop().time())
            self._is_hanging = not kept.done()

    async def _wait_until_saved(self) -> None:
        """Return when a batch that begins now is stored, or cannot be."""
        if self._saved is None:
            self._saved = asyncio.get_running_loop().create_future()
        self._has_work.set()
        self._is_urgent.set()
        _, late = await asyncio.wait([self._saved], timeout=COMMIT_SECONDS)
        if late and not self._is_failing:
            log.error("the history is not written within %g s; queueing continues without waiting", COMMIT_SECONDS)
            self._is_failing = True

    def save_troubles(self, found: Iterable[TroubleRecord]) -> None:
        """Store records of troubles with the next batch. While the store fails, a bounded number is kept."""
        for record in found:
            self._unsaved_troubles[record.key, record.found] = record
            self._has_work.set()
        while len(self._unsaved_troubles) > UNSAVED_TROUBLES_MAX:
            del self._unsaved_troubles[next(iter(self._unsaved_troubles))]

    async def ask(self, question: Callable[[HistoryStore], T]) -> T:
        """Answer a question about the stored records, with everything that was recorded until now."""
        if (self._unsaved or self._unsaved_troubles) and not self._is_failing:
            await self._wait_until_saved()
        store = self._store
        if store is None:
            raise HistoryUnavailable(self._problem)
        return await self._work(lambda: store.ask(question))

    @property
    def not_stored(self) -> int:
        """How many records an answer lacks, or has in an older state, because the store fails."""
        return len({*self._saving, *self._unsaved}) if self._is_failing else 0

    @property
    def troubles_not_stored(self) -> int:
        """How many records of troubles an answer lacks, or has in an older state, because the store fails."""
        return len(self._unsaved_troubles) if self._is_failing else 0

    @property
    def options(self) -> HistoryOptions:
        return self._options

    @property
    def is_open(self) -> bool:
        """Whether the stored records can be read."""
        return self._store is not None

    @property
    def problem(self) -> str:
        """Why the stored records cannot be read; empty if they can, or while they are being opened."""
        return "" if self._problem == _NOT_OPEN_YET else self._problem

    def record_of(self, uid: str) -> WorkloadRecord | None:
        """The record of a present Workload. That of a variant begins with its state when the manager started."""
        return self._records.get(uid) or self._variants.get(uid)

    def present(self) -> dict[str, WorkloadRecord]:
        """The records that may differ from what is stored, or may still change: those of all present Workloads, and
        those that are not saved yet."""
        return {**self._records, **self._saving, **self._unsaved}

    def lasted_seconds(self, observed: WorkloadRecord) -> int:
        """How long a Workload has lasted in one attempt, also in those before its present one [RT13]."""
        return records.lasted_seconds(self.record_of(observed.uid) or observed, self._now())

    def observed(self, workload: kueue.Workload) -> tuple[WorkloadRecord, int]:
        """What is known of a Workload by its object, and the seconds that it has run in its attempt."""
        record = records.observe(None, workload, self._now(), user_label=self._options.user_label)
        parent = variants.parent_of(workload)
        if parent is not None and (job := self._records.get(parent.uid)) is not None:
            # The runs of the job are learned under its name.
            record = msgspec.structs.replace(record, job_name=job.job_name)
        return record, records.running_seconds(record, self._now())

    @property
    def run_times(self) -> RunTimes:
        """What is learned from past runs."""
        return self._run_times

    # --- Storing ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Record until cancelled. Only the leader may be here: one file has one writer [HI8]."""
        purging = asyncio.create_task(self._purge_regularly(), name="history-retention")
        self._present_at_start = frozenset(each.metadata.uid for each in self._workloads.unordered())
        try:
            while True:
                if self._store is None and not await self._open():
                    await self._keep_risk_for(_OPEN_RETRY_SECONDS)
                    continue
                await self._has_work.wait()
                await self._wait_for_batch()
                await self._save()
                await self._keep_risk()
        finally:
            purging.cancel()
            await self._close()

    async def _wait_for_batch(self) -> None:
        if self._is_failing:
            await self._keep_risk_for(_RETRY_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_BATCH_SECONDS):
                await self._is_urgent.wait()

    async def _keep_risk_for(self, seconds: float) -> None:
        """Keep the numbers of records that are at risk, with every change, for some time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._risk_changed.wait()
                    self._risk_changed.clear()
                    await self._keep_risk()

    async def _save(self) -> None:
        """Save what was recorded until now, and wake those that wait for it."""
        store, waiting = self._store, self._saved
        batch, self._unsaved, self._saved = self._unsaved, {}, None
        troubles, self._unsaved_troubles = self._unsaved_troubles, {}
        self._saving = batch
        self._has_work.clear()
        self._is_urgent.clear()
        try:
            if store is not None and (batch or troubles):
                rows, more = list(batch.values()), list(troubles.values())
                await self._work(lambda: _save_in_place(store, rows, more))
                self._stored(batch)
            if self._is_failing:
                log.warning("the history is written again")
            self._is_failing = False
        except HistoryStoreError as error:
            self._failed(error, batch)
            self._unsaved_troubles = {**troubles, **self._unsaved_troubles}
            # The next attempt is not waited for.
            _wake(self._saved)
            self._saved = None
            if isinstance(error, DamagedStoreError):
                await self._set_aside()
            elif isinstance(error, MovedStoreError):
                await self._put_back()
        except BaseException:
            self._unsaved = {**batch, **self._unsaved}
            self._unsaved_troubles = {**troubles, **self._unsaved_troubles}
            raise
        finally:
            self._saving = {}
            _wake(waiting)

    def _stored(self, batch: Iterable[str]) -> None:
        for each in (self._never_stored, self._deleted, self._released):
            each.difference_update(batch)

    def _failed(self, error: HistoryStoreError, batch: dict[str, WorkloadRecord]) -> None:
        """Keep what could not be saved: all live Workloads, and a bounded number of deleted ones."""
        if not self._is_failing:
            log.error("the history cannot be written, and is kept in memory: %s", error)
        self._is_failing = True
        self._unsaved, self._saving = {**batch, **self._unsaved}, {}
        deleted = [uid for uid in self._unsaved if uid not in self._records]
        for uid in deleted[: max(0, len(deleted) - UNSAVED_MAX)]:
            del self._unsaved[uid]
            if uid in self._never_stored:  # otherwise the next manager finds its record without its object [HI7]
                self._stored((uid,))
                self._count_gaps(1)
        self._has_work.set()

    async def _open(self) -> bool:
        """Open the store; a damaged one is set aside, and a new one begun. Returns whether it is open."""
        known: dict[str, WorkloadRecord] = {}
        unopened, self._unopened = self._unopened, None
        try:
            store = await self._work(lambda: self._open_file(unopened))
            if not self._is_reading:
                uids = [workload.metadata.uid for workload in self._workloads.unordered()]
                known = await self._work(lambda: _known(store, [*uids, *self._missed]))
                self._run_times = await self._work(lambda: _learned(store))
        except DamagedStoreError as error:
            self._note_problem(error)
            await self._set_aside()
            return self._store is not None
        except HistoryStoreError as error:
            self._note_problem(error)
            if not self._is_reading and not isinstance(error, ForeignStoreError | NewerStoreError):
                await self._keep_unopened()
            return False
        if not self._is_reading:
            self._begin(known, self._before_this_process(store))
            self._store, self._noted = store, store.noted_before  # from here on, what is recorded is saved if this ends
            await self._keep_risk()  # what was lost is counted now, and not again by the next manager
            await self._observe_all()
            if self._store is not store:
                return self.is_open  # damaged meanwhile
        else:
            # A new file after a damaged one: the records of all live Workloads belong into it.
            self._unsaved = {**self._records, **self._unsaved}
            self._noted = store.noted_before
            self._has_work.set()
        self._store, self._problem = store, ""
        self.opened.set()
        self._notify_availability()
        return True

    def _open_file(self, unopened: HistoryStore | RiskNote | None) -> HistoryStore:
        """Open the file, on the thread of the store. Kept at once: the manager may be stopped before it is read."""
        for each in (unopened, self._file):
            if each is not None:
                each.close()
        self._file = None
        self._file = HistoryStore(self._options.path)
        return self._file

    async def _keep_unopened(self) -> None:
        """Keep the numbers of records that are at risk although the file cannot be opened [HI16]."""
        path = self._options.path
        if path is None:
            return
        try:
            keeper = await self._work(lambda: self._file or RiskNote(path))
        except HistoryStoreError:
            return  # in use by another manager, for example
        self._noted_before = self._before_this_process(keeper)
        self._noted, self._unopened = keeper.noted_before, keeper
        await self._keep_risk()

    def _before_this_process(self, keeper: HistoryStore | RiskNote) -> RecordsAtRisk:
        """What the process before this one had noted. This one may have added to it since."""
        if self._noted_before is not None and keeper.noted_before == self._noted:
            return self._noted_before
        return keeper.noted_before

    def _begin(self, known: dict[str, WorkloadRecord], noted: RecordsAtRisk) -> None:
        """Go on from the stored records, with the ends of Workloads that were deleted since. `noted`: what the process
        before this one had and could not store."""
        self._is_reading = True
        # Of those without a finalizer, the ones that still exist are recorded again.
        self._released = {uid for uid in self._deletable() if uid not in known}
        lost_before = self._lost_before(known, noted)
        live = {each.metadata.uid for each in self._workloads.unordered() if variants.parent_of(each) is None}
        self._records = {uid: record for uid, record in known.items() if uid in live or uid in self._missed}
        for last, seen in self._missed.values():
            self._observe(last)
            record = self._records.pop(last.metadata.uid)
            if record.is_open:
                self._save_soon(records.gone(record, last, seen), is_new_end=True)
            self._note_risk(record.uid)
        gone = [record for uid, record in known.items() if uid not in live and uid not in self._missed]
        for record in gone:
            # The finalizer was removed by another program while no manager ran [HI7].
            self._save_soon(records.lost(record))
        if gone:
            log.warning("%d Workloads disappeared while no manager ran; their end is unknown", len(gone))
            self._count_gaps(len(gone))
        if lost_before:
            log.warning("%d records of deleted Workloads were not stored when the manager before ended", lost_before)
            self._count_gaps(lost_before)
        self._missed.clear()
        self._over_at_first.clear()
        self._noted_before = self._present_at_start = None

    def _lost_before(self, known: Mapping[str, WorkloadRecord], noted: RecordsAtRisk) -> int:
        """How many records are lost of those that are noted: not of Workloads that still exist, nor of those whose
        deletion was seen here, as a standby for example. Both are recorded now."""
        seen = self._missed.keys() - known.keys()
        deleted, released = noted
        if self._left != NOTHING_AT_RISK and noted == self._left:  # by this process, when it led before
            deleted -= len(seen & self._left_deleted)
            released -= len(seen & self._left_released)
        else:
            released -= len(seen & self._over_at_first)
        return max(0, deleted) + max(0, released - len(self._released))

    def _deletable(self) -> Iterator[str]:
        """The UIDs of present Workloads that our finalizer does not hold, or not for long."""
        for each in self._workloads.unordered():
            is_held = labels.RESOURCE_IN_USE_FINALIZER in each.metadata.finalizers
            if variants.parent_of(each) is None and (_is_over(each) or not is_held):
                yield each.metadata.uid

    async def _observe_all(self) -> None:
        """Record the states of all Workloads as they are now. Other tasks run meanwhile, and events of the watch are
        recorded, too: a state that was recorded already changes nothing. What a finalizer waits for is saved at once.
        """
        async for each in in_turns(self._workloads.unordered()):
            workload = self._workloads.get(each.metadata.name, each.metadata.namespace)
            if workload is not None:
                self._observe(workload)
            if self._is_urgent.is_set() and not self._is_failing:
                await self._save()

    def _note_problem(self, error: HistoryStoreError) -> None:
        if str(error) != self._problem:
            log.error("the history cannot be used: %s", error)
            self._problem = str(error)
            self._notify_availability()

    def _notify_availability(self) -> None:
        for listener in self.listeners:
            listener.availability_changed()

    async def _set_aside(self) -> None:
        """Move a damaged file away; the next attempt to open begins a new one."""
        path = self._options.path
        self._lose_file()
        assert path is not None, "a store in memory is never damaged"
        stamp = meta.format_time(self._clock.now()).replace(":", "")

        def move() -> Path:
            store, self._file = self._file, None
            if store is not None:
                store.close()
            return stores.set_aside(path, stamp)

        try:
            moved = await self._work(move)
        except OSError as error:
            log.error("the damaged history cannot be moved away: %s", error)
            return
        log.error("the history is damaged: %s is kept, and a new history begins", moved)
        self._problem = ""
        await self._open()

    async def _put_back(self) -> None:
        """Write a file that was deleted again, from the open one, and go on with what is in its place."""
        store = self._file
        assert store is not None, "only an open file can have moved"
        try:
            is_restored = await self._work(store.put_back)
        except HistoryStoreError as error:
            log.error("the deleted history cannot be written again: %s", error)
            return  # with the next batch
        if is_restored:
            log.error("the history %s is written again, with all its records", self._options.path)
            self._store = None
            self.opened.clear()
        else:
            log.error("another file is in the place of the history %s, and is used from now on", self._options.path)
            self._lose_file()
        await self._open()

    def _lose_file(self) -> None:
        """Go on without the stored records, until a new file is open."""
        self._store = None
        self.opened.clear()
        self._never_stored = {*self._records, *self._unsaved}
        self._deleted = self._never_stored.difference(self._records)
        self._released = set(self._deletable()).intersection(self._records)

    async def _purge_regularly(self) -> None:
        """Delete records after their retention, a bounded number at a time [HI10]."""
        kept = self._options.retention_seconds
        if kept is None:
            return
        await self.opened.wait()
        looked = self._clock.monotonic()
        await self._retention_time(0)
        while True:
            await asyncio.sleep(_PURGE_SECONDS)
            ran = int(self._clock.monotonic() - looked)
            now = await self._retention_time(ran)
            if now is not None:
                looked += ran
                await self.purge(now - kept)

    async def _retention_time(self, ran: int) -> Seconds | None:
        """Look at the clock, so many seconds after the last look; return the time by which records are deleted, None if
        it is not known [HI15]."""
        shown = self._now()

        def look(store: HistoryStore) -> tuple[ClockLook, ...]:
            before = store.clock_looks()
            found = retention.looked(before, ClockLook(ran + (before[-1].ran if before else 0), shown))
            store.save_clock_looks(found)
            return found

        try:
            looks = await self.ask(look)
        except HistoryStoreError as error:
            log.error("old records cannot be deleted: %s", error)
            return None
        now = retention.time(looks)
        is_ahead = shown - now > _CLOCK_AHEAD_SECONDS
        if is_ahead and not self._is_clock_ahead:
            log.warning(
                "the system clock shows %s, %.1f days later than the records and the time since lead to; no record is"
                " deleted because of these days until the clock has shown them for %d days",
                meta.format_time(shown * SECOND),
                (shown - now) / 86_400,
                retention.TRIED_SECONDS // 86_400,
            )
        self._is_clock_ahead = is_ahead
        return now

    async def purge(self, before: Seconds) -> int:
        """Delete the records of deleted Workloads that ended before a time; return how many."""
        deleted, present = 0, tuple(self._records)
        try:
            while some := await self.ask(lambda store: store.purge(before, present)):
                deleted += some
        except HistoryStoreError as error:
            log.error("old records cannot be deleted: %s", error)
        return deleted

    async def _close(self) -> None:
        """Save what is left, and release the file for the next leader."""
        is_read, rows = self._store is not None, list(self._unsaved.values())
        troubles = list(self._unsaved_troubles.values())
        unopened, self._unopened = self._unopened, None
        left, self._noted_before, self._present_at_start = self._noted_before, None, None
        self._is_reading, self._store = False, None
        self.opened.clear()
        self._problem = "this manager is not the leader"
        self._records.clear()
        self._variants.clear()
        self._unsaved.clear()
        self._unsaved_troubles.clear()
        self._offsets.clear()
        self._never_stored.clear()
        deleted, self._deleted = self._deleted, set()
        released, self._released = self._released, set()

        stored: set[str] = set()
        before = left or NOTHING_AT_RISK
        left_now = RecordsAtRisk(before.deleted + len(deleted), before.released + len(released))

        def finish() -> None:
            store, self._file = self._file, None
            if unopened is not None:
                with closing(unopened), suppress(HistoryStoreError):
                    unopened.note_risk(left_now)
                return
            if store is None:
                return
            try:
                if is_read:
                    _save_in_parts(store, rows, troubles, stored)
                store.put_back()
            except HistoryStoreError as error:
                log.error("%d records are not stored: %s", len(rows) - len(stored), error)
            finally:
                with closing(store), suppress(HistoryStoreError):
                    if is_read:
                        store.note_risk(RecordsAtRisk(len(deleted - stored), len(released - stored)))

        done, _ = await asyncio.wait([asyncio.ensure_future(self._work(finish))], timeout=COMMIT_SECONDS)
        if left is None or left != self._left:  # otherwise what it noted before is still in the file
            self._left_deleted = self._left_released = frozenset()
        self._left = RecordsAtRisk(before.deleted + len(deleted - stored), before.released + len(released - stored))
        self._left_deleted |= deleted - stored
        self._left_released |= released - stored
        if not done:
            log.error("%d records are not stored: the disk does not answer", len(rows))


def _save_in_place(store: HistoryStore, rows: Sequence[WorkloadRecord], troubles: Sequence[TroubleRecord]) -> None:
    if not store.is_in_place():
        raise MovedStoreError(f"{store.path}: the file was deleted or replaced while it was open")
    _save_in_parts(store, rows, troubles)


def _save_in_parts(
    store: HistoryStore,
    rows: Sequence[WorkloadRecord],
    troubles: Sequence[TroubleRecord] = (),
    stored: set[str] | None = None,
) -> None:
    """Save in transactions of a bounded size; add the UIDs of what is saved to `stored`."""
    for start in range(0, len(rows), _BATCH_ROWS):
        part = rows[start : start + _BATCH_ROWS]
        store.save(part)
        if stored is not None:
            stored.update(record.uid for record in part)
    for start in range(0, len(troubles), _BATCH_ROWS):
        store.save_troubles(troubles[start : start + _BATCH_ROWS])


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _known(store: HistoryStore, uids: Iterable[str]) -> dict[str, WorkloadRecord]:
    """The records that have not ended, and those of some Workloads."""
    found = store.ask(lambda one: {record.uid: record for record in one.open_records()})
    return found | store.ask(lambda one: one.find(uid for uid in uids if uid not in found))


def _learned(store: HistoryStore) -> RunTimes:
    """The run times of past runs, in the order of their ends [RT4]."""
    found = RunTimes()
    for record in store.ask(lambda one: one.runs(RUNS_LEARNED)):
        found.learn(record)
    return found


def _is_over(workload: kueue.Workload) -> bool:
    """Whether a Workload has finished, or is being deleted: our finalizer does not hold it, or not for long."""
    return workload.metadata.deletion_timestamp is not None or states.is_finished(workload)


def _owner_uids(workload: kueue.Workload) -> tuple[str, ...]:
    """The UIDs that the pods of a Workload name as their owner: of the Workload, and of its job."""
    return (workload.metadata.uid, *(owner.uid for owner in workload.metadata.owner_references))


def _owners(pod: kube.Pod) -> Iterable[str]:
    return (pod.metadata.uid, *(owner.uid for owner in pod.metadata.owner_references))
