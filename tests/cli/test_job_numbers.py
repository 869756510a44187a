"""Jobs in files with numbers that the API server refuses are refused by plan, whatif and lint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubemachinery import unstructured
from shell import Shell

NEGATIVE = "must be greater than or equal to 0"
LOW = "must be greater than or equal to 1"
INT32 = "must be less than or equal to 2147483647"
WHOLE = "must be a whole number"

JOB = ("batch/v1", "Job")
POD = ("v1", "Pod")
DEPLOYMENT = ("apps/v1", "Deployment")
STATEFUL_SET = ("apps/v1", "StatefulSet")

REFUSED = [
    (JOB, "spec.parallelism", -1, NEGATIVE),
    (JOB, "spec.completions", -1, NEGATIVE),
    (JOB, "spec.activeDeadlineSeconds", -1, NEGATIVE),
    (JOB, "spec.backoffLimit", -5, NEGATIVE),
    (JOB, "spec.backoffLimitPerIndex", -1, NEGATIVE),
    (JOB, "spec.maxFailedIndexes", -1, NEGATIVE),
    (JOB, "spec.ttlSecondsAfterFinished", -1, NEGATIVE),
    (JOB, "spec.template.spec.activeDeadlineSeconds", 0, LOW),
    (JOB, "spec.backoffLimit", 2**31, INT32),
    (JOB, "spec.backoffLimit", "3", WHOLE),
    (JOB, "spec.parallelism", 1.5, WHOLE),
    (JOB, "spec.parallelism", True, WHOLE),
    (POD, "spec.activeDeadlineSeconds", 0, LOW),
    (DEPLOYMENT, "spec.replicas", -1, NEGATIVE),
    (DEPLOYMENT, "spec.minReadySeconds", -1, NEGATIVE),
    (DEPLOYMENT, "spec.revisionHistoryLimit", -1, NEGATIVE),
    (DEPLOYMENT, "spec.progressDeadlineSeconds", -1, NEGATIVE),
    (STATEFUL_SET, "spec.replicas", -1, NEGATIVE),
    (STATEFUL_SET, "spec.minReadySeconds", -1, NEGATIVE),
]

TAKEN = [
    (JOB, "spec.backoffLimit", 0),
    (JOB, "spec.activeDeadlineSeconds", 2**31),
    (JOB, "spec.ttlSecondsAfterFinished", None),
    (JOB, "spec.template.spec.activeDeadlineSeconds", 1),
    (DEPLOYMENT, "spec.progressDeadlineSeconds", 2**31 - 1),
]


def queued(kind: tuple[str, str], path: str, value: object) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.example/app:1", "resources": {"requests": {"cpu": "1"}}}
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    controlled = {"selector": {"matchLabels": {"app": "j"}}, "serviceName": "j"} if kind[0] == "apps/v1" else {}
    template = {"metadata": {"labels": {"app": "j"}}, "spec": pod}
    spec = pod if kind == POD else {**controlled, "template": template}
    metadata = {"name": "j", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    tree = {"apiVersion": kind[0], "kind": kind[1], "metadata": metadata, "spec": spec}
    return unstructured.put(tree, tuple(path.split(".")), value)


@pytest.fixture
def queues(tmp_path: Path) -> str:
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    group = "kueue.x-k8s.io/v1beta2"
    items = [
        {"apiVersion": group, "kind": "ResourceFlavor", "metadata": {"name": "plain"}},
        {"apiVersion": group, "kind": "ClusterQueue", "metadata": {"name": "cq"},
         "spec": {"namespaceSelector": {}, "resourceGroups": groups}},
        {"apiVersion": group, "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "default"},
         "spec": {"clusterQueue": "cq"}},
    ]  # fmt: skip
    return written(tmp_path / "queues.json", {"apiVersion": "v1", "kind": "List", "items": items})


def written(path: Path, tree: dict[str, Any]) -> str:
    path.write_text(json.dumps(tree))
    return str(path)


@pytest.mark.parametrize(("kind", "path", "value", "why"), REFUSED)
def test_a_number_that_the_api_server_refuses_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    queues: str,
    kind: tuple[str, str],
    path: str,
    value: object,
    why: str,
) -> None:
    shell, job = Shell(capsys), written(tmp_path / "job.json", queued(kind, path, value))
    sentence = f"pykueue: {job}: {kind[1]} default/j: {path}: Invalid value: {json.dumps(value)}: {why}\n"
    read = ("-f", queues, "-f", job)
    for words in (("plan", *read), ("lint", *read), ("whatif", "--in", queues, "-f", job)):
        assert shell(*words) == (2, "", sentence)


@pytest.mark.parametrize(("kind", "path", "value"), TAKEN)
def test_a_number_at_its_limit_is_planned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, queues: str, kind: tuple[str, str], path: str, value: object
) -> None:
    job = written(tmp_path / "job.json", queued(kind, path, value))
    assert Shell(capsys)("plan", "-f", queues, "-f", job).code == 0
