"""What groups have used of their Budgets, read from a server."""

from __future__ import annotations

from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import NotFound
from kubemachinery.errors import UsageError
from kubemachinery.meta import Nanoseconds
from pykueue import calendars
from pykueue.api import registry
from pykueue.api.budget import Budget
from pykueue.history import budget_lines
from pykueue.history.budget_lines import BudgetLine


async def lines(client: ApiClient, now: Nanoseconds, *, has_local_times: bool) -> tuple[list[BudgetLine], list[str]]:
    """The fullest groups of all Budgets, and a sentence for each Budget whose accounts are not known. Times are those
    of the time zone of the Budget for people, and RFC 3339 for programs."""
    try:
        found = await client.list(registry.ALL.of(Budget))
    except NotFound:
        raise UsageError("the server has no Budgets: it was installed without the group pykueue.io") from None
    budgets = sorted((codec.decode(bytes(item), Budget) for item in found.items), key=lambda each: each.metadata.name)
    zones = [calendars.zone_of(each) if has_local_times else None for each in budgets]
    shown = [line for each, zone in zip(budgets, zones, strict=True) for line in budget_lines.of(each, zone, now)]
    return shown, list(budget_lines.unknown(budgets))
