"""What goes on until somebody says that it is enough: Ctrl-C, or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


def told() -> asyncio.Event:
    """Is set when somebody says so; from now on that ends nothing by itself."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Work, also where it has only begun to, until told to stop. What goes wrong with it goes wrong here."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopping):
        task.cancel()
    for result in await asyncio.gather(working, stopping, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
