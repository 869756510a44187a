"""Namespaces of offline cases: manifests rarely contain them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shell import Shell

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: main}
spec:
  namespaceSelector: %s
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: team}
spec: {clusterQueue: main}
"""
JOB = """
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team, labels: {kueue.x-k8s.io/queue-name: queue}}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: none, resources: {requests: {cpu: %d}}}]}
"""
OTHER_NAMESPACE = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: other}}\n"
TEAM_NAMESPACE = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: team}}\n"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def explained(shell: Shell, path: Path, text: str) -> str:
    return shell("explain", "-n", "team", "-f", written(path / "case.yaml", text), "train").out


def test_namespaces_without_a_namespace_object_are_assumed_to_exist(shell: Shell, tmp_path: Path) -> None:
    out = explained(shell, tmp_path, QUEUES % "{}" + JOB % 2)
    assert "does not exist" not in out
    assert "1. raise nominalQuota of cpu in flavor plain of ClusterQueue main by 1, to 2\n" in out
    assert "1 hold quota, 0 wait" in shell("plan", "-f", written(tmp_path / "small", QUEUES % "{}" + JOB % 1)).out


def test_assumed_namespace_has_no_labels(shell: Shell, tmp_path: Path) -> None:
    out = explained(shell, tmp_path, QUEUES % "{matchLabels: {tier: gold}}" + JOB % 1)
    assert "namespace team is not selected by ClusterQueue main\n" in out


def test_given_namespaces_are_all_that_exist(shell: Shell, tmp_path: Path) -> None:
    out = explained(shell, tmp_path, QUEUES % "{}" + JOB % 1 + OTHER_NAMESPACE)
    assert "namespace team does not exist\n" in out


def test_namespace_of_a_submitted_job_is_assumed_unless_the_change_creates_it(shell: Shell, tmp_path: Path) -> None:
    here = written(tmp_path / "queues", QUEUES.replace("team", "elsewhere") % "{}")
    local_queue = QUEUES.rpartition("---")[2]
    change = written(tmp_path / "change", local_queue + JOB % 1)
    assert "Would start\n  team/job-train-" in shell("whatif", "--in", here, "-f", change).out
    created = written(tmp_path / "created", QUEUES % "{}" + JOB % 1)
    namespace = written(tmp_path / "namespace", TEAM_NAMESPACE)
    assert "Would start\n  team/job-train-" in shell("whatif", "--in", created, "-f", namespace).out


def test_lint_reports_nothing_about_namespaces_that_are_not_given(shell: Shell, tmp_path: Path) -> None:
    path = written(tmp_path / "case.yaml", QUEUES % "{matchLabels: {tier: gold}}")
    assert shell("lint", "-f", path) == (0, "no findings\n", "")
    with_one = written(tmp_path / "with-one.yaml", QUEUES % "{matchLabels: {tier: gold}}" + TEAM_NAMESPACE)
    assert "namespace" in shell("lint", "-f", with_one).out
