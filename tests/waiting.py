"""Waiting for what others do in their own time.

Timeouts are generous: a machine may be ten times slower than this one, and a test that times out is broken anyway.
Where the seconds themselves are what a test is about, it runs on virtual time (`virtual`).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast, overload

PATIENCE_SECONDS: Final = 90.0

T = TypeVar("T")


def until(asked: Callable[[], T | None], what: str = "what is awaited") -> T:
    """Ask until the answer is yes; the answer."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (answer := asked()):
        assert time.monotonic() < end, f"{what} does not come true: {answer!r}"
        time.sleep(0.02)
    return answer


@overload
async def eventually(asked: Callable[[], Awaitable[T | None]], pause_seconds: float = 0.01) -> T: ...
@overload
async def eventually(asked: Callable[[], T | None], pause_seconds: float = 0.01) -> T: ...
async def eventually(asked: Callable[[], T | Awaitable[T | None] | None], pause_seconds: float = 0.01) -> T:
    """The same inside an event loop; the condition may be awaitable."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_SECONDS
    while True:
        result = asked()
        answer = cast(T, await result if inspect.isawaitable(result) else result)
        if answer:
            return answer
        assert loop.time() < end, f"it did not come true: {answer!r}"
        await asyncio.sleep(pause_seconds)
