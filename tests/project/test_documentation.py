"""The documentation against the tables and the files: what is public is documented, what is written is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reference_pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


GENERATED = dict(reference_pages.files())


@pytest.mark.parametrize("name", GENERATED)
def test_generated_file_equals_the_tables(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == GENERATED[name], "run make docs"


def test_nothing_old_lies_among_the_generated_pages() -> None:
    made = GENERATED.keys()
    lying = {str(path.relative_to(ROOT)) for path in (ROOT / "docs/reference").rglob("*.md")}
    lying |= {str(path.relative_to(ROOT)) for path in (ROOT / "deploy/crds").glob("*")}
    assert lying == {name for name in made if name.startswith(("docs/reference/", "deploy/crds/"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{target} is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_fence_is_one_that_renders(page: Path) -> None:
    """A fence with more than one word after its backticks stays raw text on the site, and breaks the block after it."""
    is_open = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if found := re.match(r"\s*(```+|~~~+)(.*)$", line):
            shape = r"" if is_open else r"[\w+-]*"
            assert re.fullmatch(shape, found[2].rstrip()), f"{page.name}:{number}: {line}"
            is_open = not is_open
    assert not is_open, f"{page.name}: a fence is never closed"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.is_relative_to(ROOT / "docs")], ids=lambda page: page.stem
)
def test_links_of_the_site_stay_within_it(page: Path) -> None:
    """The site is built from docs/ alone: a link to a file beside it leads nowhere."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).resolve().is_relative_to(ROOT / "docs"), f"{target} is not part of the site"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_named_in_a_page_exists(page: Path) -> None:
    for path in re.findall(
        r"`((?:src|tests|docs|bench|examples|deploy)/[\w./-]+\w)`", page.read_text(encoding="utf-8")
    ):
        assert (ROOT / path).exists(), f"{path} is not there"


def test_every_decision_is_dated() -> None:
    for page in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        assert re.search(r"^Date: \d{4}-\d{2}-\d{2}$", page.read_text(encoding="utf-8"), re.MULTILINE), page.name
