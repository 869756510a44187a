"""The rule book: a label that code, tests, scenarios or pages cite is defined in docs/rules, and defined once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docs/rules"
CITING = ("src", "tests", "docs", "bench", "examples")
SUFFIXES = frozenset({".py", ".md", ".txt", ".tsv"})

# `**CY6.**` at the start of a paragraph, list item or table row defines a label. `[CY6]` cites it; a departure from Kueue
# is cited without brackets as well.
_DEFINITION = re.compile(r"^(?:- |\| )?\*\*([A-Z]{1,2}\d+)\.\*\*", re.MULTILINE)
_CITATION = re.compile(r"(?<!\w)\[([A-Z]{1,2}\d+)\](?!\()|\b(W\d{1,2})\b(?!=)")


def defined(text: str) -> list[str]:
    return _DEFINITION.findall(text)


def cited(text: str) -> set[str]:
    return {bracketed or bare for bracketed, bare in _CITATION.findall(text)}


def _rule_book() -> Counter[str]:
    return Counter(label for page in sorted(RULES.glob("*.md")) for label in defined(page.read_text(encoding="utf-8")))


def _citations() -> Iterator[tuple[str, str]]:
    for directory in CITING:
        for path in sorted((ROOT / directory).rglob("*")):
            if path.suffix in SUFFIXES and path != Path(__file__).resolve():
                for label in sorted(cited(path.read_text(encoding="utf-8"))):
                    yield label, str(path.relative_to(ROOT))


def test_every_cited_label_is_defined() -> None:
    known = _rule_book()
    assert [(label, file) for label, file in _citations() if label not in known] == []


def test_every_label_is_defined_once() -> None:
    assert [label for label, times in _rule_book().items() if times > 1] == []


def test_every_page_of_rules_is_in_the_list_of_pages() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (RULES / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in RULES.glob("*.md")} - {"index.md"} == listed


def test_labels_are_found_where_they_are_defined_and_cited() -> None:
    assert defined("- **AM1.** As `**CY6.**`.\n| **W2.** | Kueue |\n**QU3.** States.") == ["AM1", "W2", "QU3"]
    assert cited("stays [CY6], [QU10] (W3) and W12; not list[S1], [TLS12], b'W10=' or [D9](page.md)") == {
        "CY6",
        "QU10",
        "W3",
        "W12",
    }
