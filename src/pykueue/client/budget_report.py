"""What groups have used of their Budgets, from the status of the Budgets, at the time of the question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from kubemachinery import codec, meta
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import NotFound
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue import calendars
from pykueue.api import registry
from pykueue.api.budget import Budget, BudgetGroupStatus
from pykueue.history.budget_answers import hours_number

_HOUR: Final = 3600
_GIB: Final = "Gi"


class BudgetLine(msgspec.Struct, frozen=True):
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


async def lines(client: ApiClient, now: Nanoseconds) -> tuple[list[BudgetLine], list[str]]:
    """The fullest groups of all Budgets, and a sentence for each Budget whose accounts are not known."""
    try:
        found = await client.list(registry.ALL.of(Budget))
    except NotFound:
        raise UsageError("the server has no Budgets: it was installed without the group pykueue.io") from None
    budgets = sorted((codec.decode(bytes(item), Budget) for item in found.items), key=lambda each: each.metadata.name)
    return [line for budget in budgets for line in of(budget, now)], list(_unknown(budgets))


def of(budget: Budget, now: Nanoseconds) -> Iterator[BudgetLine]:
    """The groups in the status of one Budget. Between two statuses spending goes on at the rate of the last one."""
    status = budget.status
    if status.observed_at is None or status.period_end is None:
        return
    elapsed = min(now, meta.parse_time(status.period_end)) - meta.parse_time(status.observed_at)
    for row in status.groups:
        spent = hours_number(row.spent) + hours_number(row.per_hour) * max(0, elapsed) / SECOND / _HOUR
        limit = hours_number(row.limit)
        yield BudgetLine(
            budget=budget.metadata.name,
            group=row.group,
            resource=row.resource,
            until=_local(budget, status.period_end),
            spent=_text(spent, row),
            percent=int(spent * 100 / limit) if limit > 0 else 100,
            limit=row.limit,
            per_hour=row.per_hour,
            spent_by=_spent_by(budget, row, spent >= limit),
        )


def _unknown(budgets: Iterable[Budget]) -> Iterator[str]:
    for budget in budgets:
        ready = next((each for each in budget.status.conditions if each.type == "Ready"), None)
        if ready is None:
            yield f"Budget {budget.metadata.name} is not counted: is the gate Budgets on?"
        elif ready.status != "True":
            yield f"Budget {budget.metadata.name} is not counted: {ready.message}"


def _spent_by(budget: Budget, row: BudgetGroupStatus, is_spent: bool) -> str:
    if is_spent:
        return "spent"
    return _local(budget, row.spent_at) if row.spent_at else ""


def _local(budget: Budget, time: str) -> str:
    try:
        zone: Any = calendars.zone(budget.spec.time_zone)
    except calendars.CalendarError:
        return time
    return datetime.fromtimestamp(meta.parse_time(time) // SECOND, zone).strftime("%a %d %b %H:%M")


def _text(number: Decimal, row: BudgetGroupStatus) -> str:
    shown = f"{number:.3f}".rstrip("0").rstrip(".")
    return f"{shown}{_GIB}" if row.spent.endswith(_GIB) else shown
