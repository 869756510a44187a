"""The embedded server as a simulation runs it: in memory, on one thread, with everything it ever stored kept."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial

from pykueue import app, settings
from pykueue.apiserver import access
from pykueue.apiserver.embedded import Embedded, Parts
from pykueue.apiserver.server import About
from pykueue.apiserver.store import Key, Loaded, MemoryJournal, Op, Record, Row
from pykueue.clock import Clock
from pykueue.kube.transport import LocalTransport
from pykueue.simulate.loop import BEGINNING, VirtualClock, VirtualLoop
from pykueue.simulate.revisions import Stored


class History(MemoryJournal):
    """Every revision that was ever stored, in order."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.listeners: list[Callable[[Stored], None]] = []

    def commit(self, records: Sequence[Record]) -> None:
        for record in records:
            key = record.key
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


class Server:
    """The server of one story."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        parts, loaded = _installed()
        self.history = History()
        self.embedded = Embedded(
            parts,
            self.history,
            access.Access({}, ()),
            clock,
            chance,
            About("simulated"),
            loaded=loaded,
        )

    def transport(self) -> LocalTransport:
        return LocalTransport(partial(self.embedded.server.handle_as, access.ADMIN))

    async def compact(self) -> None:
        """Forget the past, so that whoever watches from there is told 410."""
        await self.embedded.objects.compact(self.embedded.objects.revision)


@cache
def _installed() -> tuple[Parts, Loaded]:
    """What a server holds once our CRDs are installed. Reading that is ten times faster than installing them."""
    parts = app.managed_parts(settings.defaults())
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
