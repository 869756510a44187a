"""What `pykueue up` says of its dashboard."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from waiting import PATIENCE_SECONDS


def test_on_a_terminal_the_address_has_a_token_that_may_only_look(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    options = ["--runner", "none", "--durability", "memory", "--data-dir", str(tmp_path)]
    command = [sys.executable, "-m", "pykueue", "up", *options]
    environment = {**os.environ, "HOME": str(tmp_path)}  # where it leaves word of itself
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    )
    os.close(theirs)
    said = b""
    try:
        while not re.search(rb"^dashboard at .*\n", said, re.MULTILINE):
            said += os.read(ours, 65536)  # an error when there is nobody any more who could say it
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        os.close(ours)
    (line,) = (line for line in said.decode().splitlines() if line.startswith("dashboard at "))
    token = (tmp_path / "pki" / "view.token").read_text().strip()
    assert line.endswith(f"/dashboard/#token={token}")
