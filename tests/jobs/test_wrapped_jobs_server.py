"""AppWrappers, SparkApplications and TrainJobs on the embedded server, from creation to the end. The test plays the
operators: it writes the status that they would write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery import patches
from kubemachinery.client.errors import ApiError
from kubemachinery.unstructured import Tree
from pykueue.api import labels
from pykueue.testing import Kueue

EXAMPLES = Path(__file__).parents[2] / "examples"

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
  - coveredResources: [cpu, memory]
    flavors: [{name: blue, resources: [{name: cpu, nominalQuota: 4}, {name: memory, nominalQuota: 64Gi}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team}, spec: {clusterQueue: team}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: urgent}, value: 1000}
---
apiVersion: batch/v1
kind: Job
metadata: {name: urgent, labels: {kueue.x-k8s.io/queue-name: team, kueue.x-k8s.io/priority-class: urgent}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: none, resources: {requests: {cpu: 4}}}]
"""
*_CLUSTER, URGENT = (tree for tree in yaml.safe_load_all(QUEUES) if tree)


@dataclass(frozen=True)
class Case:
    """A kind: its example, and what its operator writes."""

    folder: str
    manifest: str
    resource: str
    pod_sets: tuple[tuple[str, int], ...]
    running: Tree
    stopped: Tree
    succeeded: Tree
    # Where admission is written.
    selectors: Callable[[Tree], list[Any]]

    def text(self, name: str) -> str:
        return (EXAMPLES / self.folder / name).read_text()

    @property
    def job(self) -> Tree:
        (tree,) = yaml.safe_load_all(self.text(self.manifest))
        found: Tree = tree
        return found

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])


def condition(type_: str, status: str = "True") -> Tree:
    return {"type": type_, "status": status, "reason": type_, "message": ""}


def _replicated(tree: Tree) -> list[Any]:
    """The node selectors in the runtime patch of the manager."""
    (patch,) = (each for each in tree["spec"]["runtimePatches"] if each["manager"] == "kueue.x-k8s.io/manager")
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs", [])
    return [each["template"]["spec"]["template"]["spec"].get("nodeSelector") for each in jobs]


APP_WRAPPER = Case(
    "appwrapper",
    "appwrapper.yaml",
    "appwrappers.workload.codeflare.dev",
    (("pair-0", 2),),
    running={"phase": "Running", "conditions": [condition("QuotaReserved"), condition("PodsReady")]},
    stopped={"phase": "Suspended", "conditions": [condition("QuotaReserved", "False")]},
    succeeded={"phase": "Succeeded"},
    selectors=lambda tree: [
        info.get("nodeSelector") for each in tree["spec"]["components"] for info in each.get("podSetInfos", [])
    ],
)
SPARK = Case(
    "spark",
    "sparkapplication.yaml",
    "sparkapplications.sparkoperator.k8s.io",
    (("driver", 1), ("executor", 2)),
    running={"applicationState": {"state": "RUNNING"}, "executorState": {"e1": "RUNNING", "e2": "RUNNING"}},
    stopped={"applicationState": {"state": "SUSPENDED"}, "executorState": None},
    succeeded={"applicationState": {"state": "COMPLETED"}},
    selectors=lambda tree: [
        tree["spec"][role]["nodeSelector"] for role in ("driver", "executor") if "nodeSelector" in tree["spec"][role]
    ],
)
TRAIN_JOB = Case(
    "trainjob",
    "trainjob.yaml",
    "trainjobs.trainer.kubeflow.org",
    (("dataset-initializer", 1), ("node", 2)),
    running={"jobsStatus": [{"name": "dataset-initializer", "ready": 1}, {"name": "node", "active": 1, "ready": 1}]},
    stopped={"jobsStatus": [{"name": "dataset-initializer", "active": 0}, {"name": "node", "active": 0}]},
    succeeded={"conditions": [condition("Complete")]},
    selectors=_replicated,
)
CASES = (APP_WRAPPER, SPARK, TRAIN_JOB)

wrapped = pytest.mark.kueue(
    {
        "featureGates": {"SparkApplicationIntegration": True},
        "integrations": {
            "frameworks": [
                "batch/job",
                "workload.codeflare.dev/appwrapper",
                "sparkoperator.k8s.io/sparkapplication",
                "trainer.kubeflow.org/trainjob",
            ]
        },
    },
    runner="none",
)
every_kind = pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)


def prepared(kueue: Kueue, case: Case) -> None:
    kueue.apply(case.text("crds.yaml" if case is TRAIN_JOB else "crd.yaml"))
    kueue.advance(10)  # until the manager has found the kinds
    kueue.apply(*_CLUSTER)
    if case is TRAIN_JOB:
        kueue.apply(case.text("runtime.yaml"))


def workload(kueue: Kueue, name: str) -> Tree:
    (found,) = (each for each in kueue.all("workload") if each["metadata"]["ownerReferences"][0]["name"] == name)
    return found


def state(tree: Tree, type_: str) -> str:
    found = [each for each in tree["status"]["conditions"] if each["type"] == type_]
    return f"{found[0]['status']}/{found[0]['reason']}" if found else ""


def report(kueue: Kueue, case: Case, status: Tree) -> None:
    kueue.patch(case.resource, case.name, {"status": status}, subresource="status")


@wrapped
@every_kind
def test_a_job_waits_runs_is_preempted_and_restored_runs_again_and_finishes(kueue: Kueue, case: Case) -> None:
    """[AW6], [AW7], [SP7], [SP8], [TJ5], [TJ6]"""
    prepared(kueue, case)
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "Hold"}})
    kueue.apply(case.job)
    first = kueue.get(case.resource, case.name)
    assert first["spec"]["suspend"] is True
    held = workload(kueue, case.name)
    assert tuple((each["name"], each["count"]) for each in held["spec"]["podSets"]) == case.pod_sets

    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "None"}})
    running = kueue.get(case.resource, case.name)
    assert running["spec"]["suspend"] is False
    assert case.selectors(running) == [{"pool": "blue"}] * len(case.pod_sets)
    report(kueue, case, case.running)
    assert state(workload(kueue, case.name), "PodsReady") == "True/Started"

    kueue.apply(URGENT)
    assert kueue.get(case.resource, case.name)["spec"]["suspend"] is True
    assert state(workload(kueue, case.name), "Evicted") == "True/Preempted"
    assert state(workload(kueue, case.name), "QuotaReserved") == "True/QuotaReserved", "its pods still run"
    report(kueue, case, case.stopped)
    kueue.advance(5)
    assert kueue.get(case.resource, case.name)["spec"] == first["spec"]
    assert state(workload(kueue, case.name), "QuotaReserved").startswith("False/")
    assert kueue.get("job", "urgent")["spec"]["suspend"] is False

    kueue.delete("job", "urgent")
    kueue.advance(5)
    assert kueue.get(case.resource, case.name)["spec"]["suspend"] is False
    report(kueue, case, case.succeeded)
    assert state(workload(kueue, case.name), "Finished") == "True/Succeeded"
    reported = [event["reason"] for event in kueue.all("event") if event.get("regarding", {}).get("name") == case.name]
    assert sorted(reported) == ["CreatedWorkload", "FinishedWorkload", "Started", "Started", "Stopped"]


@wrapped
@every_kind
def test_a_job_is_deleted_with_its_workload(kueue: Kueue, case: Case) -> None:
    prepared(kueue, case)
    kueue.apply(case.job)
    assert state(workload(kueue, case.name), "Admitted") == "True/Admitted"
    kueue.delete(case.resource, case.name)
    kueue.advance(5)
    assert kueue.all("workload") == []


@wrapped
@every_kind
def test_a_job_without_a_queue_is_left_alone(kueue: Kueue, case: Case) -> None:
    prepared(kueue, case)
    unmanaged: Tree = patches.merge(case.job, {"metadata": {"labels": None}})
    kueue.apply(unmanaged)
    assert kueue.get(case.resource, case.name)["spec"].get("suspend") in (None, False)
    assert kueue.all("workload") == []


# --- TrainJob ---------------------------------------------------------------------------------------------------------

JOB_SETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: jobsets.jobset.x-k8s.io}
spec:
  group: jobset.x-k8s.io
  scope: Namespaced
  names: {kind: JobSet, listKind: JobSetList, plural: jobsets, singular: jobset}
  versions:
  - name: v1alpha2
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@wrapped
def test_a_train_job_and_its_children_have_one_workload(kueue: Kueue) -> None:
    """[JF27] The JobSet that the operator creates, and the Job below it, follow the TrainJob."""
    kueue.apply(JOB_SETS)
    prepared(kueue, TRAIN_JOB)
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "Hold"}})
    kueue.apply(TRAIN_JOB.job)
    parent = kueue.get(TRAIN_JOB.resource, "train")
    kueue.apply(_child("jobset.x-k8s.io/v1alpha2", "JobSet", "train", parent, {"suspend": True, "replicatedJobs": []}))
    above = kueue.get("jobsets.jobset.x-k8s.io", "train")
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}}
    kueue.apply(_child("batch/v1", "Job", "train-node-0", above, {"template": pods}))
    assert kueue.get("job", "train-node-0")["spec"]["suspend"] is True
    assert [each["metadata"]["ownerReferences"][0]["kind"] for each in kueue.all("workload")] == ["TrainJob"]
    kueue.patch("clusterqueue", "team", {"spec": {"stopPolicy": "None"}})
    kueue.patch("job", "train-node-0", {"spec": {"suspend": False}})
    assert kueue.get("job", "train-node-0")["spec"]["suspend"] is False
    assert len(kueue.all("workload")) == 1


def _child(api_version: str, kind: str, name: str, owner: Tree, spec: Tree) -> Tree:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    metadata = {"name": name, "labels": {labels.QUEUE_NAME: "team"}, "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


@wrapped
def test_a_train_job_without_its_runtime_is_refused(kueue: Kueue) -> None:
    """[TJ4]"""
    kueue.apply(TRAIN_JOB.text("crds.yaml"))
    kueue.advance(10)
    kueue.apply(*_CLUSTER)
    with pytest.raises(ApiError, match="ClusterTrainingRuntime plain, which does not exist"):
        kueue.apply(TRAIN_JOB.job)


@wrapped
def test_an_app_wrapper_with_a_wrong_path_is_refused(kueue: Kueue) -> None:
    """[AW3]"""
    prepared(kueue, APP_WRAPPER)
    tree = APP_WRAPPER.job
    tree["spec"]["components"][1]["podSets"] = [{"path": "template.spec.templates"}]
    with pytest.raises(ApiError, match=r"spec.components\[1\].podSets\[0\].path"):
        kueue.apply(tree)
