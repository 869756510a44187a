"""Long work in threads, or in slices on the event loop: no request blocks the loop for more than some milliseconds.

The work that a small body causes on the event loop takes some ten milliseconds. Lists are encoded in slices
(`yield_to_loop`). What grows with a large body or a foreign schema (parsing, pruning, validation, CEL,
patterns, patches, ownership of fields) runs in `Workers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import Final, TypeVar

from kubemachinery.turns import TURN_SECONDS

# How many items a task handles between two reads of the clock.
SLICE: Final = 50

T = TypeVar("T")


async def yield_to_loop(items: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield a list in slices; between them, let other tasks run once this one has used its time."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    start, size = 0, SLICE
    while start < len(items):
        if (now := loop.time()) - since > TURN_SECONDS:
            # Items that take long come in smaller slices, down to one by one.
            size = max(1, size // 4) if now - since > 4 * TURN_SECONDS else size
            await asyncio.sleep(0)
            since = loop.time()
        yield items[start : start + size]
        start += size


# Work on more bytes than this is long. A body of many small fields takes about a microsecond for each of its bytes.
LONG_BYTES: Final = 64 * 1024


class Workers:
    """Threads for long work, shared fairly: of each user one piece at a time, of all users as many as `running_max`.

    The piece of work is Python, so the event loop gets its turns while it runs. It must depend only on values that no
    other task changes. Without an executor everything runs in line, as simulations need it.
    """

    def __init__(self, executor: Executor | None = None, running_max: int = 2) -> None:
        self._executor = executor
        self._running = asyncio.Semaphore(running_max)
        self._users: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    async def run(self, user: str, function: Callable[[], T], *, is_long: bool = True) -> T:
        """The result of `function`, which runs in a thread where it `is_long`."""
        if self._executor is None or not is_long:
            return function()
        lock, waiting = self._users.setdefault(user, (asyncio.Lock(), []))
        waiting.append(None)
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(lock)
                await stack.enter_async_context(self._running)
                work = asyncio.get_running_loop().run_in_executor(self._executor, function)
                try:
                    return await asyncio.shield(work)
                except asyncio.CancelledError:
                    # The client disconnected; the thread cannot be stopped, and holds its slot until it is done.
                    await asyncio.wait([work])
                    raise
        finally:
            waiting.pop()
            if not waiting:
                self._users.pop(user, None)
