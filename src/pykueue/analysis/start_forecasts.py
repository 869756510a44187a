"""The starts of Workloads that do not exist yet: forecasts on copies of objects, without a manager."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from statistics import NormalDist
from typing import Final

import msgspec
from msgspec.structs import replace

from kubemachinery.meta import SECOND, Nanoseconds, format_time
from pykueue.analysis import planner, replayed_budgets
from pykueue.analysis.planner import Case
from pykueue.api import kueue
from pykueue.controllers import forecast_question
from pykueue.controllers.forecast_question import ForecastQuestion, PastWorkloads
from pykueue.history import records
from pykueue.history.learning import RunEstimate, RunTimes
from pykueue.history.records import Seconds
from pykueue.lifecycle import states
from pykueue.projection import SchedulerCase
from pykueue.projection.documents import ForecastDocument, document

NOT_CORRECTED: Final = "times are not corrected by past starts"


class _Spread(msgspec.Struct, frozen=True):
    """Run times of which P50 and P90 are known: log-normal between and around them."""

    p50: float
    p90: float

    def __call__(self, share: float, elapsed: float) -> float:
        sigma = max(1e-6, math.log(max(self.p90, self.p50 * 1.001) / self.p50)) / NormalDist().inv_cdf(0.9)
        length = NormalDist(math.log(self.p50), sigma)
        passed = length.cdf(math.log(elapsed)) if elapsed > 1 else 0.0
        return math.exp(length.inv_cdf(min(max(passed + (1 - passed) * share, 1e-6), 1 - 1e-6)))


def estimate_of(p50_seconds: int, p90_seconds: int, limit_seconds: int | None) -> RunEstimate:
    """The estimate of which only two quantiles are known."""
    return RunEstimate("quantiles", 0, _Spread(float(max(1, p50_seconds)), float(max(1, p90_seconds))), limit_seconds)


def new_workloads(before: Case, after: Case) -> list[kueue.Workload]:
    """The Workloads that a change adds."""
    there = {states.key(thing) for thing in before.objects if isinstance(thing, kueue.Workload)}
    return [t for t in after.objects if isinstance(t, kueue.Workload) and states.key(t) not in there]


def scope_of(case: Case, workloads: Iterable[kueue.Workload], now: Nanoseconds) -> SchedulerCase:
    """The objects of the scheduling scopes of some Workloads."""
    whole = planner.scheduler_case(case, departures=True)
    if planner.QUOTA_CALENDAR in case.configured.on:
        whole = replace(whole, windows=planner.windows_of(case, now))
    world = whole.world(now)
    world.settle(now)
    found = (world.pending_workload(states.key(each)) for each in workloads)
    queues = {name for each in found if each is not None for name in world.scope_queues(each.cluster_queue)}
    return whole.within(queues)


def identified(case: Case) -> Case:
    """The case in which every Workload has a UID: those of files may have none."""
    return case.with_objects(_identified(each) if isinstance(each, kueue.Workload) else each for each in case.objects)


def _identified(workload: kueue.Workload) -> kueue.Workload:
    if workload.metadata.uid:
        return workload
    metadata = msgspec.structs.replace(workload.metadata, uid=states.key(workload))
    return msgspec.structs.replace(workload, metadata=metadata)


def past_since(case: Case, now: Nanoseconds) -> Seconds:
    """The second from which on records are of use: of the last weeks, and of what Budgets have spent."""
    first = (replayed_budgets.first_counted(each, now // SECOND) for each in replayed_budgets.budgets_of(case))
    return min((forecast_question.past_since(now), *first))


def starts(
    case: Case,
    wanted: Iterable[kueue.Workload],
    now: Nanoseconds,
    estimates: Mapping[str, RunEstimate],
    past: PastWorkloads | None = None,
) -> ForecastDocument:
    """The forecasts of some Workloads, as the manager makes them [FC10], [FC11]. `estimates` are by namespace/name;
    without one, the past runs and the hints of a Workload count. `past` has the records since `past_since`."""
    keys = {states.key(each) for each in wanted}
    case = identified(case)
    scope = scope_of(case, (each for each in _workloads(case.objects) if states.key(each) in keys), now)
    recent = PastWorkloads() if past is None else _recent(past, now)
    question = ForecastQuestion(
        case=scope,
        now=now,
        estimates=_by_uid(scope, estimates, past, now),
        lasted=_lasted(scope, past, now // SECOND),
        budgets=tuple(replayed_budgets.ledgers(case, None if past is None else past.records, now // SECOND)),
        users={each.metadata.uid: records.user(each, "") for each in scope.workloads()},
    )
    answer = forecast_question.answer_from(question, recent)
    assumes = (*_without_past(answer.assumes, past), *_of_budgets(case, past, now), NOT_CORRECTED)
    return document(answer.result, assumes, shows=lambda key: key in keys)


def _recent(past: PastWorkloads, now: Nanoseconds) -> PastWorkloads:
    since = forecast_question.past_since(now)
    # A record without an end is of a Workload that is in the case itself.
    ended = (each for each in past.records if each.ended is not None and each.submitted >= since)
    return PastWorkloads(sorted(ended, key=lambda each: (each.submitted, each.uid)), past.first)


def _by_uid(
    scope: SchedulerCase, estimates: Mapping[str, RunEstimate], past: PastWorkloads | None, now: Nanoseconds
) -> dict[str, RunEstimate]:
    learned = RunTimes()
    for record in sorted(() if past is None else past.records, key=lambda each: (each.ended or 0, each.uid)):
        if record.ended is not None:
            learned.learn(record)
    observed = [(workload, records.observe(None, workload, now // SECOND)) for workload in scope.workloads()]
    running = ((record, records.running_seconds(record, now // SECOND)) for _, record in observed)
    open_runs = learned.open_runs(running, now // SECOND)
    found = {}
    for workload, record in observed:
        estimate = estimates.get(states.key(workload)) or learned.estimate(record, open_runs)
        if estimate is not None:
            found[workload.metadata.uid] = estimate
    return found


def _lasted(scope: SchedulerCase, past: PastWorkloads | None, now: int) -> dict[str, int]:
    """By UID: how long each Workload has lasted in one attempt, by its record or by its object [RT13]."""
    known = {} if past is None else {each.uid: each for each in past.records if each.ended is None}
    observed = (records.observe(None, workload, now) for workload in scope.workloads())
    return {each.uid: records.lasted_seconds(known.get(each.uid, each), now) for each in observed}


def _without_past(assumes: Iterable[str], past: PastWorkloads | None) -> Iterator[str]:
    """The assumptions of the answer; without a past, no history is called short."""
    first, *others = assumes
    yield first if past is not None else "no other Workload arrives: no history is given"
    yield from others


def _of_budgets(case: Case, past: PastWorkloads | None, now: Nanoseconds) -> Iterator[str]:
    """What is not known of the Budgets of a case."""
    yield from replayed_budgets.unanswered(case)
    budgets = replayed_budgets.budgets_of(case)
    if not budgets:
        return
    if past is None:
        yield "of what Budgets have spent, only Workloads that still exist are counted"
        return
    since = min(replayed_budgets.first_counted(each, now // SECOND) for each in budgets)
    if past.first is None or past.first > since:
        begin = "" if past.first is None else f" at {format_time(past.first * SECOND)}"
        yield f"what Budgets spent before the history begins{begin} is not counted"


def _workloads(objects: Iterable[object]) -> Iterator[kueue.Workload]:
    return (each for each in objects if isinstance(each, kueue.Workload))
