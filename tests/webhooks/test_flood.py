"""Hostile reviews against `pykueue manager` in a process of its own: it leads on, and answers others meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from kubemachinery.client.client import ApiClient
from kubemachinery.client.leader_election import LEASES
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.unstructured import Tree
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.app.server import kueue_parts
from pykueue.webhooks import registration
from waiting import eventually
from webhooks import flood
from webhooks.conftest import admission_review, cluster_queue, kind

HERE = Path(__file__).parent
RENEW_SECONDS = 5.0
PROBES = 15


@dataclass
class Managed:
    """A manager that leads, and where its webhooks are."""

    client: ApiClient
    process: asyncio.subprocess.Process
    port: int

    async def lease(self) -> Tree:
        spec: Tree = (await self.client.get(LEASES, "c1f6bfd2.kueue.x-k8s.io", "kueue-system"))["spec"]
        return spec

    async def latency_seconds(self, session: aiohttp.ClientSession) -> float:
        """How long an ordinary review takes, as another client sees it."""
        began = time.monotonic()
        url = f"https://127.0.0.1:{self.port}/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"
        async with session.post(url, json=admission_review(cluster_queue()), ssl=False) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["response"]["allowed"] is True
        return time.monotonic() - began


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncIterator[Managed]:
    chosen = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "leaderElection": {
            "leaderElect": True,
            "leaseDuration": f"{RENEW_SECONDS * 2:g}s",
            "renewDeadline": f"{RENEW_SECONDS:g}s",
            "retryPeriod": "500ms",
        },
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps(chosen))
    server = ServerSettings(data_dir=tmp_path / "data", durability=Durability.MEMORY)
    async with api_server(server, kueue_parts()) as serving:
        client = ApiClient(
            LocalTransport(partial(serving.embedded.server.handle_as, authentication.ADMIN)), random.Random(1)
        )
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        await client.create(kind("Namespace"), home)
        log = (tmp_path / "log").open("wb")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pykueue", "manager"),
            *("--kubeconfig", str(serving.kubeconfig), "--config", str(config)),
            stderr=log,
            env=os.environ,
        )
        try:
            port = await eventually(lambda: registration.registered_port(client, "127.0.0.1"), 0.1)
            yield Managed(client, process, port)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            log.close()


@contextlib.asynccontextmanager
async def attacked(port: int, sort: str) -> AsyncIterator[dict[str, int]]:
    """Hostile requests while inside; how they were answered, afterwards."""
    attacker = await asyncio.create_subprocess_exec(
        *(sys.executable, flood.__file__, str(port), sort),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    answered: dict[str, int] = {}
    try:
        await attacker.stdout.readline()
        yield answered
        attacker.stdin.close()
        answered |= json.loads(await attacker.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            attacker.kill()
        await attacker.wait()


async def waiting_under_attack(managed: Managed, sort: str) -> tuple[float, float]:
    """The seconds that a client of the webhooks waits during an attack, and the most that it may."""
    before = await managed.lease()
    async with aiohttp.ClientSession() as session:
        unloaded = [await managed.latency_seconds(session) for _ in range(PROBES)]
        loaded: list[float] = []
        began = time.monotonic()
        async with attacked(managed.port, sort) as answered:
            # For twice as long as a leader may be without a renewal.
            while time.monotonic() - began < 2 * RENEW_SECONDS or len(loaded) < PROBES:
                loaded.append(await managed.latency_seconds(session))
                await asyncio.sleep(0.1)
    after = await managed.lease()
    assert managed.process.returncode is None
    assert (after["holderIdentity"], after["leaseTransitions"]) == (
        before["holderIdentity"],
        before["leaseTransitions"],
    )
    assert after["renewTime"] > before["renewTime"]
    assert sum(answered.values()) >= flood.CONNECTIONS, "the flood was too small to prove anything"
    # What a client has to expect that comes at any moment: one that comes during a long wait is likelier than the others.
    return sum(each * each for each in loaded) / sum(loaded), max(1.0, 10 * max(unloaded))


@pytest.mark.parametrize("sort", flood.SORTS)
async def test_manager_keeps_its_lease_and_answers_others_under_hostile_reviews(managed: Managed, sort: str) -> None:
    """Other work of the machine only makes clients wait longer, so that the best of three attacks counts."""
    waited = []
    for _ in range(3):
        expected, allowed = await waiting_under_attack(managed, sort)
        waited.append(expected)
        if expected <= allowed:
            return
    pytest.fail(f"clients waited {waited} s on average")
