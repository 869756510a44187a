"""The rows of `pykueue queue`: Workloads, and jobs and pods without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from kubemachinery import codec, conditions
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.meta import Nanoseconds
from pykueue.api import kube, kueue, labels, workload_owners
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.client import job_status, listing, queued_job, unqueued
from pykueue.client.job_status import JobState, QueuedJobStatus
from pykueue.client.queued_job import PODS, WORKLOADS
from pykueue.client.run_facts import NO_RUN, RunFacts
from pykueue.client.unqueued import Unqueued

if TYPE_CHECKING:
    from pykueue.history.documents import JobRecord


@dataclass(frozen=True, slots=True, repr=False)
class QueueEntry:
    """A Workload, or a job or pods without one, as a row of `pykueue queue`."""

    workload: str  # empty without one
    namespace: str
    name: str
    job_kind: str  # the kind of the job; empty for a Workload without one
    queue: str
    cluster_queue: str
    status: QueuedJobStatus
    # In its ClusterQueue, from 1; None if it is not pending, or unknown.
    position: int | None
    pods: int
    requests: str
    priority: int
    created: str
    # The jobs or pods of the Workload.
    names: tuple[str, ...]
    tree: Mapping[str, Any]
    # When it ran and how it ended.
    run: RunFacts = NO_RUN

    def __repr__(self) -> str:
        """One line, for notebooks: `tree` is the whole object."""
        requests = f", {self.requests}" if self.requests else ""
        return f"<QueueEntry {self.namespace}/{self.name} in {self.queue}: {self.status}{requests}>"

    @property
    def title(self) -> str:
        """TYPE/NAME, as kubectl prints it."""
        if self.workload:
            return f"workload.kueue.x-k8s.io/{self.workload}"
        return queued_job.resource_name_of(self.tree, self.names[0])

    @property
    def kind(self) -> str:
        """The kind of the Workload, job or pod."""
        return str(self.tree["kind"])


async def entries(
    client: ApiClient, namespace: str, past_until: Nanoseconds | None = None, *, every_kind: bool = False
) -> list[QueueEntry]:
    """All Workloads of a namespace, or of all: running ones, waiting ones in queue order, finished ones. Jobs and pods
    without a Workload are included, if their kind is in use, or with `every_kind`. With `past_until`, the present, each
    has the facts of its run, and jobs that were deleted in the last day are included."""
    found = await client.list(WORKLOADS, namespace)
    every = [(codec.decode(item, kueue.Workload), item) for item in found.items]
    # The job of a slice that was replaced has a Workload that is shown.
    kept = [(one, item) for one, item in every if not _is_replaced(one)]
    workloads = [one for one, _ in kept]
    waiting = {
        (one.metadata.namespace, one.spec.queue_name or "")
        for one in workloads
        if job_status.of_workload(one).state is JobState.WAITING
    }
    positions: dict[tuple[str, str], int] = {}
    for position, queue in sorted(waiting):
        positions |= await _positions(client, position, queue)
    entries = [_entry(one, positions, msgspec.json.decode(item)) for one, item in kept]
    others = await unqueued.look(client, namespace, [one for one, _ in every], every_kind=every_kind)
    entries = await _with_pods(client, namespace, entries, workloads)
    if past_until is not None:
        entries = await _with_past(client, namespace, entries, workloads, past_until)
    return sorted((*entries, *map(_entry_of, others)), key=_order)


def _is_replaced(workload: kueue.Workload) -> bool:
    finished = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
    return finished is not None and finished.reason == FinishedReason.WORKLOAD_SLICE_REPLACED


async def _with_past(
    client: ApiClient, namespace: str, entries: list[QueueEntry], workloads: Sequence[kueue.Workload], now: Nanoseconds
) -> list[QueueEntry]:
    """The entries with the facts of their runs, and those of deleted jobs."""
    from pykueue.client import past_jobs  # imports the types of the history

    known = await past_jobs.records(client, namespace, now)
    found = []
    for entry, workload in zip(entries, workloads, strict=True):
        record = known.get(workload.metadata.uid)
        run = past_jobs.of_workload(workload, now) if record is None else past_jobs.of_record(record)
        found.append(replace(entry, run=run))
    present = {workload.metadata.uid for workload in workloads}
    deleted = (record for uid, record in known.items() if uid not in present)
    return [*found, *(past for record in deleted if (past := _entry_of_record(record)) is not None)]


def _entry_of_record(record: JobRecord) -> QueueEntry | None:
    from pykueue.client import past_jobs

    status = past_jobs.deleted_status(record)
    if status is None:
        return None
    return QueueEntry(
        workload="",
        namespace=record.metadata.namespace,
        name=record.job,
        job_kind=queued_job.kind_named(record.job_kind),
        queue=record.queue,
        cluster_queue=record.cluster_queue,
        status=status,
        position=None,
        pods=record.pods,
        requests=", ".join(f"{name} {amount}" for name, amount in record.requests.items()),
        priority=record.priority,
        created=record.submitted or "",
        names=(record.job,),
        tree=past_jobs.tree(record),
        run=past_jobs.of_record(record),
    )


async def _with_pods(
    client: ApiClient, namespace: str, entries: list[QueueEntry], workloads: Sequence[kueue.Workload]
) -> list[QueueEntry]:
    """The entries; those that are starting with the reason of their pods, if the user may list pods."""
    if not any(entry.status.state is JobState.STARTING for entry in entries):
        return entries
    try:
        found = await client.list(PODS, namespace, fields="spec.nodeName=")
    except errors.ApiError:
        return entries
    pods: dict[str, list[kube.Pod]] = {}
    for item in found.items:
        pod = codec.decode(item, kube.Pod)
        marks = {pod.metadata.uid, *(owner.uid for owner in pod.metadata.owner_references)}
        if started_by := pod.metadata.annotations.get(labels.WORKLOAD):
            marks.add(f"{pod.metadata.namespace}/{started_by}")
        for mark in marks:
            pods.setdefault(mark, []).append(pod)

    def described(entry: QueueEntry, workload: kueue.Workload) -> QueueEntry:
        marks = [f"{entry.namespace}/{entry.workload}", *(owner.uid for owner in workload.metadata.owner_references)]
        own = list({pod.metadata.uid: pod for mark in marks for pod in pods.get(mark, ())}.values())
        if entry.status.state is not JobState.STARTING or not own:
            return entry
        return replace(entry, status=QueuedJobStatus(JobState.STARTING, job_status.starting(own)))

    return [described(*pair) for pair in zip(entries, workloads, strict=True)]


def _order(entry: QueueEntry) -> tuple[Any, ...]:
    word = entry.status.state
    group = 2 if word.is_finished else 1 if word in (JobState.WAITING, JobState.UNQUEUED) else 0
    last = 2**31
    return group, entry.cluster_queue, last if entry.position is None else entry.position, entry.created, entry.workload


def _entry(workload: kueue.Workload, positions: Mapping[tuple[str, str], int], tree: Mapping[str, Any]) -> QueueEntry:
    key = (workload.metadata.namespace, workload.metadata.name)
    owner = workload_owners.job_of(workload)
    kinds = {each.kind for each in workload.metadata.owner_references}
    admission = workload.status.admission
    return QueueEntry(
        workload=workload.metadata.name,
        namespace=workload.metadata.namespace,
        name=owner.name if owner is not None else workload.metadata.name,
        job_kind=owner.kind if owner is not None else next(iter(kinds)) if len(kinds) == 1 else "",
        queue=workload.spec.queue_name or "",
        cluster_queue=admission.cluster_queue if admission is not None else "",
        status=job_status.of_workload(workload),
        position=positions.get(key),
        pods=sum(pod_set.count for pod_set in workload.spec.pod_sets),
        requests=job_status.total_requests(
            (pod_set.template.spec, pod_set.count) for pod_set in workload.spec.pod_sets
        ),
        priority=workload.spec.priority or 0,
        created=workload.metadata.creation_timestamp or "",
        names=tuple(each.name for each in workload.metadata.owner_references),
        tree=tree,
    )


def _entry_of(one: Unqueued) -> QueueEntry:
    first = one.members[0]
    return QueueEntry(
        workload="",
        namespace=first.namespace,
        name=one.name,
        job_kind=str(one.tree["kind"]),
        queue=first.labels[labels.QUEUE_NAME],
        cluster_queue="",
        status=job_status.without_workload(one.trouble),
        position=None,
        pods=sum(count for _, count in one.pods),
        requests=job_status.total_requests(one.pods),
        priority=0,
        created=first.creation_timestamp or "",
        names=tuple(member.name for member in one.members),
        tree=one.tree,
    )


async def _positions(client: ApiClient, namespace: str, queue: str) -> dict[tuple[str, str], int]:
    """Positions in the ClusterQueue by namespace and name; empty without the visibility API."""
    return {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item["positionInClusterQueue"] + 1
        for item in await listing.pending_workloads(client, namespace, queue)
    }
