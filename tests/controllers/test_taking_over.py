"""Who takes over decides on all that its predecessor left behind, though its own copies may be late."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from controllers.conftest import Environment
from controllers.late_watch import Late
from kubemachinery.client.client import ApiClient
from kubemachinery.clock import SystemClock
from kubemachinery.unstructured import get
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager


async def test_quota_that_was_given_before_a_handover_is_not_given_again(env: Environment) -> None:
    late = Late(env.transport())
    client, choices = ApiClient(late, random.Random(3)), manager_options(settings.defaults())
    second = Manager(client, choices, SystemClock(), random.Random(3))
    await env.queues(cpu="1")
    await env.create("LocalQueue", "on-hold", {"clusterQueue": "cq", "stopPolicy": "Hold"})
    async with AsyncExitStack() as lives:
        async with env.manager() as first:
            await env.workload("next", queueName="on-hold")
            await env.until_quiet(first)
            await lives.enter_async_context(second.reading())
            late.go_on.clear()
            await env.workload("given")
            await env.until_condition("given", "Admitted", "True/Admitted")
        await env.patch("LocalQueue", "on-hold", {"spec": {"stopPolicy": "None"}})
        group = await lives.enter_async_context(asyncio.TaskGroup())
        leading = group.create_task(second.take_over())
        await asyncio.sleep(0.3)
        assert await env.admitted() == ["given"]
        late.go_on.set()
        await env.until_condition("next", "QuotaReserved", "False/WaitingForQuota")
        assert await env.admitted() == ["given"]
        leading.cancel()


async def test_a_job_that_no_watch_has_shown_yet_is_not_taken_for_deleted(env: Environment) -> None:
    """Its Workload would be finished, which is final: the job would never run."""
    late = Late(env.transport(), "jobs")
    client, choices = ApiClient(late, random.Random(3)), manager_options(settings.defaults())
    second = Manager(client, choices, SystemClock(), random.Random(3))
    await env.queues(cpu="1")
    async with AsyncExitStack() as lives:
        async with env.manager() as first:
            await lives.enter_async_context(second.reading())
            late.go_on.clear()
            for name in ("deleted", "kept"):
                await env.job(name)
            await env.until_quiet(first)
        await env.delete("Job", "deleted")
        group = await lives.enter_async_context(asyncio.TaskGroup())
        leading = group.create_task(second.take_over())
        await env.until_condition(await _workload(env, "deleted"), "Finished", "True/OwnerNotFound")
        kept = await _workload(env, "kept")
        await env.until_condition(kept, "Admitted", "True/Admitted")
        late.go_on.set()

        async def runs() -> bool:
            return get(await env.read("Job", "kept"), "spec", "suspend") is False

        await env.until(runs)
        assert await env.condition(kept, "Finished") == ""
        leading.cancel()


@pytest.mark.parametrize("end", ["", "Finished"], ids=["running", "finished"])
async def test_the_workload_of_a_job_that_was_created_again_is_not_deleted_for_the_cached_one(
    env: Environment, end: str
) -> None:
    """The watch of jobs still shows the job before it, whose pod sets do not match, and that of Workloads is ahead."""
    late = Late(env.transport(), "jobs")
    client, choices = ApiClient(late, random.Random(3)), manager_options(settings.defaults())
    second = Manager(client, choices, SystemClock(), random.Random(3))
    await env.queues(cpu="2")
    async with AsyncExitStack() as lives:
        async with env.manager() as first:
            await env.job("job", cpu="3")
            await env.until_quiet(first)
            before = await _workload(env, "job")
            await lives.enter_async_context(second.reading())
            late.go_on.clear()
            await env.delete("Job", "job")
            await env.until(lambda: _is_gone(env, before))
            await env.job("job", cpu="2")
            await env.until_quiet(first)
            workload = await _workload(env, "job")
            await env.until_condition(workload, "Admitted", "True/Admitted")
            if end:
                await env.finish(workload)
            await env.until_quiet(first)
        created = (await env.read("Workload", workload))["metadata"]["uid"]
        group = await lives.enter_async_context(asyncio.TaskGroup())
        leading = group.create_task(second.take_over())
        await env.workload("another", cpu="0")
        await env.until_condition("another", "Admitted", "True/Admitted")
        await env.until_quiet(second)
        assert (await env.read("Workload", workload))["metadata"]["uid"] == created
        late.go_on.set()
        await env.until_quiet(second)
        assert (await env.read("Workload", workload))["metadata"]["uid"] == created
        assert get(await env.read("Job", "job"), "spec", "suspend") is False
        leading.cancel()


async def _is_gone(env: Environment, workload: str) -> bool:
    return await env.find("Workload", workload) is None


async def _workload(env: Environment, job: str) -> str:
    """The name of the Workload of a job."""
    (found,) = [
        each["metadata"]["name"]
        for each in await env.all("Workload")
        if [owner["name"] for owner in each["metadata"]["ownerReferences"]] == [job]
    ]
    return str(found)


async def test_quota_of_a_job_that_no_watch_has_shown_running_yet_is_kept_until_it_has_stopped(
    env: Environment,
) -> None:
    """The watch of jobs still shows the job before its start: suspended and without pods, so that nothing seems to be
    left to stop."""
    late = Late(env.transport(), "jobs")
    client, choices = ApiClient(late, random.Random(3)), manager_options(settings.defaults())
    second = Manager(client, choices, SystemClock(), random.Random(3))
    await env.queues(cpu="1")
    await env.patch("LocalQueue", "lq", {"spec": {"stopPolicy": "Hold"}})
    async with AsyncExitStack() as lives:
        async with env.manager() as first:
            await env.job("job")
            await env.until_quiet(first)
            await lives.enter_async_context(second.reading())
            late.go_on.clear()
            await env.patch("LocalQueue", "lq", {"spec": {"stopPolicy": "None"}})
            workload = await _workload(env, "job")
            await env.until_condition(workload, "Admitted", "True/Admitted")
            await env.until_quiet(first)
            await env.amend("Job", "job", lambda status: {**status, "active": 1})
        await env.patch("LocalQueue", "lq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        group = await lives.enter_async_context(asyncio.TaskGroup())
        leading = group.create_task(second.take_over())
        await env.until_condition(workload, "Evicted", "True/LocalQueueStopped")
        await env.until_quiet(second)
        assert await env.condition(workload, "QuotaReserved") == "True/QuotaReserved"
        late.go_on.set()

        async def is_stopped() -> bool:
            return get(await env.read("Job", "job"), "spec", "suspend") is True

        await env.until(is_stopped)
        await env.until_quiet(second)
        assert await env.condition(workload, "QuotaReserved") == "True/QuotaReserved"
        await env.amend("Job", "job", lambda status: {**status, "active": 0})
        await env.until_condition(workload, "QuotaReserved", "False/Suspended")
        leading.cancel()
