"""Quota holds in every revision that a real API server ever stored, though answers are lost and managers are killed.

The story: sixty CPUs in three ClusterQueues that lend to each other, and more Workloads than fit. Somebody who shares no
code with the manager watches every revision and adds up the reservations. The same somebody plays the jobs: what is
admitted runs for a moment and is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cluster import faulty_proxy, real
from pykueue.api import registry, schema

# Not part of `make test-cluster` yet: how fast Workloads come decides whether they compete, so a story can prove nothing.
pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.timeout(150)]

ROOT = Path(__file__).resolve().parents[2]
QUEUES, CPUS_EACH = 3, 20
CPUS = QUEUES * CPUS_EACH
WORKLOADS = 60
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def server() -> Iterator[real.Client]:
    with real.started() as started:
        for row in registry.KUEUE:
            crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            assert started.request("POST", crds, schema.crd(row)).code == 201
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        assert started.request("POST", "/api/v1/namespaces", home).code == 201
        # A kind that was made a moment ago may not be served yet; the test's time limit bounds this.
        while any(started.request("GET", row.path()).code != 200 for row in registry.KUEUE):
            time.sleep(0.1)
        yield started


@dataclass
class Story:
    """One namespace, its queues and its Workloads, and what was seen of them."""

    server: real.Client
    session: aiohttp.ClientSession
    namespace: str
    cpu: dict[str, int] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)  # these are never finished
    reserved: dict[str, int] = field(default_factory=dict)
    most: int = 0
    revisions: int = 0
    overruns: list[str] = field(default_factory=list)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)  # how often each was seen to become admitted
    watching: asyncio.Task[None] | None = None
    _acting: set[asyncio.Task[None]] = field(default_factory=set)

    # --- Making -------------------------------------------------------------------------------------------------------

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers={"Content-Type": kind}) as answer:
            return answer.status, await answer.json()

    async def create(self, path: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        version = KUEUE.removeprefix("/apis/") if path.startswith(KUEUE) else "v1"
        thing = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        async with asyncio.timeout(60):
            # While no manager lives, its webhooks answer nobody, and a kind that was just changed asks to come back.
            while (answer := await self.send("POST", path, thing))[0] in (429, 500):
                await asyncio.sleep(0.1)
        assert answer[0] == 201, answer

    async def forget_webhooks(self) -> None:
        """Whoever managed this server before is gone; what leads to them goes, too."""
        for phase in ("mutating", "validating"):
            kind = f"/apis/admissionregistration.k8s.io/v1/{phase}webhookconfigurations"
            await self.send("DELETE", f"{kind}/kueue-{phase}-webhook-configuration")

    async def begin(self, *, managed: bool = True) -> None:
        """Make the queues, and watch from before the first Workload on.

        A manager that starts tells the server who converts our kinds, which sets their storage up anew and ends every
        watch. So the story starts when the manager's webhooks are known, which it says last of all.
        """
        known = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kueue-validating-webhook-configuration"
        async with asyncio.timeout(60):
            while managed and (await self.send("GET", known))[0] != 200:
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0 if managed else 0.0)
            self.watching = asyncio.create_task(self.watch(await self.prepare()))

    async def prepare(self) -> str:
        """The queues, and the revision before the first Workload."""
        await self.create("/api/v1/namespaces", "Namespace", self.namespace, {})
        await self.create(f"{KUEUE}/resourceflavors", "ResourceFlavor", self.namespace, {})
        for number in range(QUEUES):
            name = f"{self.namespace}-{number}"
            quota = {"name": "cpu", "nominalQuota": str(CPUS_EACH)}
            flavors = [{"name": self.namespace, "resources": [quota]}]
            spec = {
                "cohortName": self.namespace,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            }
            await self.create(f"{KUEUE}/clusterqueues", "ClusterQueue", name, spec)
            local = f"{KUEUE}/namespaces/{self.namespace}/localqueues"
            await self.create(local, "LocalQueue", name, {"clusterQueue": name})
        _, listed = await self.send("GET", self._workloads)
        return str(listed["metadata"]["resourceVersion"])

    async def submit(self, name: str, cpu: int, number: int, *, priority: int = 0, stays: bool = False) -> None:
        self.cpu[name] = cpu
        if stays:
            self.stays.add(name)
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}
        pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        spec = {"queueName": f"{self.namespace}-{number % QUEUES}", "podSets": [pod_set], "priority": priority}
        await self.create(self._workloads, "Workload", name, spec)

    async def submit_many(self, chance: random.Random) -> None:
        """Large and small, and the urgent among those who came before: whoever is put back may find others ahead."""
        for number in range(WORKLOADS):
            cpu, priority = chance.choice((2, 3, 5, 11, 20)), chance.randrange(100)
            await self.submit(f"w{number:03}", cpu, number, priority=priority)

    async def forge_reservation(self, name: str, number: int) -> None:
        """Write what only a manager may."""
        assigned = {"name": "main", "count": 1, "flavors": {"cpu": self.namespace}}
        assigned["resourceUsage"] = {"cpu": str(self.cpu[name])}
        given = {"clusterQueue": f"{self.namespace}-{number % QUEUES}", "podSetAssignments": [assigned]}
        path = f"{self._workloads}/{name}/status"
        answer = await self.send("PATCH", path, {"status": {"admission": given}}, "application/merge-patch+json")
        assert answer[0] == 200, answer

    @property
    def _workloads(self) -> str:
        return f"{KUEUE}/namespaces/{self.namespace}/workloads"

    # --- Watching -----------------------------------------------------------------------------------------------------

    async def watch(self, revision: str) -> None:
        """See every revision of every Workload, in order."""
        while True:
            path = f"{self._workloads}?watch=true&resourceVersion={revision}"
            async with self.session.get(path) as answer:
                if answer.status == 429:  # the kind was changed, and its storage is being set up anew
                    await asyncio.sleep(0.1)
                    continue
                async for line in answer.content:
                    event = json.loads(line)
                    assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
                    revision = event["object"]["metadata"]["resourceVersion"]
                    self._take(event["object"], revision, gone=event["type"] == "DELETED")

    def _take(self, workload: dict[str, Any], revision: str, *, gone: bool) -> None:
        name, before = workload["metadata"]["name"], self.seen.get(workload["metadata"]["name"], {})
        self.revisions += 1
        self.seen[name] = workload
        given = workload.get("status", {}).get("admission")
        holds = given is not None and not has(workload, "Finished") and not gone
        self.reserved[name] = sum(int(each["resourceUsage"]["cpu"]) for each in _sets(given)) if holds else 0
        total = sum(self.reserved.values())
        self.most = max(self.most, total)
        if total > CPUS:
            self.overruns.append(f"revision {revision}: {total} of {CPUS} CPUs are given away")
        if has(workload, "Finished") and given is None:
            self.overruns.append(f"revision {revision}: {name} was finished without ever having been admitted")
        if has(workload, "Admitted") and not has(before, "Admitted"):
            self.ran[name] = self.ran.get(name, 0) + 1
            if name not in self.stays:
                task = asyncio.create_task(self._finish(name))
                self._acting.add(task)
                task.add_done_callback(self._acting.discard)

    async def _finish(self, name: str) -> None:
        await asyncio.sleep(0.2)
        while not has(self.seen[name], "Finished"):
            said = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "played"}
            said["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            status = {"conditions": [*self.seen[name]["status"]["conditions"], said]}
            revision = {"resourceVersion": self.seen[name]["metadata"]["resourceVersion"]}
            path, patch = f"{self._workloads}/{name}/status", {"metadata": revision, "status": status}
            code, _ = await self.send("PATCH", path, patch, "application/merge-patch+json")
            if code == 200:
                return
            await asyncio.sleep(0.05)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def finished(self) -> int:
        return sum(has(workload, "Finished") for workload in self.seen.values())

    def admitted(self) -> set[str]:
        return {name for name, found in self.seen.items() if has(found, "Admitted") and not has(found, "Finished")}

    async def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not true():
                    await asyncio.sleep(0.05)
                    assert self.watching is not None
                    assert not self.watching.done(), self.watching.exception()
        except TimeoutError:
            told = {name: _told(found) for name, found in self.seen.items() if not has(found, "Finished")}
            raise AssertionError(f"not within {seconds} s; left are {told}") from None


def has(workload: dict[str, Any], type_: str) -> bool:
    return _told(workload).get(type_) == "True"


def _told(workload: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in workload.get("status", {}).get("conditions", ())}


def _sets(given: dict[str, Any] | None) -> list[dict[str, Any]]:
    return given["podSetAssignments"] if given is not None else []


@contextlib.asynccontextmanager
async def told(server: real.Client, namespace: str) -> AsyncIterator[Story]:
    """A story; it starts with `begin`."""
    assert server.ca is not None
    tls = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=server.ca.decode()), limit=0)
    headers = {"Authorization": f"Bearer {server.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        server.url, connector=tls, headers=headers, timeout=timeout, read_bufsize=2**21
    ) as session:
        story = Story(server, session, namespace)
        await story.forget_webhooks()
        try:
            yield story
        finally:
            if story.watching is not None:
                story.watching.cancel()
                await asyncio.gather(story.watching, return_exceptions=True)


@contextlib.asynccontextmanager
async def manager(kubeconfig: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`pykueue manager` in a process of its own. It leads alone, so that one that was killed need not be waited for."""
    (folder / "kubeconfig").write_text(kubeconfig)
    chosen = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{real.free_port()}"},
        "webhook": {"port": real.free_port()},
    }
    if not (folder / "config").exists():
        # One that follows another is found at the same place, as behind a Service.
        (folder / "config").write_text(json.dumps(chosen))
    arguments = ("--kubeconfig", str(folder / "kubeconfig"), "--config", str(folder / "config"))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pykueue", "manager", *arguments, env=environment
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("percent", [5, 20])
async def test_lost_answers_never_give_quota_twice_and_lose_nobody(
    server: real.Client, tmp_path: Path, percent: int
) -> None:
    async with (
        faulty_proxy.between(server, percent / 100, random.Random(percent)) as proxy,
        told(server, f"lossy-{percent}") as story,
        manager(proxy.kubeconfig(), tmp_path) as process,
    ):
        await story.begin()
        await story.submit_many(random.Random(7))
        await story.until(lambda: story.finished() == WORKLOADS)
        assert process.returncode is None
    assert story.overruns == []
    assert story.ran == dict.fromkeys(story.cpu, 1)
    assert proxy.lost > 0, "nothing was lost, so nothing was shown"
    assert story.most > CPUS * 0.8, "there was room for everybody, so nothing was shown"


async def test_five_killed_managers_lose_nobody_and_give_nothing_twice(server: real.Client, tmp_path: Path) -> None:
    async with told(server, "killed") as story:
        async with manager(server.kubeconfig(), tmp_path):
            await story.begin()
        submitting = asyncio.create_task(story.submit_many(random.Random(11)))
        for part in range(1, 6):
            async with manager(server.kubeconfig(), tmp_path) as process:
                await story.until(lambda: story.finished() >= part * WORKLOADS // 7 and bool(story.admitted()))  # noqa: B023
                process.kill()
        await submitting
        async with manager(server.kubeconfig(), tmp_path):
            await story.until(lambda: story.finished() == WORKLOADS)
            assert story.ran == dict.fromkeys(story.cpu, 1)
            # Six fill everything and stay; three more are told to wait.
            for number in range(9):
                await story.submit(f"stays-{number}", 10, number, stays=True)
            waits = "QuotaReserved"
            await story.until(lambda: sum(_told(found).get(waits) == "False" for found in story.seen.values()) == 3)
        before = story.admitted()
        assert len(before) == CPUS // 10
        async with manager(server.kubeconfig(), tmp_path):
            # The last to come is decided on after everybody whom a restart finds.
            await story.submit("last", 1, 0, stays=True)
            await story.until(lambda: _told(story.seen.get("last", {})).get(waits) == "False")
        assert story.admitted() == before
        assert story.overruns == []


async def test_whoever_watches_would_see_quota_given_twice(server: real.Client) -> None:
    """The check itself, on reservations that somebody forged while no manager was there."""
    async with told(server, "forged") as story:
        await story.begin(managed=False)
        for number in range(CPUS // 10 + 1):
            name = f"forged-{number}"
            await story.submit(name, 10, number, stays=True)
            await story.forge_reservation(name, number)
        await story.until(lambda: sum(story.reserved.values()) > CPUS)
    assert [said.partition(": ")[2] for said in story.overruns] == [f"{CPUS + 10} of {CPUS} CPUs are given away"]
