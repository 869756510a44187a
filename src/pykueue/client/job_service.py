"""Submitting, finding, waiting, reading logs and cancelling: the same on `pykueue up` and on a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from kubemachinery import codec, meta
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.client.retry import RetryThroughOutage, is_transient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.errors import UsageError
from kubemachinery.meta import Nanoseconds
from pykueue.api import kube, kueue, labels, registry
from pykueue.client import job_request, job_status, listing, pod_logs, unqueued
from pykueue.client.job_status import JobState, QueuedJobStatus
from pykueue.client.pod_logs import PODS
from pykueue.client.unqueued import JOBS, Unqueued
from pykueue.errors import NegativeResult
from pykueue.runner import job_completion

log = logging.getLogger(__name__)

LEASES: Final = registry.ALL.of(kube.Lease)
QUEUES: Final = registry.ALL.of(kueue.LocalQueue)
PRIORITY_CLASSES: Final = registry.ALL.of(kueue.WorkloadPriorityClass)
WORKLOADS: Final = registry.ALL.of(kueue.Workload)

# The LocalQueue that is meant where none is named.
QUEUE: Final = "default"
# Where nodes say that they are alive.
_NODE_LEASES: Final = "kube-node-lease"
_LOOK_SECONDS: Final = 0.3

Report = Callable[[str], None]


class JobService:
    """Jobs of one namespace."""

    def __init__(self, client: ApiClient, namespace: str, away: Report = log.warning) -> None:
        """`away` hears of a server that goes away while somebody waits for a job."""
        self._client = client
        self._outlast = RetryThroughOutage(away)
        self.namespace = namespace

    # --- Submitting ---------------------------------------------------------------------------------------------------

    async def runs_processes(self) -> bool:
        """Whether pods of this server run on this very machine, whatever their image."""
        answer = await self._outlast(lambda: self._client.request(ApiRequest("GET", "/version")))
        return "+embedded." in str(msgspec.json.decode(answer.body).get("gitVersion", ""))

    async def runs_pods(self, now: Nanoseconds) -> bool:
        """Whether anybody does. Not asked of a cluster, where pods that nobody runs say so themselves."""
        if not await self.runs_processes():
            return True
        found = await self._outlast(lambda: self._client.list(LEASES, _NODE_LEASES))
        return any(_is_held(codec.decode(item, kube.Lease), now) for item in found.items)

    async def queue(self, named: str) -> str:
        """The LocalQueue that is meant; one that is not there is refused."""
        found: list[str] = [queue.metadata.name for queue in await self._all(QUEUES, kueue.LocalQueue)]
        there = f"available: {', '.join(found)}" if found else "none exists; `pykueue create localqueue` makes one"
        if named:
            if named not in found:
                raise UsageError(f"LocalQueue {named} not found in namespace {self.namespace}; {there}")
            return named
        if QUEUE in found:
            return QUEUE
        if len(found) != 1:
            raise UsageError(f"name a LocalQueue of namespace {self.namespace} with --queue; {there}")
        return found[0]

    async def priority_class(self, named: str) -> str:
        """The name of a WorkloadPriorityClass that exists, or none. A job with an unknown class would wait forever, so
        an unknown name is refused."""
        if named and await self._client.find(PRIORITY_CLASSES, named) is None:
            found = await self._client.list(PRIORITY_CLASSES)
            names = [codec.decode(item, kueue.WorkloadPriorityClass).metadata.name for item in found.items]
            available = f"available: {', '.join(names)}" if names else "none exists"
            raise UsageError(f"WorkloadPriorityClass {named} not found; {available}")
        return named

    async def submit(self, job: dict[str, Any]) -> kube.Job:
        try:
            return codec.from_tree(await self._client.create(JOBS, job), kube.Job)
        except errors.AlreadyExists:
            name = job["metadata"]["name"]
            raise UsageError(f"job {name} already exists; `pykueue cancel {name}` deletes it") from None

    # --- Finding ------------------------------------------------------------------------------------------------------

    async def job(self, name: str) -> kube.Job:
        found = await self.find_job(name)
        if found is None:
            raise UsageError(f"job {name} not found in namespace {self.namespace}")
        return found

    async def find_job(self, name: str) -> kube.Job | None:
        tree = await self._client.find(JOBS, name, self.namespace)
        return codec.from_tree(tree, kube.Job) if tree is not None else None

    async def meant(self, given: Sequence[str]) -> list[str]:
        """The jobs that somebody means: NAME, TYPE/NAME, or the name of a Workload, as lists of them show it. One that
        is not there is refused before anything happens to the others."""
        return [await self._meant(each.rpartition("/")[2]) for each in given]

    async def _meant(self, name: str) -> str:
        try:
            return (await self.job(name)).metadata.name
        except UsageError:
            tree = await self._client.find(WORKLOADS, name, self.namespace)
            owner = codec.from_tree(tree, kueue.Workload).metadata.controller if tree is not None else None
            if owner is None or owner.kind != JOBS.kind:
                raise
            return owner.name

    async def newest(self) -> str:
        """The job that was submitted last."""
        found: list[kube.Job] = await self._all(JOBS, kube.Job)
        if not found:
            raise UsageError(f"namespace {self.namespace} has no jobs")
        return max(found, key=_moment).metadata.name

    async def workload(self, job: kube.Job) -> kueue.Workload | None:
        """What queues the job."""
        mark = f"{labels.JOB_UID}={job.metadata.uid}"
        found = await self._client.list(WORKLOADS, self.namespace, labels=mark)
        return job_status.by_owner(codec.decode(item, kueue.Workload) for item in found.items).get(job.metadata.uid)

    async def status(self, name: str) -> QueuedJobStatus:
        job = await self.job(name)
        workload = await self.workload(job) if job.spec.suspend else None
        trouble = await unqueued.trouble(self._client, job) if job.spec.suspend and workload is None else ""
        found = job_status.of_job(job, workload, trouble)
        if found.state is JobState.STARTING:
            return QueuedJobStatus(found.state, job_status.starting(await self.pods(job)))
        if job_status.has_spent_retries(job) and (failure := job_status.failure(await self.pods(job))):
            return QueuedJobStatus(found.state, job_completion.without_retries(failure))
        return found

    async def pods(self, job: kube.Job) -> list[kube.Pod]:
        """The pods of a job, the older first."""
        found = await self._all(PODS, kube.Pod, labels=f"batch.kubernetes.io/controller-uid={job.metadata.uid}")
        return sorted(found, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))

    async def _all(self, kind: Any, type_: Any, labels: str = "") -> list[Any]:
        found = await self._client.list(kind, self.namespace, labels=labels)
        return [codec.decode(item, type_) for item in found.items]

    # --- Waiting ------------------------------------------------------------------------------------------------------

    async def finished(self, name: str, report: Report, timeout_seconds: float | None = None) -> QueuedJobStatus:
        """How the job ended; `report` hears how it stands until then."""
        await self._outlast(lambda: self.job(name))
        async with within(name, timeout_seconds):
            while True:
                now = await self._outlast(lambda: self._still(name))
                if now.state.is_finished:
                    return now
                report(f"job {name}: {now}")
                await asyncio.sleep(_LOOK_SECONDS)

    async def _still(self, name: str) -> QueuedJobStatus:
        """How a job stands that existed when the wait began."""
        try:
            return await self.status(name)
        except UsageError:
            raise NegativeResult(f"job {name} was deleted while it was waited for") from None

    async def outlast(self, error: KubeError) -> None:
        """Return when the server answers again. What will not pass by waiting is raised."""
        if not is_transient(error):
            raise error
        await self.runs_processes()

    async def cancel(self, name: str) -> None:
        job = await self.job(name)
        await self._client.delete(JOBS, name, self.namespace, uid=job.metadata.uid)

    # --- Logs ---------------------------------------------------------------------------------------------------------

    async def logs(
        self, name: str, options: pod_logs.PodLogOptions, write: Callable[[pod_logs.LogLine], None], report: Report
    ) -> None:
        """What the pods of a job write, one after the other; following, all at once and until the job is over."""
        job = await self._outlast(lambda: self.job(name))
        if options.follow:
            now = await self._follow(job, options, write, report)
        else:
            now = await self.status(name)
            begun = [pod for pod in await self.pods(job) if pod_logs.has_begun(pod, options.container)]
            for pod in begun:
                await pod_logs.PodLogReader(self._client, pod, options, write).read()
            now = None if begun else now
        if now is not None:
            raise NegativeResult(f"job {name} has no log: {now}")

    async def _follow(
        self, job: kube.Job, options: pod_logs.PodLogOptions, write: Callable[[pod_logs.LogLine], None], report: Report
    ) -> QueuedJobStatus | None:
        """Read also what is still to come; how the job stands where nothing ever came."""
        name = job.metadata.name
        now = await self._outlast(lambda: self._still(name))
        over = asyncio.Event()
        read: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for pod in await self._outlast(lambda: self.pods(job)):
                        if pod.metadata.name not in read and pod_logs.has_begun(pod, options.container):
                            reading = pod_logs.PodLogReader(self._client, pod, options, write).follow(
                                partial(self._pod, pod), over.is_set
                            )
                            read[pod.metadata.name] = group.create_task(reading)
                    if now.state.is_finished:
                        over.set()
                        break
                    if not read:
                        report(f"job {name}: {now}")
                    await asyncio.sleep(_LOOK_SECONDS)
                    # Asked before looking for pods: those of a job that is over are all there.
                    now = await self._outlast(lambda: self._still(name))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return None if read else now

    async def _pod(self, pod: kube.Pod) -> kube.Pod | None:
        """The same pod as it is now; None where it is gone."""
        tree = await self._outlast(lambda: self._client.find(PODS, pod.metadata.name, self.namespace))
        found = codec.from_tree(tree, kube.Pod) if tree is not None else None
        return found if found is not None and found.metadata.uid == pod.metadata.uid else None


@asynccontextmanager
async def within(name: str, timeout_seconds: float | None) -> AsyncIterator[None]:
    """Whoever waits for a job no longer than this hears that it is not over."""
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except TimeoutError:
        raise NegativeResult(f"job {name} has not finished after {timeout_seconds:g} s") from None


def _is_held(lease: kube.Lease, now: Nanoseconds) -> bool:
    renewed, lasts = lease.spec.renew_time, lease.spec.lease_duration_seconds or 0
    return renewed is not None and meta.parse_time(renewed) + lasts * meta.SECOND > now


def _moment(job: kube.Job) -> tuple[str, str, str]:
    """When a job came; of one second, those that say more about it come later."""
    created, submitted = (
        job.metadata.creation_timestamp or "",
        job.metadata.annotations.get(job_request.SUBMITTED_AT, ""),
    )
    return created, submitted, job.metadata.name


# --- Everybody --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class QueueEntry:
    """A Workload, or a job or pod without one, as a line of the queue."""

    workload: str  # empty where there is none
    namespace: str
    name: str
    queue: str
    cluster_queue: str
    status: QueuedJobStatus
    # Its place in its ClusterQueue, from 1; None where it waits for nothing, or nobody knows.
    place: int | None
    pods: int
    asks: str
    priority: int
    created: str
    # The jobs or pods that it is for.
    names: tuple[str, ...]
    tree: Mapping[str, Any]

    def __repr__(self) -> str:
        """One line: a notebook shows lists of these, and `tree` is the whole object."""
        asks = f", {self.asks}" if self.asks else ""
        return f"<Entry {self.namespace}/{self.name} in {self.queue}: {self.status}{asks}>"

    @property
    def title(self) -> str:
        """As kubectl names it."""
        if self.workload:
            return f"workload.kueue.x-k8s.io/{self.workload}"
        return f"pod/{self.names[0]}" if self.kind == PODS.kind else f"job.batch/{self.name}"

    @property
    def kind(self) -> str:
        """Of what stands in line, or would if it could."""
        return str(self.tree["kind"])


async def entries(client: ApiClient, namespace: str) -> list[QueueEntry]:
    """All Workloads of a namespace, or of all: what runs, what waits in the order of its queue, what is over. Jobs and
    pods that have none are among them, for whoever submitted one looks for it here."""
    found = await client.list(WORKLOADS, namespace)
    workloads = [codec.decode(item, kueue.Workload) for item in found.items]
    waiting = {
        (one.metadata.namespace, one.spec.queue_name or "")
        for one in workloads
        if job_status.of_workload(one).state is JobState.WAITING
    }
    places: dict[tuple[str, str], int] = {}
    for place, queue in sorted(waiting):
        places |= await _places(client, place, queue)
    trees = map(msgspec.json.decode, found.items)
    entries = [_entry(one, places, tree) for one, tree in zip(workloads, trees, strict=True)]
    others = await unqueued.look(client, namespace, workloads)
    entries = await _with_pods(client, namespace, entries, workloads)
    return sorted((*entries, *map(_entry_of, others)), key=_order)


async def _with_pods(
    client: ApiClient, namespace: str, entries: list[QueueEntry], workloads: Sequence[kueue.Workload]
) -> list[QueueEntry]:
    """The entries, those that start with what their pods wait for. Nothing for those who may not list pods."""
    if not any(entry.status.state is JobState.STARTING for entry in entries):
        return entries
    try:
        found = await client.list(PODS, namespace, fields="spec.nodeName=")
    except errors.ApiError:
        return entries
    pods: dict[str, list[kube.Pod]] = {}
    for item in found.items:
        pod = codec.decode(item, kube.Pod)
        for uid in (pod.metadata.uid, *(owner.uid for owner in pod.metadata.owner_references)):
            pods.setdefault(uid, []).append(pod)

    def described(entry: QueueEntry, workload: kueue.Workload) -> QueueEntry:
        own = [pod for owner in workload.metadata.owner_references for pod in pods.get(owner.uid, ())]
        if entry.status.state is not JobState.STARTING or not own:
            return entry
        return replace(entry, status=QueuedJobStatus(JobState.STARTING, job_status.starting(own)))

    return [described(*pair) for pair in zip(entries, workloads, strict=True)]


def _order(entry: QueueEntry) -> tuple[Any, ...]:
    word = entry.status.state
    group = 2 if word.is_finished else 1 if word in (JobState.WAITING, JobState.UNQUEUED) else 0
    last = 2**31
    return group, entry.cluster_queue, last if entry.place is None else entry.place, entry.created, entry.workload


def _entry(workload: kueue.Workload, places: Mapping[tuple[str, str], int], tree: Mapping[str, Any]) -> QueueEntry:
    key = (workload.metadata.namespace, workload.metadata.name)
    owner = workload.metadata.controller
    admission = workload.status.admission
    return QueueEntry(
        workload=workload.metadata.name,
        namespace=workload.metadata.namespace,
        name=owner.name if owner is not None else workload.metadata.name,
        queue=workload.spec.queue_name or "",
        cluster_queue=admission.cluster_queue if admission is not None else "",
        status=job_status.of_workload(workload),
        place=places.get(key),
        pods=sum(pod_set.count for pod_set in workload.spec.pod_sets),
        asks=job_status.asks((pod_set.template.spec, pod_set.count) for pod_set in workload.spec.pod_sets),
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
        queue=first.labels[labels.QUEUE_NAME],
        cluster_queue="",
        status=job_status.without_workload(one.trouble),
        place=None,
        pods=sum(count for _, count in one.pods),
        asks=job_status.asks(one.pods),
        priority=0,
        created=first.creation_timestamp or "",
        names=tuple(member.name for member in one.members),
        tree=one.tree,
    )


async def _places(client: ApiClient, namespace: str, queue: str) -> dict[tuple[str, str], int]:
    """Who stands where in the ClusterQueue of a LocalQueue; nothing where the server does not tell."""
    return {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item["positionInClusterQueue"] + 1
        for item in await listing.pending_workloads(client, namespace, queue)
    }
