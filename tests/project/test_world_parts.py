"""World owns its parts: code outside `pykueue.state` uses the public methods of World and nothing behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykueue.state.world import World

ROOT = Path(__file__).resolve().parents[2]
# The modules behind World. Values that its methods return or take are in the other modules of the package.
PARTS = frozenset(
    f"pykueue.state.{name}"
    for name in ("cycle_driver", "namespaces", "parts", "reservations", "second_pass", "structure")
)
# Plants bugs into the parts on purpose.
PLANTED = frozenset({"tests/simulation/planted.py", "tests/controllers/test_sweep.py"})
PUBLIC = frozenset(name for name in dir(World()) if not name.startswith("_"))


def users() -> Iterator[tuple[str, ast.Module]]:
    """Every module outside `pykueue.state` that may have a World: those of the product, and those that import it."""
    for root in ("src/pykueue", "tests", "bench", "examples"):
        for path in sorted((ROOT / root).rglob("*.py")):
            name, text = str(path.relative_to(ROOT)), path.read_text()
            if not name.startswith("src/pykueue/state/") and (root == "src/pykueue" or "pykueue.state" in text):
                yield name, ast.parse(text)


def _is_world(node: ast.expr) -> bool:
    """Whether an expression is called a world: `world`, `self._world`, `manager.world`, `case.world()`."""
    if isinstance(node, ast.Call):
        return _is_world(node.func)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("world", "_world")


def violations(name: str, module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and _is_world(node.value) and node.attr not in PUBLIC:
            yield f"{name}:{node.lineno} uses {ast.unparse(node)}, which is no public attribute of World"
        if isinstance(node, ast.ImportFrom) and node.module is not None and name not in PLANTED:
            imported = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            for part in sorted(imported & PARTS):
                yield f"{name}:{node.lineno} imports {part}, which belongs to World"


def test_no_module_outside_the_state_package_uses_the_parts_of_world() -> None:
    found = dict(users())
    assert "src/pykueue/observe/gauges.py" in found
    assert [each for name, module in found.items() for each in violations(name, module)] == []


@pytest.mark.parametrize(
    "code",
    [
        "self._world._parts",
        "manager.world.structure.node('q')",
        "case.world()._intake",
        "from pykueue.state.structure import Structure",
        "from pykueue.state import parts",
    ],
)
def test_a_use_of_a_part_is_a_violation(code: str) -> None:
    assert len(list(violations("m.py", ast.parse(code)))) == 1
