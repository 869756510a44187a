"""The event loop, limits, garbage collector and signals of a process that serves."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

MONITOR_SECONDS: Final = 0.02


def event_loop() -> asyncio.Runner:
    """Return a runner on uvloop, or on the loop of asyncio where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


@asynccontextmanager
async def monitored_event_loop(observe: Callable[[float], None]) -> AsyncIterator[None]:
    """Inside the block, call `observe` many times a second with the seconds by which the event loop runs a timer late.

    A function that blocks the loop for a time delays the timer by that time, less one interval at most.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    # A timer and not a task that sleeps, which takes half as long again: this runs in every process that serves.
    def on_timer(due: float) -> None:
        observe(max(0.0, loop.time() - due))
        start()

    def start() -> None:
        nonlocal timer
        due = loop.time() + MONITOR_SECONDS
        timer = loop.call_at(due, on_timer, due)

    start()
    try:
        yield
    finally:
        timer.cancel()


# So many new objects are searched for cycles at once; what survives is searched once more after two such searches, and
# everything after 5,000 of those, if it has grown by a quarter. 6,000 objects take up to 30 ms in a large process.
_THRESHOLDS: Final = (2_000, 2, 5_000)
_NEVER: Final = 1_000_000_000
_is_growing = False


def tune_garbage_collector(*, is_growing: bool = False) -> None:
    """Make Python's garbage collector run rarely; call it once, when everything is set up.

    Requests make many short-lived trees and no cycles. With the usual thresholds the collector looks for cycles every
    few hundred objects and now and then walks everything that is kept: a quarter of the time of a write, measured.

    With `is_growing`, many objects that stay are still to be read. Until `objects_read`, only new ones are searched:
    a search of all would stop the process for a second per million.
    """
    global _is_growing
    _is_growing = is_growing
    gc.freeze()
    gc.set_threshold(_THRESHOLDS[0], _NEVER if is_growing else _THRESHOLDS[1], _THRESHOLDS[2])


def objects_read() -> None:
    """Exempt the objects that have been read since `tune_garbage_collector`. Does nothing in a process without it."""
    if _is_growing:
        tune_garbage_collector()


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Inside the block, the garbage collector runs rarely: for a long computation that makes no cycles."""
    before = gc.get_threshold()
    tune_garbage_collector()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files: each connection is one, and watches soon reach the usual limit of a shell."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536, hard))


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM, SIGINT or SIGHUP sets. From now on these signals do nothing else.

    SIGHUP comes when the terminal is closed; a program that was started with `nohup` ignores it.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until it ends or the event is set; cancel it then. Raise what it raised."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopping):
        task.cancel()
    for result in await asyncio.gather(working, stopping, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
