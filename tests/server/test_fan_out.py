"""Events of watches over the network are sent in rounds: promptly to few, together to many, completely to all [AS50]."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from kubemachinery.clock import SystemClock
from kubemachinery.http_messages import SharedChunk
from kubeserver.storage import fan_out
from kubeserver.storage.entries import ObjectEntry
from kubeserver.storage.fan_out import FanOut
from kubeserver.storage.objects import Objects
from kubeserver.storage.sqlite import MemoryJournal, StoreKey, WriteOperation
from kubeserver.storage.watch import Watch, WatchStream
from waiting import PATIENCE_SECONDS

THINGS = "things"
# Turns of the loop that a write needs until its events are sent, if nothing waits for the time.
TURNS = 10


class Connection:
    """A client that takes what it is sent, until it is full; sending to it takes `seconds` of the time of the rounds."""

    def __init__(self, time: list[float], seconds: float, sent: list[Connection]) -> None:
        self.time = time
        self.seconds = seconds
        self.sent = sent
        self.chunks: list[SharedChunk] = []
        self.taking = asyncio.Event()
        self.taking.set()

    async def __call__(self, data: bytes, /) -> None:
        self.chunks.append(SharedChunk(data))

    def prompt(self, chunk: SharedChunk) -> bool:
        if not self.taking.is_set():
            return False
        self.time[0] += self.seconds
        self.sent.append(self)
        self.chunks.append(chunk)
        return True

    async def drained(self) -> None:
        await self.taking.wait()

    @property
    def names(self) -> list[str]:
        events = (json.loads(line) for chunk in self.chunks for line in chunk.data.splitlines())
        return [event["object"]["name"] for event in events if event["type"] == "ADDED"]


class World:
    def __init__(self, *, uses_the_processor: bool = True) -> None:
        self.time = [0.0]
        self.objects = Objects(MemoryJournal(), SystemClock())
        self.rounds = FanOut(self.objects, lambda: self.time[0], lambda: self.time[0] if uses_the_processor else 0.0)
        self.written = 0
        # The connections in the order in which rounds sent them events.
        self.sent: list[Connection] = []

    def connections(self, count: int, seconds: float = 0.0) -> list[Connection]:
        return [Connection(self.time, seconds, self.sent) for _ in range(count)]

    async def write(self, count: int = 1) -> None:
        """Write objects, each in a commit of its own, with time for the loop but none on the clock."""
        for _ in range(count):
            key = StoreKey(THINGS, "n", f"{self.written:04}")
            await self.objects.write(WriteOperation.ADDED, key, "u", b'{"name":"%04d"}' % self.written)[1]
            self.written += 1
            for _ in range(TURNS):
                await asyncio.sleep(0)

    @property
    def names(self) -> list[str]:
        return [f"{index:04}" for index in range(self.written)]

    @asynccontextmanager
    async def watching(
        self, connections: Sequence[Connection], *, in_process: bool = False, resource: str = THINGS
    ) -> AsyncIterator[list[WatchStream]]:
        def present(entry: ObjectEntry) -> bytes:
            return entry.body

        watch = Watch(
            resource=resource,
            namespace="",
            match=None,
            after=self.objects.revision,
            present=present,
            bookmark=lambda revision, ends: b"{}",
            selection="all",
        )
        rounds = None if in_process else self.rounds
        streams = [WatchStream(self.objects, watch, rounds) for _ in connections]
        running = [
            asyncio.create_task(stream.run(connection)) for stream, connection in zip(streams, connections, strict=True)
        ]
        for _ in range(TURNS):
            await asyncio.sleep(0)
        yield streams
        for stream in streams:
            stream.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*running)


async def test_a_watch_alone_receives_each_event_at_once() -> None:
    world = World()
    (connection,) = connections = world.connections(1)
    async with world.watching(connections):
        for number in range(1, 20):
            await world.write()
            assert len(connection.chunks) == number
    assert connection.names == world.names


async def test_many_watches_receive_everything_in_order_and_share_its_encoding() -> None:
    world = World()
    connections = world.connections(50)
    async with world.watching(connections):
        await world.write(40)
        late = world.connections(3)
        async with world.watching(late):
            await world.write(10)
    assert all(connection.names == world.names for connection in connections)
    assert all(connection.names == world.names[40:] for connection in late)
    assert len({id(chunk) for connection in connections for chunk in connection.chunks}) == 50


@pytest.mark.parametrize("longest", [3600.0, 0.001])
async def test_after_a_long_round_events_wait_and_come_together(
    monkeypatch: pytest.MonkeyPatch, longest: float
) -> None:
    """A round takes a minute of the clock here. Where the pause is bounded, the next one comes all the same."""
    monkeypatch.setattr(fan_out, "PAUSE_MAX_SECONDS", longest)
    world = World()
    connections = world.connections(60, seconds=1.0)
    async with world.watching(connections):
        await world.write(20)
        if longest < 1:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while any(connection.names != world.names for connection in connections):
                    await asyncio.sleep(0.001)
        else:
            assert all(len(connection.chunks) == 1 for connection in connections), "the first change came at once"
    assert all(connection.names == world.names for connection in connections), "a watch that ends sends what is pending"
    if longest > 1:
        assert all(len(connection.chunks) == 2 for connection in connections)


async def test_a_round_that_other_processes_interrupt_delays_no_events() -> None:
    """Time passes while it sends, of which it used none."""
    world = World(uses_the_processor=False)
    (connection,) = connections = world.connections(1, seconds=1.0)
    async with world.watching(connections):
        for number in range(1, 20):
            await world.write()
            assert len(connection.chunks) == number


async def test_a_round_comes_last_to_the_resource_that_changed_last() -> None:
    """As when a client creates a Namespace and then a Job in it, while an older change of a Job is pending."""
    world = World()
    (outer,), (inner,) = world.connections(1), world.connections(1)
    async with world.watching([outer], resource="namespaces"), world.watching([inner], resource="jobs"):
        keys = [StoreKey("jobs", "n", "old"), StoreKey("namespaces", "", "new"), StoreKey("jobs", "new", "j")]
        writes = [world.objects.write(WriteOperation.ADDED, key, "u", b'{"name":""}')[1] for key in keys]
        await asyncio.gather(*writes)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert world.sent == [outer, inner], "one round has sent all three"


async def test_a_client_that_takes_nothing_delays_no_other_and_misses_nothing() -> None:
    world = World()
    slow, *others = connections = world.connections(5)
    async with world.watching(connections):
        await world.write(3)
        slow.taking.clear()
        await world.write(30)
        assert all(connection.names == world.names for connection in others)
        assert slow.names == world.names[:3]
        slow.taking.set()
        await world.write(2)
        assert slow.names == world.names
    shared = {id(chunk) for connection in others for chunk in connection.chunks}
    assert all(id(chunk) in shared for chunk in slow.chunks), "what it missed was not encoded again"


async def test_a_watch_that_falls_behind_the_history_gets_410_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "KEPT_BYTES_MAX", 0)
    world = World()
    slow, other = connections = world.connections(2)
    async with world.watching(connections):
        slow.taking.clear()
        await world.write(5)
        await world.objects.compact(world.objects.revision)
        slow.taking.set()
        await world.write(2)
    assert json.loads(slow.chunks[-1].data)["object"]["code"] == 410
    assert other.names == world.names


@pytest.mark.parametrize("in_process", [False, True], ids=["over the network", "in the process"])
async def test_an_open_watch_of_a_quiet_resource_outlives_compaction(in_process: bool) -> None:  # [AS47]
    world = World()
    (connection,) = connections = world.connections(1)
    async with world.watching(connections, in_process=in_process):
        await world.write()
        for number in range(20):
            key = StoreKey("others", "n", f"{number}")
            await world.objects.write(WriteOperation.ADDED, key, "u", b"{}")[1]
        await world.objects.compact(world.objects.revision)
        await world.write()
        assert connection.names == world.names
