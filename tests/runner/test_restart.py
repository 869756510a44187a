"""`pykueue up` is killed and restarted: running processes continue, their end is reported, and nothing runs twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

import started
from kubemachinery import meta
from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.clock import SystemClock
from pykueue import cli
from waiting import until


def run(*arguments: str) -> int:
    try:
        cli.main(arguments)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_running_pods_survive_a_restart(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    ends = {name: tmp_path / f"end-{name}" for name in ("long", "short")}
    up = started.up(tmp_path)
    monkeypatch.setenv("KUBECONFIG", os.fspath(up.kubeconfig))
    try:
        for name, end in ends.items():
            script = f"echo began; echo x >> {log}; while [ ! -e {end} ]; do sleep 0.05; done; echo over; rm {end}"
            # The limit of the short one expires while no server runs, after it has ended.
            limit = ("--time", "25s") if name == "short" and number == signal.SIGKILL else ()
            assert run("submit", "--cpu", "100m", "--name", name, *limit, "--", "sh", "-c", script) == 0
        limit_expires = time.time() + (25 if number == signal.SIGKILL else 0)
        until(lambda: log.exists() and log.read_text() == "x\nx\n")
        assert "Traceback" not in up.end(number)[1]
        ends["short"].touch()
        until(lambda: list((tmp_path / "data").rglob("*.end")))  # it ends while no server runs
        ended = int(time.time())
        until(lambda: time.time() > limit_expires + 1 and int(time.time()) > ended + 1)
        up.start()
        assert run("wait", "short", "--timeout", "90s") == 0
        rows: list[list[str]] = [["", ""]]

        def is_recorded() -> bool:
            capsys.readouterr()
            assert run("history", "--name", "short", "--format", "ended,exit", "-o", "csv") == 0
            # The record of a job that was submitted just before the end of the server is written after the restart.
            for line in capsys.readouterr().out.splitlines()[1:]:
                rows[0] = line.split(",")
            return all(rows[0])

        until(is_recorded)
        assert meta.parse_time(rows[0][0]) <= ended * meta.SECOND, "the end is not that of the restart"
        assert rows[0][1] == "0"
        ends["long"].touch()
        assert run("wait", "long", "--timeout", "90s") == 0
        capsys.readouterr()
        assert run("logs", "long") == 0
        assert capsys.readouterr().out == "began\nover\n"
        assert log.read_text() == "x\nx\n", "each of them ran once"
    finally:
        up.end(signal.SIGTERM)


async def _back_up(kubeconfig: Path) -> None:
    client = ApiClient(client_config.connect(client_config.from_files([kubeconfig]), SystemClock()), random.Random(1))
    try:
        await client.request(
            ApiRequest("POST", "/.well-known/embedded-backup", body=b"{}", content_type="application/json")
        )
    finally:
        await client.close()


@pytest.mark.parametrize("lost", ["missing", "empty", "restored"])
def test_database_without_a_pod_does_not_end_its_processes(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, running = tmp_path / "data", tmp_path / "running"
    up = started.up(tmp_path)
    monkeypatch.setenv("KUBECONFIG", os.fspath(up.kubeconfig))
    try:
        asyncio.run(_back_up(up.kubeconfig))
        script = f"echo $$ > {running}.new; mv {running}.new {running}; sleep 1000"
        assert run("submit", "--cpu", "100m", "--name", "long", "--", "sh", "-c", script) == 0
        until(running.exists)
        up.end(signal.SIGKILL)
        for path in data.glob("*.db*"):
            path.unlink()
        if lost == "empty":
            (data / "state.db").touch()
        if lost == "restored":
            for path in data.glob("backups/*/*.db"):
                shutil.copy(path, data)
        up.start()
        _, reported = up.end(signal.SIGTERM)
        assert "holds 1 pods that are not in the database, with 1 running processes" in reported
        os.kill(int(running.read_text()), 0)
        assert list(data.glob("pods/*/main/0.log"))
    finally:
        again = started.up(tmp_path, "--discard-unknown-pods")
        again.end(signal.SIGTERM)
    assert not list(data.glob("pods/*/main"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)
