"""README's first minute, followed to the letter: `make run` in one terminal, a job in another."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import PATIENCE_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on this machine")
def test_the_first_minute_ends_with_hi(tmp_path: Path) -> None:
    chapter = (ROOT / "README.md").read_text().partition("## In a minute")[2].partition("\n## ")[0]
    first, second = re.findall(r"```sh\n(.*?)```", chapter, re.DOTALL)
    environment = {**os.environ, "HOME": str(tmp_path)}
    for name in ("KUBECONFIG", "ARGS"):  # ARGS: those of the `make test` that runs this
        environment.pop(name, None)
    # What is installed already is used as it is: `make` must not install anything into the place that runs this test.
    place = tmp_path / "venv"
    place.mkdir()
    (place / "bin").symlink_to(Path(sys.prefix) / "bin")
    (place / ".installed-runtime").touch()
    running = subprocess.Popen(
        ["bash", "-c", first],
        cwd=ROOT,
        env={**environment, "MAKEFLAGS": f"VENV={place}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: (tmp_path / ".pykueue" / "kubeconfig").exists() or running.poll() is not None)
        assert running.poll() is None, running.communicate()[1]
        path = f"{sys.prefix}/bin:{environment['PATH']}"
        typed = subprocess.run(
            ["bash", "-eu", "-c", second], cwd=ROOT, env={**environment, "PATH": path}, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert typed.returncode == 0, typed.stderr
        assert typed.stdout.splitlines()[-1] == "hi"
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.communicate(timeout=PATIENCE_SECONDS)
