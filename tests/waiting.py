"""Waiting for what others do in their own time, and time that waits for nobody.

Nothing here is in a hurry: a machine may be ten times slower than this one, and a test that waits in vain is broken
anyway. Where the seconds themselves are what a test is about, it runs on `virtual_time`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar, cast

from pykueue.simulate.loop import VirtualLoop

PATIENCE_SECONDS: Final = 90.0

P = ParamSpec("P")
T = TypeVar("T")


def until(asked: Callable[[], T]) -> T:
    """Ask until the answer is yes; the answer."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (answer := asked()):
        assert time.monotonic() < end, f"it did not come true: {answer!r}"
        time.sleep(0.02)
    return answer


async def eventually(asked: Callable[[], T | Awaitable[T]], pause_seconds: float = 0.01) -> T:
    """The same for whoever shares the loop with those who do it; the question may be one that is awaited."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_SECONDS
    while True:
        said = asked()
        answer = cast(T, await said if inspect.isawaitable(said) else said)
        if answer:
            return answer
        assert loop.time() < end, f"it did not come true: {answer!r}"
        await asyncio.sleep(pause_seconds)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test on a loop whose time jumps: what it says about seconds holds to the letter, on any machine."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(asyncio.sleep(3600))  # no machine starts anything at its very first moment
            runner.run(test(*args, **kwargs))

    return run
