"""What groups have used of a Budget, from its status, at the time of the question: a line for a group and resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Final

import msgspec

from kubemachinery import meta
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api.budget import Budget, BudgetAdmit, BudgetGroupStatus
from pykueue.history.budget_answers import hours_number

_HOUR: Final = 3600
_GIB: Final = "Gi"


class BudgetLine(msgspec.Struct, frozen=True, rename="camel"):
    """One group and resource of a Budget. Amounts are hours of the resource; times are local to the Budget."""

    budget: str
    group: str
    resource: str
    until: str
    spent: str
    percent: int
    limit: str
    per_hour: str
    spent_by: str
    # Which Workloads the check of the Budget does not let start now; empty: none.
    refuses: str


def of(budget: Budget, zone: tzinfo | None, now: Nanoseconds) -> Iterator[BudgetLine]:
    """The groups in the status of one Budget. Between two statuses spending goes on at the rate of the last one.
    Without a zone, times are those of the status."""
    status = budget.status
    if status.observed_at is None or status.period_end is None:
        return
    until = _local(status.period_end, zone)
    elapsed = min(now, meta.parse_time(status.period_end)) - meta.parse_time(status.observed_at)
    for row in status.groups:
        spent = hours_number(row.spent) + hours_number(row.per_hour) * max(0, elapsed) / SECOND / _HOUR
        limit = hours_number(row.limit)
        is_spent = spent >= limit
        yield BudgetLine(
            budget=budget.metadata.name,
            group=row.group,
            resource=row.resource,
            until=until,
            spent=_text(spent, row),
            # The hours of the status are cut to three decimals, its percentage is of the exact amount.
            percent=max(row.percent, int(spent * 100 / limit)) if limit > 0 else 100,
            limit=row.limit,
            per_hour=row.per_hour,
            spent_by="spent" if is_spent else _local(row.spent_at, zone) if row.spent_at else "",
            refuses=_refuses(budget, row, None if is_spent else limit - spent, until),
        )


def unknown(budgets: Iterable[Budget]) -> Iterator[str]:
    """A sentence for each Budget whose accounts are not known."""
    for budget in budgets:
        ready = next((each for each in budget.status.conditions if each.type == "Ready"), None)
        if ready is None:
            yield f"Budget {budget.metadata.name} is not counted: is the gate Budgets on?"
        elif ready.status != "True":
            yield f"Budget {budget.metadata.name} is not counted: {ready.message}"


def _refuses(budget: Budget, row: BudgetGroupStatus, left: Decimal | None, until: str) -> str:
    if left is None:
        return f"all Workloads until {until}"
    if budget.spec.admit == BudgetAdmit.ONLY_IF_IT_FITS:
        return f"Workloads that may use more than {_text(left, row)} hours, and those without a run-time limit"
    return ""


def _local(time: str, zone: tzinfo | None) -> str:
    if zone is None:
        return time
    return datetime.fromtimestamp(meta.parse_time(time) // SECOND, zone).strftime("%a %d %b %H:%M")


def _text(number: Decimal, row: BudgetGroupStatus) -> str:
    shown = f"{number:.3f}".rstrip("0").rstrip(".")
    return f"{shown}{_GIB}" if row.spent.endswith(_GIB) else shown
