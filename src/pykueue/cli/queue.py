"""`pykueue queue`: who waits, who runs, and why not yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pykueue.cli import completion_candidates, flags, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import Column, Form

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from pykueue.client.job_service import Entry


@click.command("queue", cls=flags.Command)
@click.option(
    "-q", "--queue", default="", shell_complete=completion_candidates.objects("localqueue"), help="One LocalQueue only."
)
@click.option("-a", "--all", "everything", is_flag=True, help="Also show finished jobs.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show jobs of all namespaces.")
@printing.prints("wide", "name", "json", "yaml", "kyaml")
@connects
def command(connection: Connection, queue: str, everything: bool, all_namespaces: bool, form: Form) -> None:
    """Show jobs that run, and then those that wait, in the order of their queues."""
    from kubemachinery.clock import SystemClock
    from pykueue.client import job_service, listing

    async def work(client: ApiClient, namespace: str) -> list[Entry]:
        found = await job_service.entries(client, "" if all_namespaces else namespace)
        of_queue = [entry for entry in found if queue in ("", entry.queue)]
        if queue and not of_queue and not all_namespaces:
            await job_service.Desk(client, namespace).queue(queue)  # one that is not there is refused
        return of_queue

    rows = [entry for entry in connection.talk(work) if everything or not entry.standing.word.is_over]
    now = SystemClock().now()
    columns: list[Column[Entry]] = [
        *([Column[job_service.Entry]("NAMESPACE", lambda entry: entry.namespace)] if all_namespaces else []),
        Column("NAME", lambda entry: entry.name),
        Column("QUEUE", lambda entry: entry.queue),
        Column("STATE", lambda entry: entry.standing.word),
        Column("PLACE", lambda entry: "" if entry.place is None else str(entry.place)),
        Column("PODS", lambda entry: str(entry.pods)),
        Column("ASKS FOR", lambda entry: entry.asks),
        Column("AGE", lambda entry: listing.age(entry.created, now)),
        Column("PRIORITY", lambda entry: str(entry.priority), wide=True),
        Column("CLUSTERQUEUE", lambda entry: entry.cluster_queue, wide=True),
        Column("WORKLOAD", lambda entry: entry.workload, wide=True),
        Column("WHY", lambda entry: entry.standing.why),
    ]
    printing.show(
        rows,
        columns,
        form,
        name=lambda entry: entry.title,
        tree=lambda entry: entry.tree,
        nothing="no jobs" if everything else "no jobs are waiting or running; -a also shows finished jobs",
    )
