"""`pykueue list`: queues, flavors, Workloads and pods, as kueuectl lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pykueue.cli import kinds, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import Column

if TYPE_CHECKING:
    import msgspec

    from pykueue.api import kube, kueue
    from pykueue.kube.client import Client

    T = TypeVar("T", bound=msgspec.Struct)


@click.group("list", cls=kinds.KindGroup)
def command() -> None:
    """List ClusterQueues, LocalQueues, Workloads, ResourceFlavors or pods."""


@command.command("clusterqueue")
@click.option("--active", type=click.BOOL, is_flag=False, flag_value="true", default=None, help="Only those, or not.")
@kinds.labels
@kinds.fields
@printing.output
@connects
def cluster_queues(
    connection: Connection, active: bool | None, selector: str, field_selector: str, output: str | None
) -> None:
    """List ClusterQueues."""
    from pykueue.api import conditions, kueue
    from pykueue.work import listing

    def is_active(queue: kueue.ClusterQueue) -> bool:
        return conditions.is_true(queue.status.conditions, "Active")

    now = _now()
    found = connection.talk(lambda client, _: _listed(client, kueue.ClusterQueue, "", selector, field_selector))
    columns: list[Column[kueue.ClusterQueue]] = [
        Column("NAME", lambda queue: queue.metadata.name),
        Column("COHORT", lambda queue: queue.spec.cohort_name or ""),
        Column("PENDING WORKLOADS", lambda queue: str(queue.status.pending_workloads)),
        Column("ADMITTED WORKLOADS", lambda queue: str(queue.status.admitted_workloads)),
        Column("ACTIVE", lambda queue: str(is_active(queue)).lower()),
        Column("AGE", lambda queue: listing.age(queue.metadata.creation_timestamp, now)),
    ]
    _show([each for each in found if active in (None, is_active(each))], columns, output)


@command.command("localqueue")
@click.option("-c", "--clusterqueue", default="", help="Only those that lead there.")
@kinds.all_namespaces
@kinds.labels
@kinds.fields
@printing.output
@connects
def local_queues(
    connection: Connection,
    clusterqueue: str,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str | None,
) -> None:
    """List LocalQueues."""
    from pykueue.api import kueue
    from pykueue.work import listing

    async def work(client: Client, namespace: str) -> list[kueue.LocalQueue]:
        return await _listed(client, kueue.LocalQueue, "" if all_namespaces else namespace, selector, field_selector)

    now = _now()
    found = connection.talk(work)
    columns: list[Column[kueue.LocalQueue]] = [
        *([Column[kueue.LocalQueue]("NAMESPACE", lambda queue: queue.metadata.namespace)] if all_namespaces else []),
        Column("NAME", lambda queue: queue.metadata.name),
        Column("CLUSTERQUEUE", lambda queue: queue.spec.cluster_queue or ""),
        Column("PENDING WORKLOADS", lambda queue: str(queue.status.pending_workloads)),
        Column("ADMITTED WORKLOADS", lambda queue: str(queue.status.admitted_workloads)),
        Column("AGE", lambda queue: listing.age(queue.metadata.creation_timestamp, now)),
    ]
    _show([each for each in found if clusterqueue in ("", each.spec.cluster_queue)], columns, output)


@command.command("resourceflavor")
@kinds.labels
@kinds.fields
@printing.output
@connects
def resource_flavors(connection: Connection, selector: str, field_selector: str, output: str | None) -> None:
    """List ResourceFlavors."""
    from pykueue.api import kueue
    from pykueue.work import listing

    now = _now()
    found = connection.talk(lambda client, _: _listed(client, kueue.ResourceFlavor, "", selector, field_selector))
    columns: list[Column[kueue.ResourceFlavor]] = [
        Column("NAME", lambda flavor: flavor.metadata.name),
        Column("NODE LABELS", lambda flavor: ", ".join(sorted(f"{k}={v}" for k, v in flavor.spec.node_labels.items()))),
        Column("AGE", lambda flavor: listing.age(flavor.metadata.creation_timestamp, now)),
    ]
    _show(found, columns, output)


@command.command("workload")
@click.option("-c", "--clusterqueue", default="", help="Only those of this ClusterQueue.")
@click.option("-q", "--localqueue", default="", help="Only those of this LocalQueue.")
@click.option("--status", "wanted", multiple=True, help="all, pending, quotareserved, admitted or finished.")
@click.option("--for", "job", default="", metavar="TYPE[.GROUP]/NAME", help="Only those of this job.")
@kinds.all_namespaces
@kinds.labels
@kinds.fields
@printing.output
@connects
def workloads(
    connection: Connection,
    clusterqueue: str,
    localqueue: str,
    wanted: tuple[str, ...],
    job: str,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str | None,
) -> None:
    """List Workloads with their jobs, and their places in line."""
    from pykueue.api import kueue
    from pykueue.errors import UsageError
    from pykueue.work import listing, making

    chosen = set(making.words(wanted)) or {"all"}
    unknown = chosen - {"all", *listing.Status}
    if unknown:
        raise UsageError(f"--status {sorted(unknown)[0]}: must be all, {', '.join(listing.Status)}")
    owner = listing.of_type(job) if job else None

    async def work(client: Client, namespace: str) -> tuple[list[kueue.Workload], dict[str, str], dict[str, int]]:
        where = "" if all_namespaces else namespace
        found = await _listed(client, kueue.Workload, where, selector, field_selector)
        leads = {
            f"{queue.metadata.namespace}/{queue.metadata.name}": queue.spec.cluster_queue or ""
            for queue in await _listed(client, kueue.LocalQueue, where)
        }
        waiting: dict[str, set[str]] = {}
        for each in found:
            if listing.status(each) is listing.Status.PENDING and each.spec.queue_name:
                waiting.setdefault(each.metadata.namespace, set()).add(each.spec.queue_name)
        return found, leads, await listing.positions(client, waiting)

    found, leads, places = connection.talk(work)

    def queue_of(workload: kueue.Workload) -> str:
        admission = workload.status.admission
        if admission is not None and admission.cluster_queue:
            return admission.cluster_queue
        return leads.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}", "")

    def is_wanted(workload: kueue.Workload) -> bool:
        return (
            clusterqueue in ("", queue_of(workload))
            and localqueue in ("", workload.spec.queue_name)
            and ("all" in chosen or listing.status(workload) in chosen)
            and (owner is None or listing.is_owned_by(workload.metadata, owner))
        )

    def place(workload: kueue.Workload) -> str:
        return str(places.get(f"{workload.metadata.namespace}/{workload.metadata.name}", ""))

    now = _now()
    columns: list[Column[kueue.Workload]] = [
        *([Column[kueue.Workload]("NAMESPACE", lambda each: each.metadata.namespace)] if all_namespaces else []),
        Column("NAME", lambda each: each.metadata.name),
        Column("JOB TYPE", listing.job_types),
        Column("JOB NAME", listing.job_names),
        Column("LOCALQUEUE", lambda each: each.spec.queue_name or ""),
        Column("CLUSTERQUEUE", queue_of),
        Column("STATUS", lambda each: listing.status(each).upper()),
        Column("POSITION IN QUEUE", place),
        Column("EXEC TIME", lambda each: listing.seconds_run(each, now)),
        Column("AGE", lambda each: listing.age(each.metadata.creation_timestamp, now)),
    ]
    _show([each for each in found if is_wanted(each)], columns, output)


@command.command("pods")
@click.option("--for", "job", default="", metavar="TYPE[.GROUP]/NAME", help="A job, or a pod for its group.")
@kinds.all_namespaces
@kinds.labels
@kinds.fields
@printing.output
@connects
def pods(
    connection: Connection, job: str, all_namespaces: bool, selector: str, field_selector: str, output: str | None
) -> None:
    """List the pods of a job, or of the group that a pod belongs to."""
    from pykueue.api import kube, labels
    from pykueue.work import listing

    owner = listing.of_type(job) if job else None

    def group_of(pod: kube.Pod) -> str:
        return pod.metadata.labels.get(labels.POD_GROUP_NAME, "")

    async def work(client: Client, namespace: str) -> list[kube.Pod]:
        found = await _listed(client, kube.Pod, "" if all_namespaces else namespace, selector, field_selector)
        if owner is None:
            return found
        kind, name = owner
        if kind != "pod":
            return [
                pod
                for pod in found
                if (kind, name) in {(o.kind.lower(), o.name) for o in pod.metadata.owner_references}
            ]
        groups = {group_of(pod) for pod in found if pod.metadata.name == name} - {""}
        return [pod for pod in found if pod.metadata.name == name or group_of(pod) in groups]

    now = _now()
    columns: list[Column[kube.Pod]] = [
        *([Column[kube.Pod]("NAMESPACE", lambda pod: pod.metadata.namespace)] if all_namespaces else []),
        Column("NAME", lambda pod: pod.metadata.name),
        Column("STATUS", lambda pod: pod.status.phase or "Pending"),
        Column("AGE", lambda pod: listing.age(pod.metadata.creation_timestamp, now)),
    ]
    _show(connection.talk(work), columns, output)


async def _listed(client: Client, type_: type[T], namespace: str, labels: str = "", fields: str = "") -> list[T]:
    from pykueue.api import codec, registry

    listing = await client.list(registry.ALL.of(type_), namespace, labels=labels, fields=fields)
    return [codec.decode(raw, type_) for raw in listing.items]


def _show(rows: Sequence[T], columns: Sequence[Column[T]], output: str | None) -> None:
    from pykueue.api import codec, registry

    def name(thing: T) -> str:
        row = registry.ALL.of(type(thing))
        return f"{'.'.join(filter(None, (row.singular, row.group)))}/{thing.metadata.name}"  # type: ignore[attr-defined]

    def tree(thing: T) -> dict[str, Any]:
        row = registry.ALL.of(type(thing))
        return {"apiVersion": row.api_version, "kind": row.kind, **codec.to_tree(thing)}

    printing.show(rows, columns, output, name=name, tree=tree, nothing="No resources found")


def _now() -> int:
    from pykueue.clock import SystemClock

    return SystemClock().now()
