"""The supervisor of one container: a small program that starts its process, writes its log, and records how it ended.

It is started by `command` and outlives the program that started it, so that processes survive a restart of
`pykueue up`, even by kill -9. Every container has one, so it starts fast: it uses the standard library only, none of
its modules that take milliseconds to load, and is loaded from compiled code.

The files that it reads and writes in the directory, for attempt 0:

    0.launch   what to run; truncated once it is read, because it may hold secrets. Locked while a supervisor runs
    0.pid      the pid of the supervisor, and when the attempt started; touched once a minute while the process runs,
               so that after a power failure the end of the attempt is known to the minute
    0.log      entries: time, stream, F for a full line or P for a partial one, and the text
    0.end      how the attempt ended; written atomically

SIGTERM is forwarded to the process group of the process; SIGUSR1 kills the process and all its descendants. When the
process has ended, its descendants are killed as well. On Linux that includes those that left its process group or
session: the supervisor is the subreaper of its descendants.

A memory limit applies to all of these processes together. The kernel enforces it in a delegated control group (cgroup
v2); without one the supervisor measures their memory about ten times a second, and kills them above the limit.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable
    from typing import Any, Final, NoReturn
else:
    # `signal` itself, without the enumerations of its names.
    import _signal as signal

_LOG_BYTES_MAX: Final = 64 * 1024 * 1024
# How much output is kept in memory while the log cannot be written, and how often that is tried again.
_LOG_BYTES_WAITING: Final = 1024 * 1024
_LOG_AGAIN_SECONDS: Final = 1.0
_READ_BYTES: Final = 64 * 1024
# How long pipes are read after the process has ended: its descendants may still hold them.
_DRAIN_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1
_SIGN_SECONDS: Final = 60.0
_END_AGAIN_SECONDS: Final = 1.0
_END_SECONDS: Final = 30.0
_PARENT_DEATH_SIGNAL: Final = 1
_CHILD_SUBREAPER: Final = 36
_PASSED_ON: Final = {signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGKILL}
# The exit codes of shells: found but not executable, and not found.
_CANNOT_RUN, _NOT_FOUND = 126, 127


def command(folder: str, attempt: str, lock: int) -> list[str]:
    """Return the command that starts the supervisor of an attempt. A script would be compiled at every start."""
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import supervisor; del sys.path[0]"
    return [sys.executable, "-IS", "-c", f"{code}; supervisor.main(*sys.argv[1:])", folder, attempt, str(lock)]


def main(folder: str, attempt: str, lock: str) -> None:
    path = os.path.join(folder, attempt)
    # The lock was inherited with the open file; it is free only if no supervisor is left.
    locked = int(lock)
    os.set_inheritable(locked, False)
    with open(f"{path}.launch", "rb") as file:
        launch = marshal.load(file)
    os.truncate(f"{path}.launch", 0)
    # Signals stay pending until there is a process to forward them to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    log = _Log(f"{path}.log")
    recorded, record = os.pipe()
    supervisor = os.fork()
    if supervisor:
        # Detached: the runner that starts it and a later one that finds it handle it in the same way.
        _write(f"{path}.pid", f"{supervisor} {launch['started']}")
        os.write(record, b"1")
        os._exit(0)
    os.close(record)
    # What could not be recorded, as on a full disk, is not run: the runner would start it again.
    if not os.read(recorded, 1):
        os._exit(1)
    os.close(recorded)
    os.dup2(0, 2)
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    name = f"pykueue-{os.path.basename(os.path.dirname(folder))}-{os.path.basename(folder)}-{attempt}"
    try:
        ended, is_stopped = _run(launch, log, name, f"{path}.pid")
        _keep(f"{path}.end", _json(ended), log, is_stopped=is_stopped)
    finally:
        log.close()


def _keep(path: str, text: str, log: _Log, *, is_stopped: bool) -> None:
    """Write the rest of the log, and how the attempt ended. Where the latter fails, as on a full disk, both are tried
    again, so that the exit code is not lost, unless the pod was stopped by force, or is: its deletion waits for this
    process."""
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(1))
    while True:
        log.write()
        try:
            _write(path, text)
            return
        except OSError as error:
            if is_stopped or isinstance(error, FileNotFoundError):  # the directory of the pod was deleted
                return
        time.sleep(_END_AGAIN_SECONDS)


def _json(record: dict[str, Any]) -> str:
    """Return a record as JSON. The module for it is loaded only if there is a text, after a failure."""
    if any(isinstance(value, str) and value for value in record.values()):
        import json

        return json.dumps(record)
    fields = (f'"{key}": {value if value != "" else chr(34) * 2}' for key, value in record.items())
    return f"{{{', '.join(fields)}}}"


class _Suppressed:
    """`contextlib.suppress`, which takes longer to load than all else together."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


def _write(path: str, text: str) -> None:
    new = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(new, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


# --- The process ------------------------------------------------------------------------------------------------------


def _run(launch: dict[str, Any], log: _Log, name: str, sign: str) -> tuple[dict[str, Any], bool]:
    """Start the process, write its log until it ends, and return how it ended, and whether it was stopped by force."""
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
    with _Suppressed(OSError):
        os.setpgid(child, child)
    tree = _ProcessTree(child, memory_bytes, group)
    signal.signal(signal.SIGTERM, lambda *_: _signal(child, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: tree.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    # Empty if the program runs, because the pipe is closed on exec; else the error message.
    with open(failure, "rb") as file:
        why = file.read().decode(errors="replace")
    code = _follow(child, {out: b"stdout", err: b"stderr"}, woken, log, tree, sign)
    tree.end()
    ended = {"code": code if code >= 0 else 128 - code, "signal": max(-code, 0), "at": time.time_ns(), "why": why}
    if (excess := tree.out_of_memory()) and code:
        ended |= {"code": 137, "signal": 9, "reason": "OOMKilled", "why": excess}
    return ended, tree.is_stopped


def _become(launch: dict[str, Any], out: int, err: int, failure: int, group: str | None) -> NoReturn:
    """In the child: apply limits, working directory and environment, and execute the program."""
    code = _CANNOT_RUN
    try:
        os.setpgid(0, 0)
        if group is not None:
            _put(os.path.join(group, "cgroup.procs"), "0")
        if sys.platform == "linux":
            # The process must not outlive its supervisor.
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
    with _Suppressed(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _follow(
    child: int,
    streams: dict[int, bytes],
    woken: int,
    log: _Log,
    tree: _ProcessTree | None = None,
    sign: str = "",
) -> int:
    """Copy its output until it has ended, and touch a file meanwhile; returns the exit code, or the negative signal
    number."""
    code: int | None = None
    signed = time.monotonic()
    until, is_over = float("inf"), False
    while code is None or (streams and not is_over):
        left = until - time.monotonic()
        # One more pass after the deadline, so that output written before the end is read even after a long sleep.
        is_over = left <= 0
        pause = max(left, 0.0)
        if code is None:
            pause = min(tree.look_seconds if tree is not None else _SIGN_SECONDS, _SIGN_SECONDS)
            if log.is_waiting:
                pause = min(pause, _LOG_AGAIN_SECONDS)
                log.write()
            if time.monotonic() - signed >= _SIGN_SECONDS:
                signed = time.monotonic()
                with _Suppressed(OSError):
                    os.utime(sign)
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
            # Its descendants end with it, as in a container.
            _signal(child, signal.SIGKILL) if tree is None else tree.kill()
            until = time.monotonic() + _DRAIN_SECONDS
    return code


def _code(child: int, options: int) -> int | None:
    found, status = os.waitpid(child, options)
    return os.waitstatus_to_exitcode(status) if found else None


# --- Descendants ------------------------------------------------------------------------------------------------------


class _ProcessTree:
    """The process and all its descendants: none can leave the tree of a subreaper."""

    def __init__(self, child: int, memory_bytes: int | None, group: str | None) -> None:
        self._child = child
        self._memory_bytes = memory_bytes
        self._group = group
        self._excess = ""
        self.is_stopped = False
        # The interval between memory measurements; infinite if the kernel enforces the limit.
        self.look_seconds = _LOOK_SECONDS if memory_bytes is not None and group is None else float("inf")

    def look(self) -> None:
        """Reap descendants that ended, but not the process itself; kill all if they exceed the memory limit."""
        if sys.platform != "linux":
            return
        with _Suppressed(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid == self._child:
                    break  # its exit status is read elsewhere
                os.waitpid(found.si_pid, 0)
        if self._memory_bytes is None or self._group is not None or self._excess:
            return
        began = time.monotonic()
        used = _memory(_below(os.getpid()), self._memory_bytes)
        # At most a twentieth of a processor, however many processes the machine has.
        self.look_seconds = max(_LOOK_SECONDS, 20 * (time.monotonic() - began))
        if used > self._memory_bytes:
            self._excess = f"the container used {used >> 20} MiB of memory; the limit is {self._memory_bytes >> 20} MiB"
            self.kill()

    def out_of_memory(self) -> str:
        """Return the message if the processes were killed for their memory; else empty."""
        if self._group is not None and (kills := _number(os.path.join(self._group, "memory.events"), "oom_kill")):
            return f"the kernel killed {kills} processes: the memory limit is {(self._memory_bytes or 0) >> 20} MiB"
        return self._excess

    def stop(self) -> None:
        """Stop all processes by force, as was asked."""
        self.is_stopped = True
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to all processes of the tree, once."""
        if self._group is not None:
            with _Suppressed(OSError):
                _put(os.path.join(self._group, "cgroup.kill"), "1")
        _signal(self._child, signal.SIGKILL)
        _kill(_below(os.getpid()))

    def end(self) -> None:
        """Kill until no process is left: one that was being started is found in the next pass."""
        until = time.monotonic() + _END_SECONDS  # a process in uninterruptible sleep is not waited for any longer
        with _Suppressed(ChildProcessError):
            while time.monotonic() < until:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    _kill(_below(os.getpid()))
                    time.sleep(0.002)
        if self._group is not None:
            self._excess = self.out_of_memory()
            group, self._group = self._group, None
            with _Suppressed(OSError):
                os.rmdir(group)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with _Suppressed(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _below(ancestor: int) -> list[int]:
    """Return all descendants of a process."""
    lists_children = os.path.exists(f"/proc/{ancestor}/task/{ancestor}/children")
    children = _children if lists_children else _by_parent()
    found, new = [], list(children(ancestor))
    while new:
        found += new
        new = [child for pid in new for child in children(pid)]
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with _Suppressed(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with _Suppressed(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _by_parent() -> Callable[[int], Iterable[int]]:
    """Return the same for a kernel that does not list children, from the parent of every process."""
    found: dict[int, list[int]] = {}
    with _Suppressed(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with _Suppressed(OSError), open(f"/proc/{name}/stat", "rb") as file:
                    # The program name, in parentheses, may contain any character.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                    found.setdefault(parent, []).append(int(name))
    return lambda pid: found.get(pid, ())


# --- Memory -----------------------------------------------------------------------------------------------------------


def _memory(pids: list[int], enough: int) -> int:
    """Return the memory in bytes that processes use together, without mapped files, which can be read again.

    The first sum counts shared memory once per process, which is cheap; if it exceeds `enough`, the proportional share
    is counted.
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
    """Return the sizes in bytes from a /proc file; none if it no longer exists."""
    found = []
    with _Suppressed(OSError), open(path) as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in names:
                found.append(int(rest.split()[0]) * 1024)
    return found


def _control_group(
    name: str, memory_bytes: int, mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup"
) -> str | None:
    """Create a control group with that limit; None if no group is delegated."""
    for parent in _delegated(mounts, own):
        made = os.path.join(parent, name)
        try:
            os.mkdir(made)
            _put(os.path.join(made, "memory.max"), str(memory_bytes))
        except OSError:
            with _Suppressed(OSError):
                os.rmdir(made)
            continue
        for file, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with _Suppressed(OSError):
                _put(os.path.join(made, file), value)
        return made
    return None


def _delegated(mounts: str, own: str) -> list[str]:
    """Return control groups under which this user may create others with a memory limit: the supervisor's, or its
    parent.

    Only groups that systemd has delegated, or the root of a container: other groups belong to other software, even if a
    superuser could write there.
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
        with _Suppressed(OSError, AttributeError):
            if os.getxattr(path, name) == b"1":
                return True
    return False


def _limits_memory(path: str) -> bool:
    """Whether child groups have the memory controller; enables it if possible."""
    control = os.path.join(path, "cgroup.subtree_control")
    with _Suppressed(OSError):
        with open(os.path.join(path, "cgroup.controllers")) as file:
            if "memory" not in file.read().split():
                return False
        with _Suppressed(OSError):
            _put(control, "+memory")
        with open(control) as file:
            return "memory" in file.read().replace("+", "").split()
    return False


def _put(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _number(path: str, name: str) -> int:
    with _Suppressed(OSError), open(path) as file:
        for line in file:
            words = line.split()
            if words[:1] == [name]:
                return int(words[1])
    return 0


# --- Log --------------------------------------------------------------------------------------------------------------


class _Log:
    """The log file. A full file is rotated, and only the latest rotated file is kept."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._opened()
        # What could not be written yet, as on a full disk. The first may be written in part.
        self._waiting: list[bytes] = []
        self._left_out = 0  # bytes of entries that are left out behind the first

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, stream: bytes, text: bytes) -> None:
        head = _head(stream)
        *lines, rest = text.split(b"\n")
        written = b"".join(head + b"F " + line + b"\n" for line in lines)
        if rest:
            written += head + b"P " + rest + b"\n"
        if len(self._waiting) > 1 and len(self._waiting[-1]) < _READ_BYTES:
            self._waiting[-1] += written  # few and long, however short the lines are
        else:
            self._waiting.append(written)
        self.write()
        # The process continues: the last output of a job that fails is what is looked for, so the oldest is left out.
        while len(self._waiting) > 2 and sum(map(len, self._waiting)) > _LOG_BYTES_WAITING:
            self._left_out += len(self._waiting.pop(1))

    def write(self) -> None:
        """Write what waits. Where that fails, the rest waits for the next time."""
        with _Suppressed(OSError):
            while self._waiting:
                self._write_first()
                if self._left_out:
                    note = b"F [pykueue: about %d KiB of output are left out here: the log could not be written]\n"
                    self._waiting.insert(0, _head(b"stderr") + note % -(-self._left_out // 1024))
                    self._left_out = 0

    def _write_first(self) -> None:
        while self._waiting[0]:
            self._waiting[0] = self._waiting[0][os.write(self._file, self._waiting[0]) :]
        del self._waiting[0]
        if os.fstat(self._file).st_size > _LOG_BYTES_MAX:
            with _Suppressed(FileNotFoundError):  # it was rotated before, and could not be created again
                os.replace(self._path, f"{self._path}.old")
            rotated, self._file = self._file, self._opened()
            os.close(rotated)

    def close(self) -> None:
        with _Suppressed(OSError):
            os.close(self._file)


def _head(stream: bytes) -> bytes:
    """The beginning of an entry: its time and stream."""
    seconds, fraction = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ %s " % (fraction, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
