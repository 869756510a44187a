"""RayJob: the submitter, its state, validation, and counts from its RayCluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import KINDS, JobHarness, batch_job, flavor
from jobs.ray_objects import ELASTIC, RAY, containers, counts, group, ray_cluster, ray_job, template, view
from jobs.test_ray_cluster import errors, update_errors
from kubemachinery import patches
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.jobs import admission, reconcile, selection, workloads
from pykueue.jobs.admission import JobAdmissionFacts
from pykueue.jobs.facts import Ancestry, JobFacts
from pykueue.jobs.interface import RelatedObjects
from pykueue.jobs.offline import OfflineContext
from pykueue.lifecycle import states

ROW = next(row for row in KINDS if row.framework == "ray.io/rayjob")
JOB = next(row for row in KINDS if row.framework == "batch/job")
K8S = "K8sJobMode"


# --- Submitter --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "pod_sets"),
    [
        (K8S, {"head": 1, "small": 1, "submitter": 1}),
        ("", {"head": 1, "small": 1, "submitter": 1}),
        ("HTTPMode", {"head": 1, "small": 1}),
        ("InteractiveMode", {"head": 1, "small": 1}),
        ("SidecarMode", {"head": 1, "small": 1}),
    ],
)
def test_submitter_is_a_pod_set_in_k8s_job_mode(mode: str, pod_sets: dict[str, int]) -> None:
    """[RJ2] [RJ3]"""
    assert counts(ray_job(mode=mode)) == pod_sets


def test_submitter_without_template_has_the_defaults_of_kuberay() -> None:
    """[RJ2]"""
    submitter = view(ray_job(mode=K8S)).pod_sets(RAY)[-1]["template"]["spec"]
    assert submitter["restartPolicy"] == "Never"
    assert submitter["containers"] == [
        {
            "name": "ray-job-submitter",
            "image": "ray:1",
            "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        }
    ]


def test_submitter_template_of_the_user_is_used() -> None:
    """[RJ2] [RY3]"""
    given = template("3", metadata={"annotations": {labels.PODSET_PREFERRED_TOPOLOGY: "rack"}})
    tree = ray_job(mode=K8S, submitterPodTemplate=given)
    assert containers(tree, "submitter") == {"ray": {"cpu": "3"}}
    assert view(tree).pod_sets(RAY)[-1]["topologyRequest"] == {"preferred": "rack"}


def test_sidecar_submitter_is_counted_in_the_head() -> None:
    """[RJ3]"""
    tree = ray_job(mode="SidecarMode", submitterPodTemplate=template("3"))
    sidecar = {"cpu": "500m", "memory": "200Mi"}
    assert containers(tree) == {"ray": {"cpu": "1"}, "ray-job-submitter": sidecar}
    assert containers(tree, "small") == {"ray": {"cpu": "1"}}


def started(tree: Tree) -> JobHarness:
    harness = JobHarness(tree, options=RAY)
    taint = {"key": "spot", "operator": "Exists"}
    harness.facts = replace(
        harness.facts, flavors={"default": flavor(nodeLabels={"pool": "blue"}, tolerations=[taint])}
    )
    return harness.settle().admit().settle()


def test_made_submitter_template_is_written_at_the_start_and_stays() -> None:
    """[RJ4] [RJ5]"""
    harness = started(ray_job(mode=K8S))
    submitter = harness.job["spec"]["submitterPodTemplate"]
    assert submitter["metadata"]["labels"][labels.PODSET] == "submitter"
    assert submitter["spec"]["nodeSelector"] == {"pool": "blue"}
    assert submitter["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    harness.evict().settle()
    assert harness.job["spec"]["suspend"] is True
    kept = harness.job["spec"]["submitterPodTemplate"]
    assert kept["spec"]["containers"] == submitter["spec"]["containers"]
    assert "nodeSelector" not in kept["spec"]
    assert "tolerations" not in kept["spec"]
    assert "metadata" not in kept
    harness.admit().settle()
    assert harness.job["spec"]["submitterPodTemplate"] == submitter
    assert harness.events.count("Started") == 2


def test_job_without_submitter_pod_gets_no_template() -> None:
    assert "submitterPodTemplate" not in started(ray_job()).job["spec"]


# --- State ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "is_active"),
    [
        (None, False),
        ("", False),
        ("Suspended", False),
        *((each, True) for each in ("Initializing", "Running", "Suspending", "Waiting", "Retrying")),
        *((each, True) for each in ("Complete", "Failed")),
        (7, False),
    ],
)
def test_deployment_status_decides_whether_a_job_is_active(status: Any, is_active: bool) -> None:
    """[RJ6]"""
    assert view(ray_job(status={"jobDeploymentStatus": status})).is_active() is is_active


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, None),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}, ("done", True)),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED", "message": "stopped"}, ("stopped", False)),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}, ("", False)),
        ({"jobDeploymentStatus": "Failed", "message": None}, ("", False)),
    ],
)
def test_a_job_is_finished_with_its_deployment(status: Tree, outcome: tuple[str, bool] | None) -> None:
    """[RJ7]"""
    found = view(ray_job(status=status)).outcome()
    assert (found and (found.message, found.success)) == outcome


def test_finished_job_finishes_its_workload() -> None:
    """[RJ7]"""
    harness = started(ray_job())
    harness.status(jobDeploymentStatus="Complete", jobStatus="SUCCEEDED", message="Job finished").settle()
    assert harness.condition("Finished") == "True/Succeeded"
    assert harness.events[-1] == "FinishedWorkload"


def test_ready_is_the_state_of_the_cluster() -> None:
    """[RJ9]"""
    assert view(ray_job(status={"rayClusterStatus": {"state": "ready"}})).are_pods_ready()
    assert not view(ray_job(status={"rayClusterStatus": None, "jobDeploymentStatus": "Running"})).are_pods_ready()


def test_job_that_kuberay_refuses_is_on_hold() -> None:
    """[RJ8]"""
    harness = JobHarness(ray_job(), options=RAY).settle().admit().settle()
    harness.status(jobDeploymentStatus="ValidationFailed").settle()
    assert harness.condition("QuotaReserved") == "False/OnHold"
    assert harness.condition("Finished") == ""
    assert harness.writes == harness.settle().writes


def test_job_that_kuberay_accepts_after_all_is_queued_again_when_it_is_suspended() -> None:
    """[RJ8]: on hold for ever, it would never start again."""
    harness = JobHarness(ray_job(), options=RAY).settle().admit().settle()
    harness.status(jobDeploymentStatus="ValidationFailed").settle()
    harness.status(jobDeploymentStatus="Initializing").settle()
    assert harness.job["spec"]["suspend"]
    assert harness.condition("QuotaReserved") == "False/OnHold"
    harness.status(jobDeploymentStatus="Suspended").settle()
    assert harness.condition("QuotaReserved") == "False/PendingEvaluation"
    harness.admit().settle()
    assert not harness.job["spec"]["suspend"]
    assert harness.condition("Finished") == ""


def test_job_that_kuberay_refuses_gets_no_workload() -> None:
    """[RJ8]"""
    assert not JobHarness(ray_job(status={"jobDeploymentStatus": "ValidationFailed"}), options=RAY).settle().workloads


def test_evicted_job_releases_its_quota_when_it_is_suspended() -> None:
    """[RJ6]"""
    harness = started(ray_job()).status(jobDeploymentStatus="Running").settle().evict().settle()
    harness.status(jobDeploymentStatus="Suspending").settle()
    assert states.is_reserved(harness.workload)
    harness.status(jobDeploymentStatus="Suspended").settle()
    assert not states.is_reserved(harness.workload)
    harness.admit().settle()
    assert harness.job["spec"]["suspend"] is False


# --- Jobs that select a cluster ---------------------------------------------------------------------------------------

SELECTOR = {"ray.io/cluster": "existing"}


def selecting(**fields: Any) -> Tree:
    return ray_job(rayClusterSpec=None, clusterSelector=SELECTOR, suspend=False, **fields)


def test_job_that_selects_a_cluster_is_left_alone() -> None:
    """[RJ1]"""
    assert admission.default(ROW, selecting(), JobAdmissionFacts(), KINDS, RAY) == selecting()
    harness = JobHarness(selecting(), options=RAY).settle()
    assert not harness.workloads
    assert harness.job == selecting()
    deleting = selecting(metadata={"deletionTimestamp": "2026-11-15T12:00:00Z"})
    assert reconcile.reconcile(view(deleting), JobFacts(), RAY, harness.now) == ()


def test_submitter_job_of_a_job_that_selects_a_cluster_is_no_child() -> None:
    """[RJ1]"""
    for tree, is_ancestor in ((selecting(), False), (ray_job(), True)):
        found = selection.ancestor(Ancestry((ObjectView(tree),)), {}, KINDS, RAY)
        assert (found is not None) is is_ancestor


def test_submitter_job_runs_while_its_ray_job_is_admitted() -> None:
    """[RJ1]"""
    parent = ObjectView(ray_job())
    child = batch_job(metadata={"labels": None}, spec={"suspend": False})
    harness = JobHarness(child, options=RAY, row=JOB, ancestor=parent, ancestry=Ancestry((parent,))).settle()
    assert harness.job["spec"]["suspend"] is True
    assert harness.events == ["Suspended"]


# --- Webhook ----------------------------------------------------------------------------------------------------------

SELECTING = {"clusterSelector": SELECTOR}
MANAGED = {"labels": {labels.QUEUE_NAME: "lq"}}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (ray_job(), []),
        (ray_job(clusterSelector=SELECTOR), ["spec.clusterSelector: Invalid"]),
        (
            ray_job(clusterSelector=SELECTOR, metadata={"labels": {labels.QUEUE_NAME: "No Queue"}}),
            ["spec.clusterSelector: Invalid"],
        ),
        (selecting(metadata={"labels": {labels.QUEUE_NAME: "No Queue"}}), []),
        (selecting(metadata={"labels": None}), []),
        (ray_job(rayClusterSpec=None), ["spec.rayClusterSpec: Required"]),
        (ray_job(rayClusterSpec=None, metadata={"labels": None}), []),
        (ray_job(clusterSelector={}, rayClusterSpec=None), ["spec.rayClusterSpec: Required"]),
        (ray_job(shutdownAfterJobFinishes=False), ["spec.shutdownAfterJobFinishes: Invalid"]),
        (ray_job(shutdownAfterJobFinishes=None), ["spec.shutdownAfterJobFinishes: Invalid"]),
        (ray_job(shutdownAfterJobFinishes=False, metadata={"labels": None}), []),
        (
            ray_job(cluster={"enableInTreeAutoscaling": True}),
            ["spec.rayClusterSpec.enableInTreeAutoscaling: Invalid"],
        ),
        (ray_job(cluster={"enableInTreeAutoscaling": True}, metadata={"annotations": ELASTIC}), []),
        (ray_job(*(group(f"g{i}") for i in range(17))), []),
        (ray_job(*(group(f"g{i}") for i in range(17)), mode=K8S), ["spec.rayClusterSpec.workerGroupSpecs: TooMany"]),
        (ray_job(group("head")), ["spec.rayClusterSpec.workerGroupSpecs[0].groupName: Forbidden"]),
        (
            ray_job(metadata={"labels": {labels.QUEUE_NAME: "No Queue"}}),
            [f"metadata.labels[{labels.QUEUE_NAME}]: Invalid"],
        ),
    ],
)
def test_rules_for_new_jobs(tree: Tree, expected: list[str]) -> None:
    """[RJ10]"""
    found = errors(tree)
    assert sorted(set(found)) == expected


@pytest.mark.parametrize("place", ["spec.submitterPodTemplate", "spec.rayClusterSpec.headGroupSpec.template"])
def test_topology_annotations_are_checked_at_their_templates(place: str) -> None:
    """[RY9]"""
    both = {labels.PODSET_REQUIRED_TOPOLOGY: "rack", labels.PODSET_PREFERRED_TOPOLOGY: "rack"}
    wrong: Any = template(metadata={"annotations": both})
    for key in reversed(place.split(".")):
        wrong = {key: wrong}
    tree = patches.merge(ray_job(mode=K8S), wrong)
    assert errors(tree) == [f"{place}.metadata.annotations: Invalid"]


def test_update_repeats_the_rules_for_new_jobs() -> None:
    """[RJ10] [RY7]"""
    assert update_errors(ray_job(shutdownAfterJobFinishes=False), ray_job()) == [
        "spec.shutdownAfterJobFinishes: Invalid"
    ]
    running = ray_job(suspend=False)
    nameless = ray_job(suspend=False, metadata={"labels": None})
    assert update_errors(nameless, running) == [f"metadata.labels[{labels.QUEUE_NAME}]: Invalid"]


def test_elastic_job_has_no_gate_of_its_own() -> None:
    """[RY10]"""
    stored = admission.default(ROW, ray_job(metadata={"annotations": ELASTIC}), JobAdmissionFacts(), KINDS, RAY)
    assert "schedulingGates" not in stored["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]


# --- Elastic jobs -----------------------------------------------------------------------------------------------------

AUTOSCALING = {"enableInTreeAutoscaling": True}


def elastic(*groups: Tree, mode: str = K8S, cluster_name: str = "ray-x", **fields: Any) -> Tree:
    metadata = {"annotations": {**ELASTIC, **fields.pop("annotations", {})}, **fields.pop("metadata", {})}
    status = {"rayClusterName": cluster_name} if cluster_name else {}
    return ray_job(*groups, metadata=metadata, status=status, cluster=AUTOSCALING, mode=mode, **fields)


def related(tree: Tree, *groups: Tree, generation: int = 5) -> RelatedObjects:
    (reference,) = ROW.related(tree)
    assert (reference.kind.kind, reference.name, reference.required) == ("RayCluster", "ray-x", False)
    return {reference: ray_cluster(*groups, metadata={"name": "ray-x", "generation": generation})}


def cluster(*groups: Tree, generation: int) -> OfflineContext:
    """The RayCluster of the job beside it."""
    return OfflineContext(related=(ray_cluster(*groups, metadata={"name": "ray-x", "generation": generation}),))


def test_only_elastic_jobs_with_a_cluster_refer_to_it() -> None:
    """[RJ11]"""
    assert ROW.related(elastic(cluster_name="")) == ()
    assert ROW.related(ray_job(status={"rayClusterName": "ray-x"})) == ()
    assert len(ROW.related(elastic())) == 1


def test_counts_are_those_of_the_cluster_once_it_exists() -> None:
    """[RJ11]"""
    tree = elastic(group("A", 1), group("b", 2))
    live = related(tree, group("A", 4), group("b", None))
    assert counts(tree) == {"head": 1, "a": 1, "b": 2, "submitter": 1}
    assert counts(tree, live) == {"head": 1, "a": 4, "b": 2, "submitter": 1}
    hosts = related(tree, group("A", 4, numOfHosts=2))
    assert counts(tree, hosts)["a"] == 8


def test_counts_are_those_of_the_job_without_autoscaling_or_gate() -> None:
    """[RJ11]"""
    tree = elastic(group("a", 1))
    live = related(tree, group("a", 4))
    fixed = patches.merge(tree, {"spec": {"rayClusterSpec": {"enableInTreeAutoscaling": False}}})
    assert counts(fixed, live)["a"] == 1
    off = view(tree, live).pod_sets(replace(RAY, elastic=False))
    assert [each["count"] for each in off] == [1, 1, 1]


def test_group_that_only_the_cluster_has_is_an_error() -> None:
    """[RJ11]"""
    tree = elastic(group("a", 1))
    live = related(tree, group("a", 1), group("other", 1))
    assert view(tree, live).pod_sets_problem(RAY) == (
        "RayCluster ray-x has the worker group other, which RayJob ray does not have"
    )
    harness = JobHarness(patches.merge(tree, {"metadata": {"annotations": {labels.RAYCLUSTER_GENERATION: "5"}}}))
    harness.around = OfflineContext(related=tuple(live.values()))
    harness.options = RAY
    harness.settle()
    assert harness.retries
    assert harness.events == ["Warning ErrWorkloadCompose"]
    assert not harness.workloads


def test_generation_of_the_cluster_is_kept_on_the_job_and_names_slices() -> None:
    """[RJ11]"""
    tree = elastic(group("small", 1), metadata={"name": "rayjob", "generation": 2}, cluster_name="")
    assert view(tree).kept_annotations(RAY) == {labels.RAYCLUSTER_GENERATION: ""}
    assert view(tree).kept_annotations(replace(RAY, elastic=False)) == {}
    harness = JobHarness(tree, options=RAY).settle()
    assert harness.workload.metadata.name == "rayjob-rayjob-9d29b"
    annotated = patches.merge(tree, {"metadata": {"annotations": {labels.RAYCLUSTER_GENERATION: "5"}}})
    job = view(annotated)
    built = workloads.build(job, job.pod_sets(RAY), workloads.Priority(0), RAY)
    assert built["metadata"]["name"] == "rayjob-rayjob-484fd"
    off = replace(RAY, elastic=False)
    built = workloads.build(job, job.pod_sets(off), workloads.Priority(0), off)
    assert built["metadata"]["name"] == "rayjob-rayjob-22da0"


def test_job_follows_the_autoscaler_of_its_cluster() -> None:
    """[RJ11]"""
    harness = JobHarness(elastic(group("a", 1), cluster_name=""), options=RAY).settle().admit().settle()
    harness.status(jobDeploymentStatus="Running", rayClusterName="ray-x")
    harness.around = cluster(group("a", 1), generation=1)
    harness.settle()
    assert harness.job["metadata"]["annotations"][labels.RAYCLUSTER_GENERATION] == "1"
    assert len(harness.workloads) == 1
    harness.around = cluster(group("a", 3), generation=2)
    harness.settle()
    assert [[each.count for each in found.spec.pod_sets] for found in harness.workloads.values()] == [
        [1, 1, 1],
        [1, 3, 1],
    ]
    assert harness.job["spec"]["suspend"] is False
    harness.around = cluster(group("a", 0), generation=3)
    harness.settle()
    living = [each for each in harness.workloads.values() if not states.is_finished(each)]
    assert [each.spec.pod_sets[1].count for each in living] == [1, 0]


def test_job_is_triggered_by_its_cluster() -> None:
    """[RJ12]"""
    assert [kind.kind for kind in ROW.triggered_by] == ["RayCluster"]
