"""Calendars: time zones and cron, and the windows of QuotaSchedules as instants. The one module that reads them.

Pure packages get instants. A start by cron is a time of the local clock: in an hour that clocks skip it is moved to the
end of that hour, and in an hour that clocks repeat it happens once; a schedule of every hour or every few minutes
follows elapsed time instead, as in Debian's cron. The length of a window is elapsed time [QS5].
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from kubemachinery import meta, quantity, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue.api.budget import Budget
from pykueue.api.quota_schedule import (
    QuotaSchedule,
    QuotaScheduleSpec,
    QuotaWindow,
    ScheduleApproach,
    ScheduleOnStart,
)
from pykueue.api.validation import field_error
from pykueue.core import amounts
from pykueue.core.timeline import WINDOWS_KNOWN
from pykueue.errors import PykueueError
from pykueue.state.quota_windows import ScheduledWindows, WindowQuota, WindowSpan

# A repeated window begins at most this often on a day, and lasts at most this long: so that a schedule of 64 windows is
# expanded in a bounded time.
STARTS_PER_DAY_MAX: Final = 96
LONGEST_REPEATED: Final = 31 * 24 * meta.HOUR
_FIELDS: Final = 5
# The kinds with a time zone.
_KINDS: Final = ("Budget", "QuotaSchedule")


class CalendarError(PykueueError):
    """A time zone or a cron expression that cannot be read."""


@lru_cache(maxsize=64)
def zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CalendarError(f"{name!r} is not a time zone of the IANA database, such as Europe/Berlin") from None


def zone_of(budget: Budget) -> ZoneInfo | None:
    """The time zone of a Budget; None if this machine does not have it."""
    try:
        return zone(budget.spec.time_zone)
    except CalendarError:
        return None


def at_local_time(clock: datetime, place: ZoneInfo) -> datetime:
    """The instant in UTC at which clocks of a place show this. In an hour that they skip it is moved to the end of that
    hour, and in an hour that they repeat it is the first of the two, as for cron."""
    found = clock.replace(tzinfo=place, fold=0)
    before, after = found.utcoffset(), found.replace(fold=1).utcoffset()
    instant = found.astimezone(UTC)
    if before is None or after is None or instant.astimezone(place).replace(tzinfo=None) == clock:
        return instant
    # Skipped: by the offset before the change the time is after it, and by the offset after the change before it.
    early, late = ((clock - offset).replace(tzinfo=UTC) for offset in (after, before))
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) // 2
        early, late = (middle, late) if middle.astimezone(place).utcoffset() == before else (early, middle)
    return late.replace(microsecond=0)


def starts(cron: str, time_zone: str, begin: Nanoseconds) -> Iterator[Nanoseconds]:
    """The instants after `begin` at which a cron expression is due, in their order; possibly none."""
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=begin // meta.SECOND)).astimezone(zone(time_zone))
    return _instants(_cron(cron, local), begin)


def _instants(found: CronSim, begin: Nanoseconds) -> Iterator[Nanoseconds]:
    last = begin
    for due in found:
        instant = round(due.timestamp()) * meta.SECOND
        # A start that was moved out of a skipped hour can meet the next one.
        if instant > last:
            last = instant
            yield instant


def _cron(cron: str, local: datetime) -> CronSim:
    if len(cron.split()) != _FIELDS:
        raise CalendarError(
            f"{cron!r} does not have the five fields of cron: minute, hour, day, month, day of the week"
        )
    try:
        found = CronSim(cron, local)
    except CronSimError as error:
        raise CalendarError(f"{cron!r} is not a cron expression: {error}") from None
    per_day = len(found.minutes) * len(found.hours)
    if per_day > STARTS_PER_DAY_MAX:
        raise CalendarError(f"{cron!r} is due {per_day} times a day, at most {STARTS_PER_DAY_MAX} are supported")
    return found


def problems(tree: Tree) -> Iterator[FieldError]:
    """What is wrong with the time zone of a Budget, and the time zone and the cron expressions of a QuotaSchedule."""
    if tree.get("kind") not in _KINDS:
        return
    name = unstructured.text(unstructured.get(tree, "spec", "timeZone")) or "UTC"
    try:
        zone(name)
    except CalendarError as error:
        yield field_error.invalid("spec.timeZone", name, str(error))
        name = "UTC"
    yield from _too_long("spec.notice", unstructured.get(tree, "spec", "notice"))
    for i, window in unstructured.entries(tree, "spec", "windows"):
        cron = window.get("cron")
        if isinstance(cron, str):
            try:
                starts(cron, name, 0)
            except CalendarError as error:
                yield field_error.invalid(f"spec.windows[{i}].cron", cron, str(error))
        yield from _too_long(f"spec.windows[{i}].duration", window.get("duration"))


def _too_long(field: str, value: object) -> Iterator[FieldError]:
    text = unstructured.text(value)
    try:
        if text and meta.parse_duration(text) > LONGEST_REPEATED:
            yield field_error.invalid(field, text, "must be at most 744h (31 days)")
    except meta.TimeError:
        return  # refused by the rules of the kind


# --- QuotaSchedules ---------------------------------------------------------------------------------------------------

HORIZON: Final[Nanoseconds] = WINDOWS_KNOWN
"""How far ahead windows are expanded [QS9]."""
REFRESH: Final[Nanoseconds] = 24 * meta.HOUR
"""How often they are expanded again."""
PAST: Final[Nanoseconds] = 24 * meta.HOUR
"""How long windows that have ended are kept: a clock may be set back."""


def scheduled_windows(schedule: QuotaSchedule, now: Nanoseconds, horizon: Nanoseconds = HORIZON) -> ScheduledWindows:
    """A QuotaSchedule as instants: every window that ends after yesterday and begins within the horizon, or soon enough
    for its notice. Raises `CalendarError` for a schedule that cannot be applied."""
    return _scheduled_windows(schedule.metadata.name, schedule.spec, now, horizon)


# Explanations and suggestions build the same state many times.
@lru_cache(maxsize=256)
def _scheduled_windows(name: str, spec: QuotaScheduleSpec, now: Nanoseconds, horizon: Nanoseconds) -> ScheduledWindows:
    notice = _duration(spec.notice) if spec.notice else 0
    if spec.on_start == ScheduleOnStart.EVICT:
        # Windows are expanded once a day, so that a notice may be due before the next time.
        horizon = max(horizon, notice + REFRESH)
    return ScheduledWindows(
        schedule=name,
        quotas=tuple(_window_quotas(spec)),
        spans=tuple(
            sorted(
                (span for window in spec.windows for span in spans(window, spec.time_zone, now - PAST, now + horizon)),
                key=lambda span: (span.start, span.window),
            )
        ),
        ends_before=spec.approach == ScheduleApproach.END_BEFORE,
        repeats=any(window.cron is not None for window in spec.windows),
        evicts=spec.on_start == ScheduleOnStart.EVICT,
        notice=notice,
    )


def spans(window: QuotaWindow, time_zone: str, begin: Nanoseconds, end: Nanoseconds) -> Iterator[WindowSpan]:
    """The occurrences of a window that end after `begin` and begin before `end`. The length is elapsed time."""
    if window.cron is None:
        start, until = _time(window.start), _time(window.end)
        if until > begin and start < end:
            yield WindowSpan(window.name, start, until)
        return
    length = _duration(window.duration)
    for start in starts(window.cron, time_zone, begin - length):
        if start >= end:
            return
        yield WindowSpan(window.name, start, start + length)


def _duration(text: str | None) -> Nanoseconds:
    try:
        length = meta.parse_duration(text or "")
    except meta.TimeError as error:
        raise CalendarError(str(error)) from None
    if not 0 < length <= LONGEST_REPEATED:
        raise CalendarError(f"{text} is not between 0s and 744h (31 days)")
    return length


def _time(text: str | None) -> Nanoseconds:
    try:
        return meta.parse_time(text or "")
    except meta.TimeError as error:
        raise CalendarError(str(error)) from None


def _window_quotas(spec: QuotaScheduleSpec) -> Iterator[WindowQuota]:
    for target in spec.targets:
        for flavor in target.flavors:
            for resource in flavor.resources:
                yield WindowQuota(
                    name=target.cohort or target.cluster_queue or "",
                    is_cohort=target.cohort is not None,
                    flavor=flavor.name,
                    resource=resource.name,
                    nominal=_amount(resource.name, resource.nominal_quota),
                    change=_amount(resource.name, resource.change) or 0,
                    borrowing_limit=_amount(resource.name, resource.borrowing_limit),
                    lending_limit=_amount(resource.name, resource.lending_limit),
                )


def _amount(resource: str, text: quantity.QuantityText | None) -> int | None:
    try:
        return None if text is None else amounts.of_quota(resource, quantity.parse(text))
    except quantity.QuantityError as error:
        raise CalendarError(str(error)) from None
