"""Commands on a PyTorchJob and a JobSet, on a real `pykueue up`. The test plays the operators: it creates their pods and
Jobs, and writes their status; the pods run as processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete

from kubemachinery.client.client import ApiClient
from kubemachinery.kinds import Kind, Scope, Version
from kubemachinery.unstructured import Tree
from pykueue import cli
from pykueue.api import labels
from pykueue.cli import completion_candidates
from pykueue.cli.connection_flags import ConnectionFlags
from pykueue.client import queued_job
from pykueue.client.queued_job import JOBS, PODS
from shell import Shell
from started import Up
from waiting import PATIENCE_SECONDS, until

EXAMPLES = Path(__file__).parents[2] / "examples"
CRDS = Kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", (Version("v1", storage=True),),
    Scope.CLUSTER,
)  # fmt: skip
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, kubeflow.org/pytorchjob]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a user in which `pykueue up` runs, with both CRDs."""
    place = tmp_path_factory.mktemp("home")
    (place / "configuration.yaml").write_text(CONFIGURATION)
    environment = {**os.environ, "HOME": str(place)}
    environment.pop("KUBECONFIG", None)
    kubeconfig = place / ".pykueue" / "kubeconfig"
    server = Up(
        kubeconfig, "--durability", "memory", "--config", str(place / "configuration.yaml"), environment=environment
    )
    crds = [*documents("kubeflow/crds.yaml"), *documents("jobset/crd.yaml")]

    async def install(client: ApiClient, _: object) -> None:
        for tree in crds:
            await client.create(CRDS, tree)

    try:
        ConnectionFlags(str(kubeconfig), "", {}).run(install)
        yield place
    finally:
        _, output = server.end()
    assert "Traceback" not in output


def documents(name: str) -> list[Tree]:
    return [tree for tree in yaml.safe_load_all((EXAMPLES / name).read_text()) if tree]


@pytest.fixture
def shell(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(home)
    return Shell(capsys)


class Operator:
    """What an operator does with its jobs."""

    def __init__(self, type_: str) -> None:
        row = queued_job.row_named(type_)
        assert row is not None
        self.kind = row.kind

    def get(self, name: str) -> Tree:
        return ConnectionFlags("", "", {}).run(lambda client, _: client.get(self.kind, name, "default"))

    def create(self, kind: Kind, owner: Tree, name: str, spec: Tree, metadata: Tree) -> None:
        """Create an object that the job controls."""
        reference = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        tree = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**metadata, "name": name, "namespace": "default", "ownerReferences": [reference]},
            "spec": spec,
        }
        ConnectionFlags("", "", {}).run(lambda client, _: client.create(kind, tree))

    def report(self, name: str, **status: Any) -> None:
        patch = {"status": status}
        ConnectionFlags("", "", {}).run(
            lambda client, _: client.patch(self.kind, name, patch, "default", subresource="status")
        )


def true(type_: str, message: str = "") -> list[Tree]:
    return [{"type": type_, "status": "True", "reason": "Any", "message": message}]


def template(script: str = "true", cpu: str = "100m") -> Tree:
    container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
    return {"spec": {"restartPolicy": "Never", "containers": [{**container, "resources": {"requests": {"cpu": cpu}}}]}}


def training(name: str, script: str = "true", cpu: str = "100m", **marks: str) -> Tree:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": marks},
        "spec": {"pytorchReplicaSpecs": {name: {"template": template(script, cpu)} for name in ("Master", "Worker")}},
    }


def job_set(name: str, script: str) -> Tree:
    spec = {"parallelism": 1, "completions": 1, "template": template(script)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "driver", "replicas": 1, "template": {"spec": spec}}]},
    }


def written(folder: Path, *trees: Tree) -> str:
    file = folder / f"{trees[0]['metadata']['name']}.yaml"
    file.write_text(yaml.safe_dump_all(trees))
    return str(file)


def test_a_pytorch_job_from_its_manifest_to_its_end(shell: Shell, tmp_path: Path) -> None:
    operator = Operator("pytorchjob")
    made = shell("submit", "-f", written(tmp_path, training("torch", "echo I am $RANK")))
    assert made == (0, "pytorchjob torch submitted to queue default\n", "")
    until(lambda: operator.get("torch")["spec"]["runPolicy"]["suspend"] is False)
    started = operator.get("torch")
    for type_, replica in started["spec"]["pytorchReplicaSpecs"].items():
        spec = replica["template"]["spec"]
        containers = [{**spec["containers"][0], "env": [{"name": "RANK", "value": type_}]}]
        name = f"torch-{type_.lower()}-0"
        operator.create(PODS, started, name, {**spec, "containers": containers}, replica["template"]["metadata"])
    until(lambda: shell("logs", "torch").out.count("I am") == 2)
    assert sorted(shell("logs", "pytorchjob/torch").out.splitlines()) == [
        "[torch-master-0] I am Master",
        "[torch-worker-0] I am Worker",
    ]
    listed = shell("list", "pods", "--for", "pytorchjob.kubeflow.org/torch").out.splitlines()[1:]
    assert sorted(line.split()[0] for line in listed) == ["torch-master-0", "torch-worker-0"]
    [of_job] = shell("list", "workload", "--for", "pytorchjobs/torch").out.splitlines()[1:]
    assert "pytorchjob.kubeflow..." in of_job
    operator.report("torch", conditions=true("Running"))
    until(lambda: "Running" in shell("queue").out)
    [row] = [line.split() for line in shell("queue").out.splitlines() if line.startswith("torch ")]
    assert row[:4] == ["torch", "PyTorchJob", "default", "Running"]
    operator.report("torch", conditions=true("Succeeded", "trained"))
    assert shell("wait", "torch") == (0, "pytorchjob torch succeeded\n", "")
    assert shell("cancel", "pytorchjob/torch") == (0, "pytorchjob torch cancelled\n", "")
    assert shell("wait", "pytorchjob/torch").err == "pykueue: pytorchjob torch not found in namespace default\n"


def test_a_job_set_whose_pods_belong_to_its_jobs(shell: Shell, tmp_path: Path) -> None:
    operator = Operator("jobset")
    assert shell("submit", "-f", written(tmp_path, job_set("pair", "echo I drive"))).code == 0
    until(lambda: operator.get("pair")["spec"]["suspend"] is False)
    started = operator.get("pair")
    [replicated] = started["spec"]["replicatedJobs"]
    operator.create(JOBS, started, "pair-driver-0", replicated["template"]["spec"], {})
    until(lambda: shell("logs", "pair").out == "I drive\n")
    [listed] = shell("list", "pods", "--for", "jobset/pair").out.splitlines()[1:]
    assert listed.startswith("pair-driver-0-")
    operator.report("pair", conditions=true("Failed", "the driver failed"))
    assert shell("wait", "jobset/pair") == (1, "jobset pair failed: the driver failed\n", "")
    assert shell("cancel", "pair") == (0, "jobset pair cancelled\n", "")


def test_a_job_that_waits_is_explained_stopped_and_resumed(shell: Shell, tmp_path: Path) -> None:
    assert shell("submit", "-f", written(tmp_path, training("large", cpu="10k"))).code == 0
    until(lambda: "maximum capacity" in shell("queue").out)
    explained = shell("explain", "large").out
    assert explained.startswith("Workload default/pytorchjob-large-")
    assert shell("explain", "pytorchjob/large").out == explained
    assert shell("logs", "large").err.startswith("pytorchjob large has no log: waiting, ")
    assert shell("stop", "workload", "large").out.endswith(" stopped\n")
    until(lambda: "deactivated" in shell("queue").out)
    assert shell("resume", "workload", "large").out.endswith(" resumed\n")
    until(lambda: "deactivated" not in shell("queue").out)
    assert shell("cancel", "large").code == 0


def test_names_are_completed_with_their_type(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_candidates, "_PATIENCE", f"{PATIENCE_SECONDS:.0f}s")
    shell("submit", "-f", written(tmp_path, training("complete", cpu="10k")))
    until(lambda: "complete" in shell("queue").out)
    completion = ShellComplete(cli.program, {}, "pykueue", "_PYKUEUE_COMPLETE")
    found = [each.value for each in completion.get_completions(["wait"], "pytorchjob/co")]
    assert found == ["pytorchjob/complete"]
    assert shell("cancel", "complete").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cpu", "2"), "pykueue: --cpu does not go with a manifest: write it there\n"),
        (("--", "true"), "pykueue: submit takes a manifest or a command, not both; the command is 'true'\n"),
        (("-q", "nope"), "LocalQueue nope not found in namespace default; available: default\n"),
        (("--priority-class", "nope"), "WorkloadPriorityClass nope not found; none exists\n"),
    ],
)
def test_options_of_commands_are_refused_with_a_manifest(
    shell: Shell, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    refused = shell("submit", "-f", written(tmp_path, training("refused")), *arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith(message)


def test_manifests_are_checked_before_the_first_is_submitted(shell: Shell, tmp_path: Path) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    refused = shell("submit", "-f", written(tmp_path, training("early"), config_map))
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith(
        "document 2: ConfigMap settings is not a job that can be queued; `kubectl apply -f` creates it\n"
    )
    other = training("elsewhere") | {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
    other["spec"] = {"tfReplicaSpecs": {"Worker": {"template": template()}}}
    refused = shell("submit", "-f", written(tmp_path, training("early"), other))
    assert refused.err == (
        "pykueue: tfjob elsewhere would run outside quota: the manager does not queue TFJob; add kubeflow.org/tfjob"
        " to integrations.frameworks of its Configuration\n"
    )
    assert "early" not in shell("queue", "-a").out


def test_a_manifest_can_be_seen_before_it_is_submitted(shell: Shell, tmp_path: Path) -> None:
    file = written(tmp_path, training("seen", **{labels.QUEUE_NAME: "default"}))
    shown = yaml.safe_load(shell("submit", "-f", file, "--dry-run").out)
    assert (shown["kind"], shown["metadata"]["labels"]) == ("PyTorchJob", {labels.QUEUE_NAME: "default"})
    assert json.loads(shell("submit", "--dry-run", "-o", "json", "-f", file).out)["metadata"]["name"] == "seen"
    assert shell("submit", "-o", "name", "-f", file).out == "pytorchjob.kubeflow.org/seen\n"
    assert shell("submit", "-f", file).err == (
        "pykueue: pytorchjob seen already exists; `pykueue cancel pytorchjob/seen` deletes it\n"
    )
    assert shell("cancel", "seen").code == 0


def test_minus_f_before_a_command_follows_its_log(shell: Shell) -> None:
    """The command may have an option -f of its own, with a manifest."""
    made = shell("submit", "-f", "--name", "followed", "echo", "-f", "job.yaml")
    assert made.out == "job followed submitted to queue default\n-f job.yaml\n"
