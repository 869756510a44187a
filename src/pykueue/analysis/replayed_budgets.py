"""The Budgets of a replay or of an offline forecast: copies of their accounts, without a manager [FC10], [PC12]."""

from __future__ import annotations

from collections.abc import Sequence

from kubemachinery import meta
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND
from pykueue import calendars
from pykueue.analysis.planner import BUDGETS, Case
from pykueue.analysis.traces import Trace
from pykueue.api import budget as api
from pykueue.api import kueue
from pykueue.api.budget import Budget, BudgetEvery
from pykueue.controllers.projected_budgets import ProjectedBudgets
from pykueue.history import budget_accounts, budget_rules, records
from pykueue.history.budget_accounts import BudgetAccounts
from pykueue.history.budget_answers import BudgetLedger
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Seconds, WorkloadRecord
from pykueue.lifecycle.facts import ClusterQueueFacts


def of_case(case: Case, trace: Trace) -> ProjectedBudgets | None:
    """The Budgets of a case when a trace begins; None without any, and while the gate is off. What was used before is
    counted of the attempts that run then, and of no other [PC12]."""
    budgets = budgets_of(case)
    if not budgets:
        return None
    users = {job.uid: job.user for job in trace.jobs if job.user}
    return ProjectedBudgets([_ledger(each, case, trace.begin, trace.begin) for each in budgets], users)


def budgets_of(case: Case) -> list[Budget]:
    """The Budgets of a case; none while the gate is off."""
    found = [each for each in case.extensions if isinstance(each, Budget)]
    return found if BUDGETS in case.configured.on else []


def first_counted(budget: Budget, now: Seconds) -> Seconds:
    """When the first period of a Budget that counts begins [BU8]."""
    created = budget.metadata.creation_timestamp
    since = now if created is None else meta.parse_time(created) // SECOND
    return budget_accounts.first_period(_calendar(budget), since, None, now).start


def ledgers(case: Case, past: Sequence[WorkloadRecord] | None, now: Seconds) -> list[BudgetLedger]:
    """The Budgets of a case at a time. They are charged what the records of the past used, and Workloads without a
    record; without a past, what the Workloads that still exist used in the present period.

    A record without an end whose Workload is not in the case is charged until now: it has ended since.
    """
    workloads = [each for each in case.objects if isinstance(each, kueue.Workload)]
    uids = {each.metadata.uid for each in workloads}
    recorded = {each.uid for each in past or ()}
    found = []
    for budget in budgets_of(case):
        ledger = _ledger(budget, case, now if past is None else first_counted(budget, now), now)
        for record in past or ():
            ledger.accounts.observe(record)
            if record.ended is None and record.uid not in uids:
                ledger.accounts.close(record.uid, now)
            ledger.accounts.forget(record.uid)
        for workload in workloads:
            if workload.metadata.uid not in recorded:
                ledger.accounts.observe(records.observe(None, workload, now))
        found.append(ledger)
    return found


def _calendar(budget: Budget) -> BudgetCalendar:
    try:
        zone = calendars.zone(budget.spec.time_zone)
    except calendars.CalendarError as error:
        raise UsageError(f"Budget {budget.metadata.name}: spec.timeZone: {error}") from None
    return BudgetCalendar(BudgetEvery(budget.spec.every), zone)


def _ledger(budget: Budget, case: Case, first: Seconds, now: Seconds) -> BudgetLedger:
    name, spec = budget.metadata.name, budget.spec
    checks = {each.metadata.name: each for each in case.objects if isinstance(each, kueue.AdmissionCheck)}
    own = {check for check, found in checks.items() if is_of_budget(found) and budget_rules.budget_name(found) == name}
    queues = (ClusterQueueFacts.of(each, True, checks) for each in case.objects if isinstance(each, kueue.ClusterQueue))
    rules = budget_rules.charging(spec, budget_rules.scope(own, queues))
    accounts = BudgetAccounts(rules, _calendar(budget), first, now)
    return BudgetLedger(budget_rules.limits(name, spec), accounts)


def is_of_budget(check: kueue.AdmissionCheck) -> bool:
    """Whether a check is answered from a Budget."""
    return check.spec.controller_name == api.CONTROLLER


def unanswered(case: Case) -> list[str]:
    """Checks of Budgets that are taken to pass, a sentence each."""
    found: dict[str, None] = {}
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
