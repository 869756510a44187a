"""`pykueue report`: usage and waiting from the history, by queue, user, day; troubles; what is spent of Budgets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kubemachinery.errors import UsageError
from pykueue.cli import flags, printing
from pykueue.cli.connection import Connection, connects, connects_but
from pykueue.cli.history import csv_text, request, warn_not_stored, window_options
from pykueue.errors import NegativeResult

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from pykueue.history.budget_lines import BudgetLine
    from pykueue.history.documents import UsageItem, WaitingItem, WorkloadTrouble

_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)


@click.group("report")
def command() -> None:
    """Report usage, waiting and troubles from the history."""


@command.command("usage", cls=flags.Command)
@window_options
@click.option(
    "--by",
    default="queue",
    show_default=True,
    help="What to group by, separated by commas: day, namespace, queue, clusterqueue, user, flavor. With -A, queue has"
    " its namespace.",
)
@_OUTPUT
@connects_but("user")
def usage(connection: Connection, all_namespaces: bool, output: str, **filters: Any) -> None:
    """Report admitted quota times hours. It covers the whole days (UTC) that the time window touches.

    \b
    pykueue report usage --by queue,day --since 2026-11-01 -o csv
    """

    by = _words(filters["by"], all_namespaces=all_namespaces)
    filters["by"] = ",".join(by)

    async def work(client: ApiClient, namespace: str) -> list[UsageItem]:
        from pykueue.client import job_history

        return await job_history.usage(client, request(filters, "" if all_namespaces else namespace), warn_not_stored)

    items = connection.talk(work)
    rows = _usage_rows(items, is_table=output == "table")
    _print([*by, "resource", "hours"], rows, output, "no usage in this time window; usage is counted in whole seconds")


@command.command("waiting", cls=flags.Command)
@window_options
@click.option(
    "--by",
    default="queue",
    show_default=True,
    help="What to group by, separated by commas: day, namespace, queue, clusterqueue, user. With -A, queue has its"
    " namespace.",
)
@_OUTPUT
@connects_but("user")
def waiting(connection: Connection, all_namespaces: bool, output: str, **filters: Any) -> None:
    """Report how long jobs waited that started in the time window: from submission to the first admission.

    \b
    pykueue report waiting --by queue --since -30d
    """

    by = _words(filters["by"], all_namespaces=all_namespaces)
    filters["by"] = ",".join(by)

    async def work(client: ApiClient, namespace: str) -> list[WaitingItem]:
        from pykueue.client import job_history

        return await job_history.waiting(client, request(filters, "" if all_namespaces else namespace), warn_not_stored)

    from pykueue.history.columns import duration

    items = connection.talk(work)
    is_table = output == "table"
    head = [*by, "started", "p50", "p90", "p99", "longest", "over_an_hour"]
    rows = []
    for item in items:
        times = (item.p50_seconds, item.p90_seconds, item.p99_seconds, item.longest_seconds)
        shown = [duration(time) if is_table else time for time in times]
        share = f"{item.over_an_hour / item.started:.0%}" if is_table else item.over_an_hour
        rows.append({**item.group, **dict(zip(head[len(by) :], [item.started, *shown, share], strict=True))})
    _print(head, rows, output, "no job started in this time window")


@command.command("troubles", cls=flags.Command)
@window_options
@_OUTPUT
@connects_but("user")
def troubles(connection: Connection, all_namespaces: bool, output: str, **filters: Any) -> None:
    """Report preemption loops, thrashing and starvation in the time window, also those that are over.

    \b
    pykueue report troubles --since -7d
    """

    async def work(client: ApiClient, namespace: str) -> list[WorkloadTrouble]:
        from pykueue.client import job_troubles

        # Since the beginning, if no window is given: without one, the list is of what exists now.
        given = {**filters, "since": filters["since"] or 0}
        return await job_troubles.past(client, request(given, "" if all_namespaces else namespace), warn_not_stored)

    from pykueue.history.columns import local_time

    if filters["user"]:
        raise UsageError("--user: troubles are recorded by Workload; use --queue or --clusterqueue")
    head = ["job", "queue", "trouble", "since", "found", "ended", "message"]
    if all_namespaces:
        head.insert(0, "namespace")
    rows = []
    for each in connection.talk(work):
        times = {"since": each.since, "found": each.found, "ended": each.ended}
        row = {
            "namespace": each.metadata.namespace,
            "job": each.job,
            "queue": each.queue,
            "trouble": each.trouble,
            "message": each.message,
            **{name: local_time(time) if output == "table" else time or "" for name, time in times.items()},
        }
        rows.append({name: row[name] for name in head})
    _print(head, rows, output, "no trouble in this time window")


@command.command("budget", cls=flags.Command)
@_OUTPUT
@connects
def budget(connection: Connection, output: str) -> None:
    """Report what groups have spent of their Budgets in the present period: the 100 fullest of each Budget.

    \b
    pykueue report budget
    """

    async def work(client: ApiClient, namespace: str) -> tuple[list[BudgetLine], list[str]]:
        from kubemachinery.clock import SystemClock
        from pykueue.client import budget_report

        return await budget_report.lines(client, SystemClock().now(), has_local_times=output == "table")

    found, problems = connection.talk(work)
    for problem in problems:
        click.echo(problem, err=True)
    head = ["budget", "group", "resource", "until", "spent", "limit", "per_hour", "spent_by"]
    rows = [{name: getattr(line, name) for name in (*head, "percent")} for line in found]
    if output == "table":
        for row in rows:
            row["spent"] = f"{row['spent']} ({row['percent']} %)"
    else:
        head.insert(5, "percent")
    _print(head, rows, output, "no group has spent hours of a Budget in its present period")


def _words(by: str, *, all_namespaces: bool) -> list[str]:
    """The words to group by. LocalQueues of several namespaces may have one name, and are not one queue."""
    words = dict.fromkeys(word.strip().lower() for word in by.split(",") if word.strip())
    if all_namespaces and "queue" in words and "namespace" not in words:
        return [each for word in words for each in (("namespace", word) if word == "queue" else (word,))]
    return list(words)


def _usage_rows(items: Sequence[UsageItem], *, is_table: bool) -> list[dict[str, Any]]:
    """The usage by group. Programs get the hours to six decimals, so that a second of a cpu is more than 0, and of
    bytes those of single bytes."""
    return [
        {
            **item.group,
            "resource": item.resource,
            "hours": _hours_text(item) if is_table else round(_hours(item), 6),
        }
        for item in items
    ]


def _hours_text(item: UsageItem) -> str:
    from pykueue.core import amounts

    hours = _hours(item)
    return f"{hours / 2**30:.2f}Gi" if amounts.is_in_bytes(item.resource) else f"{hours:.2f}"


def _hours(item: UsageItem) -> float:
    from kubemachinery import quantity

    return quantity.parse(item.resource_seconds).milli_value() / 1000 / 3600


def _print(head: Sequence[str], rows: Sequence[dict[str, Any]], output: str, nothing: str) -> None:
    if not rows:
        raise NegativeResult(nothing)
    if output == "json":
        printing.write_exactly(f"{json.dumps(rows, indent=2, ensure_ascii=False)}\n")
    elif output == "csv":
        printing.write_exactly(csv_text(head, rows))
    else:
        title = [word.replace("_", " ").upper() for word in head]
        printing.table(title, ([str(row.get(name, "")) for name in head] for row in rows))
