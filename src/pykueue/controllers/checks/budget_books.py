"""The accounts of all Budgets, kept in step with the history.

An account is counted once from the stored records, and from then on follows every change that the recorder notes, so
it is exact at every moment and after every restart [BU8]. While records are counted in the thread of the store, changes
go on: those records are left out of the count and added in their newest version.

    stored records that cannot change any more ──▶ sums ─┐
    records of present Workloads, newest version ────────┴─▶ accounts ◀── every change
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from kubemachinery import meta
from kubemachinery.clock import Clock
from kubemachinery.meta import SECOND
from pykueue import calendars
from pykueue.api.budget import Budget, BudgetEvery
from pykueue.controllers.history_recorder import HistoryRecorder
from pykueue.history import budget_accounts, budget_rules
from pykueue.history.budget_accounts import AccountKey, BudgetAccounts, ChargingRules
from pykueue.history.budget_answers import BudgetLedger
from pykueue.history.budget_periods import BudgetCalendar
from pykueue.history.records import Seconds, WorkloadRecord

_DAY: Final = 86_400  # seconds
# Behind its accounts by more than this, the clock was set back, and no answer is given [BU11].
SET_BACK_SECONDS: Final = 300
# How long the clock may take to catch up before the accounts are counted again by it.
HELD_SECONDS: Final = 600


class BudgetBook(msgspec.Struct):
    """The accounts of one Budget, with what was announced about them."""

    name: str
    uid: str
    zone_name: str
    ledger: BudgetLedger
    # The start of the period whose beginning was handled; levels for which an Event was emitted in it.
    handled: Seconds
    announced: dict[AccountKey, int] = msgspec.field(default_factory=dict)
    # When an account reaches its next level, by account: the earliest is the next look.
    due: dict[AccountKey, Seconds] = msgspec.field(default_factory=dict)
    # Since when the clock is far behind the accounts, monotonic; None while it is not.
    held_since: float | None = None

    @property
    def accounts(self) -> BudgetAccounts:
        return self.ledger.accounts

    @property
    def until(self) -> str:
        """When the next period begins, as a clause."""
        return budget_rules.next_period(self.accounts.period, self.accounts.calendar.zone, self.zone_name)


class BudgetBooks:
    """The books by name of the Budget; none for a Budget that is not counted yet."""

    def __init__(self, history: HistoryRecorder, clock: Clock, changed: Callable[[str], None]) -> None:
        self._history = history
        self._clock = clock
        self._changed = changed
        self._books: dict[str, BudgetBook] = {}
        # Budgets whose records are being counted, each with the records that changed meanwhile.
        self._counting: dict[str, dict[str, WorkloadRecord]] = {}
        self.on_availability: Callable[[], None] = lambda: None
        history.listeners.append(self)

    def get(self, name: str) -> BudgetBook | None:
        """The book of a Budget, at the present time; None while the clock is far behind it."""
        book = self._books.get(name)
        if book is None or self._is_behind(book):
            return None
        self._advance(book)
        return book

    def _is_behind(self, book: BudgetBook) -> bool:
        return book.accounts.now - self._now() > SET_BACK_SECONDS

    def follow_clock(self, name: str) -> BudgetBook | None:
        """Return the book of a Budget if the clock is far behind it. One that stays so for HELD_SECONDS is dropped: the
        later time was wrong, and charges of the time until then would belong to periods that are over for the accounts.
        """
        book = self._books.get(name)
        if book is None:
            return None
        if not self._is_behind(book):
            book.held_since = None
            return None
        at = self._clock.monotonic()
        if book.held_since is None:
            book.held_since = at
        if at - book.held_since < HELD_SECONDS:
            return book
        self.drop(name)
        return None

    def all(self) -> list[BudgetBook]:
        return list(self._books.values())

    def drop(self, name: str) -> None:
        self._books.pop(name, None)

    def problem(self, budget: Budget) -> str:
        """Why a Budget cannot be counted, whatever the state of the store; empty if it can."""
        spec = budget.spec
        try:
            calendars.zone(spec.time_zone)
        except calendars.CalendarError as error:
            return f"spec.timeZone: {error}"
        kept, needed = self._history.options.retention_seconds, budget_rules.retention_needed(spec)
        if kept is not None and kept < needed:
            return (
                f"the history is kept for {_days(kept)} days, and a Budget of every {spec.every} needs"
                f" {_days(needed)} days: raise --history-retention"
            )
        return ""

    def rules(self, budget: Budget, scope: dict[str, frozenset[str] | None]) -> ChargingRules:
        return budget_rules.charging(budget.spec, scope)

    def is_current(self, budget: Budget, rules: ChargingRules) -> bool:
        """Whether the accounts of a Budget are counted by its present rules and in its present periods."""
        book = self._books.get(budget.metadata.name)
        return (
            book is not None
            and book.uid == budget.metadata.uid
            and book.accounts.rules == rules
            and book.accounts.calendar == _calendar(budget)
        )

    async def count(self, budget: Budget, rules: ChargingRules) -> BudgetBook:
        """Count the records of a Budget. Raises HistoryStoreError if they cannot be read."""
        name, calendar, now = budget.metadata.name, _calendar(budget), self._now()
        self._books.pop(name, None)
        created = _created(budget, now)
        first = budget_accounts.first_period(calendar, created, self._history.options.retention_seconds, now).start
        touched = self._counting[name] = self._history.present()
        try:
            last_row = await self._history.ask(lambda store: store.last_row())
            # What changed until now is left out, so that no record counts twice; what changes from now on is either
            # among those, or stored in a later row.
            left_out = frozenset(touched)
            sums = await self._history.ask(lambda store: store.charges(rules, calendar, first, last_row, left_out))
        finally:
            del self._counting[name]
        accounts = BudgetAccounts(rules, calendar, first, self._now())
        accounts.load(sums)
        for record in touched.values():
            accounts.observe(record)
            if self._history.record_of(record.uid) is None:
                accounts.forget(record.uid)
        book = BudgetBook(
            name,
            budget.metadata.uid,
            budget.spec.time_zone,
            BudgetLedger(budget_rules.limits(name, budget.spec), accounts),
            accounts.period.start,
        )
        self._books[name] = book
        return book

    # --- Changes ------------------------------------------------------------------------------------------------------

    def availability_changed(self) -> None:
        self.on_availability()

    def recorded(self, record: WorkloadRecord) -> None:
        for touched in self._counting.values():
            touched[record.uid] = record
        for book in self._books.values():
            self._advance(book)
            book.accounts.observe(record)
            if book.accounts.has_changed:
                self._changed(book.name)

    def dropped(self, uid: str) -> None:
        for book in self._books.values():
            book.accounts.forget(uid)

    def _advance(self, book: BudgetBook) -> None:
        if book.accounts.advance(self._now()):
            self._changed(book.name)

    def _now(self) -> Seconds:
        return self._clock.now() // SECOND


def _calendar(budget: Budget) -> BudgetCalendar:
    return BudgetCalendar(BudgetEvery(budget.spec.every), calendars.zone(budget.spec.time_zone))


def _created(budget: Budget, now: Seconds) -> Seconds:
    text = budget.metadata.creation_timestamp
    return meta.parse_time(text) // SECOND if text else now


def _days(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY)
    return str(days) if not rest else f"{seconds / _DAY:.1f}"
