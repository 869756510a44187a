"""The documents of the API `views.pykueue.io`: records, usage and waiting as clients read them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec

from kubemachinery import codec, quantity
from kubemachinery.fields import Field, Int32, Int64, Time
from kubemachinery.meta import SECOND, ApiStruct, format_time, parse_time
from kubemachinery.unstructured import Tree
from pykueue.api import kube, kueue
from pykueue.core import amounts
from pykueue.history import queries
from pykueue.history.learning import RunEstimate
from pykueue.history.queries import UsageRow, WaitingRow
from pykueue.history.records import Attempt, Outcome, Seconds, UsageSegment, WorkloadRecord
from pykueue.history.rollups import DAY_SECONDS
from pykueue.history.trouble_records import TroubleRecord

GROUP: Final = "views.pykueue.io"
VERSION: Final = "v1alpha1"
RECORDS: Final = "workloadrecords"
USAGE: Final = "usage"
WAITING: Final = "waiting"
RUN_TIME: Final = "runtime"
TROUBLES: Final = "troubles"


class RecordIdentity(ApiStruct, frozen=True):
    """The metadata of a record. Its name is the UID of the Workload: names are used again."""

    name: Annotated[str, Field("The UID of the Workload.")]
    namespace: Annotated[str, Field("The namespace of the Workload.")]
    creation_timestamp: Annotated[Time | None, Field("When the Workload was created.")] = None


class RecordedUsage(ApiStruct, frozen=True):
    """Quota that was reserved for a part of an attempt."""

    flavor: Annotated[str, Field("The ResourceFlavor.")]
    resource: Annotated[str, Field("The resource.")]
    amount: Annotated[str, Field("The reserved amount.")]
    start: Annotated[Time, Field("From when it was reserved.")]
    end: Annotated[Time | None, Field("Until when; absent while it is reserved.")] = None


class RecordedAttempt(ApiStruct, frozen=True):
    """One reservation of quota, from QuotaReserved until the quota was released."""

    cluster_queue: Annotated[str, Field("The ClusterQueue that reserved the quota.")]
    reserved: Annotated[Time, Field("When quota was reserved.")]
    admitted: Annotated[Time | None, Field("When the Workload was admitted.")] = None
    released: Annotated[Time | None, Field("When the quota was released.")] = None
    reason: Annotated[str, Field("Why it ended: Finished, Deleted, Released, or the reason of the eviction.")] = ""
    preemptor: Annotated[str, Field("The UID of the Workload that preempted it.")] = ""
    usage: Annotated[tuple[RecordedUsage, ...], Field("What was reserved, and when.")] = ()


class RecordedPodSet(ApiStruct, frozen=True):
    """A pod set of a Workload: what is needed to submit the same again."""

    name: Annotated[str, Field("The name of the pod set.")] = "main"
    count: Annotated[Int32, Field("The number of pods.")] = 0
    min_count: Annotated[Int32 | None, Field("The least number of pods that may be admitted.")] = None
    requests: Annotated[dict[str, str], Field("The requests of one pod.")] = {}
    node_selector: Annotated[dict[str, str], Field("The node labels that its pods require.")] = {}
    tolerations: Annotated[tuple[kube.Toleration, ...], Field("The taints that its pods tolerate.")] = ()
    topology_request: Annotated[
        kueue.PodSetTopologyRequest | None, Field("How its pods are placed relative to each other.")
    ] = None


class JobRecord(ApiStruct, frozen=True):
    """The life of one Workload, as the history has it."""

    metadata: Annotated[RecordIdentity, Field("Identity of the record.")]
    workload: Annotated[str, Field("The name of the Workload.")]
    job: Annotated[str, Field("The name of the job, or of the Workload without one.")]
    job_kind: Annotated[str, Field("The kind of the job, such as job.batch.")] = ""
    job_uid: Annotated[str, Field("The UID of the job.")] = ""
    queue: Annotated[str, Field("The LocalQueue.")] = ""
    cluster_queue: Annotated[str, Field("The ClusterQueue that last reserved quota.")] = ""
    user: Annotated[str, Field("Who submitted the job, if it is known.")] = ""
    priority: Annotated[Int32, Field("The priority.")] = 0
    priority_class: Annotated[str, Field("The class of the priority.")] = ""
    pods: Annotated[Int32, Field("The number of pods.")] = 0
    requests: Annotated[dict[str, str], Field("The requests of all pods together.")] = {}
    pod_sets: Annotated[tuple[RecordedPodSet, ...], Field("The pod sets, as they were submitted.")] = ()
    state: Annotated[str, Field("Waiting, Running, Succeeded, Failed, Cancelled, Replaced or Unknown.")] = ""
    submitted: Annotated[Time | None, Field("When the Workload was created.")] = None
    started: Annotated[Time | None, Field("When it was first admitted.")] = None
    ready: Annotated[Time | None, Field("When its pods were first ready.")] = None
    ended: Annotated[Time | None, Field("When it ended.")] = None
    waited_seconds: Annotated[Int64, Field("Time until the first admission, and from each release to the next.")] = 0
    ran_seconds: Annotated[Int64, Field("Time from each admission to the release of its quota.")] = 0
    resource_seconds: Annotated[
        dict[str, str], Field("Admitted quota times seconds, such as 7200 for one cpu during two hours.")
    ] = {}
    evictions: Annotated[Int32, Field("How often it was evicted.")] = 0
    exit_code: Annotated[Int32 | None, Field("The exit code of its pods; that of the last failure, or 0.")] = None
    limit_seconds: Annotated[Int64 | None, Field("The enforced limit of its run time.")] = None
    expected_seconds: Annotated[Int64 | None, Field("The run time that the user expected.")] = None
    slice_of: Annotated[str, Field("The Workload that it replaces as a slice of an elastic job.")] = ""
    inexact: Annotated[
        bool, Field("Whether a state is missing, so that a time is a bound, or the clock was set meanwhile.")
    ] = False
    attempts: Annotated[tuple[RecordedAttempt, ...], Field("The reservations of quota, in order.")] = ()


class RunTimeEstimate(ApiStruct, frozen=True):
    """How long a Workload will run in all: quantiles of an estimate, and its limit."""

    source: Annotated[str, Field("Where the estimate comes from; empty if nothing is known.")] = ""
    runs: Annotated[Int32, Field("The past runs that it rests on.")] = 0
    p50_seconds: Annotated[Int64 | None, Field("Half of such runs are not longer.")] = None
    p90_seconds: Annotated[Int64 | None, Field("Nine of ten such runs are not longer.")] = None
    limit_seconds: Annotated[Int64 | None, Field("The enforced limit.")] = None
    elapsed_seconds: Annotated[Int64, Field("How long it has run.")] = 0


class WorkloadTrouble(ApiStruct, frozen=True):
    """What is wrong with one Workload."""

    metadata: Annotated[RecordIdentity, Field("The Workload.")]
    job: Annotated[str, Field("The name of the job, or of the Workload without one.")]
    queue: Annotated[str, Field("The LocalQueue.")] = ""
    cluster_queue: Annotated[str, Field("The ClusterQueue.")] = ""
    trouble: Annotated[str, Field("EvictionLoop, Thrashing or Starving.")] = ""
    since: Annotated[Time | None, Field("Since when.")] = None
    message: Annotated[str, Field("What happens, with numbers.")] = ""
    found: Annotated[Time | None, Field("When the manager found it; in lists from the history.")] = None
    ended: Annotated[Time | None, Field("When it was not found any more; in lists from the history.")] = None


_NOT_STORED: Final = Field(
    "How many records are missing, or are in an older state: they could not be stored yet, and are only in memory."
)


class WorkloadTroubleList(ApiStruct, frozen=True):
    """The troubles of Workloads, by type."""

    items: Annotated[tuple[WorkloadTrouble, ...], Field("The troubles.")]
    not_stored: Annotated[Int32, _NOT_STORED] = 0


class UsageItem(ApiStruct, frozen=True):
    """Admitted quota of one resource in one group."""

    group: Annotated[dict[str, str], Field("What it is the usage of, by the words of `by`.")]
    resource: Annotated[str, Field("The resource.")]
    resource_seconds: Annotated[str, Field("Admitted quota times seconds.")]


class WaitingItem(ApiStruct, frozen=True):
    """The waiting of the Workloads of one group, from submission to the first admission."""

    group: Annotated[dict[str, str], Field("What it is the waiting of, by the words of `by`.")]
    started: Annotated[Int64, Field("How many Workloads started.")]
    p50_seconds: Annotated[Int64, Field("The median.")]
    p90_seconds: Annotated[Int64, Field("The 90th percentile.")]
    p99_seconds: Annotated[Int64, Field("The 99th percentile.")]
    longest_seconds: Annotated[Int64, Field("The longest waiting.")]
    over_an_hour: Annotated[Int64, Field("How many waited longer than an hour.")]


class JobRecordList(ApiStruct, frozen=True):
    items: Annotated[tuple[JobRecord, ...], Field("A page of the records.")]
    not_stored: Annotated[Int32, _NOT_STORED] = 0


class UsageList(ApiStruct, frozen=True):
    items: Annotated[tuple[UsageItem, ...], Field("The usage, by group and resource.")]
    not_stored: Annotated[Int32, _NOT_STORED] = 0


class WaitingList(ApiStruct, frozen=True):
    items: Annotated[tuple[WaitingItem, ...], Field("The waiting, by group.")]
    not_stored: Annotated[Int32, _NOT_STORED] = 0


_POD_SETS: Final = msgspec.json.Decoder(tuple[RecordedPodSet, ...])

# --- From records -----------------------------------------------------------------------------------------------------


def record_document(record: WorkloadRecord, now: Seconds) -> JobRecord:
    """The document of a record; of one that has not ended, waiting and running count until now."""
    requested = queries.requested(record)
    used = record.resource_seconds(now)
    return JobRecord(
        metadata=RecordIdentity(record.uid, record.namespace, _time(record.submitted)),
        workload=record.name,
        job=record.job,
        job_kind=record.job_kind,
        job_uid=record.job_uid,
        queue=record.queue,
        cluster_queue=record.cluster_queue,
        user=record.user,
        priority=record.priority,
        priority_class=record.priority_class,
        pods=record.pods,
        requests={name: amounts.text(name, amount) for name, amount in sorted(requested.items())},
        pod_sets=_POD_SETS.decode(record.shape) if record.shape else (),
        state=record.state,
        submitted=_time(record.submitted),
        started=_time(record.started),
        ready=_time(record.ready),
        ended=_time(record.ended),
        waited_seconds=record.waited(now),
        ran_seconds=record.ran(now),
        resource_seconds={name: amounts.as_quantity(name, used[name]).canonical for name in sorted(used)},
        evictions=record.evictions,
        exit_code=record.exit_code,
        limit_seconds=record.limit_seconds,
        expected_seconds=record.expected_seconds,
        slice_of=record.slice_of,
        inexact=record.inexact,
        attempts=tuple(map(_attempt, record.attempts)),
    )


def _attempt(attempt: Attempt) -> RecordedAttempt:
    return RecordedAttempt(
        cluster_queue=attempt.cluster_queue,
        reserved=_time(attempt.reserved) or "",
        admitted=_time(attempt.admitted),
        released=_time(attempt.released),
        reason=attempt.reason,
        preemptor=attempt.preemptor,
        usage=tuple(usage for segment in attempt.segments for usage in _usage(segment)),
    )


def _usage(segment: UsageSegment) -> Iterable[RecordedUsage]:
    for flavor, resource, amount in segment.amounts:
        start, end = _time(segment.start) or "", _time(segment.end)
        yield RecordedUsage(flavor, resource, amounts.text(resource, amount), start, end)


def _time(seconds: Seconds | None) -> str | None:
    return None if seconds is None else format_time(seconds * SECOND)


# --- To records -------------------------------------------------------------------------------------------------------


def record_of(shown: JobRecord) -> WorkloadRecord:
    """The record of a document: what a client needs to replay it. The revision is not in the document."""
    outcome = Outcome(shown.state) if shown.state in _OUTCOMES else Outcome.OPEN
    return WorkloadRecord(
        uid=shown.metadata.name,
        namespace=shown.metadata.namespace,
        name=shown.workload,
        job_kind=shown.job_kind,
        job_name=shown.job if shown.job_kind else "",
        job_uid=shown.job_uid,
        queue=shown.queue,
        user=shown.user,
        priority=shown.priority,
        priority_class=shown.priority_class,
        pods=shown.pods,
        shape=msgspec.json.encode(shown.pod_sets, order="sorted"),
        submitted=_seconds(shown.submitted) or 0,
        ready=_seconds(shown.ready),
        ended=_seconds(shown.ended),
        outcome=outcome,
        exit_code=shown.exit_code,
        evictions=shown.evictions,
        limit_seconds=shown.limit_seconds,
        expected_seconds=shown.expected_seconds,
        slice_of=shown.slice_of,
        attempts=tuple(map(_attempt_of, shown.attempts)),
        inexact=shown.inexact,
    )


_OUTCOMES: Final = frozenset(each.value for each in Outcome if each.value)


def _attempt_of(shown: RecordedAttempt) -> Attempt:
    reserved = _seconds(shown.reserved) or 0
    return Attempt(
        reserved,
        shown.cluster_queue,
        reserved,
        _seconds(shown.admitted),
        _seconds(shown.released),
        shown.reason,
        shown.preemptor,
        _segments_of(shown.usage),
    )


def _segments_of(usage: Iterable[RecordedUsage]) -> tuple[UsageSegment, ...]:
    """The segments of an attempt: usage of the same times is one."""
    found: dict[tuple[str, str | None], list[tuple[str, str, int]]] = {}
    for each in usage:
        amount = amounts.of_request(each.resource, quantity.parse(each.amount))
        found.setdefault((each.start, each.end), []).append((each.flavor, each.resource, amount))
    return tuple(UsageSegment(_seconds(start) or 0, _seconds(end), tuple(rows)) for (start, end), rows in found.items())


def _seconds(text: str | None) -> Seconds | None:
    return parse_time(text) // SECOND if text else None


def record_item(record: WorkloadRecord, now: Seconds) -> Tree:
    """A record as an item of a page."""
    return codec.to_tree(record_document(record, now))


def record_list(items: Sequence[Tree], after: int, not_stored: int = 0) -> Tree:
    """A page of records; `after` is from which to continue, or 0."""
    metadata = {"continue": token(after)} if after else {}
    return {"metadata": metadata, **codec.to_tree(JobRecordList((), not_stored)), "items": items}


def usage_list(rows: Sequence[UsageRow], by: Sequence[str], not_stored: int = 0) -> Tree:
    items = tuple(
        UsageItem(_group(row.group, by), row.resource, amounts.as_quantity(row.resource, row.amount_seconds).canonical)
        for row in rows
    )
    return {"metadata": {}, **codec.to_tree(UsageList(items, not_stored))}


def waiting_list(rows: Sequence[WaitingRow], by: Sequence[str], not_stored: int = 0) -> Tree:
    items = tuple(WaitingItem(_group(row.group, by), *row[1:]) for row in rows)
    return {"metadata": {}, **codec.to_tree(WaitingList(items, not_stored))}


def _group(values: Sequence[str | int], by: Sequence[str]) -> dict[str, str]:
    return {word: day_text(value) if isinstance(value, int) else value for word, value in zip(by, values, strict=True)}


def day_text(day: int) -> str:
    """A day since 1970 as YYYY-MM-DD."""
    return format_time(day * DAY_SECONDS * SECOND)[:10]


def trouble_document(record: TroubleRecord) -> WorkloadTrouble:
    """The document of a trouble that the history has."""
    return WorkloadTrouble(
        metadata=RecordIdentity(name=record.name, namespace=record.namespace),
        job=record.job,
        queue=record.queue,
        cluster_queue=record.cluster_queue,
        trouble=record.type,
        since=_time(record.since),
        message=record.message,
        found=_time(record.found),
        ended=_time(record.ended),
    )


def run_time_document(estimate: RunEstimate | None, limit: int | None, elapsed: int, lasted: int) -> RunTimeEstimate:
    """The document of an estimate. `elapsed` is of the present attempt, `lasted` of the longest one [RT13]."""
    if estimate is None:
        return RunTimeEstimate(limit_seconds=limit, elapsed_seconds=elapsed)
    least = max(elapsed, lasted)
    return RunTimeEstimate(
        source=estimate.source,
        runs=estimate.runs,
        p50_seconds=estimate.quantile(0.5, least),
        p90_seconds=estimate.quantile(0.9, least),
        limit_seconds=limit,
        elapsed_seconds=elapsed,
    )


# --- Continue tokens --------------------------------------------------------------------------------------------------


_LAST_ROW: Final = 2**63 - 1


def token(after: int) -> str:
    return base64.urlsafe_b64encode(f"v1:{after}".encode()).decode()


def after(text: str) -> int | None:
    """From which to continue, by a token; None if it is none."""
    try:
        version, _, number = base64.urlsafe_b64decode(text.encode()).decode().partition(":")
        found = int(number) if version == "v1" and number.isdecimal() else None
    except ValueError:
        return None
    # A larger number is no row of a table, and SQLite refuses it.
    return found if found is not None and found <= _LAST_ROW else None
