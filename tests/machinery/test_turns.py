"""A task with much to do lets others run."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import pytest

from kubemachinery import turns


async def _turns_of_others(items: AsyncIterator[int]) -> int:
    """How often another task ran while the items were read."""
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert [item async for item in items] == list(range(100))
    task.cancel()
    return others


@pytest.mark.parametrize(
    ("seconds", "least", "most"), [(-1.0, 40, 101), (3600.0, 0, 1)], ids=["used up", "not used up"]
)
async def test_other_tasks_run_when_the_turn_is_used_up(seconds: float, least: int, most: int) -> None:
    turns.limit(asyncio.get_running_loop(), seconds)
    assert least <= await _turns_of_others(turns.in_turns(range(100))) <= most


def test_a_closed_loop_is_freed() -> None:
    async def use() -> weakref.ref[asyncio.AbstractEventLoop]:
        assert [item async for item in turns.in_turns(range(3))] == [0, 1, 2]
        return weakref.ref(asyncio.get_running_loop())

    used = asyncio.run(use())
    gc.collect()
    assert used() is None
