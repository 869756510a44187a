"""In a rush of decisions, statuses of queues, reasons and Events are a share of the writes [CY27]."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import msgspec
import pytest

from controllers.test_clock import kind, leading
from controllers.test_quota_schedules import Site, site
from kubemachinery.client.event_recorder import EVENTS
from kubemachinery.unstructured import get
from pykueue.controllers.background_writes import BackgroundWrites
from virtual import virtual_time

AT_ONCE, SHARE, PER_SECOND = 10, 0.05, 0.5


async def taken_in(writes: BackgroundWrites, seconds: float, *, decisions_per_second: int) -> int:
    """How many background writes are sent while decisions are written, if there are always more of them."""
    taken = 0

    async def take() -> None:
        nonlocal taken
        while True:
            await writes.take()
            taken += 1
            await asyncio.sleep(0.001)

    for _ in range(decisions_per_second):  # a rush has begun
        writes.decision_started()
    taking = asyncio.ensure_future(take())
    for _ in range(round(seconds * decisions_per_second)):
        await asyncio.sleep(1 / decisions_per_second)
        writes.decision_started()
    taking.cancel()
    return taken


@pytest.mark.parametrize("decisions_per_second", [25, 100, 400])
@virtual_time
async def test_background_writes_of_a_rush_are_one_for_twenty_and_one_in_two_seconds(decisions_per_second: int) -> None:
    seconds = 30
    taken = await taken_in(BackgroundWrites(lambda: False), seconds, decisions_per_second=decisions_per_second)
    share = seconds * (decisions_per_second * SHARE + PER_SECOND)
    assert share <= taken <= share + AT_ONCE + 1


@virtual_time
async def test_background_writes_are_not_limited_below_a_rush() -> None:
    writes = BackgroundWrites(lambda: False)
    for _ in range(10):
        writes.decision_started()
        await asyncio.sleep(0.1)
    assert not writes.is_rush
    assert [writes.take_now() for _ in range(100)] == [True] * 100


@virtual_time
async def test_writes_that_wait_make_a_rush_however_few_they_are() -> None:
    """A slow server answers few of them in a second."""
    is_full = True
    writes = BackgroundWrites(lambda: is_full)
    assert [writes.take_now() for _ in range(AT_ONCE + 2)] == [True] * AT_ONCE + [False] * 2
    await asyncio.sleep(6)
    assert [writes.take_now() for _ in range(5)] == [True] * 3 + [False] * 2
    is_full = False
    assert writes.take_now()


@virtual_time
async def test_a_rush_is_long_after_two_seconds_and_until_it_ends() -> None:
    writes = BackgroundWrites(lambda: False)
    long: list[bool] = []
    for _ in range(5):
        for _ in range(30):
            writes.decision_started()
            await asyncio.sleep(1 / 30)
        long.append(writes.is_long_rush)
    assert long == [False, False, True, True, True]
    await asyncio.sleep(1)
    assert not writes.is_long_rush
    for _ in range(30):  # another one
        writes.decision_started()
    assert writes.is_rush
    assert not writes.is_long_rush


async def admit_many(made: Site, seconds: int, numbers: itertools.count[int], queues: int) -> None:
    """60 Workloads per second, evenly among the queues."""
    for _ in range(10 * seconds):
        for _ in range(6):
            number = next(numbers)
            await made.workload(f"admitted-{number}", queue=f"q{number % queues}")
        await asyncio.sleep(0.1)


@virtual_time
async def test_requests_of_a_rush_are_few_more_than_its_admissions() -> None:
    queues, seconds = 40, 10
    async with site(cpu=1) as made, leading(made.client, made.clock):
        for number in range(queues):
            await made.queue(f"q{number}", cpu=10_000)
        await asyncio.sleep(10)
        numbers = itertools.count()
        await admit_many(made, 2, numbers, queues)  # the rush begins
        before = Counter(made.client.sent)
        await admit_many(made, seconds, numbers, queues)
        sent = Counter(made.client.sent) - before
        admitted = sent["PATCH", "workloads"]
        assert len(await made.reserved()) == next(numbers) == admitted + 2 * 60
        background = sum(
            count
            for (verb, plural), count in sent.items()
            if (verb, plural) == ("POST", "events") or plural in ("clusterqueues", "localqueues")
        )
        share = admitted * SHARE + seconds * PER_SECOND
        assert share - 1 <= background <= share + AT_ONCE, sent
        await asyncio.sleep(30)
        for number in range(queues):
            for row in ("ClusterQueue", "LocalQueue"):
                found = await made.client.get(kind(row), f"q{number}", "default" if row == "LocalQueue" else "")
                assert get(found, "status", "admittedWorkloads") == (admitted + 2 * 60) / queues


async def reasons_of_events(made: Site) -> Counter[str]:
    listed = (await made.client.list(EVENTS)).items
    return Counter(msgspec.json.decode(each)["reason"] for each in listed)


@virtual_time
async def test_admissions_of_a_short_rush_have_their_events() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock):
        await made.queue("q0", cpu=10_000)
        await asyncio.sleep(10)
        for number in range(60):
            await made.workload(f"w{number}", queue="q0")
        await asyncio.sleep(10)
        assert (await reasons_of_events(made))["Admitted"] == 60


@virtual_time
async def test_a_long_rush_leaves_out_events_of_admissions_and_no_others() -> None:
    async with site(cpu=1) as made, leading(made.client, made.clock):
        preempting = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        await made.queue("q0", cpu=10_000)
        await made.queue("small", cpu=1, **preempting)
        await made.workload("low", queue="small", priority=0)
        await asyncio.sleep(10)
        before = await reasons_of_events(made)
        rush = asyncio.ensure_future(admit_many(made, 10, itertools.count(), 1))
        await asyncio.sleep(5)
        await made.workload("high", queue="small", priority=10)
        await rush
        await asyncio.sleep(10)
        made_in_the_rush = await reasons_of_events(made) - before
        assert made_in_the_rush["Preempted"] == 1
        assert made_in_the_rush["EvictedDueToPreempted"] == 1
        # What the first two seconds have written, of 600.
        assert made_in_the_rush["Admitted"] < 60
        await made.workload("after", queue="q0")
        await asyncio.sleep(2)
        assert (await reasons_of_events(made) - before)["Admitted"] == made_in_the_rush["Admitted"] + 1


@virtual_time
async def test_queues_that_users_change_in_a_rush_wait_for_no_other_status() -> None:
    queues = 200
    async with site(cpu=1) as made, leading(made.client, made.clock):
        for number in range(queues):
            await made.queue(f"q{number}", cpu=10_000)
        await asyncio.sleep(10)
        numbers = itertools.count()
        rush = asyncio.ensure_future(admit_many(made, 20, numbers, queues))
        await asyncio.sleep(10)
        for number in range(20):
            await made.queue(f"created-{number}", cpu=1)
        await asyncio.sleep(1)
        for number in range(20):
            status = (await made.client.get(kind("ClusterQueue"), f"created-{number}"))["status"]
            assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Active", "True")]
        await rush
