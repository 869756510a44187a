"""QuotaSchedules whose targets move in the cohort tree, lose a flavor or are created again while a window is in force or
to come, with a manager that is restarted in the window; and windows on both levels of a tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controllers.test_clock import kind, leading
from controllers.test_quota_schedules import ON, Site, Tree, target, waits_because
from pykueue.testing.virtual_loop import VirtualClock
from virtual import server, virtual_time


def group(flavor: str = "plain", cpu: int = 0) -> Tree:
    quota = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
    return {"coveredResources": ["cpu"], "flavors": [quota]}


def of_cohort(name: str, **resource: Any) -> Tree:
    return {"cohort": name, "flavors": [{"name": "plain", "resources": [{"name": "cpu", **resource}]}]}


@asynccontextmanager
async def tree() -> AsyncIterator[Site]:
    """ClusterQueue `cq` of 1 cpu in Cohort `team`, below Cohort `left` of 4; and Cohort `right` of none."""
    async with server() as client:
        made = Site(client, VirtualClock(asyncio.get_running_loop()))
        for flavor in ("plain", "other"):
            await made.create("ResourceFlavor", flavor, {})
        await made.create("Cohort", "left", {"resourceGroups": [group(cpu=4)]})
        await made.create("Cohort", "right", {"resourceGroups": [group()]})
        await made.create("Cohort", "team", {"parentName": "left"})
        await made.queue("cq", 1, cohortName="team")
        yield made


async def change(made: Site, kind_name: str, name: str, spec: Tree) -> None:
    await made.client.patch(kind(kind_name), name, {"spec": spec})


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("moves", ["the cohort", "the ClusterQueue"])
@virtual_time
async def test_what_moves_below_another_cohort_has_the_windows_of_that_one(moves: str, restarts: bool) -> None:  # [QS1]
    async def move(to: str) -> None:
        if moves == "the cohort":
            await change(made, "Cohort", "team", {"parentName": to})
        else:
            await change(made, "ClusterQueue", "cq", {"cohortName": to})

    async with tree() as made:
        async with leading(made.client, made.clock, ON):
            await made.schedule("none", -1, 60, of_cohort("left", nominalQuota=0))
            await made.schedule("more", -1, 120, of_cohort("right", nominalQuota=6))
            await made.workload("w", cpu=5)
            await asyncio.sleep(60)
            assert await made.reserved() == []
            if not restarts:
                await move("right")
                await asyncio.sleep(60)
                assert await made.reserved() == ["w"]
        if restarts:
            await move("right")
        async with leading(made.client, made.clock, ON):
            await asyncio.sleep(60)
            assert await made.reserved() == ["w"]
            await made.workload("second", cpu=3)  # of 1 + 6 cpu, 5 are in use
            await asyncio.sleep(60)
            assert await made.reserved() == ["w"]


@virtual_time
async def test_a_window_of_a_cluster_queue_moves_with_it_and_evicts_in_its_cohort() -> None:  # [QS7]
    async with tree() as made, leading(made.client, made.clock, ON):
        await made.schedule("less", 3, 90, target(nominalQuota=0), onStart="Evict")
        await made.workload("w", cpu=1)
        await asyncio.sleep(60)
        assert await made.reserved() == ["w"]
        await change(made, "ClusterQueue", "cq", {"cohortName": "right"})
        await asyncio.sleep(2 * 60 + 5)
        assert await made.evicted() == {"w": "QuotaWithdrawn"}
        # Below `left` it could borrow; the ClusterQueue moves back in the window.
        await change(made, "ClusterQueue", "cq", {"cohortName": "team"})
        await asyncio.sleep(5 * 60)
        assert await made.reserved() == ["w"]


@pytest.mark.parametrize("restarts", [False, True])
@virtual_time
async def test_a_flavor_that_is_removed_and_added_again_in_the_window(restarts: bool) -> None:  # [QS3]
    async with tree() as made:
        async with leading(made.client, made.clock, ON):
            await made.schedule("nights", 1, 120, target(nominalQuota=8))
            await asyncio.sleep(120)
            assert (await made.ready("nights")).startswith("True/")
            await change(made, "ClusterQueue", "cq", {"resourceGroups": [group("other", 1)]})
            await asyncio.sleep(60)
            assert (await made.ready("nights")).startswith("False/UnknownFlavor")
            await made.workload("w", cpu=8)
            await asyncio.sleep(60)
            assert await made.reserved() == []
            if not restarts:
                await change(made, "ClusterQueue", "cq", {"resourceGroups": [group("plain", 1)]})
                await asyncio.sleep(60)
                assert await made.reserved() == ["w"]
        if restarts:
            await change(made, "ClusterQueue", "cq", {"resourceGroups": [group("plain", 1)]})
        async with leading(made.client, made.clock, ON):
            await asyncio.sleep(60)
            assert await made.reserved() == ["w"]
            assert (await made.ready("nights")).startswith("True/")


@virtual_time
async def test_a_planned_window_of_a_flavor_that_is_removed_holds_back_no_longer() -> None:  # [QS6]
    async with tree() as made, leading(made.client, made.clock, ON):
        await made.schedule("service", 60, 120, target(nominalQuota=0), approach="EndBefore")
        await change(made, "ClusterQueue", "cq", {"cohortName": "right"})
        await made.workload("w", cpu=1)
        await asyncio.sleep(60)
        assert "service begins at" in await waits_because(made, "w")
        await change(made, "ClusterQueue", "cq", {"resourceGroups": [group("other", 1)]})
        await asyncio.sleep(60)
        assert await made.reserved() == ["w"]


@virtual_time
async def test_a_cluster_queue_that_is_created_again_in_the_window_has_its_quota() -> None:  # [QS9]
    async with tree() as made, leading(made.client, made.clock, ON):
        await made.schedule("nights", 1, 120, target(nominalQuota=8))
        await asyncio.sleep(120)
        await made.client.delete(kind("ClusterQueue"), "cq")
        await asyncio.sleep(60)
        assert (await made.ready("nights")).startswith("False/UnknownTarget")
        await made.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": [group(cpu=1)]})
        await made.workload("w", cpu=8)
        await asyncio.sleep(60)
        assert await made.reserved() == ["w"]


@pytest.mark.parametrize(("own", "shared", "starts"), [(0, 6, True), (5, 0, True), (0, 0, False), (0, 4, False)])
@virtual_time
async def test_windows_on_both_levels_both_count(own: int, shared: int, starts: bool) -> None:  # [QS1], [QS4]
    """That of the ClusterQueue sets its quota, that of the cohort the quota that it borrows: they do not overlap."""
    async with tree() as made, leading(made.client, made.clock, ON):
        await made.schedule("of-queue", -1, 60, target(nominalQuota=own))
        await made.schedule("of-cohort", -1, 60, of_cohort("left", nominalQuota=shared))
        await made.workload("w", cpu=5)
        await asyncio.sleep(60)
        assert (await made.reserved() == ["w"]) is starts
        for name in ("of-queue", "of-cohort"):
            assert "Overlaps" not in await made.ready(name)
