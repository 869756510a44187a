"""The arrows of ARCHITECTURE.md against the imports of the code: both change together, or the test says which is wrong."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pykueue"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


class Import(NamedTuple):
    importer: str  # pykueue.core.cycle
    imported: str  # pykueue.api.meta, or sqlite3
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def block(name: str) -> list[str]:
    found = re.search(rf"```{name}\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"ARCHITECTURE.md has no block called {name}"
    return found.group(1).strip().splitlines()


@cache
def floors() -> dict[str, int]:
    """room -> height, 0 at the top."""
    return {room.strip(): height for height, line in enumerate(block("floors")) for room in line.split("|")}


@cache
def rules() -> dict[str, tuple[str, ...]]:
    return {key.strip(): tuple(words.split()) for key, words in (line.split(":", 1) for line in block("rules"))}


@cache
def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("pykueue", *path.relative_to(SOURCE).with_suffix("").parts)
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name, path in modules().items() for found in _imports_of(name, path))


def _imports_of(name: str, path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (Import(name, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: imports are written whole, not relative"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield Import(name, whole if whole in modules() else str(node.module), node.lineno)


def room(module: str) -> str | None:
    """The room of one of our modules: `pykueue.core.cycle` is in `core`. The package itself is in none."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pykueue" and len(parts) > 1 else None


def test_every_room_has_its_place_on_the_page() -> None:
    rooms = {room(name) for name in modules()} - {None, "__main__"}
    assert rooms <= set(floors()), f"not in ARCHITECTURE.md: {sorted(map(str, rooms - set(floors())))}"


def test_imports_point_down() -> None:
    wrong = []
    for found in imports():
        here, there = room(found.importer), room(found.imported)
        if here in (None, "__main__") or there in (None, here):
            continue
        if floors()[here] >= floors()[there]:
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_pure_rooms_use_nothing_that_touches_the_world() -> None:
    pure = set(rules()["pure"])
    allowed, never = set(rules()["pure rooms import"]), set(rules()["pure rooms never import"])
    wrong = []
    for found in imports():
        top = found.imported.split(".")[0]
        if room(found.importer) not in pure or top == "pykueue":
            continue
        if top in never or (top not in allowed and top not in sys.stdlib_module_names):
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_pure_rooms_know_only_pure_rooms() -> None:
    pure = set(rules()["pure"])
    wrong = [
        str(found) for found in imports() if room(found.importer) in pure and room(found.imported) not in {None, *pure}
    ]
    assert not wrong, "\n".join(wrong)


def test_machines_have_not_heard_of_queueing() -> None:
    general = {f"pykueue.api.{name}" for name in rules()["machines know of api"]}
    wrong = [
        str(found)
        for found in imports()
        if room(found.importer) in rules()["machines"]
        and room(found.imported) == "api"
        and not any(found.imported == name or found.imported.startswith(name + ".") for name in general)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.startswith("only ")])
def test_one_outside_library_per_seam(rule: str) -> None:
    seams = [f"pykueue.{name}" for name in rule.removeprefix("only ").removesuffix(" imports").split()]
    libraries = set(rules()[rule])
    wrong = [
        str(found)
        for found in imports()
        if found.imported.split(".")[0] in libraries
        and not any(found.importer == seam or found.importer.startswith(seam + ".") for seam in seams)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_in_a_circle() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.imported in graph and found.imported != found.importer:
            graph[found.importer].add(found.imported)
    # A package's __init__ is loaded with each of its modules; that is Python's arrow, not one of ours.
    visiting: list[str] = []
    done: set[str] = set()

    def visit(name: str) -> None:
        assert name not in visiting, " -> ".join([*visiting[visiting.index(name) :], name])
        if name in done:
            return
        visiting.append(name)
        for below in sorted(graph[name]):
            visit(below)
        visiting.pop()
        done.add(name)

    for name in sorted(graph):
        visit(name)


def test_no_room_is_called_by_a_word_that_says_nothing() -> None:
    empty = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "base"}
    # A command is called what people type.
    assert not [name for name in modules() if name.split(".")[-1] in empty and room(name) != "cli"]


def test_every_module_named_on_the_page_exists() -> None:
    for path in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE):
        assert (SOURCE / path).exists(), f"{path} is not there"
