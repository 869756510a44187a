"""Times as people write them: `2026-11-01`, `monday`, `yesterday`, `14:30`, `-30d`, RFC 3339.

Dates and times of day are those of a time zone; of the machine by default. A date begins at its midnight, also on a day
on which the clocks change.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

from kubemachinery.errors import UsageError

_AGO: Final = re.compile(r"-(\d{1,6})(s|m|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_FORMS: Final = "a date such as 2026-11-01, a time such as 14:30 or 2026-11-01T14:30, a weekday, today, yesterday, -30d"


def moment(text: str, option: str, now: int, zone: tzinfo | None = None) -> int:
    """The seconds since 1970 of a text; `now` is the present, `zone` the time zone of texts without one.

    A weekday is the last one that has begun; a time of day is that of today.
    """
    here = datetime.fromtimestamp(now, zone).astimezone(zone)
    try:
        found = _seconds(text.strip().lower(), now, here, zone)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} {text}: must be {_FORMS}") from None
    try:
        # A time zone can move a date of the first or last year out of the years that the API can write.
        datetime.fromtimestamp(found, UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text}: is not in the years 1 to 9999 of UTC") from None
    return found


def _seconds(word: str, now: int, here: datetime, zone: tzinfo | None) -> int:
    if word == "now":
        return now
    if ago := _AGO.fullmatch(word):
        number, unit = ago.groups()
        return now - int(timedelta(**{_UNITS[unit]: int(number)}).total_seconds())
    return int(_local(word, here, zone).timestamp())


def _local(word: str, here: datetime, zone: tzinfo | None) -> datetime:
    today = here.date()
    if word in ("today", "yesterday"):
        return _at(datetime.combine(today - timedelta(days=word == "yesterday"), time()), zone)
    names = [day for day in _WEEKDAYS if len(word) >= 3 and day.startswith(word)]
    if names:
        since = (today.weekday() - _WEEKDAYS.index(names[0])) % 7
        return _at(datetime.combine(today - timedelta(days=since), time()), zone)
    if re.fullmatch(r"\d{1,2}:\d{2}", word):
        hour, _, minute = word.partition(":")
        return _at(datetime.combine(today, time(int(hour), int(minute))), zone)
    found = datetime.fromisoformat(word.upper())
    return found if found.tzinfo is not None else _at(found, zone)


def _at(naive: datetime, zone: tzinfo | None) -> datetime:
    """A local time with its zone: of the machine, by its rules for that day, where none is given."""
    return naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
