"""The periods of Budgets: from local midnight to local midnight, as instants.

A clock change makes a period an hour shorter or longer, and never ends it at another local time [BU10]. Where clocks
skip midnight itself, the period begins at the first instant of that day; where they repeat it, at the first of the two.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, NamedTuple

from pykueue.api.budget import BudgetEvery
from pykueue.history.records import Seconds

_DAY: Final = 86_400
# The longest period of each kind, without clock changes.
LONGEST_SECONDS: Final = {
    BudgetEvery.DAY: _DAY,
    BudgetEvery.WEEK: 7 * _DAY,
    BudgetEvery.MONTH: 31 * _DAY,
    BudgetEvery.QUARTER: 92 * _DAY,
    BudgetEvery.YEAR: 366 * _DAY,
}
# The range that datetime can convert in every zone.
_FIRST: Final = int(datetime(2, 1, 1, tzinfo=UTC).timestamp())
_LAST: Final = int(datetime(9998, 1, 1, tzinfo=UTC).timestamp())


class BudgetPeriod(NamedTuple):
    """The instants from `start` up to and without `end`."""

    start: Seconds
    end: Seconds


class BudgetCalendar(NamedTuple):
    """The periods of one length in one time zone."""

    every: BudgetEvery
    zone: tzinfo

    def at(self, moment: Seconds) -> BudgetPeriod:
        """The period that contains an instant. Instants of years that no calendar has count as the nearest one."""
        moment = min(max(moment, _FIRST), _LAST)
        first = _first_day(self.every, datetime.fromtimestamp(moment, self.zone).date())
        period = self._from(first)
        if moment < period.start:
            # Clocks that are set back over midnight: the day begins at the first midnight.
            period = self._from(_first_day(self.every, first - timedelta(days=1)))
        elif moment >= period.end:
            period = self._from(_next_first_day(self.every, first))
        return period

    def _from(self, first: date) -> BudgetPeriod:
        return BudgetPeriod(_midnight(first, self.zone), _midnight(_next_first_day(self.every, first), self.zone))


def _midnight(day: date, zone: tzinfo) -> Seconds:
    """The first instant of a local day."""
    # `fold=0` is the earlier of two midnights. For a midnight that clocks skip it is computed with the offset before
    # the change, which is the instant of the change itself.
    return int(datetime.combine(day, time(), zone).timestamp())


def _first_day(every: BudgetEvery, day: date) -> date:
    match every:
        case BudgetEvery.DAY:
            return day
        case BudgetEvery.WEEK:
            return day - timedelta(days=day.weekday())
        case BudgetEvery.MONTH:
            return day.replace(day=1)
        case BudgetEvery.QUARTER:
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case BudgetEvery.YEAR:
            return day.replace(month=1, day=1)


def _next_first_day(every: BudgetEvery, first: date) -> date:
    match every:
        case BudgetEvery.DAY:
            return first + timedelta(days=1)
        case BudgetEvery.WEEK:
            return first + timedelta(days=7)
        case BudgetEvery.MONTH:
            return _months_later(first, 1)
        case BudgetEvery.QUARTER:
            return _months_later(first, 3)
        case BudgetEvery.YEAR:
            return first.replace(year=first.year + 1)


def _months_later(first: date, months: int) -> date:
    month = first.month - 1 + months
    return first.replace(year=first.year + month // 12, month=month % 12 + 1)
