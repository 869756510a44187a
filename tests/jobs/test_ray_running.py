"""Ray objects on the embedded server, from their creation to their end. The test plays KubeRay: it writes statuses, and
creates the RayCluster, the submitter Job and pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery import patches
from kubemachinery.client.errors import ApiError
from kubemachinery.unstructured import Tree, get
from pykueue import testing
from pykueue.api import labels
from pykueue.testing import Kueue

ROOT = Path(__file__).parents[2]
CRDS = (ROOT / "tests/data/crds/ray.yaml").read_text()
EXAMPLES = ROOT / "examples/ray"
QUEUES = (EXAMPLES / "queues.yaml").read_text()


def example(name: str, **fields: Any) -> Tree:
    found: Tree = patches.merge(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text()), fields)
    return found


@pytest.fixture
def kueue() -> Iterator[Kueue]:
    with testing.system(yaml.safe_load((EXAMPLES / "configuration.yaml").read_text()), runner="none") as system:
        system.apply(CRDS)
        system.apply(QUEUES)
        system.advance(130)  # a kind whose CRD was missing is looked for again within two minutes
        yield system


def workloads(kueue: Kueue) -> list[Tree]:
    """The Workloads that are not finished, oldest first."""
    found = [each for each in kueue.all("Workload") if not is_true(each, "Finished")]
    return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))


def workload(kueue: Kueue) -> Tree:
    (found,) = workloads(kueue)
    return found


def condition(tree: Tree, type_: str) -> str:
    """`status/reason` of a condition; empty when it is absent."""
    for each in get(tree, "status", "conditions") or []:
        if each["type"] == type_:
            return f"{each['status']}/{each['reason']}"
    return ""


def is_true(tree: Tree, type_: str) -> bool:
    return condition(tree, type_).startswith("True/")


def counts(tree: Tree) -> dict[str, int]:
    return {each["name"]: each["count"] for each in tree["spec"]["podSets"]}


def status(kueue: Kueue, kind: str, name: str, **fields: Any) -> None:
    kueue.patch(kind, name, {"status": fields}, subresource="status")


def events(kueue: Kueue, kind: str, name: str) -> list[str]:
    found = [
        each for each in kueue.all("Event") if (each["regarding"]["kind"], each["regarding"]["name"]) == (kind, name)
    ]
    return [each["reason"] for each in sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))]


def deactivate(kueue: Kueue, active: bool) -> None:
    kueue.patch("Workload", workload(kueue)["metadata"]["name"], {"spec": {"active": active}})


def owned(tree: Tree, owner: Tree) -> Tree:
    """An object that KubeRay creates for another, with its labels and annotations."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    copied = {key: dict(metadata.get(key) or {}) for key in ("labels", "annotations")}
    merged: Tree = patches.merge(tree, {"metadata": {**copied, "ownerReferences": [reference]}})
    return merged


# --- RayCluster -------------------------------------------------------------------------------------------------------


def test_ray_cluster_is_queued_started_stopped_and_started_again(kueue: Kueue) -> None:
    """[RY1] [RY2] [RY6] [RY11] [RC2]"""
    kueue.apply(example("raycluster"))
    made = workload(kueue)
    assert counts(made) == {"head": 1, "workers": 4}
    assert is_true(made, "Admitted")
    running = kueue.get("RayCluster", "notebook")
    assert running["spec"]["suspend"] is False
    head = running["spec"]["headGroupSpec"]["template"]
    assert head["metadata"]["labels"][labels.PODSET] == "head"

    status(kueue, "RayCluster", "notebook", state="ready", availableWorkerReplicas=4)
    deactivate(kueue, False)
    stopped = kueue.get("RayCluster", "notebook")
    assert stopped["spec"]["suspend"] is True
    assert get(stopped["spec"]["headGroupSpec"]["template"], "metadata", "labels") is None
    assert is_true(workload(kueue), "QuotaReserved")

    status(kueue, "RayCluster", "notebook", state="suspended", availableWorkerReplicas=0)
    assert not is_true(workload(kueue), "QuotaReserved")
    deactivate(kueue, True)
    assert kueue.get("RayCluster", "notebook")["spec"]["suspend"] is False
    assert workload(kueue)["metadata"]["uid"] == made["metadata"]["uid"]
    assert events(kueue, "RayCluster", "notebook") == ["CreatedWorkload", "Started", "Stopped", "Started"]

    kueue.delete("RayCluster", "notebook")
    kueue.advance(60)
    assert workloads(kueue) == []


def test_ray_cluster_waits_and_is_preempted(kueue: Kueue) -> None:
    classes = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}}
    kueue.apply({**classes, "value": 100})
    kueue.apply(example("raycluster"))
    status(kueue, "RayCluster", "notebook", state="ready", availableWorkerReplicas=4)
    urgent = {"metadata": {"name": "urgent", "labels": {labels.PRIORITY_CLASS: "high"}}}
    kueue.apply(example("raycluster", **urgent))
    assert kueue.get("RayCluster", "notebook")["spec"]["suspend"] is True
    assert kueue.get("RayCluster", "urgent")["spec"]["suspend"] is True
    status(kueue, "RayCluster", "notebook", state="suspended", availableWorkerReplicas=0)
    assert kueue.get("RayCluster", "urgent")["spec"]["suspend"] is False
    kueue.delete("RayCluster", "urgent")
    kueue.advance(60)
    assert kueue.get("RayCluster", "notebook")["spec"]["suspend"] is False


def test_elastic_ray_cluster_grows_and_shrinks(kueue: Kueue) -> None:
    """[RC4] [RY5] [RY10]"""
    kueue.apply(example("elastic-raycluster"))
    first = workload(kueue)
    head = first["spec"]["podSets"][0]["template"]["spec"]["containers"]
    assert [each["name"] for each in head] == ["head", "autoscaler"]
    cluster = kueue.get("RayCluster", "elastic")
    assert cluster["spec"]["suspend"] is False
    pods(kueue, cluster, "elastic-head", "elastic-w0", "elastic-w1")
    kueue.advance(5)
    assert gated(kueue) == ["elastic-w1"]  # one worker is admitted

    scale(kueue, 3)
    second = workload(kueue)
    assert counts(second) == {"head": 1, "workers": 3}
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert condition(kueue.get("Workload", first["metadata"]["name"]), "Finished") == "True/WorkloadSliceReplaced"
    assert kueue.get("RayCluster", "elastic")["spec"]["suspend"] is False
    assert gated(kueue) == []

    scale(kueue, 0)
    assert counts(workload(kueue)) == {"head": 1, "workers": 0}
    assert workload(kueue)["metadata"]["name"] == second["metadata"]["name"]
    assert is_true(workload(kueue), "Admitted")
    usage = kueue.get("ClusterQueue", "research")["status"]["flavorsUsage"][0]["resources"]
    assert {each["name"]: each["total"] for each in usage}["cpu"] == "1500m"


def test_scale_up_beyond_the_quota_waits_and_the_cluster_runs_on(kueue: Kueue) -> None:
    """[RC4]"""
    kueue.apply(example("elastic-raycluster"))
    scale(kueue, 30)
    first, second = sorted(workloads(kueue), key=lambda each: counts(each)["workers"])
    assert is_true(first, "Admitted")
    assert not is_true(second, "QuotaReserved")
    assert kueue.get("RayCluster", "elastic")["spec"]["suspend"] is False
    scale(kueue, 2)
    assert counts(workload(kueue)) == {"head": 1, "workers": 2}


def scale(kueue: Kueue, replicas: int) -> None:
    """Play Ray's autoscaler."""
    group = kueue.get("RayCluster", "elastic")["spec"]["workerGroupSpecs"][0]
    kueue.patch("RayCluster", "elastic", {"spec": {"workerGroupSpecs": [{**group, "replicas": replicas}]}})
    kueue.advance(5)


def pods(kueue: Kueue, cluster: Tree, *names: str) -> None:
    """Create a head and workers, as the templates of the RayCluster are now."""
    for name in names:
        spec = cluster["spec"]["headGroupSpec"] if "head" in name else cluster["spec"]["workerGroupSpecs"][0]
        made = {"apiVersion": "v1", "kind": "Pod", **spec["template"]}
        kueue.apply(patches.merge(made, {"metadata": {"name": name}}))


def gated(kueue: Kueue) -> list[str]:
    """The pods that wait for a slice."""
    return sorted(each["metadata"]["name"] for each in kueue.all("Pod") if get(each, "spec", "schedulingGates"))


# --- RayJob -----------------------------------------------------------------------------------------------------------


def submitter_job(job: Tree) -> Tree:
    spec = {"template": job["spec"]["submitterPodTemplate"]}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "evaluation"}, "spec": spec}
    return owned(made, job)


def cluster_of(job: Tree, name: str = "evaluation-x", **spec: Any) -> Tree:
    metadata = {"name": name}
    given = {**job["spec"]["rayClusterSpec"], **spec}
    return owned({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": given}, job)


def test_ray_job_runs_to_its_end_with_an_eviction_in_between(kueue: Kueue) -> None:
    """[RJ2] [RJ4] [RJ5] [RJ6] [RJ7] [RC6]"""
    kueue.apply(example("rayjob"))
    made = workload(kueue)
    assert counts(made) == {"head": 1, "workers": 3, "submitter": 1}
    job = kueue.get("RayJob", "evaluation")
    assert job["spec"]["suspend"] is False
    assert job["spec"]["submitterPodTemplate"]["metadata"]["labels"][labels.PODSET] == "submitter"

    kueue.apply(cluster_of(job))
    kueue.apply(submitter_job(job))
    status(kueue, "RayJob", "evaluation", jobDeploymentStatus="Running", rayClusterName="evaluation-x")
    assert kueue.get("RayCluster", "evaluation-x")["spec"].get("suspend") is not True
    assert kueue.get("Job", "evaluation")["spec"]["suspend"] is False
    assert workload(kueue)["metadata"]["name"] == made["metadata"]["name"]

    deactivate(kueue, False)
    job = kueue.get("RayJob", "evaluation")
    assert job["spec"]["suspend"] is True
    assert "metadata" not in job["spec"]["submitterPodTemplate"]
    assert is_true(workload(kueue), "QuotaReserved")
    kueue.delete("RayCluster", "evaluation-x")
    kueue.delete("Job", "evaluation")
    status(kueue, "RayJob", "evaluation", jobDeploymentStatus="Suspended", rayClusterName="")
    assert not is_true(workload(kueue), "QuotaReserved")

    deactivate(kueue, True)
    assert kueue.get("RayJob", "evaluation")["spec"]["suspend"] is False
    status(kueue, "RayJob", "evaluation", jobDeploymentStatus="Running", rayClusterStatus={"state": "ready"})
    assert is_true(workload(kueue), "Admitted")
    end = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "Job finished successfully."}
    status(kueue, "RayJob", "evaluation", **end)
    assert workloads(kueue) == []
    (over,) = kueue.all("Workload")
    assert condition(over, "Finished") == "True/Succeeded"
    assert events(kueue, "RayJob", "evaluation") == [
        "CreatedWorkload",
        "Started",
        "Stopped",
        "Started",
        "FinishedWorkload",
    ]


def test_cluster_of_a_pending_ray_job_is_suspended_and_gets_no_workload(kueue: Kueue) -> None:
    """[RC6]"""
    big = {"spec": {"rayClusterSpec": {"workerGroupSpecs": None}}}
    kueue.apply(example("rayjob", **big))
    kueue.apply(example("raycluster"))
    deactivate_all = [each["metadata"]["name"] for each in workloads(kueue)]
    for name in deactivate_all:
        kueue.patch("Workload", name, {"spec": {"active": False}})
    job = kueue.get("RayJob", "evaluation")
    assert job["spec"]["suspend"] is True
    before = len(kueue.all("Workload"))
    kueue.apply(cluster_of(job, suspend=False))
    kueue.advance(5)
    assert kueue.get("RayCluster", "evaluation-x")["spec"]["suspend"] is True
    assert events(kueue, "RayCluster", "evaluation-x") == ["Suspended"]
    assert len(kueue.all("Workload")) == before


def test_ray_job_that_kuberay_refuses_gives_its_quota_back(kueue: Kueue) -> None:
    """[RJ8]"""
    kueue.apply(example("rayjob"))
    status(kueue, "RayJob", "evaluation", jobDeploymentStatus="ValidationFailed")
    kueue.advance(60)
    assert condition(workload(kueue), "QuotaReserved") == "False/OnHold"
    usage = kueue.get("ClusterQueue", "research")["status"]["flavorsUsage"][0]["resources"]
    assert {each["total"] for each in usage} == {"0"}


def test_ray_job_that_selects_a_cluster_runs_at_once(kueue: Kueue) -> None:
    """[RJ1]"""
    tree = example("rayjob", spec={"rayClusterSpec": None, "clusterSelector": {"ray.io/cluster": "notebook"}})
    kueue.apply(tree)
    assert get(kueue.get("RayJob", "evaluation"), "spec", "suspend") is None
    assert workloads(kueue) == []
    job = kueue.get("RayJob", "evaluation")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "submit", "image": "ray:1"}]}}
    kueue.apply(
        submitter_job(patches.merge(job, {"metadata": {"labels": None}, "spec": {"submitterPodTemplate": template}}))
    )
    assert kueue.get("Job", "evaluation")["spec"]["suspend"] is False


def test_elastic_ray_job_follows_its_cluster(kueue: Kueue) -> None:
    """[RJ11] [RJ12] [RY10]"""
    elastic = {"metadata": {"annotations": {labels.ELASTIC_JOB: "true"}}}
    tree = example("rayjob", **elastic, spec={"rayClusterSpec": {"enableInTreeAutoscaling": True}})
    kueue.apply(tree)
    job = kueue.get("RayJob", "evaluation")
    assert job["spec"]["suspend"] is False
    assert job["metadata"]["annotations"][labels.RAYCLUSTER_GENERATION] == ""
    kueue.apply(cluster_of(job))
    status(kueue, "RayJob", "evaluation", jobDeploymentStatus="Running", rayClusterName="evaluation-x")
    cluster = kueue.get("RayCluster", "evaluation-x")
    assert cluster["spec"]["headGroupSpec"]["template"]["spec"]["schedulingGates"] == [
        {"name": labels.ELASTIC_JOB_GATE}
    ]
    first = workload(kueue)
    for replicas, name_changes in ((5, True), (1, False)):
        group = kueue.get("RayCluster", "evaluation-x")["spec"]["workerGroupSpecs"][0]
        patch = {"spec": {"workerGroupSpecs": [{**group, "replicas": replicas}]}}
        kueue.patch("RayCluster", "evaluation-x", patch)
        kueue.advance(5)
        now = workload(kueue)
        assert counts(now) == {"head": 1, "workers": replicas, "submitter": 1}
        assert is_true(now, "Admitted")
        assert (now["metadata"]["name"] != first["metadata"]["name"]) is name_changes
        first = now
        generation = str(kueue.get("RayCluster", "evaluation-x")["metadata"]["generation"])
        assert kueue.get("RayJob", "evaluation")["metadata"]["annotations"][labels.RAYCLUSTER_GENERATION] == generation
    assert kueue.get("RayCluster", "evaluation-x")["spec"].get("suspend") is not True

    kueue.patch("Workload", first["metadata"]["name"], {"spec": {"active": False}})
    assert kueue.get("RayJob", "evaluation")["spec"]["suspend"] is True
    assert kueue.get("RayCluster", "evaluation-x")["spec"]["suspend"] is True


# --- RayService -------------------------------------------------------------------------------------------------------


def test_elastic_ray_service_grows_after_an_upgrade(kueue: Kueue) -> None:
    """[RS3] [RJ11] The RayCluster of an upgrade has the generation again that a slice for the earlier one was named by."""
    elastic = {"metadata": {"annotations": {labels.ELASTIC_JOB: "true"}}}
    kueue.apply(example("rayservice", **elastic, spec={"rayClusterConfig": {"enableInTreeAutoscaling": True}}))
    service = kueue.get("RayService", "chat")
    for name, replicas in (("chat-blue", 4), ("chat-green", 5)):
        made = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, "namespace": "default"}}
        kueue.apply(owned({**made, "spec": {**service["spec"]["rayClusterConfig"], "suspend": False}}, service))
        status(kueue, "RayService", "chat", activeServiceStatus={"rayClusterName": name})
        group = kueue.get("RayCluster", name)["spec"]["workerGroupSpecs"][0]
        patch = {"spec": {"workerGroupSpecs": [{**group, "replicas": replicas}]}}
        kueue.patch("RayCluster", name, patch)
        kueue.advance(30)
        assert counts(workload(kueue)) == {"head": 1, "replicas": replicas}
        assert is_true(workload(kueue), "Admitted")
    generations = [each["metadata"]["generation"] for each in kueue.all("RayCluster")]
    assert generations[0] == generations[1]


def test_ray_service_runs_until_it_is_deleted(kueue: Kueue) -> None:
    """[RS1] [RS2] [RC6]"""
    kueue.apply(example("rayservice"))
    service = kueue.get("RayService", "chat")
    assert service["spec"]["rayClusterConfig"]["suspend"] is False
    made = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "chat-x"},
        "spec": service["spec"]["rayClusterConfig"],
    }
    kueue.apply(owned(made, service))
    status(kueue, "RayService", "chat", conditions=[{"type": "Ready", "status": "True"}])
    assert counts(workload(kueue)) == {"head": 1, "replicas": 1}
    deactivate(kueue, False)
    assert kueue.get("RayService", "chat")["spec"]["rayClusterConfig"]["suspend"] is True
    assert is_true(workload(kueue), "QuotaReserved")
    kueue.patch("RayCluster", "chat-x", {"spec": {"suspend": True}})
    status(kueue, "RayService", "chat", conditions=[{"type": "Ready", "status": "False"}])
    assert not is_true(workload(kueue), "QuotaReserved")
    deactivate(kueue, True)
    assert kueue.get("RayService", "chat")["spec"]["rayClusterConfig"]["suspend"] is False
    kueue.delete("RayService", "chat")
    kueue.advance(60)
    assert workloads(kueue) == []


def test_deleted_ray_service_keeps_its_quota_while_redis_is_cleaned_up(kueue: Kueue) -> None:
    """[RS4]"""
    tolerant = {"spec": {"rayClusterConfig": {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}}}
    kueue.apply(example("rayservice", **tolerant, metadata={"finalizers": ["ray.io/gcs-ft"]}))
    kueue.delete("RayService", "chat")
    kueue.advance(60)
    assert is_true(workload(kueue), "Admitted")
    kueue.patch("RayService", "chat", {"metadata": {"finalizers": None}})
    kueue.advance(60)
    assert workloads(kueue) == []


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "path"),
    [
        ("raycluster", {"spec": {"enableInTreeAutoscaling": True}}, "spec.enableInTreeAutoscaling"),
        ("rayjob", {"spec": {"shutdownAfterJobFinishes": False}}, "spec.shutdownAfterJobFinishes"),
        ("rayjob", {"spec": {"clusterSelector": {"a": "b"}}}, "spec.clusterSelector"),
        ("rayjob", {"spec": {"rayClusterSpec": None}}, "spec.rayClusterSpec"),
        (
            "rayservice",
            {"spec": {"rayClusterConfig": {"enableInTreeAutoscaling": True}}},
            "spec.rayClusterConfig.enableInTreeAutoscaling",
        ),
    ],
)
def test_webhook_refuses_with_the_path(kueue: Kueue, name: str, fields: Tree, path: str) -> None:
    with pytest.raises(ApiError, match=path.replace(".", r"\.")):
        kueue.apply(example(name, **fields))
    assert workloads(kueue) == []


@pytest.mark.parametrize("broken", [{"state": 7}, {"state": None, "head": 3}, {"availableWorkerReplicas": -4}])
def test_broken_status_stops_neither_this_cluster_nor_another(kueue: Kueue, broken: Tree) -> None:
    kueue.apply(example("raycluster"))
    status(kueue, "RayCluster", "notebook", **broken)
    kueue.apply(example("elastic-raycluster"))
    assert kueue.get("RayCluster", "elastic")["spec"]["suspend"] is False
    deactivated = next(each for each in workloads(kueue) if "notebook" in each["metadata"]["name"])
    kueue.patch("Workload", deactivated["metadata"]["name"], {"spec": {"active": False}})
    assert kueue.get("RayCluster", "notebook")["spec"]["suspend"] is True
