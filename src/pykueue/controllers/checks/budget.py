"""The check `pykueue.io/budget`: a Workload with quota is admitted while its group has hours of its Budget left.

`history.budget_answers` decides; `budget_books` has the accounts. Nothing is polled: the next look at a Budget is the
exact second at which a group reaches a warning or its limit, or at which the period ends [BU6].

    Workload with quota, check Pending      ──▶ Ready, Retry until the period ends, Rejected [BU3]
    admitted, limit reached, whenSpent Evict ──▶ Retry [BU5]
    waits after Retry, hours are left again  ──▶ its backoff is ended [BU4]

Without accounts (no Budget, no readable history) no check is answered, and no running Workload is stopped.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from kubemachinery import codec, conditions
from kubemachinery.client.client import ApiClient
from kubemachinery.client.controller import Controller
from kubemachinery.client.informer import Informer, InformerEvent, ObjectKey
from kubemachinery.client.object_decoder import ObjectDecoder
from kubemachinery.clock import Clock
from kubemachinery.conditions import ConditionStatus
from kubemachinery.meta import SECOND, Nanoseconds, format_time
from pykueue.api import budget as api
from pykueue.api import kueue, registry
from pykueue.api.budget import Budget, BudgetAdmit, BudgetWhenSpent
from pykueue.api.conditions import AdmissionCheckActiveReason, EvictedReason, WorkloadCondition
from pykueue.api.kueue import AdmissionCheckState, CheckState
from pykueue.controllers.checks import budget_status
from pykueue.controllers.checks.budget_books import HELD_SECONDS, BudgetBook, BudgetBooks
from pykueue.controllers.checks.owned_checks import OwnedChecks
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.controllers.informers import Informers
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.history import budget_answers, budget_rules, records
from pykueue.history.budget_accounts import AccountKey, ChargingRules, Commitment
from pykueue.history.budget_answers import SPENT, BudgetAnswer, BudgetLedger, BudgetRequest
from pykueue.history.store import HistoryStoreError
from pykueue.lifecycle import checks, states
from pykueue.lifecycle.workload_changes import Changes, EventType, SetRequeue
from pykueue.observe.events import BUDGET, Reporter

log = logging.getLogger(__name__)

BUDGET_KIND: Final = registry.ALL.of(Budget)

_WORKERS: Final = 4
_RETRY_SECONDS: Final = 30.0
# How often the status is written at most while amounts change, and how often it is computed: with many groups that
# takes longer than all else that follows a change.
_STATUS_SECONDS: Final = 5
_STATUS_LOOK_SECONDS: Final = 1
_WAITING: Final = "budgetWait"


class BudgetController:
    """One loop over Workloads, one over the checks, one over the Budgets."""

    def __init__(
        self,
        client: ApiClient,
        informers: Informers,
        writer: WorkloadWriter,
        history: HistoryRecorder,
        reporter: Reporter,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._informers = informers
        self._checks = OwnedChecks(client, informers, api.CONTROLLER)
        self._writer = writer
        self._history = history
        self._reporter = reporter
        self._clock = clock
        self.budgets: Informer[Budget] = Informer(
            client, BUDGET_KIND, ObjectDecoder(Budget, counts_generations=True), rng, may_be_absent=True
        )
        self.loop: Controller[ObjectKey] = Controller("budget", self._reconcile, rng, workers=_WORKERS)
        self.checks_loop: Controller[str] = Controller("budget-checks", self._reconcile_check, rng)
        self.budgets_loop: Controller[str] = Controller("budgets", self._reconcile_budget, rng)
        self.books = BudgetBooks(history, clock, self.budgets_loop.add)
        self.books.on_availability = self._add_all
        # UIDs of Workloads whose answer is being written, and problems that an Event was emitted about.
        self._answering: set[str] = set()
        self._problems: dict[str, str] = {}
        # By Budget, when the status was written last, and when it was computed last.
        self._status_written: dict[str, Nanoseconds] = {}
        self._status_looked: dict[str, Nanoseconds] = {}
        informers.workloads.add_index(_WAITING, _waits_for)
        informers.workloads.add_handler(self._workload_seen)
        informers.checks.add_handler(self._check_seen)
        informers.cluster_queues.add_handler(self._cluster_queue_seen)
        self.budgets.add_handler(self._budget_seen)

    @property
    def loops(self) -> tuple[Controller[Any], ...]:
        return self.budgets_loop, self.checks_loop, self.loop

    # --- Events -------------------------------------------------------------------------------------------------------

    def _workload_seen(self, change: InformerEvent[kueue.Workload]) -> None:
        if change.new is None:
            if change.old is not None:
                self._withdraw(change.old.metadata.uid)
            return
        if self._checks.of(change.new):
            self._commit(change.new)
            self.loop.add(change.key)
        elif change.old is not None and self._checks.of(change.old):
            self._withdraw(change.new.metadata.uid)

    def _check_seen(self, change: InformerEvent[kueue.AdmissionCheck]) -> None:
        if any(map(self._checks.owns, (change.old, change.new))):
            self.checks_loop.add(change.key.name)
            for check in (change.old, change.new):
                if name := budget_rules.budget_name(check):
                    self.budgets_loop.add(name)
            self._add_workloads(change.key.name)

    def _cluster_queue_seen(self, change: InformerEvent[kueue.ClusterQueue]) -> None:
        old, new = (
            each.spec.admission_checks_strategy if each is not None else None for each in (change.old, change.new)
        )
        if old != new:
            self._add_all()

    def _budget_seen(self, change: InformerEvent[Budget]) -> None:
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            return
        self.budgets_loop.add(change.key.name)
        for check in self._checks_of(change.key.name):
            self.checks_loop.add(check)

    def _add_all(self) -> None:
        for key, _ in self.budgets.items():
            self.budgets_loop.add(key.name)

    def _add_workloads(self, check: str) -> None:
        for key in self._checks.workloads(check):
            self.loop.add(key)

    # --- Which Budget -------------------------------------------------------------------------------------------------

    def _checks_of(self, budget: str) -> Iterator[str]:
        return (name for name in self._checks.names() if budget_rules.budget_name(self._checks.get(name)) == budget)

    def _book(self, check: str) -> BudgetBook | None:
        return self.books.get(budget_rules.budget_name(self._checks.get(check)))

    def _scope(self, budget: str) -> dict[str, frozenset[str] | None]:
        """The ClusterQueues that require a check of the Budget, with the flavors; None: all [BU1]."""
        queues = (self._informers.cluster_queue_facts(key.name) for key, _ in self._informers.cluster_queues.items())
        return budget_rules.scope(set(self._checks_of(budget)), (facts for facts in queues if facts is not None))

    # --- Checks -------------------------------------------------------------------------------------------------------

    async def _reconcile_check(self, name: str) -> None:
        """Write whether a check is active."""
        check = self._checks.get(name)
        if check is None:
            return
        wanted, reasons = budget_rules.budget_name(check), AdmissionCheckActiveReason
        budget = self.budgets.get(wanted) if wanted else None
        status, reason = ConditionStatus.FALSE, reasons.BAD_PARAMETERS_REF
        if not wanted:
            message = "spec.parameters: must name a Budget of pykueue.io"
        elif budget is None:
            message = f"Budget {wanted} does not exist"
        elif problem := self.books.problem(budget):
            reason, message = reasons.BAD_CONFIG, f"Budget {wanted}: {problem}"
        else:
            status, reason, message = ConditionStatus.TRUE, reasons.ACTIVE, "The admission check is active"
        if status is ConditionStatus.FALSE:
            self._note_problem(f"check/{name}", message, check)
        else:
            self._problems.pop(f"check/{name}", None)
        await self._checks.write_active(name, status, reason, message, self._clock.now())

    def _note_problem(self, place: str, message: str, about: Budget | kueue.AdmissionCheck) -> None:
        """Emit an Event about a problem, once until it changes."""
        if self._problems.get(place) != message:
            self._problems[place] = message
            self._reporter.event(about, EventType.WARNING, "BudgetUnavailable", message, BUDGET, important=True)

    # --- Workloads ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: ObjectKey) -> None:
        async with self._writer.turn(key):
            workload = self._writer.current(key)
            if workload is None or states.is_finished(workload):
                return
            now = self._clock.now()
            if states.is_reserved(workload):
                changes = self._answers(workload, now) if not states.is_evicted(workload) else ()
            else:
                changes = self._end_of_wait(workload)
            if changes:
                uid = workload.metadata.uid
                self._answering.add(uid)
                try:
                    await self._writer.workload(workload, changes, BUDGET, now)
                finally:
                    self._answering.discard(uid)
                current = self._writer.current(key)
                if current is not None:
                    self._commit(current)

    def _answers(self, workload: kueue.Workload, now: Nanoseconds) -> Changes:
        """The states of the checks of a Workload with quota."""
        answered = tuple(
            self._answered(workload, check, now) if self._checks.get(check.name) is not None else check
            for check in workload.status.admission_checks
        )
        return checks.with_checks(workload, answered) if answered != workload.status.admission_checks else ()

    def _answered(self, workload: kueue.Workload, check: AdmissionCheckState, now: Nanoseconds) -> AdmissionCheckState:
        book = self._book(check.name)
        if book is None:
            return check
        request = self._request(workload, book.accounts.rules)
        found = budget_answers.decide(workload.metadata.uid, request, checks.answer(check), book.ledger, book.until)
        return check if found is None else self._written(workload, check, found, book, now)

    def _written(
        self,
        workload: kueue.Workload,
        check: AdmissionCheckState,
        answer: BudgetAnswer,
        book: BudgetBook,
        now: Nanoseconds,
    ) -> AdmissionCheckState:
        seconds = None
        if answer.state is CheckState.RETRY:
            seconds = budget_answers.retry_seconds(workload.metadata.uid, book.accounts.period, now // SECOND)
        return replace(
            check,
            state=answer.state.value,
            message=conditions.truncated(answer.message),
            last_transition_time=format_time(now),
            requeue_after_seconds=seconds,
        )

    def _request(self, workload: kueue.Workload, rules: ChargingRules) -> BudgetRequest:
        """What a Workload with quota would be charged."""
        user = self.user(workload)
        cluster_queue = states.cluster_queue(workload)
        group = rules.group(workload.metadata.namespace, workload.spec.queue_name or "", cluster_queue, user)
        return BudgetRequest(group, rules.rates(records.usage(workload)), budget_answers.time_left(workload))

    def revisions(self) -> Iterator[tuple[str, int]]:
        """The name and generation of each Budget."""
        for key, each in self.budgets.items():
            yield key.name, each.metadata.generation

    def copies(self, cluster_queues: Collection[str], uids: Collection[str]) -> Iterator[BudgetLedger]:
        """The Budgets that a check of these ClusterQueues asks, with accounts for a run ahead [FC10]."""
        for book in self.books.all():
            if not book.accounts.rules.scope.keys().isdisjoint(cluster_queues):
                yield BudgetLedger(book.ledger.limits, book.accounts.copy(uids))

    def user(self, workload: kueue.Workload) -> str:
        """The user that a Workload is charged to by a Budget of users; empty if it is not known."""
        label = self._history.options.user_label
        return records.user(workload, label)

    # --- The end of a wait --------------------------------------------------------------------------------------------

    def _end_of_wait(self, workload: kueue.Workload) -> Changes:
        """End the backoff of a Workload that waits for the next period, once it would be answered otherwise [BU4]."""
        waits_for = _waits_for(workload)
        if not waits_for or not all(self._may_return(workload, check) for check in waits_for):
            return ()
        return (SetRequeue(states.requeue_count(workload), None),)

    def _may_return(self, workload: kueue.Workload, check: str) -> bool:
        """Whether a check would not answer Retry again to what the Workload had at its last attempt."""
        book, record = self._book(check), self._history.record_of(workload.metadata.uid)
        if book is None or record is None or not record.attempts:
            return False
        last, rules = record.attempts[-1], book.accounts.rules
        group = rules.group(record.namespace, record.queue, last.cluster_queue, record.user)
        rates = rules.rates(last.segments[-1].amounts)
        found = budget_answers.answer(BudgetRequest(group, rates, budget_answers.time_left(workload)), book.ledger, "")
        return found.state is not CheckState.RETRY

    # --- Commitments --------------------------------------------------------------------------------------------------

    def _commit(self, workload: kueue.Workload) -> None:
        """Hold what a Workload may still use, where only Workloads that fit are admitted."""
        uid = workload.metadata.uid
        if uid in self._answering:
            return
        current = self._writer.current(ObjectKey(workload.metadata.namespace, workload.metadata.name))
        workload = current if current is not None and current.metadata.uid == uid else workload
        for check in workload.status.admission_checks:
            book = self._book(check.name)
            if book is None or book.ledger.limits.admit is not BudgetAdmit.ONLY_IF_IT_FITS:
                continue
            made = self._commitment(workload, check, book)
            if made is None:
                book.accounts.withdraw(uid)
            else:
                book.accounts.commit(uid, made)

    def _commitment(self, workload: kueue.Workload, check: AdmissionCheckState, book: BudgetBook) -> Commitment | None:
        is_admitted = states.is_admitted(workload)
        holds = states.is_reserved(workload) and not states.is_finished(workload)
        if not holds or not (is_admitted or checks.answer(check) is CheckState.READY):
            return None
        request = self._request(workload, book.accounts.rules)
        if request.seconds is None:
            return None
        since = states.since(workload, WorkloadCondition.ADMITTED) if is_admitted else None
        return budget_answers.commitment(request, None if since is None else since // SECOND)

    def _withdraw(self, uid: str) -> None:
        for book in self.books.all():
            book.accounts.withdraw(uid)

    # --- Budgets ------------------------------------------------------------------------------------------------------

    async def _reconcile_budget(self, name: str) -> float | None:
        budget = self.budgets.get(name)
        if budget is None:
            self.books.drop(name)
            self._problems.pop(f"budget/{name}", None)
            return None
        if problem := self.books.problem(budget):
            self.books.drop(name)
            return await self._unavailable(budget, "BadConfig", problem)
        if (held := self.books.follow_clock(name)) is not None:
            return await self._unavailable(budget, "ClockSetBack", _set_back(held))
        rules = self.books.rules(budget, self._scope(name))
        if not self.books.is_current(budget, rules):
            if not self._history.is_open:
                self.books.drop(name)
                return await self._unavailable(budget, "HistoryUnavailable", self._history.problem)
            try:
                book = await self.books.count(budget, rules)
            except HistoryStoreError as error:
                return await self._unavailable(budget, "HistoryUnavailable", f"the history cannot be read: {error}")
            self._begin(book, budget)
        found = self.books.get(name)
        if found is None:
            return None
        if self._problems.pop(f"budget/{name}", None):
            self._ask_again(found)  # the clock has caught up
        self._follow_limits(found, budget)
        self._follow_period(found)
        self._follow_levels(found, budget)
        await self._write_status(found, budget)
        return self._next_look(found)

    def _begin(self, book: BudgetBook, budget: Budget) -> None:
        """Go on from a count: levels that the status shows were announced before."""
        self._problems.pop(f"budget/{book.name}", None)
        book.announced = budget_status.announced(budget, book.accounts.period)
        book.accounts.take_changed()
        self._ask_again(book)

    async def _unavailable(self, budget: Budget, reason: str, problem: str) -> float | None:
        """Fail static: nothing is answered until the accounts are known; an Event has the reason, once."""
        if not problem:
            return None  # the history is being opened
        self._note_problem(f"budget/{budget.metadata.name}", f"Budget {budget.metadata.name}: {problem}", budget)
        status = budget_status.unavailable(budget, reason, problem, self._clock.now())
        await self._patch_status(budget, status)
        return _RETRY_SECONDS

    def _follow_limits(self, book: BudgetBook, budget: Budget) -> None:
        """Apply changed limits; waiting Workloads are asked again [BU4]."""
        limits = budget_rules.limits(budget.metadata.name, budget.spec)
        if limits == book.ledger.limits:
            return
        book.ledger = book.ledger.with_limits(limits)
        # What was announced above a limit that was raised is announced again when it is reached again.
        book.announced = {key: min(level, book.ledger.level(key)) for key, level in book.announced.items()}
        self._ask_again(book)

    def _ask_again(self, book: BudgetBook) -> None:
        """Look at every Workload and every group of a Budget, after its accounts or its limits changed."""
        for check in self._checks_of(book.name):
            for _, workload in self._informers.workloads.by_index("check", check):
                self._commit(workload)
            self._wake(check)
        for key in book.accounts.known():
            # Due now: it may be above a level that it did not reach by spending, and then reaches no further one.
            book.due[key] = book.accounts.now

    def _follow_period(self, book: BudgetBook) -> None:
        """Begin a new period: announcements start again, and waiting Workloads come back in queue order."""
        if book.handled == book.accounts.period.start:
            return
        book.handled = book.accounts.period.start
        book.announced.clear()
        for key in book.accounts.known():
            self._look(book, key)
        for check in self._checks_of(book.name):
            self._wake(check)
            if book.ledger.limits.when_spent is BudgetWhenSpent.EVICT:
                self._add_workloads(check)

    def _wake(self, check: str) -> None:
        """Look at the Workloads that wait for a check, and at those with quota that were not answered, in the order in
        which they are queued."""
        waiting = dict(self._informers.workloads.by_index(_WAITING, check))
        for key, workload in self._informers.workloads.by_index("check", check):
            entries = workload.status.admission_checks
            if any(each.name == check and each.state == CheckState.PENDING for each in entries):
                waiting[key] = workload

        def order(item: tuple[ObjectKey, kueue.Workload]) -> tuple[int, int, str]:
            key, workload = item
            return -(workload.spec.priority or 0), states.created(workload), str(key)

        for key, _ in sorted(waiting.items(), key=order):
            self.loop.add(key)

    def _follow_levels(self, book: BudgetBook, budget: Budget) -> None:
        """Announce what was reached; with `whenSpent: Evict`, evict the Workloads of a group at its limit."""
        changed = book.accounts.take_changed()
        now = book.accounts.now
        for key in sorted(changed | {key for key, at in book.due.items() if at <= now}):
            self._look(book, key)
            level = book.ledger.level(key)
            if level > book.announced.get(key, 0):
                book.announced[key] = level
                self._announce(book, budget, key, level)
            if level == SPENT and book.ledger.limits.when_spent is BudgetWhenSpent.EVICT and book.accounts.rate(key):
                self._add_group(book, key[0])

    def _add_group(self, book: BudgetBook, group: str) -> None:
        for check in self._checks_of(book.name):
            for key, workload in self._informers.workloads.by_index("check", check):
                if self._request(workload, book.accounts.rules).group == group:
                    self.loop.add(key)

    def _look(self, book: BudgetBook, key: AccountKey) -> None:
        at = book.ledger.next_level_at(key)
        if at is None:
            book.due.pop(key, None)
        else:
            book.due[key] = at

    def _announce(self, book: BudgetBook, budget: Budget, key: AccountKey, level: int) -> None:
        """Emit an Event about a level, on the Budget and on the LocalQueue of the group [BU7]."""
        group, resource = key
        standing = book.ledger.standing(key)
        reason, message = budget_status.announcement(book.name, group, resource, standing, level, book.until)
        type_ = EventType.WARNING
        self._reporter.event(budget, type_, reason, message, BUDGET, important=True)
        namespace, _, queue = group.partition("/")
        if book.accounts.rules.per is api.BudgetPer.LOCAL_QUEUE:
            local_queue = self._informers.local_queues.get(queue, namespace)
            if local_queue is not None:
                self._reporter.event(local_queue, type_, reason, message, BUDGET, important=True)

    def _next_look(self, book: BudgetBook) -> float:
        """The seconds until the first group reaches a level, or the period ends [BU6]."""
        at = min((book.accounts.period.end, *book.due.values()))
        return max(0.001, (at * SECOND - self._clock.now()) / SECOND)

    # --- Status -------------------------------------------------------------------------------------------------------

    async def _write_status(self, book: BudgetBook, budget: Budget) -> None:
        """Write the status, at most every few seconds; a status that waits is written with the next look."""
        now = self._clock.now()
        if pause := self._status_pause(book.name, now):
            self.budgets_loop.queue.add_after(book.name, pause)
            return
        wanted = budget_status.status(book, budget, now)
        self._status_looked[book.name] = now
        if budget_status.is_like(wanted, budget.status):
            return
        await self._patch_status(budget, wanted)
        self._status_written[book.name] = now

    def _status_pause(self, name: str, now: Nanoseconds) -> float:
        """The seconds until the status of a Budget may be computed again; 0: now."""
        for times, seconds in ((self._status_written, _STATUS_SECONDS), (self._status_looked, _STATUS_LOOK_SECONDS)):
            since = now - times[name] if name in times else -1  # also below 0 after the clock was set back
            if 0 <= since < seconds * SECOND:
                return seconds - since / SECOND
        return 0.0

    async def _patch_status(self, budget: Budget, status: api.BudgetStatus) -> None:
        if status == budget.status:
            return
        patch = {
            "metadata": {"resourceVersion": budget.metadata.resource_version},
            "status": {**budget_status.EMPTY, **codec.to_tree(status)},
        }
        await self._client.patch_revision(BUDGET_KIND, budget.metadata.name, patch, subresource="status")

    def ratios(self) -> Iterable[tuple[str, str, float]]:
        """The share of the limit that is spent, of the fullest groups, by Budget and group [BU7]."""
        for book in self.books.all():
            current = self.books.get(book.name)
            if current is not None:
                yield from budget_status.ratios(current)


def _set_back(book: BudgetBook) -> str:
    return (
        f"the system clock was set back behind the accounts, which are at {format_time(book.accounts.now * SECOND)};"
        f" they are counted again if it is still behind after {HELD_SECONDS // 60} minutes"
    )


def _waits_for(workload: kueue.Workload) -> tuple[str, ...]:
    """The checks whose Retry keeps a Workload without quota out of the queue until `requeueAt`.

    The entries of the checks are gone by then, so the names are read from the message of the eviction. A Workload that
    waits for checks of other controllers as well has all of their names here, and its wait is not ended.
    """
    if states.requeue_at(workload) is None or states.is_reserved(workload):
        return ()
    found = conditions.find(workload.status.conditions, WorkloadCondition.REQUEUED)
    if found is None or found.status != ConditionStatus.FALSE or found.reason != EvictedReason.ADMISSION_CHECK:
        return ()
    return checks.named(found.message)
