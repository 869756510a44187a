"""The state that is updated incrementally equals one that is rebuilt from the objects."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from controllers.conftest import Environment
from controllers.test_quota_schedules import site
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers import state_audit
from pykueue.controllers.assembly import Manager
from pykueue.controllers.state_audit import StateAuditor
from virtual import virtual_time


async def test_a_busy_run_leaves_no_difference(env: Environment) -> None:
    await env.queues(cpu="3", preemption={"withinClusterQueue": "LowerPriority"})
    async with env.manager() as manager:
        for number in range(8):
            await env.workload(f"w{number}", priority=number % 3)
        await env.until_quiet(manager)
        for name in (await env.admitted())[:2]:
            await env.finish(name)
        await env.until_quiet(manager)
        await env.delete("Workload", "w7")
        await env.patch("Workload", "w6", {"spec": {"active": False}})
        await env.until_quiet(manager)
        assert await manager.auditor.look() == []


async def test_a_difference_is_logged_and_counted(env: Environment, caplog: pytest.LogCaptureFixture) -> None:
    await env.queues(cpu="3")
    async with env.manager() as manager:
        await env.workload("forgotten")
        await env.until_condition("forgotten", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        shown = manager.informers.workloads.get("forgotten", "default")
        assert shown is not None
        manager.world.drop(shown)
        with caplog.at_level(logging.ERROR):
            found = await manager.auditor.look()
        assert "default/forgotten: holds quota only after a rebuild" in caplog.text
        assert found
        series = f'pykueue_memory_differences_total{{replica_role="standalone"}} {len(found)}.0'
        assert series in manager.metrics.exposition().decode()


@pytest.mark.parametrize(("workloads_per_second", "audits"), [(100, 3), (1, 1)])
@virtual_time
async def test_many_workloads_are_compared_less_often(
    workloads_per_second: int, audits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every minute, or as many seconds as they take at the given number per second: with 120 of them, two minutes."""
    monkeypatch.setattr(state_audit, "_WORKLOADS_PER_SECOND", workloads_per_second)
    async with site(cpu=1) as made:
        options = manager_options(settings.defaults())
        manager = Manager(made.client, options, made.clock, random.Random(3))
        for number in range(120):
            await made.workload(f"w{number:03}")
        async with manager.reading():
            counted: list[int] = []
            auditor = StateAuditor(manager.informers, manager.world, options.empty_world, made.clock, counted.append)
            task = asyncio.create_task(auditor.run())
            await asyncio.sleep(185)
            task.cancel()
        assert counted == [0] * audits
