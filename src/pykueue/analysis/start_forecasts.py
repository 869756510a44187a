"""The starts of Workloads that do not exist yet: forecasts on copies of objects, without a manager."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

from kubemachinery.meta import SECOND, Nanoseconds
from pykueue.analysis import planner
from pykueue.analysis.planner import Case
from pykueue.api import kueue
from pykueue.history import records
from pykueue.history.learning import RunEstimate, RunTimes
from pykueue.lifecycle import states
from pykueue.projection import ProjectedAttempt, SchedulerCase, forecast, uniform
from pykueue.projection.documents import ForecastDocument, document

ASSUMPTIONS = ("no other Workload arrives",)
_STOP_SECONDS = 2


@dataclass(frozen=True, slots=True)
class _Spread:
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


@dataclass(frozen=True, slots=True)
class _Draws:
    sample: int
    estimates: Mapping[str, RunEstimate]
    now: Nanoseconds

    def run_seconds(self, workload: kueue.Workload, attempt: int, elapsed_seconds: int) -> int | None:
        found = self.estimates.get(states.key(workload)) or RunTimes().estimate(
            records.observe(None, workload, self.now // SECOND)
        )
        return (
            None
            if found is None
            else found.quantile(uniform(self.sample, states.key(workload), attempt), elapsed_seconds)
        )

    def check_seconds(self, workload: kueue.Workload, attempt: ProjectedAttempt, elapsed_seconds: int) -> int:
        return 0

    def stop_seconds(self, workload: kueue.Workload, attempt: int) -> int:
        return _STOP_SECONDS


def new_workloads(before: Case, after: Case) -> list[kueue.Workload]:
    """The Workloads that a change adds."""
    there = {states.key(thing) for thing in before.objects if isinstance(thing, kueue.Workload)}
    return [t for t in after.objects if isinstance(t, kueue.Workload) and states.key(t) not in there]


def scope_of(case: Case, workloads: Iterable[kueue.Workload], now: Nanoseconds) -> SchedulerCase:
    """The objects of the scheduling scopes of some Workloads."""
    whole = planner.scheduler_case(case, departures=True)
    world = whole.world(now)
    world.settle(now)
    found = (world.pending_workload(states.key(each)) for each in workloads)
    queues = {name for each in found if each is not None for name in world.scope_queues(each.cluster_queue)}
    return whole.within(queues)


def starts(
    case: SchedulerCase, wanted: Iterable[kueue.Workload], now: Nanoseconds, estimates: Mapping[str, RunEstimate]
) -> ForecastDocument:
    """The forecasts of some Workloads. `estimates` are by namespace/name; without one, the hints of a Workload
    count."""
    result = forecast.forecast(case, now, lambda sample: _Draws(sample, estimates, now))
    keys = {states.key(each) for each in wanted}
    return document(result, ASSUMPTIONS, shows=lambda key: key in keys)
