"""Jobs and JobSets of the same pods, admitted and started: what a larger kind costs the manager.

    python -m bench kinds [--count=500] [--rounds=2] [--on=embedded|real|all] [--json=FILE]

A Job has four pods of one template; a JobSet has four replicated jobs of one pod each, so that its Workload has four
pod sets. Both request the same, there is quota for all, and no operator runs: a job counts once the manager has resumed
it. The two kinds take turns on one server, in rounds, because a machine changes while it measures. `embedded` is the
server of `pykueue up` with the manager inside, whose processor time includes that of the server; `real` is a
kube-apiserver and etcd with `pykueue manager` beside it, without webhooks: the jobs are created suspended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

import msgspec
import yaml
from bench import _engines
from bench._engines import Engine, Program

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import AlreadyExists, KubeError, NoSuchKind
from kubemachinery.clock import SystemClock
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.process import event_loop
from pykueue.api import kueue, registry
from pykueue.jobs import kinds

NAMESPACE = "kinds"
PODS = 4
SMALLEST = ("--count=4", "--rounds=1", "--limit=240")
FRAMEWORKS = {"Job": "batch/job", "JobSet": "jobset.x-k8s.io/jobset"}
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": list(FRAMEWORKS.values())},
}
# Writes and Events of the manager; requests of the server itself do not count.
COUNTED = (*_engines.COUNTED, "jobs", "jobsets")
CREATING_AT_ONCE = 16
CRDS = Kind(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    (Version("v1", storage=True),),
    scope=Scope.CLUSTER,
)


def job_set_crd() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_engines.ROOT / "examples" / "jobset" / "crd.yaml").read_text())
    return found


def kind_of(name: str) -> Kind:
    row = kinds.JobKinds(kinds.BUILT_IN).framework(FRAMEWORKS[name])
    assert row is not None
    return row.kind


# --- The jobs ---------------------------------------------------------------------------------------------------------


def pod_template() -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def spec_of(kind: str) -> dict[str, Any]:
    if kind == "Job":
        return {"suspend": True, "parallelism": PODS, "completions": PODS, "template": pod_template()}
    one = {"spec": {"parallelism": 1, "completions": 1, "template": pod_template()}}
    jobs = [{"name": f"part-{number}", "replicas": 1, "template": one} for number in range(PODS)]
    return {"suspend": True, "replicatedJobs": jobs}


def job(kind: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "all"}}
    return {"apiVersion": kind_of(kind).api_version, "kind": kind, "metadata": metadata, "spec": spec_of(kind)}


def queues() -> Iterator[tuple[Kind, dict[str, Any]]]:
    """A queue with quota for every job."""
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1000000"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    for kind, name, spec in (
        ("Namespace", NAMESPACE, {}),
        ("ResourceFlavor", "default", {"nodeLabels": {"pool": "default"}}),
        ("ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": groups}),
        ("LocalQueue", "all", {"clusterQueue": "all"}),
    ):
        row = next(each for each in registry.ALL if each.kind == kind)
        metadata = {"name": name} | ({"namespace": NAMESPACE} if row.namespaced else {})
        yield row, {"apiVersion": row.api_version, "kind": kind, "metadata": metadata, "spec": spec}


# --- Measuring --------------------------------------------------------------------------------------------------------


class _Spec(msgspec.Struct, frozen=True):
    suspend: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    object: _Object = _Object()


@dataclass
class Cost:
    """What the jobs of one kind have cost the manager."""

    started: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        counted = {name: times for name, times in sorted(self.requests.items()) if times > 0}
        return {
            "started": self.started,
            "wall_seconds": self.wall_seconds,
            "requests_per_admission": sum(counted.values()) / max(1, self.started),
            "cpu_ms_per_admission": self.cpu_seconds * 1000 / max(1, self.started),
            "requests": counted,
        }


async def measure(engine: Engine, count: int, rounds: int, limit_seconds: float) -> dict[str, Any]:
    target = client_config.from_files([engine.kubeconfig])
    client = ApiClient(client_config.connect(target, SystemClock(), user_agent="kinds"), random.Random(1))
    costs = {kind: Cost() for kind in FRAMEWORKS}
    try:
        await _prepare(client)
        async with asyncio.timeout(limit_seconds):
            for kind in FRAMEWORKS:  # the first jobs of a kind also load code and fill caches
                await _round(client, engine, kind, "warm", 2, Cost())
            for number in range(rounds):
                for kind, cost in costs.items():
                    await _round(client, engine, kind, f"r{number}", count // rounds, cost)
    finally:
        await client.close()
    found: dict[str, Any] = {kind: cost.figures() for kind, cost in costs.items()}
    found["ratio"] = {
        key: found["JobSet"][key] / found["Job"][key] if found["Job"][key] else 0.0
        for key in ("requests_per_admission", "cpu_ms_per_admission")
    }
    return found | {"machine_load": os.getloadavg()[0]}


async def _prepare(client: ApiClient) -> None:
    with contextlib.suppress(AlreadyExists):  # the real server has it
        await client.create(CRDS, job_set_crd())
    for kind, tree in queues():
        await client.create(kind, tree)
    active = registry.KUEUE.of(kueue.ClusterQueue)
    async with asyncio.timeout(60):
        while True:
            if _is_active(await client.get(active, "all")) and await _is_served(client):
                return
            await asyncio.sleep(0.1)


def _is_active(queue: dict[str, Any]) -> bool:
    conditions = queue.get("status", {}).get("conditions", ())
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


async def _is_served(client: ApiClient) -> bool:
    try:
        await client.list(kind_of("JobSet"), NAMESPACE)
    except NoSuchKind:
        return False
    return True


async def _round(client: ApiClient, engine: Engine, kind: str, prefix: str, count: int, cost: Cost) -> None:
    """Create jobs of one kind and wait until the manager has resumed all of them."""
    row = kind_of(kind)
    names = {f"{prefix}-{number:04}" for number in range(count)}
    revision = (await client.list(row, NAMESPACE)).revision
    sent, own, cpu = Counter(engine.requests()), Counter(client.sent), _engines.cpu_seconds(engine.manager)
    began = time.monotonic()
    waiting = asyncio.create_task(_until_started(client, row, revision, set(names)))
    places = asyncio.Semaphore(CREATING_AT_ONCE)

    async def create(name: str) -> None:
        async with places:
            await client.create(row, job(kind, name))

    async with asyncio.TaskGroup() as group:
        for name in sorted(names):
            group.create_task(create(name))
    await waiting
    cost.wall_seconds += time.monotonic() - began
    cost.cpu_seconds += _engines.cpu_seconds(engine.manager) - cpu
    cost.started += count
    now = Counter(engine.requests())
    now.subtract(sent)
    if engine.counts_all_clients:
        mine = Counter(client.sent)
        mine.subtract(own)
        now.subtract({" ".join(key): times for key, times in mine.items()})
    cost.requests.update({name: times for name, times in now.items() if _counts(name)})


def _counts(request: str) -> bool:
    verb, _, resource = request.partition(" ")
    return not verb.upper().startswith("WATCH") and resource in COUNTED


async def _until_started(client: ApiClient, row: Kind, revision: str, names: set[str]) -> None:
    read = msgspec.json.Decoder(_Line).decode
    while names:
        with contextlib.suppress(KubeError):
            async with client.watch(row, NAMESPACE, revision=revision) as lines:
                async for line in lines:
                    event = read(line)
                    revision = event.object.metadata.resource_version or revision
                    if event.type == "MODIFIED" and not event.object.spec.suspend:
                        names.discard(event.object.metadata.name)
                    if not names:
                        return


# --- Output -----------------------------------------------------------------------------------------------------------


def table(runs: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':12}{'kind':>8}{'started':>10}{'req/adm':>10}{'cpu ms/adm':>12}{'wall s':>9}"]
    for name, run in runs.items():
        for kind in FRAMEWORKS:
            found = run[kind]
            figures = f"{found['requests_per_admission']:>10.2f}{found['cpu_ms_per_admission']:>12.2f}"
            lines.append(f"{name:12}{kind:>8}{found['started']:>10}{figures}{found['wall_seconds']:>9.1f}")
            by_verb = ", ".join(f"{what} {times / found['started']:.2f}" for what, times in found["requests"].items())
            lines.append(f"{'':12}  {by_verb}")
        ratio = run["ratio"]
        requests, cpu = ratio["requests_per_admission"], ratio["cpu_ms_per_admission"]
        lines.append(f"{'':12}JobSet : Job  requests {requests:.2f}, processor time {cpu:.2f}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kinds", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="jobs of each kind")
    parser.add_argument("--rounds", type=int, default=2, help="in how many turns they are created")
    parser.add_argument("--on", choices=["embedded", "real", "all"], default="embedded")
    parser.add_argument("--limit", type=float, default=900.0, help="give up a run after so many seconds")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    runs: dict[str, dict[str, Any]] = {}
    for name, engine in _chosen_engines(options.on):
        with engine as started, event_loop() as runner:
            runs[name] = runner.run(measure(started, options.count, options.rounds, options.limit))
        print(table({name: runs[name]}), flush=True)
    if options.json:
        options.json.write_text(json.dumps(runs, indent=2))
    return 0


def _chosen_engines(on: str) -> Iterator[tuple[str, contextlib.AbstractContextManager[Engine]]]:
    if on != "real":
        yield "embedded", _engines.embedded(CONFIGURATION)
    if on != "embedded":
        ours = _engines.ours(webhooks=False)
        crds = (*ours.crds, job_set_crd())
        yield "real", _engines.real(0, Program(ours.command, crds, {"integrations": CONFIGURATION["integrations"]}))


if __name__ == "__main__":
    sys.exit(main())
