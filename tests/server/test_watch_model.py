"""Every watch, whatever happens to it, delivers the same changes as the list of writes.

A seed draws writers, watchers with and without selectors, in and out of the rounds that serve watches over the network,
disconnections, slow clients, compaction and pauses. Each watcher keeps the
copy of the world that its events give it, lists again after 410, and is compared with the model: in order, no
event twice, none missing, and at the end the copy equals the objects. `APISERVER_SEEDS` asks for more seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.clock import SystemClock
from kubemachinery.http_messages import SharedChunk
from kubeserver.storage.fan_out import FanOut
from kubeserver.storage.objects import HistoryBounds, Objects
from kubeserver.storage.sqlite import MemoryJournal, SqliteJournal, StoreKey, WriteOperation
from kubeserver.storage.watch import Match, Watch, WatchStream
from server.conftest import Tree
from waiting import PATIENCE_SECONDS

SEEDS = int(os.environ.get("APISERVER_SEEDS", "12"))
RESOURCE = "widgets.example.com"


class World:
    """The objects under test, and the history of what was written to them."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.fan_out = FanOut(objects)
        self.history: list[tuple[int, str, str, Tree]] = []

    def write(self, name: str, color: str | None) -> asyncio.Future[None]:
        key = StoreKey(RESOURCE, "default", name)
        live = self.objects.latest(key)
        revision = self.objects.next_revision
        if live is None:
            op, uid = WriteOperation.ADDED, f"uid-{revision}"
        else:
            op, uid = (WriteOperation.DELETED, live.uid) if color is None else (WriteOperation.MODIFIED, live.uid)
        tree = {"metadata": {"name": name, "uid": uid, "resourceVersion": str(revision)}, "color": color}
        if op is WriteOperation.DELETED:
            assert live is not None
            tree["color"] = json.loads(live.body)["color"]
        _, kept = self.objects.write(op, key, uid, json.dumps(tree).encode())
        self.history.append((revision, op.name, name, tree))
        return kept

    def present(self, match: Callable[[Tree], bool]) -> dict[str, Tree]:
        found = {e.key.name: json.loads(e.body) for e in self.objects.collection(RESOURCE)}
        return {name: tree for name, tree in found.items() if match(tree)}


class Connection:
    """A client that takes what it is sent: slowly at times, and until it closes the connection."""

    def __init__(self, rng: random.Random, *, is_slow: bool = False, closes: bool = False) -> None:
        self.rng = rng
        self.is_slow = is_slow
        self.closes = closes
        self.chunks: list[bytes] = []
        self.is_full = self.is_closed = False

    async def __call__(self, data: bytes, /) -> None:
        if self.is_slow:
            await asyncio.sleep(0.002)
        self.take(data)
        if self.is_closed:
            raise ConnectionResetError

    def take(self, data: bytes) -> None:
        self.chunks.append(data)
        self.is_closed = self.closes and len(self.chunks) > self.rng.randint(1, 5)
        self.is_full = self.is_slow and self.rng.random() < 0.5

    def prompt(self, chunk: SharedChunk) -> bool:
        if self.is_full or self.is_closed:
            return False
        self.take(chunk.data)
        return True

    async def drained(self) -> None:
        if self.is_closed:
            raise ConnectionResetError
        await asyncio.sleep(0.002)
        self.is_full = False


class Watcher:
    """A client with a copy of the objects, built from events alone."""

    def __init__(self, world: World, color: str | None, rng: random.Random) -> None:
        self.world = world
        self.color = color
        self.rng = rng
        self.copy: dict[str, Tree] = {}
        self.delivered = 0
        self.relists = 0
        self.done = False
        self.from_start = False

    def matches(self, tree: Tree) -> bool:
        return self.color is None or tree["color"] == self.color

    async def run(self) -> None:
        after: int | None = None
        while not (self.done and self.delivered >= self.world.objects.revision):
            after = await self.connect(after)

    async def connect(self, after: int | None) -> int | None:
        """One connection, cut at some moment; where the next one begins."""
        match = None if self.color is None else lambda entry: self.matches(json.loads(entry.body))
        fan_out = self.world.fan_out if self.rng.random() < 0.7 else None
        stream = watching(self.world.objects, after, 0.03 if not self.done else 0.01, match, fan_out, self.color)
        if after is None:
            self.copy, self.relists = {}, self.relists + 1
        self.initial, self.expired = after is None, False
        connection = Connection(self.rng, closes=self.rng.random() < 0.3, is_slow=self.rng.random() < 0.2)
        with contextlib.suppress(ConnectionResetError):
            await stream.run(connection)
        for line in b"".join(connection.chunks).splitlines():
            self.take(json.loads(line))
        if self.expired or self.initial:
            # The initial events are incomplete, so the copy is unknown.
            return None
        return self.delivered

    def take(self, event: Tree) -> None:
        tree = event["object"]
        match event["type"]:
            case "ERROR":
                assert tree["code"] == 410
                self.expired = True
            case "BOOKMARK":
                assert tree["revision"] >= self.delivered, "a bookmark never goes back"
                self.delivered = tree["revision"]
                self.initial = self.initial and not tree["ends"]
            case "ADDED" if self.initial:
                self.copy[tree["metadata"]["name"]] = tree
            case kind:
                self.take_change(kind, tree)

    def take_change(self, kind: str, tree: Tree) -> None:
        name, revision = tree["metadata"]["name"], int(tree["metadata"]["resourceVersion"])
        assert revision > self.delivered, "events come in order and only once"
        missed = [
            row for row in self.world.history if self.delivered < row[0] < revision and self.concerns(row[2], row[3])
        ]
        assert not missed, f"between {self.delivered} and {revision} something was left out"
        self.delivered = revision
        if kind == "DELETED":
            assert name in self.copy, "only what was seen can go"
            del self.copy[name]
        else:
            assert (name in self.copy) == (kind == "MODIFIED"), f"{kind} of {name}"
            self.copy[name] = tree

    def concerns(self, name: str, tree: Tree) -> bool:
        """Whether a write must be delivered: the object matches now, or did in the watcher's copy."""
        return self.matches(tree) or name in self.copy


def watching(
    objects: Objects,
    after: int | None,
    seconds: float,
    match: Match | None = None,
    fan_out: FanOut | None = None,
    color: str | None = None,
) -> WatchStream:
    watch = Watch(
        resource=RESOURCE,
        namespace="default",
        match=match,
        after=after,
        present=lambda entry: entry.body,
        bookmark=lambda revision, ends: json.dumps({"revision": revision, "ends": ends}).encode(),
        bookmarks=True,
        end_initial=after is None,
        timeout_seconds=seconds,
        selection=(color,),
    )
    return WatchStream(objects, watch, fan_out)


async def run_model(objects: Objects, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    world = World(objects)
    colors: list[str | None] = [None, "red", "blue", None, "red"]
    watchers = [Watcher(world, color, random.Random(rng.random())) for color in colors]
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    names = [f"w{index}" for index in range(8)]
    for _ in range(150):
        for _ in range(rng.randint(1, 6)):
            world.write(rng.choice(names), rng.choice(["red", "blue", "green", None]))
        if rng.random() < 0.1:
            await objects.compact(max(objects.compacted, objects.revision - rng.randint(0, 40)))
        await asyncio.sleep(rng.choice([0, 0, 0, 0.001, 0.004]))
    await objects.flushed()
    for watcher in watchers:
        watcher.done = True
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*tasks)
    for watcher in watchers:
        assert watcher.copy == world.present(watcher.matches)
    return {"relists": sum(watcher.relists for watcher in watchers), "writes": len(world.history)}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_watcher_ends_up_with_the_world_as_it_is(seed: int) -> None:
    delivered = await run_model(Objects(MemoryJournal(), SystemClock(), bounds=HistoryBounds(revisions_min=50)), seed)
    assert delivered["relists"] >= 5


async def test_the_faults_of_the_model_do_happen() -> None:
    """A model without disconnected or late watches would prove little."""
    relists = 0
    for seed in range(3):
        delivered = await run_model(Objects(MemoryJournal(), SystemClock()), 1000 + seed)
        relists += delivered["relists"]
    assert relists > 3 * 5, "a watcher had to list again after its first list"


async def test_the_same_holds_with_a_file_and_a_thread_below(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    journal = SqliteJournal(tmp_path)
    with ThreadPoolExecutor(1) as executor:
        objects = Objects(journal, SystemClock(), loaded=journal.load(), executor=executor)
        await run_model(objects, 7)
        present: Any = {e.key: e.body for e in objects.collection(RESOURCE)}
        revision = objects.revision
        await objects.close()
    again = SqliteJournal(tmp_path)
    loaded = again.load()
    assert {row.key: row.body for row in loaded.rows} == present
    assert loaded.revision == revision
    again.close()


async def test_a_watch_past_its_timeout_still_sends_a_bookmark() -> None:
    world, lines = World(Objects(MemoryJournal(), SystemClock())), []
    await world.write("a", "red")

    async def write(data: bytes) -> None:
        lines.append(json.loads(data))

    await watching(world.objects, world.objects.revision, 0.0).run(write)
    assert lines == [{"type": "BOOKMARK", "object": {"revision": world.objects.revision, "ends": False}}]
