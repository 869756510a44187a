"""The report of a policy comparison: a table for people, a document for programs, and one HTML file with charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from kubemachinery.meta import SECOND, format_time
from pykueue import wording
from pykueue.analysis import measures
from pykueue.analysis.measures import Figure, JobOutcome, MeasuredRange, Unit
from pykueue.analysis.policy_comparison import (
    CANNOT_KNOW,
    CHANGED,
    LARGE_DISTANCE,
    RECORDED,
    REPLAYED,
    ComparisonColumn,
    PolicyComparison,
)
from pykueue.analysis.trace_replay import INTERRUPTED
from pykueue.history.charts import ChartLine, LineChart, date_text, svg
from pykueue.history.columns import duration

_BINS: Final = 120
_NAMED: Final = 5


# --- A table ----------------------------------------------------------------------------------------------------------


def table(comparison: PolicyComparison) -> list[list[str]]:
    """The rows of the table, its head first: a title, a cell for each column, and the change."""
    columns = comparison.columns
    replayed, changed = comparison.column(REPLAYED), comparison.column(CHANGED)
    rows = [["", *(column.name.upper() for column in columns), *(["CHANGE"] if changed is not None else [])]]
    for figure in _figures(columns):
        row = [figure.title, *(_cell(figure, column) for column in columns)]
        if replayed is not None and changed is not None:
            row.append(_change(figure, replayed.value(figure.key), changed.value(figure.key)))
        rows.append(row)
    return rows


def _figures(columns: Sequence[ComparisonColumn]) -> list[Figure]:
    """Every figure that a column has, in the order of the longest column."""
    found = {
        figure.key: figure for column in sorted(columns, key=lambda c: -len(c.figures)) for figure in column.figures
    }
    return list(found.values())


def _cell(figure: Figure, column: ComparisonColumn) -> str:
    value = column.value(figure.key)
    if value is None:
        return "-"
    shown = text(figure.unit, value)
    least, most = column.ranges.get(figure.key, (value, value))
    return shown if least == most else f"{shown} ({text(figure.unit, least)} to {text(figure.unit, most)})"


def text(unit: Unit, value: float) -> str:
    """A value as people read it."""
    match unit:
        case Unit.SECONDS:
            return duration(round(value))
        case Unit.HOURS:
            return f"{value:.1f}"
        case Unit.SHARE:
            return f"{value * 100:.1f} %"
        case Unit.RATIO:
            return f"{value:.2f}"
    return str(round(value))


def _change(figure: Figure, before: float | None, after: float | None) -> str:
    if before is None or after is None or before == after:
        return "" if before is None or after is None else "0 %"
    if not before:
        return f"+{text(figure.unit, after)}"
    percent = round((after - before) / before * 100)
    return f"{percent:+d} %" if percent else "0 %"


def leading(comparison: PolicyComparison) -> list[str]:
    """What a reader has to know before the table."""
    found = []
    distance = comparison.distance
    if comparison.is_interrupted:
        found.append("Interrupted: the figures are those of what was replayed so far.")
    for column in comparison.columns:
        if column.replay.ended_early not in ("", INTERRUPTED):
            found.append(f"Cut short, {column.name}: {column.replay.ended_early}.")
    if distance is not None and distance > LARGE_DISTANCE:
        found.append(f"Read with care: {_distance_sentence(distance)}")
    return found


def _distance_sentence(distance: float) -> str:
    return f"the replay differs from what was recorded by {distance * 100:.0f} % in the median waiting time."


def following(comparison: PolicyComparison) -> list[str]:
    """The sentences below the table: how far to trust it, which jobs never start, and what no replay can know [PC8]."""
    found = []
    distance = comparison.distance
    if distance is not None and distance <= LARGE_DISTANCE:
        found.append(_sentence(_distance_sentence(distance)))
    if comparison.drawn:
        ended = ("job did not end by itself: its run time is", "jobs did not end by themselves: their run times are")
        found.append(f"{wording.counted(comparison.drawn, *ended)} drawn.")
    if comparison.endless:
        found.append(f"No run time is known of {wording.counted(comparison.endless, 'job')}: counted until the end.")
    for column in comparison.columns:
        if column.not_started:
            count = wording.counted(len(column.not_started), "job does not start", "jobs do not start")
            found.append(f"{_sentence(column.name)}: {count}: {_named(column.not_started)}.")
        if column.replay.loops:
            found.append(f"{_sentence(column.name)}: {wording.counted(column.replay.loops, 'preemption loop')}.")
        if column.replay.looped:
            count = wording.counted(len(column.replay.looped), "job")
            found.append(
                f"{_sentence(column.name)}: {count} preempt each other in turns, and of a loop only the first rounds"
                f" are replayed: {_named(column.replay.looped)}."
            )
    found += [f"{_sentence(notice)}." for notice in comparison.notices]
    found.append(f"Not known: {'; '.join(CANNOT_KNOW)}.")
    return found


def _named(keys: Sequence[str]) -> str:
    """The first of a list of jobs, and how many more there are."""
    more = len(keys) - _NAMED
    return ", ".join(keys[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def counted(comparison: PolicyComparison) -> str:
    """Which jobs and which time are counted."""
    within, trace = comparison.columns[0].within, comparison.trace
    begin, end = format_time(within.begin * SECOND), format_time(within.end * SECOND)
    return f"{wording.counted(len(trace.jobs), 'job')} of {trace.source}; counted from {begin} to {end}"


# --- A document -------------------------------------------------------------------------------------------------------

_KEYS: Final = {RECORDED: "recorded", REPLAYED: "replayed", CHANGED: "changed"}


def tree(comparison: PolicyComparison) -> dict[str, Any]:
    """The comparison as a plain object. Times are RFC 3339, waiting is in seconds, use is a share of 1."""
    trace, within = comparison.trace, comparison.columns[0].within
    return {
        "trace": {"source": trace.source, "jobs": len(trace.jobs)},
        "counted": {"from": format_time(within.begin * SECOND), "until": format_time(within.end * SECOND)},
        "resource": within.resource,
        "columns": {_KEYS[column.name]: _column_tree(column) for column in comparison.columns},
        "distance": comparison.distance,
        "drawn": comparison.drawn,
        "endless": comparison.endless,
        "complete": comparison.is_complete,
        "notices": list(comparison.notices),
        "notKnown": list(CANNOT_KNOW),
    }


def _column_tree(column: ComparisonColumn) -> dict[str, Any]:
    ranges = {key: list(pair) for key, pair in column.ranges.items()}
    return {
        "figures": {figure.key: figure.value for figure in column.figures},
        **({"ranges": ranges} if ranges else {}),
        "notStarted": list(column.not_started),
        "decisions": column.replay.decisions,
        "preemptionLoops": column.replay.loops,
        "inPreemptionLoops": list(column.replay.looped),
        "endedEarly": column.replay.ended_early,
    }


# --- One HTML file ----------------------------------------------------------------------------------------------------

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } tr + tr { border-top: 1px solid #8884; }
svg { width: 100%; height: auto; margin: 1rem 0; } .lead { border-left: .3rem solid #d1461f; padding-left: .7rem; }
"""


def html(comparison: PolicyComparison) -> str:
    """The report as one file, without scripts and without references to other files."""
    head, *rows = table(comparison)
    cells = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>"]
    cells += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Policy comparison</title>',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Policy comparison</h1>",
        *(f'<p class="lead">{escape(line)}</p>' for line in leading(comparison)),
        f"<p>{escape(counted(comparison))}.</p>",
        "<table>",
        *cells,
        "</table>",
        *(svg(chart) for chart in charts(comparison)),
        *(f"<p>{escape(line)}</p>" for line in following(comparison)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def charts(comparison: PolicyComparison) -> list[LineChart]:
    """Use over time, jobs that wait over time, and the distribution of the waiting times."""
    columns = comparison.columns
    resource = columns[0].within.resource
    return [
        LineChart(
            f"Use of {resource}, share of the nominal quota",
            [ChartLine(c.name, use_over_time(c.replay.outcomes, c.within), is_step=True) for c in columns],
            date_text,
            lambda value: f"{value * 100:.0f} %",
            y_least_top=1.0,
        ),
        LineChart(
            "Jobs that wait",
            [ChartLine(c.name, waiting_over_time(c.replay.outcomes, c.within), is_step=True) for c in columns],
            date_text,
            lambda value: f"{value:g}",
        ),
        LineChart(
            "Waiting time by share of jobs",
            [ChartLine(c.name, waiting_distribution(c.replay.outcomes, c.within)) for c in columns],
            lambda value: f"{value:.0f} %",
            lambda value: duration(round(value)),
            is_duration=True,
        ),
    ]


def use_over_time(outcomes: Sequence[JobOutcome], within: MeasuredRange) -> list[tuple[float, float | None]]:
    """The mean use of the main resource in each part of the range."""
    if within.begin >= within.end:
        return []
    width = (within.end - within.begin) / _BINS
    used = [0.0] * _BINS
    for each in outcomes:
        for attempt in each.attempts:
            for segment in attempt.segments:
                amount = sum(amount for _, resource, amount in segment.amounts if resource == within.resource)
                end = within.end if segment.end is None else segment.end
                _add(used, (segment.start - within.begin) / width, (end - within.begin) / width, amount)
    quotas = (*within.queues.values(), *within.cohorts.values())
    given = [steps for each in quotas for pair, steps in each.nominal.items() if pair.resource == within.resource]
    nominal = [sum(measures.step_at(steps, within.begin + width * (p + 0.5)) for steps in given) for p in range(_BINS)]
    points: list[tuple[float, float | None]] = [
        (within.begin + width * place, used[place] / nominal[place] if nominal[place] else None)
        for place in range(_BINS)
    ]
    return [*points, (float(within.end), points[-1][1])]


def waiting_over_time(outcomes: Sequence[JobOutcome], within: MeasuredRange) -> list[tuple[float, float | None]]:
    """The mean number of jobs that have not started, in each part of the range."""
    if within.begin >= within.end:
        return []
    width = (within.end - within.begin) / _BINS
    waiting = [0.0] * _BINS
    for each in outcomes:
        end = each.started if each.started is not None else each.job.withdrawn
        until = within.end if end is None else end
        _add(waiting, (each.job.submitted - within.begin) / width, (until - within.begin) / width, 1.0)
    return [*((within.begin + width * p, waiting[p]) for p in range(_BINS)), (float(within.end), waiting[-1])]


def _add(bins: list[float], start: float, end: float, amount: float) -> None:
    """Add an amount to the bins that it covers, in part to those that it covers in part."""
    start, end = max(start, 0.0), min(end, float(len(bins)))
    if start >= end:
        return
    first, last = int(start), min(int(end), len(bins) - 1)
    for place in range(first, last + 1):
        bins[place] += amount * (min(end, place + 1) - max(start, place))


def waiting_distribution(outcomes: Sequence[JobOutcome], within: MeasuredRange) -> list[tuple[float, float | None]]:
    """The waiting time that a share of the jobs does not exceed."""
    waited = sorted(
        measures.waiting(each)
        for each in outcomes
        if each.started is not None and within.begin <= each.job.submitted < within.end
    )
    return [(float(percent), measures.quantile(waited, percent)) for percent in range(0, 101, 2)] if waited else []
