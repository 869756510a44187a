"""One container's guardian: a small program that starts its process, keeps its log, and writes down how it ended.

It is started as `python -I -S supervisor.py FOLDER ATTEMPT LOCK` and lives on when the program that started it dies, so
that work survives a restart of `pykueue up`, even one by kill -9. It uses the standard library alone, because it has
to start in a moment. What it reads and leaves in the folder, for attempt 0:

    0.launch   what to run; emptied as soon as it is read, for it may hold secrets. Locked as long as a guardian lives
    0.pid      the guardian's process, and when it began
    0.log      a line each: time, stream, F for a whole line or P for a piece of one, and the text
    0.end      how it ended; it appears whole or not at all

SIGTERM is passed on to the process group of the process; SIGUSR1 means that it and everything below it is killed. When
the process has ended, everything below it is killed as well. On Linux that includes processes that left its group or
its session: the guardian is the subreaper of its descendants, so that none of them can leave its tree.

A memory limit holds for all of these processes together. In a control group (cgroup v2) that this user may use, the
kernel enforces it; otherwise the guardian looks at what they use, about ten times a second, and kills them where it is
too much.
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
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

_LOG_BYTES_MAX: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
# How long pipes are read after the process has ended: what it started may still hold them.
_DRAIN_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 30.0
_PARENT_DEATH_SIGNAL: Final = 1
_CHILD_SUBREAPER: Final = 36
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
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    name = f"pykueue-{os.path.basename(os.path.dirname(folder))}-{os.path.basename(folder)}-{attempt}"
    with contextlib.closing(_Log(f"{path}.log")) as log:
        ended = _run(launch, log, name)
    _write(f"{path}.end", json.dumps(ended))


def _write(path: str, text: str) -> None:
    new = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(new, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


# --- The process ------------------------------------------------------------------------------------------------------


def _run(launch: dict[str, Any], log: _Log, name: str) -> dict[str, Any]:
    """Start the process, keep its log until it ends, and say how it did."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    failure, failure_end = os.pipe()
    memory_bytes = launch.get("memory_bytes")
    group = _control_group(name, memory_bytes) if memory_bytes is not None else None
    child = os.fork()
    if not child:
        _become(launch, out_end, err_end, failure_end, group)
    for end in (out_end, err_end, failure_end):
        os.close(end)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    tree = _ProcessTree(child, memory_bytes, group)
    signal.signal(signal.SIGTERM, lambda *_: _signal(child, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: tree.kill())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    # Empty when the program runs, since the pipe is closed on exec; else the words for why it does not.
    with open(failure, "rb") as file:
        why = file.read().decode(errors="replace")
    code = _follow(child, {out: b"stdout", err: b"stderr"}, woken, log, tree)
    tree.end()
    ended = {"code": code if code >= 0 else 128 - code, "signal": max(-code, 0), "at": time.time_ns(), "why": why}
    if (excess := tree.out_of_memory()) and code:
        ended |= {"code": 137, "signal": 9, "reason": "OOMKilled", "why": excess}
    return ended


def _become(launch: dict[str, Any], out: int, err: int, failure: int, group: str | None) -> NoReturn:
    """In the child: take on the limits, the directory and the environment, and become the program."""
    code = _CANNOT_RUN
    try:
        os.setpgid(0, 0)
        if group is not None:
            _put(os.path.join(group, "cgroup.procs"), "0")
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


def _follow(child: int, streams: dict[int, bytes], woken: int, log: _Log, tree: _ProcessTree | None = None) -> int:
    """Copy what it says until it has ended; returns its code, or less than 0 for a signal."""
    code: int | None = None
    until, is_over = float("inf"), False
    while code is None or (streams and not is_over):
        left = until - time.monotonic()
        # Once more when the time is over: whoever slept through it finds here all that was said before the end.
        is_over = left <= 0
        pause = (tree.look_seconds if tree is not None else None) if code is None else max(left, 0.0)
        readable, _, _ = select.select([woken, *streams], [], [], pause)
        for stream in readable:
            if stream == woken:
                os.read(woken, 512)
            elif text := os.read(stream, _READ_BYTES):
                log.add(streams[stream], text)
            else:
                del streams[stream]
        if tree is not None:
            tree.look()
        if code is None and (code := _code(child, os.WNOHANG)) is not None:
            # What it left behind ends with it, as in a container.
            _signal(child, signal.SIGKILL) if tree is None else tree.kill()
            until = time.monotonic() + _DRAIN_SECONDS
    return code


def _code(child: int, options: int) -> int | None:
    found, status = os.waitpid(child, options)
    return os.waitstatus_to_exitcode(status) if found else None


# --- What it started --------------------------------------------------------------------------------------------------


class _ProcessTree:
    """The process and everything that it started, however far away: nothing leaves the tree of a subreaper."""

    def __init__(self, child: int, memory_bytes: int | None, group: str | None) -> None:
        self._child = child
        self._memory_bytes = memory_bytes
        self._group = group
        self._excess = ""
        # How long to wait for something to happen before the memory is looked at; None where the kernel looks.
        self.look_seconds = _LOOK_SECONDS if memory_bytes is not None and group is None else None

    def look(self) -> None:
        """Fetch those that ended, but for the process itself; kill all where they use too much memory."""
        if sys.platform != "linux":
            return
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid == self._child:
                    break  # whoever waits for it wants to know how it ended
                os.waitpid(found.si_pid, 0)
        if self._memory_bytes is None or self._group is not None or self._excess:
            return
        began = time.monotonic()
        used = _memory(_below(os.getpid()), self._memory_bytes)
        # A twentieth of a processor at most, on a machine with however many processes.
        self.look_seconds = max(_LOOK_SECONDS, 20 * (time.monotonic() - began))
        if used > self._memory_bytes:
            self._excess = f"its processes used {used >> 20} MiB of memory; the limit is {self._memory_bytes >> 20} MiB"
            self.kill()

    def out_of_memory(self) -> str:
        """Why it was killed, if that was for its memory."""
        if self._group is not None and (kills := _number(os.path.join(self._group, "memory.events"), "oom_kill")):
            return f"the kernel killed {kills} processes: the memory limit is {(self._memory_bytes or 0) >> 20} MiB"
        return self._excess

    def kill(self) -> None:
        """Kill all of it, once."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                _put(os.path.join(self._group, "cgroup.kill"), "1")
        _signal(self._child, signal.SIGKILL)
        _kill(_below(os.getpid()))

    def end(self) -> None:
        """Kill what is left until nothing is: what was being started meanwhile is found the next time."""
        until = time.monotonic() + _END_SECONDS  # one that the kernel does not let die has been killed nevertheless
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    _kill(_below(os.getpid()))
                    time.sleep(0.002)
        if self._group is not None:
            self._excess = self.out_of_memory()
            group, self._group = self._group, None
            with contextlib.suppress(OSError):
                os.rmdir(group)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _below(ancestor: int) -> list[int]:
    """All processes below one, as far as the system tells."""
    tells = os.path.exists(f"/proc/{ancestor}/task/{ancestor}/children")
    children = _children if tells else _by_parent()
    found, new = [], list(children(ancestor))
    while new:
        found += new
        new = [child for pid in new for child in children(pid)]
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _by_parent() -> Callable[[int], Iterable[int]]:
    """The same for a kernel that does not list children: every process is asked for its parent."""
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                    # The name of the program, in brackets, may hold anything.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                    found.setdefault(parent, []).append(int(name))
    return lambda pid: found.get(pid, ())


# --- Their memory -----------------------------------------------------------------------------------------------------


def _memory(pids: list[int], enough: int) -> int:
    """The bytes of memory that processes use together, without files that are mapped: those can be read again.

    What several of them share counts as often as it is mapped, which costs little to find out; where that makes more
    than `enough`, it is counted exactly.
    """
    quick = {pid: sum(_sizes(f"/proc/{pid}/status", ("RssAnon", "RssShmem"))) for pid in pids}
    if sum(quick.values()) <= enough:
        return sum(quick.values())
    total = 0
    for pid, most in quick.items():
        exact = _sizes(f"/proc/{pid}/smaps_rollup", ("Pss_Anon", "Pss_Shmem"))
        total += min(sum(exact), most) if exact else most
    return total


def _sizes(path: str, names: tuple[str, ...]) -> list[int]:
    """The sizes in bytes that a file of the system names; none where it is gone."""
    found = []
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in names:
                found.append(int(rest.split()[0]) * 1024)
    return found


def _control_group(
    name: str, memory_bytes: int, mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup"
) -> str | None:
    """A new control group with that limit; None where there is none to be had."""
    for parent in _delegated(mounts, own):
        made = os.path.join(parent, name)
        try:
            os.mkdir(made)
            _put(os.path.join(made, "memory.max"), str(memory_bytes))
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(made)
            continue
        for file, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with contextlib.suppress(OSError):
                _put(os.path.join(made, file), value)
        return made
    return None


def _delegated(mounts: str, own: str) -> list[str]:
    """Control groups below which this user may make others with a memory limit: the guardian's own, or the one above.

    Only those that systemd has delegated, or that are all that this container sees: others belong to somebody else,
    though a superuser could write there.
    """
    try:
        with open(mounts) as file:
            lines = [line.split() for line in file]
        with open(own) as file:
            place = next(line[3:].strip() for line in file if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    root = next((words[4] for words in lines if "-" in words and words[words.index("-") + 1] == "cgroup2"), None)
    if root is None:
        return []
    here = os.path.normpath(root + place)
    candidates = [(here, place == "/")] if place == "/" else [(os.path.dirname(here), False), (here, False)]
    return [path for path, is_whole in candidates if (is_whole or _is_delegated(path)) and _limits_memory(path)]


def _is_delegated(path: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError, AttributeError):
            if os.getxattr(path, name) == b"1":
                return True
    return False


def _limits_memory(path: str) -> bool:
    """Whether groups below this one have a memory limit; asks for it where they could."""
    control = os.path.join(path, "cgroup.subtree_control")
    with contextlib.suppress(OSError):
        with open(os.path.join(path, "cgroup.controllers")) as file:
            if "memory" not in file.read().split():
                return False
        with contextlib.suppress(OSError):
            _put(control, "+memory")
        with open(control) as file:
            return "memory" in file.read().replace("+", "").split()
    return False


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _number(path: str, name: str) -> int:
    with contextlib.suppress(OSError), open(path) as file:
        for line in file:
            words = line.split()
            if words[:1] == [name]:
                return int(words[1])
    return 0


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
