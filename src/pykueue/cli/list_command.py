"""`pykueue list`: queues, flavors, Workloads and pods, with the columns of kueuectl."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import click
import msgspec

from pykueue.cli import completion_candidates, flags, kinds, printing
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat, TableColumn

if TYPE_CHECKING:
    import msgspec

    from kubemachinery.client.client import ApiClient
    from kubemachinery.kinds import Kind
    from pykueue.api import kube, kueue
    from pykueue.client.listing import ListContext

T = TypeVar("T", bound="msgspec.Struct")
Lister = TypeVar("Lister", bound=Callable[..., None])


@click.group("list", cls=kinds.KindGroup)
def command() -> None:
    """List ClusterQueues, LocalQueues, Workloads, ResourceFlavors or pods."""


# --- What all lists have in common ------------------------------------------------------------------------------------


class ListedObjects(msgspec.Struct, Generic[T], frozen=True):
    """Objects of the server, typed and as received."""

    row: Kind
    things: Sequence[T]
    # By namespace and name.
    trees: Mapping[tuple[str, str], Mapping[str, Any]]

    def tree(self, thing: Any) -> dict[str, Any]:
        tree = self.trees[thing.metadata.namespace, thing.metadata.name]
        return {"apiVersion": self.row.api_version, "kind": self.row.kind, **tree}

    def name(self, thing: Any) -> str:
        return f"{'.'.join(filter(None, (self.row.singular, self.row.group)))}/{thing.metadata.name}"


class ListQuery(msgspec.Struct, frozen=True):
    """The selected objects, the connection, and the output format."""

    connection: Connection
    form: OutputFormat
    labels: str
    fields: str
    everywhere: bool

    def of(self, type_: type[T]) -> ListedObjects[T]:
        return self.connection.talk(lambda client, namespace: self.listed(client, namespace, type_))

    async def listed(self, client: ApiClient, namespace: str, type_: type[T]) -> ListedObjects[T]:
        import msgspec

        from kubemachinery import codec
        from pykueue.api import registry

        row = registry.ALL.of(type_)
        where = "" if self.everywhere or not row.namespaced else namespace
        items = (await client.list(row, where, labels=self.labels, fields=self.fields)).items
        things = [codec.decode(raw, type_) for raw in items]
        trees = [msgspec.json.decode(raw) for raw in items]
        by_name = {(tree["metadata"].get("namespace", ""), tree["metadata"]["name"]): tree for tree in trees}
        return ListedObjects(row, things, by_name)

    def show(
        self, found: ListedObjects[T], columns: Sequence[TableColumn[T]], *, where: Callable[[T], bool] | None = None
    ) -> None:
        """Print a table: names first, ages last."""
        from kubemachinery.clock import SystemClock
        from pykueue.client import listing

        now = SystemClock().now()
        namespace: TableColumn[Any] = TableColumn("NAMESPACE", lambda thing: thing.metadata.namespace)
        name: TableColumn[Any] = TableColumn("NAME", lambda thing: thing.metadata.name)
        age: TableColumn[Any] = TableColumn("AGE", lambda thing: listing.age(thing.metadata.creation_timestamp, now))
        printing.show(
            [thing for thing in found.things if where is None or where(thing)],
            [*([namespace] if self.everywhere else []), name, *columns, age],
            self.form,
            name=found.name,
            tree=found.tree,
            nothing="No resources found",
        )


def _list_options(*, of_namespaces: bool) -> Callable[[Lister], Lister]:
    """Add the options for selection and output; the command receives them as one `query`."""

    def decorate(lister: Lister) -> Lister:
        @functools.wraps(lister)
        def parsed(
            *args: Any,
            connection: Connection,
            form: OutputFormat,
            selector: str,
            field_selector: str,
            all_namespaces: bool = False,
            **kwargs: Any,
        ) -> None:
            lister(*args, query=ListQuery(connection, form, selector, field_selector, all_namespaces), **kwargs)

        options = (kinds.labels, kinds.fields, printing.prints("wide", "name", "json", "yaml"), connects)
        for option in reversed((kinds.all_namespaces, *options) if of_namespaces else options):
            parsed = option(parsed)
        return cast("Lister", parsed)

    return decorate


def _of(short: str, kind: str, *, help: str) -> Callable[[Lister], Lister]:
    """An option for the name of a queue, with completion."""
    return click.option(short, f"--{kind}", default="", shell_complete=completion_candidates.objects(kind), help=help)


# --- Queues and flavors -----------------------------------------------------------------------------------------------


@command.command("clusterqueue")
@click.option(
    "--active",
    cls=flags.LooseOption,
    alone="true",
    spaced=("true", "false"),
    type=click.BOOL,
    default=None,
    help="Only active ClusterQueues; false: only inactive ones.",
)
@_list_options(of_namespaces=False)
def cluster_queues(query: ListQuery, active: bool | None) -> None:
    """List ClusterQueues."""
    from kubemachinery import conditions
    from pykueue.api import kueue

    def is_active(queue: kueue.ClusterQueue) -> bool:
        return conditions.is_true(queue.status.conditions, "Active")

    columns: list[TableColumn[kueue.ClusterQueue]] = [
        TableColumn("COHORT", lambda queue: queue.spec.cohort_name or ""),
        TableColumn("PENDING WORKLOADS", lambda queue: str(queue.status.pending_workloads)),
        TableColumn("ADMITTED WORKLOADS", lambda queue: str(queue.status.admitted_workloads)),
        TableColumn("ACTIVE", lambda queue: str(is_active(queue)).lower()),
    ]
    query.show(query.of(kueue.ClusterQueue), columns, where=lambda queue: active in (None, is_active(queue)))


@command.command("localqueue")
@_of("-c", "clusterqueue", help="Only LocalQueues of this ClusterQueue.")
@_list_options(of_namespaces=True)
def local_queues(query: ListQuery, clusterqueue: str) -> None:
    """List LocalQueues."""
    from pykueue.api import kueue

    columns: list[TableColumn[kueue.LocalQueue]] = [
        TableColumn("CLUSTERQUEUE", lambda queue: queue.spec.cluster_queue or ""),
        TableColumn("PENDING WORKLOADS", lambda queue: str(queue.status.pending_workloads)),
        TableColumn("ADMITTED WORKLOADS", lambda queue: str(queue.status.admitted_workloads)),
    ]
    query.show(query.of(kueue.LocalQueue), columns, where=lambda queue: clusterqueue in ("", queue.spec.cluster_queue))


@command.command("resourceflavor")
@_list_options(of_namespaces=False)
def resource_flavors(query: ListQuery) -> None:
    """List ResourceFlavors."""
    from pykueue.api import kueue

    columns: list[TableColumn[kueue.ResourceFlavor]] = [
        TableColumn(
            "NODE LABELS", lambda flavor: ", ".join(sorted(f"{k}={v}" for k, v in flavor.spec.node_labels.items()))
        ),
    ]
    query.show(query.of(kueue.ResourceFlavor), columns)


# --- Work -------------------------------------------------------------------------------------------------------------


@command.command("workload")
@_of("-c", "clusterqueue", help="Only Workloads of this ClusterQueue.")
@_of("-q", "localqueue", help="Only Workloads of this LocalQueue.")
@click.option("--status", "statuses", multiple=True, help="all, pending, quotareserved, admitted or finished.")
@click.option("--for", "job", default="", metavar="TYPE[.GROUP]/NAME", help="Only Workloads of this job.")
@_list_options(of_namespaces=True)
def workloads(query: ListQuery, clusterqueue: str, localqueue: str, statuses: tuple[str, ...], job: str) -> None:
    """List Workloads with their jobs and their positions in the queue."""
    from pykueue.api import kueue
    from pykueue.client import listing, object_creation

    options = listing.WorkloadFilter(
        clusterqueue, localqueue, listing.statuses(object_creation.words(statuses)), listing.of_type(job)
    )

    async def work(client: ApiClient, namespace: str) -> tuple[ListedObjects[kueue.Workload], ListContext]:
        found = await query.listed(client, namespace, kueue.Workload)
        return found, await listing.list_context(client, found.things, "" if query.everywhere else namespace)

    found, list_context = query.connection.talk(work)
    query.show(found, _workload_columns(list_context), where=lambda workload: options.takes(workload, list_context))


def _workload_columns(list_context: ListContext) -> list[TableColumn[kueue.Workload]]:
    from kubemachinery.clock import SystemClock
    from pykueue.client import listing

    now = SystemClock().now()
    return [
        TableColumn("JOB TYPE", listing.job_types),
        TableColumn("JOB NAME", listing.job_names),
        TableColumn("LOCALQUEUE", lambda workload: workload.spec.queue_name or ""),
        TableColumn("CLUSTERQUEUE", list_context.cluster_queue),
        TableColumn("STATUS", lambda workload: listing.status(workload).upper()),
        TableColumn("POSITION IN QUEUE", list_context.place),
        TableColumn("EXEC TIME", lambda workload: listing.seconds_run(workload, now)),
    ]


@command.command("pods")
@click.option("--for", "job", default="", metavar="TYPE[.GROUP]/NAME", help="A job, or a pod of a pod group.")
@_list_options(of_namespaces=True)
def pods(query: ListQuery, job: str) -> None:
    """List the pods of a job, or of the pod group of a pod."""
    from pykueue.api import kube
    from pykueue.client import listing, queued_job
    from pykueue.client.job_service import JobService

    columns: list[TableColumn[kube.Pod]] = [TableColumn("STATUS", lambda pod: pod.status.phase or "Pending")]
    owner = listing.of_type(job)

    async def work(client: ApiClient, namespace: str) -> tuple[ListedObjects[kube.Pod], set[str]]:
        """The pods, and the UIDs of those of a job, whose pods may belong to it through other objects."""
        found = await query.listed(client, namespace, kube.Pod)
        service = JobService(client, namespace)
        is_job = owner is not None and not query.everywhere and queued_job.row_named(owner[0]) is not None
        queued = await service.find_job("/".join(owner)) if owner is not None and is_job else None
        own = await service.pods(queued) if queued is not None else []
        return found, {pod.metadata.uid for pod in own}

    found, own = query.connection.talk(work)
    is_owned = listing.belongs_to(owner, found.things)
    query.show(found, columns, where=lambda pod: pod.metadata.uid in own or is_owned(pod))
