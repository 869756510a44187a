"""The cells of `pykueue list`, with the columns of kueuectl."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from kubemachinery import codec, conditions, meta
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.errors import UsageError
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue, labels, registry
from pykueue.api.conditions import WorkloadCondition
from pykueue.client import queued_job
from pykueue.lifecycle import states

_TYPE_LENGTH: Final = 20


class WorkloadListStatus(StrEnum):
    """The status of a Workload, as `--status` names it."""

    PENDING = "pending"
    QUOTA_RESERVED = "quotareserved"
    ADMITTED = "admitted"
    FINISHED = "finished"


def status(workload: kueue.Workload) -> WorkloadListStatus:
    if states.has(workload, WorkloadCondition.FINISHED):
        return WorkloadListStatus.FINISHED
    if states.has(workload, WorkloadCondition.ADMITTED):
        return WorkloadListStatus.ADMITTED
    return (
        WorkloadListStatus.QUOTA_RESERVED
        if states.has(workload, WorkloadCondition.QUOTA_RESERVED)
        else WorkloadListStatus.PENDING
    )


def job_types(workload: kueue.Workload) -> str:
    """The kinds of its owners, such as `job.batch`."""
    found = {_type(owner) for owner in workload.metadata.owner_references}
    return ", ".join(sorted(name if len(name) <= _TYPE_LENGTH else f"{name[:_TYPE_LENGTH]}..." for name in found))


def _type(owner: meta.OwnerReference) -> str:
    group, slash, _ = owner.api_version.rpartition("/")
    return f"{owner.kind.lower()}.{group}" if slash else owner.kind.lower()


def job_names(workload: kueue.Workload) -> str:
    return ", ".join(sorted({owner.name for owner in workload.metadata.owner_references}))


def seconds_run(workload: kueue.Workload, now: meta.Nanoseconds) -> str:
    """The time since admission, or from admission to the end."""
    admitted = conditions.find(workload.status.conditions, WorkloadCondition.ADMITTED)
    if admitted is None or admitted.status != "True":
        return ""
    finished = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
    end = meta.parse_time(finished.last_transition_time) if finished and finished.status == "True" else now
    return duration(end - meta.parse_time(admitted.last_transition_time))


def age(made: str | None, now: meta.Nanoseconds) -> str:
    """The time since creation."""
    return duration(now - meta.parse_time(made)) if made else "<unknown>"


_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY


def duration(nanoseconds: int) -> str:
    """A duration as kubectl prints ages: precise if short, rounded if long."""
    seconds = max(0, nanoseconds // meta.SECOND)
    minutes, hours, days = seconds // _MINUTE, seconds // _HOUR, seconds // _DAY
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if seconds < 2 * _YEAR:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


async def pending_workloads(client: ApiClient, namespace: str, local_queue: str) -> list[Tree]:
    """The pending Workloads of a LocalQueue in order, from the visibility API; empty if it is not served."""
    group, version = kueue.VISIBILITY_GROUP, kueue.VISIBILITY_VERSIONS[0]
    path = f"/apis/{group}/{version}/namespaces/{namespace}/localqueues/{local_queue}/pendingworkloads"
    try:
        answer = await client.request(ApiRequest("GET", path))
    except errors.ApiError:
        return []
    return msgspec.json.decode(answer.body).get("items") or []


@dataclass(frozen=True, slots=True)
class ListContext:
    """What a list of Workloads shows from other objects: their ClusterQueues and positions."""

    leads: Mapping[str, str]  # namespace/LocalQueue -> ClusterQueue
    places: Mapping[str, int]  # namespace/Workload -> its position in its LocalQueue

    def cluster_queue(self, workload: kueue.Workload) -> str:
        admission = workload.status.admission
        if admission is not None and admission.cluster_queue:
            return admission.cluster_queue
        return self.leads.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}", "")

    def place(self, workload: kueue.Workload) -> str:
        return str(self.places.get(f"{workload.metadata.namespace}/{workload.metadata.name}", ""))


async def list_context(client: ApiClient, workloads: Iterable[kueue.Workload], namespace: str) -> ListContext:
    """Read the context for Workloads of a namespace, or of all."""
    found = await client.list(registry.ALL.of(kueue.LocalQueue), namespace)
    queues = [codec.decode(raw, kueue.LocalQueue) for raw in found.items]
    leads = {f"{queue.metadata.namespace}/{queue.metadata.name}": queue.spec.cluster_queue or "" for queue in queues}
    waiting = {
        (workload.metadata.namespace, workload.spec.queue_name)
        for workload in workloads
        if status(workload) is WorkloadListStatus.PENDING and workload.spec.queue_name
    }
    places = {
        f"{place}/{item['metadata']['name']}": item["positionInLocalQueue"]
        for place, queue in sorted(waiting)
        for item in await pending_workloads(client, place, queue)
    }
    return ListContext(leads, places)


# --- Filters ----------------------------------------------------------------------------------------------------------

# A kind in lower case and a name.
Owner: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WorkloadFilter:
    """A filter of Workloads; empty fields match all."""

    cluster_queue: str = ""
    local_queue: str = ""
    statuses: frozenset[WorkloadListStatus] = frozenset()
    owner: Owner | None = None

    def takes(self, workload: kueue.Workload, list_context: ListContext) -> bool:
        return (
            self.cluster_queue in ("", list_context.cluster_queue(workload))
            and self.local_queue in ("", workload.spec.queue_name)
            and (not self.statuses or status(workload) in self.statuses)
            and (self.owner is None or is_owned_by(workload.metadata, self.owner))
        )


def statuses(words: Iterable[str]) -> frozenset[WorkloadListStatus]:
    """The values of `--status`, in any case; `all` is empty: no filter."""
    chosen = {word.lower() for word in words}
    unknown = chosen - {"all", *WorkloadListStatus}
    if unknown:
        raise UsageError(f"--status {min(unknown)}: must be all, {', '.join(WorkloadListStatus)}")
    return frozenset() if "all" in chosen else frozenset(map(WorkloadListStatus, chosen))


def of_type(text: str) -> Owner | None:
    """TYPE[.GROUP]/NAME of `--for`: the kind in lower case, singular, and the name; None for an empty text."""
    if not text:
        return None
    kind, slash, name = text.partition("/")
    wanted = kind.partition(".")[0].lower()
    if not slash or not wanted or not name:
        raise UsageError(f"--for {text}: must be TYPE/NAME or TYPE.GROUP/NAME, such as job/train")
    for kind in (*registry.ALL, *(row.kind for row in queued_job.known())):
        if wanted in (kind.singular, kind.plural, *kind.short_names):
            return kind.singular, name
    return wanted.removesuffix("s"), name


def belongs_to(owner: Owner | None, pods: Iterable[kube.Pod]) -> Callable[[kube.Pod], bool]:
    """A predicate: whether a pod belongs to a job, or to the pod group of the named pod."""
    if owner is None:
        return lambda pod: True
    if owner[0] != "pod":
        return lambda pod: is_owned_by(pod.metadata, owner)
    groups = {_group(pod) for pod in pods if pod.metadata.name == owner[1]} - {""}
    return lambda pod: pod.metadata.name == owner[1] or _group(pod) in groups


def _group(pod: kube.Pod) -> str:
    return pod.metadata.labels.get(labels.POD_GROUP_NAME, "")


def is_owned_by(metadata: meta.ObjectMeta, owner: Owner) -> bool:
    """Whether an object has this owner."""
    return owner in {(reference.kind.lower(), reference.name) for reference in metadata.owner_references}
