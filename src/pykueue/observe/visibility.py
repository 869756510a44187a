"""Pending Workloads and their positions: the lists of the API `visibility.kueue.x-k8s.io`.

    in_cluster_queue(queue)        the pending Workloads of a ClusterQueue, in queue order
    in_local_queue(queue, ...)     those of one LocalQueue, with their positions in that order
    summary(positions, find)       a page of a list as the API returns it

A list contains active, inadmissible and in-flight Workloads in the order in which they would be tried: an inadmissible
Workload has a position too. A Workload that may not be queued is in no queue, and therefore in no list.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Annotated, Final, NamedTuple

from kubemachinery import codec
from kubemachinery.fields import Field, Int32, Time
from kubemachinery.meta import ApiStruct, OwnerReference
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, schema
from pykueue.core import ordering
from pykueue.core.workload import WorkloadInfo
from pykueue.state.pending_queue import PendingQueue

GROUP: Final = kueue.VISIBILITY_GROUP
VERSIONS: Final = kueue.VISIBILITY_VERSIONS
KIND: Final = "PendingWorkloadsSummary"
SERVICE: Final = "kueue-visibility-server"
SERVICE_PORT: Final = 443
BIND_PORT: Final = 8082
LIMIT: Final = 1000
LIMIT_MAX: Final = 100_000

# The object of a Workload, by `namespace/name`.
Find = Callable[[str], kueue.Workload | None]
Annotate = Callable[[kueue.Workload], dict[str, str]]


class QueuePosition(NamedTuple):
    """The positions of a pending Workload; both start at 0."""

    key: str
    local_queue: str  # namespace/name
    in_cluster_queue: int
    in_local_queue: int


def in_cluster_queue(queue: PendingQueue) -> Iterator[QueuePosition]:
    """Yield the positions of the pending Workloads of a ClusterQueue; Workloads in requeue backoff have none."""
    seen: Counter[str] = Counter()
    for position, workload in enumerate(_in_order(queue)):
        local_queue = _local_queue(workload)
        yield QueuePosition(workload.key, local_queue, position, seen[local_queue])
        seen[local_queue] += 1


def in_local_queue(queue: PendingQueue, namespace: str, name: str) -> Iterator[QueuePosition]:
    """Yield the positions of the Workloads of one LocalQueue."""
    return (place for place in in_cluster_queue(queue) if place.local_queue == f"{namespace}/{name}")


def _in_order(queue: PendingQueue) -> list[WorkloadInfo]:
    """Sort by the usage of the LocalQueue (admission fair sharing), then the Workload that waits for its preemption
    targets, then the queue order.

    Sorting is stable, so the keys are applied from the last to the first. Three cheap sorts are faster than one with a
    tuple key: there may be a hundred thousand Workloads, and the scheduler waits.
    """
    pending = chain(queue.active(), queue.parked(with_resting=False), queue.in_flight.values())
    ordered = sorted(pending, key=ordering.in_queue)
    if queue.sticky is not None:
        ordered.sort(key=lambda workload: workload.key != queue.sticky)
    if queue.local_usage is not None:
        usage = cache(queue.local_usage)
        ordered.sort(key=lambda workload: usage(_local_queue(workload)))
    return ordered


def _local_queue(workload: WorkloadInfo) -> str:
    return f"{workload.namespace}/{workload.local_queue}"


# --- API types --------------------------------------------------------------------------------------------------------


class WorkloadIdentity(ApiStruct, frozen=True):
    """The metadata of a Workload that the list contains."""

    name: Annotated[str, Field("Name of the Workload.")]
    namespace: Annotated[str, Field("Namespace of the Workload.")]
    creation_timestamp: Annotated[Time | None, Field("Creation time of the Workload.")] = None
    owner_references: Annotated[tuple[OwnerReference, ...], Field("The job that owns the Workload.")] = ()
    annotations: Annotated[dict[str, str], Field("The forecast of the start, if there is one.")] = {}


class PendingWorkload(ApiStruct, frozen=True):
    """A pending Workload and its positions."""

    metadata: Annotated[WorkloadIdentity, Field("Identity of the Workload.")]
    priority: Annotated[Int32, Field("Priority of the Workload.")]
    local_queue_name: Annotated[str, Field("LocalQueue of the Workload.")]
    position_in_cluster_queue: Annotated[Int32, Field("Position in the ClusterQueue, starting at 0.")]
    position_in_local_queue: Annotated[Int32, Field("Position among the Workloads of its LocalQueue, starting at 0.")]


class PendingWorkloadsSummary(ApiStruct, frozen=True):
    """The pending Workloads of a queue, in order."""

    items: Annotated[tuple[PendingWorkload, ...], Field("A page of the list.")]


def summary(places: Iterable[QueuePosition], find: Find, annotate: Annotate = lambda workload: {}) -> Tree:
    """Return a page of a list. Workloads deleted meanwhile are omitted; the others keep their positions."""
    items = tuple(_item(place, found, annotate(found)) for place in places if (found := find(place.key)) is not None)
    return {"metadata": {}, **codec.to_tree(PendingWorkloadsSummary(items))}


def _item(place: QueuePosition, workload: kueue.Workload, annotations: dict[str, str]) -> PendingWorkload:
    metadata = workload.metadata
    owners = (OwnerReference(one.api_version, one.kind, one.name, one.uid) for one in metadata.owner_references)
    return PendingWorkload(
        WorkloadIdentity(metadata.name, metadata.namespace, metadata.creation_timestamp, tuple(owners), annotations),
        workload.spec.priority or 0,
        workload.spec.queue_name or "",
        place.in_cluster_queue,
        place.in_local_queue,
    )


def summary_schema() -> Tree:
    """Return the schema of the document, for OpenAPI."""
    return schema.of_type(PendingWorkloadsSummary)


# --- API aggregation --------------------------------------------------------------------------------------------------


GROUP_VERSIONS: Final = tuple((GROUP, version) for version in VERSIONS)


def api_services(
    groups: Sequence[tuple[str, str]],
    namespace: str,
    service: str = SERVICE,
    port: int = SERVICE_PORT,
    *,
    ca: bytes = b"",
    blindly: bool = False,
) -> list[Tree]:
    """Return the APIServices that forward groups, each with its version, to a Service. The API server verifies its
    certificate with `ca`, or not at all with `blindly`."""
    trust: Tree = {"insecureSkipTLSVerify": True} if blindly else {}
    if ca:
        trust = {"caBundle": base64.b64encode(ca).decode()}
    return [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                # Low, so that `clusterqueues` without a group still refers to the ClusterQueue objects.
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": service, "namespace": namespace, "port": port},
                **trust,
            },
        }
        for group, version in groups
    ]
