"""The Budgets of a replay: what was used before the trace begins is counted of the attempts that run then, and of no
other [PC12]."""

from __future__ import annotations

from collections.abc import Iterable

from kubemachinery.errors import UsageError
from pykueue import calendars
from pykueue.analysis.planner import BUDGETS, Case
from pykueue.analysis.traces import Trace
from pykueue.api import budget as api
from pykueue.api import kueue
from pykueue.api.budget import Budget, BudgetEvery
from pykueue.controllers.projected_budgets import ProjectedBudgets
from pykueue.history import budget_rules
from pykueue.history.budget_accounts import BudgetAccounts
from pykueue.history.budget_answers import BudgetLedger
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Seconds
from pykueue.lifecycle.facts import ClusterQueueFacts


def of_case(case: Case, trace: Trace) -> ProjectedBudgets | None:
    """The Budgets of a case when a trace begins; None without any, and while the gate is off."""
    budgets = [each for each in case.extensions if isinstance(each, Budget)]
    if not budgets or BUDGETS not in case.configured.on:
        return None
    users = {job.uid: job.user for job in trace.jobs if job.user}
    return ProjectedBudgets([_ledger(each, case, trace.begin) for each in budgets], users)


def _ledger(budget: Budget, case: Case, begin: Seconds) -> BudgetLedger:
    name, spec = budget.metadata.name, budget.spec
    try:
        zone = calendars.zone(spec.time_zone)
    except calendars.CalendarError as error:
        raise UsageError(f"Budget {name}: spec.timeZone: {error}") from None
    checks = {each.metadata.name: each for each in case.objects if isinstance(each, kueue.AdmissionCheck)}
    own = {check for check, found in checks.items() if is_of_budget(found) and budget_rules.budget_name(found) == name}
    queues = (ClusterQueueFacts.of(each, True, checks) for each in case.objects if isinstance(each, kueue.ClusterQueue))
    rules = budget_rules.charging(spec, budget_rules.scope(own, queues))
    accounts = BudgetAccounts(rules, BudgetCalendar(BudgetEvery(spec.every), zone), begin, begin)
    return BudgetLedger(budget_rules.limits(name, spec), accounts)


def is_of_budget(check: kueue.AdmissionCheck) -> bool:
    """Whether a check is answered from a Budget."""
    return check.spec.controller_name == api.CONTROLLER


def unanswered(cases: Iterable[Case]) -> list[str]:
    """Checks of Budgets that a replay takes to pass, a sentence each."""
    found: dict[str, None] = {}
    for case in cases:
        there = {each.metadata.name for each in case.extensions if isinstance(each, Budget)}
        for check in case.objects:
            if isinstance(check, kueue.AdmissionCheck) and is_of_budget(check):
                name = budget_rules.budget_name(check)
                begin = f"AdmissionCheck {check.metadata.name} is taken to pass: "
                if BUDGETS not in case.configured.on:
                    found[f"{begin}the gate {BUDGETS} is off"] = None
                elif name not in there:
                    found[f"{begin}Budget {name or '(none)'} does not exist"] = None
    return list(found)
