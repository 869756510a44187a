"""Start forecasts of a running system, on a virtual clock: the scenarios of the rules FC1 to FC9."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from kubemachinery.client.transport import ApiRequest
from pykueue.controllers.forecaster import Forecaster, QueueCalibration
from pykueue.projection.documents import ForecastItem
from pykueue.testing import Kueue

# Workloads get the limits of their jobs.
pytestmark = pytest.mark.kueue({"featureGates": {"WorkloadHints": True}})


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
    assert forecaster.correction("physics").p90 < 0
    assert forecaster.correction("physics").p50 < 0
    assert found_scores.scored == found_scores.covered == 1
    history = kueue._manager.history
    assert history is not None
    stored = kueue._run(history.ask(lambda store: store.forecast_scores()))
    assert stored["physics"] == found_scores.stored()
    after_restart = QueueCalibration.of(stored["physics"]).window.correction([], 0)
    assert after_restart == pytest.approx(forecaster.correction("physics"), abs=1e-4)


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
