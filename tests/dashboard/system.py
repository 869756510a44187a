"""A whole system with its dashboard: an API server on a socket, a manager in it, and helpers that create objects."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, Serving, api_server
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.analysis import explanation
from pykueue.api import backfill, config, registry
from pykueue.app import options
from pykueue.app.embedded_manager import embedded_manager
from pykueue.app.server import managed_parts
from pykueue.controllers.assembly import Manager
from waiting import eventually

Tree = dict[str, Any]


class System:
    """The system and an HTTP client of its dashboard."""

    def __init__(self, serving: Serving, manager: Manager, session: aiohttp.ClientSession) -> None:
        self.serving = serving
        self.manager = manager
        self.url = f"{serving.url}/dashboard/"
        self.session = session
        self.client = ApiClient(
            LocalTransport(partial(serving.embedded.server.handle_as, authentication.ADMIN)), random.Random(1)
        )

    @property
    def link(self) -> str:
        """What `pykueue up` prints on a terminal."""
        return f"{self.url}#token={self.serving.credentials.view_token}"

    async def query(self, path: str, *, token: str | None = None, method: str = "GET", **query: str) -> tuple[int, Any]:
        """Status and document of an answer, for the viewer unless another token is given."""
        given = self.serving.credentials.view_token if token is None else token
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        async with self.session.request(method, self.url + path, headers=headers, params=query) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, (await answer.json() if is_json else await answer.text())

    # --- Filling it ---------------------------------------------------------------------------------------------------

    async def create(self, kind: str, name: str, spec: Tree, **metadata: Any) -> Tree:
        row = registry.ALL.named(kind)
        assert row is not None
        place = {"namespace": "default"} if row.namespaced else {}
        head = {"apiVersion": row.api_version, "kind": row.kind, "metadata": {"name": name, **place, **metadata}}
        return await self.client.create(row, {**head, "spec": spec})

    async def flavor(self, name: str) -> None:
        await self.create("ResourceFlavor", name, {})

    async def queue(
        self,
        name: str,
        cohort: str = "",
        flavor: str = "default",
        checks: Sequence[str] = (),
        backfill_mode: str = "",
        strategy: str = "BestEffortFIFO",
        **quota: str,
    ) -> None:
        """A ClusterQueue, and a LocalQueue of the same name that leads to it."""
        resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
        group = {"coveredResources": list(quota), "flavors": [{"name": flavor, "resources": resources}]}
        spec: Tree = {"namespaceSelector": {}, "queueingStrategy": strategy, "resourceGroups": [group]}
        if checks:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
        spec |= {"cohortName": cohort} if cohort else {}
        await self.create(
            "ClusterQueue", name, spec, annotations={backfill.MODE: backfill_mode} if backfill_mode else {}
        )
        await self.create("LocalQueue", name, {"clusterQueue": name})

    async def workload(
        self, name: str, queue: str, requests: Mapping[str, str], *, limit_seconds: int | None = None, **metadata: Any
    ) -> None:
        container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": dict(requests)}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pods = [{"name": "main", "count": 1, "template": template}]
        limit = {} if limit_seconds is None else {"maximumExecutionTimeSeconds": limit_seconds}
        await self.create("Workload", name, {"queueName": queue, "podSets": pods, **limit}, **metadata)

    async def finish(self, workload: str, message: str) -> None:
        """Finish a Workload, as a controller does that may write its status."""
        row = registry.ALL.named("Workload")
        assert row is not None
        over = {"type": "Finished", "status": "True", "reason": "Ended", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        await self.client.patch(row, workload, {"status": {"conditions": [over]}}, "default", subresource="status")

    async def until(self, holds: Callable[[Any], bool], path: str, **query: str) -> Any:
        """Ask until the answer is as it should be."""

        async def answered() -> tuple[Any] | None:
            status, found = await self.query(path, **query)
            return (found,) if status == 200 and holds(found) else None

        answer = await eventually(answered, 0.1)
        assert answer is not None
        return answer[0]


@asynccontextmanager
async def running(data_dir: Path, **gates: bool) -> AsyncIterator[System]:
    chosen = settings.defaults()
    if gates:
        chosen = settings.load({"apiVersion": config.V1BETA2, "kind": config.KIND, "featureGates": gates}, "test")
    place = ServerSettings(data_dir=data_dir, durability=Durability.MEMORY)
    async with (
        api_server(place, managed_parts(chosen)) as serving,
        embedded_manager(
            serving.embedded,
            chosen,
            explain=explanation.explainer(chosen.tree),
            history=options.history_options(chosen, None),
        ) as manager,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        yield System(serving, manager, session)


async def research(system: System) -> None:
    """A small department: two cohorts in one, one of them borrowing, pending Workloads, and a queue without a
    cohort."""
    for flavor in ("default", "a100"):
        await system.flavor(flavor)
    await system.create("Cohort", "research", {})
    for cohort in ("vision", "language"):
        await system.create("Cohort", cohort, {"parentName": "research"})
    await system.queue("images", "vision", cpu="40", memory="128Gi")
    await system.queue("video", "vision", flavor="a100", **{"cpu": "16", "nvidia.com/gpu": "8"})
    await system.queue("translation", "language", cpu="20", memory="64Gi")
    await system.queue("speech", "language", cpu="20", memory="64Gi")
    await system.queue("teaching", cpu="8", memory="32Gi")
    wanted = [
        *(("resnet", "images", {"cpu": "8", "memory": "24Gi"}, n) for n in range(3)),
        *(("segment", "video", {"cpu": "2", "nvidia.com/gpu": "2"}, n) for n in range(6)),
        *(("translate", "translation", {"cpu": "9", "memory": "16Gi"}, n) for n in range(3)),
        *(("course", "teaching", {"cpu": "3", "memory": "4Gi"}, n) for n in range(4)),
    ]
    for name, queue, requests, number in wanted:
        await system.workload(f"{name}-{number + 1}", queue, requests)
    await system.until(lambda found: found["totals"] == TOTALS, "api/overview")
    # Wait for its message: the page of this Workload would reload its explanation when the message appears.
    await system.until(lambda found: found["message"], "api/workloads/default/segment-5")


async def rendering(system: System) -> None:
    """A full queue of Workloads with limits: `film` runs for at most an hour, and `trailer` waits for its end."""
    await system.flavor("default")
    await system.queue("rendering", cpu="4", strategy="StrictFIFO", backfill_mode="EASY")
    await system.workload("film", "rendering", {"cpu": "4"}, limit_seconds=3600)
    await system.until(lambda found: found["state"] == "Admitted", "api/workloads/default/film")
    await system.workload("trailer", "rendering", {"cpu": "2"}, limit_seconds=600)
    await system.until(lambda found: found["message"], "api/workloads/default/trailer")


TOTALS = {"Pending": 4, "QuotaReserved": 0, "Admitted": 12, "Evicted": 0, "Inactive": 0, "Finished": 0}
