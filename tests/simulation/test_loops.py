"""Preemption loops in runs from seeds, with pods, restarts, arrivals and ends, against a judge of all revisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.meta import SECOND
from pykueue.controllers.troubles import TroubleReporter
from pykueue.history.trouble_records import TroubleLog
from pykueue.state import preemption_loops
from pykueue.state.intake import Intake
from pykueue.testing.virtual_loop import Stuck
from simulation import loop_run
from simulation.loop_judge import LoopJudge
from virtual import virtual_time

SEEDS = (0, 1, 3)


def play(seed: int, path: Path) -> LoopJudge:
    judge = LoopJudge()

    @virtual_time
    async def whole() -> None:
        await loop_run.run(seed, path, judge)

    try:
        whole()
    except Stuck as stuck:
        judge.violate("LG-L4", "", f"preemptions go on without time passing: {stuck}")
    return judge


def test_loops_that_are_reported_and_recorded_are_those_of_the_judge(tmp_path: Path) -> None:
    """[LG-L1] [LG-L2] [LG-L4] [LG5] [LG9] And what they are about happens."""
    counted: Counter[str] = Counter()
    for seed in SEEDS:
        judge = play(seed, tmp_path)
        assert not judge.violations, f"seed {seed}: " + "\n".join(map(str, judge.violations))
        counted += judge.counted
    assert counted["preemptions"] > 30
    assert counted["reported"] > 5
    assert counted["guarded"] > 3
    assert counted["restarts"] > 2


# --- Planted bugs -----------------------------------------------------------------------------------------------------


def _pods_are_outside_changes(patch: pytest.MonkeyPatch) -> None:
    """Every pod that starts or stops begins the count again."""
    applied = Intake._apply_usage_delta

    def apply(self: Intake, pod: Any, delta: Any) -> None:
        applied(self, pod, delta)
        self._loops.changed()

    patch.setattr(Intake, "_apply_usage_delta", apply)


def _reports_the_first_preemption(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preemption_loops, "ROUNDS", 1)


def _delays_hardly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(preemption_loops, "DELAY_MAX", 5 * SECOND)


def _records_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TroubleLog, "compare", lambda self, found, now: self.begin(found))


def _records_only_what_lasts(patch: pytest.MonkeyPatch) -> None:
    """A loop is recorded by the look of each minute only."""
    patch.setattr(TroubleReporter, "loop_found", lambda self, loop: None)


# The bug, the laws under which it shows, and the seed.
PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], set[str], int]] = [
    (_pods_are_outside_changes, {"LG-L2"}, 0),
    (_reports_the_first_preemption, {"LG-L1"}, 0),
    (_delays_hardly, {"LG-L4"}, 0),
    (_records_never_end, {"LG9"}, 0),
    (_records_only_what_lasts, {"LG9"}, 0),
]


@pytest.mark.parametrize(("plant", "laws", "seed"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    laws: set[str],
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    assert {violation.law for violation in play(seed, tmp_path).violations} & laws
