"""The page *Over time*: usage against quota, waiting by day and the users of a ClusterQueue, from the history.

Charts are made here as SVG (`history.charts`); the page shows them as they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from pykueue.core import amounts
from pykueue.history import charts, columns, queries
from pykueue.history.charts import ChartLine, LineChart
from pykueue.history.queries import RecordFilter, UsageRow, WaitingRow
from pykueue.history.records import Seconds
from pykueue.history.rollups import DAY_SECONDS
from pykueue.history.store import HistoryStore

Tree: TypeAlias = dict[str, Any]
# Reads the store in the thread that has it.
AskHistory: TypeAlias = Callable[[Callable[[HistoryStore], Any]], Awaitable[Any]]

DAYS: Final = 30
DAYS_MAX: Final = 400
_RESOURCES_MAX: Final = 4
_USERS_MAX: Final = 10
_GIB: Final = 2**30


async def document(ask: AskHistory, cluster_queue: str, quotas: Mapping[str, int], days: int, now: Seconds) -> Tree:
    """The charts and the table of one ClusterQueue, of its last days. `quotas` are nominal, by resource."""
    since = (now // DAY_SECONDS - days + 1) * DAY_SECONDS
    wanted = RecordFilter(since=since, until=now + 1, cluster_queue=cluster_queue)
    totals = await ask(lambda store: store.usage(wanted, now))
    waiting = await ask(lambda store: store.waiting(wanted, ("day",)))
    return {
        "clusterQueue": cluster_queue,
        "days": days,
        "charts": [
            *(charts.svg(each) for each in usage_charts(queries.grouped(totals, ("day",)), quotas, since, now)),
            *([charts.svg(waiting_chart(waiting, since, now))] if waiting else []),
        ],
        "users": top_users(queries.grouped(totals, ("user",))),
    }


def usage_charts(rows: Iterable[UsageRow], quotas: Mapping[str, int], since: Seconds, now: Seconds) -> list[LineChart]:
    """A chart for each resource, those with the most usage of their quota first: the mean of each day as a step line,
    and the nominal quota of now."""
    used: dict[str, dict[int, int]] = {}
    for row in rows:
        used.setdefault(row.resource, {})[int(row.group[0])] = row.amount_seconds
    first, last = since // DAY_SECONDS, now // DAY_SECONDS

    def share(resource: str) -> float:
        return max(used.get(resource, {}).values(), default=0) / (quotas.get(resource, 0) or 1)

    found = []
    for resource in sorted({*used, *quotas}, key=lambda each: (-share(each), each))[:_RESOURCES_MAX]:
        of_day = used.get(resource, {})
        means = [
            (float(day * DAY_SECONDS), _figure(resource, of_day.get(day, 0) / _length(day, now)))
            for day in range(first, last + 1)
        ]
        lines = [ChartLine("used, mean of the day", [*means, (float(now), means[-1][1])], is_step=True)]
        if resource in quotas:
            quota = _figure(resource, quotas[resource])
            lines.append(ChartLine("nominal quota", [(float(since), quota), (float(now), quota)]))
        text = "{:g}Gi" if amounts.is_in_bytes(resource) else "{:g}"
        found.append(LineChart(f"{resource} in use", lines, _day_text, text.format))
    return found


def waiting_chart(rows: Sequence[WaitingRow], since: Seconds, now: Seconds) -> LineChart:
    """The median and the 90th percentile of the waiting of each day; a day without a start breaks the lines."""
    by_day = {int(row.group[0]): row for row in rows}
    days = range(since // DAY_SECONDS, now // DAY_SECONDS + 1)

    def line(name: str, value: Callable[[WaitingRow], int]) -> ChartLine:
        points = [
            (float(edge), float(value(by_day[day])) if day in by_day else None)
            for day in days
            for edge in (day * DAY_SECONDS, min((day + 1) * DAY_SECONDS, now))
        ]
        return ChartLine(name, points, is_step=True)

    lines = [line("P50", lambda row: row.p50), line("P90", lambda row: row.p90)]
    return LineChart(
        "Waiting until the first admission",
        lines,
        _day_text,
        lambda seconds: columns.duration(int(seconds)),
        is_duration=True,
    )


def top_users(rows: Iterable[UsageRow]) -> list[Tree]:
    """The users with the most usage of a resource, in hours, of bytes in GiB; the largest first, by resource."""
    found: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        hours = _figure(row.resource, row.amount_seconds) / 3600
        found.setdefault(row.resource, []).append((hours, str(row.group[0])))
    return [
        {
            "resource": f"{resource}, Gi" if amounts.is_in_bytes(resource) else resource,
            "user": user or "unknown",
            "hours": round(hours, 2),
        }
        for resource in sorted(found)
        for hours, user in sorted(found[resource], key=lambda each: (-each[0], each[1]))[:_USERS_MAX]
    ]


def _length(day: int, now: Seconds) -> int:
    """The seconds of a day that have passed."""
    return max(1, min(DAY_SECONDS, now - day * DAY_SECONDS))


def _figure(resource: str, amount: float) -> float:
    """An amount as charts and tables show it: cpu in whole ones, bytes in GiB."""
    if resource == amounts.CPU:
        return amount / 1000
    return amount / _GIB if amounts.is_in_bytes(resource) else amount


def _day_text(seconds: float) -> str:
    return charts.date_text(seconds)[:5]
