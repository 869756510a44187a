"""pyproject.toml, uv.lock, the Makefile and the workflows against one another."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK: dict[str, Any] = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def _normal(requirement: str) -> tuple[str, str]:
    """The name and the specifier of a requirement, without its environment marker."""
    found = re.match(r"([\w.-]+)\s*(?:\[.*?\])?\s*([^;]*)", requirement)
    assert found is not None
    return found[1].lower().replace("_", "-"), found[2].strip()


def _locked(rows: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {(row["name"], row.get("specifier", "")) for row in rows}


def test_the_lock_is_that_of_the_declared_dependencies() -> None:
    (own,) = [package for package in LOCK["package"] if package["name"] == PROJECT["project"]["name"]]
    extras = PROJECT["project"]["optional-dependencies"].values()
    declared = {
        _normal(each) for each in [*PROJECT["project"]["dependencies"], *(row for rows in extras for row in rows)]
    }
    assert _locked(own["metadata"]["requires-dist"]) == declared, "run make lock"
    groups = PROJECT["dependency-groups"]
    assert {name: _locked(rows) for name, rows in own["metadata"]["requires-dev"].items()} == {
        name: {_normal(each) for each in group} for name, group in groups.items()
    }, "run make lock"
    assert LOCK["requires-python"] == PROJECT["project"]["requires-python"]


def test_the_lock_names_the_public_index_only() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^/\"]+", text)) == {"https://pypi.org", "https://files.pythonhosted.org"}


def test_the_same_pythons_are_declared_tested_by_make_and_tested_by_the_workflow() -> None:
    prefix = "Programming Language :: Python :: "
    declared = [each.removeprefix(prefix) for each in PROJECT["project"]["classifiers"] if each.startswith(prefix)]
    chosen = re.search(r"^VERSIONS \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert chosen is not None
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert declared == chosen[1].split() == workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"


def test_workflows_run_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    called: set[str] = set()
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            for step in job["steps"]:
                called |= set(re.findall(r"^\s*make ([\w-]+)", step.get("run", ""), re.MULTILINE))
    assert called <= targets
    assert {"check", "test", "test-cluster", "docs", "soak", "coverage"} <= called


def test_make_help_lists_every_target() -> None:
    listed = set(re.findall(r"^#   make ([\w-]+)", MAKEFILE, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert listed == set(phony[1].split()) - {"help"}
