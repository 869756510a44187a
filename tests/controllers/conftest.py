"""A whole system in one process: a server in memory, a manager, and short methods for tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Conflict
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.transport import Transport
from kubemachinery.unstructured import get
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, Serving, api_server
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.api import registry
from pykueue.app.embedded_manager import embedded_manager
from pykueue.app.server import managed_parts
from pykueue.controllers.assembly import Manager
from waiting import eventually

Tree = dict[str, Any]

_GROUP = "kueue.x-k8s.io/v1beta2"


class Environment:
    """People and controllers write; `until` waits for what comes of it."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.client = ApiClient(self.transport(), random.Random(1))

    def transport(self) -> Transport:
        return LocalTransport(partial(self.serving.embedded.server.handle_as, authentication.ADMIN))

    @asynccontextmanager
    async def manager(self, **configuration: Any) -> AsyncIterator[Manager]:
        chosen = settings.load(
            {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration}
        )
        async with embedded_manager(self.serving.embedded, chosen, rng=random.Random(7)) as manager:
            yield manager

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def create(self, kind: str, name: str, spec: Tree, **metadata: Any) -> Tree:
        row = registry.ALL.named(kind)
        assert row is not None
        place = {"namespace": "default"} if row.namespaced else {}
        tree = {"apiVersion": row.api_version, "kind": row.kind, "metadata": {"name": name, **place, **metadata}}
        return await self.client.create(row, {**tree, "spec": spec})

    async def patch(self, kind: str, name: str, patch: Tree, subresource: str = "") -> Tree:
        row = registry.ALL.named(kind)
        assert row is not None
        return await self.client.patch(row, name, patch, "default" if row.namespaced else "", subresource=subresource)

    async def delete(self, kind: str, name: str) -> None:
        row = registry.ALL.named(kind)
        assert row is not None
        await self.client.delete(row, name, "default" if row.namespaced else "")

    async def queues(self, cpu: str = "3", **spec: Any) -> None:
        """One flavor, one ClusterQueue `cq` with so many cores, one LocalQueue `lq` that leads to it."""
        await self.create("ResourceFlavor", "plain", {})
        quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        group = {"coveredResources": ["cpu"], "flavors": [quota]}
        await self.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": [group], **spec})
        await self.create("LocalQueue", "lq", {"clusterQueue": "cq"})

    async def workload(self, name: str, cpu: str = "1", **spec: Any) -> Tree:
        return await self.create("Workload", name, {"queueName": "lq", "podSets": [pod_set(cpu)], **spec})

    async def job(self, name: str, cpu: str = "1", **labels: str) -> Tree:
        return await self.create(
            "Job", name, {"template": template(cpu)}, labels={"kueue.x-k8s.io/queue-name": "lq", **labels}
        )

    async def create_class(self, name: str, value: int) -> None:
        row = registry.ALL.named("WorkloadPriorityClass")
        assert row is not None
        metadata = {"name": name}
        await self.client.create(
            row, {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata, "value": value}
        )

    async def finish(self, name: str) -> None:
        """Finish the Workload, as the controller of its job does."""
        await self.set_condition("Workload", name, "Finished", "True", "Succeeded")

    async def set_condition(self, kind: str, name: str, condition: str, status: str, reason: str) -> None:
        moment = "2026-01-01T00:00:00Z"
        new = {"type": condition, "status": status, "reason": reason, "message": "", "lastTransitionTime": moment}

        def with_condition(found: Tree) -> Tree:
            others = [each for each in get(found, "status", "conditions") or [] if each["type"] != condition]
            return {"conditions": [*others, new]}

        await self.amend(kind, name, with_condition)

    async def amend(self, kind: str, name: str, status: Callable[[Tree], Tree]) -> None:
        """Write a status computed from the current object; compute it again after a conflict."""

        async def is_written() -> bool:
            found = await self.read(kind, name)
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
            with suppress(Conflict):
                await self.patch(kind, name, {"metadata": metadata, "status": status(found)}, "status")
                return True
            return False

        await eventually(is_written)

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def find(self, kind: str, name: str) -> Tree | None:
        row = registry.ALL.named(kind)
        assert row is not None
        return await self.client.find(row, name, "default" if row.namespaced else "")

    async def read(self, kind: str, name: str) -> Tree:
        found = await self.find(kind, name)
        assert found is not None, f"there is no {kind} {name}"
        return found

    async def all(self, kind: str) -> list[Tree]:
        row = registry.ALL.named(kind)
        assert row is not None
        return [msgspec.json.decode(item) for item in (await self.client.list(row)).items]

    async def condition(self, name: str, type_: str, kind: str = "Workload") -> str:
        """`status/reason` of a condition; empty when it is not there."""
        found = await self.find(kind, name)
        for each in get(found, "status", "conditions") or []:
            if each["type"] == type_:
                return f"{each['status']}/{each['reason']}"
        return ""

    async def admitted(self) -> list[str]:
        """The Workloads that hold quota and are not finished, by name."""
        return sorted(
            each["metadata"]["name"]
            for each in await self.all("Workload")
            if get(each, "status", "admission") is not None and "Finished" not in _true(each)
        )

    async def until(self, holds: Callable[[], Awaitable[Any]]) -> None:
        await eventually(holds)

    async def until_condition(self, name: str, type_: str, expected: str, kind: str = "Workload") -> None:
        """Wait until the condition is `expected`: its status and reason, as `True/Admitted`."""
        last = ""

        async def has_condition() -> bool:
            nonlocal last
            last = await self.condition(name, type_, kind)
            return last == expected

        try:
            await eventually(has_condition)
        except AssertionError:
            raise AssertionError(f"{kind} {name}: {type_} is {last or 'absent'}, not {expected}") from None

    async def until_quiet(self, manager: Manager, looks: int = 10) -> None:
        """Wait until the manager is idle at `looks` looks in a row; between two looks, tasks that are ready run."""
        quiet = 0

        def is_quiet() -> bool:
            nonlocal quiet
            quiet = quiet + 1 if manager.idle else 0
            return quiet > looks

        await eventually(is_quiet)


def _true(tree: Tree) -> set[str]:
    return {each["type"] for each in get(tree, "status", "conditions") or [] if each["status"] == "True"}


def template(cpu: str) -> Tree:
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def pod_set(cpu: str, count: int = 1, name: str = "main") -> Tree:
    return {"name": name, "count": count, "template": template(cpu)}


@asynccontextmanager
async def environment(data_dir: Path, **configuration: Any) -> AsyncIterator[Environment]:
    """A server with the webhooks, and without a manager."""
    chosen = settings.load({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration})
    server = ServerSettings(data_dir=data_dir, durability=Durability.MEMORY)
    async with api_server(server, managed_parts(chosen)) as serving:
        yield Environment(serving)


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[Environment]:
    async with environment(tmp_path) as env:
        yield env
