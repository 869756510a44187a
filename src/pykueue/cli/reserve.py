"""`pykueue reserve`: advance reservations of quota, as QuotaSchedules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kubemachinery.errors import UsageError
from pykueue.cli import flags, kinds, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient
    from pykueue.api.quota_schedule import QuotaSchedule

_NANOSECONDS = 1_000_000_000


class _ReserveGroup(click.Group):
    """Commands; a first word that is none of them is the name of a new reservation."""

    command_class = flags.Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["create", *args]
        return super().resolve_command(ctx, args)


@click.group("reserve", cls=_ReserveGroup)
def command() -> None:
    """Reserve quota for a time: create, list and delete QuotaSchedules.

    `pykueue reserve NAME …` is `pykueue reserve create NAME …`.
    """


@command.command("create")
@click.argument("name")
@click.option("--gpus", default=None, help="How many GPUs (nvidia.com/gpu).")
@click.option("--resource", "resources", multiple=True, help="RESOURCE=AMOUNT, such as cpu=64, instead of --gpus.")
@click.option("--flavor", required=True, help="The ResourceFlavor.")
@click.option("--from", "source", required=True, help="The ClusterQueue that gives the quota.")
@click.option("--to", "target", default="", help="The ClusterQueue that gets it (default: NAME).")
@click.option("--at", required=True, help="When it begins: 'tue 14:00', 14:00 or 2026-12-18T09:00.")
@click.option("--for", "length", required=True, help="How long it lasts, such as 2h.")
@click.option("--weekly", "repeat", flag_value="weekly", default=None, help="Every week.")
@click.option("--daily", "repeat", flag_value="daily", help="Every day.")
@click.option("--time-zone", default="UTC", show_default=True, help="The time zone of --at, such as Europe/Berlin.")
@click.option("--end-before", is_flag=True, help="Before the start, admit no Workload that would still hold the quota.")
@click.option("--evict", is_flag=True, help="At the start, evict as few Workloads as needed.")
@click.option("--notice", default="", help="With --evict: an Event this long before, such as 10m.")
@kinds.dry_run
@kinds.prints
@connects
def create(
    connection: Connection,
    name: str,
    gpus: str | None,
    resources: tuple[str, ...],
    flavor: str,
    source: str,
    target: str,
    at: str,
    length: str,
    repeat: str | None,
    time_zone: str,
    end_before: bool,
    evict: bool,
    notice: str,
    dry_run: str,
    form: OutputFormat,
) -> None:
    """Reserve quota of one ClusterQueue for another."""
    from pykueue.api import registry
    from pykueue.client.quota_reservation import GPU, QuotaReservation

    if (gpus is None) == (not resources):
        raise UsageError("reserve: name the amount, with --gpus 16 or with --resource cpu=64")
    if len(resources) > 1:
        given = " ".join(f"--resource {each}" for each in resources)
        raise UsageError(f"reserve: {given}: one reservation is of one resource; make another one for each further")
    resource, _, amount = (resources[0] if resources else f"{GPU}={gpus}").partition("=")
    if not _is_positive(amount):
        raise UsageError(f"reserve: {resource}={amount} is not a resource with a positive amount")
    if _is_unlimited(resource, amount):
        raise UsageError(f"reserve: {resource}={amount} is more than a quota can be")
    tree = QuotaReservation(
        name,
        resource,
        amount,
        flavor,
        source,
        target or name,
        at,
        length,
        repeat or "",
        time_zone,
        evict,
        notice,
        end_before,
    ).document(time.time_ns())
    _check(tree)

    async def work(client: ApiClient, namespace: str) -> tuple[dict[str, Any], list[str]]:
        made = await client.create(_row(), tree, dry_run=dry_run == "server")
        return made, await _warnings(client, tree)

    def _row() -> Any:
        found = registry.EXTENSIONS.find(tree["apiVersion"], tree["kind"])
        assert found is not None
        return found[0]

    made, warnings = (tree, []) if dry_run == "client" else connection.talk(work)
    for warning in warnings:
        click.echo(f"warning: quotaschedule.pykueue.io/{name}: {warning}", err=True)
    if form.is_document:
        form.document(made)
    else:
        click.echo(f"quotaschedule.pykueue.io/{name} created{kinds.DRY[dry_run]}")


def _is_positive(amount: str) -> bool:
    from kubemachinery import quantity

    try:
        return quantity.parse(amount).rounded(-3) > 0
    except quantity.QuantityError:
        return False


def _is_unlimited(resource: str, amount: str) -> bool:
    from kubemachinery import quantity
    from pykueue.core import amounts

    return amounts.of_quota(resource, quantity.parse(amount)) == amounts.UNLIMITED


async def _warnings(client: ApiClient, tree: dict[str, Any]) -> list[str]:
    """What `pykueue lint` would report of the reservation; nothing where ClusterQueues may not be read."""
    from kubemachinery import codec
    from kubemachinery.client import errors
    from pykueue.analysis import lint
    from pykueue.api import kueue, registry
    from pykueue.api.quota_schedule import QuotaSchedule

    schedule = codec.from_tree(tree, QuotaSchedule)
    names = sorted({target.cluster_queue for target in schedule.spec.targets if target.cluster_queue})
    try:
        found = [await client.find(registry.KUEUE.of(kueue.ClusterQueue), name) for name in names]
    except errors.ApiError:
        return []
    queues = [codec.from_tree(raw, kueue.ClusterQueue) for raw in found if raw is not None]
    return lint.schedule_warnings(schedule, queues)


def _check(tree: dict[str, Any]) -> None:
    """Refuse before a request what the server would refuse."""
    from pykueue import calendars
    from pykueue.api import validation

    errors = validation.validate(tree) or list(calendars.problems(tree))
    if errors:
        raise UsageError(f"reserve: {errors[0]}")


@command.command("list")
@click.option("--until", "until_text", default="+14d", show_default=True, help="How far ahead, such as +14d or +36h.")
@printing.prints("json", "yaml")
@connects
def list_windows(connection: Connection, until_text: str, form: OutputFormat) -> None:
    """List the windows of all QuotaSchedules, with those that clash."""
    from kubemachinery import meta
    from pykueue.client import quota_reservation

    now = time.time_ns() // _NANOSECONDS * _NANOSECONDS
    end = quota_reservation.until(until_text, now)
    found = quota_reservation.rows(connection.talk(_schedules), now, end)
    if form.is_document:
        printing.document(
            {
                "windows": [
                    {
                        "schedule": row.schedule,
                        "window": row.window,
                        "start": meta.format_time(row.start),
                        "end": meta.format_time(row.end),
                        "quotas": row.quotas,
                        "clashes": list(row.clashes),
                    }
                    for row in found
                ]
            },
            form.word,
        )
        return
    if not found:
        click.echo("No windows found", err=True)
        return
    lines = [
        (
            row.schedule,
            row.window,
            meta.format_time(row.start),
            meta.format_time(row.end),
            row.quotas,
            ",".join(row.clashes),
        )
        for row in found
    ]
    titles = ("SCHEDULE", "WINDOW", "START", "END", "QUOTAS", "CLASHES")
    widths = [max(len(row[n]) for row in (titles, *lines)) for n in range(len(titles))]
    for row in (titles, *lines):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


async def _schedules(client: ApiClient, namespace: str) -> list[QuotaSchedule]:
    from kubemachinery import codec
    from pykueue.api import registry
    from pykueue.api.quota_schedule import QuotaSchedule

    listing = await client.list(registry.EXTENSIONS.of(QuotaSchedule))
    return [codec.decode(raw, QuotaSchedule) for raw in listing.items]


@command.command("delete")
@click.argument("name")
@connects
def delete(connection: Connection, name: str) -> None:
    """Delete a reservation. Its windows end at once."""
    from pykueue.api import registry
    from pykueue.api.quota_schedule import QuotaSchedule

    async def work(client: ApiClient, namespace: str) -> None:
        kind = registry.EXTENSIONS.of(QuotaSchedule)
        if await client.find(kind, name) is None:
            raise UsageError(f"quotaschedule.pykueue.io {name} does not exist")
        await client.delete(kind, name)

    connection.talk(work)
    click.echo(f"quotaschedule.pykueue.io/{name} deleted")
