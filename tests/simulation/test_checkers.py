"""The checkers share no code with the product, and each invariant has a label of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from simulation.engine import checkers, liveness, safety

FOLDER = Path(checkers.__file__).parent
CHECKERS = ("checkers", "safety", "liveness", "stored_state", "quota_tree", "revisions", "job_kinds")


@pytest.mark.parametrize("name", CHECKERS)
def test_a_checker_imports_nothing_of_the_product(name: str) -> None:
    own = {"simulation.engine", *(f"simulation.engine.{check_history}" for check_history in CHECKERS)}
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert all(module in own for module in modules if module.startswith("pykueue")), modules
        if isinstance(node, ast.ImportFrom) and node.module == "simulation.engine":
            assert {alias.name for alias in node.names} <= set(CHECKERS)


@pytest.mark.parametrize(("module", "table"), [(safety, safety.ON_WORKLOADS), (liveness, liveness.AT_REST)])
def test_every_label_is_explained(module: object, table: tuple[tuple[str, object], ...]) -> None:
    explained = {line.split()[0] for line in str(module.__doc__).splitlines() if line.startswith("    ")}
    assert {label for label, _ in table} <= explained
