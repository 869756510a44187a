"""Start forecasts: their speed, and how well their quantiles cover the starts.

    python -m bench forecast [--json=FILE] [--pending=N] [--days=D] [--every=HOURS] [--worlds=A,B] [--seeds=N,N]
                             [--trace=FILE ... [--procs=N] [--strategy=StrictFIFO]] [--known=runs|law]
                             [--save=FILE] [--saved=FILE,FILE] [--markdown] [--lengths]

Speed: all pending Workloads of 30 ClusterQueues in 5 cohorts with preemption, and one scope of 200 pending Workloads,
in processor seconds.

Calibration: generated worlds run for four weeks and some days with arrivals that follow the hour of the day. In these
days the scheduler's state is taken every few hours; every Workload that is new among the pending ones is forecast once,
as the manager does it: from the records of Workloads that have ended until then. A start that is not later than P90 is
covered; a Workload that never starts is not. The first 300 forecasts of a ClusterQueue, or half of them if they are
fewer, teach the correction and are left out. The baseline is the place in the queue divided by the admission rate of
the last day. The world `trace` is the history of another one, exported in the Standard Workload Format and read from
that: submissions, waits and run times are those of the file, and run times are learned by the names in it.

`--trace` takes the first weeks of a file of `bench traces` instead: all of its jobs that fit, in one ClusterQueue of
`--procs` processors; the scheduler starts them, and they run as long as they did.

`--known=runs` forecasts with the true run times of all Workloads that exist, and `--known=law` with the distributions
that those of generated worlds are drawn from. No estimate that is learned from past runs is better than the latter.

`--save` writes every forecast before its correction and its start to a file, one JSON object in a line. `--saved` reads
such files instead of running worlds, and applies the present correction to them: rules of correction are compared so,
on the same forecasts and in seconds. `--markdown` prints the figures of each world again, as tables of a document, and
one more of the shares that are outside of their aim.

`--lengths` runs nothing ahead: it compares what the Workloads that exist at a time still take, each and together, with
the run times that estimates give them. Rules of estimates are compared so in a minute or two for a trace.

Workloads that wait at the same time start late together, so many forecasts may be few observations. The range of a P90
is that of nine in ten repetitions with as many days, drawn with replacement from those of the world; where all starts
are covered, or none, what as many days show at that confidence. The shares are
given once more by times, where each time at which a ClusterQueue has forecasts weighs the same, however many it has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from bench.decisions import NAMESPACE, NOW, cluster_queue, local_queue, workload
from bench.traces import case_of, of_file, one_pool
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import MINUTE, SECOND, Nanoseconds
from pykueue import projection
from pykueue.analysis.traces import SwfMapping
from pykueue.api import kube, kueue
from pykueue.controllers import forecast_question
from pykueue.controllers.forecast_question import EstimatedDraws, ForecastQuestion, PastWorkloads
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.history import documents, records, swf
from pykueue.history.learning import Run, RunDistribution, RunEstimate, RunTimes
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.lifecycle import states
from pykueue.projection import Arrival, ConstantDraws, ProjectedAttempt, SchedulerCase, forecast, uniform
from pykueue.projection.calibration import (
    CalibrationWindow,
    Correction,
    OpenForecast,
    SizeClass,
    counting_for_p90,
    size_class,
)
from pykueue.state.intake import WatchedObject, is_watched
from pykueue.state.quota_windows import ScheduledWindows, WindowQuota, WindowSpan

DAY = 86_400
WEEK = 7 * DAY
SMALLEST = ("--pending=60", "--days=1", "--every=12", "--worlds=strict,trace,windows")


# --- Speed ------------------------------------------------------------------------------------------------------------


@dataclass
class SpeedFigures:
    name: str
    pending: int
    samples: int
    decisions: int
    seconds: float


def estimate(workload: kueue.Workload) -> RunEstimate:
    lengths = tuple(Run(60.0 + 7200.0 * uniform(5, workload.metadata.uid, number)) for number in range(20))
    return RunEstimate("bench", len(lengths), RunDistribution(lengths).quantile)


def measure_speed(pending: int, cohorts: int, queues: int, name: str) -> SpeedFigures:
    rng = random.Random(3)
    names = [(f"q{cohort}-{queue}", f"c{cohort}") for cohort in range(cohorts) for queue in range(queues)]
    objects: list[WatchedObject] = [
        kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")),
        kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)),
        *(cluster_queue(queue, cohort) for queue, cohort in names),
        *(local_queue(queue, queue) for queue, _ in names),
        *(
            workload(number, names[number % len(names)][0], rng.choice(("1", "2")), rng.choice((0, 0, 0, 10)))
            for number in range(pending)
        ),
    ]
    case = SchedulerCase(tuple(objects))
    estimates = {each.metadata.uid: estimate(each) for each in case.workloads()}
    began = time.process_time()
    decisions = 0
    for cohort in range(cohorts):  # one question for each scope, as the manager asks them
        scope = case.within({queue for queue, of in names if of == f"c{cohort}"})
        found = forecast.forecast(
            scope,
            NOW + pending * SECOND,
            lambda sample: EstimatedDraws(sample, estimates, {}),
            effort=10**9,
            samples=forecast.SAMPLES,
        )
        decisions += found.decisions
    return SpeedFigures(name, pending, forecast.SAMPLES, decisions, time.process_time() - began)


# --- Calibration ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorldKind:
    """A generated world: its ClusterQueues, and what arrives in each."""

    name: str
    strategy: str
    queues: int
    # CPUs of each ClusterQueue, and the share of them that the jobs that arrive need.
    cpus: int
    load: float
    cohort: str = ""
    is_fair: bool = False
    # Whether the world is what an export of its history has; priorities are not part of that.
    is_exported: bool = False
    # CPUs that a window of a QuotaSchedule adds to each ClusterQueue at night.
    night_cpus: int = 0
    # Whether jobs are submitted in campaigns: of one class, size and priority, with correlated run times.
    has_campaigns: bool = False

    @property
    def mean_cpus(self) -> float:
        """The CPUs of each ClusterQueue, in the mean of a day."""
        return self.cpus + self.night_cpus * NIGHT_SECONDS / DAY

    @property
    def policy(self) -> SchedulingPolicy:
        return SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy) if self.is_fair else ())


# A night is from 20:00 to 06:00; the day of a world begins at 0:00.
NIGHT_BEGINS = 20 * 3600
NIGHT_SECONDS = 10 * 3600
# Loads at which waits do not grow for ever. A StrictFIFO queue keeps capacity free for its head, so it takes less.
WORLDS = (
    WorldKind("strict", "StrictFIFO", 1, 32, 0.74),
    WorldKind("best effort", "BestEffortFIFO", 1, 32, 0.82),
    WorldKind("cohort", "BestEffortFIFO", 3, 16, 0.82, "all"),
    WorldKind("fair sharing", "BestEffortFIFO", 3, 16, 0.82, "all", is_fair=True),
    WorldKind("trace", "BestEffortFIFO", 1, 32, 0.82, is_exported=True),
    WorldKind("windows", "BestEffortFIFO", 1, 24, 0.74, night_cpus=16),
    WorldKind("campaigns", "BestEffortFIFO", 1, 64, 0.68, has_campaigns=True),
)
# Scores of a ClusterQueue that its correction learns from first; at most half of all.
LEARNING = 300
# Mean run time in seconds and spread of the classes of jobs; their sizes.
CLASSES = ((900, 0.3), (1800, 0.6), (3600, 0.5), (7200, 0.8))
NAMES = ("quick", "short", "medium", "long")
SIZES = (1, 1, 2, 2, 4, 8)
BIG = 4
# How many jobs a campaign has, how many seconds are between two of them, and the correlation of their run times.
CAMPAIGNS = (1, 1, 1, 1, 1, 10, 40)
CAMPAIGN_SECONDS = 5
CAMPAIGN_CORRELATION = 0.5
# Of a trace, the part of all processors from which on a job is big.
BIG_PART = 8
# What has arrived before the first forecast: the manager takes newcomers from the last four weeks.
PAST = 4 * WEEK + 3600
# The range of single ClusterQueues leaves out those with fewer forecasts.
SINGLE = 20
# How often the days of a world are drawn again for the range of its P90.
REPETITIONS = 1000
# The shares of the starts that the quantiles are to cover.
P90_AIM = 0.85, 0.95
P50_AIM = 0.40, 0.60


@dataclass
class CalibrationFigures:
    world: str
    # Of the world; "all": of several, together.
    seed: str
    queue: str
    size: str
    scored: int = 0
    p90_raw: float = 0.0
    p90: float = 0.0
    p50: float = 0.0
    # The median distance of P50 from the start, before and after the correction; and that of the baseline.
    error_raw_minutes: float = 0.0
    error_minutes: float = 0.0
    baseline_error_minutes: float = 0.0
    # Of several: the lowest and the highest share of one ClusterQueue with one seed that P90 covers.
    p90_single: tuple[float, float] | None = None
    # On how many days of a ClusterQueue the forecasts were made, and the range of P90 if these are drawn again.
    days: int = 0
    p90_range: tuple[float, float] = (0.0, 0.0)
    p50_range: tuple[float, float] = (0.0, 0.0)
    # At how many times of a ClusterQueue the forecasts were made, and the means of the shares of each of these times.
    times: int = 0
    p90_times: float = 0.0
    p50_times: float = 0.0
    p90_times_range: tuple[float, float] = (0.0, 0.0)
    p50_times_range: tuple[float, float] = (0.0, 0.0)
    # The mean quantile loss of the logarithm of the wait, after the correction.
    p90_loss: float = 0.0


class SavedForecast(msgspec.Struct, frozen=True):
    """One forecast before its correction, and what happened; times in seconds after it was made."""

    world: str
    seed: int
    queue: str
    size: str
    # What it requests, as a part of the nominal quota of its ClusterQueue.
    share: float
    # In seconds after the beginning of the world.
    made: int
    p50: int
    p90: int
    baseline: int
    # None: not until the end of the world.
    wait: int | None

    def open(self, counts_for_p90: bool) -> OpenForecast:
        size = size_class(self.share)
        return OpenForecast(self.made * SECOND, self.p50 * SECOND, self.p90 * SECOND, counts_for_p90, size)


@dataclass
class Score:
    size: str
    # When the forecast was made, in seconds after the beginning of the world.
    made: int
    covered_raw: bool
    covered: bool
    covered_p50: bool
    error_raw: float
    error: float
    baseline_error: float
    p90_loss: float


@dataclass
class Truth:
    """One generated world and what happened in it."""

    world: str
    objects: list[WatchedObject]
    arrivals: list[Arrival] = field(default_factory=list)
    # By UID: how long each runs, and its record when it is submitted.
    lengths: dict[str, int] = field(default_factory=dict)
    records: dict[str, WorkloadRecord] = field(default_factory=dict)
    attempts: list[ProjectedAttempt] = field(default_factory=list)
    windows: tuple[ScheduledWindows, ...] = ()

    def case(self, objects: Iterable[WatchedObject], policy: SchedulingPolicy, now: Nanoseconds) -> SchedulerCase:
        """What the scheduler decides about, with the windows of QuotaSchedules that have not ended."""
        open_windows = tuple(
            replace(each, spans=tuple(span for span in each.spans if span.end > now)) for each in self.windows
        )
        return SchedulerCase(tuple(objects), policy, windows=open_windows)

    def add(self, at: Nanoseconds, one: kueue.Workload, length: int, job_name: str, user: str = "") -> None:
        """Let a Workload arrive."""
        uid = one.metadata.uid
        self.arrivals.append(Arrival(at, one))
        self.lengths[uid] = length
        self.records[uid] = replace(records.observe(None, one, at // SECOND), job_name=job_name, user=user)

    def processors(self) -> int:
        """The quota of all ClusterQueues together, of their only resource."""
        return sum(self.nominal_quotas().values())

    def nominal_quotas(self) -> dict[str, int]:
        """The nominal quota of each ClusterQueue, of its only resource."""
        return {
            each.metadata.name: int(str(each.spec.resource_groups[0].flavors[0].resources[0].nominal_quota))
            for each in self.objects
            if isinstance(each, kueue.ClusterQueue)
        }

    def run(self, policy: SchedulingPolicy) -> None:
        """Let the scheduler start everything that arrives."""
        draws = ConstantDraws(lambda each: self.lengths[each.metadata.uid], stop=2)
        case = self.case(self.objects, policy, NOW)
        self.attempts = projection.run(case, NOW, draws, arrivals=self.arrivals).attempts

    def ended(self) -> list[WorkloadRecord]:
        """The records of all Workloads, by their ends."""
        by_uid: dict[str, list[Attempt]] = defaultdict(list)
        for each in sorted(self.attempts, key=lambda each: each.reserved):
            begin, end = each.reserved // SECOND, (each.released or 0) // SECOND
            admitted = None if each.admitted is None else each.admitted // SECOND
            segment = UsageSegment(begin, end, each.usage)
            by_uid[each.uid].append(
                Attempt(begin, each.cluster_queue, begin, admitted, end, each.reason, "", (segment,))
            )
        found = (
            replace(self.records[uid], attempts=tuple(made), ended=made[-1].released, outcome=Outcome.SUCCEEDED)
            for uid, made in by_uid.items()
        )
        return sorted(found, key=lambda each: (each.ended, each.uid))


def generate(kind: WorldKind, seconds: int, seed: int) -> Truth:
    rng = random.Random(seed)
    names = [f"{kind.name.split()[0]}-{number}" for number in range(kind.queues)]
    objects: list[WatchedObject] = [
        kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")),
        kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)),
    ]
    for name in names:
        made = cluster_queue(name, kind.cohort, str(kind.cpus), None)
        objects.append(meta_replace(made, kind.strategy))
        objects.append(local_queue(name, name))
    mean = statistics.fmean(length * math.exp(spread**2 / 2) for length, spread in CLASSES) * statistics.fmean(SIZES)
    rate = kind.load * kind.mean_cpus * kind.queues / mean
    if kind.has_campaigns:
        rate /= statistics.fmean(CAMPAIGNS)
    truth = Truth(kind.name, objects, windows=nights(kind, names, seconds) if kind.night_cpus else ())
    at = 0.0
    while at < seconds:
        # Twice as many at noon as at midnight.
        at += rng.expovariate(rate * 1.4)
        if rng.random() > (1.0 - 0.4 * math.cos(2 * math.pi * at / DAY)) / 1.4:
            continue
        number = len(truth.arrivals)
        made_at = NOW + int(at) * SECOND
        queue, cpus = rng.choice(names), str(rng.choice(SIZES))
        priority = rng.choice((0, 0, 0, 0, 10))
        if kind.has_campaigns:
            at = max(at, add_campaign(truth, rng, int(at), queue, cpus, priority))
            continue
        one = created(workload(number, queue, cpus, 0 if kind.is_exported else priority), made_at)
        length, spread = CLASSES[number % len(CLASSES)]
        length = max(30, int(length * math.exp(rng.gauss(0, spread))))
        truth.add(made_at, one, length, f"{NAMES[number % len(CLASSES)]}-{number}")
    truth.run(kind.policy)
    return exported(truth) if kind.is_exported else truth


def add_campaign(truth: Truth, rng: random.Random, at: int, queue: str, cpus: str, priority: int) -> int:
    """Let the jobs of a campaign arrive one after the other. Returns the time of the last one.

    The run time of each has the law of its class; those of one campaign have a part of it in common [RT12]."""
    count, kind = rng.choice(CAMPAIGNS), rng.randrange(len(CLASSES))
    length, spread = CLASSES[kind]
    common = math.sqrt(CAMPAIGN_CORRELATION) * rng.gauss(0, 1)
    for place in range(count):
        at += CAMPAIGN_SECONDS if place else 0
        number = len(truth.arrivals)
        score = common + math.sqrt(1 - CAMPAIGN_CORRELATION) * rng.gauss(0, 1)
        one = created(workload(number, queue, cpus, priority), NOW + at * SECOND)
        truth.add(NOW + at * SECOND, one, max(30, int(length * math.exp(spread * score))), f"{NAMES[kind]}-{number}")
    return at


def nights(kind: WorldKind, cluster_queues: Iterable[str], seconds: int) -> tuple[ScheduledWindows, ...]:
    """The windows that give more quota at night, until two weeks after the last arrival."""
    quota = 1000 * (kind.cpus + kind.night_cpus)
    begins = range(NIGHT_BEGINS, seconds + 2 * WEEK, DAY)
    spans = (WindowSpan("night", NOW + at * SECOND, NOW + (at + NIGHT_SECONDS) * SECOND) for at in begins)
    quotas = (WindowQuota(name, "default", "cpu", nominal=quota) for name in cluster_queues)
    return (ScheduledWindows("nights", tuple(quotas), tuple(spans), repeats=True),)


def exported(truth: Truth) -> Truth:
    """The world that an export of the history of another one has."""
    written = swf.trace(documents.record_document(each, each.ended or 0) for each in truth.ended())
    file = swf.read(written.text, "the export of a history")
    mapping = SwfMapping(names=written.names)
    first = (file.number("UnixStartTime") or 0) * SECOND
    found = Truth(truth.world, truth.objects)
    (queue,) = (thing.metadata.name for thing in truth.objects if isinstance(thing, kueue.LocalQueue))
    for job in file.jobs:
        at = first + job.submitted * SECOND
        one = created(workload(job.number, queue, str(job.requested_processors), 0), at)
        started = at + job.waited * SECOND
        found.add(at, one, job.ran, mapping.program(job.executable))
        usage = (("default", "cpu", 1000 * job.processors),)
        attempt = ProjectedAttempt(
            states.key(one), one.metadata.uid, 0, queue, started, usage, admitted=started, reason="Finished"
        )
        attempt.released = started + job.ran * SECOND
        found.attempts.append(attempt)
    return found


def replayed(path: Path, seconds: int, procs: int | None, strategy: str) -> Truth:
    """The jobs of the first days of a file that fit, in one ClusterQueue, started by the scheduler."""
    trace = one_pool(of_file(path))
    objects = case_of(trace, procs, queueing_strategy=strategy).objects
    found = Truth(path.name.partition(".")[0], [thing for thing in objects if is_watched(thing)])
    first = trace.jobs[0].submitted
    most = found.processors()
    for job in trace.jobs:
        if job.submitted - first < seconds and job.pod_sets[0].count <= most:
            at = NOW + (job.submitted - first) * SECOND
            found.add(at, created(job.workload(), at), job.run_seconds or 1, job.job_name, job.user)
    found.run(SchedulingPolicy())
    return found


def meta_replace(made: kueue.ClusterQueue, strategy: str) -> kueue.ClusterQueue:
    return replace(made, spec=replace(made.spec, queueing_strategy=strategy))


def created(one: kueue.Workload, at: Nanoseconds) -> kueue.Workload:
    metadata = replace(one.metadata, creation_timestamp=meta.format_time(at))
    return replace(one, metadata=metadata)


def cpu_of(one: kueue.Workload) -> int:
    """The CPUs of a Workload, or of a trace its processors of any kind."""
    (amount,) = one.spec.pod_sets[0].template.spec.containers[0].resources.requests.values()
    return one.spec.pod_sets[0].count * int(str(amount))


def running(one: kueue.Workload, attempt: ProjectedAttempt) -> kueue.Workload:
    """The Workload with its reservation."""
    (pod_set,) = one.spec.pod_sets
    (resource,) = pod_set.template.spec.containers[0].resources.requests
    assigned = kueue.PodSetAssignment(
        name="main", count=pod_set.count, flavors={resource: "default"}, resource_usage={resource: str(cpu_of(one))}
    )
    conditions = tuple(
        meta.Condition(type=type_, status="True", reason=type_, last_transition_time=meta.format_time(attempt.reserved))
        for type_ in ("QuotaReserved", "Admitted")
    )
    admission = kueue.Admission(cluster_queue=attempt.cluster_queue, pod_set_assignments=(assigned,))
    return replace(one, status=kueue.WorkloadStatus(admission=admission, conditions=conditions))


class _Known(msgspec.Struct, frozen=True):
    """The run time of a Workload that runs as long as this."""

    length: int

    def __call__(self, share: float, elapsed: float) -> float:
        return float(self.length)


class _Law(msgspec.Struct, frozen=True):
    """The distribution that the run times of a class of generated jobs are drawn from."""

    number: int

    def __call__(self, share: float, elapsed: float) -> float:
        mean, spread = CLASSES[self.number]
        law = statistics.NormalDist(math.log(mean), spread)
        passed = law.cdf(math.log(elapsed)) if elapsed > 1 else 0.0
        return math.exp(law.inv_cdf(min(max(passed + (1 - passed) * share, 1e-9), 1 - 1e-9)))


class Probes:
    """Forecasts in one world, each with the start that it was about."""

    def __init__(self, truth: Truth, policy: SchedulingPolicy, seed: int, big: int, known: str) -> None:
        self._truth = truth
        self._policy = policy
        self._seed = seed
        # From how many CPUs on a Workload is big, and what is known of run times without learning: `runs` or `law`.
        self._big = big
        self._knowledge = known
        self._by_key = {states.key(each.workload): each.workload for each in truth.arrivals}
        self._times = [each.at for each in truth.arrivals]
        queues = {
            (thing.metadata.namespace, thing.metadata.name): thing.spec.cluster_queue or ""
            for thing in truth.objects
            if isinstance(thing, kueue.LocalQueue)
        }
        self._queues = {
            key: queues[each.metadata.namespace, each.spec.queue_name or ""] for key, each in self._by_key.items()
        }
        self._starts: dict[str, list[Nanoseconds]] = defaultdict(list)
        # The admissions of each ClusterQueue.
        self._admissions: dict[str, list[Nanoseconds]] = defaultdict(list)
        for attempt in sorted(truth.attempts, key=lambda each: each.admitted or 0):
            if attempt.admitted is not None:
                self._starts[attempt.key].append(attempt.admitted)
                self._admissions[attempt.cluster_queue].append(attempt.admitted)
        self._ended = truth.ended()
        # How many of them are learned.
        self._runs, self._learned = RunTimes(), 0
        self._known: set[str] = set()
        # In the order of the forecasts.
        self.found: list[SavedForecast] = []

    def probe(self, now: Nanoseconds) -> None:
        """Forecast all pending Workloads as the manager does, and keep the forecasts of those that are new."""
        held = {each.key: each for each in self._truth.attempts if _holds(each, now)}
        over = {each.key for each in self._truth.attempts if each.reason == "Finished" and (each.released or 0) <= now}
        objects: list[WatchedObject] = [*self._truth.objects]
        pending = []
        uids = []
        for each in self._truth.arrivals[: bisect_right(self._times, now)]:
            key = states.key(each.workload)
            if key in over:
                continue
            uids.append(each.workload.metadata.uid)
            if key in held:
                objects.append(running(each.workload, held[key]))
            else:
                objects.append(each.workload)
                pending.append(key)
        if self._known.issuperset(pending):
            return
        past = self._past(now)
        case = self._truth.case(objects, self._policy, now)
        question = ForecastQuestion(case, now, self._estimates(uids, held.values(), now), self._lasted(now))
        for item in forecast_question.answer_from(question, past).result.items:
            if item.key not in self._known and item.p50 is not None and item.p90 is not None:
                self._known.add(item.key)
                self.found.append(self._saved(item.key, item.p50, item.p90, now, pending))

    @property
    def world(self) -> str:
        return self._truth.world

    @property
    def seed(self) -> int:
        return self._seed

    @property
    def last_submission(self) -> Nanoseconds:
        return self._times[-1]

    def lengths(self, now: Nanoseconds) -> dict[str, list[tuple[float, float, float]]]:
        """By quantity: what each of the Workloads that run, or wait, still takes, with its P50 and P90; and what they
        take together, with those by draws."""
        self._past(now)
        held = {each.uid: each for each in self._truth.attempts if _holds(each, now) and each.admitted is not None}
        over = {each.uid for each in self._truth.attempts if each.reason == "Finished" and (each.released or 0) <= now}
        there = {
            each.workload.metadata.uid: each.workload
            for each in self._truth.arrivals[: bisect_right(self._times, now)]
            if each.workload.metadata.uid not in over
        }
        estimates = self._estimates(there, held.values(), now)
        lasted = {uid: (now - (each.admitted or 0)) // SECOND for uid, each in held.items()}
        found: dict[str, list[tuple[float, float, float]]] = {}
        for kind, is_held in (("running", True), ("pending", False)):
            uids = [uid for uid in there if uid in estimates and (uid in held) == is_held]
            found[f"each {kind}"] = [self._alone(uid, estimates[uid], lasted.get(uid, 0)) for uid in uids]
            if len(uids) < TOGETHER_MIN:
                continue
            drawn = []
            for sample in range(DRAWS):
                draws = EstimatedDraws(sample, estimates, {})
                lengths = ((uid, draws.run_seconds(there[uid], lasted.get(uid, 0)) or 0) for uid in uids)
                drawn.append(left_of([(length - lasted.get(uid, 0), cpu_of(there[uid])) for uid, length in lengths]))
            actual = left_of(
                [(max(0, self._truth.lengths[uid] - lasted.get(uid, 0)), cpu_of(there[uid])) for uid in uids]
            )
            for place, name in enumerate((kind, f"half of {kind}")):
                ordered = sorted(each[place] for each in drawn)
                p50, p90 = (ordered[(DRAWS + 1) * tenths // 10 - 1] for tenths in (5, 9))
                found[name] = [(actual[place], p50, p90)]
        return found

    def _alone(self, uid: str, estimate: RunEstimate, lasted: int) -> tuple[float, float, float]:
        actual = max(0, self._truth.lengths[uid] - lasted)
        return actual, estimate.quantile(0.5, lasted) - lasted, estimate.quantile(0.9, lasted) - lasted

    def _past(self, now: Nanoseconds) -> PastWorkloads:
        """What the history has, after its runs are learned."""
        while self._learned < len(self._ended) and (self._ended[self._learned].ended or 0) <= now // SECOND:
            self._runs.learn(self._ended[self._learned])
            self._learned += 1
        since = forecast_question.past_since(now)
        recent = [each for each in self._ended[: self._learned] if each.submitted >= since]
        return PastWorkloads(sorted(recent, key=lambda each: (each.submitted, each.uid)), self._ended[0].submitted)

    def _lasted(self, now: Nanoseconds) -> dict[str, int]:
        """By UID: how long each Workload has lasted in one attempt."""
        found: dict[str, int] = {}
        for each in self._truth.attempts:
            if each.admitted is not None and each.admitted < now:
                end = now if each.released is None else min(now, each.released)
                found[each.uid] = max(found.get(each.uid, 0), (end - each.admitted) // SECOND)
        return found

    def _estimates(
        self, uids: Iterable[str], held: Iterable[ProjectedAttempt], now: Nanoseconds
    ) -> dict[str, RunEstimate]:
        if self._knowledge == "runs":
            return {uid: RunEstimate("known", 1, _Known(self._truth.lengths[uid])) for uid in uids}
        if self._knowledge == "law":
            jobs = ((uid, self._truth.records[uid].job_name.partition("-")[0]) for uid in uids)
            return {uid: RunEstimate("known", 1, _Law(NAMES.index(job))) for uid, job in jobs}
        records = self._truth.records
        running = self._runs.open_runs(
            ((records[each.uid], (now - each.admitted) // SECOND) for each in held if each.admitted is not None),
            now // SECOND,
        )
        found = ((uid, self._runs.estimate(records[uid], running)) for uid in uids)
        return {uid: each for uid, each in found if each is not None}

    def _saved(
        self, key: str, p50: Nanoseconds, p90: Nanoseconds, now: Nanoseconds, pending: list[str]
    ) -> SavedForecast:
        one, queue = self._by_key[key], self._queues[key]
        started = next((at for at in self._starts[key] if at >= now), None)
        # The place that the visibility API has: higher priorities are ahead, and of equal ones what came earlier.
        ahead = [each for each in pending if self._queues[each] == queue]
        ahead.sort(key=lambda each: -(self._by_key[each].spec.priority or 0))
        admissions = self._admissions[queue]
        admitted = bisect_left(admissions, now) - bisect_left(admissions, now - DAY * SECOND)
        return SavedForecast(
            world=self._truth.world,
            seed=self._seed,
            queue=queue,
            size="big" if cpu_of(one) >= self._big else "small",
            share=cpu_of(one) / self._truth.nominal_quotas()[queue],
            made=(now - NOW) // SECOND,
            p50=(p50 - now) // SECOND,
            p90=(p90 - now) // SECOND,
            baseline=int((1 + ahead.index(key)) * DAY / max(1, admitted)),
            wait=None if started is None else (started - now) // SECOND,
        )


# How often run times are drawn, and the longest one that counts in a sum.
DRAWS = 39
LONGEST = WEEK
# Sums of fewer Workloads are not compared.
TOGETHER_MIN = 3
# As the allowance of a correction.
ALLOWANCE = 300


@dataclass
class LengthFigures:
    """How well the quantiles of one quantity of all Workloads of a kind cover it, and their losses."""

    world: str
    seed: int
    quantity: str
    times: int
    p50: float
    p90: float
    loss_p50: float
    loss_p90: float


def joint_lengths(probes: Probes, past: int, days: int, every: float) -> list[LengthFigures]:
    """The figures of one world: of what Workloads that run, or wait, still take."""
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    at = past
    # After the last submission, what waits is not what waits in operation.
    until = min(past + (days - 0.5) * DAY, (probes.last_submission - NOW) // SECOND)
    while at < until:
        for quantity, found in probes.lengths(NOW + int(at) * SECOND).items():
            rows[quantity] += found
        at += int(every * 3600)
    return [
        LengthFigures(
            probes.world,
            probes.seed,
            quantity,
            len(found),
            statistics.fmean(actual <= p50 for actual, p50, _ in found),
            statistics.fmean(actual <= p90 for actual, _, p90 in found),
            statistics.fmean(loss(actual, p50, 0.5) for actual, p50, _ in found),
            statistics.fmean(loss(actual, p90, 0.9) for actual, _, p90 in found),
        )
        for quantity, found in rows.items()
        if found
    ]


def loss(actual: float, quantile: float, share: float) -> float:
    """The quantile loss of the logarithm."""
    difference = math.log((actual + ALLOWANCE) / (quantile + ALLOWANCE))
    return difference * (share if difference >= 0.0 else share - 1.0)


def left_of(lengths: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Of Workloads with the seconds and CPUs of each: the CPU seconds together, and when half of the CPUs are free."""
    total, free = sum(cpus for _, cpus in lengths), 0
    work = float(sum(min(seconds, LONGEST) * cpus for seconds, cpus in lengths))
    for seconds, cpus in sorted(lengths):
        free += cpus
        if 2 * free >= total:
            return work, float(seconds)
    return work, 0.0


def _holds(attempt: ProjectedAttempt, now: Nanoseconds) -> bool:
    return attempt.reserved <= now and (attempt.released is None or attempt.released > now)


def probed(probes: Probes, past: int, days: int, every: float) -> Iterator[list[SavedForecast]]:
    """The forecasts of one world, and its starts: those of each time as soon as they are made."""
    at = past
    while at < past + (days - 0.5) * DAY:
        before = len(probes.found)
        probes.probe(NOW + int(at) * SECOND)
        yield probes.found[before:]
        at += int(every * 3600)


def scored(found: Iterable[SavedForecast]) -> list[Score]:
    """The forecasts of one ClusterQueue, each with the correction by what had started when it was made [FC3]."""
    window = CalibrationWindow()
    waiting: list[tuple[SavedForecast, OpenForecast]] = []
    scores = []
    for made, moment in itertools.groupby(found, key=lambda each: each.made):
        now, still = made * SECOND, []
        for each, open_one in waiting:
            if each.wait is not None and each.made + each.wait <= made:
                window.add(open_one, (each.made + each.wait) * SECOND)
            else:
                still.append((each, open_one))
        waiting = still
        still_open = [open_one for _, open_one in waiting]
        corrections = {size: window.correction(still_open, now, size) for size in SizeClass}
        together = list(moment)
        counting = counting_for_p90(len(together))
        for number, each in enumerate(together):
            scores.append(_score(each, corrections[size_class(each.share)]))
            waiting.append((each, each.open(number in counting)))
    return scores


def _score(each: SavedForecast, correction: Correction) -> Score:
    item = forecast.StartForecast("", p50=each.p50 * SECOND, p90=each.p90 * SECOND)
    shown = forecast.corrected(item, correction, 0, forecast.HORIZON)
    # A Workload that has not started at the end of the world counts as later than every forecast.
    wait = 10 * forecast.HORIZON if each.wait is None else each.wait * SECOND
    p50 = each.p50 * SECOND if shown.p50 is None else shown.p50
    p90 = forecast.HORIZON if shown.p90 is None else shown.p90
    return Score(
        each.size,
        each.made,
        wait <= each.p90 * SECOND,
        wait <= p90,
        wait <= p50,
        abs(wait - each.p50 * SECOND) / MINUTE,
        abs(wait - p50) / MINUTE,
        abs(wait - each.baseline * SECOND) / MINUTE,
        loss(wait / SECOND, p90 / SECOND, 0.9),
    )


def judged(found: Iterable[SavedForecast]) -> Iterator[CalibrationFigures]:
    """The figures of each world, seed and ClusterQueue, without the forecasts that the correction learned from first;
    then those of each world, and of each of its ClusterQueues with all seeds."""
    by_queue: dict[tuple[str, str, str], list[SavedForecast]] = defaultdict(list)
    for each in found:
        by_queue[each.world, str(each.seed), each.queue].append(each)
    together: dict[str, dict[str, list[list[Score]]]] = defaultdict(lambda: defaultdict(list))
    for (world, seed, queue), rows in sorted(by_queue.items()):
        scores = scored(rows)
        settled = scores[min(LEARNING, len(scores) // 2) :]
        together[world][queue].append(settled)
        yield from _by_size(world, seed, queue, [settled])
    for world, queues in together.items():
        every = [settled for seeds in queues.values() for settled in seeds]
        if len(every) > 1:
            yield from _by_size(world, "all", "all", every)
        if len(queues) > 1 and len(every) > len(queues):
            for queue, seeds in queues.items():
                yield from _by_size(world, "all", queue, seeds)


def _by_size(world: str, seed: str, queue: str, scores: Sequence[Sequence[Score]]) -> Iterator[CalibrationFigures]:
    for size in ("all", "small", "big"):
        chosen = [[each for each in one if size in ("all", each.size)] for one in scores]
        if any(chosen):
            yield _figures(world, seed, queue, size, [one for one in chosen if one])


def _figures(world: str, seed: str, queue: str, size: str, queues: Sequence[list[Score]]) -> CalibrationFigures:
    scores = [each for one in queues for each in one]
    single = [statistics.fmean(each.covered for each in one) for one in queues if len(one) >= SINGLE]
    days: dict[tuple[int, int], list[Score]] = defaultdict(list)
    # By day: the scores of each of its times.
    times: dict[tuple[int, int], list[list[Score]]] = defaultdict(list)
    for number, one in enumerate(queues):
        for made, moment in itertools.groupby(one, key=lambda each: each.made):
            together = list(moment)
            days[number, made // DAY] += together
            times[number, made // DAY].append(together)
    p90_times = [[statistics.fmean(each.covered for each in made) for made in day] for day in times.values()]
    p50_times = [[statistics.fmean(each.covered_p50 for each in made) for made in day] for day in times.values()]
    return CalibrationFigures(
        world,
        seed,
        queue,
        size,
        len(scores),
        statistics.fmean(each.covered_raw for each in scores),
        statistics.fmean(each.covered for each in scores),
        statistics.fmean(each.covered_p50 for each in scores),
        statistics.median(each.error_raw for each in scores),
        statistics.median(each.error for each in scores),
        statistics.median(each.baseline_error for each in scores),
        (min(single), max(single)) if len(queues) > 1 and single else None,
        len(days),
        resampled([[each.covered for each in day] for day in days.values()]),
        resampled([[each.covered_p50 for each in day] for day in days.values()]),
        sum(map(len, p90_times)),
        statistics.fmean(itertools.chain(*p90_times)),
        statistics.fmean(itertools.chain(*p50_times)),
        resampled(p90_times),
        resampled(p50_times),
        statistics.fmean(each.p90_loss for each in scores),
    )


def resampled(days: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The range of the mean share that is covered, of forecasts or of times, in nine of ten repetitions with days drawn
    with replacement.

    Where all of it is covered, or none, each repetition would be the same, however few days there are. Then the range
    ends at the share at which so many independent days are alike with a chance of one in twenty."""
    rng = random.Random(1)
    sums = [(sum(day), len(day)) for day in days]
    alike = 0.05 ** (1 / len(days))
    if all(covered == count for covered, count in sums):
        return alike, 1.0
    if not any(covered for covered, _ in sums):
        return 0.0, 1.0 - alike
    shares = []
    for _ in range(REPETITIONS):
        drawn = rng.choices(sums, k=len(sums))
        shares.append(sum(covered for covered, _ in drawn) / sum(count for _, count in drawn))
    shares.sort()
    return shares[REPETITIONS // 20], shares[-REPETITIONS // 20 - 1]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench forecast", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pending", type=int, default=1000, help="for speed; 0: not measured")
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--every", type=float, default=2.0, help="hours between forecasts")
    parser.add_argument("--worlds", default=",".join(kind.name for kind in WORLDS))
    parser.add_argument("--seeds", default="11", help="of the worlds; each is run with every seed")
    parser.add_argument("--trace", action="append", type=Path, default=[], help="a file instead of the worlds")
    parser.add_argument("--procs", type=int, help="of a trace; default: as many as its file has")
    parser.add_argument(
        "--strategy",
        default="BestEffortFIFO",
        choices=("BestEffortFIFO", "StrictFIFO"),
        help="of the ClusterQueue of a trace",
    )
    parser.add_argument("--known", default="", choices=("runs", "law"), help="of run times, without learning them")
    parser.add_argument("--save", type=Path, help="a file for the forecasts before their correction")
    parser.add_argument("--saved", help="such files: nothing is run, their forecasts are corrected")
    parser.add_argument("--lengths", action="store_true", help="run times of all that exists, without starts")
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="the figures of each world, and those outside of their aim, as tables, too",
    )
    chosen = parser.parse_args(arguments)
    if chosen.trace and chosen.known == "law":
        parser.error("--known=law: the run times of a trace are drawn from no law")
    if chosen.lengths:
        return _lengths(chosen)
    speed = _speeds(0 if chosen.saved else chosen.pending)
    rows = list(_print_figures(judged(_forecasts(chosen))))
    if chosen.markdown:
        print("\n" + "\n".join(table(rows)))
        print("\n" + "\n".join(table_by_times(rows)))
        print("\n" + "\n".join(misses(rows)))
    if chosen.json is not None:
        figures = {"speed": [asdict(each) for each in speed], "calibration": [asdict(row) for row in rows]}
        chosen.json.write_text(json.dumps(figures, indent=2))
    return 0


def _lengths(chosen: argparse.Namespace) -> int:
    found = []
    print(
        f"{'world':<12} {'seed':>5} {'quantity':<16} {'times':>5} {'P50':>5} {'P90':>5} {'loss P50':>9} {'loss P90':>9}"
    )
    for probes in _probes(chosen, [kind for kind in WORLDS if kind.name in chosen.worlds.split(",")]):
        for each in joint_lengths(probes, PAST, chosen.days, chosen.every):
            found.append(each)
            print(
                f"{each.world:<12} {each.seed:>5} {each.quantity:<16} {each.times:>5} {each.p50:>5.2f} {each.p90:>5.2f}"
                f" {each.loss_p50:>9.3f} {each.loss_p90:>9.3f}",
                flush=True,
            )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"lengths": [asdict(each) for each in found]}, indent=2))
    return 0


def _speeds(pending: int) -> list[SpeedFigures]:
    found = []
    print(f"{'speed':<12} {'pending':>8} {'samples':>8} {'decisions':>10} {'seconds':>8}")
    for count, cohorts, name in ((pending, 5, "30 queues"), (pending // 5, 1, "one scope")):
        if pending:
            each = measure_speed(count, cohorts, 6, name)
            found.append(each)
            print(
                f"{name:<12} {each.pending:>8} {each.samples:>8} {each.decisions:>10} {each.seconds:>8.2f}", flush=True
            )
    return found


def _forecasts(chosen: argparse.Namespace) -> list[SavedForecast]:
    """The forecasts of the chosen worlds and seeds, or of traces: read, or made."""
    names = chosen.worlds.split(",")
    if chosen.saved:
        lines = (line for name in chosen.saved.split(",") for line in Path(name).read_bytes().splitlines())
        generated = {kind.name for kind in WORLDS}
        every = map(msgspec.json.Decoder(SavedForecast).decode, lines)
        return [each for each in every if each.world in names or each.world not in generated]
    found: list[SavedForecast] = []
    for probes in _probes(chosen, [kind for kind in WORLDS if kind.name in names]):
        for rows in probed(probes, PAST, chosen.days, chosen.every):
            found += rows
            if chosen.save is not None:  # time by time, so that a run that is stopped is not lost
                with chosen.save.open("ab") as file:
                    file.writelines(msgspec.json.encode(each) + b"\n" for each in rows)
    return found


def _probes(chosen: argparse.Namespace, kinds: Sequence[WorldKind]) -> Iterator[Probes]:
    seconds = PAST + chosen.days * DAY
    for path in chosen.trace:
        truth = replayed(path, seconds, chosen.procs, chosen.strategy)
        big = max(1, truth.processors() // BIG_PART)
        yield Probes(truth, SchedulingPolicy(), 0, big, chosen.known)
    if chosen.trace:
        return
    for kind, seed in itertools.product(kinds, map(int, chosen.seeds.split(","))):
        yield Probes(generate(kind, seconds, seed), kind.policy, seed, BIG, chosen.known)


def _print_figures(rows: Iterable[CalibrationFigures]) -> Iterator[CalibrationFigures]:
    print(
        f"\n{'world':<12} {'seed':>5} {'queue':<14} {'size':<6} {'n':>5}"
        f" {'P90 raw':>8} {'P90':>6} {'P50':>6} {'raw':>8} {'error':>8} {'baseline':>9} {'days':>5} {'range':>11}"
        f" {'times':>6} {'P90':>6} {'P50':>6} {'loss P90':>9} {'single':>11}"
    )
    for row in rows:
        covered = f"{row.p90_raw:>8.2f} {row.p90:>6.2f} {row.p50:>6.2f}"
        errors = f"{row.error_raw_minutes:>7.0f}m {row.error_minutes:>7.0f}m {row.baseline_error_minutes:>8.0f}m"
        where = f"{row.world:<12} {row.seed:>5} {row.queue:<14} {row.size:<6}"
        days = f"{row.days:>5} {_range(row.p90_range, ' - '):>11}"
        single = f"{_range(row.p90_single, ' - '):>11}"
        times = f"{row.times:>6} {row.p90_times:>6.2f} {row.p50_times:>6.2f}"
        line = f"{where} {row.scored:>5} {covered} {errors} {days} {times} {row.p90_loss:>9.3f} {single}"
        print(line.rstrip(), flush=True)
        yield row


def misses(rows: Sequence[CalibrationFigures]) -> Iterator[str]:
    """A Markdown table of the shares that are outside of their aim; beyond chance, if all of the range is outside."""
    yield "| world | queue | jobs | days | quantile | covers | range | beyond chance |"
    yield "| --- " * 8 + "|"
    for row in _judged_rows(rows):
        for name, aim, share, spread in (
            ("P90", P90_AIM, row.p90, row.p90_range),
            ("P50", P50_AIM, row.p50, row.p50_range),
        ):
            if not aim[0] <= share <= aim[1]:
                is_sure = spread[1] < aim[0] or spread[0] > aim[1]
                cells = (row.world, row.queue, row.size, str(row.days), name, f"{share:.3f}", _range(spread, " to "))
                yield _cells((*cells, "yes" if is_sure else "no"))


def _judged_rows(rows: Sequence[CalibrationFigures]) -> Iterator[CalibrationFigures]:
    """Those of all seeds together where a world has several, and of its only one otherwise."""
    for world in dict.fromkeys(row.world for row in rows):
        of_world = [row for row in rows if row.world == world]
        yield from [row for row in of_world if row.seed == "all"] or of_world


def _range(found: tuple[float, float] | None, between: str) -> str:
    return "" if found is None else f"{found[0]:.2f}{between}{found[1]:.2f}"


def table(rows: Sequence[CalibrationFigures]) -> Iterator[str]:
    """The lines of a Markdown table: the figures of each world with all seeds and ClusterQueues together, and those of
    each ClusterQueue of a world with several."""
    yield "| world | seeds | jobs | forecasts | days | P90 raw | P90 | range | P50 | error raw | error | baseline |"
    yield "| --- " * 12 + "|"
    for world in dict.fromkeys(row.world for row in rows):
        of_world = [row for row in rows if row.world == world]
        seeds = ", ".join(dict.fromkeys(row.seed for row in of_world if row.seed not in ("all", "0")))
        for row in _judged_rows(of_world):
            name = row.queue if row.seed == "all" and row.queue != "all" else world
            names = (name, seeds) if row.size == "all" else ("", "")
            covered = f"{row.p90_raw:.2f}", f"{row.p90:.2f}", _range(row.p90_range, " to "), f"{row.p50:.2f}"
            errors = (f"{each:.0f}" for each in (row.error_raw_minutes, row.error_minutes, row.baseline_error_minutes))
            cells = (*names, row.size, str(row.scored), str(row.days), *covered, *errors)
            yield _cells(cells)


def table_by_times(rows: Sequence[CalibrationFigures]) -> Iterator[str]:
    """The lines of a Markdown table: the shares that are covered, where each time of a ClusterQueue weighs the same."""
    yield "| world | jobs | forecasts | times | P90 | range | P50 | range |"
    yield "| --- " * 8 + "|"
    for row in _judged_rows(rows):
        name = row.queue if row.seed == "all" and row.queue != "all" else row.world
        p90 = f"{row.p90_times:.2f}", _range(row.p90_times_range, " to ")
        p50 = f"{row.p50_times:.2f}", _range(row.p50_times_range, " to ")
        yield _cells((name if row.size == "all" else "", row.size, str(row.scored), str(row.times), *p90, *p50))


def _cells(cells: Iterable[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
