"""Suggestions and explanations with the nodes in view: quota that no node can hold lets nothing run."""

from __future__ import annotations

import json
import shlex
import textwrap
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.states import case_of
from kubemachinery import codec
from laws.random_clusters import NOW, ClusterCase, QueueCase, QuotaCase, WorkloadCase
from pykueue.analysis.explanation import explain
from pykueue.analysis.suggestion_search import Suggestion
from pykueue.api import kube, kueue
from pykueue.testing import Kueue, system

MACHINE_CPUS = 8
HELD_SECONDS = 120


def with_quota(system: Kueue, cpus: int) -> None:
    """The default ClusterQueue with this much cpu."""
    groups = system.get("clusterqueue", "default")["spec"]["resourceGroups"]
    for quota in groups[0]["flavors"][0]["resources"]:
        if quota["name"] == "cpu":
            quota["nominalQuota"] = str(cpus)
    system.patch("clusterqueue", "default", {"spec": {"resourceGroups": groups}})


def follow(system: Kueue, suggestion: Suggestion) -> None:
    """Follow a suggestion: run the commands that it prints, and wait where it suggests to."""
    for part in suggestion.changes:
        if not part.how():
            assert part.sentence().startswith("wait for")
            system.advance(2 * HELD_SECONDS)
            continue
        _, verb, kind, name, *rest = shlex.split(part.how())
        assert verb == "patch"
        patch = json.loads(rest[-1])
        if "--type=json" not in rest:
            system.patch(kind, name, patch)
            continue
        tree = system.get(kind, name)
        for change in patch:
            at: Any = tree
            *path, last = change["path"].strip("/").split("/")
            for step in path:
                at = at[int(step)] if isinstance(at, list) else at[step]
            at[last] = change["value"]
        system.patch(kind, name, {"spec": tree["spec"]})


@settings(max_examples=10)
@given(st.integers(1, MACHINE_CPUS), st.integers(0, MACHINE_CPUS), st.integers(1, 2 * MACHINE_CPUS))
def test_following_the_first_suggestion_starts_the_job_unless_it_has_a_warning(
    quota: int, held: int, asked: int
) -> None:
    with system() as made:
        with_quota(made, quota)
        if 0 < held <= quota:
            made.submit(["sleep", str(HELD_SECONDS)], cpu=held, name="holder")
        job = made.submit(["sleep", str(100 * HELD_SECONDS)], cpu=asked, name="asks")
        if made.status(job).state != "Waiting":
            return
        first = made.explain(job).suggestions[0]
        follow(made, first)
        made.advance(5)
        shown = made.status(job)
        if first.warning:
            assert (shown.state, "no node fits: 1 of 1 has too little cpu" in shown.message) == ("Starting", True)
            assert first.warning.endswith("no node fits: 1 of 1 has too little cpu")
        else:
            assert shown.state == "Running"


def test_suggestion_beyond_the_nodes_has_a_warning_and_comes_last(kueue: Kueue) -> None:
    job = kueue.submit(["sleep", "60"], cpu=64)
    explained = kueue.explain(job)
    why_not = "its pods will stay Pending: no node fits: 1 of 1 has too little cpu"
    assert {each.warning for each in explained.suggestions} == {why_not}
    assert why_not in explained.causes
    assert explained.tree()["suggestions"][0]["warning"] == why_not

    with_quota(kueue, 1)
    kueue.submit(["sleep", "600"], cpu=1, name="holder")
    waits = kueue.submit(["sleep", "60"], cpu=1, name="waits")
    assert [each.warning for each in kueue.explain(waits).suggestions] == [""] * len(kueue.explain(waits).suggestions)


def test_admitted_job_without_a_node_shows_the_reason_everywhere(kueue: Kueue) -> None:
    job = kueue.submit(["sleep", "60"], cpu=64, name="big")
    follow(kueue, kueue.explain(job).suggestions[0])
    reason = "no node fits: 1 of 1 has too little cpu"
    assert kueue.status(job).message.endswith(reason)
    [entry] = kueue.queue()
    assert (entry.status.state, entry.status.message.endswith(reason)) == ("Starting", True)
    explained = kueue.explain(job)
    assert explained.state == "Admitted"
    assert explained.causes[-1].endswith(reason)
    events = [each for each in kueue.all("event") if each["reason"] == "FailedScheduling"]
    assert [each["note"] for each in events] == [reason]


@pytest.mark.kueue(runner="none")
def test_without_nodes_no_cause_mentions_them(kueue: Kueue) -> None:
    kueue.apply(
        textwrap.dedent("""
        {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: any}}
        ---
        apiVersion: kueue.x-k8s.io/v1beta2
        kind: ClusterQueue
        metadata: {name: all}
        spec:
          namespaceSelector: {}
          resourceGroups:
          - {coveredResources: [cpu], flavors: [{name: any, resources: [{name: cpu, nominalQuota: 2}]}]}
        ---
        {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: default}, spec: {clusterQueue: all}}
        """)
    )
    explained = kueue.explain(kueue.submit(["sleep", "60"], cpu=64))
    assert [each.warning for each in explained.suggestions] == [""]
    assert not any("node" in cause for cause in explained.causes)


def node(name: str, cpu: int, **labels: str) -> kube.Node:
    tree = {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": str(cpu), "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return codec.from_tree(tree, kube.Node)


QUEUE = QueueCase("q0", "", (QuotaCase(10, None, None),), "Never", "Never", False)


@pytest.mark.parametrize(
    ("nodes", "labels", "warning"),
    [
        ([node("a", 16)], {}, ""),
        ([node("a", 4), node("b", 4)], {}, "its pods will stay Pending: no node fits: 2 of 2 have too little cpu"),
        (
            [node("a", 16), node("b", 16)],
            {"zone": "x"},
            "its pods will stay Pending: no node fits: 2 of 2 lack the labels that the pod selects",
        ),
        ([node("a", 16), node("b", 16, zone="x")], {"zone": "x"}, ""),
    ],
)
def test_nodes_are_those_that_the_flavor_selects(nodes: list[kube.Node], labels: dict[str, str], warning: str) -> None:
    case = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 12, 0, 1),), False))

    def labelled(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.ResourceFlavor):
            return thing
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, node_labels=labels))

    case = case.with_objects([*map(labelled, case.objects), *nodes])
    explained = explain(case, "ns/w1", NOW)
    assert [each.warning for each in explained.suggestions if each.kind == "quota"] == [warning]


def test_no_warning_about_nodes_where_admission_checks_may_provision_them() -> None:
    case = case_of(ClusterCase((), (QUEUE,), (WorkloadCase(1, "q0", 12, 0, 1),), False))
    check = kueue.AdmissionCheck(metadata=codec.from_tree({"metadata": {"name": "c"}}, kueue.AdmissionCheck).metadata)

    def checked(thing: msgspec.Struct) -> msgspec.Struct:
        if not isinstance(thing, kueue.ClusterQueue):
            return thing
        rules = kueue.AdmissionChecksStrategy(admission_checks=(kueue.AdmissionCheckStrategyRule(name="c"),))
        return msgspec.structs.replace(thing, spec=msgspec.structs.replace(thing.spec, admission_checks_strategy=rules))

    case = case.with_objects([*map(checked, case.objects), check, node("a", 4)])
    assert not any(each.warning for each in explain(case, "ns/w1", NOW).suggestions)
