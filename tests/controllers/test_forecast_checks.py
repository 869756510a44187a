"""Forecasts of Workloads that wait for admission checks: those of Budgets are decided, others last as they did."""

from __future__ import annotations

import asyncio

import pytest

from controllers.budget_world import DAY, BudgetWorld, budget, scenario
from history.charges import START, record, run
from kubemachinery.meta import SECOND
from pykueue.api import kueue
from pykueue.controllers.assembly import Manager
from pykueue.controllers.forecast_question import CheckTimes, EstimatedDraws
from pykueue.history.records import Attempt, UsageSegment, WorkloadRecord
from pykueue.projection import ProjectedAttempt
from pykueue.projection.forecast import StartForecast

NOW = START + DAY
# All cores of the machine.
CORES = 8
LIMIT = {"time_limit_seconds": 40}


async def item(made: BudgetWorld, manager: Manager, job: str) -> StartForecast:
    assert manager.forecaster is not None
    found = await manager.forecaster.of("default", is_thorough=True)
    name = (await made.workload(job))["metadata"]["name"]
    (match,) = [each for each in found.answer.result.items if each.key == f"default/{name}"]
    return match


def after_midnight(made: BudgetWorld, found: StartForecast) -> tuple[int, int]:
    """P50 and P90 in seconds after midnight."""
    assert found.p50 is not None
    assert found.p90 is not None
    return found.p50 // SECOND - made.midnight, found.p90 // SECOND - made.midnight


# --- Budgets ----------------------------------------------------------------------------------------------------------


@scenario
async def test_a_workload_that_its_budget_refused_starts_with_the_next_period(made: BudgetWorld) -> None:  # [FC10]
    async with made.manager() as manager:
        await made.install(budget())
        await made.until(-800)
        await made.submit("first", 360, time_limit_seconds=360)
        await made.until(-430)
        await made.submit("second", 60, **LIMIT)
        await asyncio.sleep(2)
        assert (await made.condition("second", "Requeued"))["reason"] == "AdmissionCheck"
        found = await item(made, manager, "second")
        assert after_midnight(made, found) == (0, 0)
        assert found.because is not None
        assert found.because.reason == "the next period of Budget cpu begins"
        await made.until(5)
        assert await made.admitted_at("second") == 0


@scenario
async def test_a_workload_whose_budget_will_be_spent_when_quota_is_released_waits_for_the_next_period(
    made: BudgetWorld,
) -> None:  # [FC10]
    """Of 50 seconds of all cores 30 are used. The next job may take 49: where it takes more than 20, the last one waits for
    midnight."""
    async with made.manager() as manager:
        await made.install(budget(hours="0.111"))
        await made.until(-800)
        await made.submit("past", 30, cpu=CORES, **LIMIT)
        await made.until(-700)
        await made.submit("first", 48, cpu=CORES, time_limit_seconds=49)
        await asyncio.sleep(1)
        await made.submit("second", 10, cpu=CORES, **LIMIT)
        await asyncio.sleep(1)
        assert after_midnight(made, await item(made, manager, "second")) == (0, 0)
        await made.set_limit("cpu", 10)
        await asyncio.sleep(1)
        early, late = after_midnight(made, await item(made, manager, "second"))
        assert -700 < early < late < -640


@scenario
async def test_what_ran_before_the_question_is_charged_once(made: BudgetWorld) -> None:
    """Of 80 seconds of all cores 30 are used, and 10 are committed to the job that runs: 40 are left for a third one,
    and 50 are not."""
    async with made.manager() as manager:
        await made.install(budget(hours="0.177", admit="OnlyIfItFits"))
        await made.until(-800)
        await made.submit("first", 30, cpu=CORES, time_limit_seconds=31)
        await made.until(-750)
        await asyncio.sleep(1)
        await made.submit("second", 60, cpu=CORES, time_limit_seconds=10)
        await asyncio.sleep(1)
        await made.submit("small", 10, cpu=CORES, time_limit_seconds=38)
        await asyncio.sleep(1)
        await made.submit("large", 10, cpu=CORES, time_limit_seconds=50)
        await asyncio.sleep(1)
        assert after_midnight(made, await item(made, manager, "small"))[1] < -690
        assert after_midnight(made, await item(made, manager, "large")) == (0, 0)


@scenario
async def test_a_workload_that_its_budget_rejects_has_a_reason(made: BudgetWorld) -> None:  # [FC7]
    async with made.manager() as manager:
        await made.install(budget(hours="0.177", admit="OnlyIfItFits"))
        await made.until(-800)
        await made.submit("first", 30, cpu=CORES, time_limit_seconds=40)
        await asyncio.sleep(1)
        await made.submit("never", 60, cpu=CORES, time_limit_seconds=90)
        await asyncio.sleep(1)
        found = await item(made, manager, "never")
        assert (found.p50, found.reason) == (None, "an admission check rejects it")


@scenario
async def test_a_question_leaves_the_accounts_as_they_are(made: BudgetWorld) -> None:  # [FC-L3]
    async with made.manager() as manager:
        await made.install(budget())
        await made.submit("first", 200, cpu=CORES, **LIMIT)
        await asyncio.sleep(1)
        await made.submit("second", 60, cpu=CORES, **LIMIT)
        await asyncio.sleep(1)
        assert manager.budgets is not None
        (book,) = manager.budgets.books.all()
        before = book.accounts.sums()
        await item(made, manager, "second")
        assert book.accounts.sums() == before
        assert book.accounts.period.end == made.midnight


# --- Other checks -----------------------------------------------------------------------------------------------------


def waited(seconds: int, number: int, *, is_admitted: bool = True) -> WorkloadRecord:
    """A record whose checks took some time, or had not passed when its quota was released."""
    if is_admitted:
        return record(run(number + seconds, number + seconds + 600, reserved=number), uid=str(number))
    amounts = (("a100", "nvidia.com/gpu", 1),)
    begin, end = START + number, START + number + seconds
    lost = Attempt(begin, "physics", begin, None, end, segments=(UsageSegment(begin, end, amounts),))
    return record(lost, uid=str(number))


def attempt(cluster_queue: str = "physics", flavor: str = "a100") -> ProjectedAttempt:
    return ProjectedAttempt(
        "lab/next", "uid", 0, cluster_queue, NOW * SECOND, ((flavor, "cpu", 1), (flavor, "nvidia.com/gpu", 1))
    )


def test_checks_take_as_long_as_they_did_in_their_queue_and_flavors() -> None:  # [FC11]
    times = CheckTimes.of([waited(60 + 60 * (number % 2), number) for number in range(10)], NOW)
    assert times.draw(attempt(), 0.4, 0) == 60
    assert times.draw(attempt(), 0.6, 0) == 120
    assert times.draw(attempt("biology"), 0.6, 0) == 0
    assert times.draw(attempt(flavor="h100"), 0.6, 0) == 0


def test_checks_that_have_taken_longer_go_on() -> None:
    times = CheckTimes.of([waited(60 + 60 * (number % 2), number) for number in range(10)], NOW)
    assert times.draw(attempt(), 0.1, 90) == 120
    assert times.draw(attempt(), 0.5, 300) == 600
    assert times.draw(attempt("biology"), 0.5, 300) == 300


def test_an_attempt_that_lost_its_quota_took_at_least_as_long() -> None:
    """Half of the attempts were given up after two minutes: the median is not the minute of the others."""
    past = [waited(120 if number % 2 else 60, number, is_admitted=not number % 2) for number in range(20)]
    times = CheckTimes.of(past, NOW)
    assert times.draw(attempt(), 0.4, 0) == 60
    assert times.draw(attempt(), 0.9, 0) > 120


@pytest.mark.parametrize("count", [4, 5])
def test_a_few_past_checks_are_not_enough(count: int) -> None:
    times = CheckTimes.of([waited(60, number) for number in range(count)], NOW)
    assert times.draw(attempt(), 0.5, 0) == (60 if count == 5 else 0)


def test_draws_of_checks_differ_between_samples() -> None:
    times = CheckTimes.of([waited(60 * (1 + number), number) for number in range(20)], NOW)
    workload = kueue.Workload()
    found = {EstimatedDraws(sample, {}, {}, times).check_seconds(workload, attempt(), 0) for sample in range(20)}
    assert len(found) > 5
