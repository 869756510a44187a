"""An event loop without waiting: when nothing is ready, its time jumps to the next timer.

Everything that waits by the loop's own time, which is everything in this program, goes through an hour in a moment.
There are no sockets, no signals and no threads, so what happens next depends on nothing but what happened before.

A `Process` is a part of the loop that can be stopped and go on, as SIGSTOP and SIGCONT do to a real one: what its tasks
would do meanwhile is held back, and time passes for it all the same.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVarTuple, Unpack, cast

from kubemachinery.meta import SECOND

_Arguments = TypeVarTuple("_Arguments")

# When the stories begin; any moment would do, as long as it is always the same.
BEGINNING: Final = 1_900_000_000 * SECOND
# A system that does this many things without a moment passing goes round in circles.
_TURNS_MAX: Final = 2_000


class Stuck(Exception):
    """Nothing will ever happen again, or time does not pass any more."""


class Process:
    """What runs in its context stops and goes on with it."""

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
    """Time that passes only when nobody has anything to do."""

    def __init__(self) -> None:
        super().__init__()
        self._moment = 0.0
        self._selector = _Jump(self)
        self.ready: deque[asyncio.Handle] = getattr(self, "_ready")  # noqa: B009 - unknown to the type checker

    def time(self) -> float:
        return self._moment

    def jump(self, seconds: float | None) -> None:
        """Nothing is ready for so long: go to the moment when something is."""
        timers: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - as above
        if seconds is None:
            raise Stuck("nobody is ready, and nobody waits for a time")
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
        """There are no files to be ready."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class _Jump:
    """Stands where a loop asks the system what is ready."""

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
                self._turns = 0  # whoever catches this may still end what runs here in good order
                moment = f"never idle at t={self._loop.time():g} s"
                raise Stuck(f"{moment}: {_TURNS_MAX} turns of the event loop without time passing")
        return []


class VirtualClock:
    """A clock that reads such a loop. Somebody may set it; what measures durations is not touched by that."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wrong_by_seconds = 0.0

    def now(self) -> int:
        return BEGINNING + round((self._loop.time() + self.wrong_by_seconds) * 1_000_000) * 1_000

    def monotonic(self) -> float:
        return self._loop.time()
