"""The page of each proposal names the tests that show its promises: every one that there is, and none besides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "keps").glob("test_[0-9]*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_page_and_the_tests_name_each_other(file: Path) -> None:
    number = file.stem.split("_")[1]
    page = (ROOT / "docs" / "keps" / f"{number}.md").read_text(encoding="utf-8")
    there = set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`(test_\w+)`", page)) - {file.stem} == there
