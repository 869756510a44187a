"""Traces: the jobs of a time range, as they were recorded, ready to be submitted again.

A trace is made of records of the history, or of a file in the Standard Workload Format, whose queues and users become
ClusterQueues and LocalQueues of their own [PC6]. Nothing here reads a file or a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubemachinery import meta, quantity
from kubemachinery.errors import UsageError
from kubemachinery.meta import SECOND
from kubemachinery.quantity import Quantity, QuantityError
from pykueue import wording
from pykueue.api import kube, kueue
from pykueue.core import amounts
from pykueue.history import records
from pykueue.history.records import (
    DELETED,
    FINISHED,
    RELEASED,
    Attempt,
    Outcome,
    Seconds,
    WorkloadRecord,
)
from pykueue.history.swf import LONGEST, MOST, SwfFile, SwfJob, most_used

PodSets = tuple[kueue.PodSet, ...]

# The reasons of an attempt that ended without an eviction.
_NOT_EVICTED: Final = frozenset({"", FINISHED, DELETED, RELEASED})


class TraceJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job of a trace: what was submitted and when, how long it runs, and what was recorded of it."""

    uid: str
    namespace: str
    name: str
    queue: str
    pod_sets: PodSets
    submitted: Seconds
    user: str = ""
    priority: int = 0
    priority_class: str = ""
    # The job that its pods belonged to, for estimates: jobs of one name shape are alike.
    job_name: str = ""
    # How long it runs without an interruption; None if it never ended by itself, so that only `ran_at_least` is known.
    run_seconds: int | None = None
    ran_at_least: int = 0
    limit_seconds: int | None = None
    expected_seconds: int | None = None
    # When it was deleted while it was waiting.
    withdrawn: Seconds | None = None
    # The attempts that were recorded; none for a file.
    attempts: tuple[Attempt, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def workload(self) -> kueue.Workload:
        """The Workload that the job is submitted as."""
        metadata = meta.ObjectMeta(
            name=self.name,
            namespace=self.namespace,
            uid=self.uid,
            creation_timestamp=meta.format_time(self.submitted * SECOND),
            resource_version="1",
            generation=1,
        )
        spec = kueue.WorkloadSpec(
            pod_sets=self.pod_sets,
            queue_name=self.queue,
            priority=self.priority,
            active=True,
            maximum_execution_time_seconds=self.limit_seconds,
        )
        return kueue.Workload(metadata=metadata, spec=spec)


def is_evicted(attempt: Attempt) -> bool:
    """Whether an eviction ended the attempt."""
    return attempt.reason not in _NOT_EVICTED


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a time range by submission.

    `is_complete`: the range ends with the last job, so that a replay runs until all of them have ended. Otherwise it is
    a part of a longer history, and a replay ends where the range ends.
    """

    source: str
    begin: Seconds
    end: Seconds
    jobs: tuple[TraceJob, ...]
    is_complete: bool = False
    has_recorded: bool = True
    # Limits of the result, a sentence each.
    notices: tuple[str, ...] = ()
    # Objects that a file implies: its queues.
    objects: tuple[msgspec.Struct, ...] = ()


# --- From the history -------------------------------------------------------------------------------------------------


def of_records(recorded: Iterable[WorkloadRecord], begin: Seconds, end: Seconds, source: str) -> Trace:
    """The trace of a time range: what was submitted in it, and what was waiting or running when it began [PC3]."""
    shapes = _Shapes()
    jobs, skipped = [], 0
    for record in recorded:
        if record.submitted >= end or (record.ended is not None and record.ended < begin):
            continue
        if record.outcome is Outcome.REPLACED or record.slice_of:
            skipped += 1
            continue
        jobs.append(_of_record(record, shapes, end))
    notices = []
    if skipped:
        notices.append(f"{skipped} slices of elastic jobs are left out: a replay cannot submit them")
    jobs.sort(key=lambda job: (job.submitted, job.uid))
    return Trace(source=source, begin=begin, end=end, jobs=tuple(jobs), notices=tuple(notices))


def _of_record(record: WorkloadRecord, shapes: _Shapes, end: Seconds) -> TraceJob:
    run, least = run_time(record.attempts, record.outcome, end)
    was_waiting = not record.attempts or record.attempts[-1].reason != DELETED
    withdrawn = record.ended if record.outcome is Outcome.CANCELLED and was_waiting else None
    return TraceJob(
        uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        queue=record.queue,
        user=record.user,
        priority=record.priority,
        priority_class=record.priority_class,
        job_name=record.job_name,
        pod_sets=shapes.pod_sets(record.shape),
        submitted=record.submitted,
        run_seconds=run,
        ran_at_least=least,
        limit_seconds=record.limit_seconds,
        expected_seconds=record.expected_seconds,
        withdrawn=withdrawn,
        attempts=record.attempts,
    )


def run_time(attempts: Sequence[Attempt], outcome: Outcome, seen: Seconds) -> tuple[int | None, int]:
    """How long a job runs, if a run of it ended by itself; and the longest run that was seen until a time [PC2]."""
    longest = 0
    for each in attempts:
        if each.admitted is not None:
            longest = max(longest, (seen if each.released is None else each.released) - each.admitted)
    last = attempts[-1] if attempts else None
    if last is None or last.admitted is None or last.released is None or last.reason != FINISHED:
        return None, longest
    ended_itself = outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    return (last.released - last.admitted if ended_itself else None), longest


class _Shapes:
    """Pod sets by their JSON in the history. Equal ones are one value, which the scheduler reads once."""

    def __init__(self) -> None:
        self._known: dict[bytes, PodSets] = {}

    def pod_sets(self, shape: bytes) -> PodSets:
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = records.pod_sets(shape)
        return found


# --- From a file in the Standard Workload Format ----------------------------------------------------------------------

FLAVOR: Final = "default"
COHORT: Final = "trace"
_LETTERS: Final = str.maketrans("0123456789", "abcdefghij")


class SwfMapping(msgspec.Struct, frozen=True, kw_only=True):
    """How a file becomes jobs: what one processor is, and the names behind the numbers by column."""

    per_processor: Mapping[str, Quantity] = msgspec.field(default_factory=lambda: {"cpu": quantity.parse("1")})
    names: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)

    def name(self, column: str, number: int, prefix: str) -> str:
        """The name of a number: from the names, or made of a prefix and the number; `prefix` alone if it is unknown."""
        if (known := self._known(column, number)) is not None:
            return known
        return f"{prefix}-{number}" if number >= 0 else prefix

    def object_name(self, column: str, number: int, prefix: str) -> str:
        """The name of the object that stands for a number. Users have names that no object can have, such as addresses:
        of those it is made of the prefix and the number, and no other number has it."""
        known = self._known(column, number)
        if known is None or not meta.check_label_name(known):
            return self.name(column, number, prefix)
        made = f"{prefix}-{number}"
        while made in self.names[column]:
            made += "-x"
        return made

    def program(self, number: int) -> str:
        """The name of an executable: from the names, or made of its number in letters. Two numbers are two programs,
        and names that differ only in digits would be those of one program that runs again and again [RT5]."""
        if (known := self._known("name", number)) is not None:
            return known
        return f"program-a{str(number).translate(_LETTERS)}" if number >= 0 else "program"

    def _known(self, column: str, number: int) -> str | None:
        known = self.names.get(column, ())
        return known[number - 1] if 1 <= number <= len(known) else None


def per_processor(texts: Iterable[str]) -> dict[str, Quantity]:
    """`RESOURCE=QUANTITY` of `--map`: what one processor of a file is."""
    found = {}
    for text in texts:
        resource, equals, value = text.partition("=")
        try:
            if not equals or not resource:
                raise QuantityError("must be RESOURCE=QUANTITY, such as nvidia.com/gpu=1")
            if messages := meta.check_qualified_name(resource):
                raise QuantityError(f"{resource!r} is no resource: {messages[0]}")
            if resource in found:
                raise QuantityError("the resource is given twice")
            found[resource] = quantity.parse(value)
        except QuantityError as error:
            raise UsageError(f"--map {text}: {error}") from None
        if found[resource].rounded(-3) <= 0:
            raise UsageError(f"--map {text}: the quantity must be positive")
    return found or {"cpu": quantity.parse("1")}


def of_swf(file: SwfFile, source: str, mapping: SwfMapping) -> Trace:
    """The jobs of a file, and the queues that they imply [PC6].

    A queue of the file is a ClusterQueue, and the namespace of its jobs; a user is a LocalQueue in it. Jobs that ran on
    no processor, or for which no run time is known, are left out and counted.
    """
    start = file.number("UnixStartTime") or 0
    if start > LONGEST:
        raise UsageError(
            f"{source}: UnixStartTime {file.header['UnixStartTime']}: is later than {LONGEST} s after 1970"
        )
    size_field = "MaxProcs" if file.number("MaxProcs") else "MaxNodes"
    size = file.number(size_field)
    if size is not None and size > MOST:
        raise UsageError(f"{source}: {size_field} {file.header[size_field]}: is larger than {MOST}")
    if not file.jobs:
        raise UsageError(f"{source}: has no line of a job")
    jobs: list[TraceJob] = []
    absent = 0
    pod_sets: dict[int, PodSets] = {}
    for job in file.jobs:
        processors = job.requested_processors if job.requested_processors > 0 else job.processors
        if processors <= 0 or job.ran < 0:
            absent += 1
            continue
        if processors not in pod_sets:
            pod_sets[processors] = _of_processors(processors, mapping.per_processor)
        jobs.append(_of_line(job, start, mapping, pod_sets[processors], len(jobs) + 1))
    if not jobs:
        raise UsageError(f"{source}: has no job that ran")
    jobs.sort(key=lambda job: (job.submitted, job.uid))
    notices = [f"left out {reason}" for reason in file.left_out[:_SHOWN]]
    if len(file.left_out) > _SHOWN:
        notices.append(f"left out {len(file.left_out) - _SHOWN} more: no jobs")
    if absent:
        notices.append(f"left out {wording.counted(absent, 'job')} without processors or without a run time")
    expected = file.number("MaxJobs")
    if expected is not None and expected != len(file.jobs) and not file.left_out:
        notices.append(f"the header announces {wording.counted(expected, 'job')}, and the file has {len(file.jobs)}")
    processors_max = size or most_used(file.jobs)
    return Trace(
        source=source,
        begin=jobs[0].submitted,
        end=max(jobs[-1].submitted + 1, jobs[0].submitted + 1),
        jobs=tuple(jobs),
        is_complete=True,
        has_recorded=False,
        notices=tuple(notices),
        objects=tuple(queues_of(jobs, processors_max, mapping.per_processor)),
    )


_SHOWN: Final = 3


def _of_line(job: SwfJob, start: Seconds, mapping: SwfMapping, pod_sets: PodSets, number: int) -> TraceJob:
    # A limit that the recorded run exceeds was not enforced: no recorded run is cut short.
    limit = max(job.limit, job.ran) if job.limit > 0 else None
    return TraceJob(
        uid=f"{number:012d}",
        namespace=mapping.object_name("queue", job.queue, "queue"),
        name=f"job-{number}",
        queue=mapping.object_name("user", job.user, "user"),
        user=mapping.name("user", job.user, "user"),
        job_name=mapping.program(job.executable),
        pod_sets=pod_sets,
        submitted=start + job.submitted,
        run_seconds=max(job.ran, 1),
        limit_seconds=limit,
    )


def _of_processors(processors: int, per_processor: Mapping[str, Quantity]) -> PodSets:
    """One pod set with a pod for each processor."""
    requests: dict[str, quantity.QuantityText] = {
        resource: amount.canonical for resource, amount in sorted(per_processor.items())
    }
    container = kube.Container(name="main", resources=kube.ResourceRequirements(requests=requests))
    template = kube.PodTemplateSpec(spec=kube.PodSpec(containers=(container,)))
    return (kueue.PodSet(name="main", count=processors, template=template),)


def queues_of(jobs: Sequence[TraceJob], processors: int, per_processor: Mapping[str, Quantity]) -> list[msgspec.Struct]:
    """A ClusterQueue of one cohort for each queue, with a quota in proportion to its use; its namespace; and the
    LocalQueues of its users."""
    work: dict[str, int] = {}
    users: dict[tuple[str, str], None] = {}
    for job in jobs:
        work[job.namespace] = work.get(job.namespace, 0) + job.pod_sets[0].count * (job.run_seconds or 0)
        users[job.namespace, job.queue] = None
    shares = in_proportion(processors, {name: work[name] for name in sorted(work)})
    found: list[msgspec.Struct] = [kueue.ResourceFlavor(metadata=meta.ObjectMeta(name=FLAVOR))]
    for name, share in shares.items():
        found.append(kube.Namespace(metadata=meta.ObjectMeta(name=name)))
        quotas = tuple(
            kueue.ResourceQuota(
                name=resource,
                nominal_quota=amounts.as_quantity(resource, amounts.of_quota(resource, amount) * share).canonical,
            )
            for resource, amount in sorted(per_processor.items())
        )
        group = kueue.ResourceGroup(
            covered_resources=tuple(sorted(per_processor)),
            flavors=(kueue.FlavorQuotas(name=FLAVOR, resources=quotas),),
        )
        spec = kueue.ClusterQueueSpec(
            resource_groups=(group,), cohort_name=COHORT, namespace_selector=meta.LabelSelector()
        )
        found.append(kueue.ClusterQueue(metadata=meta.ObjectMeta(name=name), spec=spec))
    return [*found, *(local_queue(namespace, name, namespace) for namespace, name in sorted(users))]


def local_queue(namespace: str, name: str, cluster_queue: str) -> kueue.LocalQueue:
    """A LocalQueue of a ClusterQueue."""
    metadata = meta.ObjectMeta(name=name, namespace=namespace)
    return kueue.LocalQueue(metadata=metadata, spec=kueue.LocalQueueSpec(cluster_queue=cluster_queue))


def in_proportion(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """A total divided in proportion to weights, in whole numbers that add up to it: by the largest remainders."""
    whole = sum(weights.values())
    if not whole:
        weights, whole = dict.fromkeys(weights, 1), len(weights)
    shares = {name: total * weight // whole for name, weight in weights.items()}
    left = total - sum(shares.values())
    by_remainder = sorted(weights, key=lambda name: -(total * weights[name] % whole))
    for name in by_remainder[:left]:
        shares[name] += 1
    return shares


def with_queues(trace: Trace, objects: Sequence[msgspec.Struct], source: str) -> tuple[msgspec.Struct, ...]:
    """The objects of a base, with the namespaces and LocalQueues that the jobs of a file need [PC6].

    A LocalQueue of the base is taken as it is. Others belong to the ClusterQueue that is named like their queue, or to
    the only one there is.
    """
    there = {(type(thing), *_identity(thing)) for thing in objects}
    cluster_queues = sorted(thing.metadata.name for thing in objects if isinstance(thing, kueue.ClusterQueue))
    found = list(objects)
    for thing in trace.objects:
        if (type(thing), *_identity(thing)) in there or not isinstance(thing, (kube.Namespace, kueue.LocalQueue)):
            continue
        if isinstance(thing, kueue.LocalQueue):
            wanted = thing.spec.cluster_queue or ""
            if wanted not in cluster_queues and len(cluster_queues) != 1:
                raise UsageError(
                    f"{source}: jobs of {wanted} need a ClusterQueue {wanted}, or a LocalQueue"
                    f" {thing.metadata.namespace}/{thing.metadata.name}; --in has the ClusterQueues"
                    f" {', '.join(cluster_queues) or '(none)'}"
                )
            target = wanted if wanted in cluster_queues else cluster_queues[0]
            found.append(local_queue(thing.metadata.namespace, thing.metadata.name, target))
        else:
            found.append(thing)
    return tuple(found)


def _identity(thing: msgspec.Struct) -> tuple[str, str]:
    metadata: meta.ObjectMeta = thing.metadata  # type: ignore[attr-defined]
    return metadata.namespace, metadata.name
