"""The reconcile loop of every controller, and the one place where errors of a reconcile become retries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar

from kubemachinery import turns
from kubemachinery.client.errors import Busy, Conflict, KubeError, NotFound
from kubemachinery.client.priority import NORMAL, QueuePriority
from kubemachinery.client.workqueue import WorkQueue

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

# The result of a reconcile: None, or after how many seconds to requeue the key.
Result: TypeAlias = float | None
Reconcile: TypeAlias = Callable[[K], Awaitable[Result]]

_WARN_AFTER_FAILURES: Final = 5


class Controller(Generic[K]):
    """Workers that reconcile the keys of one work queue."""

    def __init__(self, name: str, reconcile: Reconcile[K], rng: random.Random, *, workers: int = 1) -> None:
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(rng)
        self._reconcile = reconcile
        self._workers = workers
        self._kind_of: Callable[[K], str] = lambda key: ""
        self._limits: Mapping[str, int] = {}
        self._running: Counter[str] = Counter()
        self._held: dict[str, deque[K]] = {}

    def limit_concurrency(self, kind_of: Callable[[K], str], limits: Mapping[str, int]) -> None:
        """Reconcile at most `limits[kind]` keys of a kind concurrently; a kind without a limit may use all workers.

        There are at least as many workers as the sum of the limits, so that no kind waits for another.
        """
        self._kind_of = kind_of
        self._limits = limits
        self._workers = max(self._workers, sum(limits.values()))

    @property
    def workers(self) -> int:
        return self._workers

    def add(self, key: K, *, priority: QueuePriority = NORMAL) -> None:
        self.queue.add(key, priority=priority)

    async def run(self) -> None:
        """Run the workers until cancelled; reconciles in progress are cancelled with them."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            self.queue.close()

    async def _work(self) -> None:
        turn = turns.current()
        while (taken := await self.queue.get()) is not None:
            key: K | None = taken
            if not self._limits:
                try:
                    await self.reconcile_once(taken)
                finally:
                    self.queue.done(taken)
                await turn.end_if_used_up()
                continue
            kind = self._kind_of(taken)
            limit = self._limits.get(kind)
            if limit is not None and self._running[kind] >= limit:
                # The worker that frees a slot of this kind takes it over. Until then the queue counts it as processing.
                self._held.setdefault(kind, deque()).append(taken)
                continue
            self._running[kind] += 1
            try:
                while key is not None:
                    try:
                        await self.reconcile_once(key)
                    finally:
                        self.queue.done(key)
                    waiting = self._held.get(kind)
                    key = waiting.popleft() if waiting else None
                    await turn.end_if_used_up()
            finally:
                self._running[kind] -= 1

    async def reconcile_once(self, key: K) -> None:
        """Reconcile one key. Errors are logged here and the key is requeued with backoff."""
        try:
            requeue_after_seconds = await self._reconcile(key)
        except Conflict as error:
            # Another client wrote first. The watch delivers its version; retry on it after the backoff.
            log.debug("%s %s: %s", self.name, key, error)
            self.queue.add_rate_limited(key)
        except NotFound as error:
            log.debug("%s %s: %s", self.name, key, error)
            self.queue.add_rate_limited(key)
        except Busy as error:
            self._failed(key, error, error.retry_after)
        except KubeError as error:
            self._failed(key, error, 0.0)
        except Exception:
            # A broken invariant: log the traceback, and continue with the other keys.
            log.exception("%s %s: reconciling failed", self.name, key)
            self.queue.add_rate_limited(key, 1.0)
        else:
            self.queue.forget(key)
            if requeue_after_seconds is not None:
                self.queue.add_after(key, requeue_after_seconds)

    def _failed(self, key: K, error: KubeError, at_least_seconds: float) -> None:
        self.queue.add_rate_limited(key, at_least_seconds)
        is_repeated = self.queue.num_requeues(key) >= _WARN_AFTER_FAILURES
        log.log(logging.WARNING if is_repeated else logging.INFO, "%s %s: %s", self.name, key, error)
