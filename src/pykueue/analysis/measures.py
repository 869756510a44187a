"""The measures of a comparison: waiting, slowdown, use, lost work, fairness, evictions, of the jobs of a trace [PC5].

Pure functions of what happened to each job. The same functions measure what was recorded and what was replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from pykueue.analysis.traces import TraceJob, is_evicted
from pykueue.core import amounts
from pykueue.core.queue import FlavorResource
from pykueue.history.records import FINISHED, Attempt, Seconds

# Runs shorter than this do not make a slowdown large.
SLOWDOWN_BOUND_SECONDS: Final = 10
_HOUR: Final = 3600


class JobOutcome(NamedTuple):
    """What happened to a job, recorded or replayed: its attempts in order."""

    job: TraceJob
    attempts: tuple[Attempt, ...]

    @property
    def started(self) -> Seconds | None:
        """When it was first admitted."""
        return next((each.admitted for each in self.attempts if each.admitted is not None), None)

    @property
    def finished(self) -> Seconds | None:
        """When it ended by itself."""
        last = self.attempts[-1] if self.attempts else None
        return last.released if last is not None and last.reason == FINISHED else None


class Step(NamedTuple):
    """An amount from a time on."""

    since: Seconds
    amount: int


class QueueQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of a ClusterQueue over time, and the root of its cohort tree (or itself)."""

    tree: str
    nominal: Mapping[FlavorResource, tuple[Step, ...]]


class MeasuredRange(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted: jobs that were submitted, and usage, from `begin` on and before `end` [PC3]."""

    begin: Seconds
    end: Seconds
    # The quota of ClusterQueues by name, and of the cohorts themselves by their tree.
    queues: Mapping[str, QueueQuota]
    cohorts: Mapping[str, QueueQuota]
    # The resource that sizes and fairness are measured in.
    resource: str


class Unit(StrEnum):
    """What a figure is counted in."""

    COUNT = "count"
    SECONDS = "seconds"
    HOURS = "hours"
    SHARE = "share"
    RATIO = "ratio"


class Figure(NamedTuple):
    """A measure: its key in documents, its title in tables, and its value; None if there is nothing to measure."""

    key: str
    title: str
    unit: Unit
    value: float | None


# --- All measures -----------------------------------------------------------------------------------------------------


def measure(outcomes: Iterable[JobOutcome], within: MeasuredRange) -> list[Figure]:
    """The figures of a run, in the order of the report."""
    every = list(outcomes)
    counted = [each for each in every if within.begin <= each.job.submitted < within.end]
    started = [each for each in counted if each.started is not None]
    lost, use = lost_hours(every, within), usage_share(every, within)
    return [
        Figure("started", "jobs that started", Unit.COUNT, len(started)),
        *_waiting(started, within),
        *_slowdown(started),
        *(Figure(f"use.{p.flavor}.{p.resource}", f"use of {_pair(p)}", Unit.SHARE, use[p]) for p in sorted(use)),
        *(Figure(f"lost.{name}", f"{name} hours lost to eviction", Unit.HOURS, lost[name]) for name in sorted(lost)),
        Figure("evictions", "evictions", Unit.COUNT, evictions(every, within)),
        Figure("fairness", "fairness (Jain)", Unit.RATIO, fairness(every, within)),
        *_not_started(counted, within),
    ]


def _pair(pair: FlavorResource) -> str:
    return f"{pair.flavor}/{pair.resource}"


def _waiting(started: Sequence[JobOutcome], within: MeasuredRange) -> Iterator[Figure]:
    waited = sorted(map(waiting, started))
    yield Figure("waiting.mean", "waiting, mean", Unit.SECONDS, mean(waited))
    yield Figure("waiting.p50", "waiting, median", Unit.SECONDS, quantile(waited, 50))
    yield Figure("waiting.p90", "waiting, 90th percentile", Unit.SECONDS, quantile(waited, 90))
    yield Figure("waiting.longest", "waiting, longest", Unit.SECONDS, waited[-1] if waited else None)
    by_class: dict[str, list[int]] = {}
    for each in started:
        by_class.setdefault(size_class(size(each.job, within.resource)), []).append(waiting(each))
    if len(by_class) > 1:
        for name in (label for _, label in _SIZES if label in by_class):
            title = f"waiting, {name} {within.resource}, median"
            yield Figure(f"waiting.size.{name}", title, Unit.SECONDS, quantile(sorted(by_class[name]), 50))


def _slowdown(started: Sequence[JobOutcome]) -> Iterator[Figure]:
    slow = sorted(value for value in map(bounded_slowdown, started) if value is not None)
    yield Figure("slowdown.mean", "bounded slowdown, mean", Unit.RATIO, mean(slow))
    yield Figure("slowdown.p50", "bounded slowdown, median", Unit.RATIO, quantile(slow, 50))


def _not_started(counted: Sequence[JobOutcome], within: MeasuredRange) -> Iterator[Figure]:
    never = [each for each in counted if each.started is None]
    so_far = [max(0, (each.job.withdrawn or within.end) - each.job.submitted) for each in never]
    yield Figure("notStarted", "jobs that did not start", Unit.COUNT, len(never))
    if never:
        yield Figure("notStarted.waited", "their waiting so far, mean", Unit.SECONDS, mean(so_far))


# --- Each measure -----------------------------------------------------------------------------------------------------


def waiting(outcome: JobOutcome) -> int:
    """Seconds from submission to the first admission."""
    started = outcome.started
    assert started is not None, "the job has started"
    return max(0, started - outcome.job.submitted)


def bounded_slowdown(outcome: JobOutcome) -> float | None:
    """The time from submission to the end, divided by the run time; runs below ten seconds count as ten.

    None for a job that has not ended by itself."""
    finished = outcome.finished
    if finished is None:
        return None
    last = outcome.attempts[-1]
    ran = finished - (last.reserved if last.admitted is None else last.admitted)
    return max(1.0, (finished - outcome.job.submitted) / max(ran, SLOWDOWN_BOUND_SECONDS))


def usage_share(outcomes: Iterable[JobOutcome], within: MeasuredRange) -> dict[FlavorResource, float | None]:
    """Used quota times seconds, divided by nominal quota times seconds, by flavor and resource. None if a quota has no
    limit."""
    used = dict.fromkeys(_pairs(within), 0)
    for each in outcomes:
        for pair, seconds, amount in used_within(each.attempts, within.begin, within.end):
            if pair in used:
                used[pair] += amount * seconds
    shares: dict[FlavorResource, float | None] = {}
    for pair, total in used.items():
        steps = [quota.nominal[pair] for quota in _all_quotas(within) if pair in quota.nominal]
        given = [integral(each, within.begin, within.end) for each in steps]
        nominal = None if None in given else sum(value for value in given if value is not None)
        if nominal != 0 or total:
            shares[pair] = total / nominal if nominal else None
    return shares


def _all_quotas(within: MeasuredRange) -> Iterator[QueueQuota]:
    yield from within.queues.values()
    yield from within.cohorts.values()


def _pairs(within: MeasuredRange) -> list[FlavorResource]:
    return sorted({pair for quota in _all_quotas(within) for pair in quota.nominal})


def lost_hours(outcomes: Iterable[JobOutcome], within: MeasuredRange) -> dict[str, float]:
    """Resource hours of attempts that an eviction ended, by resource that is counted in pieces."""
    lost: dict[str, int] = {pair.resource: 0 for pair in _pairs(within) if is_countable(pair.resource)}
    for each in outcomes:
        evicted = [attempt for attempt in each.attempts if is_evicted(attempt)]
        for pair, seconds, amount in used_within(evicted, within.begin, within.end):
            if is_countable(pair.resource):
                lost[pair.resource] = lost.get(pair.resource, 0) + amount * seconds
    return {name: pieces(name, total) / _HOUR for name, total in lost.items()}


def evictions(outcomes: Iterable[JobOutcome], within: MeasuredRange) -> int:
    """How many attempts an eviction ended in the range."""
    return sum(
        is_evicted(attempt) and attempt.released is not None and within.begin <= attempt.released < within.end
        for each in outcomes
        for attempt in each.attempts
    )


def fairness(outcomes: Iterable[JobOutcome], within: MeasuredRange) -> float | None:
    """Jain's index over ClusterQueues of used ÷ entitled, of one resource; 1 is equal.

    Entitled is the smaller of what the jobs of the ClusterQueue could have used, and its share by nominal quota of what
    its cohort tree used. ClusterQueues that are entitled to nothing do not count. None with fewer than two.
    """
    used: dict[str, int] = {}
    asked: dict[str, int] = {}
    for each in outcomes:
        for attempt in each.attempts:
            for pair, seconds, amount in used_within([attempt], within.begin, within.end):
                if pair.resource == within.resource:
                    used[attempt.cluster_queue] = used.get(attempt.cluster_queue, 0) + amount * seconds
        name = each.attempts[-1].cluster_queue if each.attempts else ""
        if name:
            asked[name] = asked.get(name, 0) + _askable(each, within)
    return jain(
        [used.get(name, 0) / entitled for name, entitled in entitlements(used, asked, within).items() if entitled > 0]
    )


def _askable(outcome: JobOutcome, within: MeasuredRange) -> int:
    """What a job could have used in the range: its size, for as long as it runs."""
    length = outcome.job.run_seconds
    if length is None:
        length = max((a.released - a.admitted for a in outcome.attempts if a.admitted and a.released), default=0)
    seconds = min(length, within.end - max(outcome.job.submitted, within.begin))
    return size(outcome.job, within.resource) * max(0, seconds)


def entitlements(used: Mapping[str, int], asked: Mapping[str, int], within: MeasuredRange) -> dict[str, float]:
    """What each ClusterQueue is entitled to: its share by nominal quota of what its tree used, or less if it asked for
    less."""
    given: dict[str, int] = {}
    nominal: dict[str, int] = {}
    for name, quota in within.queues.items():
        given[quota.tree] = given.get(quota.tree, 0) + used.get(name, 0)
        nominal[quota.tree] = nominal.get(quota.tree, 0) + _nominal(quota, within)
    return {
        name: min(asked.get(name, 0), given[quota.tree] * _nominal(quota, within) / nominal[quota.tree])
        for name, quota in within.queues.items()
        if nominal[quota.tree]
    }


def _nominal(quota: QueueQuota, within: MeasuredRange) -> int:
    pairs = (steps for pair, steps in quota.nominal.items() if pair.resource == within.resource)
    return sum(integral(steps, within.begin, within.end) or 0 for steps in pairs)


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index: (Σx)² ÷ (n·Σx²). None with fewer than two values, or if all are zero."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if len(shares) > 1 and squares else None


# --- Parts ------------------------------------------------------------------------------------------------------------

# Size classes by the amount of the resource: up to this, and the name.
_SIZES: Final = ((1, "1"), (15, "2-15"), (127, "16-127"), (amounts.UNLIMITED, "128+"))


def size_class(amount: int) -> str:
    """The class of a size in whole pieces, such as `16-127`."""
    return next(label for most, label in _SIZES if amount <= most)


def size(job: TraceJob, resource: str) -> int:
    """What a job requests of a resource, in whole pieces."""
    from pykueue.core import requests

    total = 0
    for pod_set in job.pod_sets:
        figure = requests.read(pod_set.template.spec).figure
        if resource in figure:
            total += amounts.of_request(resource, figure[resource]) * pod_set.count
    return -(-total // _unit(resource))


def is_countable(resource: str) -> bool:
    """Whether a resource is counted in pieces, and not in bytes."""
    return resource not in ("memory", "ephemeral-storage", "pods") and not resource.startswith("hugepages-")


def pieces(resource: str, amount: int) -> float:
    """An amount in whole pieces: cpu is counted in thousandths."""
    return amount / _unit(resource)


def _unit(resource: str) -> int:
    return 1000 if resource == amounts.CPU else 1


def main_resource(resources: Iterable[str]) -> str:
    """The resource that sizes are measured in: the first accelerator, else cpu, else the first."""
    names = sorted(resources)
    accelerators = [name for name in names if "/" in name]
    return accelerators[0] if accelerators else "cpu" if "cpu" in names or not names else names[0]


def used_within(attempts: Iterable[Attempt], begin: Seconds, end: Seconds) -> Iterator[tuple[FlavorResource, int, int]]:
    """The pair, the seconds and the amount of all usage in a range."""
    for attempt in attempts:
        for segment in attempt.segments:
            seconds = min(end if segment.end is None else segment.end, end) - max(segment.start, begin)
            if seconds > 0:
                for flavor, resource, amount in segment.amounts:
                    yield FlavorResource(flavor, resource), seconds, amount


def integral(steps: Sequence[Step], begin: Seconds, end: Seconds) -> int | None:
    """Amount times seconds of a range; None if the amount has no limit at a time of it."""
    total = 0
    for place, step in enumerate(steps):
        until = steps[place + 1].since if place + 1 < len(steps) else end
        seconds = min(until, end) - max(step.since, begin)
        if seconds > 0:
            if step.amount == amounts.UNLIMITED:
                return None
            total += step.amount * seconds
    return total


def step_at(steps: Sequence[Step], at: float) -> int:
    """The amount at a time; 0 before the first, and where there is no limit."""
    found = next((step.amount for step in reversed(steps) if step.since <= at), 0)
    return 0 if found == amounts.UNLIMITED else found


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def quantile(values: Sequence[float], percent: int) -> float | None:
    """Value number ⌈q·n⌉ of the sorted values, without interpolation."""
    return values[max(0, -(-percent * len(values) // 100) - 1)] if values else None
