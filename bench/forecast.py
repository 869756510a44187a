"""Start forecasts: their speed, and how well their quantiles cover the starts.

    python -m bench forecast [--json=FILE] [--pending=N] [--days=D] [--every=HOURS] [--samples=N] [--worlds=A,B]
                             [--seeds=N,N] [--save=FILE] [--saved=FILE,FILE]

Speed: all pending Workloads of 30 ClusterQueues in 5 cohorts with preemption, and one scope of 200 pending Workloads,
in processor seconds.

Calibration: generated worlds run for two weeks and some days with arrivals that follow the hour of the day. In these
days the scheduler's state is taken every few hours; every Workload that is new among the pending ones is forecast once,
from runs that have ended and arrivals that have happened until then. A start that is not later than P90 is covered; a
Workload that never starts is not. The first 300 forecasts of a ClusterQueue, or half of them if they are fewer, teach
the correction and are left out. The baseline is the position in the queue divided by the admission rate of the last
day. The world `trace` is the history of another one, exported in the Standard Workload Format and read from that:
submissions, waits and run times are those of the file, and run times are learned by the names in it.

`--save` writes every forecast before its correction and its start to a file, one JSON object in a line. `--saved` reads
such files instead of running worlds, and applies the present correction to them: rules of correction are compared so,
on the same forecasts and in seconds.
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
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
from bench.decisions import NAMESPACE, NOW, cluster_queue, local_queue, workload

from kubemachinery import meta
from kubemachinery.meta import MINUTE, SECOND, Nanoseconds
from pykueue import projection
from pykueue.api import kube, kueue
from pykueue.controllers.forecast_question import EstimatedDraws
from pykueue.core.policy import FairSharingStrategy, SchedulingPolicy
from pykueue.history import documents, swf
from pykueue.history.learning import RUNS_KEPT, Run, RunDistribution, RunEstimate
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.lifecycle import states
from pykueue.projection import Arrival, ConstantDraws, ProjectedAttempt, SchedulerCase, forecast, uniform
from pykueue.projection.calibration import CalibrationWindow, Correction, OpenForecast
from pykueue.state.intake import WatchedObject

DAY = 86_400
WEEK = 7 * DAY
SMALLEST = ("--pending=60", "--days=1", "--every=12", "--samples=9", "--worlds=strict,trace")


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

    @property
    def policy(self) -> SchedulingPolicy:
        return SchedulingPolicy(fair_sharing=tuple(FairSharingStrategy) if self.is_fair else ())


# Loads at which waits do not grow for ever. A StrictFIFO queue keeps capacity free for its head, so it takes less.
WORLDS = (
    WorldKind("strict", "StrictFIFO", 1, 32, 0.74),
    WorldKind("best effort", "BestEffortFIFO", 1, 32, 0.82),
    WorldKind("cohort", "BestEffortFIFO", 3, 16, 0.82, "all"),
    WorldKind("fair sharing", "BestEffortFIFO", 3, 16, 0.82, "all", is_fair=True),
    WorldKind("trace", "BestEffortFIFO", 1, 32, 0.82, is_exported=True),
)
# Scores of a ClusterQueue that its correction learns from first; at most half of all.
LEARNING = 300
# Mean run time in seconds and spread of the classes of jobs; their sizes.
CLASSES = ((900, 0.3), (1800, 0.6), (3600, 0.5), (7200, 0.8))
NAMES = ("quick", "short", "medium", "long")
SIZES = (1, 1, 2, 2, 4, 8)
BIG = 4


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
    median_error_minutes: float = 0.0
    baseline_error_minutes: float = 0.0


class SavedForecast(msgspec.Struct, frozen=True):
    """One forecast before its correction, and what happened; times in seconds after it was made."""

    world: str
    seed: int
    queue: str
    size: str
    # In seconds after the beginning of the world.
    made: int
    p50: int
    p90: int
    baseline: int
    # None: not until the end of the world.
    wait: int | None

    @property
    def open(self) -> OpenForecast:
        return OpenForecast(self.made * SECOND, self.p50 * SECOND, self.p90 * SECOND)


@dataclass
class Score:
    size: str
    covered_raw: bool
    covered: bool
    covered_p50: bool
    error: float
    baseline_error: float


@dataclass
class Truth:
    """One generated world and what happened in it."""

    kind: WorldKind
    objects: list[WatchedObject]
    arrivals: list[Arrival]
    lengths: dict[str, int]
    attempts: list[ProjectedAttempt] = field(default_factory=list)
    # By UID, the class of which runs are learned together.
    classes: dict[str, int] = field(default_factory=dict)


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
    rate = kind.load * kind.cpus * kind.queues / mean
    arrivals: list[Arrival] = []
    lengths: dict[str, int] = {}
    at = 0.0
    while at < seconds:
        # Twice as many at noon as at midnight.
        at += rng.expovariate(rate * 1.4)
        if rng.random() > (1.0 - 0.4 * math.cos(2 * math.pi * at / DAY)) / 1.4:
            continue
        number = len(arrivals)
        made_at = NOW + int(at) * SECOND
        queue, cpus = rng.choice(names), str(rng.choice(SIZES))
        priority = rng.choice((0, 0, 0, 0, 10))
        one = created(workload(number, queue, cpus, 0 if kind.is_exported else priority), made_at)
        length, spread = CLASSES[number_class(one)]
        lengths[one.metadata.uid] = max(30, int(length * math.exp(rng.gauss(0, spread))))
        arrivals.append(Arrival(made_at, one))
    truth = Truth(kind, objects, arrivals, lengths)
    draws = ConstantDraws(lambda each: lengths[each.metadata.uid], stop=2)
    truth.attempts = projection.run(SchedulerCase(tuple(objects), kind.policy), NOW, draws, arrivals=arrivals).attempts
    truth.classes = {each.workload.metadata.uid: number_class(each.workload) for each in arrivals}
    return exported(truth) if kind.is_exported else truth


def exported(truth: Truth) -> Truth:
    """The world that an export of the history of another one has."""
    by_key = {states.key(each.workload): each for each in truth.arrivals}
    records = [record_of(by_key[attempt.key], attempt) for attempt in truth.attempts if attempt.released is not None]
    text = swf.trace(documents.record_document(each, each.ended or 0) for each in records).text
    file = swf.read(text, "the export of a history")
    first = (file.number("UnixStartTime") or 0) * SECOND
    found = Truth(truth.kind, truth.objects, [], {})
    (queue,) = (thing.metadata.name for thing in truth.objects if isinstance(thing, kueue.LocalQueue))
    for job in file.jobs:
        at = first + job.submitted * SECOND
        one = created(workload(job.number, queue, str(job.requested_processors), 0), at)
        key, uid, started = states.key(one), one.metadata.uid, at + job.waited * SECOND
        found.arrivals.append(Arrival(at, one))
        found.lengths[uid], found.classes[uid] = job.ran, job.executable
        usage = (("default", "cpu", 1000 * job.processors),)
        attempt = ProjectedAttempt(key, uid, 0, queue, started, usage, admitted=started, reason="Finished")
        attempt.released = started + job.ran * SECOND
        found.attempts.append(attempt)
    return found


def record_of(arrival: Arrival, attempt: ProjectedAttempt) -> WorkloadRecord:
    """The record of a Workload that was not evicted."""
    one = arrival.workload
    begin, end = attempt.reserved // SECOND, (attempt.released or 0) // SECOND
    segment = UsageSegment(begin, end, attempt.usage)
    pod_sets = [{"name": "main", "count": 1, "requests": {"cpu": str(cpu_of(one))}}]
    return WorkloadRecord(
        uid=attempt.uid,
        namespace=one.metadata.namespace,
        name=one.metadata.name,
        job_name=f"{NAMES[number_class(one)]}-{one.metadata.name}",
        queue=one.spec.queue_name or "",
        shape=msgspec.json.encode(pod_sets),
        submitted=arrival.at // SECOND,
        ended=end,
        outcome=Outcome.SUCCEEDED,
        attempts=(Attempt(begin, attempt.cluster_queue, begin, begin, end, "Finished", "", (segment,)),),
    )


def number_class(one: kueue.Workload) -> int:
    return int(one.metadata.name[1:]) % len(CLASSES)


def meta_replace(made: kueue.ClusterQueue, strategy: str) -> kueue.ClusterQueue:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, queueing_strategy=strategy))


def created(one: kueue.Workload, at: Nanoseconds) -> kueue.Workload:
    metadata = msgspec.structs.replace(one.metadata, creation_timestamp=meta.format_time(at))
    return msgspec.structs.replace(one, metadata=metadata)


def cpu_of(one: kueue.Workload) -> int:
    return int(one.spec.pod_sets[0].template.spec.containers[0].resources.requests["cpu"])


def running(one: kueue.Workload, attempt: ProjectedAttempt) -> kueue.Workload:
    """The Workload with its reservation."""
    cpu = str(cpu_of(one))
    assigned = kueue.PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, resource_usage={"cpu": cpu})
    conditions = tuple(
        meta.Condition(type=type_, status="True", reason=type_, last_transition_time=meta.format_time(attempt.reserved))
        for type_ in ("QuotaReserved", "Admitted")
    )
    admission = kueue.Admission(cluster_queue=attempt.cluster_queue, pod_set_assignments=(assigned,))
    return msgspec.structs.replace(one, status=kueue.WorkloadStatus(admission=admission, conditions=conditions))


class Probes:
    """Forecasts in one world, each with the start that it was about."""

    def __init__(self, truth: Truth, seed: int, samples: int) -> None:
        self._truth = truth
        self._seed = seed
        self._samples = samples
        self._by_key = {states.key(each.workload): each.workload for each in truth.arrivals}
        self._times = [each.at for each in truth.arrivals]
        self._starts: dict[str, list[Nanoseconds]] = defaultdict(list)
        for attempt in truth.attempts:
            if attempt.admitted is not None:
                self._starts[attempt.key].append(attempt.admitted)
        self._ended = sorted(
            (each for each in truth.attempts if each.released is not None), key=lambda e: e.released or 0
        )
        self._ends = [each.released or 0 for each in self._ended]
        self._admissions = sorted(at for starts in self._starts.values() for at in starts)
        self._known: set[str] = set()
        # In the order of the forecasts.
        self.found: list[SavedForecast] = []

    def probe(self, now: Nanoseconds) -> None:
        """Forecast all pending Workloads, and keep the forecasts of those that are new."""
        held = {each.key: each for each in self._truth.attempts if _holds(each, now)}
        arrived = self._truth.arrivals[: bisect_right(self._times, now)]
        over = {each.key for each in self._truth.attempts if each.reason == "Finished" and (each.released or 0) <= now}
        objects: list[WatchedObject] = [*self._truth.objects]
        pending = []
        for each in arrived:
            key = states.key(each.workload)
            if key in over:
                continue
            if key in held:
                objects.append(running(each.workload, held[key]))
            else:
                objects.append(each.workload)
                pending.append(key)
        estimates = self._estimates(now)
        classes = self._truth.classes
        by_uid = {(uid := each.workload.metadata.uid): estimates[classes[uid]] for each in arrived}
        lengths: dict[str, int] = {}
        found = forecast.forecast(
            SchedulerCase(tuple(objects), self._truth.kind.policy),
            now,
            lambda sample: EstimatedDraws(sample, by_uid, lengths),
            arrivals=lambda sample: self._newcomers(sample, now, lengths),
            effort=10**9,
            samples=self._samples,
        )
        for item in found.items:
            if item.key not in self._known and item.p50 is not None and item.p90 is not None:
                self._known.add(item.key)
                self.found.append(self._saved(item.key, item.p50, item.p90, now, pending))

    def _saved(
        self, key: str, p50: Nanoseconds, p90: Nanoseconds, now: Nanoseconds, pending: list[str]
    ) -> SavedForecast:
        one = self._by_key[key]
        queue = one.spec.queue_name or ""
        started = next((at for at in self._starts[key] if at >= now), None)
        position = 1 + [each for each in pending if self._by_key[each].spec.queue_name == queue].index(key)
        admitted = bisect_left(self._admissions, now) - bisect_left(self._admissions, now - DAY * SECOND)
        rate = max(1, admitted) / DAY / self._truth.kind.queues
        return SavedForecast(
            world=self._truth.kind.name,
            seed=self._seed,
            queue=queue,
            size="big" if cpu_of(one) >= BIG else "small",
            made=(now - NOW) // SECOND,
            p50=(p50 - now) // SECOND,
            p90=(p90 - now) // SECOND,
            baseline=int(position / rate),
            wait=None if started is None else (started - now) // SECOND,
        )

    def _estimates(self, now: Nanoseconds) -> dict[int, RunEstimate]:
        """What is known of each class of jobs: its last runs that have ended."""
        classes = self._truth.classes
        runs: dict[int, deque[Run]] = {number: deque(maxlen=RUNS_KEPT) for number in sorted(set(classes.values()))}
        for attempt in self._ended[: bisect_right(self._ends, now)]:
            if attempt.admitted is not None and attempt.released is not None:
                length = (attempt.released - attempt.admitted) // SECOND
                runs[classes[attempt.uid]].append(Run(float(length), attempt.reason != "Finished"))
        return {
            number: RunEstimate("bench", len(found), RunDistribution(tuple(found)).quantile)
            for number, found in runs.items()
        }

    def _newcomers(self, sample: int, now: Nanoseconds, lengths: dict[str, int]) -> Iterator[Arrival]:
        weeks = max(1, min(4, (now - NOW) // (WEEK * SECOND)))
        week = 1 + int(uniform(sample, "newcomers", 0) * weeks)
        shift = week * WEEK * SECOND + int((uniform(sample, "newcomers", 1) - 0.5) * 3600) * SECOND
        for place in range(bisect_left(self._times, now - shift), bisect_left(self._times, now)):
            past = self._truth.arrivals[place]
            one = _renamed(created(past.workload, past.at + shift), f"new-{sample}-{place}")
            lengths[one.metadata.uid] = self._truth.lengths[past.workload.metadata.uid]
            yield Arrival(past.at + shift, one)


def _renamed(one: kueue.Workload, name: str) -> kueue.Workload:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name=name, uid=name))


def _holds(attempt: ProjectedAttempt, now: Nanoseconds) -> bool:
    return attempt.reserved <= now and (attempt.released is None or attempt.released > now)


def probed(kind: WorldKind, seed: int, days: int, every: float, samples: int) -> list[SavedForecast]:
    """The forecasts of one world, and its starts."""
    past = 2 * WEEK
    probes = Probes(generate(kind, past + days * DAY, seed), seed, samples)
    at = past
    while at < past + (days - 0.5) * DAY:
        probes.probe(NOW + int(at) * SECOND)
        at += int(every * 3600)
    return probes.found


def scored(found: Iterable[SavedForecast]) -> list[Score]:
    """The forecasts of one ClusterQueue, each with the correction by what had started when it was made [FC3]."""
    window = CalibrationWindow()
    waiting: list[SavedForecast] = []
    scores = []
    for made, together in itertools.groupby(found, key=lambda each: each.made):
        now, still = made * SECOND, []
        for each in waiting:
            if each.wait is not None and each.made + each.wait <= made:
                window.add(each.open, (each.made + each.wait) * SECOND)
            else:
                still.append(each)
        waiting = still
        correction = window.correction((each.open for each in waiting), now)
        for each in together:
            scores.append(_score(each, correction))
            waiting.append(each)
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
        wait <= each.p90 * SECOND,
        wait <= p90,
        wait <= p50,
        abs(wait - p50) / MINUTE,
        abs(wait - each.baseline * SECOND) / MINUTE,
    )


def judged(found: Iterable[SavedForecast]) -> Iterator[CalibrationFigures]:
    """The figures of each world and ClusterQueue, without the forecasts that the correction learned from first."""
    by_queue: dict[tuple[str, str, str], list[SavedForecast]] = defaultdict(list)
    for each in found:
        by_queue[each.world, each.queue, str(each.seed)].append(each)
    together: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for (world, queue, seed), rows in sorted(by_queue.items()):
        scores = scored(rows)
        settled = scores[min(LEARNING, len(scores) // 2) :]
        together[world, queue] += settled
        yield from _by_size(world, seed, queue, settled)
    if len({seed for _, _, seed in by_queue}) > 1:
        for (world, queue), settled in together.items():
            yield from _by_size(world, "all", queue, settled)


def _by_size(world: str, seed: str, queue: str, scores: Sequence[Score]) -> Iterator[CalibrationFigures]:
    for size in ("all", "small", "big"):
        chosen = [each for each in scores if size in ("all", each.size)]
        if chosen:
            yield _figures(world, seed, queue, size, chosen)


def _figures(world: str, seed: str, queue: str, size: str, scores: list[Score]) -> CalibrationFigures:
    return CalibrationFigures(
        world,
        seed,
        queue,
        size,
        len(scores),
        statistics.fmean(each.covered_raw for each in scores),
        statistics.fmean(each.covered for each in scores),
        statistics.fmean(each.covered_p50 for each in scores),
        statistics.median(each.error for each in scores),
        statistics.median(each.baseline_error for each in scores),
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench forecast", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pending", type=int, default=1000, help="for speed; 0: not measured")
    parser.add_argument("--days", type=int, default=21)
    parser.add_argument("--every", type=float, default=2.0, help="hours between forecasts")
    parser.add_argument("--samples", type=int, default=forecast.SAMPLES)
    parser.add_argument("--worlds", default=",".join(kind.name for kind in WORLDS))
    parser.add_argument("--seeds", default="11", help="of the worlds; each is run with every seed")
    parser.add_argument("--save", type=Path, help="a file for the forecasts before their correction")
    parser.add_argument("--saved", help="such files: nothing is run, their forecasts are corrected")
    chosen = parser.parse_args(arguments)
    speed = _speeds(0 if chosen.saved else chosen.pending)
    rows = list(_print_figures(judged(_forecasts(chosen))))
    if chosen.json is not None:
        figures = {"speed": [asdict(each) for each in speed], "calibration": [asdict(row) for row in rows]}
        chosen.json.write_text(json.dumps(figures, indent=2))
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
    """The forecasts of the chosen worlds and seeds: read, or made."""
    kinds = [kind for kind in WORLDS if kind.name in chosen.worlds.split(",")]
    if chosen.saved:
        names = {kind.name for kind in kinds}
        lines = (line for name in chosen.saved.split(",") for line in Path(name).read_bytes().splitlines())
        return [each for each in map(msgspec.json.Decoder(SavedForecast).decode, lines) if each.world in names]
    found: list[SavedForecast] = []
    for kind, seed in itertools.product(kinds, chosen.seeds.split(",")):
        rows = probed(kind, int(seed), chosen.days, chosen.every, chosen.samples)
        found += rows
        if chosen.save is not None:  # world by world, so that a run that is stopped is not lost
            with chosen.save.open("ab") as file:
                file.writelines(msgspec.json.encode(each) + b"\n" for each in rows)
    return found


def _print_figures(rows: Iterable[CalibrationFigures]) -> Iterator[CalibrationFigures]:
    print(
        f"\n{'world':<12} {'seed':>5} {'queue':<14} {'size':<6} {'n':>5}"
        f" {'P90 raw':>8} {'P90':>6} {'P50':>6} {'error':>8} {'baseline':>9}"
    )
    for row in rows:
        covered = f"{row.p90_raw:>8.2f} {row.p90:>6.2f} {row.p50:>6.2f}"
        errors = f"{row.median_error_minutes:>7.0f}m {row.baseline_error_minutes:>8.0f}m"
        where = f"{row.world:<12} {row.seed:>5} {row.queue:<14} {row.size:<6}"
        print(f"{where} {row.scored:>5} {covered} {errors}", flush=True)
        yield row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
