"""A system with a Budget on its queue, simulated pods and a virtual clock, for tests of the budget check."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from history.recorded_world import WORKLOADS as WORKLOADS
from history.recorded_world import RecordedWorld, recorded_server, scenario_in
from history.recorded_world import chosen_settings as recorded_settings
from kubemachinery import meta
from kubemachinery.kinds import Kind, Version
from kubemachinery.meta import SECOND
from kubeserver.assembly import Embedded
from kubeserver.storage.sqlite import MemoryJournal
from pykueue import settings
from pykueue.api import kueue, registry
from pykueue.api.budget import Budget
from pykueue.testing.virtual_loop import VirtualClock

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


class BudgetWorld(RecordedWorld):
    """A server with Budgets, shortly before midnight."""

    def __init__(self, embedded: Embedded, clock: VirtualClock, path: Path) -> None:
        super().__init__(embedded, clock, path, chosen_settings())
        self.midnight = -(-clock.now() // SECOND // DAY) * DAY

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
    return recorded_settings(**{"Budgets": True, **gates})


@asynccontextmanager
async def budget_world(
    path: Path, journal: MemoryJournal | None = None, begin: int = BEGIN
) -> AsyncIterator[BudgetWorld]:
    def before_midnight(clock: VirtualClock) -> None:
        clock.wrong_by_seconds = begin - clock.now() / SECOND % DAY

    async with recorded_server(chosen_settings(), journal, before_midnight) as (embedded, clock):
        yield BudgetWorld(embedded, clock, path)


scenario = scenario_in(budget_world)
