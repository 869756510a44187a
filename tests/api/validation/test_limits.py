"""How much of a thing an object may have: the last number that is accepted, and the first that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykueue.api import validation

Tree = dict[str, Any]


def tree(kind: str, spec: Tree) -> Tree:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def pod_set(number: int) -> Tree:
    return {"name": f"p{number}", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}


def group(number: int) -> Tree:
    quota = {"name": f"example.com/r{number}", "nominalQuota": "1"}
    return {
        "coveredResources": [quota["name"]],
        "flavors": [{"name": f"f{number}", "resources": [quota]}],
    }


def check(number: int) -> Tree:
    return {"name": f"c{number}"}


# (kind, how many, where it is counted, a specification with so many)
LIMITS: list[tuple[str, int, str, Callable[[range], Tree]]] = [
    ("Workload", 18, "spec.podSets", lambda n: {"podSets": [pod_set(i) for i in n]}),
    (
        "Workload",
        8,
        "spec.preemptionGates",
        lambda n: {"podSets": [pod_set(0)], "preemptionGates": [{"name": f"g{i}"} for i in n]},
    ),
    ("ClusterQueue", 16, "spec.resourceGroups", lambda n: {"resourceGroups": [group(i) for i in n]}),
    ("Cohort", 16, "spec.resourceGroups", lambda n: {"resourceGroups": [group(i) for i in n]}),
    (
        "ClusterQueue",
        64,
        "spec.admissionChecksStrategy.admissionChecks",
        lambda n: {"admissionChecksStrategy": {"admissionChecks": [check(i) for i in n]}},
    ),
    (
        "ClusterQueue",
        64,
        "spec.excludeResourcePrefixes",
        lambda n: {"excludeResourcePrefixes": [f"p{i}.example/" for i in n]},
    ),
    ("ClusterQueue", 253, "spec.cohortName", lambda n: {"cohortName": "a" * len(n)}),
    ("ResourceFlavor", 8, "spec.nodeLabels", lambda n: {"nodeLabels": {f"k{i}": "v" for i in n}}),
    (
        "ResourceFlavor",
        8,
        "spec.nodeTaints",
        lambda n: {"nodeTaints": [{"key": f"k{i}", "value": "v", "effect": "NoSchedule"} for i in n]},
    ),
    (
        "ResourceFlavor",
        8,
        "spec.tolerations",
        lambda n: {"tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in n]},
    ),
    ("Topology", 16, "spec.levels", lambda n: {"levels": [{"nodeLabel": f"example.com/l{i}"} for i in n]}),
    ("AdmissionCheck", 253, "spec.controllerName", lambda n: {"controllerName": "x" * len(n)}),
    ("MultiKueueConfig", 20, "spec.clusters", lambda n: {"clusters": [f"w{i}" for i in n]}),
]


@pytest.mark.parametrize(
    ("kind", "limit", "path", "spec"), LIMITS, ids=[f"{kind} {path}: {limit}" for kind, limit, path, _ in LIMITS]
)
def test_so_many_and_not_one_more(kind: str, limit: int, path: str, spec: Callable[[range], Tree]) -> None:
    assert validation.validate(tree(kind, spec(range(limit)))) == []
    errors = validation.validate(tree(kind, spec(range(limit + 1))))
    assert {error.path for error in errors} - {""} == {path}


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({}, "metadata.name"),
        ({"name": "x", "labels": {"@k": "v"}}, "metadata.labels"),
        ({"name": "x", "annotations": {"@k": "v"}}, "metadata.annotations"),
        ({"name": "x", "annotations": {"k": "v" * 256 * 1024}}, "metadata.annotations"),
    ],
)
def test_metadata_is_validated_as_by_an_api_server(metadata: Tree, path: str) -> None:
    errors = validation.validate({**tree("LocalQueue", {"clusterQueue": "q"}), "metadata": metadata})
    assert [error.path for error in errors] == [path]


def test_a_name_may_be_left_to_the_server() -> None:
    queue = {**tree("LocalQueue", {"clusterQueue": "q"}), "metadata": {"generateName": "q-"}}
    assert validation.validate(queue) == []
