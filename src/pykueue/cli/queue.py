"""`pykueue queue`: shows running and waiting jobs, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kubemachinery import meta
from kubemachinery.errors import UsageError
from pykueue.api import backfill
from pykueue.cli import completion_candidates, flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat, TableColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubemachinery.client.client import ApiClient
    from pykueue.client.job_forecast import QueueForecasts
    from pykueue.client.queue_entries import QueueEntry
    from pykueue.history.documents import WorkloadTrouble
    from pykueue.projection.documents import ForecastItem


@click.command("queue", cls=flags.Command)
@click.option(
    "-q",
    "--queue",
    default="",
    shell_complete=completion_candidates.objects("localqueue"),
    help="Only jobs of this LocalQueue.",
)
@click.option(
    "-a",
    "--all",
    "everything",
    is_flag=True,
    help="Also show finished jobs, and jobs of the last day that are deleted.",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option(
    "--trouble",
    is_flag=True,
    help="Only jobs in trouble: preemption loops, jobs that are preempted again and again, and jobs that starve.",
)
@click.option("--eta", is_flag=True, help="Show when waiting jobs are expected to start.")
@click.option("--thorough", is_flag=True, help="With --eta: compute it now, with ten times the effort.")
@printing.prints("wide", "name", "json", "yaml")
@connects
def command(
    connection: Connection,
    queue: str,
    everything: bool,
    all_namespaces: bool,
    trouble: bool,
    eta: bool,
    thorough: bool,
    form: OutputFormat,
) -> None:
    """Show running jobs, then waiting jobs in the order of their queues.

    Jobs without a Workload are shown if their kind is in use: Jobs, pods, and kinds that have Workloads or warnings. -a
    looks for those of every kind.
    """
    if thorough and not eta:
        raise UsageError("--thorough computes forecasts; it needs --eta")
    if trouble:
        if everything:
            raise UsageError("--trouble shows jobs that are not finished; it cannot be combined with --all")
        if eta:
            raise UsageError("--trouble shows no forecasts; it cannot be combined with --eta")
        _show_troubles(connection, queue, all_namespaces, form)
        return
    from kubemachinery.clock import SystemClock
    from pykueue.client import listing, queue_entries

    forecasts: list[QueueForecasts] = []

    async def work(client: ApiClient, namespace: str) -> list[QueueEntry]:
        where, present = "" if all_namespaces else namespace, now if everything else None
        found = await queue_entries.entries(client, where, present, every_kind=everything)
        of_queue = [entry for entry in found if queue in ("", entry.queue)]
        if queue and not of_queue and not all_namespaces:
            from pykueue.client import job_service

            await job_service.JobService(client, namespace).queue(queue)  # raises UsageError if it does not exist
        if eta:
            from pykueue.client import job_forecast  # what it imports is half of the processor time of this command

            waiting = [(entry.namespace, entry.queue) for entry in of_queue if entry.status.state == "Waiting"]
            forecasts.append(await job_forecast.of_local_queues(client, waiting, is_thorough=thorough))
        return of_queue

    now = SystemClock().now()
    rows = [entry for entry in connection.talk(work) if everything or not entry.status.state.is_finished]
    known = forecasts[-1] if forecasts else None
    if known is not None:
        _report("no forecast of", known.problems)
        _report("the forecast is not up to date of", known.warnings)
    columns: list[TableColumn[QueueEntry]] = [
        *(
            [TableColumn[queue_entries.QueueEntry]("NAMESPACE", lambda entry: entry.namespace)]
            if all_namespaces
            else []
        ),
        TableColumn("NAME", lambda entry: entry.name),
        TableColumn("KIND", lambda entry: entry.job_kind),
        TableColumn("QUEUE", lambda entry: entry.queue),
        TableColumn("STATE", lambda entry: entry.status.state),
        TableColumn("POSITION", lambda entry: "" if entry.position is None else str(entry.position)),
        TableColumn("PODS", lambda entry: str(entry.pods)),
        TableColumn("REQUESTS", lambda entry: entry.requests),
        *(_eta_columns(known.items) if known is not None else []),
        TableColumn("AGE", lambda entry: listing.age(entry.created, now)),
        *(_past_columns() if everything else []),
        TableColumn("PRIORITY", lambda entry: str(entry.priority), wide=True),
        TableColumn("CLUSTERQUEUE", lambda entry: entry.cluster_queue, wide=True),
        TableColumn("WORKLOAD", lambda entry: entry.workload, wide=True),
        TableColumn("PLANNED", _planned_start, wide=True),
        TableColumn("MESSAGE", lambda entry: entry.status.message),
    ]
    printing.show(
        rows,
        columns,
        form,
        name=lambda entry: entry.title,
        tree=lambda entry: entry.tree if known is None else _with_forecast(entry, known),
        nothing="no jobs" if everything else "no jobs are waiting or running; -a also shows finished jobs",
    )


def _show_troubles(connection: Connection, queue: str, all_namespaces: bool, form: OutputFormat) -> None:
    """Show the jobs in trouble, with the reason."""
    from kubemachinery import codec
    from pykueue.client import job_troubles
    from pykueue.history import documents
    from pykueue.history.columns import local_time
    from pykueue.history.documents import WorkloadTrouble

    async def work(client: ApiClient, namespace: str) -> list[WorkloadTrouble]:
        found = await job_troubles.troubles(client, "" if all_namespaces else namespace)
        return [each for each in found if queue in ("", each.queue)]

    columns: list[TableColumn[WorkloadTrouble]] = [
        *([TableColumn[WorkloadTrouble]("NAMESPACE", lambda each: each.metadata.namespace)] if all_namespaces else []),
        TableColumn("NAME", lambda each: each.job),
        TableColumn("QUEUE", lambda each: each.queue),
        TableColumn("TROUBLE", lambda each: each.trouble),
        TableColumn("SINCE", lambda each: local_time(each.since)),
        TableColumn("CLUSTERQUEUE", lambda each: each.cluster_queue, wide=True),
        TableColumn("WORKLOAD", lambda each: each.metadata.name, wide=True),
        TableColumn("MESSAGE", lambda each: each.message),
    ]
    version = f"{documents.GROUP}/{documents.VERSION}"
    printing.show(
        connection.talk(work),
        columns,
        form,
        name=lambda each: f"workload/{each.metadata.name}",
        tree=lambda each: {"apiVersion": version, "kind": "WorkloadTrouble", **codec.to_tree(each)},
        nothing="no jobs are in trouble",
    )


def _namespace_column() -> list[TableColumn[QueueEntry]]:
    return [TableColumn("NAMESPACE", lambda entry: entry.namespace)]


def _eta_columns(forecasts: Mapping[str, ForecastItem]) -> list[TableColumn[QueueEntry]]:
    """When each waiting job is expected to start: in half of the cases, and in 9 of 10."""
    from datetime import datetime

    from pykueue.projection import words

    now = datetime.now().astimezone()

    def cell(entry: QueueEntry, of: Callable[[ForecastItem, datetime], str]) -> str:
        item = forecasts.get(f"{entry.namespace}/{entry.workload}")
        return "" if item is None else of(item, now) or "-"

    return [
        TableColumn("STARTS ABOUT", lambda entry: cell(entry, words.about)),
        TableColumn("BY, 9 OF 10", lambda entry: cell(entry, words.by)),
        TableColumn("AFTER", lambda entry: cell(entry, lambda item, _: item.reason or item.because)),
    ]


def _with_forecast(entry: QueueEntry, known: QueueForecasts) -> Mapping[str, Any]:
    """The object with its forecast; of one that has none because the question failed, with the reason."""
    from kubemachinery import codec

    workload, local_queue = f"{entry.namespace}/{entry.workload}", f"{entry.namespace}/{entry.queue}"
    item = known.items.get(workload)
    if item is not None:
        warning = known.warnings.get(local_queue)
        return {**entry.tree, "forecast": {**codec.to_tree(item), **({"warning": warning} if warning else {})}}
    problem = known.problems.get(local_queue)
    if problem is None or entry.status.state != "Waiting":
        return entry.tree
    return {**entry.tree, "forecast": {"workload": workload, "reason": problem}}


_NAMED_MAX: Final = 5


def _report(what: str, reasons: Mapping[str, str]) -> None:
    """Write one line for each reason on stderr, with the LocalQueues that it is about."""
    by_reason: dict[str, list[str]] = {}
    for local_queue, reason in reasons.items():
        by_reason.setdefault(reason, []).append(local_queue)
    for reason, names in by_reason.items():
        noun = "LocalQueue" if len(names) == 1 else "LocalQueues"
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        click.echo(f"{what} {noun} {', '.join(names[:_NAMED_MAX])}{more}: {reason}", err=True)


def _planned_start(entry: QueueEntry) -> str:
    """The latest start that is planned for a pending Workload; empty without one."""
    from pykueue.history.columns import local_time

    annotations = entry.tree.get("metadata", {}).get("annotations") or {}
    try:
        return local_time(annotations.get(backfill.PLANNED_START)) if not entry.cluster_queue else ""
    except meta.TimeError:
        return ""


def _past_columns() -> list[TableColumn[QueueEntry]]:
    """When each job ran and how it ended."""
    from pykueue.history.columns import duration, local_time

    return [
        TableColumn("STARTED", lambda entry: local_time(entry.run.started)),
        TableColumn("ENDED", lambda entry: local_time(entry.run.ended)),
        TableColumn("RAN", lambda entry: duration(entry.run.ran_seconds)),
        TableColumn("EXIT", lambda entry: "" if entry.run.exit_code is None else str(entry.run.exit_code)),
        TableColumn("EVICTED", lambda entry: str(entry.run.evictions)),
        TableColumn("USER", lambda entry: entry.run.user),
    ]
