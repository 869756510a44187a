"""`pykueue up` is killed and comes back: what ran goes on and is told to its end, and nothing runs twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import started
from pykueue import cli
from waiting import until


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
    ends = {name: tmp_path / f"end-{name}" for name in ("long", "short")}
    up = started.up(tmp_path)
    monkeypatch.setenv("KUBECONFIG", os.fspath(up.kubeconfig))
    try:
        for name, end in ends.items():
            script = f"echo began; echo x >> {log}; while [ ! -e {end} ]; do sleep 0.05; done; echo over; rm {end}"
            assert run("submit", "--cpu", "100m", "--name", name, "--", "sh", "-c", script) == 0
        until(lambda: log.exists() and log.read_text() == "x\nx\n")
        assert "Traceback" not in up.end(number)[1]
        ends["short"].touch()
        until(lambda: not ends["short"].exists())  # it ends while nobody is there
        up.start()
        assert run("wait", "short", "--timeout", "90s") == 0
        ends["long"].touch()
        assert run("wait", "long", "--timeout", "90s") == 0
        capsys.readouterr()
        assert run("logs", "long") == 0
        assert capsys.readouterr().out == "began\nover\n"
        assert log.read_text() == "x\nx\n", "each of them ran once"
    finally:
        up.end(signal.SIGTERM)
