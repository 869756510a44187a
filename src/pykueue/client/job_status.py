"""The state of a job and its reason, from the job and its Workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kubemachinery import conditions, quantity, unstructured
from pykueue.api import kube, kueue
from pykueue.api.conditions import FinishedReason, WorkloadCondition
from pykueue.core import requests
from pykueue.lifecycle import states
from pykueue.lifecycle.states import State

if TYPE_CHECKING:
    from pykueue.jobs.interface import GenericJob


class JobState(StrEnum):
    UNQUEUED = "Unqueued"  # not queued, because no Workload could be created for it
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def is_finished(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class QueuedJobStatus:
    """The state of a job, and a message with the reason."""

    state: JobState
    message: str = ""

    def __str__(self) -> str:
        return f"{self.state.lower()}, {self.message}" if self.message else self.state.lower()

    @property
    def outcome(self) -> str:
        """The result of a finished job, as the rest of a sentence: `failed with exit code 3; no retries left`."""
        word = self.state.lower()
        return self.message if self.message.startswith(word) else f"{word}: {self.message}" if self.message else word


def of_job(job: GenericJob, workload: kueue.Workload | None, trouble: str = "") -> QueuedJobStatus:
    """The status of a job, from its Workload; without one, `trouble` is the last warning Event of the job."""
    outcome = job.outcome()
    if outcome is not None:
        return (
            QueuedJobStatus(JobState.SUCCEEDED)
            if outcome.success
            else QueuedJobStatus(JobState.FAILED, outcome.message)
        )
    if not job.is_suspended():
        return QueuedJobStatus(JobState.RUNNING if _has_running_pods(job) else JobState.STARTING)
    if workload is not None:
        return of_workload(workload)
    if not job.queue_name:
        return QueuedJobStatus(JobState.WAITING, "the job is suspended and has no queue label")
    return without_workload(trouble)


def _has_running_pods(job: GenericJob) -> bool:
    """Whether the pods run. Those of a Job need not run at the same time: one that is ready is enough."""
    if job.row.framework == "batch/job":
        return bool(unstructured.integer(job.status.get("ready")))
    return job.are_pods_ready()


def of_workloads(workloads: Sequence[kueue.Workload]) -> QueuedJobStatus:
    """The status of a job that is made of pods: that of the Workload that has come the least far."""
    found = [of_workload(workload) for workload in workloads]
    return min(found, key=lambda status: _PROGRESS.index(status.state)) if found else without_workload("")


# How far a Workload has come. A failure precedes a success, because it is the result of the whole.
_PROGRESS: Final = (
    JobState.UNQUEUED,
    JobState.WAITING,
    JobState.STOPPING,
    JobState.STARTING,
    JobState.RUNNING,
    JobState.FAILED,
    JobState.CANCELLED,
    JobState.SUCCEEDED,
)


def has_spent_retries(job: GenericJob) -> bool:
    """Whether a Job failed because its last retry did. The condition then names the limit, and not the failure."""
    from pykueue.runner import job_completion

    return any(
        (condition.get("type"), condition.get("status"), condition.get("reason"))
        == ("Failed", "True", job_completion.BACKOFF_LIMIT)
        for _, condition in unstructured.entries(job.status, "conditions")
    )


def without_workload(trouble: str) -> QueuedJobStatus:
    """The status of a job or pod with a queue label and without a Workload."""
    return (
        QueuedJobStatus(JobState.UNQUEUED, trouble)
        if trouble
        else QueuedJobStatus(JobState.WAITING, "its Workload does not exist yet")
    )


def starting(pods: Sequence[kube.Pod]) -> str:
    """What an admitted job still waits for, from its pods."""
    if not pods:
        return "its pods do not exist yet"
    for pod in pods:
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            waiting = status.state.waiting if status.state is not None else None
            if waiting and waiting.get("reason"):
                return f"pod {pod.metadata.name}: {waiting.get('message') or waiting['reason']}"
        scheduled = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if scheduled is not None and scheduled.status == "False":
            return f"pod {pod.metadata.name}: {scheduled.message or scheduled.reason}"
        if not pod.spec.node_name and pod.status.phase in ("", "Pending"):
            return f"pod {pod.metadata.name} has no node yet"
    return ""


def failure(pods: Iterable[kube.Pod]) -> str:
    """The failure of the last failed container; empty without one."""
    ended = [
        (status.state.terminated.finished_at or "", status.name, status.state.terminated)
        for pod in pods
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        if status.state is not None and status.state.terminated is not None and status.state.terminated.exit_code
    ]
    if not ended:
        return ""
    from pykueue.runner import job_completion

    over = max(ended, key=lambda each: each[:2])[2]
    return job_completion.failure(over.exit_code, over.signal or 0, over.message)


def of_workload(workload: kueue.Workload) -> QueuedJobStatus:
    """The status of a Workload."""
    match states.state(workload):
        case State.FINISHED:
            found = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
            word = _ENDS.get(found.reason, JobState.SUCCEEDED) if found is not None else JobState.SUCCEEDED
            return QueuedJobStatus(word, found.message if found is not None and word is not JobState.SUCCEEDED else "")
        case State.EVICTED:
            return QueuedJobStatus(JobState.STOPPING, _message(workload))
        case State.ADMITTED:
            ready = states.has(workload, WorkloadCondition.PODS_READY)
            return QueuedJobStatus(JobState.RUNNING if ready else JobState.STARTING)
        case State.RESERVED:
            open_checks = [check.name for check in workload.status.admission_checks if check.state != "Ready"]
            return QueuedJobStatus(JobState.WAITING, f"quota is reserved; waits for checks: {', '.join(open_checks)}")
    if not workload.spec.active:
        cause = states.state_condition(workload)
        return QueuedJobStatus(JobState.WAITING, cause.message if cause is not None else "the Workload is deactivated")
    return QueuedJobStatus(JobState.WAITING, _message(workload))


# Results other than success. A Workload without its job was cancelled, not successful.
_ENDS: Final[Mapping[str, JobState]] = {
    FinishedReason.FAILED: JobState.FAILED,
    FinishedReason.FAILED_TO_START: JobState.FAILED,
    FinishedReason.OUT_OF_SYNC: JobState.FAILED,
    FinishedReason.OWNER_NOT_FOUND: JobState.CANCELLED,
    FinishedReason.WORKLOAD_SLICE_REPLACED: JobState.CANCELLED,
}


def _message(workload: kueue.Workload) -> str:
    found = states.state_condition(workload)
    return found.message if found is not None else "the scheduler has not considered it yet"


def by_owner(workloads: Iterable[kueue.Workload]) -> Mapping[str, kueue.Workload]:
    """The newest Workload of each owner, by the owner's uid."""
    found: dict[str, kueue.Workload] = {}
    for workload in sorted(workloads, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name)):
        for owner in workload.metadata.owner_references:
            found[owner.uid] = workload
    return found


def troubles(events: Iterable[kube.Event]) -> Mapping[str, str]:
    """The last warning Event of each object, by its uid."""
    found: dict[str, str] = {}
    for event in sorted(events, key=lambda event: (_last(event), event.metadata.name)):
        if event.type == "Warning" and event.regarding is not None:
            found[event.regarding.uid] = event.note
    return found


def _last(event: kube.Event) -> str:
    again = event.series.last_observed_time if event.series is not None else None
    return again or event.event_time or event.deprecated_last_timestamp or event.metadata.creation_timestamp or ""


def total_requests(pods: Iterable[tuple[kube.PodSpec, int]]) -> str:
    """The sum of the requests of pods, such as `cpu 2, memory 4Gi`."""
    total: dict[str, quantity.Quantity] = {}
    for spec, count in pods:
        for name, one in requests.read(spec).figure.items():
            total[name] = total.get(name, quantity.Quantity(0)) + one * count
    return ", ".join(f"{name} {amount.canonical}" for name, amount in sorted(total.items()))
