"""The page of each proposal names the tests that show its statements: every test there is, and none besides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = {file.stem.split("_")[1]: file for file in sorted((ROOT / "tests" / "keps").glob("test_[0-9]*.py"))}
_TEST = r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`"


def page(number: str) -> str:
    return (ROOT / "docs" / "keps" / f"{number}.md").read_text(encoding="utf-8")


def names_in(file: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("number", FILES)
def test_the_page_and_the_tests_name_each_other(number: str) -> None:
    named = {name for path, name in re.findall(_TEST, page(number)) if not path}
    assert named - {FILES[number].stem} == names_in(FILES[number])


@pytest.mark.parametrize("number", FILES)
def test_every_statement_of_a_proposal_names_tests_that_exist(number: str) -> None:
    section = page(number).partition("\n## Sentence by sentence\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for of_section, statement, tests in rows:
        found = re.findall(_TEST, tests)
        assert found, f"{of_section}: {statement} names no test"
        for path, name in found:
            file = ROOT / path if path else FILES[number]
            assert name in names_in(file), f"{statement}: {file.name} has no {name}"
