"""Evictions that are not needed are not written: of Workloads that have not started, and for preemptors that have."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from controllers.conftest import Environment
from controllers.test_refused_writes import RefusingTransport, managed
from kubemachinery.client.informer import ObjectKey
from pykueue.controllers import write_limit
from pykueue.controllers.write_limit import WriteLimit
from pykueue.controllers.write_tasks import WriteTasks

_RECLAIM = {"reclaimWithinCohort": "Any"}


async def _queue(env: Environment, name: str, cpu: str) -> None:
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    spec = {"cohortName": "c", "namespaceSelector": {}, "resourceGroups": groups, "preemption": _RECLAIM}
    await env.create("ClusterQueue", name, spec)
    await env.create("LocalQueue", name, {"clusterQueue": name})


async def test_an_admission_that_is_preempted_in_the_same_pass_is_taken_back(env: Environment) -> None:
    """[CY24] `borrower` is admitted in the cycle in which `too-large` is the head of the owner's queue; in the next one
    `owner` has its turn and reclaims the quota. Both cycles run before anything is written."""
    await env.create("ResourceFlavor", "plain", {})
    await _queue(env, "lender", "2")
    await _queue(env, "lq", "0")
    await env.workload("too-large", "3", queueName="lender", priority=9)
    await env.workload("owner", "2", queueName="lender", priority=1)
    await env.workload("borrower", "2", priority=1)
    transport = RefusingTransport(env.transport())
    async with managed(env, transport):
        await env.until_condition("owner", "Admitted", "True/Admitted")
        await env.until_condition("borrower", "QuotaReserved", "False/WaitingForQuota")
    assert transport.having(b'"Preempted"') == []
    assert all("/borrower" not in call.path for call in transport.having(b'"podSetAssignments"'))


async def test_an_eviction_is_not_written_once_its_preemptor_is_admitted(env: Environment) -> None:
    """[CY25] The eviction waits, here for another write of the target, while the quota becomes free otherwise."""
    await env.queues(cpu="2", preemption={"withinClusterQueue": "LowerPriority"})
    async with env.manager() as manager:
        await env.workload("low", priority=1)
        await env.workload("other", priority=2)
        await env.until_condition("low", "Admitted", "True/Admitted")
        await env.until_condition("other", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        async with manager.writer.turn(ObjectKey("default", "low")):
            await env.workload("high", priority=3)
            held = manager.world.reservations
            await env.until(lambda: asyncio.sleep(0, held["default/low"].evicted))
            await env.finish("other")
            await env.until_condition("high", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        assert await env.condition("low", "Evicted") == ""
        assert not held["default/low"].evicted


def test_the_limit_of_writes_grows_while_they_take_no_longer() -> None:
    limit = WriteLimit()
    for _ in range(100):
        limit.answered(0.01, in_progress=limit.value)
    assert limit.value == write_limit.MOST


def test_the_limit_of_writes_falls_while_they_wait_for_each_other() -> None:
    limit = WriteLimit()
    for _ in range(100):
        limit.answered(0.01, in_progress=limit.value)
    for _ in range(100):
        limit.answered(0.1, in_progress=limit.value)
    assert limit.value == write_limit.LEAST


def test_the_limit_of_writes_stays_while_few_are_in_progress() -> None:
    limit = WriteLimit()
    for _ in range(100):
        limit.answered(0.01, in_progress=1)
    assert limit.value == write_limit.LEAST


async def test_as_many_writes_run_at_once_as_the_limit_allows() -> None:
    tasks, running, end = WriteTasks(), 0, asyncio.Event()

    async def write() -> None:
        nonlocal running
        running += 1
        await end.wait()
        running -= 1

    started = [tasks.start(write()) for _ in range(3 * write_limit.MOST)]
    await asyncio.sleep(0)
    assert running == write_limit.LEAST
    for expected in range(write_limit.LEAST + 1, write_limit.MOST + 1):
        tasks.answered(0.01)
        await asyncio.sleep(0)
        assert running == expected
    for _ in range(write_limit.MOST):
        tasks.answered(1.0)
    end.set()
    await asyncio.gather(*started)
    assert tasks.idle


async def test_writes_are_full_while_admissions_wait_and_not_after(env: Environment) -> None:
    await env.queues(cpu="100")
    names = [f"w{number}" for number in range(write_limit.LEAST)]
    async with env.manager() as manager, AsyncExitStack() as turns:
        applier = manager.scheduler.applier
        assert not applier.is_full
        for name in names:
            await turns.enter_async_context(manager.writer.turn(ObjectKey("default", name)))
        for name in names:
            await env.workload(name)
        await env.until(lambda: asyncio.sleep(0, applier.is_full))
        await turns.aclose()
        for name in names:
            await env.until_condition(name, "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        assert not applier.is_full
