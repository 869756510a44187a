"""Advance reservations: a QuotaSchedule that moves quota from one ClusterQueue to another, and the list of windows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final

from kubemachinery import meta
from kubemachinery.errors import UsageError
from kubemachinery.meta import Nanoseconds
from kubemachinery.unstructured import Tree
from pykueue import calendars
from pykueue.api import extensions
from pykueue.api.quota_schedule import QuotaSchedule
from pykueue.calendars import CalendarError
from pykueue.core import amounts
from pykueue.core.queue import FlavorResource
from pykueue.state.quota_windows import QuotaOwner, ScheduledWindows, WindowQuota, WindowSpan

GPU: Final = "nvidia.com/gpu"
WINDOW: Final = "reservation"

_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_TIME: Final = r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)"
_WEEKDAY: Final = re.compile(rf"(?P<day>[a-z]{{3,9}})\s+{_TIME}")
_TIME_OF_DAY: Final = re.compile(_TIME)
_AHEAD: Final = re.compile(r"\+(\d{1,6})(m|h|d|w)")
_UNITS: Final = {"m": meta.MINUTE, "h": meta.HOUR, "d": 24 * meta.HOUR, "w": 7 * 24 * meta.HOUR}
# Windows are listed one by one, and clocks of time zones end with the year 9999.
_LONGEST_AHEAD: Final = 520 * _UNITS["w"]
_FORMS: Final = "a weekday with a time such as 'tue 14:00', a time such as 14:00, or a date such as 2026-12-18T09:00"


@dataclass(frozen=True, slots=True)
class QuotaReservation:
    """What a reservation takes from where, when, and for how long."""

    name: str
    resource: str
    amount: str
    flavor: str
    source: str
    target: str
    at: str
    length: str
    repeat: str = ""  # daily, weekly, or once
    time_zone: str = "UTC"
    evicts: bool = False
    notice: str = ""
    ends_before: bool = False  # Workloads that would still run at the start are not admitted before

    def document(self, now: Nanoseconds) -> Tree:
        """The QuotaSchedule. Both queues get a `change`, so that the sum is the same in every window [QS8]."""
        if self.source == self.target:
            raise UsageError(f"reserve: ClusterQueue {self.source} cannot give quota to itself; name another with --to")
        spec: Tree = {
            "timeZone": self.time_zone,
            "windows": [self._window(now)],
            "targets": [
                self._target(self.source, f"-{self.amount.lstrip('+')}"),
                self._target(self.target, self.amount),
            ],
        }
        if self.ends_before:
            spec["approach"] = "EndBefore"
        if self.evicts:
            spec["onStart"] = "Evict"
        if self.notice:
            spec["notice"] = self.notice
        return {
            "apiVersion": extensions.API_VERSION,
            "kind": "QuotaSchedule",
            "metadata": {"name": self.name},
            "spec": spec,
        }

    def _target(self, queue: str, change: str) -> Tree:
        resource = {"name": self.resource, "change": change}
        return {"clusterQueue": queue, "flavors": [{"name": self.flavor, "resources": [resource]}]}

    def _window(self, now: Nanoseconds) -> Tree:
        if self.repeat:
            return {"name": WINDOW, "cron": self._cron(), "duration": self.length}
        try:
            length = meta.parse_duration(self.length)
            if length <= 0:
                raise UsageError(f"--for {self.length}: must be longer than 0s")
            start = first_start(self.at, self.time_zone, now)
        except (meta.TimeError, CalendarError) as error:
            raise UsageError(f"reserve: {error}") from None
        try:
            return {"name": WINDOW, "start": meta.format_time(start), "end": meta.format_time(start + length)}
        except meta.TimeError:
            raise UsageError(f"--at {self.at}: the reservation ends after the year 9999") from None

    def _cron(self) -> str:
        word = self.at.strip().lower()
        if found := _WEEKDAY.fullmatch(word):
            if self.repeat != "weekly":
                raise UsageError(f"--at {self.at}: a weekday repeats weekly, not {self.repeat}")
            return f"{int(found['minute'])} {int(found['hour'])} * * {_day(found['day'], self.at)}"
        if (found := _TIME_OF_DAY.fullmatch(word)) and self.repeat == "daily":
            return f"{int(found['minute'])} {int(found['hour'])} * * *"
        raise UsageError(f"--at {self.at}: {self.repeat} needs {_FORMS.partition(', or')[0]}")


def _day(word: str, text: str) -> int:
    found = [number for number, day in enumerate(_DAYS) if day.startswith(word)]
    if not found:
        raise UsageError(f"--at {text}: must be {_FORMS}")
    return found[0]


def first_start(text: str, time_zone: str, now: Nanoseconds) -> Nanoseconds:
    """The next instant of a text such as `tue 14:00`, by the local clock of a time zone."""
    word = text.strip().lower()
    zone = calendars.zone(time_zone)
    if found := _WEEKDAY.fullmatch(word):
        cron = f"{int(found['minute'])} {int(found['hour'])} * * {_day(found['day'], text)}"
        return next(calendars.starts(cron, time_zone, now))
    if found := _TIME_OF_DAY.fullmatch(word):
        return next(calendars.starts(f"{int(found['minute'])} {int(found['hour'])} * * *", time_zone, now))
    try:
        moment = datetime.fromisoformat(text.strip().upper().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"--at {text}: must be {_FORMS}") from None
    try:
        moment = moment if moment.tzinfo is not None else calendars.at_local_time(moment, zone)
    except OverflowError:
        raise UsageError(f"--at {text}: is not in the years 1 to 9999 of UTC") from None
    start = round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)) * meta.SECOND
    if start <= now:
        raise UsageError(f"--at {text}: is in the past")
    return start


def until(text: str, now: Nanoseconds) -> Nanoseconds:
    """The instant of a text such as `+14d`."""
    found = _AHEAD.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"--until {text}: must be a length of time ahead, such as +14d or +36h")
    ahead = int(found[1]) * _UNITS[found[2]]
    if ahead > _LONGEST_AHEAD:
        raise UsageError(f"--until {text}: must be at most +520w, which is ten years")
    return now + ahead


# --- The list ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One occurrence of a window."""

    schedule: str
    window: str
    start: Nanoseconds
    end: Nanoseconds
    quotas: str
    # Schedules with a window at the same time that concerns the same flavor and resource of the same object.
    clashes: tuple[str, ...]


def rows(schedules: Iterable[QuotaSchedule], now: Nanoseconds, end: Nanoseconds) -> list[WindowRow]:
    """The windows that have not ended and begin before `end`, by their start. A schedule that cannot be expanded is
    left out: its status has the reason."""
    expanded: list[_Occurrences] = []
    for schedule in schedules:
        try:
            expanded.append(_Occurrences.of(calendars.scheduled_windows(schedule, now, max(0, end - now))))
        except CalendarError:
            continue
    found = []
    for each in expanded:
        # Occurrences are many, schedules few: what is the same for all of its occurrences is computed once.
        others = [other for other in expanded if other is not each and not each.cells.isdisjoint(other.cells)]
        quotas = _summary(each.windows.quotas)
        for span in each.windows.spans:
            if span.end > now and span.start < end:
                clashes = sorted(other.windows.schedule for other in others if other.meets(span))
                row = WindowRow(each.windows.schedule, span.window, span.start, span.end, quotas, tuple(clashes))
                found.append(row)
    return sorted(found, key=lambda row: (row.start, row.schedule, row.window))


@dataclass(frozen=True, slots=True)
class _Occurrences:
    """The occurrences of one schedule, by their start."""

    windows: ScheduledWindows
    # The flavors and resources of objects that it concerns.
    cells: frozenset[tuple[QuotaOwner, FlavorResource]]
    starts: Sequence[Nanoseconds]
    # The latest end of the occurrences until each, as a long one may end after those that begin later.
    ends: Sequence[Nanoseconds]

    @classmethod
    def of(cls, windows: ScheduledWindows) -> _Occurrences:
        spans = windows.spans
        return cls(
            windows,
            frozenset((quota.owner, quota.pair) for quota in windows.quotas),
            [span.start for span in spans],
            list(accumulate((span.end for span in spans), max)),
        )

    def meets(self, span: WindowSpan) -> bool:
        """Whether an occurrence is in force at a time of a span."""
        begun = bisect_left(self.starts, span.end)
        return begun > 0 and self.ends[begun - 1] > span.start


def _summary(quotas: Iterable[WindowQuota]) -> str:
    """What the windows give, in one line: `research a100 nvidia.com/gpu -16`."""
    return ", ".join(f"{quota.name} {quota.flavor} {quota.resource} {_given(quota)}" for quota in quotas)


def _given(quota: WindowQuota) -> str:
    if quota.nominal is not None:
        return f"= {amounts.text(quota.resource, quota.nominal)}"
    if not quota.change and (quota.borrowing_limit is not None or quota.lending_limit is not None):
        return "limits"
    return f"{'+' if quota.change >= 0 else ''}{amounts.text(quota.resource, quota.change)}"
