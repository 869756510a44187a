"""The history of a job that is tried on several flavors at once: one record, and no second is charged twice [HI5]."""

from __future__ import annotations

from typing import Any

from kubemachinery.meta import SECOND, parse_time
from pykueue.testing import Kueue, system

CONFIGURATION = {"featureGates": {"ConcurrentAdmission": True, "Budgets": True, "WorkloadHints": True}}
FLAVORS = ("new", "old")
BUDGET: dict[str, Any] = {
    "apiVersion": "pykueue.io/v1alpha1",
    "kind": "Budget",
    "metadata": {"name": "cpu"},
    "spec": {"every": "Day", "per": "Total", "amounts": [{"resource": "cpu", "hours": 100}]},
}
CHECK: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "budget"},
    "spec": {
        "controllerName": "pykueue.io/budget",
        "parameters": {"apiGroup": "pykueue.io", "kind": "Budget", "name": "cpu"},
    },
}


def install(kueue: Kueue) -> None:
    for flavor in FLAVORS:
        kueue.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": flavor}})
    kueue.apply(BUDGET)
    kueue.apply(CHECK)
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": 2}]} for name in FLAVORS]
    kueue.apply(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "both"},
            "spec": {
                "namespaceSelector": {},
                "concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}},
                "admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            },
        }
    )
    queue = {"metadata": {"name": "both", "namespace": "default"}, "spec": {"clusterQueue": "both"}}
    kueue.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", **queue})
    kueue.advance(5)


def submit(kueue: Kueue, name: str) -> None:
    kueue.submit(["sleep", "600"], name=name, cpu=2, queue="both", time_limit_seconds=900)
    kueue.advance(5)


def test_a_job_with_variants_is_recorded_once_and_charged_once() -> None:
    with system(CONFIGURATION) as kueue:
        install(kueue)
        for name in ("a", "b", "c"):
            submit(kueue, name)
        assert [(each.job, each.state) for each in kueue.history()] == [
            ("a", "Running"), ("b", "Running"), ("c", "Waiting"),
        ]  # fmt: skip
        kueue.advance(1300)
        found = {each.job: each for each in kueue.history()}
        assert {each.state for each in found.values()} == {"Succeeded"}
        # The second moved to the flavor of the first when that ended, and began again there.
        assert [usage.flavor for attempt in found["b"].attempts for usage in attempt.usage] == ["old", "new"]
        assert abs(found["a"].ran_seconds - 600) <= 1
        assert abs(found["b"].ran_seconds - (595 + 600)) <= 2
        seconds = sum(int(each.resource_seconds["cpu"]) for each in found.values())
        assert seconds == sum(2 * each.ran_seconds for each in found.values())
        kueue.advance(60)
        (group,) = kueue.get("budget", "cpu")["status"]["groups"]
        assert float(group["spent"]) == round(seconds / 3600, 3)


def test_a_job_with_variants_starts_when_the_first_of_them_is_expected() -> None:
    with system(CONFIGURATION) as kueue:
        install(kueue)
        for name in ("a", "b", "c"):
            submit(kueue, name)
        found = kueue.forecast("c")
        assert found is not None
        assert (found.reason, found.p50 is None, found.p90 is None) == ("", False, False)
        assert found.p90 is not None
        # Both holders have a limit of 15 minutes, and a minute to stop.
        assert parse_time(found.p90) <= kueue.now().timestamp() * SECOND + 960 * SECOND
