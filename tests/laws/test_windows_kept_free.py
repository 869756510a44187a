"""What holds of `approach: EndBefore` in every small cluster (law QS-L2), and bugs that are planted on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubemachinery.meta import Nanoseconds
from laws.random_backfill import (
    BackfillCase,
    BackfillJob,
    BackfillQueue,
    BackfillRun,
    cases,
    jobs,
    jobs_with_priorities,
    plain_queues,
    preempting_queues,
)
from laws.random_windows import DrawnWindow, WindowRun
from laws.test_planned_starts import delayed
from pykueue.core.planned_starts import PlannedStarts
from pykueue.core.policy import SchedulingPolicy
from pykueue.core.timeline import QuotaChange, RunLimit, Timeline
from pykueue.state import quota_changes

SMALL = settings(max_examples=30)
ALONE = SchedulingPolicy(quota_calendar=True)
WITH_BACKFILL = SchedulingPolicy(quota_calendar=True, planned_backfill=True)

windows = st.lists(
    st.one_of(
        st.builds(
            DrawnWindow,
            st.integers(0, 2),
            st.integers(1, 2_500),
            st.integers(1, 1_500),
            st.integers(0, 8),
            st.just(False),
            st.booleans(),
        ),
        st.builds(
            DrawnWindow,
            st.integers(0, 2),
            st.integers(1, 2_500),
            st.integers(1, 1_500),
            st.integers(-8, 4),
            st.just(True),
            st.booleans(),
        ),
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@SMALL
@given(cases(plain_queues, jobs), windows)
def test_workloads_start_exactly_if_they_leave_what_windows_take(
    case: BackfillCase, drawn: tuple[DrawnWindow, ...]
) -> None:
    """QS-L2, and that no Workload waits for a window without need."""
    run = WindowRun(case, ALONE, windows=drawn).run()
    assert isinstance(run, WindowRun)
    assert run.found() == []


@SMALL
@given(cases(preempting_queues, jobs_with_priorities), windows)
def test_no_cluster_queue_is_above_its_quota_when_a_window_begins(
    case: BackfillCase, drawn: tuple[DrawnWindow, ...]
) -> None:
    """QS-L2 where ClusterQueues do not borrow: with preemption, too."""
    bare = replace(case, queues=tuple(replace(queue, borrowing=0) for queue in case.queues))
    run = WindowRun(bare, ALONE, windows=drawn).run()
    assert isinstance(run, WindowRun)
    assert run.exceeding + run.in_debt == []


@SMALL
@given(cases(plain_queues, jobs), windows)
def test_windows_do_not_move_planned_starts_without_a_cause(case: BackfillCase, drawn: tuple[DrawnWindow, ...]) -> None:
    """QS-L2 with planned backfill; BF-L1 and BF-L7 with quotas that change: dates consider the windows to come."""
    run = WindowRun(case, WITH_BACKFILL, windows=drawn).run()
    assert isinstance(run, WindowRun)
    assert [*run.exceeding, *run.in_debt, *run.broken, *delayed(run), *run.moved_by_windows] == []


@SMALL
@given(cases(plain_queues, jobs), windows)
def test_with_approach_ignore_decisions_equal_those_without_the_gate(
    case: BackfillCase, drawn: tuple[DrawnWindow, ...]
) -> None:
    ignoring = tuple(replace(window, ends_before=False) for window in drawn)
    on = WindowRun(case, ALONE, windows=ignoring).run()
    off = WindowRun(case, SchedulingPolicy(), windows=ignoring).run()
    assert on.log == off.log


# --- Planted bugs -----------------------------------------------------------------------------------------------------


def drawn_run(seed: int) -> WindowRun:
    rng = random.Random(seed)
    queues = tuple(
        BackfillQueue(rng.randint(4, 8), rng.choice((0, None)), None, False, "") for _ in range(rng.randint(1, 2))
    )
    some_jobs = tuple(
        BackfillJob(
            rng.randint(0, 1),
            rng.randint(1, 4),
            rng.randrange(0, 1_500, 300),  # several in one cycle
            rng.choice((0, 300, 600, 900)),
            rng.randint(200, 1_500),
        )
        for _ in range(12)
    )
    some_windows = tuple(
        DrawnWindow(
            rng.randint(0, 1), rng.randint(300, 1_800), rng.randint(100, 900), rng.choice((0, 2, 12)), False, True
        )
        for _ in range(2)
    )
    return WindowRun(BackfillCase(queues, some_jobs), ALONE, windows=some_windows)


def violations(seed: int) -> list[str]:
    run = drawn_run(seed).run()
    assert isinstance(run, WindowRun)
    return run.found()


def _asks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "exceeded_drop", lambda self, candidate, now: None)


def _forgets_the_stop_allowance(patch: pytest.MonkeyPatch) -> None:
    def end(self: RunLimit, admitted_at: Nanoseconds) -> Nanoseconds:
        return admitted_at + self.time

    patch.setattr(RunLimit, "end", end)


def _forgets_entries_of_the_same_cycle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlannedStarts, "assume", lambda self, workload, usage, end: None)


def _forgets_usage_that_begins_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PlannedStarts, "use", lambda self, reservation: None)


def _with_drops(patch: pytest.MonkeyPatch, keep: Callable[[str], bool]) -> None:
    found = quota_changes.quota_changes

    def some(*given: object) -> list[QuotaChange]:
        changes: list[QuotaChange] = found(*given)  # type: ignore[arg-type]
        return [
            change._replace(drops={number: clause for number, clause in change.drops.items() if keep(clause)})
            for change in changes
        ]

    patch.setattr(quota_changes, "quota_changes", some)


_considers_no_starts = partial(_with_drops, keep=lambda clause: not clause.endswith("begins"))
_considers_no_ends = partial(_with_drops, keep=lambda clause: not clause.endswith("ends"))


def _considers_the_first_change_only(patch: pytest.MonkeyPatch) -> None:
    found = quota_changes.quota_changes
    patch.setattr(quota_changes, "quota_changes", lambda *given: found(*given)[:1])


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "asks nothing": _asks_nothing,
    "forgets the stop allowance": _forgets_the_stop_allowance,
    "forgets entries of the same cycle": _forgets_entries_of_the_same_cycle,
    "forgets usage": _forgets_usage_that_begins_later,
    "considers no starts": _considers_no_starts,
    "considers no ends": _considers_no_ends,
    "considers the first change only": _considers_the_first_change_only,
}
SEEDS = range(40)


def test_without_a_bug_nothing_is_violated() -> None:
    runs = [drawn_run(seed).run() for seed in SEEDS]
    assert [found for run in runs if isinstance(run, WindowRun) for found in run.found()] == []
    assert sum(run.drops for run in runs if isinstance(run, WindowRun)) > len(SEEDS), "quota is lowered in the runs"


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    assert any(violations(seed) for seed in SEEDS), f"{len(SEEDS)} runs without a violation"


def test_runs_of_backfill_and_of_windows_have_the_same_log() -> None:
    """Without windows both are the same run: the checks of this page change nothing."""
    run = drawn_run(1)
    assert WindowRun(run.case, ALONE).run().log == BackfillRun(run.case, ALONE).run().log
