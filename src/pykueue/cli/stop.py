"""`pykueue stop`: stops queues and Workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pykueue.cli import completion_candidates, flags, kinds
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient


@click.group("stop", cls=kinds.KindGroup)
def command() -> None:
    """Stop a ClusterQueue, a LocalQueue or a Workload."""


def _stops_queue(kind: str, title: str) -> click.Command:
    @click.command(kind, cls=flags.Command)
    @click.argument("name", shell_complete=completion_candidates.objects(kind))
    @click.option("--keep-already-running", is_flag=True, help="Keep admitted Workloads running; admit no new ones.")
    @kinds.dry_run
    @kinds.prints
    @connects
    def stop(connection: Connection, name: str, keep_already_running: bool, dry_run: str, form: OutputFormat) -> None:
        policy = "Hold" if keep_already_running else "HoldAndDrain"
        change(connection, kind, name, {"stopPolicy": policy}, "stopped", dry_run, form)

    stop.help = f"Stop a {title}: admitted Workloads are evicted, and no new ones are admitted."
    return stop


@click.command("workload", cls=flags.Command)
@click.argument("name", shell_complete=completion_candidates.objects("workload"))
@kinds.dry_run
@kinds.prints
@connects
def _workload(connection: Connection, name: str, dry_run: str, form: OutputFormat) -> None:
    """Stop a Workload, by its name or its job's: it is evicted, and is not queued until it is resumed."""
    change(connection, "workload", name, {"active": False}, "stopped", dry_run, form)


command.add_command(_stops_queue("clusterqueue", "ClusterQueue"))
command.add_command(_stops_queue("localqueue", "LocalQueue"))
command.add_command(_workload)


def change(
    connection: Connection,
    kind: str,
    given: str,
    spec: dict[str, Any],
    done: str,
    dry_run: str,
    form: OutputFormat,
) -> None:
    """Patch the spec of one object, and print the result."""
    from pykueue.api import registry

    row = next(row for row in registry.KUEUE if row.singular == kind)

    async def work(client: ApiClient, namespace: str) -> dict[str, Any]:
        where = namespace if row.namespaced else ""
        name = await _workload_name(client, where, given) if kind == "workload" else given
        if dry_run == "client":
            found = await client.get(row, name, where)
            return {**found, "spec": {**found.get("spec", {}), **spec}}
        return await client.patch(row, name, {"spec": spec}, where, dry_run=dry_run == "server")

    kinds.print_result(connection.talk(work), form, done, dry_run)


async def _workload_name(client: ApiClient, namespace: str, given: str) -> str:
    """The Workload with this name, or the Workload of the job with this name."""
    from pykueue.client.job_service import JobService
    from pykueue.client.queued_job import WORKLOADS

    if await client.find(WORKLOADS, given, namespace) is not None:
        return given
    service = JobService(client, namespace)
    if (job := await service.find_job(given)) is not None and (workload := await service.workload(job)) is not None:
        return workload.metadata.name
    return given  # the server refuses it
