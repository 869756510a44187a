"""Containers as processes of this machine, of the same user, without a shell.

Each attempt has a supervisor (`supervisor.py`), a separate program that outlives this one. All records of an attempt
are in the directory of its pod, so that processes of an earlier runner are handled like those started now:

    PODS/<uid>/.devices            the devices of the pod, from its first start on
    PODS/<uid>/.pod                its name, and its resourceVersion at its first start
    PODS/<uid>/.unknown            marks a pod that the database lacks, where the database may be the wrong one
    PODS/<uid>/<container>/0.*     the first attempt, see `supervisor`; of earlier attempts only the latest is kept
    PODS/.database                 the id of the last database that was used with these pods

No container name starts with a dot. Other files are left unchanged, and an attempt with unreadable records counts as
lost: one damaged file must not stop the runner for all other pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import marshal
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs
from msgspec.structs import replace

from kubemachinery import http_server, unstructured
from kubemachinery.clock import Clock
from kubemachinery.unstructured import Tree
from pykueue.runner import devices, process_spec, supervisor
from pykueue.runner.container_attempts import Attempts, ContainerAttempt, Termination, lost_termination
from pykueue.runner.process_spec import ProcessContext, ProcessSpec, StartProblem

log = logging.getLogger(__name__)

_DEVICES, _POD, _UNKNOWN, _DATABASE = ".devices", ".pod", ".unknown", ".database"
# The former name of `_DEVICES`, which a container could also have.
_OLD_DEVICES: Final = "devices"
_START_ERROR: Final = 128
# The reason that a kubelet gives.
_CANNOT_START: Final = "RunContainerError"
_POLL_SECONDS: Final = 0.2
_KEPT: Final = 2
_PID_ATTEMPTS, _PID_SECONDS = 100, 0.01

# (namespace, kind, name) -> the entries of a ConfigMap or a Secret; None if it does not exist.
Read = Callable[[str, str, str], Awaitable[Mapping[str, str] | None]]


class Database(msgspec.Struct, frozen=True):
    """The database of the server whose pods run here, as it was when the server started."""

    id: str
    revision: int
    is_new: bool = False


# A database that ends with its server and holds only pods that were created in it.
IN_MEMORY: Final = Database("memory", 0, is_new=True)


# (namespace, UID of the owner, name of the pod, log files by container)
KeepLogs: TypeAlias = Callable[[str, str, str, Mapping[str, Sequence[Path]]], None]


class ProcessExecutor:
    """The executor of `--runner process`."""

    def __init__(
        self,
        folder: Path,
        read: Read,
        present: Callable[[], Mapping[str, int]],
        clock: Clock,
        environment: Mapping[str, str],
    ) -> None:
        self.on_change: Callable[[str], None] = lambda uid: None
        # Called with namespace, owner and name of a deleted pod, and the logs of its containers.
        self.keep_logs: KeepLogs | None = None
        self._folder = folder
        self._read = read
        self._present = present
        self._clock = clock
        self._environment = {name: environment[name] for name in process_spec.INHERITED if name in environment}
        self._attempts: dict[str, dict[str, list[ContainerAttempt]]] = {}
        self._shares: dict[str, dict[str, tuple[int, ...]]] = {}
        self._watched: dict[Path, asyncio.Task[None]] = {}
        self._asked: set[Path] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # All recorded pods are loaded first, so that no device in use is assigned again.
        for found in sorted(folder.iterdir()):
            try:
                if _is_of_pod(found):
                    self._load(found.name)
            except OSError as error:
                log.error("cannot read the records of a pod in %s; they are left unchanged: %s", found, error)

    # --- Attempts -----------------------------------------------------------------------------------------------------

    def attempts(self, pod: Tree) -> Attempts:
        return self._attempts.get(_uid(pod), {})

    def logs(self, uid: str, container: str) -> list[Path]:
        """Return the log files of the recorded attempts, latest last."""
        made = self._attempts.get(uid, {}).get(container, [])
        return [self._path(uid, container, each.number).with_suffix(".log") for each in made]

    def is_running(self, uid: str, container: str) -> bool:
        made = self._attempts.get(uid, {}).get(container, [])
        return bool(made) and made[-1].ended is None

    @property
    def running(self) -> int:
        """The number of running containers."""
        return len(self._watched)

    def _path(self, uid: str, container: str, number: int) -> Path:
        return self._folder / uid / container / str(number)

    def _load(self, uid: str) -> None:
        place = self._folder / uid
        if (place / _OLD_DEVICES).is_file():
            (place / _OLD_DEVICES).replace(place / _DEVICES)
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            self._shares[uid] = {
                name: tuple(map(int, numbers)) for name, numbers in json.loads((place / _DEVICES).read_text()).items()
            }
        found = self._attempts[uid] = {}
        for container in sorted(each for each in place.iterdir() if each.is_dir() and not each.name.startswith(".")):
            found[container.name] = [self._load_attempt(uid, container / str(number)) for number in _numbers(container)]
        self._release_devices(uid)

    def _load_attempt(self, uid: str, path: Path) -> ContainerAttempt:
        """Load an attempt from its files. Without a supervisor and without a recorded end it is lost."""
        number = int(path.name)
        if (attempt := self._ended(path)) is not None:
            return attempt
        if _is_supervised(path):
            pid, started = _supervisor(path)
            self._watch(uid, path, pid)
            return ContainerAttempt(number, started)
        # Read again: it may have ended between the two checks.
        return self._ended(path) or self._record_lost(path, _last_sign(path))

    def _ended(self, path: Path) -> ContainerAttempt | None:
        try:
            record = json.loads(path.with_suffix(".end").read_text())
            ended = Termination(
                int(record["code"]),
                int(record["at"]),
                int(record["signal"]),
                str(record.get("reason") or ("StartError" if record["why"] else "")),
                str(record["why"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            if _is_supervised(path):
                return None  # it still runs, and its supervisor writes the record when it ends
            log.error("cannot read the record of a termination in %s: %s", path.with_suffix(".end"), error)
            why = "the record of its termination is damaged; its exit code is unknown"
            return self._record_lost(path, _last_sign(path), why)
        # An attempt that was never started has no supervisor.
        started = _started(path) if path.with_suffix(".pid").exists() else ended.at
        return ContainerAttempt(int(path.name), started, ended)

    def _record_lost(self, path: Path, at: int, why: str = "") -> ContainerAttempt:
        """Record the attempt as lost, so that later reads give the same termination."""
        gone = lost_termination(at)
        why = why or gone.message
        record = {"code": gone.code, "at": gone.at, "signal": 0, "reason": gone.reason, "why": why}
        try:
            _write(path.with_suffix(".end"), record)
        except FileNotFoundError:
            pass  # the directory of the pod was deleted
        except OSError as error:
            log.error("cannot record the termination of an attempt, which is reported all the same: %s", error)
        return ContainerAttempt(int(path.name), _started(path), replace(gone, message=why))

    # --- Starting -----------------------------------------------------------------------------------------------------

    async def start(self, pod: Tree, container: Tree, number: int) -> StartProblem | None:
        try:
            return await self._start(pod, container, number)
        except OSError as error:
            return StartProblem(_CANNOT_START, f"cannot start the container: {error}")
        except subprocess.CalledProcessError as error:
            *_, why = error.stderr.decode(errors="replace").strip().splitlines() or ["its supervisor ended"]
            return StartProblem(_CANNOT_START, f"cannot start the container: {why}")

    async def _start(self, pod: Tree, container: Tree, number: int) -> StartProblem | None:
        uid, name = _uid(pod), unstructured.text(container.get("name"))
        share = self._share(pod)
        if share is None:
            return StartProblem("DevicesTaken", "all requested devices of this node are in use")
        prepared = await self._prepared(pod, container, share)
        if isinstance(prepared, StartProblem) and not prepared.lasting:
            return prepared
        path = self._path(uid, name, number)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = self._clock.now()
        if isinstance(prepared, StartProblem):
            end = {"code": _START_ERROR, "at": now, "signal": 0, "why": prepared.message}
            _write(path.with_suffix(".end"), end)
            path.with_suffix(".launch").touch(mode=0o600)
        else:
            await asyncio.to_thread(_launch, path, prepared, now)
        made = self._attempts.setdefault(uid, {}).setdefault(name, [])
        made.append(self._load_attempt(uid, path))
        # The attempt may have ended already; then no task waits for its end.
        self._release_devices(uid)
        for old in made[:-_KEPT]:
            for left in path.parent.glob(f"{old.number}.*"):
                left.unlink()
        del made[:-_KEPT]
        return None

    def _share(self, pod: Tree) -> Mapping[str, tuple[int, ...]] | None:
        uid = _uid(pod)
        if uid not in self._shares:
            share = devices.assign(devices.requested(pod), self._present(), self._shares.values())
            if share is None:
                return None
            place = self._folder / uid
            place.mkdir(mode=0o700, exist_ok=True)
            metadata = unstructured.mapping(pod.get("metadata"))
            owners = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
            known = {key: metadata.get(key) for key in ("namespace", "name", "resourceVersion")}
            _write(place / _POD, {**known, "owner": owners[0]["uid"] if owners else ""})
            _write(place / _DEVICES, share)
            self._shares[uid] = share
        return self._shares[uid]

    async def _prepared(
        self, pod: Tree, container: Tree, share: Mapping[str, tuple[int, ...]]
    ) -> ProcessSpec | StartProblem:
        namespace = unstructured.text(unstructured.get(pod, "metadata", "namespace"))
        texts = {}
        for kind, name in dict.fromkeys(process_spec.sources(container)):
            entries = await self._read(namespace, kind, name)
            if entries is not None:
                texts[kind, name] = entries
        home = self._environment.get("HOME", "/")
        variables = devices.environment(devices.part(pod, container, share), self._present())
        return process_spec.prepare(pod, container, texts, ProcessContext(self._environment, home, variables))

    # --- Watching -----------------------------------------------------------------------------------------------------

    def _watch(self, uid: str, path: Path, pid: int) -> None:
        self._watched[path] = asyncio.get_running_loop().create_task(self._await_end(uid, path, pid))

    async def _await_end(self, uid: str, path: Path, pid: int) -> None:
        await _gone(path, pid)
        self._watched.pop(path, None)
        self._asked.discard(path)
        made = self._attempts.get(uid, {}).get(path.parent.name, [])
        for place, each in enumerate(made):
            if each.number == int(path.name):
                made[place] = self._ended(path) or self._record_lost(path, self._clock.now())
        self._release_devices(uid)
        self.on_change(uid)

    def _release_devices(self, uid: str) -> None:
        """Release the devices of a pod when none of its containers runs; a restarted container is assigned devices
        again."""
        if not any(made[-1].ended is None for made in self._attempts.get(uid, {}).values() if made):
            self._shares.pop(uid, None)
            (self._folder / uid / _DEVICES).unlink(missing_ok=True)

    # --- Stopping -----------------------------------------------------------------------------------------------------

    def stop(self, uid: str, container: str, *, kill: bool) -> None:
        made = self._attempts.get(uid, {}).get(container, [])
        if not made or made[-1].ended is not None:
            return
        path = self._path(uid, container, made[-1].number)
        if not kill:
            if path in self._asked:
                return
            self._asked.add(path)
        _signal(path, signal.SIGUSR1 if kill else signal.SIGTERM)

    async def discard(self, uid: str) -> None:
        """Kill the processes of a deleted pod, wait for their end, and delete its records."""
        for name in self._attempts.get(uid, {}):
            self.stop(uid, name, kill=True)
        place = self._folder / uid
        await asyncio.gather(*(task for path, task in self._watched.items() if place in path.parents))
        logs = {container: self.logs(uid, container) for container in self._attempts.get(uid, {})}
        self._attempts.pop(uid, None)
        self._shares.pop(uid, None)
        await asyncio.to_thread(self._remove, place, logs)

    def _remove(self, place: Path, logs: Mapping[str, list[Path]]) -> None:
        """Delete the records of a pod, and keep its logs."""
        if self.keep_logs is not None:
            with contextlib.suppress(OSError, ValueError):
                pod = json.loads((place / _POD).read_text())
                self.keep_logs(str(pod["namespace"]), str(pod.get("owner") or place.name), str(pod["name"]), logs)
        shutil.rmtree(place, ignore_errors=True)

    async def sweep(
        self, known: Iterable[str], database: Database | None = None, *, discards_unknown: bool = True
    ) -> None:
        """Discard pods that are not in the database.

        A database that is new, or older than a pod, cannot contain it. Such a pod keeps its processes and logs, now and
        at every later start, unless the operator discards it (`--discard-unknown-pods`).
        """
        alive = set(known)
        last = self._last_database()
        for uid in sorted(self._attempts.keys()):
            mark = self._folder / uid / _UNKNOWN
            if uid in alive:
                mark.unlink(missing_ok=True)
            elif database is None or discards_unknown:
                await self.discard(uid)
            elif mark.exists() or self._cannot_know(database, last, uid):
                mark.touch(mode=0o600)
            else:
                await self.discard(uid)
        if database is not None:
            _write(self._folder / _DATABASE, database.id)
        if kept := [uid for uid in self._attempts if uid not in alive]:
            running = sum(self.is_running(uid, name) for uid in kept for name in self._attempts[uid])
            log.warning(
                "%s holds %d pods that are not in the database, with %d running processes: the database is new, or was "
                "restored from an older backup. They keep running; --discard-unknown-pods ends them.",
                self._folder,
                len(kept),
                running,
            )

    def _last_database(self) -> str | None:
        try:
            return str(json.loads((self._folder / _DATABASE).read_text()))
        except (OSError, ValueError):
            return None

    def _cannot_know(self, database: Database, last: str | None, uid: str) -> bool:
        """Whether the pod was created later than the database's last state, or in another database."""
        if last is None:
            return database.is_new  # pods of a version that did not record its database
        if last != database.id:
            return True
        try:
            seen = int(json.loads((self._folder / uid / _POD).read_text())["resourceVersion"])
        except (OSError, ValueError, LookupError, TypeError):
            return False
        return database.id != IN_MEMORY.id and seen > database.revision

    async def close(self) -> None:
        """Stop watching. The processes continue."""
        watching = list(self._watched.values())
        self._watched.clear()
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    def ignored(self, pod: Tree) -> Iterator[str]:
        return process_spec.ignored(pod)


def _uid(pod: Tree) -> str:
    return unstructured.text(unstructured.get(pod, "metadata", "uid"))


# --- Supervisors ------------------------------------------------------------------------------------------------------


def _launch(path: Path, prepared: ProcessSpec, now: int) -> None:
    """Start the supervisor of an attempt; returns once it runs detached from this process."""
    order = path.with_suffix(".launch")
    descriptor = os.open(order, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(
            descriptor,
            marshal.dumps({**structs.asdict(prepared), "started": now, "open_files": http_server.inherited_open_files}),
        )
        # The supervisor inherits the open file and with it the lock, which the kernel releases when it ends.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        subprocess.run(
            supervisor.command(str(path.parent), path.name, descriptor),
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            check=True,
        )
    except BaseException:
        # What was not started is no attempt, also not for a later runner.
        order.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _is_supervised(path: Path) -> bool:
    try:
        with open(path.with_suffix(".launch"), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass  # the directory of the pod was deleted
    return False


def _supervisor(path: Path) -> tuple[int, int]:
    """Return the pid of the supervisor (0 if it cannot be found) and when the attempt started."""
    for _ in range(_PID_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            pid, started = _recorded(path)
            if pid and _is_supervisor(pid, path):
                return pid, started
            break
        # The supervisor holds the lock and has not written its pid yet.
        time.sleep(_PID_SECONDS)
    found = next((pid for pid in _processes() if _is_supervisor(pid, path)), 0)
    if not found:
        log.error("cannot find the supervisor of %s: the recorded pid belongs to another process", path)
    return found, _started(path)


def _recorded(path: Path) -> tuple[int, int]:
    """Return the recorded pid and start time; zeros if the record is unreadable."""
    try:
        pid, started = path.with_suffix(".pid").read_text().split()
        return int(pid), int(started)
    except ValueError:
        return 0, 0


def _started(path: Path) -> int:
    """Return when an attempt started: as recorded, else from the file system."""
    with contextlib.suppress(OSError):
        if (recorded := _recorded(path)[1]) > 0:
            return recorded
    try:
        return path.with_suffix(".launch").stat().st_ctime_ns
    except OSError:
        return 0


def _last_sign(path: Path) -> int:
    """Return when an attempt last ran for certain: it wrote to its log, or its supervisor ran (`supervisor`)."""
    signs = [_started(path)]
    for suffix in (".log", ".log.old", ".pid"):
        with contextlib.suppress(OSError):
            signs.append(path.with_suffix(suffix).stat().st_mtime_ns)
    return max(signs)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _is_supervisor(pid: int, path: Path) -> bool:
    """Whether a process is the supervisor of an attempt. A wrong record must not send signals to another process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        # No /proc on this system: the lock has to suffice.
        return not Path("/proc/self/cmdline").exists()
    if len(words) < 6 or words[5] != os.fsencode(path.name):
        return False
    try:
        # The path on its command line is relative to the working directory of the process that started it.
        return os.path.samefile(os.path.join(os.fsencode(os.readlink(f"/proc/{pid}/cwd")), words[4]), path.parent)
    except OSError:
        return False


def _signal(path: Path, number: int) -> None:
    # While the lock is held, the pid belongs to the supervisor and was not reused.
    if _is_supervised(path) and (pid := _supervisor(path)[0]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_of_pod(place: Path) -> bool:
    """Whether a directory holds records of a pod. Other directories are left unchanged."""
    if place.name.startswith(".") or not place.is_dir():
        return False
    marks = (_DEVICES, _OLD_DEVICES, _POD, _UNKNOWN)
    return any((place / mark).exists() for mark in marks) or any(_numbers(each) for each in place.iterdir())


def _numbers(container: Path) -> list[int]:
    """Return the numbers of the recorded attempts of a container."""
    if not container.is_dir():
        return []
    return sorted(int(each.stem) for each in container.glob("*.launch") if each.stem.isdecimal())


async def _gone(path: Path, pid: int) -> None:
    """Return when the supervisor has ended."""
    try:
        watching = os.pidfd_open(pid) if pid else -1
    except (AttributeError, OSError):
        watching = -1
    if watching < 0:
        # No pidfd on this system, or already ended: wait for the lock.
        await _freed(path)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watching, ended.set)
    try:
        if _is_supervised(path):
            await ended.wait()
    finally:
        loop.remove_reader(watching)
        os.close(watching)


async def _freed(path: Path) -> None:
    while True:
        if not _is_supervised(path):
            return
        await asyncio.sleep(_POLL_SECONDS)


def _write(path: Path, value: Any) -> None:
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(value, file)
        file.flush()
        # Without this the renamed file may be empty after a power failure.
        os.fsync(file.fileno())
    new.replace(path)
