"""A Budget as the values that accounts and answers take. An amount that cannot be parsed, which validation refuses,
counts as 0."""

from __future__ import annotations

from datetime import datetime, tzinfo

from kubemachinery import quantity
from kubemachinery.quantity import QuantityError, QuantityText
from pykueue.api.budget import (
    BudgetAdmit,
    BudgetEvery,
    BudgetOverdraft,
    BudgetPer,
    BudgetSpec,
    BudgetWhenSpent,
)
from pykueue.history.budget_accounts import Charge, of_hours
from pykueue.history.budget_answers import BudgetLimits
from pykueue.history.budget_periods import LONGEST_SECONDS, BudgetPeriod
from pykueue.history.records import Seconds

# How many periods the history has to cover: the present one and the one before it.
PERIODS_KEPT = 2


def limits(name: str, spec: BudgetSpec) -> BudgetLimits:
    """The limits of a Budget."""
    return BudgetLimits(
        name=name,
        limits={each.resource: _charge(each.resource, each.hours) for each in spec.amounts},
        overrides={
            override.group: {each.resource: _charge(each.resource, each.hours) for each in override.amounts}
            for override in spec.overrides
        },
        unspent_percent=int(spec.rollover.unspent_up_to.removesuffix("%") or 0),
        carries_overdraft=spec.rollover.overdraft != BudgetOverdraft.FORGIVE,
        warn_at=tuple(sorted(spec.warn_at)),
        admit=BudgetAdmit(spec.admit),
        when_spent=BudgetWhenSpent(spec.when_spent),
    )


def weights(spec: BudgetSpec) -> dict[str, dict[str, int]]:
    """The weights of the flavors of each resource, in thousandths."""
    return {each.resource: {flavor: _milli(weight) for flavor, weight in each.weights.items()} for each in spec.amounts}


def grouping(spec: BudgetSpec) -> BudgetPer:
    return BudgetPer(spec.per)


def retention_needed(spec: BudgetSpec) -> int:
    """How many seconds the history has to be kept [BU8]."""
    return PERIODS_KEPT * LONGEST_SECONDS[BudgetEvery(spec.every)]


def next_period(period: BudgetPeriod, zone: tzinfo, name: str) -> str:
    """When the next period begins, as a clause for messages."""
    return f"the next period begins on {local_time(period.end, zone)} ({name})"


def local_time(moment: Seconds, zone: tzinfo) -> str:
    return datetime.fromtimestamp(moment, zone).strftime("%a %Y-%m-%d %H:%M")


def _charge(resource: str, hours: QuantityText) -> Charge:
    return of_hours(resource, _milli(hours))


def _milli(text: QuantityText) -> int:
    try:
        return quantity.parse(text).rounded(-3)
    except QuantityError:
        return 0
