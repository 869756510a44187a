"""The embedded server as a simulation runs it: on one thread, with everything it ever stored kept.

It may be killed and come back with what its journal holds: the history itself, or SQLite in a folder. A request in
flight then gets no response. Its disk may be full for a while. Its webhooks may be down, or may not be there yet.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery.client.errors import Unanswered
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines
from kubemachinery.clock import Clock
from kubeserver.admission.chain import ACCEPTED, AdmissionAttributes, AdmissionHook, ValidationResult, refused_by
from kubeserver.assembly import Embedded, FindObjects, Parts
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.storage.sqlite import (
    Durability,
    Journal,
    JournalRecord,
    JournalRow,
    LoadedState,
    MemoryJournal,
    SqliteJournal,
    StoreKey,
    WriteOperation,
)
from pykueue.testing.virtual_loop import BEGINNING
from simulation.engine import job_kinds
from simulation.engine.revisions import Stored, Tree

# The API groups of jobs, whose webhooks may be missing.
_OF_JOBS: Final = frozenset(each.group for each in job_kinds.KINDS.values())


class WebhookState(Enum):
    """The state of the webhooks."""

    OPEN = auto()
    DOWN = auto()  # no response, so the server refuses the objects they review
    MISSING = auto()  # not registered, so jobs are not reviewed


class History:
    """Every revision that was ever stored, in order, and what is there now."""

    def __init__(self, installed: LoadedState) -> None:
        self.stored: list[Stored] = []
        self.listeners: list[Callable[[Stored], None]] = []
        self.present: dict[StoreKey, JournalRow] = {row.key: row for row in installed.rows}
        self.revision = installed.revision

    def keep(self, records: Sequence[JournalRecord]) -> None:
        for record in records:
            key = record.key
            if record.op is WriteOperation.DELETED:
                self.present.pop(key, None)
            else:
                self.present[key] = JournalRow(key, record.uid, record.revision, record.created_revision, record.body)
            self.revision = record.revision
            seconds = (record.at - BEGINNING) / 1e9
            stored = Stored(
                seconds, record.revision, key.resource, key.namespace, key.name, record.op.name, record.body
            )
            self.stored.append(stored)
            for reported in self.listeners:
                reported(stored)

    def digest(self) -> str:
        """Equal for equal runs."""
        found = hashlib.sha256()
        for each in self.stored:
            found.update(f"{each.revision} {each.op} {each.resource} {each.namespace}/{each.name}\n".encode())
            found.update(each.body)
        return found.hexdigest()


@dataclass(slots=True)
class Disk:
    """Where journals are. When it is full, some writes that failed are stored nevertheless."""

    rng: random.Random
    is_full: bool = False


class _Tapped(MemoryJournal):
    """The journal of one server process: what is stored is added to the history; after its end, nothing is."""

    def __init__(self, inner: Journal, history: History, disk: Disk) -> None:
        self._inner = inner
        self._history = history
        self._disk = disk
        self._unsure: Sequence[JournalRecord] = ()  # stored without acknowledgement
        self.is_dead = False

    def commit(self, records: Sequence[JournalRecord]) -> None:
        if self.is_dead:
            return
        if self._disk.is_full:
            if self._disk.rng.random() < 0.5:
                self._inner.commit(records)
                self._unsure = records
            raise _no_space()
        self._inner.commit(records)
        self._history.keep(records)

    def since(self, revision: int) -> list[JournalRecord]:
        if self._disk.is_full:
            raise _no_space()
        found = self._inner.since(revision) or list(self._unsure)
        self.settle()
        return found

    def settle(self) -> None:
        """What was kept though it had seemed to fail is known now."""
        kept, self._unsure = self._unsure, ()
        self._history.keep(kept)

    def compact(self, revision: int, rows_max: int) -> int:
        return 0 if self.is_dead or self._disk.is_full else self._inner.compact(revision, rows_max)

    def shrink(self, pages_max: int) -> bool:
        return not (self.is_dead or self._disk.is_full) and self._inner.shrink(pages_max)

    def close(self) -> None:
        self._inner.close()


class Server:
    """The server of one run."""

    def __init__(
        self,
        base: tuple[Parts, LoadedState],
        clock: Clock,
        rng: random.Random,
        plugins: Callable[[FindObjects], Sequence[AdmissionHook]],
        folder: Path | None,
        disk: Disk,
    ) -> None:
        parts, loaded = base
        self._parts = replace(parts, plugins=lambda find: self._hooks(plugins(find)))
        self._clock = clock
        self._chance = rng
        self._folder = folder
        self.webhooks = WebhookState.OPEN
        self.disk = disk
        self.history = History(loaded)
        # What a restart found different from what had been acknowledged.
        self.lost: list[str] = []
        self.wrong: list[str] = []  # answers that it must not give while its disk is full
        self.died = asyncio.Event()
        if folder is not None:
            records = [
                JournalRecord(
                    row.key, WriteOperation.ADDED, row.revision, 0, row.created_revision, row.uid, row.body, clock.now()
                )
                for row in sorted(loaded.rows, key=lambda row: row.revision)
            ]
            journal = self._open(folder)
            journal.commit(records)
            journal.close()
        self.embedded, self._journal = self._life()

    def _open(self, folder: Path) -> SqliteJournal:
        return SqliteJournal(folder, durability=Durability.RELAXED, cluster_id="simulated")

    def _life(self) -> tuple[Embedded, _Tapped]:
        history = self.history
        if self._folder is None:
            kept: Journal = MemoryJournal()
            loaded = LoadedState(history.revision, history.revision, "simulated", list(history.present.values()), [])
        else:
            kept = journal = self._open(self._folder)
            loaded = journal.load()
            self._compare(loaded)
        tapped = _Tapped(kept, history, self.disk)
        embedded = Embedded(
            self._parts,
            tapped,
            authentication.Authenticator({}, ()),
            self._clock,
            self._chance,
            ServerInfo("simulated"),
            loaded=loaded,
        )
        return embedded, tapped

    def _compare(self, loaded: LoadedState) -> None:
        found = {row.key: row for row in loaded.rows}
        expected = self.history.present
        self.lost += [
            f"{key.resource} {key.namespace}/{key.name}"
            for key in sorted(found.keys() | expected.keys())
            if found.get(key) != expected.get(key)
        ]
        if loaded.revision < self.history.revision:
            self.lost.append(f"revision {loaded.revision} after {self.history.revision}")

    async def start(self) -> None:
        await self.embedded.start()

    async def close(self) -> None:
        await self.embedded.close()

    async def kill(self) -> None:
        """Gone, and back at once with what the journal has."""
        self._journal.is_dead = True
        self._journal.settle()
        self.died.set()
        await self.embedded.close()
        self.died = asyncio.Event()
        self.embedded, self._journal = self._life()
        await self.embedded.start()

    async def compact(self) -> None:
        """Compact the history, so that watches from before get 410."""
        await self.embedded.objects.compact(self.embedded.objects.revision)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def send(self, call: ApiRequest) -> ApiResponse:
        workload = self._journal
        answer = await self._transport().send(call)
        if workload.is_dead:
            raise Unanswered("the server was killed")
        if self.disk.is_full:
            self._check_response(call, answer)
        return answer

    def _check_response(self, call: ApiRequest, answer: ApiResponse) -> None:
        """With a full disk, reads continue, and writes are refused in a way that lets clients
        again, never acknowledged."""
        about = f"{call.method} {call.path}"
        if (
            answer.status >= 500
            and (call.method == "GET" or answer.status != 503)
            and self.webhooks is WebhookState.OPEN
        ):
            self.wrong.append(f"{about} is answered {answer.status}")
        if call.method != "GET" and answer.status < 300:
            conditions = msgspec.json.decode(answer.body).get("metadata", {}).get("resourceVersion", "0")
            if int(conditions) > self.history.revision:
                self.wrong.append(f"{about} is acknowledged as revision {conditions}, which is not stored")

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        async with self._transport().stream(call) as lines:
            yield lines

    def _transport(self) -> LocalTransport:
        return LocalTransport(partial(self.embedded.server.handle_as, authentication.ADMIN))

    # --- Webhooks -----------------------------------------------------------------------------------------------------

    def _hooks(self, hooks: Sequence[AdmissionHook]) -> tuple[AdmissionHook, ...]:
        return tuple(self._disturbed(hook) if hook.name.endswith(".kb.io") else hook for hook in hooks)

    def _disturbed(self, hook: AdmissionHook) -> AdmissionHook:
        def is_absent() -> bool:
            if self.webhooks is WebhookState.DOWN:
                raise refused_by(hook.name, 500, "InternalError", "no response")
            return self.webhooks is WebhookState.MISSING and hook.group in _OF_JOBS

        def mutate(review: AdmissionAttributes) -> Tree | None:
            assert hook.mutate is not None
            return None if is_absent() else hook.mutate(review)

        def validate(review: AdmissionAttributes) -> ValidationResult:
            assert hook.validate is not None
            return ACCEPTED if is_absent() else hook.validate(review)

        return replace(hook, mutate=hook.mutate and mutate, validate=hook.validate and validate)


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, "no space left on the device")
