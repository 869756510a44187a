"""`pykueue top`: cohorts, queues and who waits, as they are now and as they change."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click

from pykueue.cli.connection import Connection, connects

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pykueue.kube.client import Client
    from pykueue.work.desk import Entry
    from pykueue.work.overview import Line, Usage

_BAR: Final = 16
_PENDING_SHOWN: Final = 15
_PIPE_WIDTH: Final = 200


@click.command("top")
@click.option("--once", is_flag=True, help="Show it once, and end. Off a terminal it is always so.")
@click.option("--every", type=click.FloatRange(0.2), default=1.0, show_default=True, help="Seconds between looks.")
@connects
def command(connection: Connection, once: bool, every: float) -> None:
    """Watch cohorts, queues and pending Workloads, live. Ctrl-C ends it."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from pykueue.kube.errors import Unanswered

    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)

    async def watch(client: Client, _: str) -> None:
        if once or not sys.stdout.isatty():
            console.print(await _look(client))
            return
        seen = await _look(client)
        with Live(seen, console=console, screen=True, auto_refresh=False) as screen:
            while True:
                try:
                    seen = await _look(client)
                    screen.update(seen, refresh=True)
                except Unanswered as error:  # a server that starts again is seen again
                    screen.update(Group(Text(f"{error}; as it was before:", style="red"), seen), refresh=True)
                await asyncio.sleep(every)

    connection.talk(watch)


async def _look(client: Client) -> RenderableType:
    from rich.console import Group

    from pykueue.api import codec, kueue, registry
    from pykueue.work import desk, overview

    queues = await client.list(registry.KUEUE.of(kueue.ClusterQueue))
    cohorts = await client.list(registry.KUEUE.of(kueue.Cohort))
    found = overview.lines(
        [codec.decode(raw, kueue.ClusterQueue) for raw in queues.items],
        [codec.decode(raw, kueue.Cohort) for raw in cohorts.items],
    )
    return Group(_tree(found), "", _waiting(await desk.entries(client, "")))


def _tree(lines: list[Line]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for title in ("QUEUE", "FLAVOR", "RESOURCE", "USE", "USED", "QUOTA", "BORROWED", "ADMITTED", "PENDING"):
        is_number = title in ("USED", "QUOTA", "ADMITTED", "PENDING")
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    for line in lines:
        name = Text("  " * line.depth + line.name, style="bold" if line.is_cohort else "")
        if not line.is_active:
            name.append(" (inactive)", style="red")
        counts = (str(line.admitted), Text(str(line.pending), style="yellow" if line.pending else ""))
        if not line.usages:
            table.add_row(name, "", "", "", "", "", "", *counts)
        for n, usage in enumerate(line.usages):
            table.add_row(*((name,) if not n else ("",)), *_cells(usage), *(counts if not n else ("", "")))
    return table


def _cells(usage: Usage) -> tuple[RenderableType, ...]:
    from rich.text import Text

    own = round(min(usage.share, 1.0) * _BAR)
    beyond = round(min(max(usage.share - 1.0, 0.0), 0.5) * _BAR)
    bar = Text("█" * own, style="green") + Text("█" * beyond, style="magenta")
    bar += Text("·" * max(_BAR - own - beyond, 0), style="dim")
    borrowed = usage.borrowed.canonical if usage.borrowed.sign else ""
    return usage.flavor, usage.resource, bar, usage.used.canonical, usage.nominal.canonical, borrowed


def _waiting(entries: list[Entry]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from pykueue.work.standing import Word

    waiting = [entry for entry in entries if entry.standing.word is Word.WAITING]
    if not waiting:
        return Text("nobody waits", style="dim")
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for title in ("PLACE", "WAITS", "QUEUE", "ASKS FOR"):
        table.add_column(title, no_wrap=True)
    table.add_column("WHY", overflow="ellipsis", no_wrap=True, ratio=1)
    for entry in waiting[:_PENDING_SHOWN]:
        place = "" if entry.place is None else str(entry.place)
        table.add_row(
            place,
            Text(f"{entry.namespace}/{entry.name}"),
            Text(entry.queue),
            Text(entry.asks),
            Text(entry.standing.why),
        )
    if len(waiting) > _PENDING_SHOWN:
        table.add_row("", f"and {len(waiting) - _PENDING_SHOWN} more")
    return table
