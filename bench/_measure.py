"""One run of a load on an engine, and its figures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench._engines import COUNTED, Engine, cpu_seconds, memory_mib
from bench._load import CLUSTER_QUEUE, NAMESPACE, WORKLOAD, Load
from bench._player import Player, mean, quantile

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.clock import SystemClock
from kubemachinery.process import event_loop

_READY_SECONDS = 120
SHARED_CLOCK = time.CLOCK_MONOTONIC
# The server is idle if it used at most such a share of a core in each of so many spans of time.
_IDLE_SHARE = 0.2
_IDLE_SECONDS = 0.5
_IDLE_LOOKS = 3


@dataclass(frozen=True)
class _Counters:
    """What processes have used and sent up to a moment."""

    requests: Counter[str]
    own_requests: Counter[str]
    manager_cpu: float
    server_cpu: float
    memory: float
    at: float  # of the clock that all processes of a machine share

    @classmethod
    def read(cls, engine: Engine, client: ApiClient) -> _Counters:
        own = Counter({" ".join(key): times for key, times in client.sent.items()})
        server = sum(cpu_seconds(pid) for pid in engine.server)
        requests = Counter(engine.requests())
        return cls(
            requests,
            own,
            cpu_seconds(engine.manager),
            server,
            memory_mib(engine.manager),
            time.clock_gettime(SHARED_CLOCK),
        )

    def requests_since(self, before: _Counters, *, counts_all_clients: bool) -> dict[str, int]:
        sent = Counter(self.requests)
        sent.subtract(before.requests)
        if counts_all_clients:
            sent.subtract(self.own_requests)
            sent.update(before.own_requests)
        return {name: times for name, times in sorted(sent.items()) if times > 0 and name.split()[-1] in COUNTED}


def run(engine: Engine, load: Load, limit_seconds: float) -> dict[str, Any]:
    """Drain the load on the engine, and return the figures."""
    with event_loop() as runner:
        return runner.run(_measure(engine, load, limit_seconds))


async def _measure(engine: Engine, load: Load, limit_seconds: float) -> dict[str, Any]:
    target = client_config.from_files([engine.kubeconfig])
    client = ApiClient(client_config.connect(target, SystemClock(), user_agent="drain"), random.Random(1))
    try:
        for kind, tree in load.objects():
            await client.create(kind, tree)
            if kind.kind == "Node":  # kube-apiserver creates nodes with a taint, which the node controller removes
                await client.patch(kind, tree["metadata"]["name"], {"spec": {"taints": None}})
        await _until_seen(client, load)
        await _until_idle(engine)
        revision = (await client.list(WORKLOAD, NAMESPACE)).revision
        player = Player(client, load)
        before = _Counters.read(engine, client)
        async with _watching(player, revision):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_seconds):
                    await player.create()
                    if load.is_held:
                        await _until_pending(client, load)
                        await _until_idle(engine)
                        before = _Counters.read(engine, client)
                        await player.release()
                    await player.all_done.wait()
        wall = (player.ended or time.monotonic()) - player.began
        after = _Counters.read(engine, client)
    finally:
        await client.close()
    return _figures(player, engine, wall, before, after)


@contextlib.asynccontextmanager
async def _watching(player: Player, revision: str) -> AsyncIterator[None]:
    task = asyncio.create_task(player.watch(revision))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await player.close()


async def _until_seen(client: ApiClient, load: Load) -> None:
    """Wait until the manager leads and has observed the last ClusterQueue."""
    async with asyncio.timeout(_READY_SECONDS):
        while True:
            status = (await client.get(CLUSTER_QUEUE, load.queue_names()[-1])).get("status", {})
            active = [each["status"] for each in status.get("conditions", ()) if each["type"] == "Active"]
            if active == ["False" if load.is_held else "True"]:
                return
            await asyncio.sleep(0.1)


async def _until_idle(engine: Engine) -> None:
    """Wait until the server has finished what was before: its start, and writes about Workloads that are held.

    A manager that starts sooner would otherwise be measured while the server still describes its CRDs (OpenAPI).
    """
    async with asyncio.timeout(_READY_SECONDS):
        idle_looks, processes = 0, engine.server or (engine.manager,)
        used = sum(map(cpu_seconds, processes))
        while idle_looks < _IDLE_LOOKS:
            await asyncio.sleep(_IDLE_SECONDS)
            before, used = used, sum(map(cpu_seconds, processes))
            idle_looks = idle_looks + 1 if used - before <= _IDLE_SHARE * _IDLE_SECONDS else 0


async def _until_pending(client: ApiClient, load: Load) -> None:
    """Wait until the manager has observed all Workloads of a held load."""
    async with asyncio.timeout(_READY_SECONDS):
        pending = -1
        while pending != load.total:
            found = [await client.get(CLUSTER_QUEUE, queue) for queue in load.queue_names()]
            pending = sum(each.get("status", {}).get("pendingWorkloads", 0) for each in found)
            await asyncio.sleep(0.2)


def _figures(player: Player, engine: Engine, wall: float, before: _Counters, after: _Counters) -> dict[str, Any]:
    load, admissions = player.load, max(1, player.admissions)
    counted = after.requests_since(before, counts_all_clients=engine.counts_all_clients)
    sent = sum(times for name, times in counted.items() if not name.upper().startswith("WATCH"))
    waits = player.seconds_to_admission()
    first = max(load.classes, key=lambda each: (each.wave, each.priority)).name
    cpu, server_cpu = after.manager_cpu - before.manager_cpu, after.server_cpu - before.server_cpu
    return {
        "workloads": load.to_finish,
        "finished": len(player.finished),
        "wall_seconds": wall,
        "floor_seconds": load.floor_seconds,
        "wall_to_floor": wall / load.floor_seconds,
        "creating_seconds": (player.last_created or time.monotonic()) - player.began,
        "admissions": player.admissions,
        "measured_from_to": (before.at, after.at),
        "evictions": player.evictions.total(),
        "evictions_by_reason": dict(player.evictions),
        "lost_cpu_seconds": player.lost_cpu_seconds,
        "seconds_to_admission": {name: mean(values) for name, values in waits.items()},
        "p99_seconds_to_admission": {name: quantile(values, 0.99) for name, values in waits.items()},
        "highest_priority_mean_seconds": mean(waits[first]),
        "highest_priority_p99_seconds": quantile(waits[first], 0.99),
        "quota_used": player.cpu_seconds / (load.quota_cpus * wall),
        "requests_per_admission": sent / admissions,
        "requests": counted,
        "manager_cpu_seconds": cpu,
        "manager_cpu_ms_per_admission": cpu * 1000 / admissions,
        "server_cpu_ms_per_admission": server_cpu * 1000 / admissions,
        "manager_memory_mib": memory_mib(engine.manager),
        "manager_peak_memory_mib": memory_mib(engine.manager, "VmHWM"),
        "manager_memory_growth_kib_per_workload": (after.memory - before.memory) * 1024 / load.total,
        "machine_load": os.getloadavg()[0],
        "waves": [asdict(wave) for wave in player.waves],
        "left": dict(player.left()) if len(player.finished) < load.to_finish else {},
    }


def is_complete(figures: Mapping[str, Any]) -> bool:
    """Whether every Workload that was to finish has finished."""
    return bool(figures["finished"] >= figures["workloads"])
