"""What an absent field means: by the schema, and by our webhook on top of it."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api import defaults, labels
from pykueue.api.validation import ValidationGates

NEW, OLD = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"
CLUSTER_QUEUE_SPEC = {
    "queueingStrategy": "BestEffortFIFO",
    "stopPolicy": "None",
    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    "preemption": {
        "borrowWithinCohort": {"policy": "Never"},
        "reclaimWithinCohort": "Never",
        "withinClusterQueue": "Never",
    },
}


def tree(kind: str, *, version: str = NEW, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **parts}


def test_a_bare_cluster_queue_is_filled_in() -> None:
    made = defaults.apply(tree("ClusterQueue", spec={}))
    assert made["spec"] == CLUSTER_QUEUE_SPEC
    assert made["metadata"]["finalizers"] == [labels.RESOURCE_IN_USE_FINALIZER]


def test_defaulting_keeps_set_values() -> None:
    made = defaults.apply(
        tree("ClusterQueue", spec={"preemption": {"withinClusterQueue": "LowerPriority"}, "fairSharing": {}})
    )
    assert made["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
    assert made["spec"]["preemption"]["reclaimWithinCohort"] == "Never"
    assert made["spec"]["fairSharing"] == {"weight": 1}


def test_where_there_is_no_specification_the_schema_adds_none_but_the_webhook_does() -> None:
    assert "spec" not in defaults.schema_defaults(tree("ClusterQueue"))
    assert defaults.apply(tree("ClusterQueue"))["spec"]["queueingStrategy"] == "BestEffortFIFO"
    assert defaults.apply(tree("ResourceFlavor"))["spec"] == {}
    assert "spec" not in defaults.apply(tree("LocalQueue"))


def test_incomplete_label_requirement_is_completed_and_refused() -> None:
    made = defaults.apply(tree("ClusterQueue", spec={"namespaceSelector": {"matchExpressions": [{"key": "a"}]}}))
    assert made["spec"]["namespaceSelector"]["matchExpressions"] == [{"key": "a", "operator": ""}]


def test_a_pod_set_is_one_pod_called_main() -> None:
    made = defaults.apply(tree("Workload", spec={"podSets": [{"template": {"spec": {"containers": []}}}]}))
    assert made["spec"]["active"] is True
    assert made["spec"]["podSets"][0]["name"] == "main"
    assert made["spec"]["podSets"][0]["count"] == 1


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("LocalQueue", {"clusterQueue": "q"}, {"clusterQueue": "q", "stopPolicy": "None"}),
        ("AdmissionCheck", {"controllerName": "c"}, {"retryDelayMinutes": None, "preemptionPolicy": None}),
    ],
)
def test_defaults_of_the_schema(kind: str, spec: dict[str, Any], expected: dict[str, Any]) -> None:
    made = defaults.schema_defaults(tree(kind, spec=spec))
    assert {key: made["spec"].get(key) for key in expected} == expected


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor"])
def test_referenced_objects_get_a_finalizer(kind: str) -> None:
    made = tree(kind)
    made["metadata"]["finalizers"] = ["example.com/mine"]
    assert defaults.webhook_defaults(made)["metadata"]["finalizers"] == [
        "example.com/mine",
        labels.RESOURCE_IN_USE_FINALIZER,
    ]


def test_other_kinds_get_their_finalizers_from_their_controllers() -> None:
    assert "finalizers" not in defaults.apply(tree("Topology"))["metadata"]


def test_a_resource_without_a_quota_has_a_quota_of_nothing() -> None:
    flavor = {"name": "f", "resources": [{"name": "cpu"}, {"name": "memory", "nominalQuota": "1Gi"}]}
    made = defaults.webhook_defaults(tree("ClusterQueue", spec={"resourceGroups": [{"flavors": [flavor]}]}))
    quotas = made["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert [quota["nominalQuota"] for quota in quotas] == ["0", "1Gi"]


def test_a_taint_without_a_key_gets_an_empty_one() -> None:
    made = defaults.webhook_defaults(tree("ResourceFlavor", spec={"nodeTaints": [{"effect": "NoSchedule"}]}))
    assert made["spec"]["nodeTaints"] == [{"key": "", "effect": "NoSchedule"}]


def test_without_partial_admission_there_is_no_smaller_count() -> None:
    pod_sets = [{"name": "a", "count": 3, "minCount": 1}]
    workload = tree("Workload", spec={"podSets": pod_sets})
    assert defaults.webhook_defaults(workload)["spec"]["podSets"] == pod_sets
    off = defaults.webhook_defaults(workload, ValidationGates(partial_admission=False))
    assert off["spec"]["podSets"] == [{"name": "a", "count": 3}]


def test_webhook_does_not_default_the_older_version() -> None:
    old = tree("ClusterQueue", version=OLD, spec={})
    assert defaults.webhook_defaults(old) == old


def test_a_manifest_of_the_older_version_is_planned_in_the_newer() -> None:
    made = defaults.for_plan(tree("ClusterQueue", version=OLD, spec={"cohort": "team", "admissionChecks": ["c"]}))
    assert made["apiVersion"] == NEW
    assert made["spec"] == {
        **CLUSTER_QUEUE_SPEC,
        "cohortName": "team",
        "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]},
    }
    assert made["metadata"]["finalizers"] == [labels.RESOURCE_IN_USE_FINALIZER]


def test_other_kinds_pass_unchanged() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {}}
    assert defaults.for_plan(job) == job
