"""Runs ahead from a preemption loop: it does not go round, and there is a reason in place of a forecast [RA9]."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from kubemachinery import yaml_documents
from kubemachinery.meta import HOUR, SECOND
from pykueue import projection
from pykueue.analysis import planner
from pykueue.api import kueue
from pykueue.projection import Arrival, SchedulerCase, forecast
from pykueue.projection.draws import ConstantDraws
from pykueue.projection.forecast import ForecastResult
from pykueue.state.intake import is_watched

NOW = 1_800_000_000 * SECOND
CASES = sorted((Path(__file__).parents[1] / "state" / "loops").glob("livelock-*.yaml"))
# Those in which every Workload is in the loop, and the first of its members.
FIRST = {"livelock-33": "w1", "livelock-51": "w0"}
CLOSED = [path for path in CASES if path.stem in FIRST]
# Decisions of a run of a week that goes round in every loop: 100,000 and more.
FEW = 300


def case_of(path: Path, **policy: bool) -> SchedulerCase:
    """A case in which Workloads preempt each other in turns, as Kueue decides."""
    case = planner.read(yaml_documents.read(path))
    found = planner.begin(case, NOW).world.policy
    return SchedulerCase(tuple(filter(is_watched, case.objects)), policy=replace(found, **policy))


def draws(seconds: int) -> ConstantDraws:
    return ConstantDraws(lambda workload: seconds, stop=2)


def forecast_of(case: SchedulerCase, seconds: int = 600) -> ForecastResult:
    return forecast.forecast(case, NOW, lambda sample: draws(seconds), samples=1)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("detects", [True, False], ids=["LoopDetection", "no LoopDetection"])
def test_forecast_from_a_preemption_loop_takes_few_decisions(path: Path, detects: bool) -> None:
    found = forecast_of(case_of(path, loop_detection=detects))
    assert found.decisions < FEW
    assert found.items


@pytest.mark.parametrize("path", CLOSED, ids=lambda path: path.stem)
def test_forecast_names_the_preemption_loop_that_keeps_a_workload_out(path: Path) -> None:
    reasons = [item.reason for item in forecast_of(case_of(path)).items if item.reason]
    assert reasons == [f"Workloads preempt each other in turns: default/{FIRST[path.stem]} and 2 more"]


def test_end_of_another_workload_ends_a_skipped_loop() -> None:
    """Workload w4 is in no loop; its quota lets in w2."""
    starts = {item.key: item.p50 for item in forecast_of(case_of(CASES[0])).items}
    assert starts["default/w2"] == NOW + 600 * SECOND


@pytest.mark.parametrize("path", CLOSED, ids=lambda path: path.stem)
def test_arrival_ends_a_skipped_loop(path: Path) -> None:
    case = case_of(path)
    first = next(case.workloads())
    late = kueue.Workload(
        metadata=replace(first.metadata, name="late", uid="late"), spec=replace(first.spec, priority=1000)
    )
    found = projection.run(
        case, NOW, draws(600), arrivals=[Arrival(NOW + HOUR, late)], horizon=NOW + 2 * HOUR, skips_loops=True
    )
    assert found.decisions < FEW
    starts = {(each.key, (each.admitted - NOW) // SECOND) for each in found.attempts if each.admitted is not None}
    # Nothing happens between the third round and the arrival.
    assert not [key for key, at in starts if 60 < at < 3600]
    assert [key for key, at in starts if key == "default/late" and at >= 3600]


def test_loop_with_the_guard_is_not_skipped() -> None:
    """The guard delays rounds, and what runs meanwhile ends."""
    found = forecast_of(case_of(CASES[-1], loop_guard=True), seconds=20)
    assert [item.reason for item in found.items] == ["", "", ""]
    assert found.decisions < FEW
