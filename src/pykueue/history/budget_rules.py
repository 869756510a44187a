"""A Budget as the values that accounts and answers take. An amount that cannot be parsed, which validation refuses,
counts as 0."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, tzinfo
from typing import Final

from kubemachinery import quantity
from kubemachinery.quantity import QuantityError, QuantityText
from pykueue.api import kueue, registry
from pykueue.api.budget import (
    Budget,
    BudgetAdmit,
    BudgetEvery,
    BudgetOverdraft,
    BudgetPer,
    BudgetSpec,
    BudgetWhenSpent,
)
from pykueue.history.budget_accounts import Charge, ChargingRules, of_hours
from pykueue.history.budget_answers import BudgetLimits
from pykueue.history.budget_periods import LONGEST_SECONDS, BudgetPeriod
from pykueue.history.records import Seconds
from pykueue.lifecycle.facts import ClusterQueueFacts

_BUDGET: Final = registry.ALL.of(Budget)

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


def charging(spec: BudgetSpec, scope: Mapping[str, frozenset[str] | None]) -> ChargingRules:
    """What is charged, in the ClusterQueues of a scope."""
    return ChargingRules(grouping(spec), weights(spec), scope)


def budget_name(check: kueue.AdmissionCheck | None) -> str:
    """The Budget that a check names; empty if it names none or another kind."""
    reference = check.spec.parameters if check is not None else None
    if reference is None or (reference.api_group, reference.kind) != (_BUDGET.group, _BUDGET.kind):
        return ""
    return reference.name


def scope(checks: Collection[str], cluster_queues: Iterable[ClusterQueueFacts]) -> dict[str, frozenset[str] | None]:
    """The ClusterQueues that require one of the checks of a Budget, with the flavors; None: all [BU1]."""
    found: dict[str, frozenset[str] | None] = {}
    for facts in cluster_queues:
        flavors = [each.on_flavors for each in facts.checks if each.name in checks]
        if flavors:
            found[facts.name] = frozenset().union(*flavors) if all(flavors) else None
    return found


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
