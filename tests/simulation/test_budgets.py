"""Budgets in runs from seeds: accounts equal the integral over all stored revisions, also after restarts, edges,
full disks and jumps of the clock, also backwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pykueue.controllers.checks.budget import BudgetController
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.history import budget_accounts, budget_answers
from pykueue.history.budget_accounts import ChargedSpan
from simulation import budget_run
from simulation.engine.revisions import Violation
from virtual import virtual_time

SEEDS = range(4)
FAULTY_SEEDS = (3, 4, 2)
BACKWARD_SEEDS = (0, 1, 2, 3)


def play(seed: int, path: Path, faults: Sequence[str] = ()) -> tuple[list[Violation], int, dict[str, int]]:
    found: list[Any] = []

    @virtual_time
    async def whole() -> None:
        found.append(await budget_run.run(seed, path, faults))

    whole()
    return found[0]  # type: ignore[no-any-return]


def test_accounts_and_answers_are_those_of_the_judge(tmp_path: Path) -> None:
    """[BU-L1] [BU-L2] [BU-L4] [BU-L5] And what they are about happens."""
    answers: Counter[str] = Counter()
    for seed in SEEDS:
        violations, compared, given = play(seed, tmp_path)
        assert not violations, f"seed {seed}: " + "\n".join(map(str, violations))
        assert compared > 10
        answers += Counter(given)
    assert answers["Ready"] > 10
    assert answers["Retry"] > 3


def test_a_full_disk_and_a_clock_that_jumps_ahead_change_no_account(tmp_path: Path) -> None:
    """[BU-L1] [BU-L2] [BU-L5]"""
    happened: Counter[str] = Counter()
    for seed in FAULTY_SEEDS:
        violations, compared, given = play(seed, tmp_path, budget_run.FAULTS)
        assert not violations, f"seed {seed}: " + "\n".join(map(str, violations))
        assert compared > 10
        happened += Counter(given)
    assert happened["full disks"] > 3
    assert happened["jumps"] > 3
    assert happened["Retry"] > 3


def test_a_clock_that_is_set_back_takes_no_charge_away(tmp_path: Path) -> None:
    """[BU11] [BU-L1] [BU-L2] [BU-L5] Also if that is over midnight, and if managers restart meanwhile."""
    happened: Counter[str] = Counter()
    for seed in BACKWARD_SEEDS:
        violations, compared, given = play(seed, tmp_path, budget_run.BACK)
        assert not violations, f"seed {seed}: " + "\n".join(map(str, violations))
        assert compared > 10
        happened += Counter(given)
    assert happened["steps back"] > 10
    assert happened["Retry"] > 3


def _follows_the_clock_back(patch: pytest.MonkeyPatch) -> None:
    """The accounts take every time of the clock."""
    advance = budget_accounts.BudgetAccounts.advance

    def follow(self: budget_accounts.BudgetAccounts, now: int) -> bool:
        self.now = now
        return advance(self, now)

    patch.setattr(budget_accounts.BudgetAccounts, "advance", follow)


def _begins_the_earlier_day_again(patch: pytest.MonkeyPatch) -> None:
    advance = budget_accounts.BudgetAccounts.advance

    def follow(self: budget_accounts.BudgetAccounts, now: int) -> bool:
        if now < self.period.start:
            self.now, self.period = now, self.calendar.at(now)
        return advance(self, now)

    patch.setattr(budget_accounts.BudgetAccounts, "advance", follow)


def _charges_admissions_of_the_future_at_once(patch: pytest.MonkeyPatch) -> None:
    """An open span is counted from its start on, whether that has come or not."""

    def observe(self: budget_accounts.BudgetAccounts, record: Any) -> None:
        found = budget_accounts.spans(record, self.rules)
        if found != self._spans.get(record.uid, ()):
            self._take_out(record.uid)
            self._spans[record.uid] = found
            for span in found:
                self._add(span, 1)

    patch.setattr(budget_accounts.BudgetAccounts, "observe", observe)


@pytest.mark.parametrize(
    ("plant", "laws"),
    [
        (_follows_the_clock_back, {"BU11"}),
        (_begins_the_earlier_day_again, {"BU11"}),
        (_charges_admissions_of_the_future_at_once, {"BU-L1"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_bug_of_a_clock_that_is_set_back_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], laws: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in BACKWARD_SEEDS:
        violations, _, _ = play(seed, tmp_path, budget_run.BACK)
        if {violation.law for violation in violations} & laws:
            return
    pytest.fail("no violation")


def test_accounts_that_depend_on_the_disk_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what cannot be stored is not charged."""
    save_soon = HistoryRecorder._save_soon

    def only_stored(self: HistoryRecorder, record: Any, **more: Any) -> None:
        listeners, self.listeners = self.listeners, [] if self._is_failing else self.listeners
        save_soon(self, record, **more)
        self.listeners = listeners

    monkeypatch.setattr(HistoryRecorder, "_save_soon", only_stored)
    for seed in FAULTY_SEEDS:
        violations, _, _ = play(seed, tmp_path, budget_run.FAULTS)
        if {violation.law for violation in violations} & {"BU-L1", "BU-L5"}:
            return
    pytest.fail("no violation")


def _charges_reservations(patch: pytest.MonkeyPatch) -> None:
    def spans(attempt: Any, group: str, rules: Any) -> Any:
        for segment in attempt.segments:
            for resource, rate in rules.rates(segment.amounts).items():
                yield ChargedSpan((group, resource), segment.start, segment.end, rate)

    patch.setattr(budget_accounts, "attempt_spans", spans)


def _forgets_debts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budget_answers, "carried_into", lambda limits, limit, past: 0)


def _ends_no_wait_at_the_edge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BudgetController, "_may_return", lambda self, workload, check: False)


def _misses_the_edge_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A manager that starts leaves the Workloads that wait as they are."""
    begin, wake = BudgetController._begin, BudgetController._wake

    def begun(self: BudgetController, *given: Any) -> None:
        patch.setattr(BudgetController, "_wake", lambda self, check: None)
        begin(self, *given)
        patch.setattr(BudgetController, "_wake", wake)

    patch.setattr(BudgetController, "_begin", begun)


def _closes_no_period(patch: pytest.MonkeyPatch) -> None:
    """At the edge the open spans stay those of the period before."""
    ended = budget_accounts.BudgetAccounts._end_period

    def end(self: budget_accounts.BudgetAccounts) -> None:
        kept = {key: account.weighted for key, account in self._accounts.items()}
        ended(self)
        for key, weighted in kept.items():
            self._accounts[key].weighted = weighted

    patch.setattr(budget_accounts.BudgetAccounts, "_end_period", end)


def _answers_ready_at_the_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        budget_answers.GroupStanding, "is_spent", property(lambda self: self.spent > self.allowance + 20_000_000)
    )


def _loses_what_ended_before_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budget_accounts.BudgetAccounts, "load", lambda self, sums: None)


# The bug, the laws under which it shows, and the first seed of the search.
PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], set[str], int]] = [
    (_forgets_debts, {"BU-L5"}, 0),
    (_ends_no_wait_at_the_edge, {"BU4"}, 3),
    (_misses_the_edge_after_a_restart, {"BU4"}, 5),
    (_closes_no_period, {"BU-L1"}, 4),
    (_answers_ready_at_the_limit, {"BU-L2"}, 2),
    (_loses_what_ended_before_a_restart, {"BU-L1"}, 0),
    (_charges_reservations, {"BU-L1"}, 1),
]


@pytest.mark.parametrize(("plant", "laws", "first"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    laws: set[str],
    first: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + len(SEEDS)):
        violations, _, _ = play(seed, tmp_path)
        if {violation.law for violation in violations} & laws:
            return
    pytest.fail(f"{len(SEEDS)} runs without a violation")
