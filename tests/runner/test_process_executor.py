"""Containers as real processes, with supervisors that outlive the runner."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import http_messages, http_server, meta
from kubemachinery.clock import SystemClock
from pykueue.runner import process_executor as processes_module
from pykueue.runner import supervisor
from pykueue.runner.container_attempts import Termination
from pykueue.runner.logs import LogReader, LogSelection, PodLogs, log_text
from pykueue.runner.process_executor import IN_MEMORY, Database, ProcessExecutor
from waiting import eventually, until

GPUS = {"nvidia.com/gpu": 2}
# A program that waits for its test.
UNTIL_RELEASED = "while [ ! -e released ]; do sleep 0.05; done"


async def nothing(*_: str) -> None:
    return None


def opened(folder: Path) -> ProcessExecutor:
    return ProcessExecutor(folder, nothing, lambda: GPUS, SystemClock(), dict(os.environ))


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[ProcessExecutor]:
    made = opened(tmp_path / "pods")
    try:
        yield made
    finally:
        await made.sweep(())
        await made.close()


def pod(*command: str, uid: str = "u1", gpus: int = 0, **container: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    main = {"name": "main", "image": "i", "command": list(command), "resources": {"limits": limits}, **container}
    return {"metadata": {"name": "p", "namespace": "n", "uid": uid}, "spec": {"containers": [main]}}


async def start(processes: ProcessExecutor, tree: dict[str, Any], number: int = 0) -> None:
    problem = await processes.start(tree, tree["spec"]["containers"][0], number)
    assert problem is None, problem


async def ended(processes: ProcessExecutor, tree: dict[str, Any]) -> Termination:
    found = await eventually(lambda: processes.attempts(tree)["main"][-1].ended)
    assert found is not None
    return found


def _is_open(file: Path) -> bool:
    """Whether this process holds the file open."""
    return str(file) in {os.readlink(f"/proc/self/fd/{number}") for number in _descriptors()}


def _descriptors() -> list[str]:
    return [number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")]


def log(processes: ProcessExecutor, uid: str = "u1", **wanted: Any) -> str:
    reader = LogReader(processes.logs(uid, "main")[-1], LogSelection(**wanted))
    try:
        return b"".join(iter(reader.next, b"")).decode()
    finally:
        reader.close()


class TestOne:
    async def test_exit_code_and_log_are_recorded(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sh", "-c", f"echo out; echo err >&2; {UNTIL_RELEASED}; exit 3", workingDir=str(tmp_path))
        reported: list[str] = []
        processes.on_change = reported.append
        await start(processes, tree)
        (tmp_path / "released").touch()
        assert (await ended(processes, tree)).code == 3
        assert sorted(log(processes).splitlines()) == ["err", "out"]
        assert reported == ["u1"]

    async def test_arguments_are_not_interpreted_by_a_shell(self, processes: ProcessExecutor) -> None:
        tree = pod("echo", "$HOME; *")
        await start(processes, tree)
        await ended(processes, tree)
        assert log(processes) == "$HOME; *\n"

    async def test_missing_program_is_a_start_error(self, processes: ProcessExecutor) -> None:
        tree = pod("no-such-program")
        await start(processes, tree)
        over = await ended(processes, tree)
        assert (over.code, over.reason) == (127, "StartError")
        assert over.message == "cannot run 'no-such-program': No such file or directory"

    async def test_missing_working_directory_is_named(self, processes: ProcessExecutor) -> None:
        tree = pod("true", workingDir="/no/such/place")
        await start(processes, tree)
        assert "'/no/such/place'" in (await ended(processes, tree)).message

    async def test_without_a_command_nothing_is_started(self, processes: ProcessExecutor) -> None:
        tree = pod()
        await start(processes, tree)
        over = await ended(processes, tree)
        assert (over.code, over.reason) == (128, "StartError")

    async def test_process_cannot_allocate_above_its_memory_limit(self, processes: ProcessExecutor) -> None:
        tree = pod("python3", "-c", "bytearray(10**9)", resources={"limits": {"memory": "200Mi"}})
        await start(processes, tree)
        assert (await ended(processes, tree)).code == 1
        assert "MemoryError" in log(processes)

    async def test_process_keeps_the_original_limit_of_open_files(self, processes: ProcessExecutor) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        try:
            tree = pod("sh", "-c", "ulimit -S -n")
            await start(processes, tree)
            await ended(processes, tree)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert log(processes).strip() in (str(http_server.inherited_open_files), "unlimited")

    async def test_closed_log_stream_closes_its_file(self, processes: ProcessExecutor) -> None:
        tree = pod("sh", "-c", "echo begun; sleep 1000")
        await start(processes, tree)
        file = processes.logs("u1", "main")[-1]
        got: list[bytes] = []

        async def write(data: bytes) -> None:
            got.append(data)

        query = [("follow", "true")]
        answer = await PodLogs(processes, lambda: 0)(tree, http_messages.Request("GET", "/", query))
        assert answer.stream is not None
        following = asyncio.ensure_future(answer.stream(write))
        await eventually(lambda: got)
        assert _is_open(file)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        assert not _is_open(file)

    async def test_descendants_end_with_the_process(self, processes: ProcessExecutor) -> None:
        tree = pod("sh", "-c", "sleep 1000 & echo $!")
        await start(processes, tree)
        await ended(processes, tree)
        child = int(log(processes))
        await eventually(lambda: not _is_alive(child))

    @pytest.mark.parametrize("ends", ["by itself", "killed", "deleted"])
    async def test_process_that_left_its_session_ends_with_its_pod(
        self, processes: ProcessExecutor, tmp_path: Path, ends: str
    ) -> None:
        """The process starts its own session, is reparented, and holds none of the pipes."""
        escape = (
            "import os, sys, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    for number in range(3): os.close(number)\n"
            f"    with open({str(tmp_path / 'escaped')!r}, 'w') as file: file.write(f'{{os.getpid()}}.')\n"
            "    os.execvp('sleep', ['sleep', '1000'])\n"
            "os.wait()\n"
        )
        forever = "" if ends == "by itself" else "time.sleep(1000)\n"
        tree = pod("python3", "-c", escape + forever, workingDir=str(tmp_path))
        await start(processes, tree)
        escaped = tmp_path / "escaped"
        await eventually(lambda: escaped.exists() and escaped.read_text().endswith("."))
        if ends == "killed":
            processes.stop("u1", "main", kill=True)
        if ends == "deleted":
            await processes.discard("u1")
        else:
            await ended(processes, tree)
        assert not _is_alive(int(escaped.read_text()[:-1]))

    async def test_forking_processes_are_all_killed(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        """Each starts the next in a session of its own and ends: none of them lives long enough to be looked for."""
        runner = (
            "import os, time\n"
            "while True:\n"
            "    if os.fork(): os._exit(0)\n"
            "    os.setsid()\n"
            f"    open({str(tmp_path / 'lives')!r}, 'a').write('x')\n"
        )
        tree = pod("sh", "-c", f'python3 -c "$CODE" & {UNTIL_RELEASED}', workingDir=str(tmp_path))
        tree["spec"]["containers"][0]["env"] = [{"name": "CODE", "value": runner}]
        await start(processes, tree)
        lives = tmp_path / "lives"
        await eventually(lambda: lives.exists() and lives.stat().st_size > 20)
        (tmp_path / "released").touch()
        await ended(processes, tree)
        size = lives.stat().st_size
        await asyncio.sleep(0.3)
        assert lives.stat().st_size == size

    @pytest.mark.parametrize(
        "code",
        [
            pytest.param(
                "import mmap; m = mmap.mmap(-1, 300 << 20)\nfor _ in range(300): m.write(b'x' * (1 << 20))", id="shared"
            ),
            pytest.param(
                "import os\nfor _ in range(4):\n    if os.fork() == 0: b = bytearray(b'x' * (40 << 20)); break\n",
                id="several-processes",
            ),
        ],
    )
    async def test_memory_limit_covers_all_processes_of_a_container(
        self, processes: ProcessExecutor, code: str
    ) -> None:
        script = f"import time\n{code}\ntime.sleep(1000)"
        tree = pod("python3", "-c", script, resources={"limits": {"memory": "100Mi"}})
        await start(processes, tree)
        over = await ended(processes, tree)
        assert (over.code, over.signal, over.reason) == (137, 9, "OOMKilled")
        assert over.message.endswith("the limit is 100 MiB")

    async def test_memory_that_processes_share_counts_once(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        script = (
            "import mmap, os, pathlib, time\n"
            "shared = mmap.mmap(-1, 60 << 20); shared.write(b'x' * (60 << 20))\n"
            "for _ in range(3):\n"
            "    if os.fork() == 0: sum(shared[::4096]); pathlib.Path(f'read-{os.getpid()}').touch(); time.sleep(1000)\n"
            "while len(list(pathlib.Path('.').glob('read-*'))) < 3: time.sleep(0.01)\n"
            "time.sleep(0.5)\n"
        )
        tree = pod("python3", "-c", script, workingDir=str(tmp_path), resources={"limits": {"memory": "150Mi"}})
        await start(processes, tree)
        over = await ended(processes, tree)
        assert (over.code, over.reason) == (0, "")

    async def test_secrets_do_not_stay_on_the_disk(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sleep", "1000", env=[{"name": "WORD", "value": "hush-hush"}])
        await start(processes, tree)
        kept = [path for path in (tmp_path / "pods").rglob("*") if path.is_file()]
        assert kept
        assert not any(b"hush-hush" in path.read_bytes() for path in kept)
        assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


class TestControlGroups:
    """The files that the kernel reads, in a folder of the test: no machine needs to offer control groups to run
    this."""

    def at(self, folder: Path, controllers: str = "cpu memory", place: str = "/") -> str | None:
        own, mounts = folder / "own", folder / "mounts"
        here = folder / "mount" / place.lstrip("/")
        here.mkdir(parents=True, exist_ok=True)
        own.write_text(f"4:memory:/old\n0::{place}\n")
        mounts.write_text(f"30 23 0:26 / {folder / 'mount'} rw,nosuid - cgroup2 cgroup2 rw\n")
        (here / "cgroup.controllers").write_text(controllers)
        (here / "cgroup.subtree_control").write_text("")
        return supervisor._control_group("pykueue-u1-main-0", 1 << 20, str(mounts), str(own))

    def test_limit_is_written_into_a_group_of_its_own(self, tmp_path: Path) -> None:
        made = self.at(tmp_path)
        assert made == str(tmp_path / "mount" / "pykueue-u1-main-0")
        written = {path.name: path.read_text() for path in Path(made).iterdir()}
        assert written == {"memory.max": str(1 << 20), "memory.swap.max": "0", "memory.oom.group": "1"}

    @pytest.mark.parametrize(
        ("controllers", "place"), [("cpu", "/"), ("cpu memory", "/system.slice/of-others.service")]
    )
    def test_group_without_memory_controller_or_of_others_is_not_used(
        self, tmp_path: Path, controllers: str, place: str
    ) -> None:
        assert self.at(tmp_path, controllers, place) is None


class TestStopping:
    async def test_stop_sends_sigterm_first(self, processes: ProcessExecutor) -> None:
        tree = pod("sh", "-c", "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
        await start(processes, tree)
        await eventually(lambda: "ready" in log(processes))
        processes.stop("u1", "main", kill=False)
        assert (await ended(processes, tree)).code == 5
        assert "bye\n" in log(processes)

    async def test_process_that_ignores_sigterm_is_killed(self, processes: ProcessExecutor) -> None:
        tree = pod("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        await start(processes, tree)
        await eventually(lambda: "ready" in log(processes))
        processes.stop("u1", "main", kill=False)
        processes.stop("u1", "main", kill=True)
        over = await ended(processes, tree)
        assert (over.code, over.signal) == (137, 9)

    async def test_discard_kills_processes_and_deletes_files(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sleep", "1000")
        await start(processes, tree)
        guardian = _supervisor(tmp_path)
        await processes.discard("u1")
        assert not _is_alive(guardian)
        assert list((tmp_path / "pods").iterdir()) == []


@contextlib.contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Files of this process cannot be written beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def texts(path: Path) -> list[str]:
    """The texts of the entries of a log; each is a whole one."""
    entries = [line.split(" ", 3) for line in path.read_text().splitlines()]
    assert {(stream in ("stdout", "stderr"), part) for _, stream, part, _ in entries} == {(True, "F")}
    return [text for *_, text in entries]


class TestUnwritable:
    """A file that cannot be written, as on a full disk; here a directory is in its place."""

    @pytest.mark.parametrize("file", ["0.log", "0.pid.new"])
    async def test_what_cannot_be_recorded_is_not_started_and_tried_again(
        self, processes: ProcessExecutor, tmp_path: Path, file: str
    ) -> None:
        tree = pod("sh", "-c", "echo started >> started", workingDir=str(tmp_path))
        blocked = tmp_path / "pods" / "u1" / "main" / file
        blocked.mkdir(parents=True)
        problem = await processes.start(tree, tree["spec"]["containers"][0], 0)
        assert problem is not None
        assert (problem.reason, problem.lasting) == ("RunContainerError", False)
        assert problem.message.startswith("cannot start the container: IsADirectoryError")
        assert opened(tmp_path / "pods").attempts(tree).get("main", []) == [], "no attempt for a later runner either"
        blocked.rmdir()
        await start(processes, tree)
        assert (await ended(processes, tree)).code == 0
        assert (tmp_path / "started").read_text() == "started\n"

    async def test_an_exit_code_is_kept_until_it_can_be_recorded(
        self, processes: ProcessExecutor, tmp_path: Path
    ) -> None:
        tree = pod("sh", "-c", "exit 4")
        blocked = tmp_path / "pods" / "u1" / "main" / "0.end.new"
        blocked.mkdir(parents=True)
        await start(processes, tree)
        supervised = _supervisor(tmp_path)
        await eventually(lambda: not _children(supervised))
        await asyncio.sleep(0.3)  # it tries to record the end in less
        assert _is_alive(supervised)
        assert processes.is_running("u1", "main")
        blocked.rmdir()
        assert (await ended(processes, tree)).code == 4

    async def test_a_pod_is_deleted_although_its_end_cannot_be_recorded(
        self, processes: ProcessExecutor, tmp_path: Path
    ) -> None:
        tree = pod("sh", "-c", f"{UNTIL_RELEASED}; exit 4", workingDir=str(tmp_path))
        (tmp_path / "pods" / "u1" / "main" / "0.end.new").mkdir(parents=True)
        await start(processes, tree)
        supervised = _supervisor(tmp_path)
        (tmp_path / "released").touch()
        await eventually(lambda: not _children(supervised))
        await asyncio.sleep(0.3)
        await processes.discard("u1")
        assert not (tmp_path / "pods" / "u1").exists()

    async def test_a_lost_attempt_ends_although_that_cannot_be_recorded(
        self, processes: ProcessExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        tree = pod("sleep", "1000")
        reported: list[str] = []
        processes.on_change = reported.append
        await start(processes, tree)
        (tmp_path / "pods" / "u1" / "main" / "0.end.new").mkdir()
        os.kill(_supervisor(tmp_path), signal.SIGKILL)
        assert (await ended(processes, tree)).code == 137
        assert reported == ["u1"]
        assert "cannot record the termination of an attempt" in caplog.text

    def test_output_that_cannot_be_written_is_in_the_log_once_it_can(self, tmp_path: Path) -> None:
        """No entry is torn, although the first is written in part."""
        log = supervisor._Log(str(tmp_path / "0.log"))
        log.add(b"stdout", b"before\n")
        with files_end_at(70):
            log.add(b"stdout", b"during\n")
            log.add(b"stderr", b"an error\n")
            assert (tmp_path / "0.log").stat().st_size == 70
            assert log.is_waiting
        log.write()
        assert log._waiting == []
        log.add(b"stdout", b"after\n")
        log.close()
        assert texts(tmp_path / "0.log") == ["before", "during", "an error", "after"]

    def test_the_oldest_output_is_left_out_if_a_log_cannot_be_written_for_long(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervisor, "_LOG_BYTES_WAITING", 200_000)
        log = supervisor._Log(str(tmp_path / "0.log"))
        with files_end_at(20):
            for number in range(1000):
                log.add(b"stdout", b"%d %s\n" % (number, b"x" * 1000))
            assert sum(map(len, log._waiting)) <= 200_000
        log.add(b"stdout", b"after\n")
        log.close()
        first, note, *last, after = texts(tmp_path / "0.log")
        assert (first.partition(" ")[0], after) == ("0", "after")
        kept = [int(line.partition(" ")[0]) for line in last]
        assert kept == list(range(kept[0], 1000))
        assert len(kept) > 50
        left_out = sum(len(f"{number} ") + 1000 + 41 for number in range(1, kept[0]))
        assert note == (
            f"[pykueue: about {-(-left_out // 1024)} KiB of output are left out here: the log could not be written]"
        )

    def test_output_is_written_while_the_process_prints_nothing_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervisor, "_LOG_AGAIN_SECONDS", 0.01)
        log = supervisor._Log(str(tmp_path / "0.log"))
        with files_end_at(0):
            log.add(b"stdout", b"during\n")
        woken, _ = os.pipe()
        child = subprocess.Popen(["sh", "-c", f"until grep -q during {tmp_path / '0.log'}; do sleep 0.01; done"])
        assert supervisor._follow(child.pid, {}, woken, log) == 0
        child.wait()
        log.close()

    def test_a_log_goes_on_after_a_rotation_without_a_new_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervisor, "_LOG_BYTES_MAX", 1)
        is_full = [False]

        class Log(supervisor._Log):
            def _opened(self) -> int:
                if is_full[0]:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super()._opened()

        log = Log(str(tmp_path / "0.log"))
        for is_full[0], text in ((True, b"first\n"), (False, b"second\n"), (False, b"third\n")):
            log.add(b"stdout", text)
        log.close()
        assert (tmp_path / "0.log.old").read_text().split()[-1] == "third"
        assert not (tmp_path / "0.log").read_text()


class TestRestarting:
    async def test_running_process_is_found_after_a_restart(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sh", "-c", f"echo before; {UNTIL_RELEASED}; echo after", workingDir=str(tmp_path))
        await start(processes, tree)
        await processes.close()
        later = opened(tmp_path / "pods")
        assert [(each.number, each.ended) for each in later.attempts(tree)["main"]] == [(0, None)]
        (tmp_path / "released").touch()
        assert (await ended(later, tree)).code == 0
        assert log(later) == "before\nafter\n"
        await later.close()

    async def test_exit_during_a_restart_is_reported(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sh", "-c", "exit 4")
        await start(processes, tree)
        await processes.close()
        await eventually(lambda: list((tmp_path / "pods").rglob("0.end")))
        later = opened(tmp_path / "pods")
        assert (await ended(later, tree)).code == 4

    async def test_attempt_without_a_supervisor_is_lost(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sh", "-c", "echo $$$$; sleep 1000")
        await start(processes, tree)
        await eventually(lambda: log(processes))
        worker = int(log(processes))
        os.kill(_supervisor(tmp_path), signal.SIGKILL)
        over = await ended(processes, tree)
        assert (over.code, over.message) == (
            137,
            "the container ended while it was not supervised; its exit code is unknown",
        )
        await eventually(lambda: not _is_alive(worker))
        assert opened(tmp_path / "pods").attempts(tree)["main"] == processes.attempts(tree)["main"]

    async def test_end_of_an_attempt_that_was_lost_between_two_runners_is_its_last_sign_of_life(
        self, processes: ProcessExecutor, tmp_path: Path
    ) -> None:
        tree = pod("sh", "-c", "echo runs; sleep 1000")
        await start(processes, tree)
        # Before it executes its program, the process has the lock of its supervisor as well.
        await eventually(lambda: log(processes))
        await processes.close()
        number, (record,) = _supervisor(tmp_path), (tmp_path / "pods").rglob("0.pid")
        os.kill(number, signal.SIGKILL)
        await eventually(lambda: not _is_alive(number))
        # It was touched once a minute until the machine failed.
        last = record.stat().st_mtime_ns + 3600 * meta.SECOND
        os.utime(record, ns=(last, last))
        over = opened(tmp_path / "pods").attempts(tree)["main"][-1].ended
        assert over is not None
        assert (over.reason, over.at) == ("Lost", last)

    async def test_unknown_pods_are_discarded(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        for uid in ("u1", "u2"):
            await start(processes, pod("sleep", "1000", uid=uid))
        await processes.close()
        later = opened(tmp_path / "pods")
        await later.sweep(["u2"])
        assert [path.name for path in (tmp_path / "pods").iterdir()] == ["u2"]
        assert later.running == 1
        await later.sweep(())

    async def test_last_two_attempts_are_kept(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        for number in range(4):
            tree = pod("echo", str(number))
            await start(processes, tree, number)
            await ended(processes, tree)
        assert [each.number for each in processes.attempts(tree)["main"]] == [2, 3]
        assert {path.stem for path in (tmp_path / "pods" / "u1" / "main").iterdir()} == {"2", "3"}


class TestRecords:
    """Records on disk may be damaged, foreign, or from an earlier version."""

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            pytest.param("u1/main/0.end", "", id="empty-end"),
            pytest.param("u1/main/0.end", "[]", id="end-that-is-no-object"),
            pytest.param("u1/main/0.end", '{"code": "x"}', id="end-without-its-fields"),
            pytest.param("u1/main/0.pid", "", id="empty-pid"),
            pytest.param("u1/main/0.pid", "a b", id="pid-that-is-no-number"),
            pytest.param("u1/main/x.launch", "", id="attempt-that-is-no-number"),
            pytest.param("u1/.devices", "[]", id="devices-that-are-no-object"),
            pytest.param(".DS_Store", "", id="file-of-others"),
            pytest.param("lost+found/file", "", id="folder-of-others"),
        ],
    )
    async def test_damaged_file_does_not_hide_other_pods(
        self, processes: ProcessExecutor, tmp_path: Path, name: str, content: str
    ) -> None:
        damaged, sound = pod("sh", "-c", "exit 4"), pod("sleep", "1000", uid="u2")
        await start(processes, damaged)
        await ended(processes, damaged)
        await start(processes, sound)
        await processes.close()
        odd = tmp_path / "pods" / name
        odd.parent.mkdir(exist_ok=True)
        odd.write_text(content)
        later = opened(tmp_path / "pods")
        assert later.running == 1
        over = later.attempts(damaged)["main"][-1].ended
        assert over is not None
        if odd.suffix == ".end":
            assert (over.code, over.reason, over.message) == (
                137,
                "Lost",
                "the record of its termination is damaged; its exit code is unknown",
            )
            before = later.attempts(damaged)
            await later.close()
            later = opened(tmp_path / "pods")
            assert later.attempts(damaged) == before
        else:
            assert over.code == 4
        await later.sweep(["u1"])
        assert [path for path in (tmp_path / "pods").iterdir() if path.name == "u2"] == []
        if not name.startswith("u1"):
            assert odd.exists()

    @pytest.mark.parametrize("recorded", ["", "{pid} 1", "1 1"], ids=["nothing", "another-process", "init"])
    async def test_signals_are_sent_to_the_supervisor_despite_a_wrong_record(
        self, processes: ProcessExecutor, tmp_path: Path, recorded: str
    ) -> None:
        tree = pod("sleep", "1000")
        await start(processes, tree)
        await processes.close()
        (path,) = (tmp_path / "pods").rglob("0.pid")
        bystander = await asyncio.create_subprocess_exec("sleep", "1000")
        try:
            path.write_text(recorded.format(pid=bystander.pid))
            later = opened(tmp_path / "pods")
            later.stop("u1", "main", kill=True)
            assert (await ended(later, tree)).code == 137
            assert bystander.returncode is None
        finally:
            bystander.kill()
            await bystander.wait()

    @pytest.mark.parametrize("name", ["devices", "pod", "unknown"])
    async def test_container_may_have_any_name(self, processes: ProcessExecutor, tmp_path: Path, name: str) -> None:
        tree = pod("sh", "-c", "exit 3", gpus=1)
        tree["spec"]["containers"][0]["name"] = name
        await start(processes, tree)
        over = await eventually(lambda: processes.attempts(tree)[name][-1].ended)
        assert over is not None
        assert over.code == 3

    async def test_pods_of_an_earlier_version_go_on_with_their_devices(
        self, processes: ProcessExecutor, tmp_path: Path
    ) -> None:
        first = pod("sleep", "1000", gpus=1)
        await start(processes, first)
        await processes.close()
        place = tmp_path / "pods" / "u1"
        (place / ".devices").rename(place / "devices")
        (place / ".pod").unlink()
        later = opened(tmp_path / "pods")
        assert later.running == 1
        second = pod("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", uid="u2", gpus=1)
        await start(later, second)
        await ended(later, second)
        assert log(later, "u2") == "1\n"
        assert not (place / "devices").exists()
        await later.sweep(())


class TestUnknownPods:
    """A database that cannot know a pod must not have its processes killed and its logs deleted."""

    BEFORE = Database("one 0", 50)

    async def begun(self, processes: ProcessExecutor) -> dict[str, Any]:
        tree = pod("sleep", "1000")
        tree["metadata"]["resourceVersion"] = "60"
        await start(processes, tree)
        await processes.sweep(["u1"], self.BEFORE, discards_unknown=False)
        await processes.close()
        return tree

    @pytest.mark.parametrize(
        ("database", "is_kept"),
        [
            pytest.param(Database("one 0", 70), False, id="deleted-while-nothing-looked"),
            pytest.param(Database("two 0", 70, is_new=True), True, id="another-database"),
            pytest.param(Database("one 1000060", 1_000_060), True, id="restored-backup"),
            pytest.param(Database("one 0", 55), True, id="older-file-put-back"),
            pytest.param(IN_MEMORY, True, id="in-memory"),
        ],
    )
    async def test_unknown_pod_is_ended_only_if_the_database_could_contain_it(
        self, processes: ProcessExecutor, tmp_path: Path, database: Database, is_kept: bool
    ) -> None:
        await self.begun(processes)
        for _ in range(2):  # the next start finds the same database, and does the same
            later = opened(tmp_path / "pods")
            await later.sweep((), database, discards_unknown=False)
            assert (later.running == 1) is is_kept
            assert (tmp_path / "pods" / "u1").exists() is is_kept
            await later.close()

    async def test_operator_can_discard_unknown_pods(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        await self.begun(processes)
        other = Database("two 0", 70, is_new=True)
        for discards in (False, True):
            later = opened(tmp_path / "pods")
            await later.sweep((), other, discards_unknown=discards)
            assert later.running == (0 if discards else 1)
            await later.close()

    async def test_pod_that_is_known_again_is_an_ordinary_one(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        await self.begun(processes)
        for database, known in ((Database("two 0", 70), ()), (self.BEFORE, ("u1",)), (Database("one 0", 70), ())):
            later = opened(tmp_path / "pods")
            await later.sweep(known, database, discards_unknown=False)
            await later.close()
        assert not (tmp_path / "pods" / "u1").exists()

    async def test_pods_of_an_earlier_version_are_kept_from_a_new_database(
        self, processes: ProcessExecutor, tmp_path: Path
    ) -> None:
        await self.begun(processes)
        (tmp_path / "pods" / ".database").unlink()
        for database, is_kept in ((Database("two 0", 1, is_new=True), True), (Database("two 0", 70), True)):
            later = opened(tmp_path / "pods")
            await later.sweep((), database, discards_unknown=False)
            assert (later.running == 1) is is_kept
            await later.close()


class TestDevices:
    async def test_each_pod_has_its_own_until_it_ends(self, processes: ProcessExecutor) -> None:
        first, second = pod("sleep", "1000", gpus=1), pod("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", uid="u2", gpus=1)
        await start(processes, first)
        await start(processes, second)
        await ended(processes, second)
        assert log(processes, "u2") == "1\n"
        third = pod("sh", "-c", "echo $PYKUEUE_DEVICES_NVIDIA_COM_GPU; sleep 1000", uid="u3", gpus=1)
        await start(processes, third)
        await eventually(lambda: log(processes, "u3") == "1\n")
        fourth = pod("true", uid="u4", gpus=1)
        problem = await processes.start(fourth, fourth["spec"]["containers"][0], 0)
        assert problem is not None
        assert problem.reason == "DevicesTaken"

    async def test_devices_are_released_after_an_unobserved_end(
        self, processes: ProcessExecutor, tmp_path: Path
    ) -> None:
        both = pod("true", gpus=2)
        await start(processes, both)
        await processes.close()
        await eventually(lambda: list((tmp_path / "pods").rglob("0.end")))
        later = opened(tmp_path / "pods")
        await ended(later, both)
        await start(later, pod("true", uid="u2", gpus=2))
        await later.sweep(())

    async def test_devices_are_released_after_an_immediate_end(
        self, processes: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usual = processes_module._launch

        def late(path: Path, *rest: Any) -> None:
            usual(path, *rest)
            until(path.with_suffix(".end").exists)

        monkeypatch.setattr(processes_module, "_launch", late)
        for uid in ("u1", "u2"):
            await start(processes, pod("true", uid=uid, gpus=2))

    async def test_restart_does_not_reassign_devices_in_use(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        await start(processes, pod("sleep", "1000", gpus=1))
        await processes.close()
        later = opened(tmp_path / "pods")
        second = pod("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", uid="u2", gpus=1)
        await start(later, second)
        await ended(later, second)
        assert log(later, "u2") == "1\n"
        await later.sweep(())


class TestStart:
    def test_a_supervisor_loads_no_module_that_takes_long(self) -> None:
        *command, _, _, _ = supervisor.command("", "0", 3)
        code = f"{command[-1].rpartition(';')[0]}; print(*sys.modules)"
        loaded = set(subprocess.run([*command[:-1], code], capture_output=True, check=True, text=True).stdout.split())
        assert "supervisor" in loaded
        assert not loaded & {"collections", "contextlib", "enum", "json", "re", "signal", "typing"}

    def test_record_of_a_running_process_is_touched(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervisor, "_SIGN_SECONDS", 0.01)
        sign, reference = tmp_path / "0.pid", tmp_path / "reference"
        for file, at in ((sign, 0), (reference, 1)):
            file.touch()
            os.utime(file, (at, at))
        woken, _ = os.pipe()
        child = subprocess.Popen(["sh", "-c", f"until [ {sign} -nt {reference} ]; do sleep 0.01; done"])
        log = supervisor._Log(str(tmp_path / "0.log"))
        assert supervisor._follow(child.pid, {}, woken, log, None, str(sign)) == 0
        child.wait()

    @pytest.mark.parametrize(
        "record",
        [
            {"code": 0, "signal": 0, "at": 1763400000000000000, "why": ""},
            {"code": 137, "signal": 9, "at": 1, "why": 'a "quoted" text\n', "reason": "OOMKilled"},
        ],
    )
    def test_the_record_of_an_end_is_json(self, record: dict[str, Any]) -> None:
        assert json.loads(supervisor._json(record)) == record


class TestLogs:
    def test_output_before_the_end_is_kept_if_the_supervisor_is_delayed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A descendant holds the pipe open, so that only the deadline ends the reading."""
        monkeypatch.setattr(supervisor, "_DRAIN_SECONDS", 0.0)
        (woken, waker), (out, end) = os.pipe(), os.pipe()
        received: list[bytes] = []

        class Log(supervisor._Log):
            def __init__(self) -> None:
                super().__init__(os.devnull)
                os.write(end, b"one\n")

            def add(self, stream: bytes, text: bytes) -> None:
                received.append(text)
                if text == b"one\n":
                    os.write(end, b"two\n")

        child = subprocess.Popen(["sh", "-c", "exit 3"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        log = Log()
        assert supervisor._follow(child.pid, {out: b"stdout"}, woken, log) == 3
        assert received == [b"one\n", b"two\n"]
        child.wait()
        log.close()
        for pipe in (woken, waker, out, end):
            os.close(pipe)

    async def test_the_last_lines(self, processes: ProcessExecutor) -> None:
        tree = pod("sh", "-c", "seq 1 9; printf rest")
        await start(processes, tree)
        await ended(processes, tree)
        assert log(processes, tail=3) == "8\n9\nrest"
        assert log(processes, tail=0) == ""

    async def test_lines_that_come_in_pieces_are_one(self, processes: ProcessExecutor) -> None:
        tree = pod("sh", "-c", "printf a; sleep 0.2; printf b; sleep 0.2; echo c; echo d")
        await start(processes, tree)
        await ended(processes, tree)
        assert log(processes) == "abc\nd\n"
        first, second = log(processes, timestamps=True).splitlines()
        assert first.endswith("Z abc")
        assert second.endswith("Z d")

    async def test_lines_since_a_time(self, processes: ProcessExecutor, tmp_path: Path) -> None:
        tree = pod("sh", "-c", f"echo old; {UNTIL_RELEASED}; echo new", workingDir=str(tmp_path))
        await start(processes, tree)
        await eventually(lambda: log(processes))
        (tmp_path / "released").touch()
        await ended(processes, tree)
        reported = [line.split()[0] for line in log(processes, timestamps=True).splitlines()]
        assert log(processes, since=reported[1]) == "new\n"

    def test_a_line_is_as_old_as_its_beginning(self) -> None:
        entries = [b"2026-01-01T10:00:05.9Z stdout P a", b"2026-01-01T10:00:06.1Z stdout F b",
                   b"2026-01-01T10:00:06.2Z stdout F c"]  # fmt: skip
        wanted = LogSelection(since="2026-01-01T10:00:06.000000000Z")
        assert b"".join(log_text(iter(entries), wanted)) == b"c\n"


def _supervisor(folder: Path) -> int:
    (path,) = (folder / "pods").rglob("0.pid")
    return int(path.read_text().split()[0])


def _children(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return ""


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not fetched by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False


class TestFullLogs:
    """A supervisor rotates a full file; a reader continues without a gap."""

    def entry(self, text: str) -> bytes:
        return f"2026-01-01T00:00:00.000000000Z stdout F {text}\n".encode()

    def test_the_file_before_is_read_first(self, tmp_path: Path) -> None:
        (tmp_path / "0.log.old").write_bytes(self.entry("one"))
        (tmp_path / "0.log").write_bytes(self.entry("two"))
        reader = LogReader(tmp_path / "0.log", LogSelection())
        assert b"".join(iter(reader.next, b"")) == b"one\ntwo\n"
        reader.close()

    def test_a_reader_goes_on_in_the_next_file(self, tmp_path: Path) -> None:
        log_ = tmp_path / "0.log"
        log_.write_bytes(self.entry("one"))
        reader = LogReader(log_, LogSelection())
        assert reader.next() == b"one\n"
        with log_.open("ab") as file:
            file.write(self.entry("two"))
        log_.rename(tmp_path / "0.log.old")
        log_.write_bytes(self.entry("three"))
        assert b"".join(iter(reader.next, b"")) == b"two\nthree\n"
        reader.close()

    def test_what_is_deleted_under_a_reader_is_read_to_its_end(self, tmp_path: Path) -> None:
        """As the log of a pod is, whose job has run out of time."""
        log_ = tmp_path / "0.log"
        log_.write_bytes(self.entry("one"))
        reader = LogReader(log_, LogSelection())
        assert reader.next() == b"one\n"
        with log_.open("ab") as file:
            file.write(self.entry("two"))
        log_.unlink()
        assert b"".join(iter(reader.next, b"")) == b"two\n"
        reader.close()

    def test_files_that_are_rotated_or_deleted_during_a_read_are_read(self, tmp_path: Path) -> None:
        """They are opened together: the second is neither skipped nor missed when the first has been read."""
        older, log_ = tmp_path / "0.log.old", tmp_path / "0.log"
        older.write_bytes(self.entry("x" * 300_000) + self.entry("one"))
        log_.write_bytes(self.entry("two"))
        rotated, deleted = (LogReader(log_, LogSelection(), follows=follows) for follows in (True, False))
        begun = [reader.next() for reader in (rotated, deleted)]
        log_.rename(older)
        log_.write_bytes(self.entry("three"))
        assert begun[0] + b"".join(iter(rotated.next, b"")) == b"x" * 300_000 + b"\none\ntwo\nthree\n"
        older.unlink()
        log_.unlink()
        assert begun[1] + b"".join(iter(deleted.next, b"")) == b"x" * 300_000 + b"\none\ntwo\n"
        for reader in (rotated, deleted):
            reader.close()

    def test_a_log_in_the_middle_of_its_rotation_is_waited_for(self, tmp_path: Path) -> None:
        (tmp_path / "0.log.old").write_bytes(self.entry("one"))
        reader = LogReader(tmp_path / "0.log", LogSelection(), follows=False)
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(lambda: b"".join(iter(reader.next, b"")))
            (tmp_path / "0.log").write_bytes(self.entry("two"))
            assert reading.result() == b"one\ntwo\n"
        reader.close()

    @pytest.mark.parametrize("tail", [None, 1])
    def test_a_read_that_does_not_follow_ends_although_the_log_grows(self, tmp_path: Path, tail: int | None) -> None:
        log_ = tmp_path / "0.log"
        log_.write_bytes(self.entry("one") + self.entry("two"))
        reader = LogReader(log_, LogSelection(tail=tail), follows=False)
        assert reader.next() == (b"one\ntwo\n" if tail is None else b"two\n")
        with log_.open("ab") as file:
            file.write(self.entry("three"))
        assert reader.next() == b""
        reader.close()

    @pytest.mark.parametrize("wanted", [LogSelection(), LogSelection(tail=3)])
    def test_a_read_is_of_the_log_as_it_was_at_its_beginning(self, tmp_path: Path, wanted: LogSelection) -> None:
        """However much is written while the text before it is read."""
        log_ = tmp_path / "0.log"
        long = "x" * 300_000
        log_.write_bytes(self.entry(long) + self.entry("two"))
        reader = LogReader(log_, wanted, follows=False)
        parts = [reader.next()]
        with log_.open("ab") as file:
            file.write(self.entry("three"))
        parts += iter(reader.next, b"")
        assert b"".join(parts) == f"{long}\ntwo\n".encode()
        reader.close()

    def test_last_lines_are_followed_by_what_is_added(self, tmp_path: Path) -> None:
        log_ = tmp_path / "0.log"
        log_.write_bytes(self.entry("one") + self.entry("two"))
        reader = LogReader(log_, LogSelection(tail=1))
        assert reader.next() == b"two\n"
        with log_.open("ab") as file:
            file.write(self.entry("three"))
        log_.rename(tmp_path / "0.log.old")
        log_.write_bytes(self.entry("four"))
        assert b"".join(iter(reader.next, b"")) == b"three\nfour\n"
        reader.close()

    def test_half_an_entry_is_left_for_later(self, tmp_path: Path) -> None:
        log_ = tmp_path / "0.log"
        whole = self.entry("one")
        log_.write_bytes(whole[:-5])
        reader = LogReader(log_, LogSelection())
        assert reader.next() == b""
        log_.write_bytes(whole)
        assert reader.next() == b"one\n"
        reader.close()
