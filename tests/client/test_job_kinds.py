"""Commands on jobs of kinds that are not Jobs: found through the Workload's owner, with their pods by their owners."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubemachinery.errors import UsageError
from kubemachinery.unstructured import Tree
from kubemachinery.yaml_documents import Document
from pykueue.api import labels
from pykueue.client import manifests, queued_job
from pykueue.client.job_service import JobService
from pykueue.testing import Kueue

EXAMPLES = Path(__file__).parents[2] / "examples"
FRAMEWORKS = ["batch/job", "pod", "kubeflow.org/pytorchjob", "kubeflow.org/mpijob"]
kinds = pytest.mark.kueue({"integrations": {"frameworks": FRAMEWORKS}})


def replica(cpu: str = "1", replicas: int = 1, **spec: Any) -> Tree:
    container = {"name": "pytorch", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container], **spec}}}


def training(name: str = "train", queue: str = "default", cpu: str = "1", **spec: Any) -> Tree:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default", "labels": {labels.QUEUE_NAME: queue}},
        "spec": {"pytorchReplicaSpecs": {"Master": replica(cpu), "Worker": replica(cpu, 2, **spec)}},
    }


def installed(kueue: Kueue) -> Kueue:
    kueue.apply((EXAMPLES / "kubeflow/crds.yaml").read_text(), (EXAMPLES / "mpijob/crd.yaml").read_text())
    kueue.advance(10)
    return kueue


def pod(name: str, owner: Tree, template: Tree) -> Tree:
    """A pod as the operator of its owner creates it."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")} | {
        key: owner["metadata"][key] for key in ("name", "uid")
    }
    metadata = {**template.get("metadata", {}), "name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [{**reference, "controller": True}]},
        "spec": {"restartPolicy": "Never", **template["spec"]},
    }


def service(kueue: Kueue) -> JobService:
    return JobService(kueue._client.api_client, "default")


# --- State ------------------------------------------------------------------------------------------------------------


@kinds
def test_a_job_of_another_kind_is_in_the_queue_with_its_kind_and_its_state(kueue: Kueue) -> None:
    installed(kueue).apply(training("runs", cpu="2"), training("waits", cpu="2"))
    first, second = kueue.queue()
    assert [(each.name, each.job_kind, each.pods, each.requests) for each in (first, second)] == [
        ("runs", "PyTorchJob", 3, "cpu 6"),
        ("waits", "PyTorchJob", 3, "cpu 6"),
    ]
    assert (first.status.state, second.status.state) == ("Starting", "Waiting")
    assert str(kueue.status("runs")) == "starting, its pods do not exist yet"
    assert "insufficient unused quota for cpu" in kueue.status("pytorchjob/waits").message
    kueue.patch(
        "pytorchjob", "runs", {"status": {"conditions": [{"type": "Running", "status": "True"}]}}, subresource="status"
    )
    assert kueue.status("runs").state == kueue.queue()[0].status.state == "Running"


@kinds
def test_waiting_ends_with_the_outcome_that_the_operator_reports(kueue: Kueue) -> None:
    installed(kueue).apply(training())

    async def ended_meanwhile() -> None:
        waiting = asyncio.ensure_future(kueue._client.wait("train"))
        await asyncio.sleep(5)
        failed = {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "worker 1 failed"}]}}
        row = queued_job.row_named("pytorchjob")
        assert row is not None
        await kueue._client.api_client.patch(row.kind, "train", failed, "default", subresource="status")
        assert str(await waiting) == "failed, worker 1 failed"

    kueue._run(ended_meanwhile())


@kinds
def test_a_cancelled_job_of_another_kind_is_deleted_with_its_workload(kueue: Kueue) -> None:
    installed(kueue).apply(training())
    kueue._run(kueue._client.cancel("pytorchjobs.kubeflow.org/train"))
    kueue.advance(60)
    assert [str(entry.status) for entry in kueue.queue(all=True)] == ["cancelled, deleted"]  # from the history
    assert kueue.all("workload") == []
    with pytest.raises(UsageError, match=r"^pytorchjob train not found in namespace default$"):
        kueue.status("pytorchjob/train")


@kinds
def test_a_job_of_another_kind_is_explained(kueue: Kueue) -> None:
    installed(kueue).apply(training(cpu="3"))
    assert any("cpu" in cause for cause in kueue.explain("train").causes)
    assert kueue.explain("pytorchjob/train").causes == kueue.explain("train").causes


@kinds
def test_a_job_that_no_workload_can_be_made_for_is_in_the_queue_with_the_reason(kueue: Kueue) -> None:
    installed(kueue).apply(training(priorityClassName="urgent"))
    why = 'PriorityClass "urgent" not found'
    [entry] = kueue.queue()
    assert (entry.title, entry.job_kind, entry.pods, entry.requests) == (
        "pytorchjob.kubeflow.org/train",
        "PyTorchJob",
        3,
        "cpu 3",
    )
    assert str(entry.status) == str(kueue.status("train")) == f"unqueued, {why}"
    with pytest.raises(UsageError, match=f"^job train has no Workload: {why}$"):
        kueue.explain("train")


@kinds
def test_a_listing_sends_requests_for_the_kinds_in_use_only(kueue: Kueue) -> None:
    """One list for each served kind would be many requests where all CRDs are installed."""
    sent = installed(kueue)._client.api_client.sent

    def listed(*, all: bool = False) -> set[str]:
        before = dict(sent)
        kueue.queue(all=all)
        return {name for (verb, name), count in sent.items() if verb == "GET" and count > before.get((verb, name), 0)}

    training_kinds = ("pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs", "mpijobs")
    everything = {"workloads", "pods", "jobs", *training_kinds}
    assert listed() == everything  # without a Workload any kind may be in use
    kueue.apply(training("runs"))
    assert listed() == {"workloads", "events", "pods", "jobs", "pytorchjobs"}
    assert listed(all=True) >= everything


@kinds
def test_first_job_of_a_late_crd_is_queued_without_a_wait(kueue: Kueue) -> None:
    """JF11: by then the manager asks for the kind every 2 min only; the webhook of the kind makes it ask at once."""
    kueue.advance(600)
    kueue.apply((EXAMPLES / "kubeflow/crds.yaml").read_text())
    kueue.apply(training())
    kueue.advance(2)
    [entry] = kueue.queue()
    assert (entry.name, entry.status.state) == ("train", "Starting")


# --- Names ------------------------------------------------------------------------------------------------------------


@kinds
def test_a_job_is_found_by_name_by_type_and_by_its_workload(kueue: Kueue) -> None:
    installed(kueue).apply(training())
    [workload] = kueue.all("workload")
    for given in (
        "train",
        "pytorchjob/train",
        "PyTorchJob/train",
        "pytorchjobs.kubeflow.org/train",
        workload["metadata"]["name"],
        f"workload/{workload['metadata']['name']}",
    ):
        found = kueue._run(service(kueue).job(given))
        assert (found.reference, found.title, found.resource) == (
            "pytorchjob/train",
            "pytorchjob train",
            "pytorchjob.kubeflow.org/train",
        )
    with pytest.raises(UsageError, match=r"^unicorn is not a kind of job: TYPE/NAME is such as job/train or "):
        kueue.status("unicorn/train")
    with pytest.raises(UsageError, match=r"^job nowhere not found in namespace default$"):
        kueue.status("nowhere")


@kinds
def test_a_name_of_several_jobs_needs_a_type_unless_one_is_a_job(kueue: Kueue) -> None:
    mpi = training() | {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    mpi["spec"] = {"mpiReplicaSpecs": {"Launcher": replica(), "Worker": replica()}}
    installed(kueue).apply(training(), mpi)
    with pytest.raises(UsageError, match="train is the name of several jobs in namespace default: name one of "):
        kueue.status("train")
    assert kueue.status("mpijob/train").state == "Starting"
    kueue.submit(["sleep", "600"], name="train")
    assert kueue._run(service(kueue).job("train")).reference == "train"


@kinds
def test_the_newest_job_may_be_of_any_kind(kueue: Kueue) -> None:
    kueue.submit(["sleep", "600"], name="first")
    installed(kueue).apply(training("second"))
    assert kueue._run(service(kueue).newest()).reference == "pytorchjob/second"
    kueue.submit(["sleep", "600"], name="third")
    assert kueue._run(service(kueue).newest()).reference == "third"


# --- Pods -------------------------------------------------------------------------------------------------------------


@kinds
def test_pods_are_those_of_the_job_its_workload_and_the_jobs_below_it(kueue: Kueue) -> None:
    """The launcher of an MPIJob is a pod of a Job that the MPIJob owns."""
    mpi = training("mpi") | {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"}
    mpi["spec"] = {"mpiReplicaSpecs": {"Launcher": replica(), "Worker": replica()}}
    installed(kueue).apply(mpi, training("other"))
    owner, other = kueue.get("mpijob", "mpi"), kueue.get("pytorchjob", "other")
    templates = {name: each["template"] for name, each in owner["spec"]["mpiReplicaSpecs"].items()}
    kueue.apply(pod("mpi-worker-0", owner, templates["Worker"]))
    kueue.apply(pod("other-master-0", other, other["spec"]["pytorchReplicaSpecs"]["Master"]["template"]))
    launcher = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pod("mpi-launcher", owner, templates["Launcher"])["metadata"],
        "spec": {
            "template": {**templates["Launcher"], "spec": {"restartPolicy": "Never", **templates["Launcher"]["spec"]}}
        },
    }
    kueue.apply(launcher)

    def names(given: str) -> list[str]:
        found = service(kueue)
        job = kueue._run(found.job(given))
        return [each.metadata.name.removesuffix(each.metadata.name[-6:]) if "launcher" in each.metadata.name
                else each.metadata.name for each in kueue._run(found.pods(job))]  # fmt: skip

    assert sorted(names("mpijob/mpi")) == ["mpi-launcher", "mpi-worker-0"]
    assert names("pytorchjob/other") == ["other-master-0"]
    # Without the annotation of the Workload, as with topology-aware scheduling off, owners decide.
    for each in kueue.all("pod"):
        kueue.patch("pod", each["metadata"]["name"], {"metadata": {"annotations": {labels.WORKLOAD: None}}})
    assert sorted(names("mpijob/mpi")) == ["mpi-launcher", "mpi-worker-0"]
    assert names("pytorchjob/other") == ["other-master-0"]


@kinds
def test_a_job_that_is_starting_has_the_reason_of_its_pods(kueue: Kueue) -> None:
    installed(kueue).apply(training())
    owner = kueue.get("pytorchjob", "train")
    template = owner["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    spec = {**template["spec"], "nodeSelector": {"nowhere": "true"}}
    kueue.apply(pod("train-master-0", owner, {**template, "spec": spec}))
    assert kueue.status("train").message.startswith("pod train-master-0")
    assert kueue.queue()[0].status.message.startswith("pod train-master-0")


# --- Pods and groups --------------------------------------------------------------------------------------------------


def member(name: str, group: str = "") -> Tree:
    marks = {labels.QUEUE_NAME: "default"} | ({labels.POD_GROUP_NAME: group} if group else {})
    container = {"name": "main", "image": "none", "command": ["sleep", "600"], "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": marks,
            "annotations": {labels.POD_GROUP_TOTAL_COUNT: "2"} if group else {},
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


@kinds
def test_a_pod_group_is_found_by_its_name_and_cancelled_as_a_whole(kueue: Kueue) -> None:
    kueue.apply(member("one", "pair"), member("two", "pair"), member("solo"))
    found = service(kueue)
    group = kueue._run(found.job("pair"))
    assert [each.metadata.name for each in kueue._run(found.pods(group))] == ["one", "two"]
    assert kueue.status("pair").state == "Running"
    assert [each.metadata.name for each in kueue._run(found.pods(kueue._run(found.job("solo"))))] == ["solo"]
    assert {(each.name, each.job_kind) for each in kueue.queue()} == {("pair", "Pod"), ("solo", "Pod")}
    kueue._run(kueue._client.cancel("pair"))
    kueue.advance(60)
    assert [each["metadata"]["name"] for each in kueue.all("pod")] == ["solo"]


# --- Kinds that are made of pods --------------------------------------------------------------------------------------


def serving(kind: str, name: str, replicas: int, cpu: str = "1") -> Tree:
    container = {"name": "main", "image": "none", "command": ["sleep", "600"], "resources": {"requests": {"cpu": cpu}}}
    marks = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": {labels.QUEUE_NAME: "default"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": marks},
            "template": {"metadata": {"labels": marks}, "spec": {"containers": [container]}},
        },
    }


made_of_pods = pytest.mark.kueue({"integrations": {"frameworks": ["batch/job", "deployment", "statefulset"]}})


@made_of_pods
def test_a_stateful_set_is_in_the_queue_under_its_name(kueue: Kueue) -> None:
    kueue.apply(serving("StatefulSet", "web", 2, cpu="20"))
    [entry] = kueue.queue()
    assert (entry.name, entry.job_kind, entry.pods, entry.status.state) == ("web", "StatefulSet", 2, "Waiting")
    assert "cpu" in kueue.status("web").message
    assert kueue.status("statefulset/web") == kueue.status("web") == kueue.status("sts/web")
    assert any("cpu" in cause for cause in kueue.explain("web").causes)
    owner = kueue.get("statefulset", "web")
    template = owner["spec"]["template"]
    kueue.apply(pod("web-0", owner, {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}))
    found = service(kueue)
    assert [each.metadata.name for each in kueue._run(found.pods(kueue._run(found.job("web"))))] == ["web-0"]
    kueue._run(kueue._client.cancel("web"))
    kueue.advance(60)
    assert [str(entry.status) for entry in kueue.queue(all=True)] == ["cancelled, deleted"]  # from the history
    assert kueue.all("workload") == []


@made_of_pods
def test_a_deployment_is_as_far_as_the_last_of_its_pods(kueue: Kueue) -> None:
    kueue.apply(serving("Deployment", "api", 2, cpu="5"))
    kueue.advance(5)
    assert sorted(entry.status.state for entry in kueue.queue()) == ["Running", "Waiting"]
    assert kueue.status("api") == kueue.status("deploy/api")
    assert (kueue.status("api").state, "2 more needed" in kueue.status("api").message) == ("Waiting", True)
    found = service(kueue)
    pods = kueue._run(found.pods(kueue._run(found.job("deploy/api"))))
    assert sorted(each.metadata.name for each in pods) == sorted(pod["metadata"]["name"] for pod in kueue.all("pod"))
    assert len(pods) == 2


# --- Manifests --------------------------------------------------------------------------------------------------------


def job(**fields: Any) -> Tree:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, **fields}


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "file: must be an object with apiVersion and kind"),
        ({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}, "is not a job that can be queued"),
        ({"kind": "Job", "apiVersion": "batch/v1beta1", "metadata": {"name": "a"}}, "queued is batch/v1"),
        (job(metadata={"name": "a", "namespace": "b"}), "is for namespace b; submit it with -n b"),
    ],
)
def test_a_document_that_is_not_a_job_is_refused_by_its_place(tree: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        manifests.jobs([Document("file", tree)], "default")
    with pytest.raises(UsageError, match="the files have no objects"):
        manifests.jobs([], "default")


def test_a_manifest_gets_queue_and_class_and_keeps_its_labels() -> None:
    tree = training(queue="own")
    tree["metadata"]["labels"]["team"] = "blue"
    [found] = manifests.jobs([Document("file", tree)], "default")
    assert found.queue == "own"
    stored = found.submitted("other", "urgent", 0)
    assert stored["metadata"]["labels"] == {
        labels.QUEUE_NAME: "other",
        labels.PRIORITY_CLASS: "urgent",
        "team": "blue",
    }
    assert stored["spec"] == tree["spec"]
    assert found.submitted("own", "", 0)["metadata"]["labels"] == {labels.QUEUE_NAME: "own", "team": "blue"}


@pytest.mark.kueue({"integrations": {"frameworks": ["batch/job"]}})
def test_a_job_that_the_server_would_not_hold_is_refused_before_it_is_stored(kueue: Kueue) -> None:
    row = queued_job.row_named("pytorchjob")
    assert row is not None
    tree = training()
    with pytest.raises(UsageError, match=r"^the server does not have the kind PyTorchJob \(kubeflow.org/v1\): install"):
        kueue._run(service(kueue).check_is_queued(tree, row))
    installed(kueue)
    with pytest.raises(
        UsageError, match=r"^pytorchjob train would run outside quota: the manager does not queue PyTorchJob"
    ):
        kueue._run(service(kueue).check_is_queued(tree, row))
    assert kueue.all("pytorchjob") == []


@kinds
def test_a_submitted_manifest_exists_once(kueue: Kueue) -> None:
    installed(kueue)
    row = queued_job.row_named("pytorchjob")
    assert row is not None
    kueue._run(service(kueue).check_is_queued(training(), row))
    assert kueue._run(service(kueue).submit(training(), row)).reference == "pytorchjob/train"
    kueue._run(service(kueue).check_is_queued(training(), row))
    with pytest.raises(
        UsageError, match=r"^pytorchjob train already exists; `pykueue cancel pytorchjob/train` deletes it$"
    ):
        kueue._run(service(kueue).submit(training(), row))
