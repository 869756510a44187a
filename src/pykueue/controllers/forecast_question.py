"""One question about starts as a message, and its answer: what the worker process computes.

The message has the objects of one scheduling scope, the settings, and an estimate of the run time of every Workload.
Past arrivals are read from the history by the worker itself.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kubemachinery import meta
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import kueue
from pykueue.history import records
from pykueue.history.learning import RunEstimate
from pykueue.history.records import WorkloadRecord
from pykueue.history.store import HistoryStore, HistoryStoreError
from pykueue.projection import Arrival, SchedulerCase, forecast, uniform
from pykueue.projection.forecast import ForecastResult
from pykueue.state.intake import WatchedObject

WEEK_SECONDS: Final = 7 * 86_400
WEEKS: Final = 4
# Of how many past arrivals newcomers are taken.
ARRIVALS_MAX: Final = 50_000
# How long pods take to stop after an eviction.
STOP_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class ForecastQuestion:
    """A question about the pending Workloads of one scheduling scope."""

    case: SchedulerCase
    now: Nanoseconds
    # By UID. A Workload without one has nothing that is known about its run time.
    estimates: Mapping[str, RunEstimate]
    history: Path | None = None
    effort: int = forecast.EFFORT


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """The forecasts of a scope, and what they assume."""

    result: ForecastResult
    assumes: tuple[str, ...] = ()


def encode(question: ForecastQuestion, chunks: Sequence[bytes]) -> bytes:
    """A question as a message; `chunks` are its objects, encoded in parts so that no part takes long."""
    return pickle.dumps((replace(question, case=question.case.with_objects(())), chunks))


def encode_objects(objects: Sequence[WatchedObject]) -> bytes:
    return pickle.dumps(objects)


def decode(message: bytes) -> ForecastQuestion:
    question, chunks = pickle.loads(message)
    objects = [thing for chunk in chunks for thing in pickle.loads(chunk)]
    found: ForecastQuestion = replace(question, case=question.case.with_objects(objects))
    return found


def answer(question: ForecastQuestion, store: HistoryStore | None = None) -> ForecastAnswer:
    """Compute the forecasts. `store` is the history; without one, no newcomers are expected."""
    newcomers = _Newcomers.read(question, store)
    found = forecast.forecast(
        question.case,
        question.now,
        lambda sample: EstimatedDraws(sample, question.estimates, newcomers.lengths),
        arrivals=newcomers.block,
        effort=question.effort,
    )
    return ForecastAnswer(found, (newcomers.assumption, *_assumed_checks(question.case)))


def _assumed_checks(case: SchedulerCase) -> Iterator[str]:
    if any(
        thing.spec.admission_checks_strategy is not None
        for thing in case.objects
        if isinstance(thing, kueue.ClusterQueue)
    ):
        yield "admission checks pass at once"


@dataclass(frozen=True, slots=True)
class EstimatedDraws:
    """Run times drawn from estimates; those of newcomers are the recorded ones."""

    sample: int
    estimates: Mapping[str, RunEstimate]
    lengths: Mapping[str, int]

    def run_seconds(self, workload: kueue.Workload, attempt: int, elapsed_seconds: int) -> int | None:
        uid = workload.metadata.uid
        estimate = self.estimates.get(uid)
        if estimate is None:
            return self.lengths.get(uid)
        return estimate.quantile(uniform(self.sample, uid, attempt), elapsed_seconds)

    def check_seconds(self, workload: kueue.Workload, attempt: int) -> int:
        return 0

    def stop_seconds(self, workload: kueue.Workload, attempt: int) -> int:
        return STOP_SECONDS


# --- Newcomers --------------------------------------------------------------------------------------------------------


class _Newcomers:
    """Past arrivals, to be replayed: each sample takes those after a moment of the same hour of the week [FC2]."""

    def __init__(self, question: ForecastQuestion, past: Sequence[WorkloadRecord], first: int | None) -> None:
        self._now = question.now // SECOND
        local_queues = {
            (thing.metadata.namespace, thing.metadata.name)
            for thing in question.case.objects
            if isinstance(thing, kueue.LocalQueue)
        }
        self._past = [record for record in past if (record.namespace, record.queue) in local_queues]
        self._times = [record.submitted for record in self._past]
        known = 0 if first is None else self._now - first
        self._weeks = min(WEEKS, known // WEEK_SECONDS)
        self.lengths: dict[str, int] = {}

    @classmethod
    def read(cls, question: ForecastQuestion, store: HistoryStore | None) -> _Newcomers:
        if store is None:
            return cls(question, (), None)
        since = question.now // SECOND - WEEKS * WEEK_SECONDS - 3600
        try:
            first = store.ask(lambda one: one.first_submitted())
            return cls(question, store.ask(lambda one: one.submitted_since(since, ARRIVALS_MAX)), first)
        except HistoryStoreError:
            return cls(question, (), None)

    @property
    def assumption(self) -> str:
        if not self._weeks:
            return "no other Workload arrives: the history is shorter than a week"
        return f"Workloads arrive as in the last {'week' if self._weeks == 1 else f'{self._weeks} weeks'}"

    def block(self, sample: int) -> Iterator[Arrival]:
        """The arrivals of one sample, shifted to now."""
        if not self._weeks:
            return
        start = self._start(sample)
        for place in range(bisect_left(self._times, start), len(self._past)):
            record = self._past[place]
            at = self._now + record.submitted - start
            workload = workload_of(record, at, f"newcomer-{sample}-{place}")
            self.lengths[workload.metadata.uid] = max(1, record.ran(self._now))
            yield Arrival(at * SECOND, workload)

    def _start(self, sample: int) -> int:
        """A moment of the same hour of the week; with a single week of history, one of any hour."""
        u = uniform(sample, "newcomers", 0)
        if self._weeks < 2:
            return self._now - WEEK_SECONDS + int(u * (WEEK_SECONDS - 86_400))
        week = 1 + int(u * self._weeks)
        within = uniform(sample, "newcomers", 1)
        return self._now - week * WEEK_SECONDS + int((within - 0.5) * 3600)


def workload_of(record: WorkloadRecord, created: int, name: str) -> kueue.Workload:
    """A Workload like that of a record, created at a time."""
    metadata = meta.ObjectMeta(
        name=name,
        namespace=record.namespace,
        uid=name,
        generation=1,
        creation_timestamp=meta.format_time(created * SECOND),
    )
    pod_sets = records.pod_sets(record.shape)
    spec = kueue.WorkloadSpec(queue_name=record.queue, priority=record.priority, pod_sets=pod_sets)
    return kueue.Workload(metadata=metadata, spec=spec)
