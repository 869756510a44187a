"""An event loop without waiting: when nothing is ready, its time jumps to the next timer.

All timers of this program use the loop's time, so that an hour passes in a moment. There are no sockets, signals or
threads: the order of execution is deterministic.

A `Process` is a group of tasks that can be stopped and continued, like SIGSTOP and SIGCONT: its callbacks are held back
while time passes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVarTuple, Unpack, cast

from kubemachinery.meta import SECOND

_Arguments = TypeVarTuple("_Arguments")

# The initial time; any constant would do.
BEGINNING: Final = 1_900_000_000 * SECOND
# A system that runs this many iterations without time passing is in an endless loop.
_TURNS_MAX: Final = 2_000


class Stuck(Exception):
    """The loop has no timer left, or time does not pass."""


class Process:
    """Tasks that are stopped and continued together."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.held: list[asyncio.Handle] = []
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, context=self._context)

    def stop(self) -> None:
        self.is_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False
        held, self.held = self.held, []
        cast(VirtualLoop, asyncio.get_running_loop()).ready.extend(held)


_PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("process", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time advances only when no callback is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._selector = _Jump(self)
        self.ready: deque[asyncio.Handle] = getattr(self, "_ready")  # noqa: B009 - unknown to the type checker

    def time(self) -> float:
        return self._moment

    def jump(self, seconds: float | None) -> None:
        """Advance the time to the next timer."""
        timers: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - as above
        if seconds is None:
            raise Stuck("no callback is ready and no timer is set")
        if timers:
            self._moment = max(self._moment, timers[0].when())

    def call_soon(
        self,
        callback: Callable[[Unpack[_Arguments]], object],
        *args: *_Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None or not process.is_stopped:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        process.held.append(handle)
        return handle

    def _process_events(self, events: list[Any]) -> None:
        """There are no file descriptors."""

    def _write_to_self(self) -> None:
        """No other thread calls this loop."""


class _Jump:
    """The selector of the loop: it waits for nothing."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._turns = 0
            self._loop.jump(timeout)
        else:
            self._turns += 1
            if self._turns > _TURNS_MAX:
                self._turns = 0  # the caller may still shut the loop down
                moment = f"never idle at t={self._loop.time():g} s"
                raise Stuck(f"{moment}: {_TURNS_MAX} turns of the event loop without time passing")
        return []


class VirtualClock:
    """A clock of such a loop. `wrong_by_seconds` shifts `now`, and not `monotonic`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wrong_by_seconds = 0.0

    def now(self) -> int:
        return BEGINNING + round((self._loop.time() + self.wrong_by_seconds) * 1_000_000) * 1_000

    def monotonic(self) -> float:
        return self._loop.time()
