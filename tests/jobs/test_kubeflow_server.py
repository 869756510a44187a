"""Kubeflow jobs on the embedded server, from creation to the end. The test plays the operators: it writes the status
that they would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kubeflow_jobs import FRAMEWORKS, KUBEFLOW, condition, replica, replica_specs
from kubemachinery.client.errors import ApiError
from kubemachinery.unstructured import Tree
from pykueue.api import labels, topology_encoding
from pykueue.testing import Kueue

ROOT = Path(__file__).parents[2]
CRDS = "\n---\n".join((ROOT / "examples" / name).read_text() for name in ("kubeflow/crds.yaml", "mpijob/crd.yaml"))
EXAMPLES = [*(ROOT / "examples/kubeflow").glob("*job.yaml"), ROOT / "examples/mpijob/mpijob.yaml"]
VERSIONS = dict.fromkeys(KUBEFLOW, "kubeflow.org/v1") | {"MPIJob": "kubeflow.org/v2beta1"}

QUEUES = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: blue}, spec: {nodeLabels: {pool: blue}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: blue, resources: [{name: cpu, nominalQuota: 6}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team}, spec: {clusterQueue: team}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: urgent}, value: 1000}
"""

kubeflow = pytest.mark.kueue({"integrations": {"frameworks": ["batch/job", *FRAMEWORKS]}}, runner="none")


def manifest(kind: str, name: str = "train", **metadata: Any) -> Tree:
    specs = replica_specs(kind)
    return {
        "apiVersion": VERSIONS[kind],
        "kind": kind,
        "metadata": {"name": name, "labels": {labels.QUEUE_NAME: "team"} | metadata.pop("labels", {}), **metadata},
        "spec": {specs.field: {type_: replica(1) for type_ in specs.types}},
    }


def prepared(kueue: Kueue) -> None:
    kueue.apply(CRDS)
    kueue.advance(10)  # until the manager has found the kinds
    kueue.apply(QUEUES)


def workload(kueue: Kueue, name: str = "train") -> Tree:
    (found,) = (each for each in kueue.all("workload") if each["metadata"]["ownerReferences"][0]["name"] == name)
    return found


def state(tree: Tree, type_: str) -> str:
    found = [each for each in tree["status"]["conditions"] if each["type"] == type_]
    return f"{found[0]['status']}/{found[0]['reason']}" if found else ""


def selectors(tree: Tree, kind: str) -> list[Tree]:
    replicas = tree["spec"][replica_specs(kind).field].values()
    return [each["template"]["spec"].get("nodeSelector", {}) for each in replicas]


@kubeflow
@pytest.mark.parametrize("kind", KUBEFLOW)
def test_a_job_waits_runs_is_preempted_and_restored_runs_again_and_finishes(kueue: Kueue, kind: str) -> None:
    """[KF4], [KF5], [KF6], [KF7], [KF8], [MP4]"""
    prepared(kueue)
    resource = f"{kind.lower()}s.kubeflow.org"
    held = replica_specs(kind)
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "Hold"}})
    kueue.apply(manifest(kind))
    first = kueue.get(resource, "train")
    assert first["spec"]["runPolicy"]["suspend"] is True
    assert [pod_set["name"] for pod_set in workload(kueue)["spec"]["podSets"]] == [name.lower() for name in held.types]

    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "None"}})
    running = kueue.get(resource, "train")
    assert running["spec"]["runPolicy"]["suspend"] is False
    assert selectors(running, kind) == [{"pool": "blue"}] * len(held.types)
    active = {"replicaStatuses": {"Worker": {"active": 1}}, "conditions": [condition("Running")]}
    kueue.patch(resource, "train", {"status": active}, subresource="status")
    assert state(workload(kueue), "PodsReady") == "True/Started"

    urgent = manifest(kind, "urgent", labels={labels.PRIORITY_CLASS: "urgent"})
    for each in urgent["spec"][held.field].values():
        each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = 6 // len(held.types)
    kueue.apply(urgent)
    stopped = kueue.get(resource, "train")
    assert stopped["spec"] == first["spec"]
    assert state(workload(kueue), "Evicted") == "True/Preempted"
    assert state(workload(kueue), "QuotaReserved") == "True/QuotaReserved", "its pods still run"
    ended = {"replicaStatuses": {"Worker": {"active": 0}}, "conditions": [condition("Suspended")]}
    kueue.patch(resource, "train", {"status": ended}, subresource="status")
    assert state(workload(kueue), "QuotaReserved").startswith("False/")
    assert kueue.get(resource, "urgent")["spec"]["runPolicy"]["suspend"] is False

    kueue.delete(resource, "urgent")
    kueue.advance(5)
    assert kueue.get(resource, "train")["spec"]["runPolicy"]["suspend"] is False
    over = {"conditions": [condition("Succeeded", message="trained")]}
    kueue.patch(resource, "train", {"status": over}, subresource="status")
    assert state(workload(kueue), "Finished") == "True/Succeeded"
    reported = [event["reason"] for event in kueue.all("event") if event.get("regarding", {}).get("name") == "train"]
    assert sorted(reported) == ["CreatedWorkload", "FinishedWorkload", "Started", "Started", "Stopped"]


@kubeflow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_queued_and_admitted(kueue: Kueue, file: Path) -> None:
    kueue.apply(CRDS)
    kueue.advance(10)
    kueue.apply((ROOT / "examples/jobs/queue.yaml").read_text(), file.read_text())
    *_, tree = (each for each in yaml.safe_load_all(file.read_text()) if each)
    started = kueue.get(f"{tree['kind'].lower()}s.kubeflow.org", tree["metadata"]["name"])
    assert started["spec"]["runPolicy"]["suspend"] is False
    assert state(workload(kueue, tree["metadata"]["name"]), "Admitted") == "True/Admitted"
    if tree["kind"] == "JAXJob":
        assert workload(kueue, tree["metadata"]["name"])["spec"]["priority"] == 100


@kubeflow
@pytest.mark.parametrize("kind", KUBEFLOW)
def test_a_job_is_deleted_with_its_workload(kueue: Kueue, kind: str) -> None:
    prepared(kueue)
    kueue.apply(manifest(kind))
    assert state(workload(kueue), "Admitted") == "True/Admitted"
    kueue.delete(f"{kind.lower()}s.kubeflow.org", "train")
    kueue.advance(5)
    assert kueue.all("workload") == []


@kubeflow
def test_the_webhook_refuses_a_job_with_the_path_of_the_field(kueue: Kueue) -> None:
    """[KF10]"""
    prepared(kueue)
    tree = manifest("PyTorchJob")
    annotations = {labels.PODSET_REQUIRED_TOPOLOGY: "a", labels.PODSET_PREFERRED_TOPOLOGY: "a"}
    tree["spec"]["pytorchReplicaSpecs"]["Worker"] = replica(1, annotations)
    with pytest.raises(ApiError, match=r"spec\.pytorchReplicaSpecs\[Worker\]\.template\.metadata\.annotations"):
        kueue.apply(tree)


@kubeflow
def test_a_queue_name_that_no_queue_can_have_is_accepted_on_update_and_gets_no_workload(kueue: Kueue) -> None:
    """[KF10]: the job waits until its queue name is corrected."""
    prepared(kueue)
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "Hold"}})
    kueue.apply(manifest("TFJob"))
    kueue.patch("tfjob", "train", {"metadata": {"labels": {labels.QUEUE_NAME: "UPPER"}}})
    assert workload(kueue)["spec"]["queueName"] == "team"
    kueue.patch("tfjob", "train", {"metadata": {"labels": {labels.QUEUE_NAME: "team"}}})
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "None"}})
    kueue.advance(120)
    assert kueue.get("tfjob", "train")["spec"]["runPolicy"]["suspend"] is False


@kubeflow
@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ({}, "spec.podSets: Invalid value: 0: must have at least 1 items"),
        ({"Worker": replica(-2)}, "spec.podSets[0].count: Invalid value: -2"),
        ({"Worker": {"replicas": 1}}, "spec.podSets[0].template.spec.containers: Required value"),
    ],
    ids=["no replica types", "negative replicas", "no template"],
)
def test_a_job_whose_workload_is_refused_is_in_the_queue_with_the_reason_and_holds_up_no_other(
    kueue: Kueue, replicas: Tree, reason: str
) -> None:
    prepared(kueue)
    kueue.apply(manifest("PyTorchJob", "bad") | {"spec": {"pytorchReplicaSpecs": replicas}})
    kueue.apply(manifest("PyTorchJob", "good"))
    kueue.advance(10)
    good, bad = kueue.queue()
    assert (good.name, good.status.state) == ("good", "Starting")
    assert (bad.name, bad.job_kind, bad.status.state) == ("bad", "PyTorchJob", "Unqueued")
    assert reason in bad.status.message


# --- The launcher of an MPIJob ----------------------------------------------------------------------------------------


def launcher(kueue: Kueue, **spec: Any) -> None:
    """The Job that the MPI Operator creates for the launcher."""
    owner = kueue.get("mpijob", "train")["metadata"]
    container = {"name": "launcher", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    reference = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "name": "train", "uid": owner["uid"]}
    kueue.apply({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train-launcher", "ownerReferences": [{**reference, "controller": True}]},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}, **spec},
    })  # fmt: skip


@kubeflow
def test_the_launcher_job_is_suspended_until_its_mpi_job_is_admitted(kueue: Kueue) -> None:
    """[MP6]"""
    prepared(kueue)
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "Hold"}})
    kueue.apply(manifest("MPIJob"))
    launcher(kueue, suspend=False)
    assert kueue.get("job", "train-launcher")["spec"]["suspend"] is True
    assert len(kueue.all("workload")) == 1
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "None"}})
    kueue.patch("job", "train-launcher", {"spec": {"suspend": False}})  # the operator resumes it
    assert kueue.get("job", "train-launcher")["spec"]["suspend"] is False
    assert [each["spec"]["queueName"] for each in kueue.all("workload")] == ["team"]


@kubeflow
def test_the_launcher_job_of_an_mpi_job_without_a_queue_is_left_alone(kueue: Kueue) -> None:
    """[MP6]"""
    prepared(kueue)
    tree = manifest("MPIJob")
    kueue.apply({**tree, "metadata": {"name": "train"}})
    launcher(kueue)
    assert kueue.get("job", "train-launcher")["spec"]["suspend"] is False
    assert kueue.all("workload") == []


# --- Topology ---------------------------------------------------------------------------------------------------------

HOST = "kubernetes.io/hostname"
RACKS = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: racks}, spec: {levels: [{nodeLabel: cloud.com/rack},
  {nodeLabel: kubernetes.io/hostname}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: placed},
  spec: {nodeLabels: {pool: blue}, topologyName: racks}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: placed}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: placed, resources: [{name: cpu, nominalQuota: 20}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: placed}, spec: {clusterQueue: placed}}
"""


def add_node(kueue: Kueue, name: str, rack: str) -> None:
    """A ready node for two pods of one cpu each."""
    names = {"pool": "blue", "cloud.com/rack": rack, HOST: name}
    kueue.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": names}})
    ready = {"allocatable": {"cpu": "2", "pods": "20"}, "conditions": [condition("Ready")]}
    kueue.patch("node", name, {"status": ready}, subresource="status")
    kueue.patch("node", name, {"spec": {"taints": None}})  # the node controller removes the taint of a new node


def placed_mpi_job(annotations: dict[str, str]) -> Tree:
    required = {labels.PODSET_REQUIRED_TOPOLOGY: "cloud.com/rack", **annotations}
    tree = manifest("MPIJob", labels={labels.QUEUE_NAME: "placed"})
    replicas = {"Launcher": replica(1, required), "Worker": replica(3, required)}
    return tree | {"spec": {"runLauncherAsWorker": True, "mpiReplicaSpecs": replicas}}


def create_pods(kueue: Kueue, tree: Tree) -> None:
    """The pods of the MPI Operator: with runLauncherAsWorker the launcher has index 0, and the workers begin at 1."""
    reference = {key: tree[key] for key in ("apiVersion", "kind")} | {
        key: tree["metadata"][key] for key in ("name", "uid")
    }
    for type_, indexes in (("Launcher", [0]), ("Worker", [1, 2, 3])):
        template = tree["spec"]["mpiReplicaSpecs"][type_]["template"]
        for index in indexes:
            marks = template["metadata"]["labels"] | {"training.kubeflow.org/replica-index": str(index)}
            kueue.apply({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **template["metadata"],
                    "name": f"train-{type_.lower()}-{index}",
                    "labels": marks,
                    "ownerReferences": [{**reference, "controller": True}],
                },
                "spec": template["spec"],
            })  # fmt: skip


@kubeflow
@pytest.mark.parametrize(
    "annotations", [{}, {labels.PODSET_GROUP_NAME: "all"}], ids=["two pod sets", "one pod set group"]
)
def test_workers_of_an_mpi_job_are_placed_by_their_ranks_within_one_rack(
    kueue: Kueue, annotations: dict[str, str]
) -> None:
    """[MP2], [MP3]"""
    prepared(kueue)
    kueue.apply(RACKS)
    for name, rack in (("small", "r1"), ("n0", "r2"), ("n1", "r2"), ("n2", "r2")):
        add_node(kueue, name, rack)
    kueue.apply(placed_mpi_job(annotations))
    job, found = kueue.get("mpijob", "train"), workload(kueue)
    assert job["spec"]["runPolicy"]["suspend"] is False
    offsets = [
        each["template"]["metadata"]["annotations"].get(labels.POD_INDEX_OFFSET) for each in found["spec"]["podSets"]
    ]
    assert offsets == ([None, None] if annotations else [None, "1"])
    create_pods(kueue, job)
    kueue.advance(5)
    pods = {each["metadata"]["name"]: each["spec"] for each in kueue.all("pod")}
    assert [spec.get("schedulingGates", []) for spec in pods.values()] == [[]] * 4
    hosts = [pods[f"train-worker-{index}"]["nodeSelector"][HOST] for index in (1, 2, 3)]
    (worker,) = (each for each in found["status"]["admission"]["podSetAssignments"] if each["name"] == "worker")
    decoded = topology_encoding.decode(worker["topologyAssignment"])
    assert decoded is not None
    assert hosts == [domain.values[-1] for domain in decoded for _ in range(domain.pods)]
    assert set(hosts) <= {"n0", "n1", "n2"}, "the rack that has room for all workers"
    if annotations:
        assert pods["train-launcher-0"]["nodeSelector"][HOST] in {"n0", "n1", "n2"}, "the rack of its group"
