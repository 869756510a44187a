"""The embedded API server, measured: durable writes, a long list, a watch by many, memory.

    python bench/apiserver.py [--out FILE.json] [--objects 15000] [--against KUBECONFIG]

Starts the server with our CRDs, and nothing that acts on them, in a process of its own, and talks to it over TLS on the
loopback address, as any client would. With `--against`, the same is measured on another server (a real kube-apiserver)
in the same run, and ratios are printed; absolute figures depend on the machine, its disk and who else uses it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

NAMESPACE = "bench"
API = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{API}/namespaces/{NAMESPACE}/workloads"
TARGETS = {
    "writes/s, 64 clients": (1500, "at least"),
    "write p50 ms, 1 client": (5, "at most"),
    "list of all, s": (2, "at most"),
    "watch list of all, s": (2, "at most"),
    "commit to 20 watchers, p99 ms": (50, "at most"),
    "memory MiB": (700, "at most"),
}


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
        "spec": {
            "queueName": "queue",
            "podSets": [{"name": "main", "count": 3, "template": {"spec": pod}}],
        },
    }


class Client:
    """A kubeconfig and a pool of connections."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = cluster.get("certificate-authority-data", "")
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode() or None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as pem:
                pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
                pem.write(base64.b64decode(user["client-key-data"]))
                pem.flush()
                context.load_cert_chain(pem.name)
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self.session = aiohttp.ClientSession(
            cluster["server"],
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers=headers,
            read_bufsize=2**21,
            timeout=aiohttp.ClientTimeout(total=300),
        )

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        async with self.session.request(method, path, data=data, headers={"Content-Type": kind}) as response:
            text = await response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status} {text[:300]!r}")
            return text

    async def ensure(self, path: str, body: Any) -> None:
        try:
            await self.send("POST", path, body)
        except RuntimeError as error:
            if "409" not in str(error):
                raise


async def many(clients: int, count: int, act: Callable[[int], Awaitable[Any]]) -> tuple[float, list[float]]:
    """`count` actions by `clients` at once: how many a second, and how long each took."""
    todo = iter(range(count))
    took: list[float] = []

    async def work() -> None:
        for index in todo:
            began = time.perf_counter()
            await act(index)
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return count / (time.perf_counter() - began), sorted(took)


def percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))]


def memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def prepare(client: Client) -> None:
    from pykueue.api import registry, schema

    for row in registry.KUEUE:
        await client.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", schema.crd(row))
    await client.ensure(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    for _ in range(100):
        try:
            await client.send("GET", WORKLOADS)
            return
        except RuntimeError:
            await asyncio.sleep(0.1)


async def measure(kubeconfig: Path, pid: int | None, objects: int) -> dict[str, float]:
    client = Client(kubeconfig)
    found: dict[str, float] = {}
    try:
        await prepare(client)
        start_memory, start_cpu = (memory(pid), cpu(pid)) if pid else (0.0, 0.0)
        for clients, count in ((1, 300), (8, 1500), (64, objects - 1800)):
            rate, took = await many(
                clients, count, lambda i, c=clients: client.send("POST", WORKLOADS, workload(f"w-{c}-{i:06}"))
            )
            found[f"writes/s, {clients} client{'s' if clients > 1 else ''}"] = rate
            found[f"write p50 ms, {clients} client{'s' if clients > 1 else ''}"] = statistics.median(took) * 1e3
            found[f"write p99 ms, {clients} client{'s' if clients > 1 else ''}"] = percentile(took, 0.99) * 1e3
        if pid:
            found["server CPU ms a write"] = (cpu(pid) - start_cpu) * 1e3 / objects
            found["memory KiB an object"] = (memory(pid) - start_memory) * 1024 / objects
            found["memory MiB"] = memory(pid)
        await reads(client, found, objects)
        await applies(client, found)
        await fan_out(client, found)
        if pid:
            found["memory MiB, at the end"] = memory(pid)
    finally:
        await client.session.close()
    return found


async def reads(client: Client, found: dict[str, float], objects: int) -> None:
    _, took = await many(8, 2000, lambda i: client.send("GET", f"{WORKLOADS}/w-8-{i % 1500:06}"))
    found["get p99 ms, 8 clients"] = percentile(took, 0.99) * 1e3
    began = time.perf_counter()
    text = await client.send("GET", WORKLOADS)
    found["list of all, s"] = time.perf_counter() - began
    assert text.count(b'"queueName"') >= objects, "the list is not whole"
    began = time.perf_counter()
    query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    seen = 0
    async with client.session.get(WORKLOADS + query) as response:
        async for line in response.content:
            seen += 1
            if b'"BOOKMARK"' in line[:20]:
                break
    found["watch list of all, s"] = time.perf_counter() - began
    assert seen > objects, "the watch list is not whole"


async def applies(client: Client, found: dict[str, float]) -> None:
    def status(index: int, turn: int) -> dict[str, Any]:
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
            "metadata": {"name": f"w-8-{index:06}"},
            "status": {"conditions": [condition]},
        }

    rate, took = await many(
        64,
        3000,
        lambda i: client.send(
            "PATCH",
            f"{WORKLOADS}/w-8-{i % 1500:06}/status?fieldManager=bench&force=true",
            status(i % 1500, i // 1500),
            "application/apply-patch+yaml",
        ),
    )
    found["status applies/s, 64 clients"] = rate
    found["status apply p99 ms, 64 clients"] = percentile(took, 0.99) * 1e3


async def fan_out(client: Client, found: dict[str, float], watchers: int = 20, writes: int = 500) -> None:
    """From the moment a write is answered to the moment the last of twenty watchers has it."""
    sent: dict[str, float] = {}
    delays: list[float] = []
    revision = json.loads(await client.send("GET", f"{WORKLOADS}?limit=1"))["metadata"]["resourceVersion"]
    ready = asyncio.Semaphore(0)

    async def watch() -> None:
        left = writes
        async with client.session.get(f"{WORKLOADS}?watch=true&resourceVersion={revision}") as response:
            ready.release()
            async for line in response.content:
                now = time.perf_counter()
                name = json.loads(line)["object"]["metadata"]["name"]
                if name in sent:
                    delays.append(now - sent[name])
                    left -= 1
                    if not left:
                        return

    tasks = [asyncio.create_task(watch()) for _ in range(watchers)]
    for _ in tasks:
        await ready.acquire()
    began = time.perf_counter()
    for index in range(writes):
        # A steady hundred a second: a client that measures twenty streams needs the other half of the machine.
        await asyncio.sleep(max(0.0, began + index / 100 - time.perf_counter()))
        name = f"fan-{index:04}"
        sent[name] = time.perf_counter()
        await client.send("POST", WORKLOADS, workload(name))
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    delays.sort()
    found["commit to 20 watchers, p50 ms"] = statistics.median(delays) * 1e3
    found["commit to 20 watchers, p99 ms"] = percentile(delays, 0.99) * 1e3


def serve(directory: Path) -> None:
    """The server under test, until it is told to end."""
    import uvloop

    from pykueue import app

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        settings = app.ServerSettings(data_dir=directory / "data", kubeconfig=directory / "kubeconfig")
        async with app.api_server(settings, app.kueue_parts()):
            app.calm_collector()
            await stop.wait()

    uvloop.run(run())


def embedded(objects: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, __file__, "--serve", directory],
            stderr=subprocess.DEVNULL,
        )
        try:
            while not kubeconfig.exists():
                if process.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.02)
            started = time.perf_counter() - began
            found = asyncio.run(measure(kubeconfig, process.pid, objects))
        finally:
            process.terminate()
            process.wait(20)
        found["start, s"] = started
        size = sum(path.stat().st_size for path in Path(directory, "data").glob("*.db*"))
        found["files MiB"] = size / 2**20
        return found


def table(ours: dict[str, float], theirs: dict[str, float] | None) -> str:
    lines = [f"{'figure':40} {'embedded':>12} {'must':>16}" + (f" {'other':>12} {'ratio':>8}" if theirs else "")]
    for name, value in ours.items():
        target = TARGETS.get(name)
        must = f"{target[1]} {target[0]}" if target else ""
        line = f"{name:40} {value:12.2f} {must:>16}"
        if theirs and name in theirs:
            line += f" {theirs[name]:12.2f} {value / theirs[name]:8.2f}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--objects", type=int, default=15_000)
    parser.add_argument("--against", type=Path, help="the kubeconfig of another server to measure in the same run")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    ours = embedded(options.objects)
    theirs = asyncio.run(measure(options.against, None, options.objects)) if options.against else None
    print(table(ours, theirs))
    if options.out:
        options.out.write_text(json.dumps({"embedded": ours, "other": theirs, "targets": TARGETS}, indent=2) + "\n")


if __name__ == "__main__":
    main()
