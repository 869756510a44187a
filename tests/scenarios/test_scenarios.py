"""Every scenario of this folder tells its story. `REWRITE=1` writes the stories down anew, to be reviewed as prose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scenarios import scenario_runner
from scenarios.scenario_runner import Scenario

HERE = Path(__file__).parent
FILES = sorted(HERE.rglob("*.txt"))
SCENARIOS = [scenario for file in FILES for scenario in scenario_runner.read(file)]


@pytest.mark.skipif(bool(os.environ.get("REWRITE")), reason="the stories are being written down")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.file.stem}: {scenario.title}")
def test_the_story_is_told_as_expected(scenario: Scenario) -> None:
    assert "\n".join(scenario_runner.tell(scenario)) == "\n".join(scenario.expected)


@pytest.mark.skipif(not os.environ.get("REWRITE"), reason="only on demand")
def test_write_the_stories_down() -> None:
    for file in FILES:
        scenario_runner.rewrite(
            file, ((scenario, scenario_runner.tell(scenario)) for scenario in scenario_runner.read(file))
        )
