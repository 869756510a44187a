"""MPIJobs: a launcher and workers, ranks that begin at 1, and pod set groups. What they share with the jobs of the
Training Operator is tested there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from jobs.job_harness import KINDS
from jobs.kubeflow_jobs import ROWS, kubeflow_job, replica
from jobs.test_training_operator import KUBEFLOW_OPTIONS, harness, validated
from kubemachinery import codec, unstructured
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import admission
from pykueue.jobs.admission import JobAdmissionFacts

ROW = ROWS["MPIJob"]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ({"Worker": replica(4), "Launcher": replica()}, [("launcher", 1), ("worker", 4)]),
        ({"Launcher": replica(None), "Worker": None}, [("launcher", 1)]),
        ({"Launcher": None, "Worker": replica(2)}, [("worker", 2)]),
        ({"Launcher": replica(), "Worker": replica(), "Extra": replica()}, [("launcher", 1), ("worker", 1)]),
    ],
    ids=["both", "a null worker", "a null launcher", "other keys"],
)
def test_pod_sets_are_the_launcher_and_the_workers(
    replicas: Mapping[str, Tree | None], expected: list[tuple[str, int]]
) -> None:
    """[MP1]"""
    pod_sets = ROW.job(kubeflow_job("MPIJob", replicas)).pod_sets(KUBEFLOW_OPTIONS)
    assert [(pod_set["name"], pod_set["count"]) for pod_set in pod_sets] == expected


# --- Ranks ------------------------------------------------------------------------------------------------------------

GROUPED = {labels.PODSET_GROUP_NAME: "one", labels.PODSET_REQUIRED_TOPOLOGY: "cloud.com/rack"}


@pytest.mark.parametrize(
    ("launcher", "worker", "spec", "offset"),
    [
        (replica(), replica(4), {"runLauncherAsWorker": True}, "1"),
        (replica(), replica(4), {"runLauncherAsWorker": False}, None),
        (replica(), replica(4), {}, None),
        (replica(1, GROUPED), replica(4, GROUPED), {"runLauncherAsWorker": True}, None),
        (replica(), replica(4, GROUPED), {"runLauncherAsWorker": True}, "1"),
        (None, replica(4), {"runLauncherAsWorker": True}, None),
        (replica(), None, {"runLauncherAsWorker": True}, None),
        (replica(), {"replicas": 2}, {"runLauncherAsWorker": True}, "1"),
    ],
    ids=[
        "launcher is rank 0", "launcher is none", "not given", "one group", "group of the worker only", "no launcher",
        "no worker", "no template",
    ],
)  # fmt: skip
@pytest.mark.parametrize("queue", ["lq", None], ids=["queued", "without a queue"])
def test_ranks_of_workers_begin_at_1_where_the_launcher_is_a_worker(
    launcher: Tree | None, worker: Tree | None, spec: Tree, offset: str | None, queue: str | None
) -> None:
    """[MP3]"""
    tree = kubeflow_job(
        "MPIJob",
        {"Launcher": launcher, "Worker": worker},
        spec=spec,
        metadata={"labels": {labels.QUEUE_NAME: queue}},
    )
    stored = admission.default(ROW, tree, JobAdmissionFacts(), KINDS, KUBEFLOW_OPTIONS)
    annotations = unstructured.get(stored, "spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "annotations")
    assert unstructured.texts(annotations).get(labels.POD_INDEX_OFFSET) == offset


def test_ranks_survive_a_restore() -> None:
    """[MP3]"""
    spec = {"runLauncherAsWorker": True}
    tree = admission.default(ROW, kubeflow_job("MPIJob", spec=spec), JobAdmissionFacts(), KINDS, KUBEFLOW_OPTIONS)
    found = harness("MPIJob", tree["spec"]["mpiReplicaSpecs"], spec=spec).settle().admit().settle()
    found.evict().settle()
    assert found.job["spec"] == tree["spec"]


# --- Starting ---------------------------------------------------------------------------------------------------------


def test_a_check_that_updates_the_workers_leaves_the_launcher_alone() -> None:
    """Edge case E7 of the reference."""
    found = harness("MPIJob").settle().admit()
    update = {"name": "worker", "nodeSelector": {"disk": "fast"}}
    check = codec.from_tree(
        {"name": "check", "state": "Ready", "message": "", "podSetUpdates": [update]}, kueue.AdmissionCheckState
    )
    status = structs.replace(found.workload.status, admission_checks=(check,))
    found.workloads = {name: structs.replace(each, status=status) for name, each in found.workloads.items()}
    found.settle()
    specs = found.job["spec"]["mpiReplicaSpecs"]
    assert "nodeSelector" not in specs["Launcher"]["template"]["spec"]
    assert specs["Worker"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}


# --- The webhook ------------------------------------------------------------------------------------------------------

PLACE = "spec.mpiReplicaSpecs[{}].template.metadata.annotations"


def group(name: str = "one", mode: str = labels.PODSET_REQUIRED_TOPOLOGY) -> dict[str, str]:
    return {labels.PODSET_GROUP_NAME: name, mode: "cloud.com/rack"}


@pytest.mark.parametrize(
    ("launcher", "worker", "expected"),
    [
        (replica(1, group()), replica(4, group()), []),
        (replica(1, group()), replica(4), ["Invalid {launcher}[K/podset-group-name]"]),
        (
            replica(2, group()),
            replica(4, group()),
            ["Invalid {launcher}[K/podset-group-name]", "Invalid {worker}[K/podset-group-name]"],
        ),
        (
            replica(1, group()),
            replica(4, group(mode=labels.PODSET_PREFERRED_TOPOLOGY)),
            ["Invalid {launcher}", "Invalid {worker}"],
        ),
    ],
    ids=["valid", "one member", "no member of one pod", "different requests"],
)
def test_a_pod_set_group_is_two_pod_sets_one_of_one_pod_with_the_same_request(
    launcher: Tree, worker: Tree, expected: list[str]
) -> None:
    """[MP5]"""
    tree = kubeflow_job("MPIJob", {"Launcher": launcher, "Worker": worker})
    places = {"launcher": PLACE.format("Launcher"), "worker": PLACE.format("Worker")}
    shown = [text.format(**places).replace("K/", "kueue.x-k8s.io/") for text in expected]
    assert validated("MPIJob", tree) == shown
    assert validated("MPIJob", tree, kubeflow_job("MPIJob")) == shown


def test_errors_are_sorted_by_their_path() -> None:
    """[MP5]"""
    both = {labels.PODSET_REQUIRED_TOPOLOGY: "not a label", labels.PODSET_SLICE_SIZE: "1"}
    fields: dict[str, Any] = {"metadata": {"labels": {labels.QUEUE_NAME: "UPPER", labels.MAX_EXEC_TIME_SECONDS: "x"}}}
    paths = [
        error.split(" ")[1]
        for error in validated("MPIJob", kubeflow_job("MPIJob", {"Launcher": replica(1, both)}, **fields))
    ]
    assert paths == sorted(paths)
    assert paths[0] == "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"


def test_rules_for_new_jobs_are_repeated_on_update() -> None:
    """[MP5]"""
    fields: dict[str, Any] = {"metadata": {"labels": {labels.QUEUE_NAME: "UPPER"}}}
    found = validated("MPIJob", kubeflow_job("MPIJob", **fields), kubeflow_job("MPIJob"))
    assert found == ["Invalid metadata.labels[kueue.x-k8s.io/queue-name]"]
