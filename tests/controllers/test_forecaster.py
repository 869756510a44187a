"""Start forecasts of a running system, on a virtual clock: the scenarios of the rules FC1 to FC9."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubemachinery.client.errors import KubeError
from kubemachinery.client.transport import ApiRequest
from kubemachinery.meta import HOUR, SECOND
from pykueue.api import labels
from pykueue.api.kueue import ClusterQueue
from pykueue.client import job_forecast
from pykueue.controllers.forecast_question import ForecastAnswer, ForecastQuestion
from pykueue.controllers.forecaster import (
    REFRESHED_SECONDS,
    Forecaster,
    ForecastFailed,
    ForecastWorker,
    InlineWorker,
    QueueCalibration,
)
from pykueue.errors import PykueueError
from pykueue.projection.calibration import OpenForecast, SizeClass
from pykueue.projection.documents import ForecastItem
from pykueue.testing import Kueue
from pykueue.testing.virtual_loop import VirtualClock

# Workloads get the limits of their jobs.
pytestmark = pytest.mark.kueue({"featureGates": {"WorkloadHints": True}})


class DeadWorker:
    """A worker whose process is dead."""

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer:
        raise ForecastFailed("the process that computes forecasts ended")

    async def close(self) -> None:
        pass


def cluster_queue(name: str, cpu: int, *, strategy: str = "BestEffortFIFO") -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": cpu}
    flavors = [{"name": "default-flavor", "resources": [quota]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "queueingStrategy": strategy,
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        },
    }


def local_queue(name: str, target: str = "", namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": target or name},
    }


def queues(kueue: Kueue, cpu: int = 1, **more: Any) -> None:
    kueue.apply(cluster_queue("physics", cpu, **more), local_queue("physics"))


def submit(kueue: Kueue, name: str, seconds: int, **options: Any) -> str:
    return kueue.submit(["sleep", str(seconds)], name=name, queue="physics", **{"cpu": 1, **options})


def found(kueue: Kueue, job: str) -> ForecastItem:
    item = kueue.forecast(job)
    assert item is not None
    return item


def forecaster_of(kueue: Kueue) -> Forecaster:
    made = kueue._manager.forecaster
    assert made is not None
    return made


def view(kueue: Kueue, path: str) -> dict[str, Any]:
    request = ApiRequest("GET", f"/apis/views.pykueue.io/v1alpha1/{path}")
    answer = kueue._run(kueue._client.api_client.request(request))
    return dict(msgspec.json.decode(answer.body))


def minutes(kueue: Kueue, time: str | None) -> float:
    assert time is not None
    return (datetime.fromisoformat(time) - kueue.now()).total_seconds() / 60


def test_the_forecast_follows_past_runs_and_ends_at_the_limit(kueue: Kueue) -> None:  # [FC1]
    queues(kueue)
    for number in range(5):
        kueue.wait(submit(kueue, f"train-{number}", 1800, time_limit_seconds=3600))
    submit(kueue, "train-8", 1800, time_limit_seconds=3600)
    submit(kueue, "train-9", 1800, time_limit_seconds=3600)
    item = found(kueue, "train-9")
    assert 29 <= minutes(kueue, item.p50) <= 31
    assert minutes(kueue, item.p90) <= 60
    assert item.because.startswith("default/job-train-8")


def test_workloads_that_run_longer_than_most_others_did_are_examples(kueue: Kueue) -> None:  # [RT6]
    queues(kueue, cpu=6)
    jobs = [submit(kueue, f"train-{number}", 600 if number < 6 else 7200) for number in range(11)]
    for job in jobs:
        kueue.wait(job)
    for number in range(20, 25):
        submit(kueue, f"train-{number}", 7200)
    kueue.advance(6300)
    submit(kueue, "train-30", 7200)
    kueue.advance(60)
    # Six of eleven took ten minutes, but none of the five that have run for 106: the last one is probably long, too, and
    # does not end in nine minutes, before the others do in 14.
    submit(kueue, "train-31", 7200)
    assert 12 <= minutes(kueue, found(kueue, "train-31").p50) <= 15


def test_a_preempted_workload_is_expected_to_last_at_least_as_long_again(kueue: Kueue) -> None:  # [RT13]
    queue = cluster_queue("physics", 1)
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    high = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 10}
    kueue.apply(queue, local_queue("physics"), {**high, "metadata": {"name": "high"}})
    for number in range(5):
        kueue.wait(submit(kueue, f"train-{number}", 600))
    submit(kueue, "train-7", 7200)
    kueue.advance(3600)
    submit(kueue, "urgent", 7200, priority_class="high", time_limit_seconds=1800)
    kueue.advance(60)
    submit(kueue, "train-8", 600)
    preempted = found(kueue, "train-7")
    assert preempted.p50 is not None
    # Half an hour until it starts again, and then more than an hour.
    assert 90 <= minutes(kueue, found(kueue, "train-8").p50) <= 120
    estimate = view(kueue, f"namespaces/default/workloads/{preempted.workload.partition('/')[2]}/runtime")
    assert estimate["p50Seconds"] > 3600


def test_jobs_of_a_strict_queue_start_in_order(kueue: Kueue) -> None:  # [FC-L5]
    queues(kueue, strategy="StrictFIFO")
    submit(kueue, "holder", 600, time_limit_seconds=3600)
    names = [submit(kueue, f"next-{letter}", 600, time_limit_seconds=3600) for letter in "abc"]
    items = [found(kueue, name) for name in names]
    assert [item.p50 for item in items] == sorted(str(item.p50) for item in items)
    assert all(item.p50 is not None and item.p90 is not None and item.p50 <= item.p90 for item in items)


def test_a_job_that_never_fits_has_a_reason(kueue: Kueue) -> None:  # [FC7]
    queues(kueue)
    item = found(kueue, submit(kueue, "huge", 60, cpu=4, time_limit_seconds=60))
    assert (item.p50, item.reason) == (None, "requests more than its ClusterQueue can ever have")


def test_an_unknown_run_time_is_named(kueue: Kueue) -> None:  # [FC7]
    queues(kueue)
    submit(kueue, "endless", 3600)
    item = found(kueue, submit(kueue, "next", 60, time_limit_seconds=60))
    assert item.p50 is None
    assert item.reason.startswith("nothing is known about the run time of default/job-endless")


def test_a_job_that_starts_earlier_lowers_the_correction_and_a_restart_keeps_it(kueue: Kueue) -> None:  # [FC3]
    queues(kueue)
    submit(kueue, "holder", 60, time_limit_seconds=36_000)
    waiting = submit(kueue, "next", 60, time_limit_seconds=36_000)
    assert minutes(kueue, found(kueue, waiting).p90) > 60
    forecaster = forecaster_of(kueue)
    kueue.advance(300)
    found_scores = forecaster.calibrations["physics"]
    assert forecaster.correction("physics", SizeClass.BIG).p90 < 0
    assert forecaster.correction("physics", SizeClass.BIG).p50 < 0
    assert found_scores.coverage == (1, 1)
    history = kueue._manager.history
    assert history is not None
    stored = kueue._run(history.ask(lambda store: store.forecast_scores()))
    assert stored["physics"] == found_scores.stored()
    after_restart = QueueCalibration.of(stored["physics"]).window.correction([], 0, SizeClass.BIG)
    assert after_restart == pytest.approx(forecaster.correction("physics", SizeClass.BIG), abs=1e-4)


def test_a_forecast_has_the_correction_of_the_size_class_of_its_workload(kueue: Kueue) -> None:  # [FC3]
    queues(kueue, cpu=16)
    submit(kueue, "holder", 600, cpu=16, time_limit_seconds=3600)
    small = submit(kueue, "small", 600, time_limit_seconds=3600)
    big = submit(kueue, "big", 600, cpu=2, time_limit_seconds=3600)
    before = {job: minutes(kueue, found(kueue, job).p90) for job in (small, big)}
    assert before[small] == before[big]
    forecaster = forecaster_of(kueue)
    calibration = forecaster.calibrations.setdefault("physics", QueueCalibration())
    # Of 200 forecasts of each class the big ones are late, and the others on time.
    for number in range(200):
        for size, wait in ((SizeClass.SMALL, 3600), (SizeClass.BIG, 3 * 3600)):
            made = OpenForecast(number * HOUR, HOUR, HOUR, size=size)
            calibration.add(made, made.made + wait * SECOND, is_covered=size is SizeClass.SMALL)
    kueue.advance(120)  # until the answer is computed again
    submit(kueue, "another", 600, time_limit_seconds=3600)
    after = {job: minutes(kueue, found(kueue, job).p90) for job in (small, big)}
    assert before[small] <= after[small] < after[big]
    assert values(kueue, "pykueue_forecast_size_coverage_ratio") == [0.0, 1.0]  # big, small


def test_workloads_of_other_namespaces_are_not_named(kueue: Kueue) -> None:
    queues(kueue)
    kueue.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    kueue.apply(local_queue("physics", namespace="other"))
    submit(kueue, "holder", 600, time_limit_seconds=3600)
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels = {"kueue.x-k8s.io/queue-name": "physics"}
    kueue.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "foreign", "namespace": "other", "labels": labels},
            "spec": {"suspend": True, "template": template},
        }
    )
    items = view(kueue, "namespaces/other/localqueues/physics/forecast")["items"]
    assert [item["workload"].partition("/")[0] for item in items] == ["other"]
    assert items[0]["because"] == "another workload"
    whole = view(kueue, "clusterqueues/physics/forecast")["items"]
    assert whole[0]["because"].startswith("default/job-holder")


def test_with_the_gate_off_there_are_no_forecasts() -> None:  # [FC-L4]
    from pykueue.testing import system

    with system({"featureGates": {"StartForecast": False}}) as kueue:
        queues(kueue)
        submit(kueue, "holder", 600, time_limit_seconds=3600)
        assert kueue.forecast(submit(kueue, "next", 60)) is None


# --- Windows of QuotaSchedules ----------------------------------------------------------------------------------------


def schedule(kueue: Kueue, cpu: int, begin: timedelta, end: timedelta) -> None:
    def time(after: timedelta) -> str:
        return (kueue.now() + after).isoformat(timespec="seconds").replace("+00:00", "Z")

    resources = [{"name": "cpu", "nominalQuota": cpu}]
    kueue.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "QuotaSchedule",
            "metadata": {"name": "nights"},
            "spec": {
                "windows": [{"name": "night", "start": time(begin), "end": time(end)}],
                "targets": [
                    {"clusterQueue": "physics", "flavors": [{"name": "default-flavor", "resources": resources}]}
                ],
            },
        }
    )


@pytest.mark.kueue({"featureGates": {"WorkloadHints": True, "QuotaCalendar": True}})
def test_a_job_that_needs_the_quota_of_a_window_starts_when_it_begins(kueue: Kueue) -> None:  # [FC6]
    queues(kueue, cpu=1)
    schedule(kueue, 4, timedelta(hours=2), timedelta(hours=10))
    job = submit(kueue, "large", 60, cpu=3, time_limit_seconds=600)
    item = found(kueue, job)
    assert 119 <= minutes(kueue, item.p50) <= 121
    assert 119 <= minutes(kueue, item.p90) <= 121
    assert item.because == "window night begins"
    begin = kueue.now()
    kueue.wait(job)
    (record,) = kueue.history()
    admitted = record.attempts[0].admitted
    assert admitted is not None
    assert (datetime.fromisoformat(admitted) - begin).total_seconds() == pytest.approx(2 * 3600, abs=90)


# --- Effects ----------------------------------------------------------------------------------------------------------


def test_a_question_leaves_the_state_of_the_scheduler_as_it_is(kueue: Kueue) -> None:  # [FC-L3]
    queues(kueue, cpu=2)
    for number in range(5):
        submit(kueue, f"job-{number}", 600, cpu=1 + number % 2, time_limit_seconds=3600)
    before = described(kueue)
    for number in range(5):
        kueue.forecast(f"job-{number}")
    assert described(kueue) == before


def described(kueue: Kueue) -> dict[str, object]:
    """What decisions of the scheduler depend on."""
    world = kueue._manager.world
    node = world.queue_node("physics")
    queue = world.queues["physics"]
    assert node is not None
    return {
        "reservations": sorted(world.reservations),
        "usage": list(node.usage),
        "active": sorted(each.key for each in queue.active()),
        "parked": sorted(each.key for each in queue.parked()),
        "classes": sorted(found.reason for found in queue.inadmissible_classes.values()),
        "cycles": world.cycles,
        "next wake": world.next_wake(),
    }


def test_decisions_are_the_same_without_forecasts_and_with_a_dead_worker() -> None:  # [FC-L4]
    from pykueue.testing import system

    def starts(gate: bool, worker: ForecastWorker | None) -> list[tuple[str, list[str | None]]]:
        with system({"featureGates": {"WorkloadHints": True, "StartForecast": gate}}) as kueue:
            queues(kueue, cpu=2)
            if worker is not None:
                forecaster_of(kueue)._worker = worker
            names = [submit(kueue, f"job-{n}", 60 + 7 * n, cpu=1 + n % 2, time_limit_seconds=3600) for n in range(6)]
            for name in names if gate else ():
                with suppress(PykueueError):
                    kueue.forecast(name)
            kueue.advance(900)
            return [(record.job, [each.admitted for each in record.attempts]) for record in kueue.history()]

    with_forecasts = starts(True, None)
    assert all(admitted for _, admitted in with_forecasts)
    assert starts(True, DeadWorker()) == with_forecasts
    assert starts(False, None) == with_forecasts


# --- Questions that fail ----------------------------------------------------------------------------------------------


class FailsFor:
    """A worker that fails after some seconds if the question is about a ClusterQueue, and answers otherwise."""

    def __init__(self, cluster_queue: str, error: Exception, seconds: float = 60.0) -> None:
        self._cluster_queue = cluster_queue
        self._error = error
        self._seconds = seconds
        self._inline = InlineWorker()
        self.asked = 0

    async def ask(self, question: ForecastQuestion) -> ForecastAnswer:
        names = [each.metadata.name for each in question.case.objects if isinstance(each, ClusterQueue)]
        if self._cluster_queue not in names:
            return await self._inline.ask(question)
        self.asked += 1
        await asyncio.sleep(self._seconds)
        raise self._error

    async def close(self) -> None:
        pass


def two_scopes(kueue: Kueue, worker: ForecastWorker) -> Forecaster:
    """Waiting jobs in the ClusterQueues `physics` and `lab`, of two scopes; `lab` has two LocalQueues."""
    queues(kueue)
    kueue.apply(cluster_queue("lab", 1), local_queue("lab"), local_queue("lab-too", "lab"))
    for queue in ("physics", "lab", "lab-too"):
        for number in range(2):
            kueue.submit(["sleep", "600"], name=f"{queue}-{number}", queue=queue, cpu=1, time_limit_seconds=900)
    kueue.advance(10)
    forecaster = forecaster_of(kueue)
    forecaster._worker = worker
    return forecaster


def test_a_scope_whose_forecast_fails_leaves_those_of_others(kueue: Kueue) -> None:  # [FC13]
    worker = FailsFor("lab", ForecastFailed("the forecast took longer than 60 s"))
    two_scopes(kueue, worker)
    client = kueue._client.api_client
    asked = [("default", name) for name in ("lab", "lab-too", "physics")]
    before = kueue.now()
    known = kueue._run(job_forecast.of_local_queues(client, asked))
    assert [name for name in known.items if known.items[name].p50 is not None]
    assert set(known.items) == {item["workload"] for item in view(kueue, PHYSICS)["items"]}
    reason = "the forecast took longer than 60 s"
    assert known.problems == {"default/lab": reason, "default/lab-too": reason}
    # The second LocalQueue of the same scope does not wait for another computation.
    assert (kueue.now() - before).total_seconds() < 65
    assert worker.asked == 1
    kueue.advance(60)
    kueue._run(job_forecast.of_local_queues(client, asked[:1]))
    assert worker.asked == 2


PHYSICS = "namespaces/default/localqueues/physics/forecast"


def test_an_answer_that_is_up_to_date_does_not_wait_for_another_scope(kueue: Kueue) -> None:  # [FC13]
    forecaster = two_scopes(kueue, FailsFor("lab", ForecastFailed("too slow")))

    async def work() -> float:
        first = await forecaster.of("physics")
        slow = asyncio.create_task(forecaster.of("lab"))
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert await forecaster.of("physics") == first
        took = loop.time() - before
        with pytest.raises(ForecastFailed, match="too slow"):
            await slow
        return took

    assert kueue._run(work()) == 0


def test_a_question_that_raises_does_not_end_the_manager(
    kueue: Kueue, caplog: pytest.LogCaptureFixture
) -> None:  # [FC-L4]
    forecaster = two_scopes(kueue, FailsFor("lab", KeyError("lab"), seconds=0))
    for name in ("lab", "physics"):
        forecaster.ask_later(name)
    kueue.advance(130)
    assert forecaster.kept("physics") is not None
    assert "the forecast of ClusterQueues lab failed" in caplog.text
    with pytest.raises(KubeError, match="could not be computed; the log of the manager has the reason"):
        kueue.forecast("lab-1")
    forecaster._worker = InlineWorker()
    assert found(kueue, "lab-1").p50 is not None


def test_a_cluster_queue_that_moves_to_another_cohort_has_one_forecast(kueue: Kueue) -> None:
    two_scopes(kueue, InlineWorker())
    found(kueue, "physics-1")
    metric = "pykueue_forecast_wait_seconds"
    assert len(values(kueue, metric)) == 2
    for name in ("physics", "lab"):
        moved = cluster_queue(name, 1)
        moved["spec"]["cohortName"] = "all"
        kueue.apply(moved)
    kueue.advance(2)
    assert values(kueue, metric) == []
    found(kueue, "physics-1")
    assert len(values(kueue, metric)) == 2
    assert len(forecaster_of(kueue)._kept) == 1


# --- What is shown without a question ---------------------------------------------------------------------------------


def test_an_answer_is_kept_up_to_date_for_ten_minutes(kueue: Kueue) -> None:  # [FC8]
    queues(kueue)
    submit(kueue, "holder", 3000, time_limit_seconds=3600)
    found(kueue, submit(kueue, "first", 60, time_limit_seconds=3600))
    submit(kueue, "second", 60, time_limit_seconds=3600)
    kueue.advance(130)
    assert len(kept_keys(kueue)) == 2
    kueue.advance(REFRESHED_SECONDS)
    submit(kueue, "third", 60, time_limit_seconds=3600)
    kueue.advance(130)
    assert len(kept_keys(kueue)) == 2


def test_an_answer_follows_stopped_queues_and_workloads_at_once(kueue: Kueue) -> None:  # [FC8]
    queues(kueue)
    submit(kueue, "holder", 3000, time_limit_seconds=3600)
    job = submit(kueue, "first", 60, time_limit_seconds=3600)
    (workload,) = [each.workload for each in kueue.queue() if each.name == job]
    assert found(kueue, job).reason == ""
    for kind, name in (("clusterqueue", "physics"), ("localqueue", "physics")):
        for policy, reason in (("Hold", "its queue is not active"), ("None", "")):
            kueue.patch(kind, name, {"spec": {"stopPolicy": policy}})
            kueue.advance(2)
            assert found(kueue, job).reason == reason
    for is_active, reason in ((False, "is deactivated"), (True, "")):
        kueue.patch("workload", workload, {"spec": {"active": is_active}})
        kueue.advance(2)
        assert found(kueue, job).reason == reason


def test_an_answer_of_a_clock_that_is_put_back_is_computed_again(kueue: Kueue) -> None:  # [CS6]
    queues(kueue)
    submit(kueue, "holder", 3000, time_limit_seconds=3600)
    waits = submit(kueue, "waits", 60, time_limit_seconds=3600)
    clock = kueue._client._clock
    assert isinstance(clock, VirtualClock)
    clock.wrong_by_seconds = 900
    kueue.advance(5)
    found(kueue, waits)
    clock.wrong_by_seconds = 0
    kueue.advance(5)
    kueue.apply(local_queue("later"))
    found(kueue, waits)
    answer = forecaster_of(kueue).kept("physics")
    assert answer is not None
    assert answer.result.made <= clock.now()


def test_a_question_that_does_not_wait_is_answered_in_the_background(kueue: Kueue) -> None:  # [FC8]
    queues(kueue)
    submit(kueue, "holder", 3000, time_limit_seconds=3600)
    submit(kueue, "first", 60, time_limit_seconds=3600)
    forecaster = forecaster_of(kueue)
    kueue.advance(130)
    assert forecaster.kept("physics") is None
    forecaster.ask_later("no-such-queue")
    forecaster.ask_later("physics")
    kueue.advance(10)
    [key] = kept_keys(kueue)
    assert forecaster.revision == 1
    answer = forecaster.kept("physics")
    assert answer is not None
    assert forecaster.of_workload(key, "physics") == answer.result.items[0]
    assert forecaster.of_workload("default/absent", "physics") is None


def kept_keys(kueue: Kueue) -> list[str]:
    answer = forecaster_of(kueue).kept("physics")
    assert answer is not None
    return [item.key for item in answer.result.items]


def test_metrics_and_the_visibility_list_show_the_last_forecast(kueue: Kueue) -> None:
    queues(kueue)
    submit(kueue, "holder", 600, time_limit_seconds=3600)
    job = submit(kueue, "next", 60, time_limit_seconds=3600)
    path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/physics/pendingworkloads"

    def annotations() -> dict[str, str]:
        answer = kueue._run(kueue._client.api_client.request(ApiRequest("GET", path)))
        (listed,) = msgspec.json.decode(answer.body)["items"]
        return dict(listed["metadata"].get("annotations", {}))

    assert annotations() == {}
    assert values(kueue, "pykueue_forecast_wait_seconds") == []
    item = found(kueue, job)
    assert annotations() == {labels.START_P50: item.p50, labels.START_P90: item.p90}
    p50, p90 = sorted(values(kueue, "pykueue_forecast_wait_seconds"))
    assert p50 / 60 == pytest.approx(minutes(kueue, item.p50), abs=1)
    assert p90 / 60 == pytest.approx(minutes(kueue, item.p90), abs=1)
    assert values(kueue, "pykueue_forecast_coverage_ratio") == []
    of_size = "pykueue_forecast_size_coverage_ratio"
    assert values(kueue, of_size) == []
    kueue.wait(job)
    assert values(kueue, "pykueue_forecast_coverage_ratio") == [1.0]
    assert values(kueue, of_size) == [1.0]
    assert 'size="big"' in next(line for line in kueue.metrics().splitlines() if line.startswith(f"{of_size}{{"))


def values(kueue: Kueue, metric: str) -> list[float]:
    """The values of the series of a metric for the ClusterQueue `physics`."""
    lines = (line for line in kueue.metrics().splitlines() if line.startswith(f"{metric}{{"))
    return [float(line.rpartition(" ")[2]) for line in lines if 'cluster_queue="physics"' in line]
