"""Where decisions about reviews run: in threads beside the event loop, a bounded number at a time.

Any client that reaches the port can post reviews, and one review of megabytes takes a second of a processor. So

    decisions run in a thread       the event loop, which schedules and answers others, goes on meanwhile
    large reviews have one lane     and ordinary ones another: the ordinary lane is a reserve that no number of
                                    large reviews can use up
    a full lane refuses at once     with 429 and Retry-After; an API server tries again by itself

One thread per lane: Python code of two threads of one lane would not run at the same time anyway, and each more would
take its share from the event loop.
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
# An API server has 200 writes in flight by default, and each may ask two webhooks.
ORDINARY_MAX: Final = 400
LARGE_MAX: Final = 4


class AtCapacity(Exception):
    """As many reviews are in flight as may be."""


class WorkerPool:
    """One thread, and a bound on the reviews that it has or that wait for it."""

    def __init__(self, name: str, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        # Its thread starts with the first review, and ends with the lane.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"webhook-{name}")

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the lane while inside. Raises Full."""
        if self._in_flight >= self._in_flight_max:
            raise AtCapacity
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, called in the thread of the lane. It must be pure, as decisions are."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))


class WorkerPools:
    """The lane of ordinary reviews and the lane of large ones."""

    def __init__(self) -> None:
        self.ordinary = WorkerPool("ordinary", ORDINARY_MAX)
        self.large = WorkerPool("large", LARGE_MAX)

    def of(self, size: int | None) -> WorkerPool:
        """The lane of a review of that many bytes; one of unknown size counts as large."""
        return self.large if size is None or size > LARGE_BYTES else self.ordinary
