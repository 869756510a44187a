"""What `pykueue queue -a` shows of jobs that have run: times, exit code, evictions, and jobs that are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubemachinery import codec, conditions
from kubemachinery.client import errors
from kubemachinery.client.client import ApiClient
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND, Nanoseconds, parse_time
from pykueue.api import kueue, labels
from pykueue.api.conditions import WorkloadCondition
from pykueue.client import job_history
from pykueue.client.job_status import JobState, QueuedJobStatus
from pykueue.client.run_facts import RunFacts
from pykueue.history import documents
from pykueue.history.documents import JobRecord

# How far back deleted jobs are shown.
_DAY_SECONDS: Final = 86_400

_STATES: Final = {
    "Succeeded": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Cancelled": JobState.CANCELLED,
    "Unknown": JobState.CANCELLED,
}


async def records(client: ApiClient, namespace: str, now: Nanoseconds) -> Mapping[str, JobRecord]:
    """The records of the last day by the UID of their Workload; none if the server has no history for this user."""
    wanted = job_history.HistoryRequest(namespace=namespace, since=now // SECOND - _DAY_SECONDS)
    try:
        return {record.metadata.name: record async for record in job_history.records(client, wanted)}
    except (UsageError, errors.ApiError):
        return {}


def of_record(record: JobRecord) -> RunFacts:
    return RunFacts(
        started=record.started or "",
        ended=record.ended or "",
        ran_seconds=record.ran_seconds if record.started else None,
        exit_code=record.exit_code,
        evictions=record.evictions,
        user=record.user,
    )


def of_workload(workload: kueue.Workload, now: Nanoseconds) -> RunFacts:
    """What the object itself has: without a history, only the last admission is known."""
    status = workload.status
    admitted = conditions.find(status.conditions, WorkloadCondition.ADMITTED)
    finished = conditions.find(status.conditions, WorkloadCondition.FINISHED)
    started = admitted.last_transition_time if admitted is not None and admitted.status == "True" else ""
    ended = finished.last_transition_time if finished is not None and finished.status == "True" else ""
    until = parse_time(ended) if ended else now
    stats = status.scheduling_stats
    return RunFacts(
        started=started,
        ended=ended,
        ran_seconds=max(0, (until - parse_time(started)) // SECOND) if started else None,
        evictions=sum(entry.count for entry in stats.evictions) if stats is not None else 0,
        user=workload.metadata.annotations.get(labels.SUBMITTED_BY, ""),
    )


def deleted_status(record: JobRecord) -> QueuedJobStatus | None:
    """The status of a job that exists in the history alone; None for a slice that another one replaced."""
    state = _STATES.get(record.state)
    if state is None:
        return None
    return QueuedJobStatus(state, "its end is unknown" if record.state == "Unknown" else "deleted")


def tree(record: JobRecord) -> dict[str, object]:
    """The record as an object of the API."""
    kind = {"apiVersion": f"{documents.GROUP}/{documents.VERSION}", "kind": "WorkloadRecord"}
    return {**kind, **codec.to_tree(record)}
