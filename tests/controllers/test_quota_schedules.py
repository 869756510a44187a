"""QuotaSchedules on a virtual clock: what counts when, without an event (rules QS, scenarios of the issue)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from controllers.conftest import pod_set
from controllers.test_clock import kind, leading
from kubemachinery import quantity
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.meta import SECOND, format_time
from kubemachinery.unstructured import get
from pykueue.api import registry
from pykueue.api.quota_schedule import QuotaSchedule
from pykueue.core import amounts
from pykueue.testing.virtual_loop import VirtualClock
from virtual import server, virtual_time

Tree = dict[str, Any]
ON: dict[str, object] = {"featureGates": {"QuotaCalendar": True}}
SCHEDULES = registry.EXTENSIONS.of(QuotaSchedule)


class Site:
    """A server with queues, and short methods."""

    def __init__(self, client: ApiClient, clock: VirtualClock) -> None:
        self.client = client
        self.clock = clock

    def at(self, minutes: float) -> str:
        return format_time(self.clock.now() + round(minutes * 60) * SECOND)

    async def create(self, kind_name: str, name: str, spec: Tree, **more: Any) -> None:
        row = kind(kind_name)
        place = {"namespace": "default"} if row.namespaced else {}
        tree = {"apiVersion": row.api_version, "kind": kind_name, "metadata": {"name": name, **place}, "spec": spec}
        await self.client.create(row, {**tree, **more})

    async def queue(self, name: str, cpu: int, **spec: Any) -> None:
        quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
        group = {"coveredResources": ["cpu"], "flavors": [quota]}
        await self.create("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": [group], **spec})
        await self.create("LocalQueue", name, {"clusterQueue": name})

    async def workload(self, name: str, cpu: int = 1, queue: str = "cq", **spec: Any) -> None:
        await self.create("Workload", name, {"queueName": queue, "podSets": [pod_set(str(cpu))], **spec})

    async def schedule(
        self, name: str, begin: float, end: float, *targets: Tree, window: str = "night", **spec: Any
    ) -> None:
        windows = [{"name": window, "start": self.at(begin), "end": self.at(end)}]
        await self.create("QuotaSchedule", name, {"windows": windows, "targets": list(targets), **spec})

    async def reserved(self) -> list[str]:
        found = (msgspec.json.decode(item) for item in (await self.client.list(kind("Workload"))).items)
        return sorted(each["metadata"]["name"] for each in found if get(each, "status", "admission") is not None)

    async def evicted(self) -> dict[str, str]:
        """The reasons of evictions, by Workload."""
        found = (msgspec.json.decode(item) for item in (await self.client.list(kind("Workload"))).items)
        return {
            each["metadata"]["name"]: condition["reason"]
            for each in found
            for condition in get(each, "status", "conditions") or ()
            if condition["type"] == "Evicted" and condition["status"] == "True"
        }

    async def events(self, reason: str) -> list[str]:
        """The Workloads with an Event of a reason."""
        found = (msgspec.json.decode(item) for item in (await self.client.list(kind("Event"))).items)
        return [event["regarding"]["name"] for event in found if event["reason"] == reason]

    async def status(self, name: str) -> Tree:
        found = await self.client.get(SCHEDULES, name)
        return dict(found.get("status") or {})

    async def ready(self, name: str) -> str:
        (found,) = (await self.status(name))["conditions"]
        return f"{found['status']}/{found['reason']}: {found['message']}"


def target(queue: str = "cq", **resource: Any) -> Tree:
    return {"clusterQueue": queue, "flavors": [{"name": "plain", "resources": [{"name": "cpu", **resource}]}]}


@asynccontextmanager
async def site(cpu: int = 1) -> AsyncIterator[Site]:
    async with server() as client:
        made = Site(client, VirtualClock(asyncio.get_running_loop()))
        await made.create("ResourceFlavor", "plain", {})
        await made.queue("cq", cpu)
        yield made


@virtual_time
async def test_a_window_that_raises_quota_starts_a_pending_workload_without_another_event() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.workload("w", cpu=4)
        await made.schedule("nights", 60, 120, target(nominalQuota=4))
        await asyncio.sleep(59 * 60)
        assert await made.reserved() == []
        assert (await made.status("nights"))["next"]["window"] == "night"
        await asyncio.sleep(61)
        assert await made.reserved() == ["w"]
        status = await made.status("nights")
        assert status["active"] == ["night"]
        assert status["effectiveQuotas"] == [
            {"clusterQueue": "cq", "flavor": "plain", "resource": "cpu", "nominalQuota": "4"}
        ]
        assert (await made.ready("nights")).startswith("True/Ready")


@virtual_time
async def test_at_the_end_of_a_window_running_work_goes_on_above_quota_and_nothing_new_starts() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("nights", -1, 60, target(nominalQuota=4))
        await made.workload("w", cpu=4)
        await asyncio.sleep(5)
        assert await made.reserved() == ["w"]
        await asyncio.sleep(60 * 60)
        await made.workload("x", cpu=1)
        await asyncio.sleep(5)
        assert await made.reserved() == ["w"]
        assert (await made.status("nights"))["overcommitted"] == [
            {"clusterQueue": "cq", "flavor": "plain", "resource": "cpu", "used": "4", "available": "1"}
        ]


@virtual_time
async def test_usage_above_a_quota_leaves_the_status_when_it_ends() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("nights", -1, 60, target(nominalQuota=4))
        await made.workload("w", cpu=4)
        await asyncio.sleep(61 * 60)
        assert (await made.status("nights"))["overcommitted"][0]["used"] == "4"
        await made.client.delete(kind("Workload"), "w", "default")
        await asyncio.sleep(60)
        assert await made.reserved() == []
        assert "overcommitted" not in await made.status("nights")


@virtual_time
async def test_as_few_as_needed_are_evicted_and_get_notice() -> None:
    """Of three Workloads one is enough: the newest of the lowest priority."""
    async with site(cpu=6) as made, leading(made.client, made.clock, ON):
        for name, priority in (("high", 9), ("old", 1), ("new", 1)):
            await made.workload(name, cpu=2, priority=priority)
            await asyncio.sleep(5)
        await made.schedule("drop", 20, 120, target(change=-2), onStart="Evict", notice="10m")
        await asyncio.sleep(9 * 60)
        assert await made.events("QuotaWithdrawal") == []
        await asyncio.sleep(2 * 60)
        assert await made.events("QuotaWithdrawal") == ["new"]
        assert await made.evicted() == {}
        await asyncio.sleep(10 * 60)
        assert await made.evicted() == {"new": "QuotaWithdrawn"}


@virtual_time
async def test_a_notice_may_be_longer_than_windows_are_known_for_otherwise() -> None:
    async with site(cpu=6) as made, leading(made.client, made.clock, ON):
        days = 15 * 24 * 60
        await made.schedule("drop", days + 20, days + 60, target(change=-4), onStart="Evict", notice="360h")
        await asyncio.sleep(18 * 60)
        await made.workload("w", cpu=4)
        await asyncio.sleep(60)
        assert await made.events("QuotaWithdrawal") == []
        await asyncio.sleep(2 * 60)
        assert await made.events("QuotaWithdrawal") == ["w"]


@virtual_time
async def test_borrowers_are_evicted_before_the_queue_that_owns_the_quota() -> None:
    async with server() as client:
        made = Site(client, VirtualClock(asyncio.get_running_loop()))
        await made.create("ResourceFlavor", "plain", {})
        await made.queue("cq", 4, cohortName="all")
        await made.queue("guest", 0, cohortName="all")
        async with leading(client, made.clock, ON):
            await made.workload("own", cpu=2, priority=0)
            await made.workload("loan", cpu=2, queue="guest", priority=9)
            await asyncio.sleep(5)
            assert await made.reserved() == ["loan", "own"]
            await made.schedule("drop", 10, 120, target(nominalQuota=2), onStart="Evict")
            await asyncio.sleep(11 * 60)
            assert await made.evicted() == {"loan": "QuotaWithdrawn"}


@virtual_time
async def test_a_spec_that_is_applied_again_in_the_window_changes_nothing() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("nights", -1, 60, target(nominalQuota=4))
        await asyncio.sleep(5)
        queue = await made.client.get(kind("ClusterQueue"), "cq")
        await made.client.patch(kind("ClusterQueue"), "cq", {"metadata": {"labels": {"synced": "again"}}})
        await made.workload("w", cpu=4)
        await asyncio.sleep(5)
        assert await made.reserved() == ["w"]
        assert (await made.client.get(kind("ClusterQueue"), "cq"))["spec"] == queue["spec"]


@virtual_time
async def test_of_two_schedules_that_set_the_same_value_the_later_start_counts_and_both_statuses_name_it() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("first", -2, 60, target(nominalQuota=8))
        await made.schedule("second", -1, 60, target(nominalQuota=3), window="late")
        await asyncio.sleep(5)
        for name in ("first", "second"):
            assert await made.ready(name) == (
                "True/Overlaps: Windows late of second and night of first both set cpu of plain in ClusterQueue cq;"
                " late of second counts"
            )
            assert (await made.status(name))["effectiveQuotas"][0]["nominalQuota"] == "3"


@virtual_time
async def test_a_window_that_began_while_no_manager_ran_is_applied_at_its_start() -> None:
    async with site(cpu=3) as made:
        async with leading(made.client, made.clock, ON):
            for name in ("a", "b", "c"):
                await made.workload(name)
                await asyncio.sleep(2)
            await made.schedule("drop", 10, 60, target(nominalQuota=1), onStart="Evict")
            await asyncio.sleep(60)
        await asyncio.sleep(20 * 60)
        assert await made.evicted() == {}
        async with leading(made.client, made.clock, ON):
            await asyncio.sleep(5)
            assert await made.evicted() == {"b": "QuotaWithdrawn", "c": "QuotaWithdrawn"}


@virtual_time
async def test_a_target_that_the_queue_does_not_declare_is_off_and_the_others_are_on() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.workload("w", cpu=4)
        missing = {"clusterQueue": "cq", "flavors": [{"name": "gone", "resources": [{"name": "cpu", "change": 1}]}]}
        await made.schedule("nights", -1, 60, target(nominalQuota=4), missing)
        await made.schedule("other", -1, 60, target(queue="nowhere", nominalQuota=4))
        await asyncio.sleep(5)
        assert await made.reserved() == ["w"]
        assert await made.ready("nights") == "False/UnknownFlavor: ClusterQueue cq declares no cpu in flavor gone"
        assert await made.ready("other") == "False/UnknownTarget: ClusterQueue nowhere does not exist"


@virtual_time
async def test_deleting_a_schedule_in_its_window_ends_it_at_once_and_wakes_who_fits() -> None:
    async with site(cpu=2) as made, leading(made.client, made.clock, ON):
        await made.schedule("service", -1, 600, target(nominalQuota=0))
        await made.workload("w", cpu=2)
        await asyncio.sleep(30)
        assert await made.reserved() == []
        await made.client.delete(SCHEDULES, "service")
        await asyncio.sleep(2)
        assert await made.reserved() == ["w"]


@virtual_time
async def test_a_reservation_moves_quota_to_the_class_at_its_start() -> None:
    async with server() as client:
        made = Site(client, VirtualClock(asyncio.get_running_loop()))
        await made.create("ResourceFlavor", "plain", {})
        await made.queue("research", 4, cohortName="all")
        await made.queue("class", 0, cohortName="all", preemption={"reclaimWithinCohort": "Any"})
        async with leading(client, made.clock, ON):
            for name in ("a", "b"):
                await made.workload(name, cpu=2, queue="research")
                await asyncio.sleep(2)
            await made.schedule(
                "lecture", 10, 120, target("research", change=-2), target("class", nominalQuota=2), onStart="Evict"
            )
            await made.workload("lesson", cpu=2, queue="class")
            await asyncio.sleep(10 * 60 + 5)
            assert "b" in await made.evicted()
            row = kind("Workload")
            await client.delete(row, "b", "default")
            await asyncio.sleep(5)
            assert "lesson" in await made.reserved()


@virtual_time
async def test_a_window_of_a_cohort_changes_what_its_queues_may_borrow() -> None:
    async with server() as client:
        made = Site(client, VirtualClock(asyncio.get_running_loop()))
        await made.create("ResourceFlavor", "plain", {})
        group = {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
        }
        await made.create("Cohort", "all", {"resourceGroups": [group]})
        await made.queue("cq", 1, cohortName="all")
        async with leading(client, made.clock, ON):
            cohort = {
                "cohort": "all",
                "flavors": [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": 1}]}],
            }
            await made.schedule("less", -1, 30, cohort)
            await made.workload("w", cpu=5)
            await asyncio.sleep(10 * 60)
            assert await made.reserved() == []
            await asyncio.sleep(21 * 60)
            assert await made.reserved() == ["w"]


@virtual_time
async def test_a_clock_that_is_set_back_over_an_edge_ends_the_window_again() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("nights", 10, 120, target(nominalQuota=4))
        await asyncio.sleep(11 * 60)
        assert (await made.status("nights"))["active"] == ["night"]
        made.clock.wrong_by_seconds = -1800
        await made.workload("w", cpu=4)
        await asyncio.sleep(60)
        assert await made.reserved() == []


async def waits_because(made: Site, name: str) -> str:
    found = await made.client.get(kind("Workload"), name, "default")
    (condition,) = (one for one in get(found, "status", "conditions") or () if one["type"] == "QuotaReserved")
    return f"{condition['status']}/{condition['reason']}: {condition['message']}"


@virtual_time
async def test_before_quota_falls_at_six_a_workload_of_three_hours_starts_at_two_and_waits_at_four() -> None:
    """Scenario 3 of quota schedules: it is midnight, and the night ends at six."""
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("nights", -1, 360, target(nominalQuota=4), approach="EndBefore")
        ends = made.at(360)
        await asyncio.sleep(120 * 60)
        await made.workload("two", cpu=2, maximumExecutionTimeSeconds=3 * 3600)
        await asyncio.sleep(120 * 60)
        await made.workload("four", cpu=2, maximumExecutionTimeSeconds=3 * 3600)
        await asyncio.sleep(5)
        assert await made.reserved() == ["two"]
        assert await waits_because(made, "four") == (
            "False/WaitingForQuota: The workload would still use 2 cpu of flavor plain when window night of QuotaSchedule"
            f" nights ends at {ends} (run-time limit 3h)"
        )


@virtual_time
async def test_a_workload_without_a_limit_starts_after_the_window_also_if_the_manager_was_restarted() -> None:
    """Scenario 4 of quota schedules."""
    async with site(cpu=2) as made:
        async with leading(made.client, made.clock, ON):
            await made.schedule("service", 60, 120, target(nominalQuota=0), window="disks", approach="EndBefore")
            begins = made.at(60)
            await made.workload("w", cpu=2)
            await asyncio.sleep(30 * 60)
            assert await waits_because(made, "w") == (
                "False/WaitingForQuota: The workload would still use 2 cpu of flavor plain when window disks of"
                f" QuotaSchedule service begins at {begins} (no run-time limit)"
            )
        async with leading(made.client, made.clock, ON):
            await asyncio.sleep(60 * 60)
            assert await made.reserved() == []
            await asyncio.sleep(30 * 60 + 5)
            assert await made.reserved() == ["w"]


@virtual_time
async def test_a_changed_schedule_lets_a_workload_start_that_it_held_back() -> None:
    async with site(cpu=2) as made, leading(made.client, made.clock, ON):
        await made.schedule("service", 60, 120, target(nominalQuota=0), approach="EndBefore")
        await made.workload("w", cpu=2)
        await asyncio.sleep(60)
        assert await made.reserved() == []
        await made.client.patch(SCHEDULES, "service", {"spec": {"approach": "Ignore"}})
        await asyncio.sleep(5)
        assert await made.reserved() == ["w"]


@virtual_time
async def test_an_unlimited_quota_is_shown_as_the_highest_number() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock, ON):
        await made.schedule("much", -1, 60, target(change="9e18"))
        await asyncio.sleep(5)
        (found,) = (await made.status("much"))["effectiveQuotas"]
        assert amounts.of_quota("cpu", quantity.parse(found["nominalQuota"])) == amounts.UNLIMITED
        assert "borrowingLimit" not in found


class RefusingTransport:
    """Refuses every write of the status of one schedule."""

    def __init__(self, inner: Transport, schedule: str) -> None:
        self._inner = inner
        self._path = f"/quotaschedules/{schedule}/status"
        self.refused = 0

    async def send(self, call: ApiRequest) -> ApiResponse:
        if call.path.endswith(self._path):
            self.refused += 1
            return ApiResponse(403, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}')
        return await self._inner.send(call)

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        return self._inner.stream(call)

    async def close(self) -> None:
        await self._inner.close()


@virtual_time
async def test_a_status_that_is_refused_delays_no_other_status_and_no_eviction() -> None:
    async with site(cpu=1) as made:
        transport = RefusingTransport(made.client._transport, "a")
        client = ApiClient(transport, random.Random(3))
        async with leading(client, made.clock, ON):
            await made.queue("other", cpu=1)
            await made.schedule("a", -1, 600, target("other", change="1"))
            await made.schedule("b", 60, 120, target(nominalQuota=0), onStart="Evict")
            await asyncio.sleep(59 * 60)
            await made.workload("w", cpu=1)
            await asyncio.sleep(55)
            assert transport.refused > 2
            assert (await made.status("b"))["next"]["window"] == "night"
            assert await made.reserved() == ["w"]
            await asyncio.sleep(10)
            assert await made.evicted() == {"w": "QuotaWithdrawn"}


@virtual_time
async def test_without_the_gate_a_schedule_has_no_effect() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock):
        await made.schedule("nights", -1, 60, target(nominalQuota=4))
        await made.workload("w", cpu=4)
        await asyncio.sleep(60)
        assert await made.reserved() == []
        assert await made.status("nights") == {}
