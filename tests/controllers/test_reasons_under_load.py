"""While Workloads are admitted, few reasons why others are pending are written; afterwards all of them are [CY26]."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from controllers.test_clock import kind, leading
from controllers.test_quota_schedules import Site, site
from kubemachinery.meta import format_time
from kubemachinery.unstructured import get
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager
from virtual import virtual_time

WORKLOADS = 200
HELD = "Suspended"
# So many at once, and ten in each second.
BURST, RATE = 20, 10
# The same in a rush, which is twenty admissions within a second.
RUSH_BURST, RUSH_RATE = 5, 4


async def reasons(made: Site) -> Counter[str]:
    """How many Workloads without quota have which reason."""
    counted: Counter[str] = Counter()
    for item in (await made.client.list(kind("Workload"))).items:
        for each in get(msgspec.json.decode(item), "status", "conditions") or ():
            if each["type"] == "QuotaReserved" and each["status"] == "False":
                counted[each["reason"]] += 1
    return counted


async def finish_admitted(made: Site) -> None:
    finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
    finished["lastTransitionTime"] = format_time(made.clock.now())
    for name in await made.reserved():
        found = await made.client.get(kind("Workload"), name, "default")
        conditions = [each for each in found["status"]["conditions"] if each["type"] != "Finished"]
        patch = {"status": {"conditions": [*conditions, finished]}}
        await made.client.patch(kind("Workload"), name, patch, "default", subresource="status")


@asynccontextmanager
async def released(*, are_alike: bool) -> AsyncIterator[Site]:
    """Many Workloads whose ClusterQueue, with quota for one of them, was on hold and is not any more.

    Those that are alike have a reason from the controller of Workloads, the others each from a decision of its own.
    """
    async with site(cpu=200) as made, leading(made.client, made.clock):
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "Hold"}})
        for number in range(WORKLOADS):
            await made.workload(f"w{number:03}", cpu=200 if are_alike else 200 - number % 99)
        await asyncio.sleep(60)
        assert await reasons(made) == {HELD: WORKLOADS}
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "None"}})
        yield made


@pytest.mark.parametrize("are_alike", [True, False])
@virtual_time
async def test_reasons_are_few_while_workloads_are_admitted_and_complete_soon_afterwards(are_alike: bool) -> None:
    async with released(are_alike=are_alike) as made:
        seconds = 6
        for _ in range(2 * seconds):
            await asyncio.sleep(0.5)
            await finish_admitted(made)
        found = await reasons(made)
        # Some of the writes are for a Workload that has a reason already, with another message.
        assert WORKLOADS - BURST - RATE * (seconds + 1) <= found[HELD] <= WORKLOADS - BURST - 2 * seconds
        await asyncio.sleep(3)
        found = await reasons(made)
        assert found[HELD] == 0
        assert found.total() == WORKLOADS - 2 * seconds - 1


@virtual_time
async def test_reasons_are_fewer_still_in_a_rush_of_admissions() -> None:
    async with site(cpu=200) as made, leading(made.client, made.clock):
        await made.queue("rush", cpu=1000)
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "Hold"}})
        for number in range(WORKLOADS):
            await made.workload(f"w{number:03}", cpu=200)
        await asyncio.sleep(60)
        assert await reasons(made) == {HELD: WORKLOADS}

        async def rush(seconds: int) -> None:
            for _ in range(10 * seconds):
                for _ in range(3):
                    await made.workload(f"admitted-{next(numbers)}", queue="rush")
                await asyncio.sleep(0.1)

        numbers = itertools.count()
        await rush(seconds=2)
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "None"}})
        seconds = 5
        await rush(seconds)
        found = await reasons(made)
        assert WORKLOADS - RUSH_BURST - RUSH_RATE * (seconds + 2) <= found[HELD] <= WORKLOADS - seconds
        await asyncio.sleep(3)
        assert (await reasons(made))[HELD] == 0
        assert len(await made.reserved()) == next(numbers) + 1


@virtual_time
async def test_reasons_are_written_soon_where_nothing_is_admitted() -> None:
    async with released(are_alike=True) as made:
        await asyncio.sleep(5)  # one was admitted
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "Hold"}})
        await asyncio.sleep(0.5)
        assert await reasons(made) == {HELD: WORKLOADS - 1}


@virtual_time
async def test_workloads_of_a_restarted_queue_are_admitted_before_their_reasons_are_written() -> None:
    async with site(cpu=WORKLOADS) as made, leading(made.client, made.clock):
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "Hold"}})
        for number in range(WORKLOADS):
            await made.workload(f"w{number:03}")
        await asyncio.sleep(60)
        before = (await made.client.list(kind("Workload"))).revision
        await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "None"}})
        await asyncio.sleep(60)
        assert len(await made.reserved()) == WORKLOADS
        written: Counter[str] = Counter()
        with suppress(TimeoutError):
            async with asyncio.timeout(1), made.client.watch(kind("Workload"), revision=before) as lines:
                async for line in lines:
                    conditions = get(msgspec.json.decode(line), "object", "status", "conditions") or ()
                    written.update(each["status"] for each in conditions if each["type"] == "QuotaReserved")
        assert written["True"] == WORKLOADS
        assert written["False"] <= BURST


@virtual_time
async def test_reason_follows_a_condition_that_no_change_of_the_queue_itself_precedes() -> None:
    """The ClusterQueue becomes inactive because of a cohort cycle."""
    async with site(cpu=1) as made, leading(made.client, made.clock):
        await made.queue("in-cohort", cpu=1, cohortName="a")
        await made.workload("too-large", cpu=2, queue="in-cohort")
        await asyncio.sleep(10)
        assert list(await reasons(made)) == ["ExceedsMaxQuota"]
        for name, parent in (("a", "b"), ("b", "a")):
            await made.create("Cohort", name, {"parentName": parent})
        await asyncio.sleep(10)
        assert list(await reasons(made)) == [HELD]


@virtual_time
async def test_a_manager_that_does_not_lead_writes_no_reasons() -> None:
    async with site(cpu=1) as made:
        async with leading(made.client, made.clock):
            await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "Hold"}})
            await made.workload("w", cpu=2)
            await asyncio.sleep(5)
        standby = Manager(made.client, manager_options(settings.defaults()), made.clock, random.Random(3))
        async with standby.reading():
            await made.client.patch(kind("ClusterQueue"), "cq", {"spec": {"stopPolicy": "None"}})
            await asyncio.sleep(5)
            assert await reasons(made) == {HELD: 1}
        async with leading(made.client, made.clock):
            await asyncio.sleep(5)
            assert HELD not in await reasons(made)
