"""A whole system with a runner, in one process, without sockets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from kubemachinery import unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import Clock, SystemClock
from kubemachinery.http_messages import Request
from kubeserver.assembly import Embedded, Parts
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings
from kubeserver.storage.entries import StoreChange
from kubeserver.storage.sqlite import Durability, JournalRow, LoadedState, MemoryJournal
from pykueue import settings
from pykueue.api import registry
from pykueue.app.embedded_manager import RunnerName, embedded_manager, embedded_runner
from pykueue.app.server import managed_parts
from pykueue.runner.machine import Machine
from waiting import PATIENCE_SECONDS

Tree = dict[str, Any]

MACHINE = Machine("here", cpus=4, memory_bytes=8 * 2**30, devices={"nvidia.com/gpu": 2})


class System:
    """People who write, and wait for what comes of it."""

    def __init__(self, embedded: Embedded, *, pause_seconds: float, patience_seconds: float) -> None:
        self._embedded = embedded
        self._pause_seconds, self._patience_seconds = pause_seconds, patience_seconds
        self.client = ApiClient(
            LocalTransport(partial(embedded.server.handle_as, authentication.ADMIN)), random.Random(1)
        )

    def listen(self, listener: Callable[[StoreChange], None]) -> None:
        """Call a function with every change that is stored."""
        self._embedded.objects.listeners.append(listener)

    async def create(self, kind: str, name: str, **fields: Any) -> Tree:
        row = registry.ALL.named(kind)
        assert row is not None
        metadata = {"name": name, **({"namespace": "default"} if row.namespaced else {}), **fields.pop("metadata", {})}
        return await self.client.create(
            row, {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata, **fields}
        )

    async def job(self, name: str, *command: str, **more: Any) -> Tree:
        """A Job whose one container runs a command; `container`, `pod`, `job` and `metadata` add to what they name."""
        container = {"name": "main", "image": "none", "command": list(command), **more.get("container", {})}
        container.setdefault("resources", {"requests": {"cpu": "1"}})
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 60, "containers": [container]}
        template = {"metadata": more.get("labels", {}), "spec": {**spec, **more.get("pod", {})}}
        whole = {"backoffLimit": 0, "template": template, **more.get("job", {})}
        return await self.create("Job", name, spec=whole, metadata=more.get("metadata", {}))

    async def find(self, kind: str, name: str) -> Tree | None:
        row = registry.ALL.named(kind)
        assert row is not None
        return await self.client.find(row, name, "default" if row.namespaced else "")

    async def all(self, kind: str) -> list[Tree]:
        row = registry.ALL.named(kind)
        assert row is not None
        return [msgspec.json.decode(item) for item in (await self.client.list(row)).items]

    async def patch(self, kind: str, name: str, patch: Tree, subresource: str = "") -> None:
        row = registry.ALL.named(kind)
        assert row is not None
        await self.client.patch(row, name, patch, "default" if row.namespaced else "", subresource=subresource)

    async def delete(self, kind: str, name: str) -> None:
        row = registry.ALL.named(kind)
        assert row is not None
        await self.client.delete(row, name, "default")

    async def pods(self, job: str) -> list[Tree]:
        return [pod for pod in await self.all("Pod") if unstructured.get(pod, "metadata", "labels", "job-name") == job]

    async def log(self, pod: str, **query: str) -> tuple[int, str]:
        path = f"/api/v1/namespaces/default/pods/{pod}/log"
        answer = await self._embedded.server.handle_as(authentication.ADMIN, Request("GET", path, list(query.items())))
        parts = [answer.body]
        if answer.stream is not None:
            await answer.stream(_appending(parts))
        return answer.status, b"".join(parts).decode()

    async def until(self, holds: Callable[[], Any]) -> Any:
        async with asyncio.timeout(self._patience_seconds):
            while not (found := await holds()):
                await asyncio.sleep(self._pause_seconds)
            return found

    async def over(self, job: str) -> str:
        """Wait until a Job is over: `Complete` or the reason for which it failed."""

        async def reported() -> str:
            found = await self.find("Job", job)
            for _, condition in unstructured.entries(found, "status", "conditions"):
                if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                    return "Complete" if condition["type"] == "Complete" else str(condition["reason"])
            return ""

        return str(await self.until(reported))

    async def running(self, job: str) -> Tree:
        """Wait until a pod of a Job runs."""

        async def found() -> Tree | None:
            pods = await self.pods(job)
            return next((pod for pod in pods if unstructured.get(pod, "status", "phase") == "Running"), None)

        pod: Tree = await self.until(found)
        return pod


def _appending(parts: list[bytes]) -> Any:
    async def write(part: bytes) -> None:
        parts.append(part)

    return write


# What a server holds once our CRDs are installed: reading that is far quicker than installing them again.
_installed: list[LoadedState] = []


async def _server(parts: Parts, clock: Clock, rng: random.Random) -> Embedded:
    loaded = _installed[0] if _installed else None
    parts = structs.replace(parts, orphan_seconds=0.1, crds=() if loaded is not None else parts.crds)
    authenticator = authentication.Authenticator({}, ())
    embedded = Embedded(parts, MemoryJournal(), authenticator, clock, rng, ServerInfo("test"), loaded=loaded)
    await embedded.start()
    if loaded is None:
        rows = [
            JournalRow(entry.key, entry.uid, entry.revision, entry.created_revision, entry.body)
            for resource in embedded.objects.resources
            for entry in embedded.objects.collection(resource)
        ]
        revision = embedded.objects.revision
        _installed.append(LoadedState(revision, revision, "test", rows, []))
    return embedded


@asynccontextmanager
async def system(
    folder: Path, name: str, clock: Clock | None = None, seed: int = 7, **configuration: Any
) -> AsyncIterator[System]:
    """Everything that `pykueue up --runner NAME` has, but for the socket. On a clock that jumps, waiting is free."""
    pause, patience = (0.02, PATIENCE_SECONDS) if clock is None else (1.0, 100_000.0)
    clock, rng = clock or SystemClock(), random.Random(seed)
    chosen = settings.load({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration})
    embedded = await _server(managed_parts(chosen, MACHINE), clock, rng)
    place = ServerSettings(data_dir=folder, durability=Durability.MEMORY)
    try:
        async with (
            embedded_manager(embedded, chosen, clock, rng),
            embedded_runner(embedded, RunnerName(name), place, MACHINE, clock, rng),
        ):
            yield System(embedded, pause_seconds=pause, patience_seconds=patience)
    finally:
        await embedded.close()
