"""`pykueue top`: shows cohorts, queues and pending Workloads, live."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click

from pykueue.cli.connection import Connection, connects

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kubemachinery.client.client import ApiClient
    from pykueue.client.queue_entries import QueueEntry
    from pykueue.client.queue_overview import QueueRow, Usage

_BAR: Final = 16
_PENDING_SHOWN: Final = 15
_PIPE_WIDTH: Final = 200


@click.command("top")
@click.option("--once", is_flag=True, help="Print once and exit; always so without a terminal.")
@click.option("--every", type=click.FloatRange(0.2), default=1.0, show_default=True, help="Seconds between updates.")
@connects
def command(connection: Connection, once: bool, every: float) -> None:
    """Watch cohorts, queues and pending Workloads, live. Ctrl-C ends it."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from kubemachinery.client.errors import KubeError
    from kubemachinery.client.retry import is_transient

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            """rich would exit with 1, which means a negative result here."""
            raise BrokenPipeError

    console = _Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)

    async def watch(client: ApiClient, _: str) -> None:
        if once or not sys.stdout.isatty():
            console.print(await _look(client, console.width))
            return
        seen = await _look(client, console.width)
        with Live(seen, console=console, screen=True, auto_refresh=False) as screen:
            while True:
                try:
                    seen = await _look(client, console.width)
                    screen.update(seen, refresh=True)
                except KubeError as error:
                    if not is_transient(error):
                        raise
                    # The server may come back.
                    screen.update(Group(Text(f"{error}; last state:", style="red"), seen), refresh=True)
                await asyncio.sleep(every)

    connection.talk(watch)


async def _look(client: ApiClient, width: int) -> RenderableType:
    from rich.console import Group

    from kubemachinery import codec
    from kubemachinery.client.errors import ApiError
    from pykueue.api import kueue, registry
    from pykueue.api.quota_schedule import QuotaSchedule
    from pykueue.client import queue_entries, queue_overview

    queues = await client.list(registry.KUEUE.of(kueue.ClusterQueue))
    cohorts = await client.list(registry.KUEUE.of(kueue.Cohort))
    try:
        schedules = (await client.list(registry.EXTENSIONS.of(QuotaSchedule))).items
    except ApiError:  # the kind is not served, or the user may not list it
        schedules = []
    found = queue_overview.lines(
        [codec.decode(raw, kueue.ClusterQueue) for raw in queues.items],
        [codec.decode(raw, kueue.Cohort) for raw in cohorts.items],
        queue_overview.effective_quotas(codec.decode(raw, QuotaSchedule) for raw in schedules),
    )
    return Group(_tree(found, width), "", _waiting(await queue_entries.entries(client, "")))


# The columns, each with the minimum width of the terminal that shows it.
_COLUMNS: Final = {
    "QUEUE": 0,
    "FLAVOR": 90,
    "RESOURCE": 0,
    "USE": 75,
    "USED": 0,
    "QUOTA": 0,
    "BORROWED": 110,
    "ADMITTED": 60,
    "PENDING": 0,
}
_NUMBERS: Final = ("USED", "QUOTA", "ADMITTED", "PENDING")


def _tree(lines: list[QueueRow], width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    shown = [title for title, least in _COLUMNS.items() if width >= least]
    for title in shown:
        table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=True)
    for line in lines:
        name = Text("  " * line.depth + line.name, style="bold" if line.is_cohort else "")
        if not line.is_active:
            name.append(" (inactive)", style="red")
        pending = Text(str(line.pending), style="yellow" if line.pending else "")
        own: dict[str, RenderableType] = {"QUEUE": name, "ADMITTED": str(line.admitted), "PENDING": pending}
        for n, usage in enumerate(line.usages or (None,)):
            cells = {**(own if not n else {}), **(_cells(usage) if usage is not None else {})}
            table.add_row(*(cells.get(title, "") for title in shown))
    return table


def _cells(usage: Usage) -> dict[str, RenderableType]:
    from rich.text import Text

    own = round(min(usage.share, 1.0) * _BAR)
    beyond = round(min(max(usage.share - 1.0, 0.0), 0.5) * _BAR)
    bar = Text("█" * own, style="green") + Text("█" * beyond, style="magenta")
    bar += Text("·" * max(_BAR - own - beyond, 0), style="dim")
    return {
        "FLAVOR": usage.flavor,
        "RESOURCE": usage.resource,
        "USE": bar,
        "USED": usage.used.canonical,
        "QUOTA": usage.nominal.canonical,
        "BORROWED": usage.borrowed.canonical if usage.borrowed.sign else "",
    }


def _waiting(entries: list[QueueEntry]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from pykueue.client.job_status import JobState

    waiting = [entry for entry in entries if entry.status.state is JobState.WAITING]
    if not waiting:
        return Text("no Workload is pending", style="dim")
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for title in ("POSITION", "JOB", "QUEUE", "REQUESTS"):
        table.add_column(title, no_wrap=True)
    table.add_column("MESSAGE", overflow="ellipsis", no_wrap=True, ratio=1)
    for entry in waiting[:_PENDING_SHOWN]:
        place = "" if entry.position is None else str(entry.position)
        table.add_row(
            place,
            Text(f"{entry.namespace}/{entry.name}"),
            Text(entry.queue),
            Text(entry.requests),
            Text(entry.status.message),
        )
    if len(waiting) > _PENDING_SHOWN:
        table.add_row("", f"and {len(waiting) - _PENDING_SHOWN} more")
    return table
