"""`pykueue cancel`: cancels jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pykueue.cli import completion_candidates
from pykueue.cli.connection import Connection, connects

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient


@click.command("cancel")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion_candidates.jobs())
@connects
def command(connection: Connection, names: tuple[str, ...]) -> None:
    """Cancel jobs: a waiting job leaves its queue, a running job is stopped, and its log is deleted."""
    from pykueue.client import job_service

    async def work(client: ApiClient, namespace: str) -> None:
        service = job_service.JobService(client, namespace)
        for job in await service.jobs(names):
            await service.cancel(job.reference)
            click.echo(f"{job.title} cancelled")

    connection.talk(work)
