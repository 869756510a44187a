"""Background tasks that write decisions, at most a fixed number at once. The error of one task does not stop others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from kubemachinery.client.errors import Conflict, KubeError, NotFound

log = logging.getLogger(__name__)

# An API server calls our webhooks for each of them, and keeps at most 25 connections for that.
_WRITES_AT_ONCE: Final = 24


class WriteTasks:
    """The tasks that are running."""

    def __init__(self) -> None:
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._running: dict[asyncio.Task[None], None] = {}

    @property
    def idle(self) -> bool:
        return not self._running

    async def wait_for_slot(self) -> None:
        """Return when one more write can start."""
        async with self._writes:
            pass

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
            async with self._writes:
                await logging_errors(work)
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
