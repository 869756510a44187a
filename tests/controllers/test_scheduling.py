"""A Workload without a job, from its creation to its end."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from controllers.conftest import Environment, Tree
from kubemachinery.client.client import ApiClient
from kubemachinery.client.event_recorder import EVENTS
from kubemachinery.clock import SystemClock
from kubemachinery.meta import SECOND, format_time
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager
from pykueue.core.decision import Admit, Decision
from pykueue.core.workload import Reservation
from pykueue.state import scheduling_scope


async def test_a_finished_workload_releases_quota_for_the_next(env: Environment) -> None:
    async with env.manager():
        await env.queues(cpu="1")
        await env.workload("first")
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.workload("second")
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        await env.finish("first")
        await env.until_condition("second", "Admitted", "True/Admitted")


async def test_scopes_beyond_the_first_ones_are_decided_without_another_event(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of `decide` that looks at few scopes finds nothing to decide in them, and is followed by another one."""
    monkeypatch.setattr(scheduling_scope, "SCOPES_AT_ONCE", 1)
    await env.queues()
    names = [f"other-{number}" for number in range(5)]
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    for name in names:
        await env.create("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})
        await env.create("LocalQueue", name, {"clusterQueue": name})
    await env.workload("last", queueName=names[-1])
    async with env.manager():
        await env.until_condition("last", "Admitted", "True/Admitted")


async def test_quota_and_admission_are_one_write_of_the_status(env: Environment) -> None:
    async with env.manager() as manager:
        await env.queues()
        before = int((await env.workload("only"))["metadata"]["resourceVersion"])
        await env.until_condition("only", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        writes = manager.client.sent["PATCH", "workloads"]
        assert writes == 1, before


class _Advancing(SystemClock):
    """A clock that is a second later each time, as if every write had waited for the server."""

    def __init__(self) -> None:
        self._seconds = 0

    def now(self) -> int:
        self._seconds += 1
        return super().now() + self._seconds * SECOND


async def test_reservation_has_the_time_of_its_decision_and_its_watch_event_changes_nothing(env: Environment) -> None:
    """[CY27]"""
    client, options = ApiClient(env.transport(), random.Random(3)), manager_options(settings.defaults())
    manager = Manager(client, options, _Advancing(), random.Random(3))
    world, assumed = manager.scheduler.world, dict[str, Reservation]()

    def keep(decisions: list[Decision], seconds: float) -> None:
        assumed.update((each.workload, world.reservations[each.workload]) for each in decisions if type(each) is Admit)

    manager.scheduler.on_cycle.append(keep)
    await env.queues()
    async with manager.reading():
        leading = asyncio.create_task(manager.lead())
        await env.workload("only")
        await env.until_condition("only", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        held = assumed["default/only"]
        times = {each["lastTransitionTime"] for each in (await env.read("Workload", "only"))["status"]["conditions"]}
        assert times == {format_time(held.reserved_at or 0)}
        assert world.reservations["default/only"] is held
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)


async def test_a_workload_of_higher_priority_takes_the_place_of_a_lower_one(env: Environment) -> None:
    async with env.manager():
        await env.queues(cpu="1", preemption={"withinClusterQueue": "LowerPriority"})
        await env.workload("low", priority=1)
        await env.until_condition("low", "Admitted", "True/Admitted")
        await env.workload("high", priority=2)
        await env.until_condition("low", "Evicted", "True/Preempted")
        await env.until_condition("high", "QuotaReserved", "False/WaitingForPreemptedWorkloads")
        assert await env.admitted() == ["low"]  # its quota is held until its job has stopped


async def test_a_reservation_that_another_client_wrote_is_admitted_though_its_queue_does_not_exist(
    env: Environment,
) -> None:
    """As an importer writes it: without admission checks the controller looks at neither queue nor quota."""
    await env.workload("imported", queueName="missing")
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": "1"}}

    def reserved(found: Tree) -> Tree:
        moment = "2026-01-01T00:00:00Z"
        reserved = {"type": "QuotaReserved", "status": "True", "reason": "Imported", "message": ""}
        admission = {"clusterQueue": "nowhere", "podSetAssignments": [assigned]}
        return {"admission": admission, "conditions": [{**reserved, "lastTransitionTime": moment}]}

    await env.amend("Workload", "imported", reserved)
    async with env.manager() as manager:
        await env.until_condition("imported", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        assert await env.condition("imported", "QuotaReserved") == "True/Imported"
        assert await env.condition("imported", "Evicted") == ""


async def test_preemption_is_reported_with_uids_and_paths_and_as_one_series(env: Environment) -> None:
    async with env.manager() as manager:
        await env.create("Cohort", "team", {"parentName": "root"})
        await env.queues(cpu="2", cohortName="team", preemption={"withinClusterQueue": "LowerPriority"})
        for name in ("low-1", "low-2"):
            await env.workload(name, priority=1)
            await env.until_condition(name, "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        bold = await env.workload("bold", cpu="2", priority=7)
        uid = bold["metadata"]["uid"]
        path = "/root/team/cq"
        for name in ("low-1", "low-2"):
            await env.until_condition(name, "Evicted", "True/Preempted")
            for condition in (await env.read("Workload", name))["status"]["conditions"]:
                if condition["type"] in ("Evicted", "Preempted"):
                    assert condition["message"] == (
                        f"Preempted to accommodate a workload (UID: {uid}, JobUID: UNKNOWN) due to prioritization in the"
                        f" ClusterQueue; preemptor path: {path}; preemptee path: {path}"
                    )
        await env.until_condition("bold", "QuotaReserved", "False/WaitingForPreemptedWorkloads")
        found = (await env.read("Workload", "bold"))["status"]["conditions"]
        (message,) = (each["message"] for each in found if each["type"] == "QuotaReserved")
        assert message == (
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor plain, 2 more needed."
            " Pending the preemption of 2 workload(s)"
        )
        await env.until_quiet(manager)
        events = [msgspec.json.decode(each) for each in (await env.client.list(EVENTS, "default")).items]
        (one,) = (event for event in events if event["reason"] == "PreemptedWorkload")
        assert one["series"]["count"] == 2
        low = (await env.read("Workload", one["note"].split()[2].partition("/")[2]))["metadata"]
        priorities = "; ".join(
            f"{role} effective priority: {priority} (base: {priority}, boost: 0)"
            for role, priority in (("preemptor", 7), ("preemptee", 1))
        )
        assert one["note"] == (
            f"Preempted workload default/{low['name']} (UID: {low['uid']}) in ClusterQueue cq; {priorities}"
        )
        of_victims = [event["note"] for event in events if event["reason"] == "Preempted"]
        assert len(of_victims) == 2
        assert all(note.endswith(f"preemptee path: {path}; {priorities}") for note in of_victims)
