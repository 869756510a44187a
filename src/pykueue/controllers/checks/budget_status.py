"""The status, Events and metric of a Budget, from its book."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import replace

from kubemachinery import conditions, meta
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from pykueue.api.budget import GROUPS_SHOWN, Budget, BudgetGroupStatus, BudgetStatus
from pykueue.controllers.checks.budget_books import BudgetBook
from pykueue.history import budget_answers
from pykueue.history.budget_accounts import HOUR, AccountKey
from pykueue.history.budget_answers import SPENT, GroupStanding
from pykueue.history.budget_periods import BudgetPeriod
from pykueue.history.records import Seconds

READY: Final = "Ready"
# Every field of the status, removed: a merge patch removes what it does not set.
EMPTY: Final[dict[str, Any]] = {
    "conditions": None,
    "observedGeneration": None,
    "observedAt": None,
    "periodStart": None,
    "periodEnd": None,
    "groups": None,
}
# Amounts in the status have thousandths, so two of them may differ by this without a change.
_ROUNDING: Final = Decimal("0.002")


def status(book: BudgetBook, budget: Budget, now: Nanoseconds) -> BudgetStatus:
    """The status of a Budget whose accounts are known."""
    period = book.accounts.period
    return BudgetStatus(
        conditions=conditions.set_condition(
            budget.status.conditions,
            READY,
            ConditionStatus.TRUE,
            "Counted",
            "The accounts are counted from the history",
            now=now,
            generation=budget.metadata.generation,
        ),
        observed_generation=budget.metadata.generation,
        observed_at=format_time(book.accounts.now * SECOND),
        period_start=format_time(period.start * SECOND),
        period_end=format_time(period.end * SECOND),
        groups=tuple(_row(book, key) for key in _fullest(book)),
    )


def unavailable(budget: Budget, reason: str, problem: str, now: Nanoseconds) -> BudgetStatus:
    """The status of a Budget without accounts: that of before, with the reason."""
    return replace(
        budget.status,
        conditions=conditions.set_condition(
            budget.status.conditions,
            READY,
            ConditionStatus.FALSE,
            reason,
            problem,
            now=now,
            generation=budget.metadata.generation,
        ),
        observed_generation=budget.metadata.generation,
    )


def _fullest(book: BudgetBook) -> list[AccountKey]:
    known = [key for key in book.accounts.known() if book.accounts.spent(key) or book.accounts.rate(key)]
    return sorted(known, key=lambda key: (-_ratio(book, key), key))[:GROUPS_SHOWN]


def _row(book: BudgetBook, key: AccountKey) -> BudgetGroupStatus:
    (group, resource), standing = key, book.ledger.standing(key)
    reached = None if standing.is_spent else book.accounts.reached_at(key, standing.allowance)
    return BudgetGroupStatus(
        group=group,
        resource=resource,
        spent=budget_answers.hours(resource, standing.spent),
        limit=budget_answers.hours(resource, standing.allowance),
        per_hour=budget_answers.hours(resource, book.accounts.rate(key) * HOUR),
        percent=int(_ratio(book, key) * 100),
        spent_at=format_time(reached * SECOND) if reached is not None else None,
        warned=book.announced.get(key) or None,
    )


def _ratio(book: BudgetBook, key: AccountKey) -> float:
    """The share of the limit that is spent; above 1 with a debt as large as the limit."""
    standing, limit = book.ledger.standing(key), book.ledger.limits.limit(key)
    if standing.allowance > 0:
        return standing.spent / standing.allowance
    return 1 + (standing.spent - standing.allowance) / limit if limit else 1.0


def is_like(one: BudgetStatus, other: BudgetStatus) -> bool:
    """Whether two statuses differ in nothing but the time at which they were computed."""
    if _facts(one) != _facts(other):
        return False
    hours = Decimal(_seconds(one.observed_at) - _seconds(other.observed_at)) / HOUR
    before = {(row.group, row.resource): row for row in other.groups}
    return all(
        abs(
            budget_answers.hours_number(row.spent)
            - budget_answers.hours_number(old.spent)
            - hours * budget_answers.hours_number(old.per_hour)
        )
        <= _ROUNDING
        for row in one.groups
        for old in (before[row.group, row.resource],)
    )


def _facts(status: BudgetStatus) -> object:
    rows = {(row.group, row.resource): (row.limit, row.per_hour, row.warned) for row in status.groups}
    states = [(each.type, each.status, each.reason, each.message) for each in status.conditions]
    return rows, states, status.observed_generation, status.period_start, status.period_end


def _seconds(text: str | None) -> Seconds:
    return meta.parse_time(text) // SECOND if text else 0


# --- Events -----------------------------------------------------------------------------------------------------------


def announced(budget: Budget, period: BudgetPeriod) -> dict[AccountKey, int]:
    """The levels that were announced in a period, as the status shows them."""
    if _seconds(budget.status.period_start) != period.start:
        return {}
    return {(row.group, row.resource): row.warned for row in budget.status.groups if row.warned}


def announcement(
    name: str, group: str, resource: str, standing: GroupStanding, level: int, until: str
) -> tuple[str, str]:
    """The reason and the message of the Event about a level."""
    spent, limit = (budget_answers.hours(resource, each) for each in (standing.spent, standing.allowance))
    amounts = f"({spent} of {limit} {resource} hours); {until}"
    if level == SPENT:
        return "BudgetSpent", f"Budget {name} of {group} is spent {amounts}"
    return "BudgetWarning", f"Budget {name} of {group} has reached {level} % of its limit {amounts}"


def ratios(book: BudgetBook) -> Iterator[tuple[str, str, float]]:
    """The fullest groups with the largest of the shares of their resources."""
    found: dict[str, float] = {}
    for key in _fullest(book):
        found[key[0]] = max(found.get(key[0], 0.0), _ratio(book, key))
    for group, ratio in found.items():
        yield book.name, group, ratio
