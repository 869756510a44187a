"""The manager beside many objects: start-up, memory, cost of an admission, delay of its event loop, status writes.

    python -m bench scale [--sizes=1000,10000,100000] [--seconds=20] [--rate=20] [--json=FILE]

A size is a number of pending Workloads. A fifth as many hold quota, fifty are in each ClusterQueue, and twenty in each
namespace: 100,000 pending are 20,000 admitted, 2,000 ClusterQueues and 5,000 namespaces. The embedded API server runs
in a process of its own and begins with these objects; then the manager is started. One more Workload waits for idle
quota: its admission is the end of the start-up. Then `--rate` Workloads a second finish, and others take their place.
Costs are per unit, so that the column of the largest size is comparable with that of the smallest.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import json
import re
import signal
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

import msgspec
import yaml
from bench._engines import cpu_seconds, memory_mib, process_of, until

SMALLEST = ("--sizes=100,200", "--seconds=2")
PER_QUEUE, ADMITTED_PER_QUEUE, PER_NAMESPACE = 50, 10, 20
PROBE = "probe"
GROUP = "/apis/kueue.x-k8s.io/v1beta2"
_CREATED = "2026-01-01T00:00:00Z"
_START_SECONDS = 600.0
_BATCH = 500
_IDLE_SHARE = 0.1
Figures = dict[str, float]


# --- The objects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """How many objects of each kind there are."""

    pending: int

    @property
    def queues(self) -> int:
        return max(1, self.pending // PER_QUEUE)

    @property
    def namespaces(self) -> int:
        return max(1, self.pending // PER_NAMESPACE)

    def namespace(self, queue: int) -> str:
        """The namespace of the LocalQueue of a ClusterQueue; the others have no queue."""
        return f"team-{queue % self.namespaces}"

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each object with its resource, those first that others refer to."""
        for name in ("kueue-system", *(f"team-{number}" for number in range(self.namespaces))):
            yield "namespaces", _object("v1", "Namespace", "", name, {})
        yield "resourceflavors.kueue.x-k8s.io", _kueue("ResourceFlavor", "", "default", {})
        for number in range(self.queues):
            yield from _queues(f"q-{number}", self.namespace(number), ADMITTED_PER_QUEUE)
        yield from _queues(PROBE, "team-0", 1)
        for number in range(self.queues * ADMITTED_PER_QUEUE):
            queue = number % self.queues
            yield "workloads.kueue.x-k8s.io", workload(f"a-{number}", self.namespace(queue), f"q-{queue}", held=True)
        for number in range(self.pending):
            queue = number % self.queues
            yield "workloads.kueue.x-k8s.io", workload(f"p-{number}", self.namespace(queue), f"q-{queue}")
        yield "workloads.kueue.x-k8s.io", workload(PROBE, "team-0", PROBE)


def _object(version: str, kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "generation": 1, "creationTimestamp": _CREATED}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _kueue(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _object("kueue.x-k8s.io/v1beta2", kind, namespace, name, spec)


def _queues(name: str, namespace: str, cpus: int) -> Iterator[tuple[str, dict[str, Any]]]:
    quota = {"name": "cpu", "nominalQuota": str(cpus)}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    yield "clusterqueues.kueue.x-k8s.io", _kueue("ClusterQueue", "", name, spec)
    yield "localqueues.kueue.x-k8s.io", _kueue("LocalQueue", namespace, name, {"clusterQueue": name})


def workload(name: str, namespace: str, queue: str, *, held: bool = False) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"queueName": queue, "priority": 0, "podSets": [{"name": "main", "count": 1, "template": template}]}
    tree = _kueue("Workload", namespace, name, spec)
    if held:
        assignment = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
        since = {"status": "True", "lastTransitionTime": _CREATED, "message": "", "observedGeneration": 1}
        tree["status"] = {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
            "conditions": [{"type": each, "reason": each, **since} for each in ("QuotaReserved", "Admitted")],
        }
    return tree


# --- The server -------------------------------------------------------------------------------------------------------


def serve(folder: Path, size: Size) -> None:
    """The embedded API server without a manager, with the objects of a size."""
    from kubemachinery.process import event_loop, tune_garbage_collector
    from kubeserver.serve import ServerSettings, announce, api_server
    from kubeserver.storage.objects import Objects
    from kubeserver.storage.sqlite import Durability, StoreKey, WriteOperation
    from pykueue import settings as configuration
    from pykueue.app.server import managed_parts

    async def fill(objects: Objects) -> None:
        encode = msgspec.json.Encoder().encode
        for number, (resource, tree) in enumerate(size.objects()):
            metadata, revision = tree["metadata"], objects.next_revision
            metadata |= {"uid": f"00000000-0000-4000-8000-{number:012}", "resourceVersion": str(revision)}
            key = StoreKey(resource, metadata.get("namespace", ""), metadata["name"])
            _, kept = objects.write(WriteOperation.ADDED, key, metadata["uid"], encode(tree))
            if number % _BATCH == 0:
                await asyncio.shield(kept)
        await objects.flushed()

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        chosen = ServerSettings(data_dir=folder / "data", durability=Durability.MEMORY)
        async with api_server(chosen, managed_parts(configuration.defaults()), announced=False) as up:
            await fill(up.embedded.objects)
            tune_garbage_collector()
            announce(chosen, up)
            await stop.wait()

    event_loop().run(run())


@dataclass(frozen=True)
class Client:
    """Requests to a server, one at a time in each thread."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str

    @classmethod
    def of(cls, kubeconfig: Path) -> Client:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        address = urlsplit(cluster["server"])
        return cls(address.hostname or "", address.port or 443, tls, user["token"])

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, context=self.tls)

    def send(self, connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/merge-patch+json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"bench: {method} {path}: {text.decode()[:500]}")
        return json.loads(text)


# --- The measurement --------------------------------------------------------------------------------------------------


class Watched:
    """What the server reports about a resource: status writes by name and second, and the Workloads that hold quota."""

    def __init__(self, client: Client, path: str) -> None:
        self.writes: Counter[tuple[str, int]] = Counter()
        self.admitted: deque[tuple[str, str]] = deque()
        self._client = client
        self._path = path
        connection = client.connection()
        # The revision is read here and not by the thread, which may begin after the next change.
        since = client.send(connection, "GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        threading.Thread(target=self._read, args=(connection, since), daemon=True).start()

    def _read(self, connection: http.client.HTTPSConnection, since: str) -> None:
        headers = {"Authorization": f"Bearer {self._client.token}"}
        connection.request("GET", f"{self._path}?watch=true&resourceVersion={since}", headers=headers)
        answer = connection.getresponse()
        while line := answer.readline():
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            if event["type"] == "MODIFIED":
                self.writes[metadata["name"], int(time.monotonic())] += 1
                status = event["object"].get("status", {})
                finished = any(each["type"] == "Finished" for each in status.get("conditions", ()))
                if status.get("admission") and not finished:
                    self.admitted.append((metadata["namespace"], metadata["name"]))


def measure(size: Size, seconds: float, rate: float) -> Figures:
    """The figures of one size."""
    import started

    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        kubeconfig, metrics, health = folder / "data" / "kubeconfig", started.free_port(), started.free_port()
        configuration = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": -1.0},
            "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        }
        (folder / "config").write_text(json.dumps(configuration))
        with process_of(sys.executable, __file__, "--serve", home, str(size.pending)) as server:
            until(kubeconfig.exists, server, _START_SECONDS)
            client = Client.of(kubeconfig)
            program = str(Path(__file__).with_name("_manager.py"))
            command = (sys.executable, program, "--kubeconfig", str(kubeconfig), "--config")
            began = time.monotonic()
            with process_of(*command, str(folder / "config"), log=folder / "manager.log") as manager:
                connection = client.connection()
                probe = f"{GROUP}/namespaces/team-0/workloads/{PROBE}"

                def is_admitted() -> bool:
                    return "admission" in client.send(connection, "GET", probe).get("status", {})

                until(is_admitted, manager, _START_SECONDS)
                started_after, start_cpu = time.monotonic() - began, cpu_seconds(manager.pid)
                figures = _churn(size, client, manager.pid, seconds, rate)
                objects = size.pending + size.queues * ADMITTED_PER_QUEUE
                return {
                    "start-up s": started_after,
                    "start-up ms CPU / 1,000 Workloads": start_cpu * 1e6 / objects,
                    "memory MiB, peak": memory_mib(manager.pid, "VmHWM"),
                    **figures,
                    "event loop delay, longest s": _longest_delay(metrics),
                }


def _churn(size: Size, client: Client, manager: int, seconds: float, rate: float) -> Figures:
    """Finish Workloads at a rate, and count what the manager does about it."""
    settled = _settled(manager)
    queues, workloads = Watched(client, f"{GROUP}/clusterqueues"), Watched(client, f"{GROUP}/workloads")
    connection = client.connection()
    before, began, finished = cpu_seconds(manager), time.monotonic(), 0
    total = min(int(seconds * rate), size.queues * ADMITTED_PER_QUEUE)
    for number in range(total):
        path = f"{GROUP}/namespaces/{size.namespace(number % size.queues)}/workloads/a-{number}/status"
        finish = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        condition = finish | {"lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        held = workload("", "", "", held=True)["status"]["conditions"]
        client.send(connection, "PATCH", path, {"status": {"conditions": [*held, condition]}})
        finished += 1
        time.sleep(max(0.0, began + finished / rate - time.monotonic()))
    deadline = time.monotonic() + 60
    while len(workloads.admitted) < finished and time.monotonic() < deadline:
        time.sleep(0.05)
    if len(workloads.admitted) < finished:
        raise SystemExit(f"bench: {len(workloads.admitted)} Workloads were admitted for {finished} that finished")
    spent = cpu_seconds(manager) - before
    return {
        "until it is idle s": settled,
        "manager ms CPU / admission": spent * 1000 / finished,
        "status writes of a ClusterQueue in a second, most": max(queues.writes.values(), default=0),
    }


def _settled(manager: int) -> float:
    """Wait until the manager uses less than a tenth of a core, and return the seconds until then."""
    began = time.monotonic()
    while True:
        before, since = cpu_seconds(manager), time.monotonic()
        time.sleep(1)
        if (cpu_seconds(manager) - before) / (time.monotonic() - since) < _IDLE_SHARE:
            return since - began


def _longest_delay(port: int) -> float:
    """The upper bound of the longest delay of the event loop, from its histogram."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    counts = [
        (float(found["le"]), float(found["count"]))
        for found in re.finditer(
            r'pykueue_event_loop_delay_seconds_bucket\{(?:[^}]*,)?le="(?P<le>[^"]+)"[^}]*\} (?P<count>\S+)', text
        )
    ]
    total = max((count for _, count in counts), default=0.0)
    return min((bound for bound, count in counts if count == total), default=0.0)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scale", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of pending Workloads")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long Workloads finish")
    parser.add_argument("--rate", type=float, default=20.0, help="Workloads that finish in a second")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    sizes = [Size(int(each)) for each in options.sizes.split(",")]
    results = [measure(size, options.seconds, options.rate) for size in sizes]
    print(f"{'pending Workloads':52}" + "".join(f"{size.pending:>12,}" for size in sizes) + "   largest : smallest")
    for name in results[0]:
        values = [result[name] for result in results]
        ratio = f"{values[-1] / values[0]:.2f}" if values[0] else "–"
        print(f"{name:52}" + "".join(f"{value:12.3g}" for value in values) + f"{ratio:>21}")
    if options.json:
        options.json.write_text(json.dumps(dict(zip(options.sizes.split(","), results, strict=True)), indent=2))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        with contextlib.suppress(KeyboardInterrupt):
            serve(Path(sys.argv[2]), Size(int(sys.argv[3])))
    else:
        sys.exit(main())
