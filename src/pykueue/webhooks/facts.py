"""Reads what a decision needs in addition to the object: the namespace, the owners, the default objects.

`AdmissionSources` is given by the caller: the caches of informers, the store of the embedded server, or requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from kubemachinery import codec, unstructured
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import Informer
from kubemachinery.kinds import Kind
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, registry
from pykueue.jobs import admission, related, selection
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.integration import no_related
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.unreadable_owners import OwnerReader
from pykueue.webhooks.review import (
    NO_FACTS,
    AdmissionFacts,
    AdmissionRequest,
    Phase,
    WebhookOptions,
    asks_for_local_queues,
    job_kind,
    reserves_quota,
)

NAMESPACE: Final = registry.KUBERNETES.of(kube.Namespace)
CLUSTER_QUEUE: Final = registry.KUEUE.of(kueue.ClusterQueue)
LOCAL_QUEUE: Final = registry.KUEUE.of(kueue.LocalQueue)
PRIORITY_CLASS: Final = registry.KUEUE.of(kueue.WorkloadPriorityClass)

# The LocalQueue and the WorkloadPriorityClass of a job that names none.
DEFAULT: Final = "default"


class AdmissionSources(Protocol):
    """Where objects are read."""

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        """One object, or None if it does not exist."""
        ...

    async def owner(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        """An owner of a job; `selection.OwnerLookup` states how this may fail."""
        ...

    async def objects(self, kind: Kind) -> Iterable[Tree]:
        """All objects of a kind."""
        ...

    def is_former_leader(self, manager: str) -> bool:
        """Whether a field manager is that of a former leader."""
        ...


async def gather(request: AdmissionRequest, sources: AdmissionSources, choices: WebhookOptions) -> AdmissionFacts:
    """The facts that a request needs; most need none."""
    row = job_kind(request.object, choices)
    if row is not None:
        choices.kinds.found(row)
        return AdmissionFacts(job=await _about_job(request, row, sources, choices))
    if asks_for_local_queues(request, choices):
        return AdmissionFacts(
            cluster_queues=tuple(await sources.objects(CLUSTER_QUEUE)),
            namespaces=tuple(await sources.objects(NAMESPACE)),
            local_queues=tuple(await sources.objects(LOCAL_QUEUE)),
        )
    if reserves_quota(request) and sources.is_former_leader(request.manager):
        return AdmissionFacts(is_former_leader=True)
    return NO_FACTS


async def _about_job(
    request: AdmissionRequest, row: JobIntegration, sources: AdmissionSources, choices: WebhookOptions
) -> JobAdmissionFacts:
    namespace = await sources.find(NAMESPACE, request.namespace, "")
    queue = await sources.find(LOCAL_QUEUE, DEFAULT, request.namespace)
    # A new object may not have its namespace yet; the request has it.
    tree = unstructured.put(request.object, ("metadata", "namespace"), request.namespace)
    found = JobAdmissionFacts(
        namespace=ObjectView(namespace or {}).labels,
        default_queue=queue is not None and ObjectView(queue).spec.get("stopPolicy") in (None, kueue.StopPolicy.NONE),
        default_priority_class=await sources.find(PRIORITY_CLASS, DEFAULT, "") is not None,
        user=request.user,
    )
    if row.related is not no_related:
        old = {} if request.old is None else await related.read(row, request.old, sources.owner)
        found = replace(found, related=await related.read(row, tree, sources.owner), old_related=old)
    # What may change of a kind made of pods depends on whether it is managed.
    asks = request.phase is Phase.MUTATE or row.parent_type is not None
    if asks and admission.needs_owners(row, tree, found, choices.kinds, choices.jobs):
        walked = await selection.ancestry(ObjectView(tree), choices.kinds, choices.jobs, sources.owner)
        found = replace(found, ancestry=walked)
    return found


class InformerSources:
    """The caches of informers, and requests for kinds without an informer or before it has synced: webhooks are served
    before objects are read."""

    # Kinds of which the object must exist: a cache that does not have it is behind.
    _CERTAIN: Final = frozenset({NAMESPACE.name})

    def __init__(
        self,
        client: ApiClient,
        informers: Iterable[Informer[Any]],
        is_former_leader: Callable[[str], bool] = lambda manager: False,
    ) -> None:
        self.is_former_leader = is_former_leader
        self.owner = OwnerReader(client)
        self._client = client
        self._informers: Mapping[str, Informer[Any]] = {informer.kind.name: informer for informer in informers}

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        informer = self._informers.get(kind.name)
        if informer is not None and informer.has_synced:
            found = informer.get(name, namespace)
            if found is not None or kind.name not in self._CERTAIN:
                return None if found is None else _tree(found)
        return await self._client.find(kind, name, namespace)

    async def objects(self, kind: Kind) -> Iterable[Tree]:
        informer = self._informers.get(kind.name)
        if informer is not None and informer.has_synced:
            return [_tree(value) for value in informer.values()]
        return [msgspec.json.decode(item, type=dict[str, Any]) for item in (await self._client.list(kind)).items]


def _tree(value: Any) -> Tree:
    """An object as a tree, whatever an informer decodes it to."""
    return value if isinstance(value, dict) else codec.to_tree(value)
