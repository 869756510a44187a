"""One Workload's record: a fold over the states of its object [HI1].

`observe(record, workload, seen)` returns the record after one more state. Times come from the object; `seen`, the time
of the observation, counts only where the object has no time for a change [HI2]. A state that is not newer than the last
one changes nothing, so states may arrive twice and from two sources: the watch, and the writes of the manager itself.

    record      one for each Workload, by UID
    attempt     one reservation of quota: from QuotaReserved until the quota is released
    segment     a part of an attempt in which the reserved amounts are constant

    submitted ─── waits ──── reserved ── admitted ── runs ── released ─── waits ─── … ─── ended
                             └────────────── attempt ──────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from kubemachinery import codec, conditions, meta
from kubemachinery.meta import SECOND
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels, workload_owners
from pykueue.api.conditions import EvictedReason, FinishedReason, WorkloadCondition
from pykueue.core import requests
from pykueue.lifecycle import states

# Seconds since 1970: the API has no finer times.
Seconds: TypeAlias = int
# Flavor, resource, amount as quota counts it.
FlavorAmount: TypeAlias = tuple[str, str, int]

# The reason of an attempt that was released without an eviction and without the end of the Workload.
RELEASED: Final = "Released"
FINISHED: Final = "Finished"
DELETED: Final = "Deleted"

# The states of a Workload that has not ended.
WAITING: Final = "Waiting"
RUNNING: Final = "Running"

# Clocks of managers and API servers may differ by this much: by more, a clock was set.
CLOCK_SET_SECONDS: Final = 10


class Outcome(StrEnum):
    """How a Workload ended. `OPEN` is that of one that has not ended."""

    OPEN = ""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"  # it, or its job, was deleted before the end
    REPLACED = "Replaced"  # by a larger or smaller slice of the same job
    UNKNOWN = "Unknown"  # the object was gone before its end was recorded


# Other reasons, such as those of other clients, are a success.
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    FinishedReason.SUCCEEDED: Outcome.SUCCEEDED,
    FinishedReason.FAILED: Outcome.FAILED,
    FinishedReason.FAILED_TO_START: Outcome.FAILED,
    FinishedReason.OUT_OF_SYNC: Outcome.FAILED,
    FinishedReason.OWNER_NOT_FOUND: Outcome.CANCELLED,
    FinishedReason.WORKLOAD_SLICE_REPLACED: Outcome.REPLACED,
}


class UsageSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Constant amounts of an attempt. `end` is None while they are reserved."""

    start: Seconds
    end: Seconds | None
    amounts: tuple[FlavorAmount, ...]


class Attempt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One reservation of quota.

    `mark` is the transition time of QuotaReserved as the object has it: another one is another reservation. `reserved`
    is the same time, unless the clock was set back: an attempt never starts before the one before it ended [HI11].
    """

    mark: Seconds
    cluster_queue: str
    reserved: Seconds
    admitted: Seconds | None = None
    released: Seconds | None = None
    # Why it ended: `Finished`, the reason of the eviction, `Deleted`, `Released`.
    reason: str = ""
    # The UID of the Workload that preempted it.
    preemptor: str = ""
    segments: tuple[UsageSegment, ...] = ()
    # The LocalQueue, if the Workload was moved to another one since; empty: that of the record.
    queue: str = ""


class WorkloadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The life of one Workload."""

    uid: str
    namespace: str
    name: str
    job_kind: str = ""  # such as `job.batch`; empty for a Workload without a job
    job_name: str = ""
    job_uid: str = ""
    queue: str = ""
    user: str = ""
    priority: int = 0
    priority_class: str = ""
    pods: int = 0
    # The pod sets as JSON: enough to submit the same again.
    shape: bytes = b""
    submitted: Seconds = 0
    ready: Seconds | None = None  # when its pods were first ready
    ended: Seconds | None = None
    outcome: Outcome = Outcome.OPEN
    exit_code: int | None = None
    evictions: int = 0
    # The enforced limit of its run time, and the expected run time, in seconds.
    limit_seconds: int | None = None
    expected_seconds: int | None = None
    # The Workload of which it is a slice, as namespace/name.
    slice_of: str = ""
    attempts: tuple[Attempt, ...] = ()
    revision: int = 0
    # The time of the last observation, for a record that has to be closed without its object.
    seen: Seconds = 0
    # Whether a state is missing, so that a time in it is a bound and not exact.
    inexact: bool = False

    @property
    def is_open(self) -> bool:
        return self.ended is None

    @property
    def state(self) -> str:
        """The outcome, or `Running` or `Waiting` of a Workload that has not ended."""
        if self.outcome is not Outcome.OPEN:
            return self.outcome.value
        last = self.attempts[-1] if self.attempts else None
        return RUNNING if last is not None and last.admitted is not None and last.released is None else WAITING

    @property
    def job(self) -> str:
        """The name that users gave: that of the job, or of the Workload without one."""
        return self.job_name or self.name

    @property
    def cluster_queue(self) -> str:
        return self.attempts[-1].cluster_queue if self.attempts else ""

    @property
    def started(self) -> Seconds | None:
        """When it was first admitted."""
        return next((each.admitted for each in self.attempts if each.admitted is not None), None)

    def waited(self, now: Seconds) -> int:
        """Seconds from submission to the first admission, and from each release to the next admission [HI4]."""
        total, since = 0, self.submitted
        for each in self.attempts:
            if each.admitted is not None:
                total += max(0, each.admitted - since)
                if each.released is None:
                    return total
                since = each.released
        return total + max(0, (now if self.ended is None else self.ended) - since)

    def ran(self, now: Seconds) -> int:
        """Seconds from each admission to the release of its quota [HI4]."""
        return sum(_length(each.admitted, each.released, now) for each in self.attempts if each.admitted is not None)

    def charged(self) -> Iterator[tuple[Attempt, UsageSegment]]:
        """The attempt and segment of all usage after an admission: quota that is only reserved is not charged."""
        for attempt in self.attempts:
            if attempt.admitted is not None:
                for segment in attempt.segments:
                    if segment.start >= attempt.admitted:
                        yield attempt, segment

    def resource_seconds(self, now: Seconds) -> dict[str, int]:
        """The charged amount of each resource, times seconds."""
        total: dict[str, int] = {}
        for _, segment in self.charged():
            seconds = _length(segment.start, segment.end, now)
            for _, resource, amount in segment.amounts:
                total[resource] = total.get(resource, 0) + amount * seconds
        return total


def _length(start: Seconds, end: Seconds | None, now: Seconds) -> int:
    return max(0, (now if end is None else end) - start)


# --- Observing --------------------------------------------------------------------------------------------------------


def observe(
    record: WorkloadRecord | None, workload: kueue.Workload, seen: Seconds, *, user_label: str = ""
) -> WorkloadRecord:
    """Return the record after a state of its Workload. An older state, or the same, changes nothing [HI3].

    `user_label` is the label that names the user where no annotation does [HI9].
    """
    revision = int(workload.metadata.resource_version or 0)
    if record is None:
        record = _begin(workload, seen)
    elif revision <= record.revision:
        return record
    elif record.ended is not None:
        if not _is_kept(record, workload):
            return record
        record = _reopened(record)
    queue = workload.spec.queue_name or ""
    if queue != record.queue and record.attempts:
        record = _moved(record)
    known = replace(
        record,
        queue=queue,
        priority=workload.spec.priority or 0,
        priority_class=_priority_class(workload),
        user=user(workload, user_label) or record.user,
        evictions=max(record.evictions, _evictions(workload)),
        limit_seconds=limit_seconds(workload),
        expected_seconds=expected_seconds(workload),
        ready=record.ready if record.ready is not None else _since_true(workload, WorkloadCondition.PODS_READY),
        revision=revision,
        seen=max(seen, record.seen),
    )
    if not record.attempts or record.attempts[-1].released is not None:
        known = _resized(known, workload)
    attempts, inexact = _attempts(known.attempts, workload, known.submitted, seen)
    known = replace(known, attempts=attempts, inexact=known.inexact or inexact)
    evicted = sum(each.reason not in ("", FINISHED, DELETED, RELEASED) for each in attempts)
    known = replace(known, evictions=max(known.evictions, evicted))
    finished = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
    if finished is None or finished.status != "True":
        return known
    return _ended(known, _seconds(finished.last_transition_time, seen), _outcome_of(finished))


def _outcome_of(finished: meta.Condition) -> Outcome:
    return _OUTCOMES.get(finished.reason, Outcome.SUCCEEDED)


def _is_kept(record: WorkloadRecord, workload: kueue.Workload) -> bool:
    """Whether a later state shows that a Workload goes on whose record ended because the manager was about to delete
    it: its finalizer is still there, so the API server refused that."""
    metadata = workload.metadata
    if record.outcome is not Outcome.CANCELLED or metadata.deletion_timestamp is not None:
        return False
    finished = conditions.find(workload.status.conditions, WorkloadCondition.FINISHED)
    is_cancelled = finished is not None and finished.status == "True" and _outcome_of(finished) is Outcome.CANCELLED
    return labels.RESOURCE_IN_USE_FINALIZER in metadata.finalizers and not is_cancelled


def _reopened(record: WorkloadRecord) -> WorkloadRecord:
    """Return the record as it was before its end."""
    attempts = record.attempts
    if attempts and attempts[-1].reason == DELETED:
        *earlier, last = attempts
        segments = (*last.segments[:-1], replace(last.segments[-1], end=None))
        attempts = (*earlier, replace(last, released=None, reason="", segments=segments))
    return replace(record, attempts=attempts, ended=None, outcome=Outcome.OPEN)


def running_seconds(record: WorkloadRecord, now: Seconds) -> int:
    """How long the Workload runs already in its present attempt; 0 if it does not run."""
    last = record.attempts[-1] if record.attempts else None
    return 0 if last is None or last.admitted is None or last.released is not None else max(0, now - last.admitted)


def lasted_seconds(record: WorkloadRecord, now: Seconds) -> int:
    """How long the Workload runs at least: the longest of its attempts, also of one that has not ended."""
    times = ((attempt.admitted, now if attempt.released is None else attempt.released) for attempt in record.attempts)
    return max((end - begin for begin, end in times if begin is not None and end > begin), default=0)


def is_like(before: WorkloadRecord, after: WorkloadRecord) -> bool:
    """Whether two versions of a record differ in nothing but when the Workload was last seen."""
    return replace(before, revision=after.revision, seen=after.seen) == after


def gone(record: WorkloadRecord, last: kueue.Workload | None, seen: Seconds) -> WorkloadRecord:
    """Return the record of a Workload that is deleted: it ended when the deletion was requested [HI6]."""
    if record.ended is not None:
        return record
    deleted = last.metadata.deletion_timestamp if last is not None else None
    return _ended(record, _seconds(deleted, seen), Outcome.CANCELLED)


def has_other_times(before: WorkloadRecord, after: WorkloadRecord) -> bool:
    """Whether a time of an attempt or the end was recorded between two versions of a record."""
    return (before.attempts, before.ended) != (after.attempts, after.ended)


def with_clock_set(record: WorkloadRecord) -> WorkloadRecord:
    """Return the record of a Workload between two times of which the clock was set: their difference is no duration
    [HI17]."""
    return replace(record, inexact=True)


def lost(record: WorkloadRecord) -> WorkloadRecord:
    """Return the record of a Workload that disappeared while no manager ran: closed when it was last seen [HI7]."""
    if record.ended is not None:
        return record
    return replace(_ended(record, record.seen, Outcome.UNKNOWN), inexact=True)


def with_exit_code(record: WorkloadRecord, code: int | None, *, is_end_known: bool = True) -> WorkloadRecord:
    """Return the record with the exit code of its pods; a code that was recorded before is kept [HI12]. A record whose
    last container was lost ends when that is last known to have run."""
    if code is None or record.exit_code is not None:
        return record
    return replace(record, exit_code=code, inexact=record.inexact or not is_end_known)


def _ended(record: WorkloadRecord, at: Seconds, outcome: Outcome) -> WorkloadRecord:
    attempts, shown = record.attempts, at
    if attempts and attempts[-1].released is None:
        last = attempts[-1]
        at = max(at, last.reserved if last.admitted is None else last.admitted)
        attempts = (*attempts[:-1], _closed(last, at, DELETED if outcome is Outcome.CANCELLED else FINISHED))
    at = max(at, record.submitted, *(each.released or 0 for each in attempts))
    # An end before the last start shows that the clock was set back, although no process saw that [HI17]. One before
    # the last release does not: the quota of an eviction is released when the pods are gone, and the job may have ended
    # or been deleted before.
    began = max((each.admitted for each in attempts if each.admitted is not None), default=record.submitted)
    inexact = record.inexact or began - shown > CLOCK_SET_SECONDS
    return replace(record, attempts=attempts, ended=at, outcome=outcome, inexact=inexact)


def _moved(record: WorkloadRecord) -> WorkloadRecord:
    """Return the record of a Workload that is moved to another LocalQueue: its attempts remain those of the one before,
    which was charged for them [HI13]."""
    attempts = tuple(each if each.queue else replace(each, queue=record.queue) for each in record.attempts)
    return replace(record, attempts=attempts)


# The generation of an object whose specification was never changed.
_FIRST_GENERATION: Final = 1


def _resized(record: WorkloadRecord, workload: kueue.Workload) -> WorkloadRecord:
    """Return the record with the pod sets of a state without quota: those of a job that is changed while it waits.

    While quota is reserved they stay as they were submitted; the amounts of an attempt follow what is in use. Pod sets
    that were never changed are not read again: a pending Workload is written often."""
    if workload.metadata.generation == _FIRST_GENERATION and record.shape:
        return record
    return replace(record, shape=shape(workload), pods=_pods(workload))


def _pods(workload: kueue.Workload) -> int:
    return sum(pod_set.count for pod_set in workload.spec.pod_sets)


def job_kind(kind: str, group: str) -> str:
    """How records name a kind of jobs, such as `job.batch`; `pod` is in no group."""
    return f"{kind.lower()}.{group}" if group else kind.lower()


def _begin(workload: kueue.Workload, seen: Seconds) -> WorkloadRecord:
    metadata = workload.metadata
    # Of a group of pods none is the job: its name is that of the group, which is that of the Workload.
    owner = workload_owners.job_of(workload)
    shown = owner or next(iter(metadata.owner_references), None)
    group, _, _ = shown.api_version.rpartition("/") if shown is not None else ("", "", "")
    return WorkloadRecord(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        job_kind=job_kind(shown.kind, group) if shown is not None else "",
        job_name=owner.name if owner is not None else metadata.name if shown is not None else "",
        job_uid=shown.uid if shown is not None else "",
        pods=_pods(workload),
        shape=shape(workload),
        submitted=_seconds(metadata.creation_timestamp, seen),
        slice_of=metadata.annotations.get(labels.WORKLOAD_SLICE_REPLACEMENT_FOR, ""),
        seen=seen,
    )


def _attempts(
    attempts: tuple[Attempt, ...], workload: kueue.Workload, submitted: Seconds, seen: Seconds
) -> tuple[tuple[Attempt, ...], bool]:
    """Return the attempts after a state, and whether the end of one is only known to be before the next."""
    found = conditions.find(workload.status.conditions, WorkloadCondition.QUOTA_RESERVED)
    is_reserved = found is not None and found.status == "True" and workload.status.admission is not None
    since = _seconds(found.last_transition_time, seen) if found is not None else seen
    last = attempts[-1] if attempts else None
    if last is not None and last.released is None:
        if is_reserved and last.mark == since:
            return (*attempts[:-1], _updated(last, workload, seen)), False
        reason, preemptor = _why_released(workload)
        if not is_reserved:
            return (*attempts[:-1], _closed(last, since, reason, preemptor)), False
        # The release was never seen: it was before the next reservation.
        attempts = (*attempts[:-1], _closed(last, since, RELEASED))
        return (*attempts, _opened(attempts, workload, since, submitted, seen)), True
    if is_reserved:
        return (*attempts, _opened(attempts, workload, since, submitted, seen)), False
    return attempts, False


def _opened(
    attempts: tuple[Attempt, ...], workload: kueue.Workload, mark: Seconds, submitted: Seconds, seen: Seconds
) -> Attempt:
    admission = workload.status.admission
    assert admission is not None, "an attempt begins with an admission"
    reserved = max(mark, submitted, attempts[-1].released or 0 if attempts else 0)
    new = Attempt(mark, admission.cluster_queue, reserved, segments=(UsageSegment(reserved, None, usage(workload)),))
    return _updated(new, workload, seen)


def _updated(attempt: Attempt, workload: kueue.Workload, seen: Seconds) -> Attempt:
    """Return an open attempt with the admission and the amounts of a state."""
    admitted = _since_true(workload, WorkloadCondition.ADMITTED)
    if attempt.admitted is None and admitted is not None:
        admitted = max(admitted, attempt.segments[-1].start)
        attempt = replace(attempt, admitted=admitted, segments=_cut(attempt.segments, admitted, usage(workload)))
    amounts = usage(workload)
    if amounts != attempt.segments[-1].amounts:
        attempt = replace(attempt, segments=_cut(attempt.segments, max(seen, attempt.segments[-1].start), amounts))
    return attempt


def _cut(
    segments: tuple[UsageSegment, ...], at: Seconds, amounts: tuple[FlavorAmount, ...]
) -> tuple[UsageSegment, ...]:
    """Return the segments with the last one ended at a time, and one with other amounts from then on."""
    *earlier, last = segments
    kept = (*earlier, replace(last, end=at)) if at > last.start else tuple(earlier)
    return (*kept, UsageSegment(at, None, amounts))


def _closed(attempt: Attempt, at: Seconds, reason: str, preemptor: str = "") -> Attempt:
    """Return the attempt with its quota released. No time in it is later than its end."""
    last = attempt.segments[-1]
    at = max(at, last.start)
    kept = (*attempt.segments[:-1], replace(last, end=at))
    return replace(attempt, released=at, reason=reason, preemptor=preemptor, segments=kept)


def _why_released(workload: kueue.Workload) -> tuple[str, str]:
    evicted = conditions.find(workload.status.conditions, WorkloadCondition.EVICTED)
    if evicted is None or evicted.status != "True":
        return RELEASED, ""
    return evicted.reason, _preemptor(evicted.message) if evicted.reason == EvictedReason.PREEMPTED else ""


def _preemptor(message: str) -> str:
    """The UID in the message of a preemption: `Preempted to accommodate a workload (UID: …, JobUID: …)`."""
    _, found, rest = message.partition("(UID: ")
    return rest.partition(",")[0].strip() if found else ""


# --- Reading a Workload -----------------------------------------------------------------------------------------------


def usage(workload: kueue.Workload) -> tuple[FlavorAmount, ...]:
    """What a Workload reserves, by flavor and resource: of partly admitted and reclaimable pods, what is left [HI5]."""
    admission = workload.status.admission
    if admission is None:
        return ()
    sizes = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    total: dict[tuple[str, str], int] = {}
    for assignment in admission.pod_set_assignments:
        size = sizes.get(assignment.name, 0)
        left = requests.remaining_count(assignment.name, size, workload.status.reclaimable_pods)
        for resource, amount in requests.reserved(assignment, size, left)[0]:
            flavor = assignment.flavors.get(resource)
            if flavor is not None and amount:
                total[flavor, resource] = total.get((flavor, resource), 0) + amount
    return tuple((flavor, resource, amount) for (flavor, resource), amount in sorted(total.items()))


def shape(workload: kueue.Workload) -> bytes:
    """The pod sets as JSON: count, requests, node selector, tolerations, topology request."""
    rows = []
    for pod_set in workload.spec.pod_sets:
        spec = pod_set.template.spec
        figure = requests.read(spec).figure
        row = {
            "name": pod_set.name,
            "count": pod_set.count,
            "minCount": pod_set.min_count,
            "requests": {resource: amount.canonical for resource, amount in sorted(figure.items())},
            "nodeSelector": spec.node_selector,
            "tolerations": spec.tolerations,
            "topologyRequest": pod_set.topology_request,
        }
        rows.append({name: value for name, value in row.items() if value not in (None, {}, ())})
    return msgspec.json.encode(rows, order="sorted")


def pod_sets(shape: bytes) -> tuple[kueue.PodSet, ...]:
    """The pod sets of a shape, with one container each: what `shape` reads is the same, the rest is not recorded."""
    return tuple(map(_pod_set, msgspec.json.decode(shape))) if shape else ()


def _pod_set(row: Tree) -> kueue.PodSet:
    template: Tree = {key: row[key] for key in ("nodeSelector", "tolerations") if key in row}
    template["containers"] = [{"name": "main", "resources": {"requests": row.get("requests", {})}}]
    rest: Tree = {key: row[key] for key in ("minCount", "topologyRequest") if key in row}
    tree = {"name": row["name"], "count": row["count"], "template": {"spec": template}, **rest}
    return codec.from_tree(tree, kueue.PodSet)


def limit_seconds(workload: kueue.Workload) -> int | None:
    """The enforced limit of the run time: the smaller of the Workload's own and its job's deadline [RT2]."""
    found = [
        each for each in (workload.spec.maximum_execution_time_seconds, states.job_deadline_seconds(workload)) if each
    ]
    return min(found) if found else None


def expected_seconds(workload: kueue.Workload) -> int | None:
    """The expected run time that the user gave; one that cannot be parsed counts as absent [RT3]."""
    text = workload.metadata.annotations.get(labels.EXPECTED_TIME, "")
    try:
        found = meta.parse_duration(text) // SECOND if text else 0
    except meta.TimeError:
        return None
    return found if found > 0 else None


def user(workload: kueue.Workload, label: str) -> str:
    """The user of a Workload: the annotation, else the label of that name, else empty [HI9]."""
    metadata = workload.metadata
    return metadata.annotations.get(labels.SUBMITTED_BY, "") or (metadata.labels.get(label, "") if label else "")


def _priority_class(workload: kueue.Workload) -> str:
    found = workload.spec.priority_class_ref
    return found.name if found is not None else ""


def _evictions(workload: kueue.Workload) -> int:
    stats = workload.status.scheduling_stats
    return sum(entry.count for entry in stats.evictions) if stats is not None else 0


def _since_true(workload: kueue.Workload, condition: WorkloadCondition) -> Seconds | None:
    since = states.since(workload, condition) if states.has(workload, condition) else None
    return None if since is None else since // SECOND


def _seconds(text: str | None, otherwise: Seconds) -> Seconds:
    moment = states.moment(text)
    return otherwise if moment is None else moment // SECOND
