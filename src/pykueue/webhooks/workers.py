"""Where reviews are decided: in threads beside the event loop, a bounded number at a time.

Any client that reaches the port can post reviews, and one review of megabytes takes a second of a CPU. So

    decisions run in a thread       the event loop, which schedules and serves other requests, continues meanwhile
    large reviews have one pool     and ordinary ones another: no number of large reviews can occupy the ordinary pool
    a full pool refuses at once     with 429 and Retry-After; an API server retries

One thread per pool: Python code of two threads would not run at the same time, and each more would take time from the
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Reviews of Workloads, Jobs and queues as users write them have 2 to 60 kB.
LARGE_BYTES: Final = 256 * 1024
# An API server has 200 writes in flight by default, and each may call two webhooks.
ORDINARY_MAX: Final = 400
LARGE_MAX: Final = 4


class AtCapacity(Exception):
    """The maximum number of reviews is in flight."""


class WorkerPool:
    """One thread, and a bound on the reviews that run or wait in it."""

    def __init__(self, name: str, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        # Its thread starts with the first review.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"webhook-{name}")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Occupy a place of the pool. Raises `AtCapacity`."""
        if self._in_flight >= self._in_flight_max:
            raise AtCapacity
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, called in the thread of the pool. It must be pure, as decisions are."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))


class WorkerPools:
    """The pool of ordinary reviews and the pool of large ones."""

    def __init__(self) -> None:
        self.ordinary = WorkerPool("ordinary", ORDINARY_MAX)
        self.large = WorkerPool("large", LARGE_MAX)

    def of(self, size: int | None) -> WorkerPool:
        """The pool of a review of that many bytes; one of unknown size counts as large."""
        return self.large if size is None or size > LARGE_BYTES else self.ordinary
