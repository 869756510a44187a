"""RayService: its suspend field, its two RayClusters, and its deletion."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, JobHarness
from jobs.ray_objects import ELASTIC, RAY, counts, group, ray_cluster, ray_service, view
from jobs.test_ray_cluster import GATE, errors, update_errors
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import admission, reconcile
from pykueue.jobs.actions import ChangeWorkload
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import JobFacts
from pykueue.lifecycle import states

ROW = next(row for row in KINDS if row.framework == "ray.io/rayservice")
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
DELETED = {"deletionTimestamp": "2026-11-15T12:00:00Z"}


def test_suspend_field_is_that_of_the_cluster() -> None:
    """[RS1]"""
    new = ray_service(cluster={"suspend": False})
    stored = admission.default(ROW, new, JobAdmissionFacts(), KINDS, RAY)
    assert stored["spec"]["rayClusterConfig"]["suspend"] is True
    assert "suspend" not in stored["spec"]
    harness = JobHarness(stored, options=RAY).settle().admit().settle()
    assert harness.job["spec"]["rayClusterConfig"]["suspend"] is False
    harness.evict().settle()
    assert harness.job["spec"]["rayClusterConfig"]["suspend"] is True


@pytest.mark.parametrize(
    ("status", "is_active", "is_ready"),
    [
        ({}, False, False),
        (READY, True, True),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, False, False),
        ({"conditions": [{"type": "UpgradeInProgress", "status": "True"}]}, False, False),
        ({"activeServiceStatus": {"rayClusterStatus": {"state": "ready"}}}, True, False),
        ({"pendingServiceStatus": {"rayClusterStatus": {"availableWorkerReplicas": 1}}}, True, False),
        ({"activeServiceStatus": {"rayClusterStatus": {"state": "suspended"}}}, False, False),
        ({"conditions": None, "activeServiceStatus": None, "pendingServiceStatus": 3}, False, False),
        ({"conditions": ["Ready", None]}, False, False),
    ],
)
def test_a_service_is_active_while_it_serves_or_a_cluster_has_pods(
    status: Tree, is_active: bool, is_ready: bool
) -> None:
    """[RS1]"""
    service = view(ray_service(status=status))
    assert (service.is_active(), service.are_pods_ready()) == (is_active, is_ready)
    assert service.outcome() is None


def test_existing_ray_clusters_decide_whether_a_service_is_active() -> None:
    """[RS1] KubeRay writes no status of a suspended RayService while the next RayCluster has no head."""
    status = {
        **READY,
        "activeServiceStatus": {"rayClusterName": "old", "rayClusterStatus": {"state": "ready"}},
        "pendingServiceStatus": {"rayClusterName": "next"},
    }
    tree = ray_service(status=status)
    (old, following) = ROW.related(tree)
    assert (old.name, following.name) == ("old", "next")
    serving = ray_cluster(metadata={"name": "old"}, status={"state": "ready"})
    suspended = ray_cluster(metadata={"name": "old"}, status={"state": "suspended"})
    waiting = ray_cluster(metadata={"name": "next"}, status={"state": "suspended"})
    assert ROW.job(tree, {old: serving, following: waiting}).is_active()
    assert not ROW.job(tree, {old: suspended, following: waiting}).is_active()
    assert ROW.job(tree, {}).is_active(), "what the RayService reports counts while no RayCluster is known"


def test_service_is_never_finished() -> None:
    """[RS2]"""
    harness = JobHarness(ray_service(), options=RAY).settle().admit().settle()
    harness.edit({"status": {"serviceStatus": "FailedToGetOrCreateRayCluster"}}).settle()
    assert harness.condition("Finished") == ""
    assert states.is_reserved(harness.workload)


def test_counts_are_those_of_the_active_cluster() -> None:
    """[RS3]"""
    status = {"activeServiceStatus": {"rayClusterName": "ray-y"}, "pendingServiceStatus": {"rayClusterName": "ray-z"}}
    tree = ray_service(
        group("a", 1),
        metadata={"annotations": ELASTIC},
        status=status,
        cluster={"enableInTreeAutoscaling": True},
    )
    (reference, _) = ROW.related(tree)
    assert reference.name == "ray-y"
    related = {reference: ray_cluster(group("a", 6), metadata={"name": "ray-y", "generation": 4})}
    assert counts(tree, related) == {"head": 1, "a": 6}
    assert view(tree, related).kept_annotations(RAY) == {labels.RAYCLUSTER_GENERATION: "4"}
    assert [kind.kind for kind in ROW.triggered_by] == ["RayCluster"]


def test_elastic_service_is_gated() -> None:
    """[RY10]"""
    new = ray_service(metadata={"annotations": ELASTIC})
    stored = admission.default(ROW, new, JobAdmissionFacts(), KINDS, RAY)
    for each in view(stored).templates():
        assert each.at(stored)["spec"]["schedulingGates"] == [GATE]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (ray_service(), []),
        (
            ray_service(cluster={"enableInTreeAutoscaling": True}),
            ["spec.rayClusterConfig.enableInTreeAutoscaling: Invalid"],
        ),
        (ray_service(group("head")), ["spec.rayClusterConfig.workerGroupSpecs[0].groupName: Forbidden"]),
        (
            ray_service(*(group(f"g{i}") for i in range(18))),
            ["spec.rayClusterConfig.workerGroupSpecs: TooMany"],
        ),
        (ray_service(group("head"), metadata={"labels": None}), []),
    ],
)
def test_rules_for_new_services(tree: Tree, expected: list[str]) -> None:
    """[RS5]"""
    assert errors(tree) == expected


def test_queue_name_of_a_running_service_cannot_be_removed() -> None:
    """[RY7]"""
    running = ray_service(cluster={"suspend": False})
    nameless = ray_service(cluster={"suspend": False}, metadata={"labels": None})
    assert update_errors(nameless, running) == [f"metadata.labels[{labels.QUEUE_NAME}]: Invalid"]
    assert update_errors(nameless, running, replace(RAY, validate_ray_and_spark_updates=False)) == []


def test_deleted_service_keeps_its_workload_while_redis_is_cleaned_up() -> None:
    """[RS4]"""
    harness = JobHarness(ray_service(cluster={"gcsFaultToleranceOptions": {}}), options=RAY).settle().admit().settle()
    facts = JobFacts(workloads=(harness.workload,))
    deleted = ray_service(cluster={"gcsFaultToleranceOptions": {}}, metadata=DELETED)
    assert reconcile.reconcile(view(deleted), facts, RAY, harness.now) == ()
    off = replace(RAY, defer_ray_service_finalization=False)
    assert any(isinstance(each, ChangeWorkload) for each in reconcile.reconcile(view(deleted), facts, off, harness.now))
    plain = ray_service(metadata=DELETED)
    assert reconcile.reconcile(view(plain), facts, RAY, harness.now) != ()
    gone = reconcile.orphaned(facts.workloads, RAY, harness.now)
    assert any(isinstance(each, ChangeWorkload) for each in gone)
