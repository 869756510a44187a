"""`examples/tour` walks through all five proposals. `tests/project` checks that it prints what its page shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tour_stops_at_every_proposal() -> None:
    page = (ROOT / "examples" / "tour" / "README.md").read_text(encoding="utf-8")
    stops = set(re.findall(r"^KEP-(\d+):", page, re.MULTILINE))
    assert stops == {path.stem for path in (ROOT / "docs" / "keps").glob("[0-9]*.md")}
