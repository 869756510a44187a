"""Lines of Budgets: used hours at the time of the question, and what is refused."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from kubemachinery import meta
from kubemachinery.meta import Condition, ObjectMeta
from pykueue.api.budget import Budget, BudgetAdmit, BudgetGroupStatus, BudgetSpec, BudgetStatus
from pykueue.history import budget_lines

OBSERVED = "2026-11-16T12:00:00Z"


def budget(row: BudgetGroupStatus, **spec: Any) -> Budget:
    status = BudgetStatus(observed_at=OBSERVED, period_end="2026-11-23T00:00:00Z", groups=(row,))
    return Budget(metadata=ObjectMeta(name="weekly"), spec=BudgetSpec(**spec), status=status)


def row(spent: str, per_hour: str = "4") -> BudgetGroupStatus:
    return BudgetGroupStatus(group="physics", resource="cpu", spent=spent, limit="100", per_hour=per_hour)


@pytest.mark.parametrize(
    ("admit", "spent", "shown", "refuses"),
    [
        (BudgetAdmit.WHILE_LEFT, "80", "82", ""),
        (BudgetAdmit.WHILE_LEFT, "99", "101", "all Workloads until Mon 23 Nov 00:00"),
        (
            BudgetAdmit.ONLY_IF_IT_FITS,
            "80",
            "82",
            "Workloads that may use more than 18 hours, and those without a run-time limit",
        ),
    ],
)
def test_spending_goes_on_at_the_rate_of_the_last_status(admit: str, spent: str, shown: str, refuses: str) -> None:
    """[BU8] Half an hour later, at four hours an hour."""
    now = meta.parse_time(OBSERVED) + meta.HOUR // 2
    [line] = budget_lines.of(budget(row(spent), admit=admit), UTC, now)
    assert (line.spent, line.percent, line.refuses) == (shown, int(shown), refuses)
    assert line.until == "Mon 23 Nov 00:00"
    assert line.spent_by == ("spent" if int(shown) >= 100 else "")


def test_budgets_without_accounts_are_named() -> None:
    new = Budget(metadata=ObjectMeta(name="new"))
    failed = Condition(type="Ready", status="False", reason="HistoryUnreadable", message="the history is unreadable")
    broken = Budget(metadata=ObjectMeta(name="broken"), status=BudgetStatus(conditions=(failed,)))
    assert list(budget_lines.unknown([new, broken])) == [
        "Budget new is not counted: is the gate Budgets on?",
        "Budget broken is not counted: the history is unreadable",
    ]
    assert not list(budget_lines.of(new, UTC, 0))


def test_the_percentage_is_that_of_the_exact_amount() -> None:
    """Of 0.038778 hours the status has 0.038, and 77 percent of 0.05."""
    small = BudgetGroupStatus(group="ana", resource="cpu", spent="0.038", limit="0.05", per_hour="0", percent=77)
    [line] = budget_lines.of(budget(small), UTC, meta.parse_time(OBSERVED))
    assert (line.spent, line.percent) == ("0.038", 77)
