"""`examples/tour` walks through all five proposals and prints what its page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "tour"


def test_the_tour_prints_what_its_page_shows() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    result = subprocess.run(
        [sys.executable, str(FOLDER / "tour.py")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert [result.stdout] == shown


def test_the_tour_stops_at_every_proposal() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    stops = set(re.findall(r"^KEP-(\d+):", page, re.MULTILINE))
    assert stops == {path.stem for path in (ROOT / "docs" / "keps").glob("[0-9]*.md")}
