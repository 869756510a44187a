"""The event loop of a process that serves."""

from __future__ import annotations

import asyncio
import threading

from kubemachinery.process import MONITOR_SECONDS, monitored_event_loop


async def test_function_that_blocks_the_event_loop_is_observed_as_a_delay() -> None:
    delays: list[float] = []
    async with monitored_event_loop(delays.append):
        await asyncio.sleep(2 * MONITOR_SECONDS)
        threading.Event().wait(10 * MONITOR_SECONDS)  # blocks the loop
        await asyncio.sleep(2 * MONITOR_SECONDS)
    assert max(delays) >= 9 * MONITOR_SECONDS


async def test_monitor_ends_with_the_block() -> None:
    observed = asyncio.Event()
    async with monitored_event_loop(lambda seconds: observed.set()):
        await observed.wait()
    observed.clear()
    await asyncio.sleep(3 * MONITOR_SECONDS)
    assert not observed.is_set()
