"""An interrupt while the modules of the program are imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def test_interrupt_during_imports_shows_no_traceback(tmp_path: Path) -> None:
    """The first module that the command imports from another package sends the signal to its own process. Where tests
    run in the background, the shell has made them ignore it, and the command would ignore it as well."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    ended = subprocess.run(
        [sys.executable, "-m", "pykueue", "version"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "\ninterrupted\n")
