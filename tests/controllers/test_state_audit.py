"""The state that is updated incrementally equals one that is rebuilt from the objects."""

from __future__ import annotations

import logging

import pytest

from controllers.conftest import Environment


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
