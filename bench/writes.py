"""What a write costs the API server, by its form: the status of an admission as merge patch, JSON patch, PUT or apply.

    python -m bench writes [--writes=80] [--rounds=5] [--limit=900] [--json=FILE]

A kube-apiserver and etcd with the Workload CRD and no manager. In each round every form gets new Workloads, and writes
the same status to each of them: an admission and the conditions QuotaReserved and Admitted.
The figures are processor milliseconds of kube-apiserver and of etcd for one write, and the ratio to the form of the
manager in the same round; the table has medians, and the smallest and largest ratio. Each round starts with another
form. Round 0 warms the server up and is not counted. Where watches are open, the events that they receive are part of
the cost. Reads and creations are not.

A garbage collection of kube-apiserver takes as long as many writes, so that a figure with collections would depend on
how many the form met. The server of this measurement collects only between the forms. What collections cost grows with
the memory that is allocated, which is a figure of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(2, str(Path(__file__).resolve().parents[1]))

import msgspec
from bench import apiserver
from bench._engines import cpu_seconds

from kubemachinery.client import client_config
from kubemachinery.client.client import APPLY, JSON, JSON_PATCH, MERGE, METADATA, ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.clock import SystemClock
from kubemachinery.process import event_loop
from pykueue.api import kueue, registry, schema

SMALLEST = ("--writes=4", "--rounds=1", "--limit=120")
NAMESPACE = apiserver.NAMESPACE
WORKLOAD = registry.KUEUE.of(kueue.Workload)
_MANAGER = "pykueue"
_AT_ONCE = 8  # requests in progress
# The server collects garbage when it is asked to, or when it would need more memory than this.
_NO_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": "6GiB"}
_COLLECT = ApiRequest("GET", "/debug/pprof/heap", (("gc", "1"),), accept="*/*", timeout_seconds=120.0)
_METRICS = ApiRequest("GET", "/metrics", accept="*/*", timeout_seconds=120.0)
_ALLOCATED = "go_memstats_alloc_bytes_total"
# A write whose condition is the version that was read is refused after any other write.
_IF_UNCHANGED, _ALWAYS = "resourceVersion", ""

Tree = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A Workload that a status is written to."""

    name: str
    revision: str
    tree: Tree  # as the server returned it


# --- Forms ------------------------------------------------------------------------------------------------------------


def status() -> Tree:
    """The status that an admission writes."""
    assignment = {
        "name": "main",
        "flavors": {"cpu": "default", "memory": "default"},
        "resourceUsage": {"cpu": "3", "memory": "600Mi"},
        "count": 3,
    }
    reserved = ("QuotaReserved", "Quota reserved in ClusterQueue queue"), ("Admitted", "The Workload is admitted")
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": type_,
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
        for type_, message in reserved
    ]
    return {"admission": {"clusterQueue": "queue", "podSetAssignments": [assignment]}, "conditions": conditions}


def _merge(target: Target, condition: str) -> tuple[str, str, Any]:
    metadata = {"metadata": {"resourceVersion": target.revision}} if condition else {}
    return "PATCH", MERGE, {**metadata, "status": status()}


def _json_patch(target: Target, condition: str) -> tuple[str, str, Any]:
    replaced = [{"op": "replace", "path": "/metadata/resourceVersion", "value": target.revision}] if condition else []
    return "PATCH", JSON_PATCH, [*replaced, {"op": "add", "path": "/status", "value": status()}]


def _put(target: Target, condition: str) -> tuple[str, str, Any]:
    assert condition, "a PUT without resourceVersion is refused"
    return "PUT", JSON, {**target.tree, "status": status()}


def _apply(target: Target, condition: str) -> tuple[str, str, Any]:
    metadata = {"name": target.name, "namespace": NAMESPACE}
    metadata |= {"resourceVersion": target.revision} if condition else {}
    identity = {"apiVersion": WORKLOAD.api_version, "kind": WORKLOAD.kind}
    return "PATCH", APPLY, {**identity, "metadata": metadata, "status": status()}


def _reset(target: Target, condition: str) -> tuple[str, str, Any]:
    """Removes managedFields: the write that has to come before those without."""
    return "PATCH", MERGE, {"metadata": {"managedFields": [{}], "resourceVersion": target.revision}}


@dataclass(frozen=True)
class Form:
    """One way to write the status, and what else is open or different meanwhile."""

    title: str
    write: Callable[[Target, str], tuple[str, str, Any]]
    condition: str = _IF_UNCHANGED
    accept: str = METADATA
    query: tuple[tuple[str, str], ...] = ()
    subresource: str = "status"
    watches: int = 0
    has_managed_fields: bool = True
    variables: int = 12  # environment variables of the container: the size of the Workload

    def request(self, target: Target) -> ApiRequest:
        method, content_type, body = self.write(target, self.condition)
        path = WORKLOAD.path(NAMESPACE, target.name, self.subresource)
        query = (("fieldManager", _MANAGER), *self.query)
        return ApiRequest(method, path, query, msgspec.json.encode(body), content_type, self.accept)


OURS = "merge patch"
FORMS = (
    Form(OURS, _merge),
    Form("merge patch, unconditional", _merge, _ALWAYS),
    Form("merge patch, whole object in the answer", _merge, accept=JSON),
    Form("merge patch, fieldValidation=Ignore", _merge, query=(("fieldValidation", "Ignore"),)),
    Form("merge patch, no managedFields", _merge, has_managed_fields=False),
    Form("managedFields removed, no status", _reset, subresource=""),
    Form("JSON patch", _json_patch),
    Form("JSON patch, unconditional", _json_patch, _ALWAYS),
    Form("PUT", _put),
    Form("PUT, whole object in the answer", _put, accept=JSON),
    Form("server-side apply", _apply),
    Form("server-side apply, unconditional", _apply, _ALWAYS),
    Form("merge patch, again, for comparison", _merge),
    Form("merge patch, 4 watches", _merge, watches=4),
    Form("merge patch, 4 watches, no managedFields", _merge, watches=4, has_managed_fields=False),
    Form("PUT, 4 watches", _put, watches=4),
    Form("server-side apply, 4 watches", _apply, watches=4),
    Form("merge patch, Workload without environment", _merge, variables=0),
    Form("merge patch, Workload with 40 variables", _merge, variables=40),
)


# --- Measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Processor milliseconds for one write, and KiB of memory that kube-apiserver allocates."""

    server: float
    etcd: float
    allocated: float

    @property
    def total(self) -> float:
        return self.server + self.etcd


Costs = dict[str, list[Cost]]  # by form, a row for each round


def workload(name: str, form: Form) -> Tree:
    tree = apiserver.workload(name)
    tree["metadata"]["namespace"] = NAMESPACE
    (pod_set,) = tree["spec"]["podSets"]
    (container,) = pod_set["template"]["spec"]["containers"]
    container["env"] = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(form.variables)]
    return tree


async def _each(items: Iterable[Any], act: Callable[[Any], Any]) -> list[Any]:
    """The results of the action for each, with a few in progress at a time."""
    found: list[Any] = []
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            found.append(await act(item))

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())
    return found


async def targets(client: ApiClient, form: Form, number: int, count: int) -> list[Target]:
    """New Workloads for one form."""

    async def create(index: int) -> Target:
        tree = await client.create(WORKLOAD, workload(f"w-{number:02}-{index:04}", form))
        if not form.has_managed_fields:
            reset: Tree = {"metadata": {"managedFields": [{}]}}
            tree = await client.patch(WORKLOAD, tree["metadata"]["name"], reset, NAMESPACE)
            assert "managedFields" not in tree["metadata"], "managedFields are not reset"
        return Target(tree["metadata"]["name"], tree["metadata"]["resourceVersion"], tree)

    created: list[Target] = await _each(range(count), create)
    return created


@contextlib.asynccontextmanager
async def watching(client: ApiClient, count: int, events: int) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Watches of all Workloads, as tasks that end when they have received so many events."""
    page = await client.request(ApiRequest("GET", WORKLOAD.path(NAMESPACE), (("limit", "1"),)))
    revision = msgspec.json.decode(page.body)["metadata"]["resourceVersion"]
    are_open = [asyncio.Event() for _ in range(count)]

    async def watch(is_open: asyncio.Event) -> None:
        received = 0
        async with client.watch(WORKLOAD, NAMESPACE, revision=revision) as lines:
            is_open.set()
            async for line in lines:
                received += line.startswith(b'{"type":"MODIFIED"')
                if received == events:
                    return

    tasks = [asyncio.create_task(watch(is_open)) for is_open in are_open]
    try:
        for is_open in are_open:
            await is_open.wait()
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def cost(client: ApiClient, pids: Mapping[str, int], form: Form, to: list[Target]) -> Cost:
    """Write the status to each, and return what that has cost."""

    async def write(target: Target) -> None:
        answer = msgspec.json.decode((await client.request(form.request(target))).body)
        assert answer["metadata"]["resourceVersion"] != target.revision, "nothing was written"

    await client.request(_COLLECT)
    async with watching(client, form.watches, len(to)) as watches:
        # Reading allocates, too.
        reading = -await _allocated_kib(client) + await _allocated_kib(client)
        allocated = await _allocated_kib(client)
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        await _each(to, write)
        await asyncio.gather(*watches)
        took = {name: (cpu_seconds(pid) - before[name]) * 1e3 / len(to) for name, pid in pids.items()}
        allocated = await _allocated_kib(client) - allocated - reading
    return Cost(took["kube-apiserver"], took["etcd"], allocated / len(to))


async def _allocated_kib(client: ApiClient) -> float:
    """What kube-apiserver has allocated since its start."""
    lines = (await client.request(_METRICS)).body.decode().splitlines()
    (value,) = (line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"{_ALLOCATED} "))
    return float(value) / 1024


async def measure(kubeconfig: Path, pids: Mapping[str, int], options: argparse.Namespace) -> Costs:
    """The costs of the rounds that ended within the limit."""
    target = client_config.from_files([kubeconfig])
    client = ApiClient(client_config.connect(target, SystemClock(), user_agent="writes"), random.Random(1))
    costs: Costs = {form.title: [] for form in FORMS}
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.limit):
                for number in range(options.rounds + 1):
                    found = await _round(client, pids, number, options.writes if number else 1)
                    for title, value in found.items() if number else ():
                        costs[title].append(value)
                    if number:
                        print(f"  round {number}: {found[OURS].total:.2f} ms for one write of the manager", flush=True)
    finally:
        await client.close()
    return costs


async def _round(client: ApiClient, pids: Mapping[str, int], number: int, count: int) -> dict[str, Cost]:
    created = {form.title: await targets(client, form, index, count) for index, form in enumerate(FORMS)}
    first = number * 5 % len(FORMS)
    found = {form.title: await cost(client, pids, form, created[form.title]) for form in FORMS[first:] + FORMS[:first]}
    await client.request(ApiRequest("DELETE", WORKLOAD.path(NAMESPACE), timeout_seconds=120.0))
    return found


# --- Figures ----------------------------------------------------------------------------------------------------------


def figures(costs: Costs) -> dict[str, dict[str, float]]:
    """Of each form the medians, and its ratio to the form of the manager: the median and both ends."""
    found: dict[str, dict[str, float]] = {}
    for title, rows in costs.items():
        pairs = zip(rows, costs[OURS], strict=True)
        # A small run may take less than the clock of a process can show.
        ratios = sorted(mine.total / ours.total for mine, ours in pairs if ours.total > 0) or [0.0]
        kib = median(row.allocated for row in rows)
        found[title] = {
            "kube-apiserver ms": median(row.server for row in rows),
            "etcd ms": median(row.etcd for row in rows),
            "KiB allocated": kib,
            "ratio of KiB": kib / median(row.allocated for row in costs[OURS]),
            "ratio": median(ratios),
            "smallest ratio": ratios[0],
            "largest ratio": ratios[-1],
        }
    return found


def table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    columns = ("form", "kube-apiserver ms", "etcd ms", "ratio (smallest to largest)", "KiB allocated", "ratio")
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for title, row in found.items():
        ratio = f"{row['ratio']:.2f} ({row['smallest ratio']:.2f} to {row['largest ratio']:.2f})"
        kib = f"{row['KiB allocated']:.0f} | {row['ratio of KiB']:.2f}"
        lines.append(f"| {title} | {row['kube-apiserver ms']:.2f} | {row['etcd ms']:.2f} | {ratio} | {kib} |")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="writes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--writes", type=int, default=80, help="of each form in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=900.0, help="start no write after so many seconds")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    from cluster import real

    with real.started(environment=_NO_COLLECTION) as server, tempfile.TemporaryDirectory() as home:
        server.install(schema.crd(WORKLOAD))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        server.request("POST", "/api/v1/namespaces", namespace)
        kubeconfig = Path(home) / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig())
        with event_loop() as runner:
            costs = runner.run(measure(kubeconfig, server.process_ids, options))
    rounds = len(costs[OURS])
    if not rounds:
        print(f"bench: no round ended within {options.limit:.0f} s", file=sys.stderr)
        return 1
    found = figures(costs)
    print(f"{options.writes} writes of each form in each of {rounds} rounds; load average {os.getloadavg()[0]:.1f}\n")
    print("\n".join(table(found)))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
