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


async def lines(client: ApiClient, now: Nanoseconds) -> tuple[list[BudgetLine], list[str]]:
    """The fullest groups of all Budgets, and a sentence for each Budget whose accounts are not known."""
    try:
        found = await client.list(registry.ALL.of(Budget))
    except NotFound:
        raise UsageError("the server has no Budgets: it was installed without the group pykueue.io") from None
    budgets = sorted((codec.decode(bytes(item), Budget) for item in found.items), key=lambda each: each.metadata.name)
    shown = [line for each in budgets for line in budget_lines.of(each, calendars.zone_of(each), now)]
    return shown, list(budget_lines.unknown(budgets))
