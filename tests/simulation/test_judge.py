"""The judge is a stranger: it shares no code with what it judges, and each of its laws has a label of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from simulation.engine import checkers, liveness, safety

FOLDER = Path(checkers.__file__).parent
JUDGES = ("checkers", "safety", "liveness", "picture", "quota_tree", "revisions")


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_imports_nothing_of_the_product(name: str) -> None:
    own = {"simulation.engine", *(f"simulation.engine.{judge}" for judge in JUDGES)}
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert all(module in own for module in modules if module.startswith("pykueue")), modules
        if isinstance(node, ast.ImportFrom) and node.module == "simulation.engine":
            assert {alias.name for alias in node.names} <= set(JUDGES)


@pytest.mark.parametrize(("module", "table"), [(safety, safety.ON_WORKLOADS), (liveness, liveness.AT_REST)])
def test_every_label_is_explained(module: object, table: tuple[tuple[str, object], ...]) -> None:
    explained = {line.split()[0] for line in str(module.__doc__).splitlines() if line.startswith("    ")}
    assert {label for label, _ in table} <= explained
