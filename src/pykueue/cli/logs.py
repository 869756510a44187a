"""`pykueue logs`: prints the log of a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kubemachinery.errors import UsageError
from pykueue.cli import completion_candidates, flags, output_may_close
from pykueue.cli.connection import Connection, connects
from pykueue.cli.progress import aside, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubemachinery.client.client import ApiClient
    from pykueue.client.pod_logs import LogLine


@click.command("logs")
@click.argument("name", required=False, default="", shell_complete=completion_candidates.jobs())
@click.option("-f", "--follow", is_flag=True, help="Continue until the job has finished.")
@click.option("-p", "--previous", is_flag=True, help="Show the log of the previous container instance.")
@click.option("--tail", type=flags.IntegerRange(0), default=None, help="Only this many last lines of each pod.")
@click.option("-c", "--container", default="", help="The container (default: the first one).")
@connects
def command(connection: Connection, name: str, follow: bool, previous: bool, tail: int | None, container: str) -> None:
    """Show the log of job NAME or TYPE/NAME, or of the job that was submitted last.

    Where a job has several pods, each line begins with the name of its pod. With -f, an unreachable server is retried
    for up to 5 minutes, and no line is printed twice.
    """
    from pykueue.cli.wait import warn_if_pods_do_not_run
    from pykueue.client import job_service, pod_logs

    async def work(client: ApiClient, namespace: str) -> None:
        service = job_service.JobService(client, namespace, aside)
        job = await service.find_job(name) if name else await service.newest()
        if job is None:
            if await _print_kept(client, namespace, name, tail):
                return
            job = await service.job(name)  # raises that it is not found
        options = pod_logs.PodLogOptions(follow=follow, previous=previous, tail=tail, container=container)
        if follow:
            await warn_if_pods_do_not_run(service)
        with progress() as report:
            await service.logs(job.reference, options, printed(job.has_several_pods), report)

    connection.talk(work)


async def _print_kept(client: ApiClient, namespace: str, name: str, tail: int | None) -> bool:
    """Print the kept log of a deleted job, the last one of this NAME or TYPE/NAME. Returns whether there is one."""
    from kubemachinery.client import errors
    from pykueue.client import job_history, pod_logs, queued_job
    from pykueue.history import records

    type_, _, short = name.rpartition("/")
    row = queued_job.row_named(type_)
    wanted = job_history.HistoryRequest(namespace=namespace, name=short)
    try:
        found = [
            record
            async for record in job_history.records(client, wanted)
            # Jobs of several kinds may have had this name.
            if row is None or record.job_kind == records.job_kind(row.kind.kind, row.kind.group)
        ]
    except (UsageError, errors.ApiError):
        return False
    for record in sorted(found, key=lambda one: one.submitted or "", reverse=True):
        if await _print_ending(client, namespace, record.job_uid, record.job, tail):
            return True
        logs = await job_history.kept_log(client, namespace, record.job_uid, tail)
        if logs:
            aside(f"job {record.job} is deleted; this is its last log")
            write = printed(len({each["pod"] for each in logs}) > 1)
            for each in logs:
                for line in each["text"].splitlines():
                    write(pod_logs.LogLine(each["pod"], line.encode()))
            return True
    return False


async def _print_ending(client: ApiClient, namespace: str, job_uid: str, job: str, tail: int | None) -> bool:
    """Print the log of a deleted job whose processes have not ended yet. Returns whether it has such pods."""
    from kubemachinery import codec
    from pykueue.api import kube
    from pykueue.client import pod_logs

    listing = await client.list(pod_logs.PODS, namespace)
    found = (codec.decode(bytes(item), kube.Pod) for item in listing.items)
    pods = [pod for pod in found if any(owner.uid == job_uid for owner in pod.metadata.owner_references)]
    begun = [pod for pod in pods if pod_logs.has_begun(pod, "")]
    if not begun:
        return False
    aside(f"job {job} is deleted and its pods are ending; this is its log so far")
    write = printed(len(begun) > 1)
    for pod in sorted(begun, key=lambda each: each.metadata.name):
        await pod_logs.PodLogReader(client, pod, pod_logs.PodLogOptions(tail=tail), write).read()
    return True


def printed(several: bool) -> Callable[[LogLine], None]:
    """A function that prints log lines; with several pods, each line begins with the name of its pod."""

    def write(line: LogLine) -> None:
        head = f"[{line.pod}] ".encode() if several else b""
        with output_may_close():
            sys.stdout.buffer.write(head + line.text.removesuffix(b"\n") + b"\n")
            sys.stdout.buffer.flush()

    return write
