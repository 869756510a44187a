"""Runs of Workloads that compete on a real API server, checked revision by revision by code that shares nothing with
the manager.

Sixty CPUs in three ClusterQueues that lend to each other, and more Workloads than fit. Many come while the queues are
on
hold, so that they compete from the moment the hold is lifted, however slow the machine is. Every revision is read from
etcd itself, where no restart and no change of a kind can hide one; the reservations are added up in each. The same
the test plays the jobs: what is admitted runs for a moment and is finished.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from cluster import real

QUEUES: Final = 3
CPUS_EACH: Final = 20
CPUS: Final = QUEUES * CPUS_EACH
KUEUE: Final = "/apis/kueue.x-k8s.io/v1beta2"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases"
_WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_SIZES: Final = (2, 3, 5, 11, 20)
_CREATORS: Final = 16
_URGENT_EVERY_SECONDS: Final = 0.15
# A write works within this: there is no hurry on a busy machine, and no end to a broken one.
_PATIENCE_SECONDS: Final = 300.0
_MERGE: Final = "application/merge-patch+json"


@dataclass
class Environment:
    """One namespace, its queues and its Workloads, and what was seen of them."""

    server: real.Client
    session: aiohttp.ClientSession
    namespace: str
    runtime_seconds: float
    cpu: dict[str, int] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)  # these are never finished
    reserved: dict[str, int] = field(default_factory=dict)
    most: int = 0
    revisions: int = 0
    overruns: list[str] = field(default_factory=list)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)  # how often each was seen to become admitted
    finished: set[str] = field(default_factory=set)
    watching: asyncio.Task[None] | None = None
    _acting: set[asyncio.Task[None]] = field(default_factory=set)

    # --- Making -------------------------------------------------------------------------------------------------------

    async def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """The code and the body of an answer; a connection that broke counts as a server in trouble."""
        data = None if body is None else json.dumps(body)
        url = self.server.url + path
        try:
            async with self.session.request(method, url, data=data, headers={"Content-Type": kind}) as answer:
                return answer.status, await answer.json()
        except aiohttp.ClientError as error:
            return 503, str(error)

    async def insist(
        self, method: str, path: str, body: Any, kind: str = "application/json", refusals: tuple[int, ...] = ()
    ) -> tuple[int, Any]:
        """Repeat a write until it succeeds: without a manager no webhook answers, and a kind that was just changed is served later."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (answer := await self.send(method, path, body, kind))[0] in (429, 500, 503):
                await asyncio.sleep(0.1)
        # A write that was answered with a retry may have been executed nevertheless.
        assert answer[0] in (200, 201, 409, *refusals), answer
        return answer

    async def create(self, path: str, kind: str, name: str, spec: dict[str, Any]) -> None:
        version = KUEUE.removeprefix("/apis/") if path.startswith(KUEUE) else "v1"
        await self.insist("POST", path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})

    async def forget_managers(self) -> None:
        """Delete the webhook registrations and leases of managers of earlier tests."""
        for phase in ("mutating", "validating"):
            await self.send("DELETE", f"{_WEBHOOKS}/{phase}webhookconfigurations/kueue-{phase}-webhook-configuration")
        await self.send("DELETE", LEASES)

    async def begin(self, *, managed: bool = True, on_hold: bool = True) -> None:
        """Make the queues once the manager is asked about them, which it is last of all; watch from before that."""
        self.watching = asyncio.create_task(self._watch())
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while managed and not await self._asks_manager():
                await asyncio.sleep(0.1)
        await self.create("/api/v1/namespaces", "Namespace", self.namespace, {})
        await self.create(f"{KUEUE}/resourceflavors", "ResourceFlavor", self.namespace, {})
        for name in self._queues:
            quota = {"name": "cpu", "nominalQuota": str(CPUS_EACH)}
            flavors = [{"name": self.namespace, "resources": [quota]}]
            spec = {
                "cohortName": self.namespace,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
                "stopPolicy": "Hold" if on_hold else "None",
            }
            await self.create(f"{KUEUE}/clusterqueues", "ClusterQueue", name, spec)
            local = f"{KUEUE}/namespaces/{self.namespace}/localqueues"
            await self.create(local, "LocalQueue", name, {"clusterQueue": name})

    async def _asks_manager(self) -> bool:
        """Whether the server asks both webhooks by now: one puts a finalizer on flavors, and one refuses bad ones."""
        flavor = {"apiVersion": KUEUE.removeprefix("/apis/"), "kind": "ResourceFlavor", "metadata": {"name": "probe"}}
        path = f"{KUEUE}/resourceflavors?dryRun=All"
        code, made = await self.send("POST", path, flavor)
        if code != 201 or not made["metadata"].get("finalizers"):
            return False
        return (await self.send("POST", path, {**flavor, "spec": {"nodeLabels": {"not a label!": "x"}}}))[0] == 403

    async def lift_hold(self) -> None:
        for name in self._queues:
            await self.insist("PATCH", f"{KUEUE}/clusterqueues/{name}", {"spec": {"stopPolicy": "None"}}, _MERGE)

    async def submit(self, name: str, cpu: int, number: int, *, priority: int = 0, stays: bool = False) -> None:
        self.cpu[name] = cpu
        if stays:
            self.stays.add(name)
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}
        pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        spec = {"queueName": self._queues[number % QUEUES], "podSets": [pod_set], "priority": priority}
        await self.create(self._workloads, "Workload", name, spec)

    async def submit_many(self, count: int, rng: random.Random) -> None:
        """Large and small ones."""
        several = asyncio.Semaphore(_CREATORS)

        async def one(number: int, cpu: int, priority: int) -> None:
            async with several:
                await self.submit(f"w{number:04}", cpu, number, priority=priority)

        drawn = [(number, rng.choice(_SIZES), rng.randrange(100)) for number in range(count)]
        await asyncio.gather(*(one(*each) for each in drawn))

    async def submit_urgent(self, numbers: range, rng: random.Random) -> None:
        """Create Workloads with increasing priority: a requeued one finds others ahead."""
        several = asyncio.Semaphore(_CREATORS)

        async def one(number: int, cpu: int) -> None:
            try:
                await self.submit(f"urgent-{number:04}", cpu, number, priority=100 + number)
            finally:
                several.release()

        async with asyncio.TaskGroup() as group:
            for number in numbers:
                await several.acquire()  # a server that is slow is not buried
                group.create_task(one(number, rng.choice(_SIZES)))
                await asyncio.sleep(_URGENT_EVERY_SECONDS)

    async def forge_reservation(self, name: str, number: int, signature: str = "") -> tuple[int, Any]:
        """Write a reservation as a manager would; returns the answer of the server."""
        assigned = {"name": "main", "count": 1, "flavors": {"cpu": self.namespace}}
        assigned["resourceUsage"] = {"cpu": str(self.cpu[name])}
        given = {"clusterQueue": self._queues[number % QUEUES], "podSetAssignments": [assigned]}
        path = f"{self._workloads}/{name}/status?fieldManager={signature}"
        return await self.insist("PATCH", path, {"status": {"admission": given}}, _MERGE, (403,))

    @property
    def _queues(self) -> list[str]:
        return [f"{self.namespace}-{number}" for number in range(QUEUES)]

    @property
    def _workloads(self) -> str:
        return f"{KUEUE}/namespaces/{self.namespace}/workloads"

    # --- Watching -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """See every revision of every Workload, in order."""
        prefix = f"/registry/kueue.x-k8s.io/workloads/{self.namespace}/"
        keys = {"key": _base64(prefix), "range_end": _base64(prefix[:-1] + chr(ord("/") + 1)), "start_revision": 1}
        async with self.session.post(f"{self.server.etcd_url}/v3/watch", json={"create_request": keys}) as answer:
            async for line in answer.content:
                for event in json.loads(line)["result"].get("events", ()):
                    stored = event["kv"]
                    name = base64.b64decode(stored["key"]).decode().removeprefix(prefix)
                    value = base64.b64decode(stored["value"]) if event.get("type") != "DELETE" else b"{}"
                    self._take(name, json.loads(value), stored["mod_revision"])

    def _take(self, name: str, workload: dict[str, Any], revision: str) -> None:
        before = self.seen.get(name, {})
        workload["revision"] = revision
        self.revisions += 1
        self.seen[name] = workload
        given = workload.get("status", {}).get("admission")
        holds = given is not None and not has(workload, "Finished")
        self.reserved[name] = sum(int(each["resourceUsage"]["cpu"]) for each in _sets(given)) if holds else 0
        total = sum(self.reserved.values())
        self.most = max(self.most, total)
        if total > CPUS:
            self.overruns.append(f"revision {revision}: {total} of {CPUS} CPUs are given away")
        if has(workload, "Finished"):
            self.finished.add(name)
            if given is None:
                self.overruns.append(f"revision {revision}: {name} was finished without ever having been admitted")
        if has(workload, "Admitted") and not has(before, "Admitted"):
            self.ran[name] = self.ran.get(name, 0) + 1
            if name not in self.stays:
                task = asyncio.create_task(self._finish(name))
                self._acting.add(task)
                task.add_done_callback(self._acting.discard)

    async def _finish(self, name: str) -> None:
        await asyncio.sleep(self.runtime_seconds)
        while name not in self.finished:
            found = self.seen[name]
            finished_condition = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "played"}
            finished_condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
            status = {"conditions": [*found["status"]["conditions"], finished_condition]}
            patch = {"metadata": {"resourceVersion": found["revision"]}, "status": status}
            code, _ = await self.send("PATCH", f"{self._workloads}/{name}/status", patch, _MERGE)
            if code == 200:
                return
            # Another client wrote; or no manager lives, and asking often would only keep the next one from starting.
            await asyncio.sleep(0.05 if code == 409 else 0.5)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def admitted(self) -> set[str]:
        return {name for name, found in self.seen.items() if has(found, "Admitted") and not has(found, "Finished")}

    def waiting(self) -> set[str]:
        """The Workloads with QuotaReserved=False."""
        return {name for name, found in self.seen.items() if condition_statuses(found).get("QuotaReserved") == "False"}

    async def until(self, true: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not true():
                    await asyncio.sleep(0.02)
                    assert self.watching is not None
                    assert not self.watching.done(), self.watching.exception()
        except TimeoutError:
            left = {name: condition_statuses(found) for name, found in self.seen.items() if name not in self.finished}
            raise AssertionError(
                f"not within {seconds} s; {len(left)} are left: {dict(list(left.items())[:9])}"
            ) from None

    def figures(self) -> str:
        return f"{self.namespace}: {len(self.cpu)} Workloads, {self.revisions} revisions, at most {self.most} of {CPUS} CPUs"


def has(workload: dict[str, Any], type_: str) -> bool:
    return condition_statuses(workload).get(type_) == "True"


def condition_statuses(workload: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in workload.get("status", {}).get("conditions", ())}


def _sets(given: dict[str, Any] | None) -> list[dict[str, Any]]:
    return given["podSetAssignments"] if given is not None else []


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextlib.asynccontextmanager
async def env(server: real.Client, namespace: str, *, runtime_seconds: float = 0.2) -> AsyncIterator[Environment]:
    """A run in which an admitted Workload runs for this long; it starts with `begin`."""
    assert server.ca is not None
    tls = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=server.ca.decode()), limit=0)
    headers = {"Authorization": f"Bearer {server.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=tls, headers=headers, timeout=timeout, read_bufsize=2**24) as session:
        env = Environment(server, session, namespace, runtime_seconds)
        await env.forget_managers()
        try:
            yield env
        finally:
            if env.watching is not None:
                env.watching.cancel()
                await asyncio.gather(env.watching, return_exceptions=True)
            print(env.figures())
