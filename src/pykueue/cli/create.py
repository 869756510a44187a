"""`pykueue create`: creates queues and flavors, with the options of kueuectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubemachinery.errors import UsageError
from pykueue.cli import completion_candidates, kinds
from pykueue.cli.connection import Connection, connects
from pykueue.cli.printing import OutputFormat

if TYPE_CHECKING:
    from kubemachinery.client.client import ApiClient


@click.group("create", cls=kinds.KindGroup)
def command() -> None:
    """Create a ClusterQueue, a LocalQueue or a ResourceFlavor."""


@command.command("clusterqueue")
@click.argument("name")
@click.option("--cohort", default="", help="The cohort of the ClusterQueue.")
@click.option("--queuing-strategy", default="", help="StrictFIFO or BestEffortFIFO.")
@click.option(
    "--namespace-selector", multiple=True, help="KEY=VALUE,... labels of its namespaces (default: all namespaces)."
)
@click.option(
    "--reclaim-within-cohort", default="", help="Preemption of Workloads in the cohort: Never, LowerPriority or Any."
)
@click.option(
    "--preemption-within-cluster-queue",
    default="",
    help="Preemption in the same ClusterQueue: Never, LowerPriority or LowerOrNewerEqualPriority.",
)
@click.option("--nominal-quota", multiple=True, help="FLAVOR:RESOURCE=AMOUNT;...,FLAVOR:...")
@click.option("--borrowing-limit", multiple=True, help="Borrowing limits, in the form of --nominal-quota.")
@click.option("--lending-limit", multiple=True, help="Lending limits, in the form of --nominal-quota.")
@kinds.dry_run
@kinds.prints
@connects
def cluster_queue(
    connection: Connection,
    name: str,
    cohort: str,
    queuing_strategy: str,
    namespace_selector: tuple[str, ...],
    reclaim_within_cohort: str,
    preemption_within_cluster_queue: str,
    nominal_quota: tuple[str, ...],
    borrowing_limit: tuple[str, ...],
    lending_limit: tuple[str, ...],
    dry_run: str,
    form: OutputFormat,
) -> None:
    """Create a ClusterQueue.

    \b
    pykueue create clusterqueue research --cohort all --nominal-quota "a100:cpu=9;memory=36Gi,spot:cpu=99;memory=1Ti"
    """
    from pykueue.client import object_creation

    tree = object_creation.cluster_queue(
        name,
        cohort=cohort,
        strategy=queuing_strategy,
        namespace_labels=object_creation.pairs("namespace-selector", namespace_selector),
        reclaim_within_cohort=reclaim_within_cohort,
        within_cluster_queue=preemption_within_cluster_queue,
        limits={
            "nominal-quota": nominal_quota,
            "borrowing-limit": borrowing_limit,
            "lending-limit": lending_limit,
        },
    )
    _create(connection, tree, dry_run, form)


@command.command("localqueue")
@click.argument("name")
@click.option(
    "-c",
    "--clusterqueue",
    required=True,
    shell_complete=completion_candidates.objects("clusterqueue"),
    help="The ClusterQueue of the LocalQueue.",
)
@click.option("-i", "--ignore-unknown-cq", is_flag=True, help="Create it even if the ClusterQueue does not exist.")
@kinds.dry_run
@kinds.prints
@connects
def local_queue(
    connection: Connection, name: str, clusterqueue: str, ignore_unknown_cq: bool, dry_run: str, form: OutputFormat
) -> None:
    """Create a LocalQueue of a ClusterQueue."""
    from pykueue.api import kueue, registry
    from pykueue.client import object_creation

    async def work(client: ApiClient, namespace: str) -> dict[str, Any]:
        row = registry.KUEUE.of(kueue.ClusterQueue)
        if not ignore_unknown_cq and await client.find(row, clusterqueue) is None:
            raise UsageError(f"ClusterQueue {clusterqueue} does not exist; -i creates the LocalQueue anyway")
        return object_creation.local_queue(name, namespace, clusterqueue)

    _create(connection, connection.talk(work), dry_run, form)


@command.command("resourceflavor")
@click.argument("name")
@click.option("--node-labels", multiple=True, help="KEY=VALUE,... labels of its nodes.")
@click.option("--node-taints", multiple=True, help="KEY[=VALUE]:EFFECT,... taints of its nodes.")
@click.option("--tolerations", multiple=True, help="KEY[=VALUE][:EFFECT],... tolerations that its pods get.")
@kinds.dry_run
@kinds.prints
@connects
def resource_flavor(
    connection: Connection,
    name: str,
    node_labels: tuple[str, ...],
    node_taints: tuple[str, ...],
    tolerations: tuple[str, ...],
    dry_run: str,
    form: OutputFormat,
) -> None:
    """Create a ResourceFlavor."""
    from pykueue.client import object_creation

    labels = object_creation.pairs("node-labels", node_labels)
    tree = object_creation.resource_flavor(name, labels=labels, taints=node_taints, tolerations=tolerations)
    _create(connection, tree, dry_run, form)


def _create(connection: Connection, tree: dict[str, Any], dry_run: str, form: OutputFormat) -> None:
    from pykueue.api import registry

    async def work(client: ApiClient, namespace: str) -> dict[str, Any]:
        found = registry.KUEUE.find(tree["apiVersion"], tree["kind"])
        assert found is not None
        return await client.create(found[0], tree, dry_run=dry_run == "server")

    made = tree if dry_run == "client" else connection.talk(work)
    kinds.print_result(made, form, "created", dry_run)
