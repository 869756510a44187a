"""How long a viewer of the dashboard waits for an answer, with many queues and Workloads.

    python -m bench dashboard [--queues=1000] [--workloads=50000] [--json=FILE]

Nothing is on a network: the copies are filled from lists in memory, and questions are asked of the handler itself, so
the figures are the processor time of the manager. *first* is asked after a change, when everything is computed
again; *again* is the time of every further request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from kubemachinery.client.client import ApiClient
from kubemachinery.client.delegated_auth import DelegatedAuthorizer
from kubemachinery.client.informer import run_informers
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import SystemClock
from kubemachinery.http_messages import Request, Response
from pykueue import settings
from pykueue.analysis import explanation
from pykueue.controllers.informers import Informers
from pykueue.dashboard.endpoints import DashboardEndpoints
from pykueue.dashboard.summaries import DashboardSources, DashboardSummaries
from pykueue.state.world import World

Tree = dict[str, Any]
COHORTS = 20
RUNNING = 0.2
TIME = "2026-01-01T00:00:00Z"


def things(queues: int, workloads: int) -> dict[str, list[Tree]]:
    """The objects by plural: each queue with its share of the Workloads, a fifth of which run."""
    quota = [{"name": "cpu", "nominalQuota": "10"}, {"name": "memory", "nominalQuota": "64Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quota}]}
    found: dict[str, list[Tree]] = {"resourceflavors": [_named("default")], "namespaces": [_named("lab")]}
    found["clusterqueues"] = [
        _named(
            f"queue-{n:04}",
            spec={"cohortName": f"cohort-{n % COHORTS:02}", "namespaceSelector": {}, "resourceGroups": [group]},
        )
        for n in range(queues)
    ]
    found["localqueues"] = [
        _named(f"queue-{n:04}", "lab", spec={"clusterQueue": f"queue-{n:04}"}) for n in range(queues)
    ]
    found["workloads"] = [_workload(n, f"queue-{n % queues:04}", n < workloads * RUNNING) for n in range(workloads)]
    return found


def _named(name: str, namespace: str = "", **rest: Any) -> Tree:
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "7", "creationTimestamp": TIME, **place}, **rest}


def _workload(number: int, queue: str, runs: bool) -> Tree:
    asks = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": asks}}
    pods = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
    words = (("QuotaReserved", "True"), ("Admitted", "True")) if runs else (("QuotaReserved", "False"),)
    conditions = [
        {"type": type_, "status": status, "reason": "Set", "message": "as it is", "lastTransitionTime": TIME}
        for type_, status in words
    ]
    flavors = {"cpu": "default", "memory": "default"}
    given = {"name": "main", "flavors": flavors, "resourceUsage": asks, "count": 1}
    admission = {"admission": {"clusterQueue": queue, "podSetAssignments": [given]}} if runs else {}
    spec = {"queueName": queue, "podSets": pods, "priority": number % 7, "active": True}
    return _named(f"train-{number:05}", "lab", spec=spec, status={"conditions": conditions, **admission})


class Server:
    """Lists its objects, sends no watch events, and permits everything."""

    def __init__(self, objects: dict[str, list[Tree]]) -> None:
        self._objects = objects

    async def answer(self, request: Request) -> Response:
        if request.method == "POST":
            status = {"authenticated": True, "allowed": True, "user": {"username": "user"}}
            return Response(201, json.dumps({"status": status}).encode())
        if request.first("sendInitialEvents"):
            return Response(400, b'{"kind":"Status","code":400}')
        if request.first("watch"):
            return Response(stream=lambda write: asyncio.sleep(3600))
        items = self._objects.get(request.path.rpartition("/")[2], [])
        return Response(200, msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": items}))


SMALLEST = ("--queues=20", "--workloads=200")
# What a page asks for; `{late}` is a Workload far back in the list.
QUESTIONS = {
    "overview": "overview",
    "queues, fullest first": "queues?sort=used&descending=true",
    "one queue": "queues/queue-0007",
    "workloads, newest first": "workloads?sort=created&descending=true",
    "workloads, by priority": "workloads?sort=priority&descending=true",
    "workloads, a late page": "workloads?sort=name&offset={late}",
    "search, two words": "workloads?q=queue-0007+pending",
    "one workload": "workloads/lab/train-{late:05}",
    "why it waits": "workloads/lab/train-{late:05}/explanation",
    "what would let it in": "workloads/lab/train-{late:05}/explanation?suggestions=true",
}


async def measured(queues: int, workloads: int) -> list[Tree]:
    clock, rng = SystemClock(), random.Random(1)
    objects = things(queues, workloads)
    client = ApiClient(LocalTransport(Server(objects).answer), rng)
    informers, world = Informers(client, rng, topology=False), World()
    for informer in (*informers.scheduling, informers.workloads):
        informer.add_handler(lambda change: world.put(cast(Any, change.new), clock.now()))
    sources = DashboardSources(
        world=world,
        workloads=informers.workloads,
        local_queues=informers.local_queues,
        cluster_queues=informers.cluster_queues,
        flavors=informers.flavors,
        shaping=informers.shaping,
        explain=explanation.explainer(settings.defaults().tree),
    )
    summaries = DashboardSummaries(sources, clock)
    pages = DashboardEndpoints(summaries, DelegatedAuthorizer(client, clock))
    async with run_informers(informers.shaping), run_informers((informers.workloads,)):
        world.settle(clock.now())
        figures = [await _timed("the first look of all", summaries.refresh)]
        for name, path in QUESTIONS.items():
            await _touch(summaries, informers)
            ask = partial(_asked, pages, path.format(late=workloads * 4 // 5))
            first = await _timed(name, ask)
            again = await _timed(name, ask)
            figures.append({**first, "again_ms": again["first_ms"]})
        return figures


async def _touch(summaries: DashboardSummaries, informers: Informers) -> None:
    """A hundred Workloads change, and a second passes."""
    for key, _ in list(informers.workloads.items())[:100]:
        summaries.note(key)
    await asyncio.sleep(1.05)


async def _asked(pages: DashboardEndpoints, path: str) -> int:
    where, _, query = path.partition("?")
    asked = [tuple(each.replace("+", " ").split("=")) for each in query.split("&") if each]
    headers = {"authorization": "Bearer x", "accept-encoding": "gzip"}  # as browsers ask
    request = Request("GET", f"/dashboard/api/{where}", asked, headers)  # type: ignore[arg-type]
    answer = await pages.answer(request)
    assert answer.status == 200, answer.body
    return len(answer.body)


async def _timed(name: str, ask: Callable[[], Awaitable[int | None]]) -> Tree:
    began = time.process_time()
    size = await ask()
    return {"question": name, "first_ms": (time.process_time() - began) * 1000, "bytes": size or 0}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench dashboard")
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--workloads", type=int, default=50_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    figures = asyncio.run(measured(chosen.queues, chosen.workloads))
    print(f"{chosen.queues} queues, {chosen.workloads} Workloads")
    print(f"{'':28}{'first ms':>10}{'again ms':>10}{'bytes':>10}")
    for each in figures:
        again = f"{each['again_ms']:10.1f}" if "again_ms" in each else " " * 10
        print(f"{each['question']:28}{each['first_ms']:10.1f}{again}{each['bytes']:10}")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2))
    return 0
