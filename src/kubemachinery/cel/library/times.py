"""Timestamps and durations, to the nanosecond."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from kubemachinery.cel import types
from kubemachinery.cel.errors import CelError
from kubemachinery.cel.values import Duration, Timestamp, Value, declare_lift

_SECOND: Final = 10**9
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = -62135596800 * _SECOND  # the year 1
_LAST: Final = 253402300799 * _SECOND + 999_999_999  # the year 9999
_DURATION_MAX: Final = 2**63 - 1

_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9})\d*)?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_DURATION: Final = re.compile(r"([+-]?)((?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+|0)")
_DURATION_PART: Final = re.compile(r"([0-9]*)\.?([0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_WORDED_PART: Final = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)")
_WORDED_UNITS: Final = (
    ("nano", 1),
    ("micro", 10**3),
    ("milli", 10**6),
    ("sec", _SECOND),
    ("min", 60 * _SECOND),
    ("hour", 3600 * _SECOND),
    ("hr", 3600 * _SECOND),
    ("d", 86400 * _SECOND),
    ("w", 7 * 86400 * _SECOND),
)


def checked_timestamp(nanoseconds: int, zone_minutes: int = 0) -> Timestamp:
    if _FIRST <= nanoseconds <= _LAST:
        return Timestamp(nanoseconds, zone_minutes)
    raise CelError("timestamp overflow")


def checked_duration(nanoseconds: int) -> Duration:
    if abs(nanoseconds) <= _DURATION_MAX:
        return Duration(nanoseconds)
    raise CelError("duration overflow")


def parse_timestamp(text: str) -> Timestamp:
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        zone_minutes = (-1 if match[8] == "-" else 1) * (int(match[9] or 0) * 60 + int(match[10] or 0))
        seconds = (moment - _EPOCH) // timedelta(seconds=1) - 60 * zone_minutes
    except ValueError:
        raise CelError(f"cannot read {text!r} as a timestamp") from None
    nanoseconds = seconds * _SECOND + int((match[7] or "0").ljust(9, "0"))
    return checked_timestamp(nanoseconds, zone_minutes)


def timestamp_text(value: Timestamp) -> str:
    seconds, nanoseconds = divmod(value.nanoseconds, _SECOND)
    moment = _EPOCH + timedelta(seconds=seconds + 60 * value.zone_minutes)
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    hours, minutes = divmod(abs(value.zone_minutes), 60)
    zone = f"{'-' if value.zone_minutes < 0 else '+'}{hours:02d}:{minutes:02d}" if value.zone_minutes else "Z"
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + fraction + zone


def parse_duration(text: str) -> Duration:
    match = _DURATION.fullmatch(text)
    if match is None or len(text) > 256:
        raise CelError(f"cannot read {text!r} as a duration")
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(match[2]):
        total += int(f"{whole}{fraction}") * _UNITS[unit] // 10 ** len(fraction)
    return checked_duration(-total if match[1] == "-" else total)


def duration_text(value: Duration) -> str:
    whole, fraction = divmod(abs(value.nanoseconds), _SECOND)
    digits = f"{whole}.{fraction:09d}".rstrip("0").rstrip(".")
    return f"{'-' if value.nanoseconds < 0 else ''}{digits}s"


def _lift_date(value: str) -> Timestamp:
    return parse_timestamp(f"{value}T00:00:00Z")


def _lift_timestamp(value: str) -> Timestamp:
    return _lift_date(value) if len(value) == 10 else parse_timestamp(value)


def _lift_duration(value: str) -> Duration:
    """A field with the format duration may also be worded: `2 days`."""
    if _DURATION.fullmatch(value):
        return parse_duration(value)
    total, found = 0, False
    for count, unit in _WORDED_PART.findall(value[:256]):
        size = _UNITS.get(unit.lower()) or next((s for word, s in _WORDED_UNITS if unit.lower().startswith(word)), None)
        if size is not None:
            total, found = total + int(count) * size, True
    if not found:
        raise CelError(f"cannot read {value!r} as a duration")
    return checked_duration(total)


declare_lift(types.TIMESTAMP, _lift_timestamp)
declare_lift(types.DURATION, _lift_duration)


def _zone(name: str) -> tzinfo:
    offset = re.fullmatch(r"([+-]?)(\d{1,2}):(\d{2})", name, re.ASCII)
    if offset is not None:
        delta = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if delta >= timedelta(hours=24):
            raise CelError(f"unknown time zone {name!r}")
        return timezone(-delta if offset[1] == "-" else delta)
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise CelError(f"unknown time zone {name!r}") from None


def _calendar(read: Callable[[datetime], int]) -> Callable[..., int]:
    def get(value: Timestamp, zone: str = "") -> int:
        return read((_EPOCH + timedelta(microseconds=value.nanoseconds // 1000)).astimezone(_zone(zone)))

    return get


_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}


def _in_units(nanoseconds: int) -> Callable[[Duration], int]:
    def get(value: Duration) -> int:
        count = abs(value.nanoseconds) // nanoseconds
        return -count if value.nanoseconds < 0 else count

    return get


def _shifted(moment: Timestamp, by: Duration) -> Timestamp:
    return checked_timestamp(moment.nanoseconds + by.nanoseconds, moment.zone_minutes)


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    **{f"timestamp.{name}() -> int": _calendar(read) for name, read in _PARTS.items()},
    **{f"timestamp.{name}(string) -> int": _calendar(read) for name, read in _PARTS.items()},
    "duration.getHours() -> int": _in_units(3600 * _SECOND),
    "duration.getMinutes() -> int": _in_units(60 * _SECOND),
    "duration.getSeconds() -> int": _in_units(_SECOND),
    "duration.getMilliseconds() -> int": _in_units(10**6),
    "_+_(timestamp, duration) -> timestamp": _shifted,
    "_+_(duration, timestamp) -> timestamp": lambda one, other: _shifted(other, one),
    "_+_(duration, duration) -> duration": lambda one, other: checked_duration(one.nanoseconds + other.nanoseconds),
    "_-_(timestamp, timestamp) -> duration": lambda one, other: checked_duration(one.nanoseconds - other.nanoseconds),
    "_-_(timestamp, duration) -> timestamp": lambda one, other: _shifted(one, Duration(-other.nanoseconds)),
    "_-_(duration, duration) -> duration": lambda one, other: checked_duration(one.nanoseconds - other.nanoseconds),
    "-_(duration) -> duration": lambda one: checked_duration(-one.nanoseconds),
}
