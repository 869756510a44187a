"""Every scenario of this folder has the output it expects. `REWRITE=1` writes the actual output into the files, for
review."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scenarios import scenario_runner
from scenarios.scenario_runner import Scenario

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.txt"))
SCENARIOS = [scenario for file in FILES for scenario in scenario_runner.read(file)]


@pytest.mark.skipif(bool(os.environ.get("REWRITE")), reason="the expected output is being rewritten")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.file.stem}: {scenario.title}")
def test_scenario_has_expected_output(scenario: Scenario) -> None:
    assert "\n".join(scenario_runner.run(scenario)) == "\n".join(scenario.expected)


@pytest.mark.skipif(not os.environ.get("REWRITE"), reason="only on demand")
def test_rewrite_expected_output() -> None:
    for file in FILES:
        scenario_runner.rewrite(
            file, ((scenario, scenario_runner.run(scenario)) for scenario in scenario_runner.read(file))
        )
