"""Schedules of CronJobs: the five fields of cron, with names, steps, ranges and the common macros, in a time zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

_MACROS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART: Final = re.compile(r"(\*|\?|[0-9a-z]+)(?:-([0-9a-z]+))?(?:/([0-9]{1,4}))?")
# A schedule that has no time within this is never due, such as the 30th of February.
_HORIZON: Final = timedelta(days=8 * 366)


class ScheduleError(ValueError):
    """A schedule that cannot be read."""


class CronSchedule(msgspec.Struct, frozen=True):
    """The minutes at which a schedule is due."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    # Days of the month and of the week that are both restricted: a day is due if one of them is.
    either_day: bool

    def next_after(self, moment: datetime) -> datetime | None:
        """The first due minute after a moment; None if there is none for years."""
        return self._step(moment.replace(second=0, microsecond=0) + timedelta(minutes=1), forward=True)

    def last_until(self, moment: datetime, earliest: datetime) -> datetime | None:
        """The last due minute at or before a moment, and after `earliest`."""
        found = self._step(moment.replace(second=0, microsecond=0), forward=False, limit=earliest)
        return found if found is not None and found > earliest else None

    def _step(self, moment: datetime, *, forward: bool, limit: datetime | None = None) -> datetime | None:
        end = limit or (moment + _HORIZON if forward else moment - _HORIZON)
        while moment <= end if forward else moment >= end:
            if not self._is_day(moment):
                moment = _edge(moment, forward, hour=True) + _sign(forward) * timedelta(minutes=1)
            elif moment.hour not in self.hours:
                moment = _edge(moment, forward, hour=False) + _sign(forward) * timedelta(minutes=1)
            elif moment.minute not in self.minutes:
                moment += _sign(forward) * timedelta(minutes=1)
            else:
                return moment
        return None

    def _is_day(self, moment: datetime) -> bool:
        if moment.month not in self.months:
            return False
        of_month, of_week = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def _sign(forward: bool) -> int:
    return 1 if forward else -1


def _edge(moment: datetime, forward: bool, *, hour: bool) -> datetime:
    """The last minute of the hour, or of the day, in the direction of the search."""
    if hour:
        moment = moment.replace(hour=23 if forward else 0)
    return moment.replace(minute=59 if forward else 0)


def parse(text: str) -> CronSchedule:
    """Read a schedule; raises `ScheduleError` with the reason."""
    written = _MACROS.get(text.strip().lower(), text.strip().lower())
    if written.startswith("@"):
        raise ScheduleError(f"the schedule {text!r} is not supported")
    fields = written.split()
    if len(fields) != 5:
        raise ScheduleError(f"the schedule {text!r} has {len(fields)} fields, not 5")
    minutes, hours, days, months, weekdays = fields
    of_week = frozenset(day % 7 for day in _field(weekdays, 0, 7, _DAYS, first=0))
    return CronSchedule(
        minutes=_field(minutes, 0, 59),
        hours=_field(hours, 0, 23),
        days=_field(days, 1, 31),
        months=_field(months, 1, 12, _MONTHS, first=1),
        weekdays=of_week,
        either_day=days[0] not in "*?" and weekdays[0] not in "*?",
    )


def _field(text: str, low: int, high: int, names: tuple[str, ...] = (), *, first: int = 0) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ScheduleError(f"{part!r} cannot be read")
        begin, end, step = match.groups()
        if begin in "*?":
            bounds = (low, high if names != _DAYS else 6)
        else:
            start = _value(begin, names, first)
            bounds = (start, _value(end, names, first) if end else (high if step else start))
        if not low <= bounds[0] <= bounds[1] <= high or step == "0":
            raise ScheduleError(f"{part!r} is outside {low} to {high}")
        found.update(range(bounds[0], bounds[1] + 1, int(step or 1)))
    return frozenset(found)


def _value(text: str, names: tuple[str, ...], first: int) -> int:
    if text in names:
        return names.index(text) + first
    if not text.isdigit():
        raise ScheduleError(f"{text!r} is not a number")
    return int(text)
