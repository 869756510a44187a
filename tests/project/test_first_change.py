"""docs/contributing/first-change.md against the code: the files, symbols and commands that it names exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from pykueue.core.policy import GATES, SchedulingPolicy
from pykueue.features import GATES as ALL_GATES
from pykueue.jobs.interface import GenericJob

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/contributing/first-change.md").read_text(encoding="utf-8")
SYMBOLS = sorted(set(re.findall(r"`((?:pykueue|kubemachinery|kubeserver)[\w.]*:[\w.]+)`", PAGE)))


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_that_the_page_names_exists(symbol: str) -> None:
    module, _, path = symbol.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)


def test_every_package_that_the_page_names_exists() -> None:
    for name in set(re.findall(r"`((?:pykueue|kubemachinery|kubeserver)(?:\.\w+)+)`", PAGE)):
        importlib.import_module(name)


def test_every_file_of_the_root_that_the_page_names_exists() -> None:
    for name in set(re.findall(r"`([A-Z]+\.md)`", PAGE)):
        assert (ROOT / name).is_file(), name


def test_every_path_in_a_command_of_the_page_exists() -> None:
    commands = re.findall(r'^make test ARGS="(.*)"$', PAGE, re.MULTILINE)
    assert commands
    for path in " ".join(commands).split():
        assert (ROOT / path).exists(), path


def test_the_scenario_on_the_page_is_one_that_is_run() -> None:
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    _, *lines = (line.strip() for line in shown[1].strip().splitlines())
    assert "\n".join(lines) in (ROOT / "tests/scenarios/cycle.txt").read_text(encoding="utf-8")


def test_the_gate_of_the_page_is_the_field_of_the_page() -> None:
    gate = "RecomputeAssignmentUponPreemptionTargetsOverlap"
    (field,) = re.findall(r"`self\.policy\.(\w+)`", PAGE)
    assert gate in ALL_GATES
    assert GATES[field] == gate
    assert isinstance(getattr(SchedulingPolicy(), field), bool)


def test_the_page_names_every_question_that_a_job_kind_has_to_answer() -> None:
    assert set(re.findall(r"interface:GenericJob\.(\w+)", PAGE)) == GenericJob.__abstractmethods__
