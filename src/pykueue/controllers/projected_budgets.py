"""Budgets in a run ahead or in a replay: the accounts and the answers of the manager, on the clock of the run.

Attempts are charged from their admission on; a check is decided by `history.budget_answers` [PC12], [FC10].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import kueue
from pykueue.api.budget import BudgetAdmit, BudgetWhenSpent
from pykueue.api.kueue import CheckState
from pykueue.history import budget_answers
from pykueue.history.budget_accounts import AccountKey
from pykueue.history.budget_answers import BudgetLedger, BudgetRequest
from pykueue.history.records import FINISHED, Attempt, Seconds, UsageSegment, WorkloadRecord
from pykueue.lifecycle import states
from pykueue.projection import CheckRefusal, DueChecks, ProjectedAttempt

# A wait ends after so many periods in which no job has ended: a job that is evicted in every period never ends.
_PERIODS_MAX: Final = 400


class _ChargedWorkload(msgspec.Struct):
    """A Workload with quota, or one that waits for the next period, with what each Budget would charge it."""

    workload: kueue.Workload
    requests: Mapping[int, BudgetRequest]
    is_evicted: bool = False

    @property
    def order(self) -> tuple[int, int, str]:
        """The order in which Workloads come back."""
        return -(self.workload.spec.priority or 0), states.created(self.workload), states.key(self.workload)


class ProjectedBudgets(msgspec.Struct):
    """The checks of Budgets in one run. The ledgers are those of the run alone: it changes them."""

    ledgers: list[BudgetLedger]
    users: Mapping[str, str]
    _running: dict[str, _ChargedWorkload] = msgspec.field(default_factory=dict)
    _waiting: dict[str, _ChargedWorkload] = msgspec.field(default_factory=dict)
    # When an account reaches its limit, for Budgets that evict then: by the number of the ledger, and account.
    _spent_at: dict[tuple[int, AccountKey], Seconds] = msgspec.field(default_factory=dict)
    _periods_without_end: int = 0
    # Whether a period has ended since the last call of `due`.
    _has_period_ended: bool = False

    # --- What the run asks --------------------------------------------------------------------------------------------

    def answer(self, workload: kueue.Workload, attempt: ProjectedAttempt, now: Nanoseconds) -> CheckRefusal | None:
        requests = self._requests(workload, attempt)
        self._advance(now)
        self._waiting.pop(attempt.key, None)  # it has quota; one that is refused for good does not wait
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
        self._running[attempt.key] = _ChargedWorkload(workload, requests)
        for number, request in requests.items():
            ledger = self.ledgers[number]
            # What was admitted before the run may be in the accounts.
            if not ledger.accounts.is_charged(attempt.uid):
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
                accounts.close(attempt.uid, now // SECOND)
                accounts.forget(attempt.uid)
                accounts.withdraw(attempt.uid)

    def waits(self, workload: kueue.Workload, cluster_queue: str, until: Nanoseconds) -> None:
        key, at = states.key(workload), until // SECOND
        if key in self._waiting:
            return
        # Refused before the run. The time shows by which Budgets: those whose period ends then. What it requests is
        # decided when it has quota again.
        found = {}
        for number, ledger in enumerate(self.ledgers):
            accounts = ledger.accounts
            edge = accounts.period.end
            if cluster_queue in accounts.rules.scope and edge <= at <= edge + budget_answers.SPREAD_SECONDS:
                found[number] = BudgetRequest(self._group(workload, cluster_queue, ledger), {}, None)
        if found:
            self._waiting[key] = _ChargedWorkload(workload, found)

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
        back = [(states.key(each.workload), self._reason(each)) for each in returning if self._may_return(each)]
        for name, _ in back:
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
        self._waiting[states.key(workload)] = _ChargedWorkload(workload, refusing)
        return CheckRefusal((at + seconds) * SECOND)

    @staticmethod
    def _has_hours(ledger: BudgetLedger, request: BudgetRequest) -> bool:
        """Whether there will be a period that has hours for a Workload: one without them would wait for ever."""
        used = (resource for resource, rate in request.rates.items() if rate > 0)
        return all(ledger.standing((request.group, resource)).most > 0 for resource in used)

    def _may_return(self, found: _ChargedWorkload) -> bool:
        """Whether the Budgets that refused a Workload would not do so again [BU4]."""
        return all(
            budget_answers.answer(request, self.ledgers[number], "").state is not CheckState.RETRY
            for number, request in found.requests.items()
        )

    def _reason(self, found: _ChargedWorkload) -> str:
        names = sorted(self.ledgers[number].limits.name for number in found.requests)
        return f"the next period of Budget {' and '.join(names)} begins"

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
                group = self._group(workload, attempt.cluster_queue, ledger)
                found[number] = BudgetRequest(group, rules.rates(attempt.usage), budget_answers.time_left(workload))
        return found

    def _group(self, workload: kueue.Workload, cluster_queue: str, ledger: BudgetLedger) -> str:
        user, queue = self.users.get(workload.metadata.uid, ""), workload.spec.queue_name or ""
        return ledger.accounts.rules.group(workload.metadata.namespace, queue, cluster_queue, user)

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
