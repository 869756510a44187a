"""The layers of ARCHITECTURE.md against the imports of the code: both change together, or a test names the import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
OURS = ("kubemachinery", "kubeserver", "pykueue")


class Import(NamedTuple):
    importer: str  # pykueue.core.cycle
    imported: str  # kubemachinery.meta, or sqlite3
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def block(name: str) -> list[str]:
    found = re.search(rf"```{name}\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"ARCHITECTURE.md has no block {name}"
    return found.group(1).strip().splitlines()


@cache
def layers() -> dict[str, int]:
    """Package -> layer, 0 at the top."""
    return {package.strip(): layer for layer, line in enumerate(block("layers")) for package in line.split("|")}


@cache
def rules() -> dict[str, tuple[str, ...]]:
    return {key.strip(): tuple(words.split()) for key, words in (line.split(":", 1) for line in block("rules"))}


@cache
def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
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
            assert node.level == 0, f"{name}:{node.lineno}: imports are absolute, not relative"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield Import(name, whole if whole in modules() else str(node.module), node.lineno)


def package(module: str) -> str | None:
    """The package of one of our modules: `pykueue.core.cycle` is in `pykueue.core`. None for a top-level package."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in OURS and len(parts) > 1 and parts[1] != "__main__" else None


def is_under(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in packages)


def test_every_package_has_a_layer() -> None:
    packages = {package(name) for name in modules()} - {None}
    assert packages == set(layers()), sorted(map(str, packages ^ set(layers())))


def test_imports_point_down() -> None:
    wrong = []
    for found in imports():
        here, there = package(found.importer), package(found.imported)
        if here is None or there in (None, here):
            continue
        if layers()[here] >= layers()[str(there)]:
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_kubemachinery_imports_no_other_package_of_ours_and_kubeserver_only_kubemachinery() -> None:
    allowed = {"kubemachinery": {"kubemachinery"}, "kubeserver": {"kubemachinery", "kubeserver"}}
    wrong = [
        str(found)
        for found in imports()
        if (here := found.importer.split(".")[0]) in allowed
        and (there := found.imported.split(".")[0]) in OURS
        and there not in allowed[here]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_listed_packages_import_kubeserver() -> None:
    listed = rules()["import kubeserver"]
    using = [
        found
        for found in imports()
        if is_under(found.importer, ("pykueue",)) and is_under(found.imported, ("kubeserver",))
    ]
    assert not [str(found) for found in using if not is_under(found.importer, listed)]
    assert {name for name in listed if any(is_under(found.importer, (name,)) for found in using)} == set(listed)


def closure(roots: tuple[str, ...]) -> set[str]:
    """The modules that importing `roots` may load, imports inside of functions included."""
    found, waiting = set[str](), list(roots)
    while waiting:
        name = waiting.pop()
        if name in found or name not in modules():
            continue
        found.add(name)
        parts = name.split(".")
        # Importing a module loads every package above it.
        waiting += [".".join(parts[:length]) for length in range(1, len(parts))]
        waiting += [one.imported for one in imports() if one.importer == name]
    return found


MANAGER = ("pykueue.cli.manager", "pykueue.cli.populator", "pykueue.app.cluster_manager")


def test_the_manager_reaches_no_module_of_kubeserver() -> None:
    found = closure(MANAGER)
    assert "pykueue.controllers.visibility" in found
    assert not sorted(name for name in found if is_under(name, ("kubeserver",)))


def test_a_process_that_imports_the_manager_loads_no_module_of_kubeserver() -> None:
    script = f"import sys, {', '.join(MANAGER)}; print([name for name in sys.modules if name.startswith('kubeserver')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_kubeserver_reaches_no_module_of_pykueue() -> None:
    assert not sorted(name for name in closure(("kubeserver.__main__",)) if is_under(name, ("pykueue",)))


def test_pure_packages_use_nothing_that_does_io() -> None:
    pure = rules()["pure"]
    allowed, never = set(rules()["pure packages import"]), set(rules()["pure packages never import"])
    wrong = []
    for found in imports():
        top = found.imported.split(".")[0]
        if not is_under(found.importer, pure) or top in OURS:
            continue
        if top in never or (top not in allowed and top not in sys.stdlib_module_names):
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_pure_packages_import_only_pure_packages() -> None:
    pure = rules()["pure"]
    wrong = [
        str(found)
        for found in imports()
        if is_under(found.importer, pure)
        and found.imported.split(".")[0] in OURS
        and package(found.imported) is not None
        and not is_under(found.imported, pure)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.startswith("only ")])
def test_an_external_library_is_imported_in_one_place(rule: str) -> None:
    places = tuple(rule.removeprefix("only ").removesuffix(" imports").split())
    libraries = set(rules()[rule])
    wrong = [
        str(found)
        for found in imports()
        if found.imported.split(".")[0] in libraries and not is_under(found.importer, places)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.imported in graph and found.imported != found.importer:
            graph[found.importer].add(found.imported)
    # A package's __init__ is loaded with each of its modules; Python adds that edge, no import statement does.
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


def test_no_module_has_a_name_without_meaning() -> None:
    empty = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "base"}
    # A command's module is named after the command.
    assert not [name for name in modules() if name.split(".")[-1] in empty and package(name) != "pykueue.cli"]


def test_every_module_named_on_the_page_exists() -> None:
    for path in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE):
        assert (SOURCE / path).exists() or (SOURCE / "pykueue" / path).exists(), f"{path} does not exist"
