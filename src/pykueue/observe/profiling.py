"""The profiling server (`pprofBindAddress`): profile, stacks, heap, scheduler state.

The paths are those of Go's pprof, the formats are text: a profile is in folded stacks (`a;b;c 12`), which flame graph
tools and speedscope read. Nothing is sampled without a request. As with Kueue's pprof, the port has no authentication:
bind it to loopback, or leave it off.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from kubemachinery import http_messages

PREFIX: Final = "/debug/pprof/"
SECONDS: Final = 30.0
SECONDS_MAX: Final = 60.0
_EVERY_SECONDS: Final = 0.01
_TYPES_SHOWN: Final = 40
_TEXT: Final = "text/plain; charset=utf-8"

_INDEX: Final = {
    "profile": "CPU profile: folded stacks of all threads, sampled for ?seconds=N (default 30, maximum 60)",
    "goroutine": "the current stacks of all threads and asyncio tasks",
    "heap": "the number of objects of each type that the garbage collector tracks",
    "cmdline": "the command line",
    "state": "the state of the scheduler as JSON; SIGUSR2 writes the same to the log",
}


def handler(state: Callable[[], list[dict[str, Any]]]) -> http_messages.Handler:
    """Return the handler of the profiling server; `state` returns the state of the scheduler."""
    profiling = asyncio.Lock()

    async def answer(request: http_messages.Request) -> http_messages.Response:
        if request.method != "GET":
            return _plain(405, "method not allowed; use GET")
        name = request.path.removeprefix(PREFIX) if request.path.startswith(PREFIX) else None
        match name:
            case "":
                return _plain(200, "\n".join(f"{PREFIX}{path}  {what}" for path, what in _INDEX.items()))
            case "profile":
                seconds = _seconds(request.first("seconds"))
                if seconds is None:
                    return _plain(400, f"seconds must be a number above 0 and at most {SECONDS_MAX:g}")
                if profiling.locked():
                    return _plain(409, "another profile is in progress")
                async with profiling:
                    return _plain(200, await asyncio.to_thread(sampled, seconds))
            case "goroutine":
                return _plain(200, "\n".join(stacks()))
            case "heap":
                return _plain(200, "\n".join(heap()))
            case "cmdline":
                return _plain(200, "\0".join(sys.argv))
            case "state":
                return http_messages.Response(200, json.dumps(state()).encode())
        return _plain(404, f"{request.path} not found; see {PREFIX}")

    return answer


def _seconds(text: str) -> float | None:
    try:
        found = float(text or SECONDS)
    except ValueError:
        return None
    return found if 0 < found <= SECONDS_MAX else None


def sampled(seconds: float) -> str:
    """Return the folded stacks of all threads but this one, with the number of samples of each."""
    counts: Counter[str] = Counter()
    own, end = threading.get_ident(), time.monotonic() + seconds
    while time.monotonic() < end:
        for thread, frame in sys._current_frames().items():
            if thread != own:
                counts[";".join(reversed(list(_names(frame))))] += 1
        time.sleep(_EVERY_SECONDS)
    return "\n".join(f"{stack} {count}" for stack, count in counts.most_common())


def _names(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        code = frame.f_code
        yield f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}:{frame.f_lineno}"
        frame = frame.f_back


def stacks() -> Iterator[str]:
    """Yield the stacks of all threads and of all tasks of the running loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}"
        yield "".join(traceback.format_stack(frame))
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        yield f"task {task.get_name()}"
        frames = task.get_stack()
        yield "".join(traceback.format_list(traceback.extract_stack(frames[-1], 1))) if frames else "  (not started)\n"


def heap() -> Iterator[str]:
    """Yield the counts of objects that the garbage collector tracks, by type, most frequent first."""
    counts = Counter(type(thing).__qualname__ for thing in gc.get_objects())
    yield f"{sum(counts.values())} objects are tracked, {gc.get_freeze_count()} more are frozen"
    yield from (f"{count:>10} {name}" for name, count in counts.most_common(_TYPES_SHOWN))


def _plain(code: int, text: str) -> http_messages.Response:
    return http_messages.Response(code, text.encode() + b"\n", _TEXT)
