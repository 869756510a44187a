"""The public baseline load, drained: Workloads arrive, are admitted, run for a while and end.

    python -m bench drain [--scale=0.1] [--on=embedded|real|all] [--caps=50,300,0] [--webhooks] [--json=FILE]
                          [--beside="MANAGER --feature-gates=…" --crds=FOLDER]

Five cohorts of six ClusterQueues; into each queue come small, medium and large Workloads at a steady pace. The manager
is ours, in a process of its own; this process is the rest of the cluster: it creates the Workloads, sets `Finished`
for each after its runtime, and clears the reservation of each that was evicted, as a job would. `embedded` is the
server of `pykueue up` with the manager inside, `real` a kube-apiserver and etcd with `pykueue manager` beside it, once
for each cap on its requests a second (0: none). Scale 1 is 15,000 Workloads; the pace stays, there are fewer of them.
The public benchmark has no webhooks, so the real server is led to ours only with `--webhooks`. Another manager of the
same API, started with `--kubeconfig` and `--config` as ours is, runs at each cap right after ours where `--beside`
names it: only what one run compares can be called faster.

The floor is what no scheduler can beat: the last arrival and its runtime, or all the work divided by all the quota.
Never a test: a slow machine is not a broken one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

import msgspec
import yaml

from kubemachinery import meta
from kubemachinery.client import client_config
from kubemachinery.client.client import METADATA, ApiClient
from kubemachinery.client.errors import Conflict, KubeError, Unanswered
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind
from pykueue.api import kueue, registry, schema
from pykueue.webhooks import certificate

ROOT = Path(__file__).resolve().parents[1]
COHORTS, QUEUES = 5, 6  # ClusterQueues of each cohort
NOMINAL, BORROWING = 20, 100  # CPUs of each ClusterQueue
NAMESPACE = "drain"
WORKLOAD = registry.KUEUE.of(kueue.Workload)
SMALLEST = ("--scale=0.002", "--caps=0", "--limit=240")
# Writes and Events of the manager; writes of the server itself do not count.
COUNTED = ("workloads", "events", "clusterqueues", "localqueues", "cohorts")


@dataclass(frozen=True)
class Class:
    """One sort of Workload: how many come to each ClusterQueue, how fast, and what each is."""

    name: str
    count: int
    every_seconds: float
    runtime_seconds: float
    priority: int
    cpu: int


CLASSES = (
    Class("small", 350, 0.1, 0.2, 50, 1),
    Class("medium", 100, 0.5, 0.5, 100, 5),
    Class("large", 50, 1.2, 1.0, 200, 20),
)


@dataclass(frozen=True)
class Load:
    scale: float

    def count(self, each: Class) -> int:
        return max(1, round(each.count * self.scale))

    @property
    def total(self) -> int:
        return COHORTS * QUEUES * sum(self.count(each) for each in CLASSES)

    @property
    def floor_seconds(self) -> float:
        work = QUEUES * sum(self.count(each) * each.cpu * each.runtime_seconds for each in CLASSES)
        last = max(self.count(each) * each.every_seconds + each.runtime_seconds for each in CLASSES)
        return max(work / (QUEUES * NOMINAL), last)


# --- The world ------------------------------------------------------------------------------------------------------


def queues() -> Iterator[tuple[Kind, dict[str, Any]]]:
    """What has to be there before the first Workload comes."""
    by_kind = {row.kind: row for row in registry.ALL}

    def thing(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> tuple[Kind, dict[str, Any]]:
        row = by_kind[kind]
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        return row, {"apiVersion": row.api_version, "kind": kind, "metadata": metadata, "spec": spec}

    yield thing("Namespace", NAMESPACE, {})
    yield thing("ResourceFlavor", "default", {})
    for cohort in range(COHORTS):
        for number in range(QUEUES):
            name = f"cq-{cohort}-{number}"
            quota = {"name": "cpu", "nominalQuota": str(NOMINAL), "borrowingLimit": str(BORROWING)}
            spec = {
                "cohortName": f"cohort-{cohort}",
                "namespaceSelector": {},
                "resourceGroups": [
                    {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
                ],
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            }
            yield thing("ClusterQueue", name, spec)
            yield thing("LocalQueue", name, {"clusterQueue": name}, NAMESPACE)


def workload(name: str, queue: str, each: Class) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(each.cpu)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "queueName": queue,
            "priority": each.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


class _Status(msgspec.Struct, frozen=True):
    admission: Any = None
    conditions: list[dict[str, Any]] = []

    def has(self, type_: str) -> bool:
        return any(each["type"] == type_ and each["status"] == "True" for each in self.conditions)


class _Object(msgspec.Struct, frozen=True):
    metadata: meta.ObjectMeta = meta.ObjectMeta()
    status: _Status = _Status()


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    object: _Object = _Object()


@dataclass
class Player:
    """Everything but the manager."""

    client: ApiClient
    load: Load
    classes: dict[str, Class] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    admitted: dict[str, float] = field(default_factory=dict)  # the first time
    finished: set[str] = field(default_factory=set)
    admissions: int = 0
    evictions: int = 0
    cpu_seconds: float = 0.0
    began: float = 0.0
    last_created: float = 0.0
    ended: float = 0.0
    all_done: asyncio.Event = field(default_factory=asyncio.Event)
    _known: dict[str, _Object] = field(default_factory=dict)
    _running: dict[str, tuple[float, asyncio.TimerHandle]] = field(default_factory=dict)
    _acting: set[asyncio.Task[None]] = field(default_factory=set)

    async def create(self) -> None:
        self.began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for cohort in range(COHORTS):
                for number in range(QUEUES):
                    for each in CLASSES:
                        group.create_task(self._stream(f"cq-{cohort}-{number}", each))
        self.last_created = time.monotonic()

    async def _stream(self, queue: str, each: Class) -> None:
        for number in range(self.load.count(each)):
            await asyncio.sleep(max(0.0, self.began + (number + 1) * each.every_seconds - time.monotonic()))
            name = f"{each.name}-{queue}-{number:04}"
            self.classes[name] = each
            self.created[name] = time.monotonic()
            await self.client.create(WORKLOAD, workload(name, queue, each))

    async def watch(self, revision: str) -> None:
        """Follow the Workloads, and act on what happens to them."""
        read = msgspec.json.Decoder(_Line).decode
        while True:
            with contextlib.suppress(KubeError):
                async with self.client.watch(WORKLOAD, NAMESPACE, revision=revision) as lines:
                    async for line in lines:
                        event = read(line)
                        revision = event.object.metadata.resource_version or revision
                        if event.type in ("ADDED", "MODIFIED"):
                            self._seen(event.object)

    def _seen(self, found: _Object) -> None:
        name, status, now = found.metadata.name, found.status, time.monotonic()
        self._known[name] = found
        if status.has("Finished"):
            self._stop(name, now)
            self.finished.add(name)
            if len(self.finished) == self.load.total:
                self.ended = now
                self.all_done.set()
        elif status.has("Evicted") and status.admission is not None:
            self._stop(name, now)
            self.evictions += 1
            self._act(name, _cleared)
        elif status.has("Admitted") and name not in self._running:
            self.admissions += 1
            self.admitted.setdefault(name, now)
            runtime = self.classes[name].runtime_seconds
            timer = asyncio.get_running_loop().call_later(runtime, self._act, name, _ended)
            self._running[name] = now, timer

    def _stop(self, name: str, now: float) -> None:
        if name in self._running:
            since, timer = self._running.pop(name)
            timer.cancel()
            self.cpu_seconds += (now - since) * self.classes[name].cpu

    def _act(self, name: str, change: Callable[[_Status], dict[str, Any] | None]) -> None:
        task = asyncio.get_running_loop().create_task(self._write(name, change))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _write(self, name: str, change: Callable[[_Status], dict[str, Any] | None]) -> None:
        while (status := change(self._known[name].status)) is not None:
            metadata = {"resourceVersion": self._known[name].metadata.resource_version}
            patch = {"metadata": metadata, "status": status}
            try:
                await self.client.patch(WORKLOAD, name, patch, NAMESPACE, subresource="status", accept=METADATA)
                return
            except (Conflict, Unanswered):
                await asyncio.sleep(0.02)  # the watch brings what was written meanwhile

    def mean_seconds_to_admission(self) -> dict[str, float]:
        waits = defaultdict(list)
        for name, at in self.admitted.items():
            waits[self.classes[name].name].append(at - self.created[name])
        return {each.name: sum(waits[each.name]) / max(1, len(waits[each.name])) for each in CLASSES}

    def left(self) -> Counter[str]:
        """The conditions of the Workloads that have not finished."""
        counted: Counter[str] = Counter()
        for name in sorted(self.created.keys() - self.finished):
            found = self._known.get(name)
            found_conditions = (
                [f"{each['type']}={each['status']}" for each in found.status.conditions] if found else ["unseen"]
            )
            counted[" ".join(found_conditions) or "nothing"] += 1
        return counted


def _ended(status: _Status) -> dict[str, Any] | None:
    if status.has("Finished") or status.has("Evicted") or not status.has("Admitted"):
        return None
    return {"conditions": _with(status, Finished=("True", "Succeeded"))}


def _cleared(status: _Status) -> dict[str, Any] | None:
    if status.admission is None or not status.has("Evicted"):
        return None
    changed = _with(
        status, QuotaReserved=("False", "Pending"), Admitted=("False", "NoReservation"), Requeued=("True", "Preempted")
    )
    return {"admission": None, "conditions": changed}


def _with(status: _Status, **changed: tuple[str, str]) -> list[dict[str, Any]]:
    now = meta.format_time(time.time_ns())
    others = [each for each in status.conditions if each["type"] not in changed]
    return others + [
        {"type": type_, "status": value, "reason": reason, "message": "played", "lastTransitionTime": now}
        for type_, (value, reason) in changed.items()
    ]


# --- The engines ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """A server that answers and a manager that leads."""

    kubeconfig: Path
    manager: int  # process id
    requests: Callable[[], dict[str, int]]  # up to now, as "VERB resource"
    counts_all_clients: bool  # whether those of this process are among them


def serve(folder: Path, configuration: Mapping[str, Any] | None = None) -> None:
    """`pykueue up`, which also writes down how many requests its manager has sent whenever it is asked by a signal."""
    from kubemachinery.process import event_loop, tune_garbage_collector
    from kubeserver.serve import ServerSettings, api_server
    from pykueue import settings
    from pykueue.app.embedded_manager import embedded_manager
    from pykueue.app.server import managed_parts

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        chosen = settings.load(configuration, "the configuration") if configuration else settings.defaults()
        server = ServerSettings(data_dir=folder / "data")
        async with (
            api_server(server, managed_parts(chosen)) as up,
            embedded_manager(up.embedded, chosen) as manager,
        ):
            tune_garbage_collector()

            def count() -> None:
                sent = {f"{verb} {plural}": times for (verb, plural), times in manager.client.sent.items()}
                (folder / "sent.new").write_text(json.dumps(sent))
                (folder / "sent.new").rename(folder / "sent")

            loop.add_signal_handler(signal.SIGUSR1, count)
            (folder / "ready").write_text(str(up.kubeconfig))
            await stop.wait()

    event_loop().run(run())


def manage(arguments: list[str]) -> None:
    """`pykueue manager` that leads the API server to no webhooks."""
    from pykueue import cli
    from pykueue.webhooks import webhook_server

    async def nowhere(served: webhook_server.WebhookServer) -> None:
        """No webhook is called."""

    webhook_server.WebhookServer.register = nowhere  # type: ignore[assignment, method-assign]
    cli.main(["manager", *arguments])


@contextlib.contextmanager
def embedded(script: str = __file__) -> Iterator[Engine]:
    """The server of `script --serve FOLDER`, which calls `serve`."""
    with tempfile.TemporaryDirectory() as home, process_of(sys.executable, script, "--serve", home) as process:
        folder = Path(home)
        until((folder / "ready").exists, process)

        def requests() -> dict[str, int]:
            (folder / "sent").unlink(missing_ok=True)
            process.send_signal(signal.SIGUSR1)
            until((folder / "sent").exists, process)
            found: dict[str, int] = json.loads((folder / "sent").read_text())
            return found

        yield Engine(folder / "data" / "kubeconfig", process.pid, requests, counts_all_clients=False)


@dataclass(frozen=True)
class Program:
    """A manager to measure: how it is started, its settings beside the common configuration, its CRDs."""

    command: tuple[str, ...]
    crds: tuple[dict[str, Any], ...]
    configuration: Mapping[str, Any] = field(default_factory=dict)


def ours(*, webhooks: bool) -> Program:
    start = ("-m", "pykueue", "manager") if webhooks else (__file__, "--manage")
    return Program((sys.executable, *start), tuple(schema.crd(row) for row in registry.KUEUE))


def another(command: str, crds: Path) -> Program:
    """It finds certificates where it looks for them, though its webhooks are not called; its CRDs are served without
    conversion, as ours are."""
    found = tuple(yaml.safe_load(path.read_text()) for path in sorted(crds.glob("*.yaml")))
    for tree in found:
        tree["spec"].pop("conversion", None)
    return Program(tuple(shlex.split(command)), found, {"internalCertManagement": {"enable": False}})


@contextlib.contextmanager
def real(cap: int, program: Program) -> Iterator[Engine]:
    import started
    from cluster import real as cluster

    with cluster.started() as server, tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        for tree in program.crds:
            server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", tree)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        server.request("POST", "/api/v1/namespaces", namespace)
        for row in registry.KUEUE:
            while server.request("GET", row.path()).code != 200:
                time.sleep(0.1)
        kept = certificate.renewed(certificate.CertificateBundle(), ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
        for part, file in certificate.NAMES.items():
            (folder / file).write_bytes(getattr(kept, part))
        limit = {"qps": float(cap), "burst": cap} if cap else {"qps": -1.0}
        (folder / "config").write_text(
            json.dumps(
                {
                    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                    "kind": "Configuration",
                    "clientConnection": limit,
                    "leaderElection": {"leaderElect": False},
                    "metrics": {"bindAddress": "0"},
                    "health": {"healthProbeBindAddress": f"127.0.0.1:{started.free_port()}"},
                    "webhook": {"port": started.free_port(), "certDir": str(folder)},
                    **program.configuration,
                }
            )
        )
        arguments = ("--kubeconfig", str(kubeconfig), "--config", str(folder / "config"))
        with process_of(*program.command, *arguments) as process:

            def requests() -> dict[str, int]:
                return _requests_of(server.request("GET", "/metrics").body)

            yield Engine(kubeconfig, process.pid, requests, counts_all_clients=True)


def _requests_of(metrics: str) -> dict[str, int]:
    """What the server counted, watches and refusals included."""
    found: Counter[str] = Counter()
    for line in metrics.splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            verb = "PATCH" if labels["verb"] == "APPLY" else labels["verb"]
            found[f"{verb} {labels['resource']}"] += int(float(line.rsplit(" ", 1)[1]))
    return dict(found)


@contextlib.contextmanager
def process_of(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(arguments, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(true: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("drain: the manager ended or does not answer")
        time.sleep(0.02)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, what: str = "VmRSS") -> float:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


# --- Measuring --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _watching(player: Player, revision: str) -> AsyncIterator[None]:
    task = asyncio.create_task(player.watch(revision))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(engine: Engine, load: Load, limit_seconds: float) -> dict[str, Any]:
    target = client_config.from_files([engine.kubeconfig])
    client = ApiClient(client_config.connect(target, SystemClock(), user_agent="drain"), random.Random(1))
    try:
        for kind, tree in queues():
            await client.create(kind, tree)
        await _until_active(client)
        revision = (await client.list(WORKLOAD, NAMESPACE)).revision
        player = Player(client, load)
        sent_before, cpu_before, memory_before = (
            engine.requests(),
            cpu_seconds(engine.manager),
            memory_mib(engine.manager),
        )
        own_before = dict(client.sent)
        async with _watching(player, revision):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_seconds):
                    await player.create()
                    await player.all_done.wait()
        wall = (player.ended or time.monotonic()) - player.began
        cpu = cpu_seconds(engine.manager) - cpu_before
        sent = Counter(engine.requests())
        sent.subtract(sent_before)
        if engine.counts_all_clients:
            sent.subtract({_named(key): times for key, times in client.sent.items()})
            sent.update({_named(key): times for key, times in own_before.items()})
    finally:
        await client.close()
    return _figures(player, load, engine, wall, cpu, memory_before, sent)


async def _until_active(client: ApiClient) -> None:
    """The manager leads and has seen the queues."""
    last = registry.KUEUE.of(kueue.ClusterQueue)
    async with asyncio.timeout(60):
        while True:
            found = await client.get(last, f"cq-{COHORTS - 1}-{QUEUES - 1}")
            if any(
                each["type"] == "Active" and each["status"] == "True"
                for each in found.get("status", {}).get("conditions", ())
            ):
                return
            await asyncio.sleep(0.1)


def _named(key: tuple[str, str]) -> str:
    return " ".join(key)


def _figures(
    player: Player, load: Load, engine: Engine, wall: float, cpu: float, memory: float, sent: Counter[str]
) -> dict[str, Any]:
    counted = {name: times for name, times in sorted(sent.items()) if times > 0 and name.split()[-1] in COUNTED}
    written = sum(times for name, times in counted.items() if not name.upper().startswith("WATCH"))
    waits = player.mean_seconds_to_admission()
    return {
        "workloads": load.total,
        "finished": len(player.finished),
        "wall_seconds": wall,
        "floor_seconds": load.floor_seconds,
        "wall_to_floor": wall / load.floor_seconds,
        "creating_seconds": (player.last_created or time.monotonic()) - player.began,
        "admissions": player.admissions,
        "evictions": player.evictions,
        "seconds_to_admission": waits,
        "quota_used": player.cpu_seconds / (COHORTS * QUEUES * NOMINAL * wall),
        "requests_per_admission": written / max(1, player.admissions),
        "requests": counted,
        "manager_cpu_seconds": cpu,
        "manager_cpu_ms_per_admission": cpu * 1000 / max(1, player.admissions),
        "manager_memory_mib": memory_mib(engine.manager),
        "manager_memory_growth_kib_per_workload": (memory_mib(engine.manager) - memory) * 1024 / load.total,
        "machine_load": os.getloadavg()[0],
        "left": dict(player.left()),
    }


COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("finished", lambda run: f"{run['finished']}/{run['workloads']}"),
    ("wall s", lambda run: f"{run['wall_seconds']:.1f}"),
    ("x floor", lambda run: f"{run['wall_to_floor']:.2f}"),
    ("small s", lambda run: f"{run['seconds_to_admission']['small']:.2f}"),
    ("medium s", lambda run: f"{run['seconds_to_admission']['medium']:.2f}"),
    ("large s", lambda run: f"{run['seconds_to_admission']['large']:.2f}"),
    ("quota", lambda run: f"{run['quota_used']:.0%}"),
    ("evicted", lambda run: f"{run['evictions']}"),
    ("req/adm", lambda run: f"{run['requests_per_admission']:.2f}"),
    ("cpu ms/adm", lambda run: f"{run['manager_cpu_ms_per_admission']:.2f}"),
    ("MiB", lambda run: f"{run['manager_memory_mib']:.0f}"),
    ("load", lambda run: f"{run['machine_load']:.1f}"),
)


def table(runs: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':18}" + "".join(f"{title:>12}" for title, _ in COLUMNS)]
    for name, run in runs.items():
        lines.append(f"{name:18}" + "".join(f"{show(run):>12}" for _, show in COLUMNS))
        by_verb = ", ".join(
            f"{what} {times / max(1, run['admissions']):.2f}" for what, times in run["requests"].items()
        )
        lines.append(f"{'':18}  requests per admission: {by_verb}")
        if run["left"]:
            lines.append(f"{'':18}  not finished: {run['left']}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="drain", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1, help="1 is 15,000 Workloads")
    parser.add_argument(
        "--on", choices=["embedded", "real", "all"], help="by default all, where the binaries are there"
    )
    parser.add_argument("--caps", default="50,300,0", help="requests a second of the manager on the real server")
    parser.add_argument("--webhooks", action="store_true", help="let the real server ask the manager about every write")
    parser.add_argument("--beside", help="the command of another manager, measured on the real server after ours")
    parser.add_argument("--crds", type=Path, help="the folder with the CRDs of that manager")
    parser.add_argument("--limit", type=float, default=900.0, help="give up a run after so many seconds")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--manage", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.manage:
        manage(options.manage)
        return 0
    if options.serve:
        serve(options.serve)
        return 0
    if options.beside and not options.crds:
        parser.error("--beside needs --crds, the CRDs that manager works with")
    load = Load(options.scale)
    runs: dict[str, dict[str, Any]] = {}
    for name, engine in _engines(options):
        with engine as started:
            runs[name] = _run(measure(started, load, options.limit))
        print(table({name: runs[name]}), flush=True)
    print(f"\n{load.total} Workloads, floor {load.floor_seconds:.1f} s")
    print(table(runs))
    if options.json:
        options.json.write_text(json.dumps(runs, indent=2))
    return 0 if all(run["finished"] == run["workloads"] for run in runs.values()) else 1


def _engines(options: argparse.Namespace) -> Iterator[tuple[str, contextlib.AbstractContextManager[Engine]]]:
    from cluster import assets

    if options.on != "real":
        yield "embedded", embedded()
    if options.on in ("real", "all") or (options.on is None and (assets.folder() / "kube-apiserver").exists()):
        for cap in map(int, options.caps.split(",")):
            limit = f"{cap}/s" if cap else "no cap"
            yield f"real, {limit}", real(cap, ours(webhooks=options.webhooks))
            if options.beside:
                yield f"beside, {limit}", real(cap, another(options.beside, options.crds))


def _run(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    from kubemachinery.process import event_loop

    with event_loop() as runner:
        return runner.run(work)


if __name__ == "__main__":
    sys.exit(main())
