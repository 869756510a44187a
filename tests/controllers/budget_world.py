"""A system with a Budget on its queue, simulated pods and a virtual clock, for tests of the budget check."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kubemachinery import meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.kinds import Kind, Version
from kubemachinery.meta import SECOND
from kubeserver.assembly import Embedded
from kubeserver.http.health import ServerInfo
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings
from kubeserver.storage.sqlite import Durability, MemoryJournal
from pykueue import settings
from pykueue.api import config, kueue, registry
from pykueue.api.budget import Budget
from pykueue.app import options
from pykueue.app.embedded_manager import RunnerName, embedded_manager, embedded_runner
from pykueue.app.server import managed_parts
from pykueue.client.client import AsyncClient
from pykueue.controllers.assembly import Manager
from pykueue.controllers.history_recorder import inline_worker
from pykueue.testing import MACHINE
from pykueue.testing.installed_server import installed
from pykueue.testing.virtual_loop import VirtualClock
from virtual import virtual_time

WORKLOADS = registry.ALL.of(kueue.Workload)
CLUSTER_QUEUES = registry.ALL.of(kueue.ClusterQueue)
CHECKS = registry.ALL.of(kueue.AdmissionCheck)
BUDGETS = registry.ALL.of(Budget)
EVENTS = Kind("events.k8s.io", "Event", "events", (Version("v1", storage=True),))
DAY = 86_400
HOUR = 3600
# A world begins so long before midnight.
BEGIN = -900


def budget(name: str = "cpu", hours: Any = "0.1", **spec: Any) -> dict[str, Any]:
    amounts = [{"resource": "cpu", "hours": hours}]
    return {
        "apiVersion": "pykueue.io/v1alpha1",
        "kind": "Budget",
        "metadata": {"name": name},
        "spec": {"every": "Day", "amounts": amounts, **spec},
    }


def check(name: str = "budget", of: str = "cpu") -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {
            "controllerName": "pykueue.io/budget",
            "parameters": {"apiGroup": "pykueue.io", "kind": "Budget", "name": of},
        },
    }


class BudgetWorld:
    """A server with simulated pods, shortly before midnight. `manager` runs a manager with a history in a file."""

    def __init__(self, embedded: Embedded, clock: VirtualClock, path: Path) -> None:
        self.embedded = embedded
        self.clock = clock
        self.path = path
        self.api = ApiClient(LocalTransport(partial(embedded.server.handle_as, authentication.ADMIN)), random.Random(3))
        self.client = AsyncClient(namespace="default", api_client=self.api, clock=clock)
        self.midnight = -(-clock.now() // SECOND // DAY) * DAY

    @asynccontextmanager
    async def manager(self, **history: Any) -> AsyncIterator[Manager]:
        chosen = chosen_settings()
        kept = options.history_options(chosen, self.path, worker=lambda: inline_worker, **history)
        async with embedded_manager(self.embedded, chosen, self.clock, random.Random(5), history=kept) as manager:
            await asyncio.sleep(1)
            yield manager

    # --- Time ---------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the midnight at which the first day ends; negative before."""
        return self.clock.now() / SECOND - self.midnight

    async def until(self, seconds: float) -> None:
        """Let time pass until some seconds before (negative) or after midnight."""
        await asyncio.sleep(max(0.0, seconds - self.now))

    # --- Objects ------------------------------------------------------------------------------------------------------

    async def install(
        self, *budgets: dict[str, Any], flavors: tuple[str, ...] = (), others: tuple[str, ...] = ()
    ) -> None:
        """Create Budgets with a check for each, required by the ClusterQueue of the machine, with other checks."""
        rules: list[dict[str, Any]] = [{"name": name} for name in others]
        for each in budgets:
            name = each["metadata"]["name"]
            await self.api.create(BUDGETS, each)
            await self.api.create(CHECKS, check(f"check-{name}", name))
            rules.append({"name": f"check-{name}", "onFlavors": list(flavors)})
        strategy = {"admissionChecksStrategy": {"admissionChecks": rules}}
        await self.api.patch(CLUSTER_QUEUES, "default", {"spec": strategy})
        await asyncio.sleep(1)

    async def add_flavor(self, name: str) -> None:
        """Add a flavor without quota to the ClusterQueue, after its own."""
        metadata = {"name": name}
        flavor = {"apiVersion": kueue.API_VERSION, "kind": "ResourceFlavor", "metadata": metadata}
        await self.api.create(registry.ALL.of(kueue.ResourceFlavor), flavor)
        groups = (await self.api.get(CLUSTER_QUEUES, "default"))["spec"]["resourceGroups"]
        quotas = [{"name": each, "nominalQuota": 0} for each in groups[0]["coveredResources"]]
        groups[0]["flavors"].append({"name": name, "resources": quotas})
        await self.api.patch(CLUSTER_QUEUES, "default", {"spec": {"resourceGroups": groups}})

    async def set_limit(self, name: str, hours: Any) -> None:
        """Change the limit of a Budget."""
        await self.api.patch(BUDGETS, name, {"spec": {"amounts": [{"resource": "cpu", "hours": hours}]}})

    async def submit(self, name: str, seconds: int, cpu: int = 1, **more: Any) -> None:
        await self.client.submit(["sleep", str(seconds)], name=name, cpu=cpu, **more)

    async def workload(self, job: str) -> dict[str, Any]:
        found = await self.all(WORKLOADS)
        (match,) = [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == job]
        return match

    async def all(self, kind: Kind) -> list[dict[str, Any]]:
        return [msgspec.json.decode(each) for each in (await self.api.list(kind)).items]

    async def condition(self, job: str, type_: str) -> dict[str, Any]:
        found = (await self.workload(job)).get("status", {}).get("conditions", [])
        return next((each for each in found if each["type"] == type_), {})

    async def is_admitted(self, job: str) -> bool:
        return (await self.condition(job, "Admitted")).get("status") == "True"

    async def admitted_at(self, job: str) -> float:
        """When a job was first admitted, in seconds since midnight."""
        (found,) = [each for each in await self.client.history() if each.job == job]
        assert found.started is not None, f"{job} was not admitted"
        return meta.parse_time(found.started) // SECOND - self.midnight

    async def budget(self, name: str = "cpu") -> dict[str, Any]:
        return await self.api.get(BUDGETS, name)

    async def events(self, reason: str, kind: str = "Budget") -> list[dict[str, Any]]:
        found = await self.all(EVENTS)
        return [each for each in found if each["reason"] == reason and each["regarding"]["kind"] == kind]


def chosen_settings(**gates: bool) -> settings.Settings:
    on = {"WorkloadHints": True, "Budgets": True, **gates}
    return settings.load({"apiVersion": config.V1BETA2, "kind": config.KIND, "featureGates": on}, "test")


@asynccontextmanager
async def budget_world(
    path: Path, journal: MemoryJournal | None = None, begin: int = BEGIN
) -> AsyncIterator[BudgetWorld]:
    usual, loaded = installed()
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(7)
    clock.wrong_by_seconds = begin - clock.now() / SECOND % DAY
    own = managed_parts(chosen_settings(), MACHINE)
    parts = replace(usual, plugins=own.plugins, initial=(*usual.initial, *own.first))
    embedded = Embedded(
        parts,
        journal or MemoryJournal(),
        authentication.Authenticator({}, ()),
        clock,
        rng,
        ServerInfo("test"),
        loaded=loaded,
    )
    await embedded.start()
    place = ServerSettings(data_dir=Path(), durability=Durability.MEMORY)
    try:
        async with embedded_runner(embedded, RunnerName.SIMULATED, place, MACHINE, clock, rng):
            made = BudgetWorld(embedded, clock, path)
            yield made
    finally:
        await embedded.close()


def scenario(test: Callable[[BudgetWorld], Any]) -> Callable[[Path], None]:
    """A test in a world of its own, on virtual time."""

    @virtual_time
    async def run(tmp_path: Path) -> None:
        async with budget_world(tmp_path / "history.db") as made:
            await test(made)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
