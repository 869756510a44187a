"""`pykueue up` is killed and comes back: what ran goes on and is told to its end, and nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pykueue import cli


class Up:
    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._arguments = ["--data-dir", str(folder / "data"), "--kubeconfig", str(self.kubeconfig)]
        self.start()

    def start(self) -> None:
        self.kubeconfig.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pykueue", "up", *self._arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        _soon(self.kubeconfig.exists)

    def end(self, number: int) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=30)[1]


def _soon(true: object, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


def run(*arguments: str) -> int:
    try:
        cli.main(arguments)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_work_survives(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    script = f"echo began; echo x >> {log}; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo over"
    up = Up(tmp_path)
    monkeypatch.setenv("KUBECONFIG", os.fspath(up.kubeconfig))
    try:
        assert run("submit", "--cpu", "100m", "--name", "long", "--", "sh", "-c", script) == 0
        assert run("submit", "--cpu", "100m", "--name", "short", "--", "sh", "-c", f"echo x >> {log}; sleep 1") == 0
        _soon(lambda: log.exists() and log.read_text() == "x\nx\n")
        told = up.end(number)
        assert "Traceback" not in told
        time.sleep(1.2)  # the short one ends while nobody is there
        up.start()
        assert run("wait", "short", "--timeout", "30s") == 0
        (tmp_path / "end").touch()
        assert run("wait", "long", "--timeout", "30s") == 0
        capsys.readouterr()
        assert run("logs", "long") == 0
        assert capsys.readouterr().out == "began\nover\n"
        assert log.read_text() == "x\nx\n", "each of them ran once"
    finally:
        up.end(signal.SIGTERM)
