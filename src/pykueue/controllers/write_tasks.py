"""Background tasks that write decisions, a limited number at once. The error of one task does not stop others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from kubemachinery.client.errors import Conflict, KubeError, NotFound
from pykueue.controllers.write_limit import WriteLimit

log = logging.getLogger(__name__)


class WriteTasks:
    """The tasks that are running."""

    def __init__(self) -> None:
        self._limit = WriteLimit()
        self._writes = asyncio.Semaphore(self._limit.value)
        self._in_progress = 0
        self._excess = 0  # slots that are not given again: the limit was lowered while they were in use
        self._running: dict[asyncio.Task[None], None] = {}

    @property
    def idle(self) -> bool:
        return not self._running

    @property
    def is_full(self) -> bool:
        """Whether a further write would have to wait for a slot."""
        return self._writes.locked()

    def answered(self, seconds: float) -> None:
        """Adapt the number of slots to the time that a write took."""
        change = self._limit.answered(seconds, self._in_progress)
        if change < 0:
            self._excess += 1
        elif change > 0:
            self._give_slot()

    def _give_slot(self) -> None:
        if self._excess:
            self._excess -= 1
        else:
            self._writes.release()

    async def wait_for_slot(self) -> None:
        """Return when one more write can start."""
        await self._writes.acquire()
        self._writes.release()

    async def close(self) -> None:
        """Cancel what is running, and wait for it to end."""
        tasks = tuple(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a write as soon as there is a slot."""
        return self.track(self._bounded(work))

    def track(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something without a slot; `close` cancels it too."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    async def _bounded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._writes.acquire()
            self._in_progress += 1
            try:
                await logging_errors(work)
            finally:
                self._in_progress -= 1
                self._give_slot()
        finally:
            work.close()


async def logging_errors(work: Coroutine[Any, Any, None]) -> None:
    """Run a write and log its error, so that one Workload does not stop the others."""
    try:
        await work
    except (Conflict, NotFound) as error:
        log.debug("a decision is outdated and was not written: %s", error)
    except KubeError as error:
        log.warning("a decision could not be written: %s", error)
    except Exception:
        # A broken invariant: the traceback is logged, and the other Workloads go on.
        log.exception("applying a decision failed")
