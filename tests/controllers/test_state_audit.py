"""The memory that is kept up says what one built anew from the objects would say."""

from __future__ import annotations

import logging

import pytest

from controllers.conftest import Story


async def test_a_busy_story_leaves_no_difference(story: Story) -> None:
    await story.queues(cpu="3", preemption={"withinClusterQueue": "LowerPriority"})
    async with story.manager() as manager:
        for number in range(8):
            await story.workload(f"w{number}", priority=number % 3)
        await story.until_quiet(manager)
        for name in (await story.admitted())[:2]:
            await story.finish(name)
        await story.until_quiet(manager)
        await story.delete("Workload", "w7")
        await story.patch("Workload", "w6", {"spec": {"active": False}})
        await story.until_quiet(manager)
        assert await manager.auditor.look() == []


async def test_a_difference_is_told_and_counted(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    await story.queues(cpu="3")
    async with story.manager() as manager:
        await story.workload("forgotten")
        await story.until_said("forgotten", "Admitted", "True/Admitted")
        await story.until_quiet(manager)
        shown = manager.views.workloads.get("forgotten", "default")
        manager.world.drop(shown)
        with caplog.at_level(logging.ERROR):
            found = await manager.auditor.look()
        assert "default/forgotten: holds quota only after a rebuild" in caplog.text
        assert found
        series = f'pykueue_memory_differences_total{{replica_role="standalone"}} {len(found)}.0'
        assert series in manager.metrics.exposition().decode()
