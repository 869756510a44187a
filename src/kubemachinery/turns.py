"""Turns of tasks on one event loop: a task with much to do lets others run every few milliseconds.

On a virtual clock, whose time stands still while a task runs, a turn does not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Final, TypeVar

# How long a task runs before it yields.
TURN_SECONDS: Final = 0.005

T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; between them, let other tasks run once this one has used its time."""
    now = asyncio.get_running_loop().time
    since = now()
    for item in items:
        yield item
        if now() - since > TURN_SECONDS:
            await asyncio.sleep(0)
            since = now()


async def stream_in_turns(items: AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield the items of a stream. Many of them may have arrived, so that reading does not wait: let other tasks run
    once the time that the caller needs for them is used up."""
    now, used = asyncio.get_running_loop().time, 0.0
    async for item in items:
        since = now()
        yield item
        used += now() - since
        if used > TURN_SECONDS:
            await asyncio.sleep(0)
            used = 0.0
