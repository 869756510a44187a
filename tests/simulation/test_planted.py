"""The tester tested: bugs that are planted on purpose are found by the laws that should find them."""

from __future__ import annotations

import pytest

from simulation.engine import simulation_run
from simulation.planted import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in range(bug.first_seed, bug.first_seed + bug.within):
        report = simulation_run.run(seed, bug.rates, bug.traits)
        if {violation.law for violation in report.violations} & set(bug.laws):
            return
    pytest.fail(f"{bug.within} runs without a violation")
