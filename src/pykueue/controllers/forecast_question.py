"""One question about starts as a message, and its answer: what the worker process computes.

The message has the objects of one scheduling scope, the settings, and an estimate of the run time of every Workload.
Past arrivals are read from the history by the worker itself.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.api import budget, kueue
from pykueue.controllers.projected_budgets import ProjectedBudgets
from pykueue.history import budget_rules, records
from pykueue.history.budget_answers import BudgetLedger
from pykueue.history.learning import RUNS_MIN, Run, RunDistribution, RunEstimate
from pykueue.history.records import WorkloadRecord
from pykueue.history.store import HistoryStore, HistoryStoreError
from pykueue.projection import Arrival, ProjectedAttempt, SchedulerCase, correlated, forecast, uniform
from pykueue.projection.forecast import ForecastResult
from pykueue.state.intake import WatchedObject

WEEK_SECONDS: Final = 7 * 86_400
WEEKS: Final = 4
# Of how many past arrivals newcomers are taken.
ARRIVALS_MAX: Final = 50_000
# How long pods take to stop after an eviction.
STOP_SECONDS: Final = 2
# Of how many attempts of a kind the time of admission checks is taken [FC11].
_ATTEMPTS_KEPT: Final = 64


class ForecastQuestion(msgspec.Struct, frozen=True):
    """A question about the pending Workloads of one scheduling scope."""

    case: SchedulerCase
    now: Nanoseconds
    # By UID. A Workload without one has nothing that is known about its run time.
    estimates: Mapping[str, RunEstimate]
    # By UID: how long each has lasted in one attempt, and so at least lasts in the next ones [RT13].
    lasted: Mapping[str, int] = msgspec.field(default_factory=dict)
    history: Path | None = None
    effort: int = forecast.EFFORT
    # The Budgets of the ClusterQueues, with accounts of their own; and by UID the users that they may be charged to.
    budgets: tuple[BudgetLedger, ...] = ()
    users: Mapping[str, str] = msgspec.field(default_factory=dict)


class ForecastAnswer(msgspec.Struct, frozen=True):
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


class PastWorkloads(NamedTuple):
    """What the history has: the records of the last weeks in the order of submission, and when the first of all was
    submitted; None if there is none."""

    records: Sequence[WorkloadRecord] = ()
    first: int | None = None


def answer(question: ForecastQuestion, store: HistoryStore | None = None) -> ForecastAnswer:
    """Compute the forecasts. `store` is the history; without one, no newcomers are expected."""
    return answer_from(question, _past(question, store))


def answer_from(question: ForecastQuestion, past: PastWorkloads) -> ForecastAnswer:
    """Compute the forecasts from what is known of the past."""
    newcomers = _Newcomers(question, past.records, past.first)
    checks = CheckTimes.of(past.records, question.now // SECOND)
    ledgers = pickle.dumps(question.budgets)
    newcomers.users.update(question.users)
    found = forecast.forecast(
        question.case,
        question.now,
        lambda sample: EstimatedDraws(sample, question.estimates, newcomers.lengths, checks, question.lasted),
        arrivals=newcomers.block,
        answers=lambda sample: _budgets(ledgers, newcomers.users) if question.budgets else None,
        effort=question.effort,
    )
    return ForecastAnswer(found, (newcomers.assumption, *_assumed_checks(question, checks)))


def _budgets(ledgers: bytes, users: Mapping[str, str]) -> ProjectedBudgets:
    """The Budgets of one run. It changes their accounts, so each has a copy."""
    return ProjectedBudgets(list(pickle.loads(ledgers)), users)


def past_since(now: Nanoseconds) -> int:
    """The second from which on records are used."""
    return now // SECOND - WEEKS * WEEK_SECONDS - 3600


def _past(question: ForecastQuestion, store: HistoryStore | None) -> PastWorkloads:
    """What the store has; nothing if it cannot be read."""
    if store is None:
        return PastWorkloads()
    since = past_since(question.now)
    try:
        first = store.ask(lambda one: one.first_submitted())
        return PastWorkloads(store.ask(lambda one: one.submitted_since(since, ARRIVALS_MAX)), first)
    except HistoryStoreError:
        return PastWorkloads()


def _assumed_checks(question: ForecastQuestion, times: CheckTimes) -> Iterator[str]:
    """What is assumed of the admission checks that no Budget answers."""
    asked = {ledger.limits.name for ledger in question.budgets}
    answered = {
        thing.metadata.name
        for thing in question.case.objects
        if isinstance(thing, kueue.AdmissionCheck)
        and thing.spec.controller_name == budget.CONTROLLER
        and budget_rules.budget_name(thing) in asked
    }
    checks = {
        thing.metadata.name: {rule.name for rule in thing.spec.admission_checks_strategy.admission_checks}
        for thing in question.case.objects
        if isinstance(thing, kueue.ClusterQueue) and thing.spec.admission_checks_strategy is not None
    }
    known = {name for name, _ in times.by_flavors}
    if any(name in known for name in checks):
        yield "admission checks take as long as they took in the last 4 weeks"
    if any(name not in known and needed - answered for name, needed in checks.items()):
        yield "admission checks pass at once"
    if asked:
        yield "Workloads of other cohorts are charged to Budgets as at present"


class CheckTimes(msgspec.Struct, frozen=True):
    """How long admission checks took, by ClusterQueue and flavors: a check may be for some flavors alone [FC11]."""

    by_flavors: Mapping[tuple[str, frozenset[str]], RunDistribution] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, past: Iterable[WorkloadRecord], now: int) -> CheckTimes:
        """The times of the last attempts of each kind. One that lost its quota before, or still waits, took at least as
        long."""
        found: dict[tuple[str, frozenset[str]], deque[Run]] = defaultdict(lambda: deque(maxlen=_ATTEMPTS_KEPT))
        attempts = sorted(
            (attempt for record in past for attempt in record.attempts), key=lambda each: (each.reserved, each.mark)
        )
        for attempt in attempts:
            end = attempt.admitted if attempt.admitted is not None else attempt.released
            seconds = max(0, (now if end is None else end) - attempt.reserved)
            flavors = frozenset(flavor for part in attempt.segments for flavor, _, _ in part.amounts)
            found[attempt.cluster_queue, flavors].append(Run(float(seconds), attempt.admitted is None))
        return cls({key: RunDistribution(tuple(runs)) for key, runs in found.items() if _is_known(runs)})

    def draw(self, attempt: ProjectedAttempt, share: float, elapsed_seconds: int) -> int:
        """The seconds from the reservation on; at once where too little is known."""
        found = self.by_flavors.get((attempt.cluster_queue, frozenset(flavor for flavor, _, _ in attempt.usage)))
        if found is None:
            return elapsed_seconds
        return max(elapsed_seconds, round(found.quantile(share, float(elapsed_seconds))))


def _is_known(runs: Iterable[Run]) -> bool:
    """Whether enough attempts were admitted, and some not at once."""
    passed = [run.value for run in runs if not run.is_bound]
    return len(passed) >= RUNS_MIN and any(passed)


class EstimatedDraws(msgspec.Struct, frozen=True):
    """Run times drawn from estimates; those of newcomers are the recorded ones. Times of checks are past ones."""

    sample: int
    estimates: Mapping[str, RunEstimate]
    lengths: Mapping[str, int]
    checks: CheckTimes = msgspec.field(default_factory=CheckTimes)
    lasted: Mapping[str, int] = msgspec.field(default_factory=dict)

    def run_seconds(self, workload: kueue.Workload, elapsed_seconds: int) -> int | None:
        uid = workload.metadata.uid
        estimate = self.estimates.get(uid)
        if estimate is None:
            return self.lengths.get(uid)
        share = uniform(self.sample, uid, 0)
        if estimate.correlation:
            # Workloads that are alike are long or short together [RT12].
            share = correlated(share, uniform(self.sample, estimate.alike, 0, "alike"), estimate.correlation)
        return estimate.quantile(share, max(elapsed_seconds, self.lasted.get(uid, 0)))

    def check_seconds(self, workload: kueue.Workload, attempt: ProjectedAttempt, elapsed_seconds: int) -> int:
        share = uniform(self.sample, workload.metadata.uid, attempt.number, "checks")
        return self.checks.draw(attempt, share, elapsed_seconds)

    def stop_seconds(self, workload: kueue.Workload) -> int:
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
        self.users: dict[str, str] = {}

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
            self.lengths[workload.metadata.uid] = run_seconds(record)
            if record.user:
                self.users[workload.metadata.uid] = record.user
            yield Arrival(at * SECOND, workload)

    def _start(self, sample: int) -> int:
        """A moment of the same hour of the week; with a single week of history, one of any hour."""
        u = uniform(sample, "newcomers", 0)
        if self._weeks < 2:
            return self._now - WEEK_SECONDS + int(u * (WEEK_SECONDS - 86_400))
        week = 1 + int(u * self._weeks)
        within = uniform(sample, "newcomers", 1)
        return self._now - week * WEEK_SECONDS + int((within - 0.5) * 3600)


def run_seconds(record: WorkloadRecord) -> int:
    """How long a Workload ran in its last attempt: those before it were evicted."""
    times = [
        attempt.released - attempt.admitted
        for attempt in record.attempts
        if attempt.admitted is not None and attempt.released is not None
    ]
    return max(1, times[-1] if times else 1)


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
    spec = kueue.WorkloadSpec(
        queue_name=record.queue,
        priority=record.priority,
        pod_sets=pod_sets,
        maximum_execution_time_seconds=record.limit_seconds,
    )
    return kueue.Workload(metadata=metadata, spec=spec)
