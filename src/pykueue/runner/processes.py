"""Containers as processes of this machine, of the same user, without a shell.

Each attempt has a guardian (`supervisor`), a program of its own that outlives this one. Whatever is known about an
attempt is in the pod's folder, so that nothing differs between a process that this program started and one that it
found when it came:

    PODS/<uid>/devices             the pod's share of devices, from its first start on
    PODS/<uid>/<container>/0.*     the first attempt, see `supervisor`; of older attempts only the last one is kept
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pykueue import serving
from pykueue.api import trees
from pykueue.api.trees import Tree
from pykueue.clock import Clock
from pykueue.runner import devices, launch, supervisor
from pykueue.runner.attempts import Attempt, Attempts, Ended, unseen
from pykueue.runner.launch import Launch, Problem, Surroundings

_START_ERROR: Final = 128
_POLL_SECONDS: Final = 0.2
_KEPT: Final = 2
_PID_ATTEMPTS, _PID_SECONDS = 100, 0.01

# (namespace, kind, name) -> the entries of a ConfigMap or a Secret, None where there is none.
Read = Callable[[str, str, str], Awaitable[Mapping[str, str] | None]]


class Processes:
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
        self._folder = folder
        self._read = read
        self._present = present
        self._clock = clock
        self._environment = {name: environment[name] for name in launch.INHERITED if name in environment}
        self._attempts: dict[str, dict[str, list[Attempt]]] = {}
        self._shares: dict[str, dict[str, tuple[int, ...]]] = {}
        self._watched: dict[Path, asyncio.Task[None]] = {}
        self._asked: set[Path] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Every pod that left something, so that no device is given away that one of them still has.
        for found in sorted(folder.iterdir()):
            self._load(found.name)

    # --- What was tried -----------------------------------------------------------------------------------------------

    def attempts(self, pod: Tree) -> Attempts:
        return self._attempts.get(_uid(pod), {})

    def logs(self, uid: str, container: str) -> list[Path]:
        """The logs of the attempts that are still known, the latest last."""
        made = self._attempts.get(uid, {}).get(container, [])
        return [self._path(uid, container, each.number).with_suffix(".log") for each in made]

    def is_running(self, uid: str, container: str) -> bool:
        made = self._attempts.get(uid, {}).get(container, [])
        return bool(made) and made[-1].ended is None

    @property
    def running(self) -> int:
        """How many processes there are."""
        return len(self._watched)

    def _path(self, uid: str, container: str, number: int) -> Path:
        return self._folder / uid / container / str(number)

    def _load(self, uid: str) -> None:
        place = self._folder / uid
        with contextlib.suppress(OSError, ValueError):
            self._shares[uid] = {
                name: tuple(numbers) for name, numbers in json.loads((place / "devices").read_text()).items()
            }
        found = self._attempts[uid] = {}
        for container in sorted(each for each in place.iterdir() if each.is_dir()):
            numbers = sorted(int(each.stem) for each in container.glob("*.launch"))
            found[container.name] = [self._found(uid, container / str(number)) for number in numbers]
        self._free(uid)

    def _found(self, uid: str, path: Path) -> Attempt:
        """An attempt as its files tell it. One without a guardian and without an end is lost."""
        number = int(path.name)
        if (attempt := self._ended(path)) is not None:
            return attempt
        if _is_guarded(path):
            pid, started = _guardian(path)
            self._watch(uid, path, pid)
            return Attempt(number, started)
        # Once more: it may have ended between the two looks.
        return self._ended(path) or self._bury(path)

    def _ended(self, path: Path) -> Attempt | None:
        try:
            told = json.loads(path.with_suffix(".end").read_text())
        except FileNotFoundError:
            return None
        reason = told.get("reason") or ("StartError" if told["why"] else "")
        ended = Ended(told["code"], told["at"], told["signal"], reason, told["why"])
        # What was never started has no guardian.
        started = _guardian(path)[1] if path.with_suffix(".pid").exists() else ended.at
        return Attempt(int(path.name), started, ended)

    def _bury(self, path: Path) -> Attempt:
        """Write down that it was lost, so that it is the same story next time."""
        gone = unseen(self._clock.now())
        told = {"code": gone.code, "at": gone.at, "signal": 0, "reason": gone.reason, "why": gone.message}
        _write(path.with_suffix(".end"), told)
        return self._ended(path) or Attempt(int(path.name), gone.at, gone)

    # --- Starting -----------------------------------------------------------------------------------------------------

    async def start(self, pod: Tree, container: Tree, number: int) -> Problem | None:
        uid, name = _uid(pod), trees.text(container.get("name"))
        share = self._share(pod)
        if share is None:
            return Problem("DevicesTaken", "the devices of this node are all in use")
        prepared = await self._prepared(pod, container, share)
        if isinstance(prepared, Problem) and not prepared.lasting:
            return prepared
        path = self._path(uid, name, number)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = self._clock.now()
        if isinstance(prepared, Problem):
            path.with_suffix(".launch").touch(mode=0o600)
            end = {"code": _START_ERROR, "at": now, "signal": 0, "why": prepared.message}
            _write(path.with_suffix(".end"), end)
        else:
            await asyncio.to_thread(_launch, path, prepared, now)
        made = self._attempts.setdefault(uid, {}).setdefault(name, [])
        made.append(self._found(uid, path))
        # It may be over already, and then nobody awaits its end.
        self._free(uid)
        for old in made[:-_KEPT]:
            for left in path.parent.glob(f"{old.number}.*"):
                left.unlink()
        del made[:-_KEPT]
        return None

    def _share(self, pod: Tree) -> Mapping[str, tuple[int, ...]] | None:
        uid = _uid(pod)
        if uid not in self._shares:
            share = devices.assign(devices.wanted(pod), self._present(), self._shares.values())
            if share is None:
                return None
            self._shares[uid] = share
            place = self._folder / uid
            place.mkdir(mode=0o700, exist_ok=True)
            _write(place / "devices", share)
        return self._shares[uid]

    async def _prepared(self, pod: Tree, container: Tree, share: Mapping[str, tuple[int, ...]]) -> Launch | Problem:
        namespace = trees.text(trees.get(pod, "metadata", "namespace"))
        texts = {}
        for kind, name in dict.fromkeys(launch.sources(container)):
            entries = await self._read(namespace, kind, name)
            if entries is not None:
                texts[kind, name] = entries
        home = self._environment.get("HOME", "/")
        told = devices.environment(devices.part(pod, container, share), self._present())
        return launch.prepare(pod, container, texts, Surroundings(self._environment, home, told))

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
                made[place] = self._ended(path) or self._bury(path)
        self._free(uid)
        self.on_change(uid)

    def _free(self, uid: str) -> None:
        """Devices are given back when nothing runs; a container that starts again asks for them anew."""
        if not any(made[-1].ended is None for made in self._attempts.get(uid, {}).values() if made):
            self._shares.pop(uid, None)
            (self._folder / uid / "devices").unlink(missing_ok=True)

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
        """Kill what is left of a pod that is gone, wait for its end, and forget it."""
        for name in self._attempts.get(uid, {}):
            self.stop(uid, name, kill=True)
        place = self._folder / uid
        await asyncio.gather(*(task for path, task in self._watched.items() if place in path.parents))
        self._attempts.pop(uid, None)
        self._shares.pop(uid, None)
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def sweep(self, known: Iterable[str]) -> None:
        """Discard what belongs to pods that nobody knows any more."""
        for uid in sorted(self._attempts.keys() - set(known)):
            await self.discard(uid)

    async def close(self) -> None:
        """Look away. The processes go on."""
        watching = list(self._watched.values())
        self._watched.clear()
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    def ignored(self, pod: Tree) -> Iterator[str]:
        return launch.ignored(pod)


def _uid(pod: Tree) -> str:
    return trees.text(trees.get(pod, "metadata", "uid"))


# --- Guardians --------------------------------------------------------------------------------------------------------


def _launch(path: Path, prepared: Launch, now: int) -> None:
    """Start the guardian of an attempt; returns when it stands on its own."""
    order = path.with_suffix(".launch")
    descriptor = os.open(order, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(
            descriptor,
            json.dumps({**asdict(prepared), "started": now, "open_files": serving.inherited_open_files}).encode(),
        )
        # The lock goes with the open file to the guardian, and is free again when it ends, however it ends.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        subprocess.run(
            [sys.executable, "-I", "-S", supervisor.__file__, str(path.parent), path.name, str(descriptor)],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
    finally:
        os.close(descriptor)


def _is_guarded(path: Path) -> bool:
    try:
        with open(path.with_suffix(".launch"), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass  # somebody took the whole pod away
    return False


def _guardian(path: Path) -> tuple[int, int]:
    """The guardian's process, and when the attempt began."""
    for _ in range(_PID_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            pid, started = path.with_suffix(".pid").read_text().split()
            return int(pid), int(started)
        # It has the lock and has not said its number yet; that takes it a moment.
        time.sleep(_PID_SECONDS)
    raise FileNotFoundError(path)


def _signal(path: Path, number: int) -> None:
    # While the lock is held the process is the guardian, and not another one that got its number.
    if _is_guarded(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(_guardian(path)[0], number)


async def _gone(path: Path, pid: int) -> None:
    """Return when the guardian has ended."""
    try:
        watching = os.pidfd_open(pid)
    except (AttributeError, OSError):
        # Not this system, or gone already: the lock tells.
        await _freed(path)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watching, ended.set)
    try:
        if _is_guarded(path):
            await ended.wait()
    finally:
        loop.remove_reader(watching)
        os.close(watching)


async def _freed(path: Path) -> None:
    while True:
        if not _is_guarded(path):
            return
        await asyncio.sleep(_POLL_SECONDS)


def _write(path: Path, value: Any) -> None:
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(value, file)
    new.replace(path)
