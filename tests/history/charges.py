"""Records of runs with GPUs and accounts of them, for tests of Budgets."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from pykueue.api.budget import BudgetEvery, BudgetPer
from pykueue.history.budget_accounts import BudgetAccounts, ChargingRules, of_hours
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Attempt, UsageSegment, WorkloadRecord

GPU = "nvidia.com/gpu"
DAY = 86_400
HOUR = 3600
DAILY = BudgetCalendar(BudgetEvery.DAY, ZoneInfo("UTC"))
# Midnight of 16 November 2026.
START = 20_773 * DAY


def rules(
    per: BudgetPer = BudgetPer.TOTAL, scope: dict[str, frozenset[str] | None] | None = None, **weights: int
) -> ChargingRules:
    return ChargingRules(per, {GPU: weights}, {"physics": None} if scope is None else scope)


def run(
    admitted: int, released: int | None, gpus: int = 1, flavor: str = "a100", reserved: int | None = None
) -> Attempt:
    """An attempt, in seconds after START."""
    reserved = admitted if reserved is None else reserved
    amounts = ((flavor, "cpu", 8000), (flavor, GPU, gpus))
    end = None if released is None else START + released
    segments: tuple[UsageSegment, ...] = (UsageSegment(START + admitted, end, amounts),)
    if reserved < admitted:
        segments = (UsageSegment(START + reserved, START + admitted, amounts), *segments)
    return Attempt(START + reserved, "physics", START + reserved, START + admitted, end, segments=segments)


def record(*attempts: Attempt, uid: str = "a", queue: str = "main", user: str = "ana") -> WorkloadRecord:
    ended = attempts[-1].released if attempts else None
    return WorkloadRecord(
        uid=uid, namespace="lab", name=uid, queue=queue, user=user, submitted=START, ended=ended, attempts=attempts
    )


def accounts(now: int = 0, charging: ChargingRules | None = None, first: int = 0) -> BudgetAccounts:
    return BudgetAccounts(charging or rules(), DAILY, START + first, START + now)


def gpu_hours(made: BudgetAccounts, group: str = "total") -> float:
    return made.spent((group, GPU)) / of_hours(GPU, 1000)
