"""A stranger who follows a page gets what the page shows: the commands run, and the text beneath is what they print."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
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
    try:
        _follow(page, tmp_path, environment)
    finally:
        for kept in tmp_path.glob("*.pid"):  # servers that a page started, and did not come to ending
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(kept.read_text()), signal.SIGTERM)


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
