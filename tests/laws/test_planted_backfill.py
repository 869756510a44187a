"""The checkers of planned backfill, checked: bugs that are planted on purpose are found by the laws that guard them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kubemachinery.meta import Nanoseconds
from laws.random_backfill import BackfillCase, BackfillJob, BackfillQueue, BackfillRun
from laws.test_planned_starts import delayed
from pykueue.core import planned_starts
from pykueue.core.planned_starts import PlannedStarts
from pykueue.core.timeline import Claim, RunLimit, Timeline

Plant = Callable[[pytest.MonkeyPatch], None]


def drawn(seed: int) -> BackfillCase:
    """A case without preemption, with more work than quota, so that Workloads wait."""
    rng = random.Random(seed)
    queues = tuple(
        BackfillQueue(rng.randint(2, 8), None, None, rng.random() < 0.5, rng.choice(("EASY", "Conservative", "")))
        for _ in range(rng.randint(1, 3))
    )
    jobs = tuple(
        BackfillJob(
            rng.randint(0, 2), rng.randint(1, 8), rng.randint(0, 600), rng.randint(60, 900), rng.randint(1, 1_200)
        )
        for _ in range(14)
    )
    return BackfillCase(queues, jobs)


def violations(seed: int) -> list[str]:
    run = BackfillRun(drawn(seed)).run()
    return [*delayed(run), *run.broken, *run.refused_nominal, *run.unjustified]


def _ignores_borrowers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planned_starts, "_borrows", lambda queue, usage: False)


def _binds_nominal_use(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planned_starts, "_borrows", lambda queue, usage: True)


def _forgets_the_stop_allowance(patch: pytest.MonkeyPatch) -> None:
    def end(self: RunLimit, admitted_at: Nanoseconds) -> Nanoseconds:
        return admitted_at + self.time

    patch.setattr(RunLimit, "end", end)


def _projects_without_other_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claim, "is_held_at", lambda self, time: False)


def _asks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlannedStarts, "conflict", lambda self, *rest: None)


def _compares_no_date_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "fits_at_date", lambda self, owner: True)


def _ignores_claims_before_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "has_moment_before", lambda self, end: False)


def test_without_a_bug_nothing_is_violated() -> None:
    assert [found for seed in range(25) for found in violations(seed)] == []


@pytest.mark.parametrize(
    "plant",
    [
        _ignores_borrowers,
        _binds_nominal_use,
        _forgets_the_stop_allowance,
        _projects_without_other_claims,
        _asks_nothing,
        _compares_no_date_again,
        _ignores_claims_before_the_end,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(violations(seed) for seed in range(25)), "25 runs without a violation"
