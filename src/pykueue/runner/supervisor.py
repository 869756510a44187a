"""One container's guardian: a small program that starts its process, keeps its log, and writes down how it ended.

It is started as `python -I -S supervisor.py FOLDER ATTEMPT LOCK` and lives on when the program that started it dies, so
that work survives a restart of `pykueue up`, even one by kill -9. It uses the standard library alone, because it has
to start in a moment. What it reads and leaves in the folder, for attempt 0:

    0.launch   what to run; emptied as soon as it is read, for it may hold secrets. Locked as long as a guardian lives
    0.pid      the guardian's process, and when it began
    0.log      a line each: time, stream, F for a whole line or P for a piece of one, and the text
    0.end      how it ended; it appears whole or not at all

SIGTERM is passed on to the process and all it started; SIGUSR1 means that they are to be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, Final, NoReturn

_LOG_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
# How long pipes are read after the process has ended: what it started may still hold them.
_DRAIN_SECONDS: Final = 0.5
_PARENT_DEATH_SIGNAL: Final = 1
_PASSED_ON: Final = {signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGKILL}
# As shells have it: found but not to be run, and not found.
_CANNOT_RUN, _NOT_FOUND = 126, 127


def main(folder: str, attempt: str, lock: str) -> None:
    path = os.path.join(folder, attempt)
    # The lock came with the file; whoever finds it free knows that no guardian is left.
    locked = int(lock)
    os.set_inheritable(locked, False)
    with open(f"{path}.launch") as file:
        launch = json.load(file)
    os.truncate(f"{path}.launch", 0)
    # A signal that comes before there is a process to pass it on to waits until there is.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    guardian = os.fork()
    if guardian:
        # Nobody's child any more: a program that starts it and one that finds it again are in the same position.
        _write(f"{path}.pid", f"{guardian} {launch['started']}")
        os._exit(0)
    os.setsid()
    with contextlib.closing(_Log(f"{path}.log")) as log:
        ended = _run(launch, log)
    _write(f"{path}.end", json.dumps(ended))


def _write(path: str, text: str) -> None:
    new = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(new, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


# --- The process ------------------------------------------------------------------------------------------------------


def _run(launch: dict[str, Any], log: _Log) -> dict[str, Any]:
    """Start the process, keep its log until it ends, and say how it did."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    failure, failure_end = os.pipe()
    child = os.fork()
    if not child:
        _become(launch, out_end, err_end, failure_end)
    for end in (out_end, err_end, failure_end):
        os.close(end)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: _signal(child, _PASSED_ON[signal.Signals(number)]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    # Empty when the program runs, since the pipe is closed on exec; else the words for why it does not.
    with open(failure, "rb") as file:
        why = file.read().decode(errors="replace")
    code = _follow(child, {out: b"stdout", err: b"stderr"}, woken, log)
    # Whatever it left behind goes with it, as in a container.
    _signal(child, signal.SIGKILL)
    return {"code": code if code >= 0 else 128 - code, "signal": max(-code, 0), "at": time.time_ns(), "why": why}


def _become(launch: dict[str, Any], out: int, err: int, failure: int) -> NoReturn:
    """In the child: take on the limits, the directory and the environment, and become the program."""
    code = _CANNOT_RUN
    try:
        os.setpgid(0, 0)
        if sys.platform == "linux":
            # No guardian, no process: what nobody watches must not go on running.
            ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        if "open_files" in launch:
            # The server raised its own soft limit. Programs of pods start with the usual one: some close every
            # descriptor below it, and `select` takes none above 1,023.
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (launch["open_files"], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
        for name, most in launch["limits"].items():
            resource.setrlimit(getattr(resource, name), (most, most))
        os.chdir(launch["directory"])
        os.execvpe(launch["command"][0], launch["command"], launch["environment"])
    except FileNotFoundError as error:
        code = _NOT_FOUND
        _explain(failure, launch, error)
    except BaseException as error:
        _explain(failure, launch, error)
    finally:
        os._exit(code)


def _explain(failure: int, launch: dict[str, Any], error: BaseException) -> None:
    named = getattr(error, "filename", None)
    about = named if isinstance(named, str) else launch["command"][0]
    os.write(failure, f"cannot run {about!r}: {getattr(error, 'strerror', None) or error}".encode())


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _follow(child: int, streams: dict[int, bytes], woken: int, log: _Log) -> int:
    """Copy what it says until it has ended; returns its code, or less than 0 for a signal."""
    code: int | None = None
    until, is_over = float("inf"), False
    while streams and not is_over:
        left = until - time.monotonic()
        # Once more when the time is over: whoever slept through it finds here all that was said before the end.
        is_over = left <= 0
        readable, _, _ = select.select([woken, *streams], [], [], None if code is None else max(left, 0.0))
        for stream in readable:
            if stream == woken:
                os.read(woken, 512)
            elif text := os.read(stream, _READ_BYTES):
                log.add(streams[stream], text)
            else:
                del streams[stream]
        if code is None and (code := _code(child, os.WNOHANG)) is not None:
            _signal(child, signal.SIGKILL)
            until = time.monotonic() + _DRAIN_SECONDS
    while code is None:
        code = _code(child, 0)
    return code


def _code(child: int, options: int) -> int | None:
    found, status = os.waitpid(child, options)
    return os.waitstatus_to_exitcode(status) if found else None


# --- Its log ----------------------------------------------------------------------------------------------------------


class _Log:
    """Lines as they come. A full file makes room for the next one, and only the last full one is kept."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._opened()

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, stream: bytes, text: bytes) -> None:
        now = time.time_ns()
        seconds, fraction = divmod(now, 1_000_000_000)
        head = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ %s " % (fraction, stream)
        *lines, rest = text.split(b"\n")
        written = b"".join(head + b"F " + line + b"\n" for line in lines)
        if rest:
            written += head + b"P " + rest + b"\n"
        # Where the disk is full, lines are lost and the process is not.
        with contextlib.suppress(OSError):
            while written:
                written = written[os.write(self._file, written) :]
            if os.fstat(self._file).st_size > _LOG_BYTES_MAX:
                os.replace(self._path, f"{self._path}.old")
                os.close(self._file)
                self._file = self._opened()

    def close(self) -> None:
        os.close(self._file)


if __name__ == "__main__":
    main(*sys.argv[1:])
