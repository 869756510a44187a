"""The commands of the documentation run, and print what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
FOLLOWED = ("docs/tasks/*.md", "docs/operations/*.md", "docs/keps/*.md", "examples/*/README.md")
PAGES = sorted(page for pattern in FOLLOWED for page in ROOT.glob(pattern))


class Block(NamedTuple):
    commands: str
    fails: bool
    shown: str | None


def blocks(page: Path) -> list[Block]:
    """The `sh` blocks in order; a `text` block right beneath one is what it prints. One that has to fail has the line
    `<!-- fails -->` above it: a second word after the backticks would make the fence no fence on the site."""
    text = page.read_text(encoding="utf-8")
    pattern = r"(<!-- fails -->\n)?```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?"
    return [Block(found[2], bool(found[1]), found[3]) for found in re.finditer(pattern, text, re.DOTALL)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment.pop("KUBECONFIG", None)
    environment["PYKUEUE_NO_PROGRESS"] = "1"  # pages show no progress, however slow the machine is
    try:
        _follow(page, tmp_path, environment)
    finally:
        for kept in tmp_path.glob("*.pid"):  # servers that a page started, and did not come to ending
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(kept.read_text()), signal.SIGTERM)
        _end_processes(tmp_path.resolve())


def _end_processes(folder: Path) -> None:
    """End what a page left running in its folder: jobs outlive their server, and those of a Deployment never end."""
    for _ in range(50):
        if not any(b"pykueue" in line and b"up" in line.split(b"\0") for line in _running(folder).values()):
            break
        time.sleep(0.1)  # a server that ends writes what it has
    for _ in range(2):  # one may have started another meanwhile
        for process in _running(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _running(folder: Path) -> dict[int, bytes]:
    """The processes whose working directory is in a folder, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found[int(process.name)] = (process / "cmdline").read_bytes()
    return found


def _follow(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    for block in blocks(page):
        if "kubectl" in block.commands and shutil.which("kubectl") is None:
            pytest.skip("kubectl is not here")
        result = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", block.commands],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_SECONDS,
            check=False,
        )
        assert (result.returncode != 0) == block.fails, f"{block.commands}\n{result.stdout}{result.stderr}"
        if block.shown is not None and not block.shown.startswith(("kubectl", "KUBEBUILDER")):
            assert (result.stdout + result.stderr).strip() == block.shown.strip()
