"""Keys that wait to be worked on: each once, however often it is added; later where asked; slower after failures.

A key that is added while somebody works on it waits until that is done, and then comes again: no two work on one key,
and no change is missed.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from kubemachinery.client.priority import NORMAL, QueuePriority

K = TypeVar("K", bound=Hashable)

_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 30.0


class WorkQueue(Generic[K]):
    """Fresh keys come first; those added as `patient` (a restart's whole list, say) wait until there are none."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._normal: deque[K] = deque()
        self._low: deque[K] = deque()
        self._waiting: dict[K, bool] = {}  # key -> whether it is fresh; what is in the two lines, or will be
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._delayed: list[tuple[float, int, K]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """How many keys wait to be taken now."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nobody works and nothing waits, not even for later."""
        return not self.busy and not self._due

    @property
    def busy(self) -> bool:
        """Whether somebody works, or something waits to be taken now."""
        return bool(self._waiting or self._processing)

    def add(self, key: K, *, priority: QueuePriority = NORMAL) -> None:
        """Have the key worked on soon."""
        if key in self._waiting:
            if priority is NORMAL and not self._waiting[key] and key not in self._processing:
                # It became urgent while it waited. The old entry is passed over when its turn comes.
                self._waiting[key] = True
                self._normal.append(key)
            return
        self._waiting[key] = priority is NORMAL
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Have the key worked on after a while; the earliest such wish counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = asyncio.get_running_loop().time() + seconds
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._delayed, (due, self._count, key))
            self._set_timer()

    def flush_delayed(self) -> None:
        """Have whatever waits for later worked on now."""
        hurried, self._due = list(self._due), {}
        self._delayed.clear()
        self._set_timer()
        for key in hurried:
            self.add(key)

    def add_rate_limited(self, key: K, at_least_seconds: float = 0.0) -> None:
        """Have it worked on again after a failure, each time after a longer pause."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 20), _LONGEST_PAUSE_SECONDS)
        self.add_after(key, max(pause * self._rng.uniform(1.0, 1.2), at_least_seconds))

    def num_requeues(self, key: K) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """It went well: the next failure starts with a short pause again."""
        self._failures.pop(key, None)

    async def get(self) -> K | None:
        """The next key; `done` must follow. None when the queue is closed."""
        while not self._closed:
            key = self._next()
            if key is not None:
                self._processing.add(key)
                return key
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()
                raise
        return None

    def done(self, key: K) -> None:
        """Work on the key is over; if it was added meanwhile, it lines up again."""
        self._processing.discard(key)
        if key in self._waiting:
            self._enqueue(key)

    def close(self) -> None:
        """Let everybody go home."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._getters:
            self._wake()

    def _next(self) -> K | None:
        for line, fresh in ((self._normal, True), (self._low, False)):
            while line:
                key = line.popleft()
                if self._waiting.get(key) is fresh and key not in self._processing:
                    del self._waiting[key]
                    return key
        return None

    def _enqueue(self, key: K) -> None:
        (self._normal if self._waiting[key] else self._low).append(key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._delayed[0][0], self._on_timer) if self._delayed else None

    def _on_timer(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._set_timer()
