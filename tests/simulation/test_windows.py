"""QuotaSchedules and planned backfill in runs from seeds, with restarts, against a judge of all revisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykueue.core.planned_starts import PlannedStarts
from pykueue.core.timeline import Timeline
from pykueue.state import quota_changes, quota_windows, quota_withdrawal
from pykueue.state.planning import Planning
from simulation import window_run
from simulation.engine.revisions import Violation
from virtual import virtual_time


def play(seed: int) -> tuple[list[Violation], dict[str, int]]:
    found: list[Any] = []

    @virtual_time
    async def whole() -> None:
        found.append(await window_run.run(seed))

    whole()
    return found[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", [0, 4, 7])
def test_quotas_evictions_and_planned_starts_are_those_of_the_judge(seed: int) -> None:
    """[QS-L1] [QS-L2] [QS-L3] [QS-L7] [BF-L1] [BF-L6] And what they are about happens."""
    violations, counted = play(seed)
    assert not violations, "\n".join(map(str, violations))
    assert counted["compared"] > 100
    assert counted["kept free"] > 100
    assert counted["evicted"] > 0
    assert counted["planned"] > 2


# --- Planted bugs -----------------------------------------------------------------------------------------------------


def _earlier_start_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota_windows, "_precedence", lambda window: (window.since, window.schedule, window.window))


def _nothing_is_evicted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota_withdrawal, "withdrawals", lambda structure, at: [])


def _more_than_needed_is_evicted(patch: pytest.MonkeyPatch) -> None:
    def run(self: Any, concerned: Any) -> Iterator[Any]:
        for window, schedule in concerned:
            for held, _, _ in self._held:
                pair = schedule.quotas[0].pair
                yield quota_withdrawal.Withdrawal(held.key, held.cluster_queue, window, pair)

    patch.setattr(quota_withdrawal._TreeWithdrawal, "run", run)


def _keeps_nothing_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "exceeded_drop", lambda self, candidate, now: None)


def _delays_planned_starts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlannedStarts, "conflict", lambda self, *rest: None)


def _forgets_dates_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Planning, "announced", lambda self, key, date: None)


def _plans_without_windows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota_changes, "quota_changes", lambda structure, tree, now: [])


def _plans_equal_workloads_out_of_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Planning, "has_places", lambda self, cluster_queue: False)


# The bug, the laws under which it shows, and the first seed of the search.
PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], set[str], int]] = [
    (_earlier_start_counts, {"QS-L1"}, 2),
    (_nothing_is_evicted, {"QS-L3"}, 0),
    (_more_than_needed_is_evicted, {"QS-L3"}, 0),
    (_keeps_nothing_free, {"QS-L2"}, 0),
    (_delays_planned_starts, {"BF-L1"}, 0),
    (_forgets_dates_at_a_restart, {"BF-L1", "BF-L6"}, 4),
    (_plans_without_windows, {"BF-L1"}, 0),
    (_plans_equal_workloads_out_of_order, {"BF-L1"}, 0),
]


@pytest.mark.parametrize(("plant", "laws", "first"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], laws: set[str], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + 3):
        violations, _ = play(seed)
        if {violation.law for violation in violations} & laws:
            return
    pytest.fail("3 runs without a violation")
