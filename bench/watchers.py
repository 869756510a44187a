"""Writes to the embedded API server while many clients watch: what the watches cost the writers.

    python -m bench watchers [--watchers=200] [--writes=3000] [--rounds=3] [--json=FILE]

The server, the watchers and the writers are three processes; each watcher has a TLS connection of its own, watches all
Workloads and receives every write. Rounds without and with the watches alternate on one server, so that a change of the
machine's load meets both. Every watcher must have received every write; the delay is from the end of the last write
until then.
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

import uvloop
from bench import apiserver
from bench.apiserver import WORKLOADS, Connection, Server

SMALLEST = ("--watchers=10", "--writes=40", "--rounds=1")
CLIENTS = 32
TARGETS = {"writes/s, ratio": ("at least", 0.6)}

Figures = dict[str, float]


# --- The watchers, in a process of their own --------------------------------------------------------------------------


async def watch_all(server: Server, watchers: int, revision: str, expected: int) -> None:
    """Watch with so many clients; print a line when all watch, and another when each has received `expected` events."""
    path = f"{WORKLOADS}?watch=true&resourceVersion={revision}"
    open_watches: asyncio.Queue[None] = asyncio.Queue()

    async def watch() -> None:
        connection = await server.connect()
        received = 0
        connection.writer.write(f"GET {path} HTTP/1.1\r\n{connection.head}\r\n".encode())
        if b" 200 " not in (head := await connection.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]:
            raise RuntimeError(head.decode())
        open_watches.put_nowait(None)
        while received < expected:
            chunk = await connection.reader.read(2**18)
            if not chunk:
                raise RuntimeError("a watch ended early")
            # A line ends with a brace, and no text of these objects has one before a line feed.
            received += chunk.count(b"}\n")
        connection.close()

    tasks = [asyncio.create_task(watch()) for _ in range(watchers)]
    for _ in tasks:
        await open_watches.get()
    print("watching", flush=True)
    await asyncio.gather(*tasks)
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
    with apiserver.embedded() as server:
        uvloop.run(prepare(server))
        for number in range(rounds):
            alone.append(uvloop.run(write(server, f"alone-{number}", writes)))
            revision = uvloop.run(revision_of(server))
            assert server.kubeconfig is not None
            with watching(server.kubeconfig, watchers, revision, writes) as process:
                watched.append(uvloop.run(write(server, f"watched-{number}", writes)))
                ended = time.perf_counter()
                if _line(process) != "received":
                    raise SystemExit("a watcher did not receive every write")
                delays.append(time.perf_counter() - ended)
        ratios = [one / other for one, other in zip(watched, alone, strict=True)]
        return {
            "watchers": float(watchers),
            "writes/s without watches": statistics.median(alone),
            "writes/s with watches": statistics.median(watched),
            "writes/s, ratio": statistics.median(ratios),
            "ratio, least": min(ratios),
            "ratio, greatest": max(ratios),
            "last event behind last write, ms": statistics.median(delays) * 1e3,
            "memory MiB": apiserver.memory(server.pids),
        }


def table(figures: Figures) -> str:
    lines = [f"{'figure':36}{'must':>16}"]
    for name, value in figures.items():
        must = " ".join(map(str, TARGETS.get(name, ())))
        lines.append(f"{name:36}{must:>16}{value:12.2f}")
    return "\n".join(lines)


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
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps({"targets": TARGETS, **figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
