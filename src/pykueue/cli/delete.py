"""`pykueue delete`: Workloads with their jobs; queues and flavors through kubectl."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kubemachinery.errors import UsageError
from pykueue.cli import completion_candidates, kinds
from pykueue.cli.connection import Connection, connects

if TYPE_CHECKING:
    from kubemachinery import meta
    from kubemachinery.client.client import ApiClient
    from pykueue.api import kueue


@click.group("delete", cls=kinds.KindGroup)
def command() -> None:
    """Delete a Workload with its job, or a queue or flavor."""


@command.command("workload")
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=completion_candidates.objects("workload"))
@click.option("--all", "everything", is_flag=True, help="All Workloads of the namespace.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@kinds.all_namespaces
@kinds.dry_run
@connects
def workload(
    connection: Connection, names: tuple[str, ...], everything: bool, yes: bool, all_namespaces: bool, dry_run: str
) -> None:
    """Delete Workloads together with their jobs."""
    from kubemachinery import codec
    from pykueue.api import kueue, registry

    if everything == bool(names):
        raise UsageError("delete workload: name Workloads, or use --all")
    if all_namespaces and names:
        raise UsageError("delete workload: names cannot be combined with --all-namespaces")

    async def find(client: ApiClient, namespace: str) -> list[kueue.Workload]:
        row = registry.KUEUE.of(kueue.Workload)
        if names:
            return [codec.from_tree(await client.get(row, name, namespace), kueue.Workload) for name in names]
        listing = await client.list(row, "" if all_namespaces else namespace)
        return [codec.decode(raw, kueue.Workload) for raw in listing.items]

    found = connection.talk(find)
    if not found:
        click.echo("No resources found", err=True)
        return
    if not yes and dry_run == "none" and not _agreed(found):
        click.echo("Deletion is canceled")
        return
    connection.talk(lambda client, _: _delete(client, found, dry_run))


def _agreed(found: list[kueue.Workload]) -> bool:
    """Whether the user confirms; asked only if jobs would be deleted too."""
    with_jobs = [each for each in found if each.metadata.owner_references]
    if not with_jobs:
        return True
    click.echo("This operation will also delete:")
    for each in with_jobs:
        jobs = ", ".join(_named(owner) for owner in each.metadata.owner_references)
        click.echo(f"  - {jobs} associated with the {each.metadata.namespace}/{each.metadata.name} workload")
    click.echo("Do you want to proceed (y/n)? ", nl=False)
    # The end of the input is a refusal, as in kueuectl: a script without a terminal deletes nothing.
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        click.echo()
    return answer.strip().lower() in ("y", "yes")


def _named(owner: meta.OwnerReference) -> str:
    group = owner.api_version.rpartition("/")[0]
    return f"{'.'.join(filter(None, (f'{owner.kind.lower()}s', group)))}/{owner.name}"


async def _delete(client: ApiClient, found: list[kueue.Workload], dry_run: str) -> None:
    """Delete the jobs, then the Workloads that still exist. Objects that are already deleted are not an error."""
    from kubemachinery.kinds import Kind, Version
    from pykueue.api import kueue, registry

    workloads = registry.KUEUE.of(kueue.Workload)
    for each in found:
        rows = [(workloads, each.metadata.name, f"workload.{kinds.GROUP}/{each.metadata.name}")]
        for owner in each.metadata.owner_references:
            group, _, version = owner.api_version.rpartition("/")
            known = registry.ALL.find(owner.api_version, owner.kind)
            row = (
                known[0]
                if known
                else Kind(group, owner.kind, f"{owner.kind.lower()}s", (Version(version, storage=True),))
            )
            rows.insert(0, (row, owner.name, _named(owner)))
        for row, name, title in rows:
            if dry_run != "client":
                await client.delete(row, name, each.metadata.namespace, dry_run=dry_run == "server")
            click.echo(f"{title} deleted{kinds.DRY[dry_run]}")


for _kind in ("clusterqueue", "localqueue", "resourceflavor"):
    command.add_command(kinds.through_kubectl("delete", _kind))
