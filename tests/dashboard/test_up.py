"""What `pykueue up` says of its dashboard."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path


def test_on_a_terminal_the_address_has_a_token_that_may_only_look(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "pykueue",
        "up",
        "--runner",
        "none",
        "--durability",
        "memory",
        "--data-dir",
        tmp_path,
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said, ends = b"", time.monotonic() + 60
    try:
        while b"export KUBECONFIG" not in said and time.monotonic() < ends:
            said += os.read(ours, 65536)
    finally:
        process.terminate()
        process.wait(20)
        os.close(ours)
    (line,) = (line for line in said.decode().splitlines() if line.startswith("dashboard at "))
    token = (tmp_path / "pki" / "view.token").read_text().strip()
    assert line.endswith(f"/dashboard/#token={token}")
