"""The process that computes forecasts, and what a manager shows when it dies or is slow."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import statistics
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from kubemachinery import meta
from kubemachinery.meta import SECOND
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.api import kueue
from pykueue.controllers import forecast_question, forecast_worker
from pykueue.controllers.forecast_question import EstimatedDraws, ForecastAnswer, ForecastQuestion
from pykueue.controllers.forecast_worker import LENGTH
from pykueue.controllers.forecaster import Forecaster, ForecastFailed, ProcessWorker
from pykueue.history.learning import Run, RunDistribution, RunEstimate
from pykueue.history.records import Attempt, Outcome, UsageSegment, WorkloadRecord
from pykueue.history.store import HistoryStore
from pykueue.projection import SchedulerCase, uniform
from pykueue.testing import Kueue


def estimate(seconds: int) -> RunEstimate:
    return RunEstimate("test", 5, RunDistribution((Run(float(seconds)),) * 5).quantile)


def question(pending: int = 3) -> ForecastQuestion:
    queue = QueueCase("q", "", (QuotaCase(1, None, None),), "LowerPriority", "Never", strict=True)
    holder = WorkloadCase(0, "q", 1, 0, 5, "f0")
    waiting = tuple(WorkloadCase(number, "q", 1, 0, 4) for number in range(1, pending + 1))
    cluster = ClusterCase((), (queue,), (holder, *waiting), fair=False)
    case = SchedulerCase(tuple(cluster.things()), policy=cluster.policy)
    return ForecastQuestion(case, NOW, {each.metadata.uid: estimate(1800) for each in case.workloads()})


def test_run_times_of_workloads_that_are_alike_are_drawn_together() -> None:  # [RT12]
    lengths = RunDistribution(tuple(Run(float(each)) for each in range(1, 1001))).quantile
    alike, other = (RunEstimate("test", 1000, lengths, None, name, 0.8) for name in ("a", "b"))
    alone = RunEstimate("test", 1000, lengths)
    case = question().case
    first, second, third, *_ = case.workloads()
    uids = [each.metadata.uid for each in (first, second, third)]

    def drawn(*estimates: RunEstimate) -> list[list[int | None]]:
        """The run times of the Workloads in 500 samples."""
        by_uid = dict(zip(uids, estimates, strict=True))
        samples = [EstimatedDraws(sample, by_uid, {}) for sample in range(500)]
        return [[each.run_seconds(one, 0) for each in samples] for one in (first, second, third)]

    def correlation(one: list[int | None], two: list[int | None]) -> float:
        return statistics.correlation([each or 0 for each in one], [each or 0 for each in two])

    one, two, three = drawn(alike, alike, other)
    assert correlation(one, two) > 0.65
    assert abs(correlation(one, three)) < 0.2
    # Each by itself has the distribution of the estimate.
    assert abs(statistics.fmean(each or 0 for each in one) - 500) < 60
    assert sum((each or 0) <= 900 for each in one) / 500 == pytest.approx(0.9, abs=0.05)
    one, two, _ = drawn(alone, alone, alone)
    assert abs(correlation(one, two)) < 0.2
    assert one[:20] == [alone.quantile(uniform(sample, uids[0], 0)) for sample in range(20)]


def test_a_workload_takes_longer_than_it_has_lasted_in_any_attempt() -> None:  # [RT13]
    lengths = RunDistribution(tuple(Run(float(each)) for each in range(1, 1001))).quantile
    first, second, *_ = question().case.workloads()
    uids = [each.metadata.uid for each in (first, second)]
    by_uid = dict.fromkeys(uids, RunEstimate("test", 1000, lengths))
    for sample in range(50):
        draws = EstimatedDraws(sample, by_uid, {}, lasted={uids[0]: 600})
        assert draws.run_seconds(first, 0) == lengths(uniform(sample, uids[0], 0), 600.0)
        assert draws.run_seconds(first, 800) == lengths(uniform(sample, uids[0], 0), 800.0)
        assert draws.run_seconds(second, 0) == lengths(uniform(sample, uids[1], 0), 0.0)


def test_the_process_gives_the_same_answer() -> None:
    async def work() -> ForecastAnswer:
        worker = ProcessWorker()
        try:
            return await worker.ask(question())
        finally:
            await worker.close()

    assert asyncio.run(work()) == forecast_question.answer(question())


def test_the_process_ends_without_a_message_if_the_manager_was_killed() -> None:
    asked = question()
    message = forecast_question.encode(asked, [forecast_question.encode_objects(asked.case.objects)])
    command = [sys.executable, "-m", forecast_worker.__name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(LENGTH.pack(len(message)) + message)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_the_process_reads_the_file_that_is_in_the_place_of_the_history(tmp_path: Path) -> None:
    path, stores = tmp_path / "history.db", dict[Path, HistoryStore]()
    HistoryStore(path).close()
    first = forecast_worker._store(path, stores)
    assert first is not None
    assert forecast_worker._store(path, stores) is first
    path.rename(tmp_path / "history.db.damaged")
    HistoryStore(path).close()
    second = forecast_worker._store(path, stores)
    assert second is not None
    assert second is not first
    second.close()


def test_a_slow_or_dead_process_is_an_error_and_the_next_question_starts_another() -> None:
    async def work() -> ForecastAnswer:
        slow = ProcessWorker(timeout_seconds=0.01)
        with pytest.raises(ForecastFailed, match=r"took longer than 0\.01 s"):
            await slow.ask(question())
        worker = ProcessWorker()
        await worker.ask(question())
        assert worker.process_id is not None
        worker.kill()
        with pytest.raises(ForecastFailed, match="the process that computes forecasts ended"):
            await worker.ask(question())
        try:
            return await worker.ask(question())
        finally:
            await worker.close()

    assert asyncio.run(work()).result.items


class DeadWorker:
    """A worker whose process is dead."""

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer:
        raise ForecastFailed("the process that computes forecasts ended")

    async def close(self) -> None:
        pass


@pytest.mark.kueue({"featureGates": {"WorkloadHints": True}})
def test_the_last_answer_is_shown_with_a_warning_that_is_logged_once(
    kueue: Kueue, caplog: pytest.LogCaptureFixture
) -> None:
    kueue.submit(["sleep", "600"], cpu=8, time_limit_seconds=3600)
    kueue.submit(["sleep", "600"], cpu=8, time_limit_seconds=3600)
    forecaster: Forecaster | None = kueue._manager.forecaster
    assert forecaster is not None
    first = kueue._run(forecaster.of("default"))
    forecaster._worker = DeadWorker()
    kueue.submit(["sleep", "600"], cpu=8, time_limit_seconds=3600)
    with caplog.at_level(logging.WARNING, "pykueue.controllers.forecaster"):
        for _ in range(2):
            again = kueue._run(forecaster.of("default"))
            assert (again.answer, again.warning) == (first.answer, "the process that computes forecasts ended")
    assert len(caplog.records) == 1


def test_a_question_that_is_too_large_is_cut_short() -> None:  # [FC9]
    asked = question(pending=60)
    whole = forecast_question.answer(asked).result
    cut = forecast_question.answer(replace(asked, effort=3 * whole.decisions // whole.samples)).result
    assert (whole.is_complete, cut.is_complete) == (True, False)
    assert cut.decisions <= 4 * whole.decisions // whole.samples
    assert all(item.p50 is not None and item.p90 is None for item in cut.items)
    shorter = forecast_question.answer(replace(asked, effort=20)).result
    assert shorter.samples == 1
    reasons = {item.reason for item in shorter.items if item.p50 is None}
    assert reasons == {"the computation was cut short before it started"}


# --- Newcomers --------------------------------------------------------------------------------------------------------


def past(number: int, submitted: int, seconds: int, priority: int) -> WorkloadRecord:
    """A record of a Workload that ran for some time as soon as it was submitted."""
    segment = UsageSegment(submitted, submitted + seconds, (("f0", "cpu", 1000),))
    attempt = Attempt(submitted, "q", submitted, submitted, submitted + seconds, "Finished", segments=(segment,))
    return WorkloadRecord(
        uid=f"00000000-0000-0000-0000-{number:012}",
        namespace="ns",
        name=f"past-{number}",
        queue="q",
        priority=priority,
        shape=b'[{"name":"main","count":1,"requests":{"cpu":"1"}}]',
        submitted=submitted,
        ended=submitted + seconds,
        outcome=Outcome.SUCCEEDED,
        attempts=(attempt,),
        revision=number + 1,
    )


def checked_question() -> ForecastQuestion:
    """A question about a ClusterQueue with an admission check."""
    asked = question(pending=1)
    strategy = kueue.AdmissionChecksStrategy((kueue.AdmissionCheckStrategyRule(name="c"),))
    objects = [
        msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, admission_checks_strategy=strategy))
        if isinstance(thing, kueue.ClusterQueue)
        else thing
        for thing in asked.case.objects
    ]
    check = kueue.AdmissionCheck(
        metadata=meta.ObjectMeta(name="c"),
        spec=kueue.AdmissionCheckSpec(controller_name="example.com/check"),
        status=kueue.AdmissionCheckStatus(conditions=(meta.Condition(type="Active", status="True"),)),
    )
    return replace(asked, case=asked.case.with_objects((*objects, check)))


def test_a_start_is_later_by_the_time_that_checks_took() -> None:  # [FC11]
    with contextlib.closing(HistoryStore(None)) as store:
        now = NOW // SECOND
        rows = []
        for number in range(6):
            row = past(number, now - 86_400 + 4000 * number, 3600, 0)
            (attempt,) = row.attempts
            late = msgspec.structs.replace(attempt, admitted=attempt.reserved + 300)
            rows.append(msgspec.structs.replace(row, attempts=(late,)))
        store.save(rows)
        asked = checked_question()
        found = forecast_question.answer(asked, store)
        at_once = forecast_question.answer(asked)
        # The holder has waited for its check for five seconds, and runs for half an hour after it.
        assert [seconds_of(answer, "ns/w1") for answer in (at_once, found)] == [1800, 295 + 1800 + 300]
        assert found.assumes[1:] == ("admission checks take as long as they took in the last 4 weeks",)
        assert at_once.assumes[1:] == ("admission checks pass at once",)


def seconds_of(answer: ForecastAnswer, key: str) -> int:
    (item,) = [each for each in answer.result.items if each.key == key]
    assert item.p50 is not None
    return (item.p50 - NOW) // SECOND


def test_a_newcomer_has_its_limit_and_the_run_time_of_its_last_attempt() -> None:  # [FC2]
    row = past(0, 1000, 600, 0)
    (attempt,) = row.attempts
    evicted = msgspec.structs.replace(attempt, reserved=500, admitted=500, released=900)
    row = msgspec.structs.replace(row, attempts=(evicted, attempt), limit_seconds=900)
    assert forecast_question.run_seconds(row) == 600
    assert forecast_question.workload_of(row, 0, "again").spec.maximum_execution_time_seconds == 900
    assert forecast_question.run_seconds(msgspec.structs.replace(row, attempts=())) == 1


def test_a_higher_priority_that_came_in_two_of_four_weeks_delays_p90_and_not_p50() -> None:  # [FC2]
    with contextlib.closing(HistoryStore(None)) as store:
        now, week = NOW // SECOND, 7 * 86_400
        rows = [past(0, now - 4 * week - 7200, 60, 0), past(1, now - 2 * week + 600, 7200, 100)]
        rows.append(past(2, now - 3 * week + 600, 7200, 100))
        store.save(rows)
        asked = question(pending=1)
        with_newcomers = forecast_question.answer(asked, store)
        item = next(each for each in with_newcomers.result.items if each.key == "ns/w1")
        assert item.p50 is not None
        assert item.p90 is not None
        assert (item.p50 - NOW) // SECOND == pytest.approx(1800, abs=20)
        assert (item.p90 - NOW) // SECOND >= 1800 + 3600
        assert with_newcomers.assumes == ("Workloads arrive as in the last 4 weeks",)
        alone = forecast_question.answer(asked)
        assert alone.assumes == ("no other Workload arrives: the history is shorter than a week",)
        assert all(each.p50 == each.p90 for each in alone.result.items)
