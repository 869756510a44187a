"""Submit, find, wait, logs and cancel: the same on `pykueue up` and on a cluster."""

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
from pykueue.client import job_request, job_status, listing, past_jobs, pod_logs, queued_job, unqueued
from pykueue.client.job_status import JobState, QueuedJobStatus
from pykueue.client.past_jobs import NO_RUN, RunFacts
from pykueue.client.queued_job import JOBS, PODS, WORKLOADS, JobFinder, PodFinder, QueuedJob
from pykueue.client.unqueued import Unqueued
from pykueue.errors import NegativeResult
from pykueue.history.documents import JobRecord
from pykueue.jobs import workloads
from pykueue.jobs.kinds import JobIntegration
from pykueue.runner import job_completion

log = logging.getLogger(__name__)

LEASES: Final = registry.ALL.of(kube.Lease)
QUEUES: Final = registry.ALL.of(kueue.LocalQueue)
PRIORITY_CLASSES: Final = registry.ALL.of(kueue.WorkloadPriorityClass)

# The default LocalQueue.
QUEUE: Final = "default"
# The namespace of the Leases that nodes renew.
_NODE_LEASES: Final = "kube-node-lease"
_LOOK_SECONDS: Final = 0.3

Report = Callable[[str], None]


class JobService:
    """Operations on the jobs of one namespace."""

    def __init__(self, client: ApiClient, namespace: str, away: Report = log.warning) -> None:
        """`away` is called with a message when the server becomes unreachable during a wait."""
        self._client = client
        self._outlast = RetryThroughOutage(away)
        self._finder = JobFinder(client, namespace)
        self._pods = PodFinder(client, namespace)
        self.namespace = namespace

    # --- Submitting ---------------------------------------------------------------------------------------------------

    async def runs_processes(self) -> bool:
        """Whether pods of this server run as processes of this machine, without their image."""
        answer = await self._outlast(lambda: self._client.request(ApiRequest("GET", "/version")))
        return "+embedded." in str(msgspec.json.decode(answer.body).get("gitVersion", ""))

    async def runs_pods(self, now: Nanoseconds) -> bool:
        """Whether pods run at all. Always true on a cluster, where pods that cannot run have a condition."""
        if not await self.runs_processes():
            return True
        found = await self._outlast(lambda: self._client.list(LEASES, _NODE_LEASES))
        return any(_is_held(codec.decode(item, kube.Lease), now) for item in found.items)

    async def queue(self, named: str) -> str:
        """The LocalQueue of this name, or the default one. Raises UsageError if it does not exist."""
        found: list[str] = [queue.metadata.name for queue in await self._all(QUEUES, kueue.LocalQueue)]
        there = f"available: {', '.join(found)}" if found else "none exists; `pykueue create localqueue` creates one"
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

    async def submit(self, job: Mapping[str, Any], row: JobIntegration | None = None) -> QueuedJob:
        """Create a job: a Job, or one of another kind."""
        row = row or queued_job.job_row()
        try:
            return QueuedJob(row, await self._client.create(row.kind, job))
        except errors.AlreadyExists:
            old = QueuedJob(row, dict(job))
            raise UsageError(f"{old.title} already exists; `pykueue cancel {old.reference}` deletes it") from None
        except errors.NoSuchKind:
            raise UsageError(_no_such_kind(row)) from None

    async def check_is_queued(self, job: Mapping[str, Any], row: JobIntegration) -> None:
        """Raise UsageError if the server would not hold a new job until it is admitted: no manager is configured for
        its kind, and it would run outside quota. Nothing is stored."""
        try:
            stored = await self._client.create(row.kind, job, dry_run=True)
        except errors.NoSuchKind:
            raise UsageError(_no_such_kind(row)) from None
        except errors.AlreadyExists:
            return  # `submit` reports it
        if not queued_job.is_held(row, stored):
            raise UsageError(
                f"{QueuedJob(row, stored).title} would run outside quota: the manager does not queue {row.kind.kind};"
                f" add {row.framework} to integrations.frameworks of its Configuration"
            )

    # --- Finding ------------------------------------------------------------------------------------------------------

    async def job(self, given: str) -> QueuedJob:
        """The job of NAME or TYPE/NAME, or of a Workload with this name. Raises UsageError if there is none."""
        found = await self.find_job(given)
        if found is None:
            type_, _, name = given.rpartition("/")
            raise UsageError(f"{type_ or 'job'} {name} not found in namespace {self.namespace}")
        return found

    async def find_job(self, given: str) -> QueuedJob | None:
        return await self._finder.find(given)

    async def jobs(self, given: Sequence[str]) -> list[QueuedJob]:
        """The jobs of these names. Raises UsageError for one that does not exist, before the others are used."""
        return [await self.job(each) for each in given]

    async def newest(self) -> QueuedJob:
        """The job that was submitted last: a Job, or a job of another kind that has a Workload."""
        jobs: list[kube.Job] = await self._all(JOBS, kube.Job)
        found = [(_moment(job.metadata), job.metadata.name) for job in jobs]
        for workload in await self._all(WORKLOADS, kueue.Workload):
            owner = workloads.job_of(workload)
            if owner is not None and owner.kind != JOBS.kind:
                found.append((_moment(workload.metadata), f"{owner.kind.lower()}/{owner.name}"))
        for _, reference in sorted(found, reverse=True):
            if (job := await self.find_job(reference)) is not None:
                return job
        raise UsageError(f"namespace {self.namespace} has no jobs")

    async def workload(self, job: QueuedJob) -> kueue.Workload | None:
        """The newest Workload of a job; None without one."""
        found = await self.workloads(job)
        return found[-1] if found else None

    async def workloads(self, job: QueuedJob) -> list[kueue.Workload]:
        """The Workloads of a job, oldest first. A job that is made of pods may have several at the same time."""
        mark = f"{labels.JOB_UID}={job.uid}"
        found = await self._client.list(WORKLOADS, self.namespace, labels="" if job.is_made_of_pods else mark)
        decoded = [codec.decode(item, kueue.Workload) for item in found.items]
        owners = {job.uid}
        if job.is_made_of_pods:
            owners |= {pod.metadata.uid for pod in await self._pods.of(job, ())}
        own = [one for one in decoded if owners & {owner.uid for owner in one.metadata.owner_references}]
        return sorted(own, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name))

    async def status(self, given: str) -> QueuedJobStatus:
        job = await self.job(given)
        rules = job.integration
        if rules is None:
            return job_status.of_workloads(await self.workloads(job))
        held = rules.is_suspended()
        workload = await self.workload(job) if held else None
        trouble = await unqueued.trouble(self._client, job) if held and workload is None else ""
        found = job_status.of_job(rules, workload, trouble)
        if found.state is JobState.STARTING:
            return QueuedJobStatus(found.state, job_status.starting(await self.pods(job)))
        if job_status.has_spent_retries(rules) and (failure := job_status.failure(await self.pods(job))):
            return QueuedJobStatus(found.state, job_completion.without_retries(failure))
        return found

    async def pods(self, job: QueuedJob) -> list[kube.Pod]:
        """The pods of a job, oldest first."""
        own = () if job.row.kind == JOBS or job.is_made_of_pods else await self.workloads(job)
        return await self._pods.of(job, own)

    async def _all(self, kind: Any, type_: Any, labels: str = "") -> list[Any]:
        found = await self._client.list(kind, self.namespace, labels=labels)
        return [codec.decode(item, type_) for item in found.items]

    # --- Waiting ------------------------------------------------------------------------------------------------------

    async def finished(self, given: str, report: Report, timeout_seconds: float | None = None) -> QueuedJobStatus:
        """Wait until the job has finished, and return its status; `report` is called with the status meanwhile."""
        job = await self._outlast(lambda: self.job(given))
        async with within(job.title, timeout_seconds):
            while True:
                now = await self._outlast(lambda: self._still(job))
                if now.state.is_finished:
                    return now
                report(f"{job.title}: {now}")
                await asyncio.sleep(_LOOK_SECONDS)

    async def _still(self, job: QueuedJob) -> QueuedJobStatus:
        """The status of a job that existed when the wait began."""
        try:
            return await self.status(job.reference)
        except UsageError:
            raise NegativeResult(f"{job.title} was deleted during the wait") from None

    async def outlast(self, error: KubeError) -> None:
        """Return when the server answers again. Raises errors that are not transient."""
        if not is_transient(error):
            raise error
        await self.runs_processes()

    async def cancel(self, given: str) -> None:
        """Delete a job; of a pod group, all of its pods, and the Workload, which would wait for their replacements."""
        job = await self.job(given)
        if not job.group:
            await self._client.delete(job.row.kind, job.name, self.namespace, uid=job.uid)
            return
        own = await self.workloads(job)
        for pod in await self.pods(job):
            await self._client.delete(PODS, pod.metadata.name, self.namespace, uid=pod.metadata.uid)
        for workload in own:
            await self._client.delete(WORKLOADS, workload.metadata.name, self.namespace, uid=workload.metadata.uid)

    # --- Logs ---------------------------------------------------------------------------------------------------------

    async def logs(
        self, given: str, options: pod_logs.PodLogOptions, write: Callable[[pod_logs.LogLine], None], report: Report
    ) -> None:
        """Pass the log lines of a job to `write`: pod by pod, or with `follow` all pods until the job has finished."""
        job = await self._outlast(lambda: self.job(given))
        if options.follow:
            now = await self._follow(job, options, write, report)
        else:
            now = await self.status(given)
            begun = [pod for pod in await self.pods(job) if pod_logs.has_begun(pod, options.container)]
            for pod in begun:
                await pod_logs.PodLogReader(self._client, pod, options, write).read()
            now = None if begun else now
        if now is not None:
            raise NegativeResult(f"{job.title} has no log: {now}")

    async def _follow(
        self, job: QueuedJob, options: pod_logs.PodLogOptions, write: Callable[[pod_logs.LogLine], None], report: Report
    ) -> QueuedJobStatus | None:
        """Read the log until the job has finished. Returns its status if there was no log, else None."""
        now = await self._outlast(lambda: self._still(job))
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
                        report(f"{job.title}: {now}")
                    await asyncio.sleep(_LOOK_SECONDS)
                    # Read before the pods: all pods of a finished job exist.
                    now = await self._outlast(lambda: self._still(job))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return None if read else now

    async def _pod(self, pod: kube.Pod) -> kube.Pod | None:
        """The current state of the pod; None if it is deleted."""
        tree = await self._outlast(lambda: self._client.find(PODS, pod.metadata.name, self.namespace))
        found = codec.from_tree(tree, kube.Pod) if tree is not None else None
        return found if found is not None and found.metadata.uid == pod.metadata.uid else None


@asynccontextmanager
async def within(title: str, timeout_seconds: float | None) -> AsyncIterator[None]:
    """Raise NegativeResult if the block, which waits for this job, takes longer than `timeout_seconds`."""
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except TimeoutError:
        raise NegativeResult(f"{title} has not finished after {timeout_seconds:g} s") from None


def _is_held(lease: kube.Lease, now: Nanoseconds) -> bool:
    renewed, lasts = lease.spec.renew_time, lease.spec.lease_duration_seconds or 0
    return renewed is not None and meta.parse_time(renewed) + lasts * meta.SECOND > now


def _moment(metadata: meta.ObjectMeta) -> tuple[str, str, str]:
    """The time of submission as a sort key; within one second, jobs with SUBMITTED_AT come last."""
    submitted = metadata.annotations.get(job_request.SUBMITTED_AT, "")
    return metadata.creation_timestamp or "", submitted, metadata.name


def _no_such_kind(row: JobIntegration) -> str:
    return f"the server does not have the kind {row.kind.kind} ({row.kind.api_version}): install its operator first"


# --- The queue --------------------------------------------------------------------------------------------------------


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
    workloads = [codec.decode(item, kueue.Workload) for item in found.items]
    waiting = {
        (one.metadata.namespace, one.spec.queue_name or "")
        for one in workloads
        if job_status.of_workload(one).state is JobState.WAITING
    }
    positions: dict[tuple[str, str], int] = {}
    for position, queue in sorted(waiting):
        positions |= await _positions(client, position, queue)
    trees = map(msgspec.json.decode, found.items)
    entries = [_entry(one, positions, tree) for one, tree in zip(workloads, trees, strict=True)]
    others = await unqueued.look(client, namespace, workloads, every_kind=every_kind)
    entries = await _with_pods(client, namespace, entries, workloads)
    if past_until is not None:
        entries = await _with_past(client, namespace, entries, workloads, past_until)
    return sorted((*entries, *map(_entry_of, others)), key=_order)


async def _with_past(
    client: ApiClient, namespace: str, entries: list[QueueEntry], workloads: Sequence[kueue.Workload], now: Nanoseconds
) -> list[QueueEntry]:
    """The entries with the facts of their runs, and those of deleted jobs."""
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
    owner = workloads.job_of(workload)
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
