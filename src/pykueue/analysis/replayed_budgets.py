"""The Budgets of a replay: the accounts and the answers of the manager, on the clock of the replay [PC12].

Attempts are charged from their admission on; a check is decided by `history.budget_answers`. What was used before the
trace begins is counted of the attempts that run then, and of no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue import calendars
from pykueue.analysis.planner import BUDGETS, Case
from pykueue.analysis.traces import Trace
from pykueue.api import budget as api
from pykueue.api import kueue
from pykueue.api.budget import Budget, BudgetAdmit, BudgetEvery, BudgetWhenSpent
from pykueue.api.kueue import CheckState
from pykueue.history import budget_answers, budget_rules
from pykueue.history.budget_accounts import AccountKey, BudgetAccounts
from pykueue.history.budget_answers import BudgetLedger, BudgetRequest
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import FINISHED, Attempt, Seconds, UsageSegment, WorkloadRecord
from pykueue.lifecycle import states
from pykueue.lifecycle.facts import ClusterQueueFacts
from pykueue.projection import CheckRefusal, DueChecks, ProjectedAttempt

# A wait ends after so many periods in which no job has ended: a job that is evicted in every period never ends.
_PERIODS_MAX: Final = 400


def of_case(case: Case, trace: Trace) -> ReplayedBudgets | None:
    """The Budgets of a case when a trace begins; None without any, and while the gate is off."""
    budgets = [each for each in case.extensions if isinstance(each, Budget)]
    if not budgets or BUDGETS not in case.configured.on:
        return None
    users = {job.uid: job.user for job in trace.jobs if job.user}
    return ReplayedBudgets([_ledger(each, case, trace.begin) for each in budgets], users)


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


@dataclass(slots=True)
class _ReplayedWorkload:
    """A Workload with quota, or one that waits for the next period, with what each Budget would charge it."""

    workload: kueue.Workload
    requests: Mapping[int, BudgetRequest]
    is_evicted: bool = False

    @property
    def order(self) -> tuple[int, int, str]:
        """The order in which Workloads come back."""
        return -(self.workload.spec.priority or 0), states.created(self.workload), states.key(self.workload)


@dataclass(slots=True)
class ReplayedBudgets:
    """The checks of Budgets in one replay."""

    ledgers: list[BudgetLedger]
    users: Mapping[str, str]
    _running: dict[str, _ReplayedWorkload] = field(default_factory=dict)
    _waiting: dict[str, _ReplayedWorkload] = field(default_factory=dict)
    # When an account reaches its limit, for Budgets that evict then: by the number of the ledger, and account.
    _spent_at: dict[tuple[int, AccountKey], Seconds] = field(default_factory=dict)
    _periods_without_end: int = 0
    # Whether a period has ended since the last call of `due`.
    _has_period_ended: bool = False

    # --- What the run asks --------------------------------------------------------------------------------------------

    def answer(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> CheckRefusal | None:
        requests = self._requests(workload, attempt)
        self._advance(now)
        found = {}
        for number, request in requests.items():
            answer = budget_answers.decide(attempt.uid, request, CheckState.PENDING, self.ledgers[number], "")
            found[number] = answer.state if answer is not None else CheckState.READY
        if all(state is CheckState.READY for state in found.values()):
            return None
        for number in requests:
            self.ledgers[number].accounts.withdraw(attempt.uid)
        if CheckState.REJECTED in found.values():
            return CheckRefusal(None)
        refusing = {number: requests[number] for number, state in found.items() if state is CheckState.RETRY}
        return self._refused(workload, attempt.uid, refusing, now)

    def admitted(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> None:
        requests = self._requests(workload, attempt)
        if not requests or attempt.admitted is None:
            return
        self._advance(now)
        self._running[attempt.key] = _ReplayedWorkload(workload, requests)
        for number, request in requests.items():
            ledger = self.ledgers[number]
            ledger.accounts.observe(self._record(workload, attempt))
            if ledger.limits.admit is BudgetAdmit.ONLY_IF_IT_FITS and request.seconds is not None:
                admitted = attempt.admitted // SECOND
                ledger.accounts.commit(attempt.uid, budget_answers.commitment(request, admitted))

    def ended(self, attempt: ProjectedAttempt, now: Nanoseconds) -> None:
        self._advance(now)
        if attempt.reason == FINISHED:
            self._periods_without_end = 0
        found = self._running.pop(attempt.key, None)
        if found is not None:
            for number in found.requests:
                accounts = self.ledgers[number].accounts
                accounts.observe(self._record(found.workload, attempt))
                accounts.forget(attempt.uid)
                accounts.withdraw(attempt.uid)

    def left(self, key: str) -> None:
        self._waiting.pop(key, None)

    def next_look(self) -> Nanoseconds | None:
        self._follow_changes()
        times = list(self._spent_at.values())
        for ledger in self.ledgers:
            if self._waiting or (self._running and ledger.limits.when_spent is BudgetWhenSpent.EVICT):
                times.append(ledger.accounts.period.end)
        return min(times) * SECOND if times else None

    def due(self, now: Nanoseconds) -> DueChecks:
        self._advance(now)
        self._follow_changes()
        has_ended, self._has_period_ended = self._has_period_ended, False
        spent = [key for key, at in self._spent_at.items() if at <= now // SECOND]
        for key in spent:
            del self._spent_at[key]
        evicted = []
        if has_ended or spent:
            evicted = [(key, refusal) for key in sorted(self._running) if (refusal := self._eviction(key, now))]
        returning = sorted(self._waiting.values(), key=lambda each: each.order) if has_ended else ()
        back = [states.key(each.workload) for each in returning if self._may_return(each)]
        for name in back:
            del self._waiting[name]
        return DueChecks(evicted, back)

    # --- Decisions ----------------------------------------------------------------------------------------------------

    def _eviction(self, key: str, now: Nanoseconds) -> CheckRefusal | None:
        """The refusal of an admitted Workload whose Budget is spent and evicts then [BU5]."""
        found = self._running[key]
        if found.is_evicted:
            return None
        uid = found.workload.metadata.uid
        refusing = {
            number: request
            for number, request in found.requests.items()
            if budget_answers.decide(uid, request, CheckState.READY, self.ledgers[number], "") is not None
        }
        found.is_evicted = bool(refusing)
        return self._refused(found.workload, uid, refusing, now) if refusing else None

    def _refused(
        self, workload: kueue.Workload, uid: str, refusing: Mapping[int, BudgetRequest], now: Nanoseconds
    ) -> CheckRefusal:
        if self._periods_without_end > _PERIODS_MAX or not all(
            self._has_hours(self.ledgers[number], request) for number, request in refusing.items()
        ):
            return CheckRefusal(None)
        at = now // SECOND
        seconds = max(
            budget_answers.retry_seconds(uid, self.ledgers[number].accounts.period, at) for number in refusing
        )
        self._waiting[states.key(workload)] = _ReplayedWorkload(workload, refusing)
        return CheckRefusal((at + seconds) * SECOND)

    @staticmethod
    def _has_hours(ledger: BudgetLedger, request: BudgetRequest) -> bool:
        """Whether there will be a period that has hours for a Workload: one without them would wait for ever."""
        used = (resource for resource, rate in request.rates.items() if rate > 0)
        return all(ledger.standing((request.group, resource)).most > 0 for resource in used)

    def _may_return(self, found: _ReplayedWorkload) -> bool:
        """Whether the Budgets that refused a Workload would not do so again [BU4]."""
        return all(
            budget_answers.answer(request, self.ledgers[number], "").state is not CheckState.RETRY
            for number, request in found.requests.items()
        )

    # --- Accounts -----------------------------------------------------------------------------------------------------

    def _advance(self, now: Nanoseconds) -> None:
        """Move all accounts to a time."""
        has_ended = [ledger.accounts.advance(now // SECOND) for ledger in self.ledgers]
        if any(has_ended):
            self._has_period_ended = True
            self._periods_without_end += 1

    def _follow_changes(self) -> None:
        for number, ledger in enumerate(self.ledgers):
            if ledger.limits.when_spent is not BudgetWhenSpent.EVICT:
                continue
            for key in ledger.accounts.take_changed():
                # Now, where it is spent already.
                at = ledger.accounts.reached_at(key, ledger.allowance(key)) if ledger.accounts.rate(key) else None
                if at is None:
                    self._spent_at.pop((number, key), None)
                else:
                    self._spent_at[number, key] = at

    def _requests(self, workload: kueue.Workload, attempt: ProjectedAttempt) -> dict[int, BudgetRequest]:
        """What each Budget that an attempt needs would charge it, by number of the ledger."""
        found = {}
        for number, ledger in enumerate(self.ledgers):
            rules = ledger.accounts.rules
            if rules.requires(attempt.cluster_queue, (flavor for flavor, _, _ in attempt.usage)):
                user = self.users.get(attempt.uid, "")
                queue = workload.spec.queue_name or ""
                group = rules.group(workload.metadata.namespace, queue, attempt.cluster_queue, user)
                found[number] = BudgetRequest(group, rules.rates(attempt.usage), budget_answers.time_left(workload))
        return found

    def _record(self, workload: kueue.Workload, attempt: ProjectedAttempt) -> WorkloadRecord:
        """The record that an attempt is charged by."""
        assert attempt.admitted is not None, "attempts are charged from their admission on"
        admitted = attempt.admitted // SECOND
        released = None if attempt.released is None else attempt.released // SECOND
        segments = (UsageSegment(admitted, released, attempt.usage),)
        reserved = attempt.reserved // SECOND
        charged = Attempt(reserved, attempt.cluster_queue, reserved, admitted, released, attempt.reason, "", segments)
        return WorkloadRecord(
            uid=attempt.uid,
            namespace=workload.metadata.namespace,
            name=workload.metadata.name,
            queue=workload.spec.queue_name or "",
            user=self.users.get(attempt.uid, ""),
            submitted=reserved,
            attempts=(charged,),
        )


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
