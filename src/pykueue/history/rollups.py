"""Charged usage by day: sums over the segments of records, which stay after the records are deleted [HI10].

A sum holds closed segments only, so it changes by the difference between two versions of one record. Usage that is
still reserved is added when it is asked for. Days are those of UTC: they have no daylight-saving changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from pykueue.history.records import Seconds, WorkloadRecord

DAY_SECONDS: Final = 86_400
_SPAN_MAX: Final = 36_525 * DAY_SECONDS

# The end of a segment -> until when it counts; None: not at all.
_End: TypeAlias = Callable[[Seconds | None], Seconds | None]


class RollupKey(NamedTuple):
    """What a sum is of. `day` counts days since 1970."""

    day: int
    namespace: str
    queue: str
    cluster_queue: str
    user: str
    flavor: str
    resource: str


def closed(record: WorkloadRecord) -> dict[RollupKey, int]:
    """The charged usage of a record in its closed segments, as amount times seconds, by day."""
    return _total(record, lambda end: end)


def running(record: WorkloadRecord, now: Seconds) -> dict[RollupKey, int]:
    """The charged usage of a record in its open segment until now."""
    return _total(record, lambda end: now if end is None else None)


def difference(before: Mapping[RollupKey, int], after: Mapping[RollupKey, int]) -> dict[RollupKey, int]:
    """What has to be added to the sums when one version of a record replaces another."""
    changed = {key: after.get(key, 0) - before.get(key, 0) for key in {**before, **after}}
    return {key: amount for key, amount in changed.items() if amount}


def add(totals: dict[RollupKey, int], more: Mapping[RollupKey, int]) -> None:
    for key, amount in more.items():
        totals[key] = totals.get(key, 0) + amount


def total(records: Iterable[WorkloadRecord]) -> dict[RollupKey, int]:
    """The sums over records, from scratch [HI-L5]."""
    totals: dict[RollupKey, int] = {}
    for record in records:
        add(totals, closed(record))
    return totals


def days(start: Seconds, end: Seconds) -> Iterator[tuple[int, int]]:
    """The days that a time span touches, each with its seconds in it. A clock may be far off: of a longer span than a
    century, only that counts."""
    end = min(end, start + _SPAN_MAX)
    while start < end:
        day = start // DAY_SECONDS
        edge = min(end, (day + 1) * DAY_SECONDS)
        yield day, edge - start
        start = edge


def _total(record: WorkloadRecord, ends: _End) -> dict[RollupKey, int]:
    totals: dict[RollupKey, int] = {}
    for attempt, segment in record.charged():
        end = ends(segment.end)
        if end is None:
            continue
        for day, seconds in days(segment.start, end):
            for flavor, resource, amount in segment.amounts:
                queue = attempt.queue or record.queue
                key = RollupKey(day, record.namespace, queue, attempt.cluster_queue, record.user, flavor, resource)
                totals[key] = totals.get(key, 0) + amount * seconds
    return totals
