"""`pykueue wait`: waits until jobs have finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pykueue.cli import completion_candidates
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import aside, progress
from pykueue.errors import NegativeResult

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from pykueue.client.job_service import JobService


@click.command("wait")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion_candidates.jobs())
@click.option("--timeout", default="", help="The time limit, such as 90s or 2h.")
@connects
def command(connection: Connection, names: tuple[str, ...], timeout: str) -> None:
    """Wait until jobs have finished: exit code 0 when all succeeded, 1 when one did not.

    An unreachable server is retried for up to 5 minutes.
    """
    from pykueue.client import job_request, job_service, job_status

    most = float(job_request.seconds(timeout, "--timeout")) if timeout else None

    async def work(client: ApiClient, namespace: str) -> list[str]:
        service = job_service.JobService(client, namespace, aside)
        await warn_if_pods_do_not_run(service)
        failed = []
        for job in await service.jobs(names):
            with progress() as report:
                over = await service.finished(job.reference, report, most)
            click.echo(f"{job.title} {over.outcome}")
            if over.state is not job_status.JobState.SUCCEEDED:
                failed.append(job.name)
        return failed

    if connection.talk(work):
        raise NegativeResult("")


async def warn_if_pods_do_not_run(service: JobService) -> None:
    """Print a notice if the server runs no pods, so that jobs do not end by themselves."""
    from kubemachinery.clock import SystemClock

    if not await service.runs_pods(SystemClock().now()):
        click.echo("pods do not run here (`pykueue up --runner none`): a job ends when its status is written", err=True)
