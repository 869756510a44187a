"""The link to the dashboard that `pykueue up` prints."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE_SECONDS


def test_dashboard_link_on_a_terminal_has_a_read_only_token(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    options = ["--runner", "none", "--durability", "memory", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-m", "pykueue", "up", *options]
    environment = {**os.environ, "HOME": str(tmp_path)}  # where it leaves word of itself
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    )
    os.close(theirs)
    output = b""
    try:
        while not re.search(rb"^dashboard at .*\n", output, re.MULTILINE):
            output += os.read(ours, 65536)  # raises when the process has ended
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        os.close(ours)
    (line,) = (line for line in output.decode().splitlines() if line.startswith("dashboard at "))
    token = (tmp_path / "pki" / "view.token").read_text().strip()
    assert line.endswith(f"/dashboard/#token={token}")
