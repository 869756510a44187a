"""Submit, find, wait, logs and cancel: the same on `pykueue up` and on a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubemachinery import codec, meta
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import KubeError
from kubemachinery.client.retry import RetryThroughOutage, is_transient
from kubemachinery.client.transport import ApiRequest
from kubemachinery.errors import UsageError
from kubemachinery.meta import Nanoseconds
from pykueue.api import kube, kueue, labels, registry, workload_owners
from pykueue.client import job_request, job_status, queued_job, unqueued
from pykueue.client.job_status import JobState, QueuedJobStatus
from pykueue.client.queued_job import JOBS, PODS, WORKLOADS, JobFinder, QueuedJob
from pykueue.errors import NegativeResult
from pykueue.jobs.integration import JobIntegration

if TYPE_CHECKING:
    from pykueue.client import pod_logs
    from pykueue.client.pod_finder import PodFinder

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
        self.namespace = namespace

    @cached_property
    def _pods(self) -> PodFinder:
        from pykueue.client.pod_finder import PodFinder  # imports the rules of pods

        return PodFinder(self._client, self.namespace)

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
            owner = workload_owners.job_of(workload)
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
        from pykueue.runner import job_completion

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
        from pykueue.client import pod_logs

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
        from pykueue.client import pod_logs

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
