"""Writes to the embedded API server while many clients watch: what the watches cost the writers.

    python -m bench watchers [--watchers=200] [--writes=3000] [--rounds=3] [--json=FILE]

The server, the watchers and the writers are three processes; each watcher has a TLS connection of its own, watches all
Workloads and receives every write. Rounds without and with the watches alternate on one server, so that a change of the
machine's load meets both. Every watcher must have received every write; the delay is from the end of the last write
until then. The processor time of the server includes that delay; it depends less than the rates on what else the
machine does, the watchers included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import uvloop
from bench import _figures, apiserver
from bench._figures import Figures, Targets
from bench.apiserver import WORKLOADS, Connection, Server

SMALLEST = ("--watchers=10", "--writes=40", "--rounds=1")
CLIENTS = 32
TARGETS: Targets = {"writes/s, ratio": ("at least", 0.6)}


# --- The watchers, in a process of their own --------------------------------------------------------------------------


class Watcher(asyncio.BufferedProtocol):
    """One client: counts the events that it receives, and does no more, as it shares the machine with the server."""

    # One buffer for all: what was received is counted before the next one receives.
    buffer = bytearray(2**18)

    def __init__(self, request: bytes, expected: int) -> None:
        self.request = request
        self.expected = expected
        self.received = 0
        self.last = b""
        loop = asyncio.get_running_loop()
        self.is_open: asyncio.Future[None] = loop.create_future()
        self.has_all: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.request)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.is_open.done():
            if not self.buffer.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(self.buffer[:nbytes].decode())
            self.is_open.set_result(None)
        # A line ends with a brace, and no text of these objects has one before a line feed.
        self.received += self.buffer.count(b"}\n", 0, nbytes) + (self.last == b"}" and self.buffer.startswith(b"\n"))
        self.last = bytes(self.buffer[nbytes - 1 : nbytes])
        if self.received >= self.expected and not self.has_all.done():
            self.has_all.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.is_open, self.has_all):
            if not future.done():
                future.set_exception(RuntimeError("a watch ended early"))


async def watch_all(server: Server, watchers: int, revision: str, expected: int) -> None:
    """Watch with so many clients; print a line when all watch, and another when each has received `expected` events."""
    request = f"GET {WORKLOADS}?watch=true&resourceVersion={revision} HTTP/1.1\r\n{server.head}\r\n".encode()
    loop = asyncio.get_running_loop()
    clients: list[Watcher] = []
    for _ in range(watchers):
        _, client = await loop.create_connection(
            lambda: Watcher(request, expected), server.host, server.port, ssl=server.tls
        )
        clients.append(client)
    await asyncio.gather(*(client.is_open for client in clients))
    print("watching", flush=True)
    await asyncio.gather(*(client.has_all for client in clients))
    print("received", flush=True)


@contextmanager
def watching(kubeconfig: Path, watchers: int, revision: str, expected: int) -> Iterator[subprocess.Popen[str]]:
    options = (f"--watch={kubeconfig}", f"--watchers={watchers}", f"--revision={revision}", f"--writes={expected}")
    process = subprocess.Popen([sys.executable, "-m", "bench.watchers", *options], stdout=subprocess.PIPE, text=True)
    try:
        if _line(process) != "watching":
            raise SystemExit("the watchers did not start")
        yield process
    finally:
        process.terminate()
        process.wait(20)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- The writers ------------------------------------------------------------------------------------------------------


async def write(server: Server, prefix: str, count: int) -> float:
    """Writes a second, by several clients."""

    async def create(connection: Connection, index: int) -> None:
        await connection.send("POST", WORKLOADS, apiserver.workload(f"{prefix}-{index:06}"))

    return (await apiserver.many(server, CLIENTS, count, create)).rate


async def revision_of(server: Server) -> str:
    connection = await server.connect()
    page = json.loads(await connection.send("GET", f"{WORKLOADS}?limit=1"))
    connection.close()
    return str(page["metadata"]["resourceVersion"])


async def prepare(server: Server) -> None:
    connection = await server.connect()
    await apiserver.prepare(connection)
    connection.close()
    await write(server, "first", 200)


def measure(watchers: int, writes: int, rounds: int) -> Figures:
    alone, watched, delays = [], [], []
    cpu_alone, cpu_watched = [], []
    with apiserver.embedded() as server:
        uvloop.run(prepare(server))
        for number in range(rounds):
            cpu = apiserver.cpu(server.pids)
            alone.append(uvloop.run(write(server, f"alone-{number}", writes)))
            cpu_alone.append((apiserver.cpu(server.pids) - cpu) * 1e3 / writes)
            revision = uvloop.run(revision_of(server))
            assert server.kubeconfig is not None
            with watching(server.kubeconfig, watchers, revision, writes) as process:
                cpu = apiserver.cpu(server.pids)
                watched.append(uvloop.run(write(server, f"watched-{number}", writes)))
                ended = time.perf_counter()
                if _line(process) != "received":
                    raise SystemExit("a watcher did not receive every write")
                delays.append(time.perf_counter() - ended)
                cpu_watched.append((apiserver.cpu(server.pids) - cpu) * 1e3 / writes)
        ratios = [one / other for one, other in zip(watched, alone, strict=True)]
        return {
            "watchers": float(watchers),
            "writes/s without watches": statistics.median(alone),
            "writes/s with watches": statistics.median(watched),
            "writes/s, ratio": statistics.median(ratios),
            "ratio, least": min(ratios),
            "ratio, greatest": max(ratios),
            "last event behind last write, ms": statistics.median(delays) * 1e3,
            "CPU ms a write without watches": statistics.median(cpu_alone),
            "CPU ms a write with watches": statistics.median(cpu_watched),
            "memory MiB": apiserver.memory(server.pids),
        }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--writes", type=int, default=3000, help="writes of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--watch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--revision", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.watch:
        server = Server.of(given.watch.read_text(), [])
        uvloop.run(watch_all(server, given.watchers, given.revision, given.writes))
        return 0
    figures = measure(given.watchers, given.writes, given.rounds)
    print(_figures.table(figures, TARGETS))
    if given.json:
        _figures.save(figures, TARGETS, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
