"""The embedded server as a simulation runs it: on one thread, with everything it ever stored kept.

It may be killed and come back with what its journal holds: the history itself, or SQLite in a folder. Whoever waited
for an answer then never gets one. Its webhooks may be down, or may not be there yet.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum, auto
from functools import cache, partial
from pathlib import Path

from pykueue import app, settings
from pykueue.api import registry, schema
from pykueue.api.autoscaling import ProvisioningRequest
from pykueue.apiserver import access
from pykueue.apiserver.admission import ACCEPTED, Hook, Review, Verdict, refused_by
from pykueue.apiserver.embedded import Embedded, Find, Parts
from pykueue.apiserver.health import About
from pykueue.apiserver.store import Durability, Journal, Key, Loaded, MemoryJournal, Op, Record, Row, SqliteJournal
from pykueue.clock import Clock
from pykueue.kube.errors import Unanswered
from pykueue.kube.transport import Answer, Call, Lines, LocalTransport
from pykueue.simulate.loop import BEGINNING, VirtualClock, VirtualLoop
from pykueue.simulate.revisions import Stored, Tree


class Door(Enum):
    """How the webhooks stand."""

    OPEN = auto()
    DOWN = auto()  # nobody answers, so the server refuses what they would look at
    MISSING = auto()  # nobody has registered them, so jobs pass unseen


class History:
    """Every revision that was ever stored, in order, and what is there now."""

    def __init__(self, installed: Loaded) -> None:
        self.stored: list[Stored] = []
        self.listeners: list[Callable[[Stored], None]] = []
        self.present: dict[Key, Row] = {row.key: row for row in installed.rows}
        self.revision = installed.revision

    def keep(self, records: Sequence[Record]) -> None:
        for record in records:
            key = record.key
            if record.op is Op.DELETED:
                self.present.pop(key, None)
            else:
                self.present[key] = Row(key, record.uid, record.revision, record.created_revision, record.body)
            self.revision = record.revision
            seconds = (record.at - BEGINNING) / 1e9
            stored = Stored(
                seconds, record.revision, key.resource, key.namespace, key.name, record.op.name, record.body
            )
            self.stored.append(stored)
            for told in self.listeners:
                told(stored)

    def digest(self) -> str:
        """The same story, the same words."""
        found = hashlib.sha256()
        for each in self.stored:
            found.update(f"{each.revision} {each.op} {each.resource} {each.namespace}/{each.name}\n".encode())
            found.update(each.body)
        return found.hexdigest()


class _Tapped(MemoryJournal):
    """A journal as one life of the server sees it: what is kept is told to the history; after its death, nothing is."""

    def __init__(self, inner: Journal, history: History) -> None:
        self._inner = inner
        self._history = history
        self.is_dead = False

    def commit(self, records: Sequence[Record]) -> None:
        if not self.is_dead:
            self._inner.commit(records)
            self._history.keep(records)

    def compact(self, revision: int, rows_max: int) -> int:
        return 0 if self.is_dead else self._inner.compact(revision, rows_max)

    def close(self) -> None:
        self._inner.close()


class Server:
    """The server of one story."""

    def __init__(
        self,
        base: tuple[Parts, Loaded],
        clock: Clock,
        chance: random.Random,
        plugins: Callable[[Find], Sequence[Hook]],
        folder: Path | None,
    ) -> None:
        parts, loaded = base
        self._parts = replace(parts, plugins=lambda find: self._hooks(plugins(find)))
        self._clock = clock
        self._chance = chance
        self._folder = folder
        self.webhooks = Door.OPEN
        self.history = History(loaded)
        # What a restart found different from what had been acknowledged.
        self.lost: list[str] = []
        self.died = asyncio.Event()
        if folder is not None:
            records = [
                Record(row.key, Op.ADDED, row.revision, 0, row.created_revision, row.uid, row.body, clock.now())
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
            loaded = Loaded(history.revision, history.revision, "simulated", list(history.present.values()), [])
        else:
            kept = journal = self._open(self._folder)
            loaded = journal.load()
            self._compare(loaded)
        tapped = _Tapped(kept, history)
        embedded = Embedded(
            self._parts,
            tapped,
            access.Access({}, ()),
            self._clock,
            self._chance,
            About("simulated"),
            loaded=loaded,
        )
        return embedded, tapped

    def _compare(self, loaded: Loaded) -> None:
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
        self.died.set()
        await self.embedded.close()
        self.died = asyncio.Event()
        self.embedded, self._journal = self._life()
        await self.embedded.start()

    async def compact(self) -> None:
        """Forget the past, so that whoever watches from there is told 410."""
        await self.embedded.objects.compact(self.embedded.objects.revision)

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def send(self, call: Call) -> Answer:
        life = self._journal
        answer = await self._transport().send(call)
        if life.is_dead:
            raise Unanswered("the server was killed")
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Lines]:
        async with self._transport().stream(call) as lines:
            yield lines

    def _transport(self) -> LocalTransport:
        return LocalTransport(partial(self.embedded.server.handle_as, access.ADMIN))

    # --- Webhooks -----------------------------------------------------------------------------------------------------

    def _hooks(self, hooks: Sequence[Hook]) -> tuple[Hook, ...]:
        return tuple(self._disturbed(hook) if hook.name.endswith(".kb.io") else hook for hook in hooks)

    def _disturbed(self, hook: Hook) -> Hook:
        def is_absent() -> bool:
            if self.webhooks is Door.DOWN:
                raise refused_by(hook.name, 500, "InternalError", "nobody answers")
            return self.webhooks is Door.MISSING and hook.group == "batch"

        def mutate(review: Review) -> Tree | None:
            assert hook.mutate is not None
            return None if is_absent() else hook.mutate(review)

        def validate(review: Review) -> Verdict:
            assert hook.validate is not None
            return ACCEPTED if is_absent() else hook.validate(review)

        return replace(hook, mutate=hook.mutate and mutate, validate=hook.validate and validate)


@cache
def installed() -> tuple[Parts, Loaded]:
    """What a server holds once our CRDs and the autoscaler's are installed. Reading that is ten times faster than
    installing them."""
    parts = app.managed_parts(settings.defaults())
    parts = replace(parts, crds=(*parts.crds, schema.crd(registry.AUTOSCALING.of(ProvisioningRequest))))
    records: list[Record] = []

    class Keeping(MemoryJournal):
        def commit(self, made: Sequence[Record]) -> None:
            records.extend(made)

    async def install(clock: Clock) -> None:
        door = access.Access({}, ())
        server = Embedded(parts, Keeping(), door, clock, random.Random(0), About("simulated"))
        await server.start()
        await server.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(install(VirtualClock(runner.get_loop())))
    latest: dict[Key, Record] = {record.key: record for record in records}
    rows = [
        Row(record.key, record.uid, record.revision, record.created_revision, record.body)
        for record in latest.values()
        if record.op is not Op.DELETED
    ]
    revision = max(record.revision for record in records)
    return replace(parts, crds=()), Loaded(revision, revision, "simulated", rows, [])
