"""The embedded API server and a real one in one run: durable writes, a long list, a watch by many, their cost.

    python -m bench apiserver [--objects=15000] [--on=embedded|real|all] [--json=FILE]

Each server runs in a process of its own with Kueue's CRDs and no controllers, and is called over TLS on the loopback
address by the same lean client: both share the machine, and an expensive client would measure itself. The figures of
the real server include etcd, which syncs its log as the embedded server does. Compare columns of one run: machines
differ, and so does their load.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

import msgspec
import uvloop
import yaml

NAMESPACE = "bench"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WATCH_LIST = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
OBJECTS, WATCHERS = 15_000, 20
SMALLEST = ("--objects=300",)
# What the embedded server must reach, on a quiet machine with two cores.
TARGETS = {
    "writes/s, 64 clients": ("at least", 1500),
    "write p50 ms, 1 client": ("at most", 5),
    "list of all, s": ("at most", 2),
    "watch list of all, s": ("at most", 2),
    "commit to 20 watchers p99 ms": ("at most", 50),
    "memory MiB": ("at most", 700),
}

Figures = dict[str, float]


# --- A lean client ----------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """Where a server is, how to be let in, and the processes that it is made of."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str
    pids: list[int]
    kubeconfig: Path | None = None

    @classmethod
    def of(cls, kubeconfig: str, pids: list[int]) -> Server:
        document = yaml.safe_load(kubeconfig)
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        address = urlsplit(cluster["server"])
        return cls(address.hostname or "", address.port or 443, tls, user["token"], pids)

    async def connect(self) -> Connection:
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls, limit=2**22)
        return Connection(reader, writer, self.head)

    @property
    def head(self) -> str:
        """The headers of every request."""
        head = f"Host: {self.host}:{self.port}\r\nAuthorization: Bearer {self.token}\r\nUser-Agent: bench/1\r\n"
        return head + "Accept: application/json\r\n"


@dataclass
class Connection:
    """One connection, one request at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> bytes:
        chunks = self._ask(method, path, body, kind)
        return b"".join([chunk async for chunk in chunks])

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of a watch, as they come."""
        rest = b""
        async for chunk in self._ask("GET", path, None, ""):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line

    async def _ask(self, method: str, path: str, body: Any, kind: str) -> AsyncIterator[bytes]:
        payload = b"" if body is None else msgspec.json.encode(body)
        about = f"Content-Type: {kind}\r\nContent-Length: {len(payload)}\r\n" if payload else ""
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}{about}\r\n".encode() + payload)
        first, *rest = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        code = int(first.split(" ")[1])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        chunks = self._chunks(headers)
        if code >= 400:
            body = b"".join([chunk async for chunk in chunks])
            raise RuntimeError(f"{method} {path}: {code} {body[:300]!r}")
        async for chunk in chunks:
            yield chunk

    async def _chunks(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding") != "chunked":
            yield await self.reader.readexactly(int(headers.get("content-length", "0")))
            return
        while size := int(await self.reader.readline(), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    def close(self) -> None:
        self.writer.close()


async def many(server: Server, clients: int, count: int, act: Callable[[Connection, int], Awaitable[Any]]) -> Timing:
    """`count` actions by `clients` at once."""
    connections = [await server.connect() for _ in range(clients)]
    todo = iter(range(count))
    took: list[float] = []

    async def work(connection: Connection) -> None:
        for index in todo:
            began = time.perf_counter()
            await act(connection, index)
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(work, connections))
    whole = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return Timing(count / whole, sorted(took))


@dataclass
class Timing:
    rate: float
    took: list[float] = field(repr=False)

    def milliseconds(self, share: float) -> float:
        return self.took[min(len(self.took) - 1, int(len(self.took) * share))] * 1e3


# --- What is measured -------------------------------------------------------------------------------------------------


def workload(name: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "registry.example/image:1",
        "command": ["sh", "-c", "sleep 10"],
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 40} for index in range(12)],
        "resources": {"requests": {"cpu": "1", "memory": "200Mi"}, "limits": {"memory": "400Mi"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "labels": {"bench": "true", "kueue.x-k8s.io/job-uid": "0" * 36}},
        "spec": {"queueName": "queue", "podSets": [{"name": "main", "count": 3, "template": {"spec": pod}}]},
    }


def status(name: str, turn: int) -> dict[str, Any]:
    condition = {
        "type": "PodsReady",
        "status": "True" if turn % 2 else "False",
        "reason": "Bench",
        "message": f"turn {turn}",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "status": {"conditions": [condition]},
    }


@dataclass(frozen=True)
class Load:
    """How much of everything a run with so many objects does; the shares are those of a run with 15,000."""

    objects: int

    def _share(self, of_full: int) -> int:
        return max(1, of_full * self.objects // OBJECTS)

    @property
    def by_eight(self) -> int:
        """The objects that eight clients write. Reads and applies use these."""
        return self._share(1_500)

    @property
    def writes(self) -> tuple[tuple[int, int], ...]:
        """Clients, and how many objects they write together."""
        alone = self._share(300)
        return (1, alone), (8, self.by_eight), (64, self.objects - alone - self.by_eight)

    @property
    def gets(self) -> int:
        return self._share(2_000)

    @property
    def applies(self) -> int:
        return self._share(3_000)

    @property
    def watched(self) -> int:
        """The writes that every watcher receives."""
        return self._share(500)


async def measure(server: Server, load: Load) -> Figures:
    objects = load.objects
    found: Figures = {}
    connection = await server.connect()
    await prepare(connection)
    memory_before, cpu_before = memory(server.pids), cpu(server.pids)
    await writes(server, load, found)
    found["CPU ms a write"] = (cpu(server.pids) - cpu_before) * 1e3 / objects
    found["memory MiB"] = memory(server.pids)
    found["memory KiB an object"] = (memory(server.pids) - memory_before) * 1024 / objects
    await reads(server, connection, load, found)
    await applies(server, load, found)
    await fan_out(server, connection, load, found)
    found["memory MiB at the end"] = memory(server.pids)
    found["load of the machine"] = os.getloadavg()[0]
    connection.close()
    return found


async def prepare(connection: Connection) -> None:
    from pykueue.api import registry, schema

    async def ensure(path: str, body: dict[str, Any]) -> None:
        try:
            await connection.send("POST", path, body)
        except RuntimeError as error:
            if ": 409 " not in str(error):
                raise

    for row in registry.KUEUE:
        await ensure(CRDS, schema.crd(row))
    await ensure("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for _ in range(300):
        try:
            await connection.send("GET", WORKLOADS)
            return
        except RuntimeError:
            await asyncio.sleep(0.1)
    raise RuntimeError("Workloads are not served")


async def writes(server: Server, load: Load, found: Figures) -> None:
    for clients, count in load.writes:

        async def create(connection: Connection, index: int, prefix: str = f"w-{clients}") -> None:
            await connection.send("POST", WORKLOADS, workload(f"{prefix}-{index:06}"))

        timing = await many(server, clients, count, create)
        name = f"{clients} client{'s' if clients > 1 else ''}"
        found[f"writes/s, {name}"] = timing.rate
        found[f"write p50 ms, {name}"] = timing.milliseconds(0.5)
        found[f"write p99 ms, {name}"] = timing.milliseconds(0.99)


async def reads(server: Server, connection: Connection, load: Load, found: Figures) -> None:
    objects = load.objects
    timing = await many(server, 8, load.gets, lambda c, i: c.send("GET", f"{WORKLOADS}/w-8-{i % load.by_eight:06}"))
    found["get p99 ms, 8 clients"] = timing.milliseconds(0.99)
    began = time.perf_counter()
    text = await connection.send("GET", WORKLOADS)
    found["list of all, s"] = time.perf_counter() - began
    assert text.count(b'"queueName"') >= objects, "the list is not whole"
    watcher, seen, began = await server.connect(), 0, time.perf_counter()
    async for line in watcher.lines(WORKLOADS + WATCH_LIST):
        seen += 1
        if b'"BOOKMARK"' in line[:20]:
            break
    found["watch list of all, s"] = time.perf_counter() - began
    watcher.close()
    assert seen > objects, "the watch list is not whole"


async def applies(server: Server, load: Load, found: Figures) -> None:
    async def apply(connection: Connection, index: int) -> None:
        name = f"w-8-{index % load.by_eight:06}"
        path = f"{WORKLOADS}/{name}/status?fieldManager=bench&force=true"
        await connection.send("PATCH", path, status(name, index // load.by_eight), "application/apply-patch+yaml")

    timing = await many(server, 64, load.applies, apply)
    found["status applies/s, 64 clients"] = timing.rate
    found["status apply p99 ms, 64 clients"] = timing.milliseconds(0.99)


async def fan_out(server: Server, connection: Connection, load: Load, found: Figures) -> None:
    """From the moment a write is sent to the moment each of twenty watchers has it, at a steady hundred a second."""
    sent: dict[str, float] = {}
    delays: list[float] = []
    page = json.loads(await connection.send("GET", f"{WORKLOADS}?limit=1"))
    path = f"{WORKLOADS}?watch=true&resourceVersion={page['metadata']['resourceVersion']}"

    async def watch() -> None:
        watcher = await server.connect()
        async for line in watcher.lines(path):
            now, name = time.perf_counter(), json.loads(line)["object"]["metadata"]["name"]
            delays.append(now - sent[name])
            if name == f"fan-{load.watched - 1:04}":
                break
        watcher.close()

    watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
    await asyncio.sleep(1)
    began = time.perf_counter()
    for index in range(load.watched):
        await asyncio.sleep(max(0.0, began + index / 100 - time.perf_counter()))
        name = f"fan-{index:04}"
        sent[name] = time.perf_counter()
        await connection.send("POST", WORKLOADS, workload(name))
    await asyncio.wait_for(asyncio.gather(*watchers), 60)
    assert len(delays) == WATCHERS * load.watched, "a watcher missed something"
    timing = Timing(0.0, sorted(delays))
    found["commit to 20 watchers p50 ms"] = timing.milliseconds(0.5)
    found["commit to 20 watchers p99 ms"] = timing.milliseconds(0.99)


def memory(pids: Iterable[int]) -> float:
    """What the processes hold, in MiB."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def cpu(pids: Iterable[int]) -> float:
    """The seconds of processor time that they have had."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids)
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


# --- The servers ------------------------------------------------------------------------------------------------------


def serve(directory: Path) -> None:
    """The embedded server, until its input ends."""
    from kubemachinery.process import tune_garbage_collector
    from kubeserver.serve import ServerSettings, api_server
    from pykueue.app.server import kueue_parts

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        settings = ServerSettings(data_dir=directory / "data", kubeconfig=directory / "kubeconfig")
        async with api_server(settings, kueue_parts()):
            tune_garbage_collector()
            await stop.wait()

    uvloop.run(run())


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as home:
        kubeconfig = Path(home) / "kubeconfig"
        process = subprocess.Popen([sys.executable, __file__, f"--serve={home}"], stderr=subprocess.DEVNULL)
        try:
            while not kubeconfig.exists():
                if process.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.02)
            yield dataclasses.replace(Server.of(kubeconfig.read_text(), [process.pid]), kubeconfig=kubeconfig)
        finally:
            process.terminate()
            process.wait(20)


@contextlib.contextmanager
def real() -> Iterator[Server]:
    from cluster import real as cluster

    with cluster.started(durable=True) as client:
        yield Server.of(client.kubeconfig(), list(children()))


def children() -> Iterator[int]:
    """The processes that this one has started and that still run."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    yield int(folder.name)


# --- Reporting --------------------------------------------------------------------------------------------------------


def table(runs: dict[str, Figures]) -> str:
    names = dict.fromkeys(name for figures in runs.values() for name in figures)
    lines = [f"{'figure':34}{'must':>16}" + "".join(f"{run:>12}" for run in runs) + f"{'ratio':>9}"]
    for name in names:
        must = " ".join(map(str, TARGETS.get(name, ())))
        values = [figures[name] for figures in runs.values()]
        ratio = f"{values[0] / values[1]:9.2f}" if len(values) == 2 and values[1] else ""
        lines.append(f"{name:34}{must:>16}" + "".join(f"{value:12.2f}" for value in values) + ratio)
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="apiserver", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument(
        "--on", choices=["embedded", "real", "all"], help="by default all, where the binaries are there"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
        return 0
    from cluster import assets

    there = (assets.folder() / "kube-apiserver").exists()
    on = options.on or ("all" if there else "embedded")
    servers = {"embedded": embedded, "real": real}
    runs: dict[str, Figures] = {}
    for name in servers if on == "all" else [on]:
        with servers[name]() as server:
            runs[name] = uvloop.run(measure(server, Load(options.objects)))
    print(table(runs))
    if options.json:
        options.json.write_text(json.dumps({"objects": options.objects, "targets": TARGETS, **runs}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
