"""Replays side by side: each of a batch in a process of its own, where there are cores for it.

Replays share nothing, so their results do not depend on where they run. A process gets its task when it starts. Its
connection to this one has the progress and the result in one direction; in the other direction there is nothing but its
end, at which the process stops: a replay does not outlive the program that asked for it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final, NamedTuple

from msgspec.structs import replace

from kubemachinery import process
from pykueue.analysis.measures import JobOutcome
from pykueue.analysis.planner import Case
from pykueue.analysis.trace_replay import Replay, TraceDraws, replay
from pykueue.analysis.traces import Trace

log = logging.getLogger(__name__)

# Of a smaller trace, a replay takes less time than the start of a process.
JOBS_MIN: Final = 3_000
_POLL_SECONDS: Final = 0.2


class ReplayTask(NamedTuple):
    """One replay to run, with the name of its column."""

    name: str
    case: Case
    trace: Trace
    draws: TraceDraws


def processes_for(trace: Trace) -> int:
    """How many replays of a trace to run at a time: as many as there are cores, if it is worth it."""
    if len(trace.jobs) < JOBS_MIN:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    tasks: Sequence[ReplayTask],
    *,
    processes: int = 1,
    report: Callable[[str], None] = lambda _: None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> list[Replay | None]:
    """The replays of the tasks, in their order; None for those that were not begun when `may_go_on` returned False."""
    found: list[Replay | None] = []
    while len(found) < len(tasks) and may_go_on():
        first, *others = tasks[len(found) : len(found) + max(1, processes)]
        begun = [_Child(task) for task in others]
        try:
            found.append(_run(first, report, may_go_on))
            found.extend(child.result(report, may_go_on) for child in begun)
        finally:
            for child in begun:
                child.close()
    return found + [None] * (len(tasks) - len(found))


def _run(task: ReplayTask, report: Callable[[str], None], may_go_on: Callable[[], bool]) -> Replay:
    named = f"{task.name}: "
    return replay(task.case, task.trace, task.draws, report=lambda text: report(named + text), may_go_on=may_go_on)


class _Child:
    """A replay in a process of its own."""

    def __init__(self, task: ReplayTask) -> None:
        self._task = task
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(task, theirs), daemon=True)
        with _ignored_interrupts():
            self._process.start()
        theirs.close()

    def result(self, report: Callable[[str], None], may_go_on: Callable[[], bool]) -> Replay:
        """The replay, once it has ended. A replay whose process ended without a result is run in this one."""
        is_stopped = False
        try:
            while True:
                if not is_stopped and not may_go_on():
                    is_stopped = True
                    self._connection.send(None)
                if self._connection.poll(_POLL_SECONDS):
                    match self._connection.recv():
                        case str() as text:
                            report(text)
                        case (Replay() as found, list() as attempts):
                            jobs = zip(self._task.trace.jobs, attempts, strict=True)
                            return replace(found, outcomes=tuple(JobOutcome(*each) for each in jobs))
        except (EOFError, OSError):
            self._process.join()
            log.warning(
                "the process of a replay ended with exit code %s; the replay is run again", self._process.exitcode
            )
            return _run(self._task, report, may_go_on)

    def close(self) -> None:
        """End the process, if it has not ended."""
        self._connection.close()
        self._process.join()


def _work(task: ReplayTask, connection: Connection) -> None:
    """Run a task in this process, until it is done or the other end of the connection stops it."""
    try:
        with process.rare_garbage_collection():
            found = _run(task, connection.send, lambda: not connection.poll())
        # Without the jobs of the trace, which the other process has.
        connection.send((replace(found, outcomes=()), [each.attempts for each in found.outcomes]))
    except OSError:
        pass  # the other process has ended


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Ctrl-C reaches every process of a terminal, and the first process decides what it means. What it ignores while
    it starts another process, that one ignores always."""
    if threading.current_thread() is not threading.main_thread():
        yield  # cannot be set here
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
