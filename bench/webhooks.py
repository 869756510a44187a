"""What the pod webhook costs: reviews of new pods over HTTPS on loopback, one at a time and many at once.

The webhooks run in a process of their own, as a manager would run them; the figures per core are its processor time, so
that the sender of the reviews does not count. Must: at most 5 ms at the median, at least 200 a second on one core.

    python -m bench webhooks --json=FILE
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from kubemachinery import codec, meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind
from kubemachinery.process import tune_garbage_collector
from pykueue import settings
from pykueue.api import kube, kueue
from pykueue.app.options import webhook_options
from pykueue.webhooks import webhook_server
from pykueue.webhooks.certificate import InMemoryStore

_REVIEWS: Final = 4000
SMALLEST: Final = ("--reviews=64",)
_CONNECTIONS: Final = 16
_PATHS: Final = {"mutate": "/mutate--v1-pod", "validate": "/validate--v1-pod"}

Tree = dict[str, Any]


def pod() -> Tree:
    """A pod as a training framework makes them."""
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py"],
        "env": [{"name": f"SETTING_{number}", "value": "some value"} for number in range(20)],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
        "volumeMounts": [{"name": f"data-{number}", "mountPath": f"/data/{number}"} for number in range(4)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-0",
            "namespace": "team-a",
            "labels": {"kueue.x-k8s.io/queue-name": "main", "app": "train"},
        },
        "spec": {
            "containers": [container, {**container, "name": "sidecar"}],
            "restartPolicy": "Never",
            "volumes": [{"name": f"data-{number}", "emptyDir": {}} for number in range(4)],
        },
    }


class Copies:
    """Objects as informers keep them."""

    def __init__(self) -> None:
        place = meta.ObjectMeta(name="team-a", labels={"kubernetes.io/metadata.name": "team-a"})
        self._held: dict[tuple[str, str, str], Any] = {("Namespace", "", "team-a"): kube.Namespace(metadata=place)}
        queue = meta.ObjectMeta(name="default", namespace="team-a")
        self._held["LocalQueue", "team-a", "default"] = kueue.LocalQueue(metadata=queue)

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        found = self._held.get((kind.kind, namespace, name))
        return None if found is None else codec.to_tree(found)

    async def owner(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return await self.find(kind, name, namespace)

    async def objects(self, kind: Kind) -> Iterable[Tree]:
        return []

    def is_former_leader(self, manager: str) -> bool:
        return False


async def serve() -> None:
    """The process under measure: prints its port, and serves until its input ends."""
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }
    choices = webhook_options(settings.load(configuration))

    async def no_server(request: object) -> Any:
        raise AssertionError("the bench asks no API server")

    client = ApiClient(LocalTransport(no_server), random.Random(1))
    async with webhook_server.webhooks(
        client, choices, Copies(), webhook_server.on_loopback(InMemoryStore()), SystemClock(), "kueue-system"
    ) as served:
        tune_garbage_collector()
        print(served.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Sender:
    """One connection, as an API server keeps them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Sender:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    async def post(self, path: str, body: bytes) -> bytes:
        head = [f"POST {path}?timeout=10s HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", "", ""]
        self._writer.write("\r\n".join(head).encode() + body)
        headers = await self._reader.readuntil(b"\r\n\r\n")
        if not headers.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"bench: the webhook answered {headers.decode()}")
        length = int(headers.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(port: int, pid: int, path: str, body: bytes, reviews: int) -> dict[str, float]:
    alone = await Sender.connect(port)
    answer = msgspec.json.decode(await alone.post(path, body))
    if answer["response"]["allowed"] is not True:
        raise SystemExit(f"bench: refused: {answer}")
    took = []
    for _ in range(max(1, reviews // 4)):
        start = time.perf_counter()
        await alone.post(path, body)
        took.append(time.perf_counter() - start)
    alone.close()

    senders = [await Sender.connect(port) for _ in range(_CONNECTIONS)]
    used, start = processor_seconds(pid), time.perf_counter()

    async def many(sender: Sender) -> None:
        for _ in range(reviews // _CONNECTIONS):
            await sender.post(path, body)

    await asyncio.gather(*map(many, senders))
    lasted, used = time.perf_counter() - start, processor_seconds(pid) - used
    for sender in senders:
        sender.close()
    ordered = sorted(took)
    return {
        "median_ms": statistics.median(took) * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
        "per_second": reviews / lasted,
        "per_second_and_core": reviews / used if used else 0.0,
    }


async def measure_all(port: int, pid: int, reviews: int) -> dict[str, dict[str, float]]:
    request: Tree = {"uid": "1", "operation": "CREATE", "namespace": "team-a", "name": "train-0", "object": pod()}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = msgspec.json.encode(review)
    return {name: await measure(port, pid, path, body, reviews) for name, path in _PATHS.items()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="webhooks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reviews", type=int, default=_REVIEWS, help="reviews sent over 16 connections")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args(arguments)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.webhooks", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        figures = asyncio.run(measure_all(int(process.stdout.readline()), process.pid, given.reviews))
    finally:
        process.stdin.close()
        process.wait(10)
    print(f"\n{'pod webhook':16}{'median ms':>12}{'99 % ms':>12}{'a second':>12}{'per core':>12}")
    for name, found in figures.items():
        print(
            f"{name:16}{found['median_ms']:12.2f}{found['p99_ms']:12.2f}"
            f"{found['per_second']:12.0f}{found['per_second_and_core']:12.0f}"
        )
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve())
    else:
        sys.exit(main(sys.argv[1:]))
