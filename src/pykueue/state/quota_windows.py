"""Windows of QuotaSchedules as instants, and the quotas that they give at an instant. Pure (rules QS).

The controller expands schedules to instants and puts them into the World; here it is only decided what counts when. The
effective quota is a function of the quota of the spec, of the windows and of the instant: nothing is remembered, so a
restart, a clock that is set back or a deleted schedule leaves nothing behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from kubemachinery.meta import Nanoseconds
from pykueue.core import amounts
from pykueue.core.amounts import Amount
from pykueue.core.queue import FlavorResource, Quota

FOREVER: Final[Nanoseconds] = 2**63 - 1

GivenQuotas: TypeAlias = "dict[QuotaOwner, dict[FlavorResource, list[WindowQuota]]]"
"""What windows give, by object, flavor and resource, in the order of precedence."""


class QuotaOwner(NamedTuple):
    """An object with quota: a Cohort or a ClusterQueue."""

    is_cohort: bool
    name: str


class WindowQuota(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a schedule gives one flavor and resource of one object in its windows: values to set, and a change."""

    name: str
    flavor: str
    resource: str
    is_cohort: bool = False
    nominal: Amount | None = None
    change: Amount = 0
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None

    @property
    def owner(self) -> QuotaOwner:
        return QuotaOwner(self.is_cohort, self.name)

    @property
    def pair(self) -> FlavorResource:
        return FlavorResource(self.flavor, self.resource)


class WindowSpan(msgspec.Struct, frozen=True, array_like=True):
    """One occurrence of a window: its name, its start, and its end, which is not part of it."""

    window: str
    start: Nanoseconds
    end: Nanoseconds


class ScheduledWindows(msgspec.Struct, frozen=True, omit_defaults=True):
    """One QuotaSchedule: its quotas, and the occurrences of its windows that are in force or to come."""

    schedule: str
    quotas: tuple[WindowQuota, ...]
    spans: tuple[WindowSpan, ...]
    evicts: bool = False
    notice: Nanoseconds = 0
    ends_before: bool = False  # Workloads must have released what its windows take before these begin [QS6]
    repeats: bool = False  # windows will begin after the last span, too


class WindowInForce(NamedTuple):
    """A window in force. Compared by what decides between two that set the same value: the later start, then the
    smaller names."""

    since: Nanoseconds
    schedule: str
    window: str
    until: Nanoseconds


class WindowEdge(NamedTuple):
    """An instant at which windows begin or end, and what the windows give from then on."""

    at: Nanoseconds
    given: GivenQuotas
    begun: tuple[tuple[str, str], ...]  # schedule and window
    ended: tuple[tuple[str, str], ...]


class QuotaOverlap(msgspec.Struct, frozen=True):
    """Two windows in force that set the same value of the same flavor and resource; `winner` counts."""

    owner: QuotaOwner
    pair: FlavorResource
    winner: WindowInForce
    loser: WindowInForce


def in_force(schedules: Iterable[ScheduledWindows], now: Nanoseconds) -> list[WindowInForce]:
    """The windows in force, one for each window: of several occurrences, the one that began last [QS5]."""
    found: dict[tuple[str, str], WindowInForce] = {}
    for each in schedules:
        for span in each.spans:
            before = found.get((each.schedule, span.window))
            if span.start <= now < span.end and (before is None or before.since < span.start):
                found[each.schedule, span.window] = WindowInForce(span.start, each.schedule, span.window, span.end)
    return sorted(found.values(), key=_precedence)


def _last_begun(begun_of: dict[tuple[str, str], list[WindowSpan]], at: Nanoseconds) -> list[WindowInForce]:
    """The windows in force, by the occurrences that have begun, in the order of their starts. What has ended at the end
    of a list is taken away."""
    found = []
    for (schedule, window), begun in list(begun_of.items()):
        while begun and begun[-1].end <= at:
            begun.pop()
        if begun:
            found.append(WindowInForce(begun[-1].start, schedule, window, begun[-1].end))
        else:
            del begun_of[schedule, window]
    return sorted(found, key=_precedence)


def _precedence(window: WindowInForce) -> tuple[Nanoseconds, str, str]:
    """The order in which windows give way to each other: the first counts [QS4]."""
    return -window.since, window.schedule, window.window


_SETS: Final = ("nominal", "borrowing_limit", "lending_limit")


def effective(base: Quota, given: Sequence[WindowQuota]) -> Quota:
    """The quota of one flavor and resource; `given` are those in force, in the order of precedence [QS1]."""
    values = {field: next((v for one in given if (v := getattr(one, field)) is not None), None) for field in _SETS}
    nominal = base.nominal if values["nominal"] is None else values["nominal"]
    for one in given:
        nominal = amounts.add(nominal, one.change)
    return Quota(
        max(0, nominal),
        base.borrowing_limit if values["borrowing_limit"] is None else values["borrowing_limit"],
        base.lending_limit if values["lending_limit"] is None else values["lending_limit"],
    )


class QuotaWindows:
    """The windows of all schedules, and what they give at the instant that `advance` was last called with."""

    def __init__(self) -> None:
        self._schedules: tuple[ScheduledWindows, ...] = ()
        self._in_force: list[WindowInForce] = []
        self._given: GivenQuotas = {}
        # While the time is within these, nothing has to be computed.
        self._from: Nanoseconds = 0
        self._until: Nanoseconds = FOREVER
        self.version = 0  # grows with every change of the windows

    @property
    def schedules(self) -> tuple[ScheduledWindows, ...]:
        return self._schedules

    @property
    def windows_in_force(self) -> Sequence[WindowInForce]:
        return self._in_force

    @property
    def next_edge(self) -> Nanoseconds | None:
        """When the next window begins or ends; None if none does."""
        return self._until if self._until != FOREVER else None

    def replace_all(self, schedules: Iterable[ScheduledWindows]) -> bool:
        """Replace all windows; whether they differ. What changed is computed by the next `advance`."""
        new = tuple(sorted(schedules, key=lambda each: each.schedule))
        if new == self._schedules:
            return False
        self._schedules = new
        self.version += 1
        self._until = self._from  # nothing is valid any more
        return True

    def advance(self, now: Nanoseconds) -> set[QuotaOwner]:
        """Move to an instant, earlier ones included; the objects whose quota may have changed."""
        if self._from <= now < self._until:
            return set()
        before, self._in_force = self._given, in_force(self._schedules, now)
        edges = [edge for each in self._schedules for span in each.spans for edge in (span.start, span.end)]
        self._from = max((edge for edge in edges if edge <= now), default=0)
        self._until = min((edge for edge in edges if edge > now), default=FOREVER)
        self._given = self._at(self._in_force)
        return {owner for owner in before.keys() | self._given.keys() if before.get(owner) != self._given.get(owner)}

    def _at(self, windows: Iterable[WindowInForce]) -> GivenQuotas:
        by_name = {each.schedule: each for each in self._schedules}
        given: GivenQuotas = {}
        seen: set[str] = set()
        for window in windows:
            if window.schedule in seen:  # two windows of one schedule give the same, once
                continue
            seen.add(window.schedule)
            for quota in by_name[window.schedule].quotas:
                given.setdefault(quota.owner, {}).setdefault(quota.pair, []).append(quota)
        return given

    def quotas(self, owner: QuotaOwner, base: Mapping[FlavorResource, Quota]) -> Mapping[FlavorResource, Quota]:
        """The effective quotas of an object at the present instant. What it does not declare has no effect [QS3]."""
        return _overlaid(base, self._given.get(owner))

    def given_at(self, at: Nanoseconds) -> GivenQuotas:
        """What the windows give at any instant."""
        return self._at(in_force(self._schedules, at))

    @staticmethod
    def overlaid(
        owner: QuotaOwner, base: Mapping[FlavorResource, Quota], given: GivenQuotas
    ) -> Mapping[FlavorResource, Quota]:
        """The effective quotas of an object with what the windows give."""
        return _overlaid(base, given.get(owner))

    def edges(self, after: Nanoseconds) -> list[Nanoseconds]:
        """The starts and ends of windows after an instant."""
        spans = (span for each in self._schedules for span in each.spans)
        return sorted({edge for span in spans for edge in (span.start, span.end) if edge > after})

    def edges_with_quotas(self, after: Nanoseconds) -> Iterator[WindowEdge]:
        """The edges after an instant, in order, each with what the windows give then."""
        spans = [(each.schedule, span) for each in self._schedules for span in each.spans if span.end > after]
        spans.sort(key=lambda each: each[1].start)
        # By window, its occurrences that have begun, the last one last: that one counts [QS5]. Those that have ended
        # are taken away when they come to the end of the list, so that an edge costs no more with many of them.
        begun_of: dict[tuple[str, str], list[WindowSpan]] = {}
        ends: list[tuple[Nanoseconds, str, str]] = []
        position = 0
        at = after
        while True:
            begun: set[tuple[str, str]] = set()
            while position < len(spans) and spans[position][1].start <= at:
                schedule, span = spans[position]
                begun_of.setdefault((schedule, span.window), []).append(span)
                heapq.heappush(ends, (span.end, schedule, span.window))
                begun.add((schedule, span.window))
                position += 1
            ended: set[tuple[str, str]] = set()
            while ends and ends[0][0] <= at:
                _, schedule, window = heapq.heappop(ends)
                ended.add((schedule, window))
            if at > after:
                in_force_then = _last_begun(begun_of, at)
                yield WindowEdge(at, self._at(in_force_then), tuple(sorted(begun)), tuple(sorted(ended)))
            coming = [spans[position][1].start] if position < len(spans) else []
            if ends:
                coming.append(ends[0][0])
            if not coming:
                return
            at = min(coming)

    def evicting(self, at: Nanoseconds) -> Iterator[tuple[WindowInForce, ScheduledWindows]]:
        """The windows in force at an instant whose schedule withdraws quota from running Workloads [QS7]."""
        by_name = {each.schedule: each for each in self._schedules if each.evicts}
        for window in in_force(by_name.values(), at):
            yield window, by_name[window.schedule]


def overlaps(schedules: Iterable[ScheduledWindows], now: Nanoseconds) -> list[QuotaOverlap]:
    """The windows of different schedules in force that set the same value [QS4]."""
    by_name = {each.schedule: each for each in schedules}
    winners: dict[tuple[QuotaOwner, FlavorResource, str], WindowInForce] = {}
    found: list[QuotaOverlap] = []
    for window in in_force(by_name.values(), now):
        for quota in by_name[window.schedule].quotas:
            for field in _SETS:
                if getattr(quota, field) is None:
                    continue
                winner = winners.setdefault((quota.owner, quota.pair, field), window)
                if winner.schedule != window.schedule:
                    found.append(QuotaOverlap(quota.owner, quota.pair, winner, window))
    return found


def _overlaid(
    base: Mapping[FlavorResource, Quota], given: Mapping[FlavorResource, Sequence[WindowQuota]] | None
) -> Mapping[FlavorResource, Quota]:
    if not given or not base.keys() & given.keys():
        return base
    return {pair: effective(quota, given[pair]) if pair in given else quota for pair, quota in base.items()}
