"""A work queue of keys: deduplicated, with delayed additions and per-key exponential backoff after failures.

A key that is added while it is being processed is queued again when the processing is done: no key is processed twice
at the same time, and no change is missed.
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

_INITIAL_BACKOFF_SECONDS: Final = 0.01
_MAX_BACKOFF_SECONDS: Final = 30.0
_OUTDATED_MIN: Final = 64
# So many outdated entries are skipped before other tasks run: a few milliseconds.
_SKIPPED_AT_ONCE: Final = 5_000
_NEVER: Final = float("inf")


class WorkQueue(Generic[K]):
    """Keys of normal priority first; keys of low priority, such as an initial list, when there are no others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._normal: deque[K] = deque()
        self._low: deque[K] = deque()
        self._waiting: dict[
            K, bool
        ] = {}  # key -> whether its priority is normal; the keys that are queued, or will be after `done`
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._delayed: list[tuple[float, int, K, QueuePriority]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None  # uvloop has no such attribute for a time that has passed
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """How many keys are queued, without the delayed ones."""
        return len(self._waiting)

    def __contains__(self, key: object) -> bool:
        """Whether the key is queued, or will be when its processing is done."""
        return key in self._waiting

    @property
    def idle(self) -> bool:
        """Whether no key is being processed, queued or delayed."""
        return not self.busy and not self._due

    @property
    def busy(self) -> bool:
        """Whether a key is being processed or queued."""
        return bool(self._waiting or self._processing)

    def add(self, key: K, *, priority: QueuePriority = NORMAL) -> None:
        """Queue the key, unless it is queued already."""
        if key in self._waiting:
            if priority is NORMAL and not self._waiting[key] and key not in self._processing:
                # Raised to normal priority while it waits. Its entry in the low queue is skipped later.
                self._waiting[key] = True
                self._normal.append(key)
            return
        self._waiting[key] = priority is NORMAL
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: K, seconds: float, *, priority: QueuePriority = NORMAL) -> None:
        """Queue the key after a delay; of several delays, the earliest counts, and its priority."""
        if seconds <= 0:
            self.add(key, priority=priority)
            return
        due = asyncio.get_running_loop().time() + seconds
        if due < self._due.get(key, _NEVER):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._delayed, (due, self._count, key, priority))
            self._drop_outdated()
            self._set_timer()

    def cancel_delay(self, key: K) -> None:
        """Cancel the delay of a key whose object is deleted. A key that is queued stays queued."""
        if self._due.pop(key, None) is not None:
            self._drop_outdated()
            self._set_timer()

    def flush_delayed(self) -> None:
        """Queue all delayed keys now."""
        delayed, self._due = list(self._due), {}
        self._delayed.clear()
        self._set_timer()
        for key in delayed:
            self.add(key)

    def add_rate_limited(self, key: K, at_least_seconds: float = 0.0) -> None:
        """Queue the key again after a failure, with a delay that doubles each time."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        backoff = min(_INITIAL_BACKOFF_SECONDS * 2 ** min(failures - 1, 20), _MAX_BACKOFF_SECONDS)
        self.add_after(key, max(backoff * self._rng.uniform(1.0, 1.2), at_least_seconds))

    def num_requeues(self, key: K) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Reset the backoff of the key after a success."""
        if self._failures:
            self._failures.pop(key, None)

    async def get(self) -> K | None:
        """Wait for the next key; the caller must call `done` with it. None when the queue is closed."""
        while not self._closed:
            key = self._next()
            if key is not None:
                self._processing.add(key)
                return key
            if self._normal or self._low:
                # Only outdated entries so far. Others that call `get` meanwhile skip the next ones.
                await asyncio.sleep(0)
                continue
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
        """End the processing of the key; if it was added meanwhile, queue it again."""
        self._processing.discard(key)
        if key in self._waiting:
            self._enqueue(key)

    def close(self) -> None:
        """Wake all waiting `get` calls with None and cancel the delays."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._getters:
            self._wake()

    def _next(self) -> K | None:
        """Take the first key; None if there is none among the first `_SKIPPED_AT_ONCE` entries. An entry is outdated
        if its key was raised to normal priority and has another entry."""
        skipped = 0
        for queued, normal in ((self._normal, True), (self._low, False)):
            while queued and skipped < _SKIPPED_AT_ONCE:
                key = queued.popleft()
                if self._waiting.get(key) is normal and key not in self._processing:
                    del self._waiting[key]
                    return key
                skipped += 1
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

    def _drop_outdated(self) -> None:
        """Remove the entries of cancelled and replaced delays once they are most of the heap. Otherwise the keys of
        deleted objects would stay for the whole of a long delay."""
        if len(self._delayed) > 2 * len(self._due) + _OUTDATED_MIN:
            self._delayed = [entry for entry in self._delayed if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._delayed)

    def _set_timer(self) -> None:
        due = self._delayed[0][0] if self._delayed else None
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._on_timer) if due is not None else None
        self._timer_at = due

    def _on_timer(self) -> None:
        self._timer = self._timer_at = None
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key, priority = heapq.heappop(self._delayed)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key, priority=priority)
        self._set_timer()
