"""The accounts of one Budget: what each group has used in each period, from the records of the history [BU2].

A record becomes *charged spans*: times after an admission with a constant rate. Accounts are sums of spans, so a
record that changes is exchanged by subtracting its old spans and adding the new ones; nothing is sampled. Of one group
and resource an account has

    closed      the charges of each period that do not grow any more
    rate        what the admitted Workloads are charged for each second
    weighted    the sum of rate × start over the spans that are still open

so that the charge of the present period at t is `closed + rate × t - weighted`, in one step whatever runs [BU6].

Charges are integers: amounts as quota counts them, times seconds, times the weight in thousandths.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from pykueue.api.budget import BudgetPer
from pykueue.core.amounts import CPU
from pykueue.history.budget_periods import BudgetCalendar, BudgetPeriod
from pykueue.history.records import Attempt, Seconds, WorkloadRecord

# A group and a resource.
AccountKey: TypeAlias = tuple[str, str]
# An amount × seconds × weight in thousandths.
Charge: TypeAlias = int

HOUR: Final = 3600
WEIGHT_ONE: Final = 1000
TOTAL: Final = "total"
UNKNOWN_USER: Final = "(unknown)"

# Of a span over more periods than this, only so many count: a clock may be far off.
_PERIODS_MAX: Final = 4_000


def of_hours(resource: str, milli_hours: int) -> Charge:
    """The charge of thousandths of a resource hour."""
    return milli_hours * HOUR * (1000 if resource == CPU else 1)


class ChargingRules(msgspec.Struct, frozen=True):
    """What is charged, and to which group: a change of these needs a recount [BU8].

    `scope` has the ClusterQueues that require the check, with the flavors that it is for; None: for all [BU1].
    """

    per: BudgetPer
    # Resource -> flavor -> weight in thousandths; 1000 for a flavor that is not named.
    weights: Mapping[str, Mapping[str, int]]
    scope: Mapping[str, frozenset[str] | None]

    def requires(self, cluster_queue: str, flavors: Iterable[str]) -> bool:
        """Whether a Workload with these flavors needs the check."""
        if cluster_queue not in self.scope:
            return False
        only = self.scope[cluster_queue]
        return only is None or any(flavor in only for flavor in flavors)

    def group(self, namespace: str, queue: str, cluster_queue: str, user: str) -> str:
        match self.per:
            case BudgetPer.TOTAL:
                return TOTAL
            case BudgetPer.CLUSTER_QUEUE:
                return cluster_queue
            case BudgetPer.LOCAL_QUEUE:
                return f"{namespace}/{queue}"
            case BudgetPer.NAMESPACE:
                return namespace
            case BudgetPer.USER:
                return user or UNKNOWN_USER

    def rates(self, amounts: Iterable[tuple[str, str, int]]) -> dict[str, int]:
        """The charge of each resource for a second with these amounts."""
        found: dict[str, int] = {}
        for flavor, resource, amount in amounts:
            weights = self.weights.get(resource)
            if weights is not None:
                found[resource] = found.get(resource, 0) + amount * weights.get(flavor, WEIGHT_ONE)
        return found


class ChargedSpan(NamedTuple):
    """A time with a constant rate. `end` is None while it lasts."""

    key: AccountKey
    start: Seconds
    end: Seconds | None
    rate: int


def attempt_spans(attempt: Attempt, group: str, rules: ChargingRules) -> Iterator[ChargedSpan]:
    """The spans of one attempt: its segments from the admission on, not from the reservation."""
    if attempt.admitted is None or attempt.cluster_queue not in rules.scope:
        return
    flavors = (flavor for segment in attempt.segments for flavor, _, _ in segment.amounts)
    if not rules.requires(attempt.cluster_queue, flavors):
        return
    for segment in attempt.segments:
        if segment.start >= attempt.admitted and segment.end != segment.start:
            for resource, rate in rules.rates(segment.amounts).items():
                if rate:
                    yield ChargedSpan((group, resource), segment.start, segment.end, rate)


def spans(record: WorkloadRecord, rules: ChargingRules) -> tuple[ChargedSpan, ...]:
    """What a record is charged."""
    return tuple(
        span
        for attempt in record.attempts
        for span in attempt_spans(
            attempt,
            rules.group(record.namespace, attempt.queue or record.queue, attempt.cluster_queue, record.user),
            rules,
        )
    )


def by_period(calendar: BudgetCalendar, start: Seconds, end: Seconds) -> Iterator[tuple[Seconds, int]]:
    """The periods that a time touches, by their start, each with its seconds in it."""
    for _ in range(_PERIODS_MAX):
        if start >= end:
            return
        period = calendar.at(start)
        edge = min(end, period.end)
        if edge <= start:
            return  # beyond every calendar
        yield period.start, edge - start
        start = edge


class ChargeCounter:
    """Sums the charges of many records that have ended, by group, resource and start of the period.

    A year of records is counted in seconds, so the common case is short: one attempt within one period.
    """

    def __init__(self, rules: ChargingRules, calendar: BudgetCalendar, first: Seconds) -> None:
        self.sums: dict[tuple[str, str, Seconds], Charge] = {}
        self._rules = rules
        self._calendar = calendar
        self._first = first
        # The period that was used last.
        self._period = calendar.at(first)

    def count(self, attempts: tuple[Attempt, ...], namespace: str, queue: str, user: str) -> None:
        """Add the charges of `attempt_spans`, written out here: a call for each amount would double the time."""
        rules, period = self._rules, self._period
        scope, all_weights = rules.scope, rules.weights
        for attempt in attempts:
            admitted, cluster_queue = attempt.admitted, attempt.cluster_queue
            if admitted is None or cluster_queue not in scope:
                continue
            if scope[cluster_queue] is not None:
                flavors = (flavor for segment in attempt.segments for flavor, _, _ in segment.amounts)
                if not rules.requires(cluster_queue, flavors):
                    continue
            group = rules.group(namespace, attempt.queue or queue, cluster_queue, user)
            for start, end, amounts in ((each.start, each.end, each.amounts) for each in attempt.segments):
                if start < admitted or end is None or end <= start:
                    continue
                if start < period.start or end > period.end:
                    period = self._period = self._calendar.at(start)
                is_within = self._first <= start and end <= period.end
                for flavor, resource, amount in amounts:
                    weights = all_weights.get(resource)
                    if weights is None:
                        continue
                    rate = amount * weights.get(flavor, WEIGHT_ONE)
                    if is_within:
                        self._add(group, resource, period.start, rate * (end - start))
                    else:
                        for begun, seconds in by_period(self._calendar, max(start, self._first), end):
                            self._add(group, resource, begun, rate * seconds)

    def _add(self, group: str, resource: str, period: Seconds, charge: Charge) -> None:
        key = (group, resource, period)
        self.sums[key] = self.sums.get(key, 0) + charge


class _Account(msgspec.Struct):
    """The sums of one group and resource."""

    closed: dict[Seconds, Charge] = msgspec.field(default_factory=dict)
    rate: int = 0
    weighted: int = 0
    # Grows with each change of the charges of past periods.
    past_version: int = 0
    # Grows with each change that moves the time at which a level is reached.
    version: int = 0


class Commitment(msgspec.Struct, frozen=True):
    """What a Workload that was answered Ready may still use: its rates for the rest of its time limit [BU3].

    `until` is when its time limit ends; None before its admission, when all of `seconds` are left.
    """

    group: str
    rates: Mapping[str, int]
    seconds: int
    until: Seconds | None


class _Committed(msgspec.Struct):
    """The commitments of one group and resource: `fixed + weighted - rate × t`."""

    fixed: Charge = 0
    rate: int = 0
    weighted: int = 0


class BudgetAccounts:
    """The accounts of one Budget since its first period. Time only moves forward: `advance` ignores an earlier time, so
    that a clock that is set back takes no charge away."""

    def __init__(self, rules: ChargingRules, calendar: BudgetCalendar, first: Seconds, now: Seconds) -> None:
        self.rules = rules
        self.calendar = calendar
        self.period = calendar.at(first)
        self.starts: list[Seconds] = [self.period.start]
        self.now = max(now, self.period.start)
        self._accounts: dict[AccountKey, _Account] = {}
        self._spans: dict[str, tuple[ChargedSpan, ...]] = {}
        # Spans that begin later than now, by UID: the clock of another manager may be ahead.
        self._deferred: dict[str, list[ChargedSpan]] = {}
        self._commitments: dict[str, Commitment] = {}
        self._committed: dict[AccountKey, _Committed] = {}
        self._ends: list[tuple[Seconds, str]] = []
        self._changed: set[AccountKey] = set()
        self.advance(now)

    # --- Charging -----------------------------------------------------------------------------------------------------

    def observe(self, record: WorkloadRecord) -> None:
        """Charge the present version of a record instead of the one before."""
        found = spans(record, self.rules)
        before = self._spans.get(record.uid, ())
        if found == before:
            return
        self._take_out(record.uid)
        if found:
            self._spans[record.uid] = found
            for span in found:
                if span.end is None and span.start > self.now:
                    self._deferred.setdefault(record.uid, []).append(span)
                else:
                    self._add(span, 1)

    def is_charged(self, uid: str) -> bool:
        """Whether a record is being charged at present."""
        return any(span.end is None for span in self._spans.get(uid, ()))

    def close(self, uid: str, at: Seconds) -> None:
        """End what a record is being charged."""
        found = tuple(span._replace(end=at) if span.end is None else span for span in self._spans.get(uid, ()))
        self._take_out(uid)
        if found:
            self._spans[uid] = found
            for span in found:
                self._add(span, 1)

    def copy(self, uids: Collection[str]) -> BudgetAccounts:
        """The accounts for a run ahead. Of what is charged now, only the records of `uids` can end in it."""
        found = BudgetAccounts(self.rules, self.calendar, self.starts[0], self.starts[0])
        found.period, found.now, found.starts = self.period, self.now, list(self.starts)
        found._accounts = {key: replace(each, closed=dict(each.closed)) for key, each in self._accounts.items()}
        found._spans = {uid: spans for uid in uids if (spans := self._spans.get(uid)) is not None}
        found._deferred = {uid: list(spans) for uid, spans in self._deferred.items()}
        found._commitments = dict(self._commitments)
        found._committed = {key: replace(each) for key, each in self._committed.items()}
        found._ends = list(self._ends)
        found._changed = set(self._accounts)
        return found

    def forget(self, uid: str) -> None:
        """Keep the charges of a record that does not change any more, and not the record."""
        if all(span.end is not None for span in self._spans.get(uid, ())):
            self._spans.pop(uid, None)

    def load(self, sums: Mapping[tuple[str, str, Seconds], Charge]) -> None:
        """Add charges that were counted elsewhere, by group, resource and start of the period."""
        for (group, resource, start), charge in sums.items():
            if charge and start >= self.starts[0]:
                account = self._account((group, resource))
                account.closed[start] = account.closed.get(start, 0) + charge
                account.past_version += 1

    def _take_out(self, uid: str) -> None:
        deferred = self._deferred.pop(uid, [])
        for span in self._spans.pop(uid, ()):
            if span in deferred:
                deferred.remove(span)
            else:
                self._add(span, -1)

    def _add(self, span: ChargedSpan, sign: int) -> None:
        account, rate = self._account(span.key), sign * span.rate
        if span.end is None:
            self._add_closed(account, span.start, self.period.start, rate)
            account.rate += rate
            account.weighted += rate * max(span.start, self.period.start)
        else:
            self._add_closed(account, span.start, span.end, rate)

    def _add_closed(self, account: _Account, start: Seconds, end: Seconds, rate: int) -> None:
        """Add a span that is over. What was before the first period is not counted."""
        if end <= start:
            return
        if self.period.start <= start and end <= self.period.end:
            parts: Iterable[tuple[Seconds, int]] = ((self.period.start, end - start),)
        else:
            parts = by_period(self.calendar, max(start, self.starts[0]), end)
        for period, seconds in parts:
            account.closed[period] = account.closed.get(period, 0) + rate * seconds
            if period != self.period.start:
                account.past_version += 1

    def _account(self, key: AccountKey) -> _Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account()
        account.version += 1
        self._changed.add(key)
        return account

    # --- Time ---------------------------------------------------------------------------------------------------------

    def advance(self, now: Seconds) -> bool:
        """Move to a time; return whether a period ended since."""
        self.now = max(self.now, now)
        has_ended = self.now >= self.period.end
        while self.now >= self.period.end:
            self._end_period()
        due = {
            uid: [span for span in later if span.start <= self.now] for uid, later in self._deferred.items() if later
        }
        for uid, begun in due.items():
            for span in begun:
                self._deferred[uid].remove(span)
                self._add(span, 1)
            if not self._deferred[uid]:
                del self._deferred[uid]
        while self._ends and self._ends[0][0] <= self.now:
            until, uid = heapq.heappop(self._ends)
            found = self._commitments.get(uid)
            if found is not None and found.until == until:
                self.withdraw(uid)
        return has_ended

    def _end_period(self) -> None:
        """Close the present period in every account: one step for each, whatever runs."""
        start, edge = self.period
        for key, account in self._accounts.items():
            if account.rate or account.weighted:
                account.closed[start] = account.closed.get(start, 0) + account.rate * edge - account.weighted
                account.weighted = account.rate * edge
            account.past_version += 1
            account.version += 1
            self._changed.add(key)
        self.period = self.calendar.at(edge)
        self.starts.append(self.period.start)

    # --- Questions ----------------------------------------------------------------------------------------------------

    def known(self) -> list[AccountKey]:
        return list(self._accounts)

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def take_changed(self) -> set[AccountKey]:
        """The accounts that changed since the last call other than by time."""
        changed, self._changed = self._changed, set()
        return changed

    def spent(self, key: AccountKey) -> Charge:
        """The charge of the present period until now [BU2]."""
        account = self._accounts.get(key)
        if account is None:
            return 0
        return account.closed.get(self.period.start, 0) + account.rate * self.now - account.weighted

    def rate(self, key: AccountKey) -> int:
        account = self._accounts.get(key)
        return account.rate if account is not None else 0

    def past(self, key: AccountKey) -> tuple[int, list[Charge]]:
        """The charges of the periods before the present one, oldest first, and a number that changes with them."""
        account = self._accounts.get(key)
        if account is None:
            return 0, [0] * (len(self.starts) - 1)
        return account.past_version, [account.closed.get(start, 0) for start in self.starts[:-1]]

    def past_version(self, key: AccountKey) -> int:
        account = self._accounts.get(key)
        return account.past_version if account is not None else 0

    def reached_at(self, key: AccountKey, charge: Charge) -> Seconds | None:
        """The first second at which an account has a charge at the present rate; None: not in this period [BU6]."""
        account = self._accounts.get(key)
        rate = account.rate if account is not None else 0
        missing = charge - self.spent(key)
        if missing <= 0:
            return self.now
        if rate <= 0:
            return None
        at = self.now + -(-missing // rate)
        return at if at < self.period.end else None

    def sums(self) -> dict[tuple[str, str, Seconds], Charge]:
        """All charges until now, by group, resource and start of the period; for tests and comparisons."""
        found: dict[tuple[str, str, Seconds], Charge] = {}
        for key, account in self._accounts.items():
            for start in self.starts:
                charge = self.spent(key) if start == self.period.start else account.closed.get(start, 0)
                if charge:
                    found[*key, start] = charge
        return found

    # --- Commitments --------------------------------------------------------------------------------------------------

    def commit(self, uid: str, made: Commitment) -> None:
        """Hold what a Workload may still use, in place of what was held for it before."""
        if self._commitments.get(uid) == made:
            return
        self.withdraw(uid)
        if made.until is not None and made.until <= self.now:
            return
        self._commitments[uid] = made
        if made.until is not None:
            heapq.heappush(self._ends, (made.until, uid))
        self._hold(made, 1)

    def withdraw(self, uid: str) -> None:
        made = self._commitments.pop(uid, None)
        if made is not None:
            self._hold(made, -1)

    def _hold(self, made: Commitment, sign: int) -> None:
        for resource, rate in made.rates.items():
            held = self._committed.setdefault((made.group, resource), _Committed())
            if made.until is None:
                held.fixed += sign * rate * made.seconds
            else:
                held.rate += sign * rate
                held.weighted += sign * rate * made.until

    def committed(self, key: AccountKey) -> Charge:
        """What Workloads that were answered Ready may still use at most."""
        held = self._committed.get(key)
        return 0 if held is None else held.fixed + held.weighted - held.rate * self.now


def first_period(calendar: BudgetCalendar, created: Seconds, retention: int | None, now: Seconds) -> BudgetPeriod:
    """The first period that is counted: that in which the Budget was created, or the first one that the retention of
    the history covers whole [BU8]."""
    found = calendar.at(min(created, now))
    if retention is not None and found.start < now - retention:
        oldest = calendar.at(now - retention)
        found = oldest if oldest.start >= now - retention else calendar.at(oldest.end)
    return min(found, calendar.at(now))
