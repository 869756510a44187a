"""KEP-7610: when the LocalQueues that a ClusterQueue would create conflict with existing ones."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery.field_errors import ErrorType
from pykueue.api.validation import default_local_queue_conflicts

Tree = dict[str, Any]


def cluster_queue(name: str, selector: Any = None, queue: str | None = "q", **metadata: Any) -> Tree:
    spec: Tree = {"namespaceSelector": selector}
    if queue is not None:
        spec["defaultLocalQueue"] = {"name": queue}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def expressions(*demands: tuple[str, str, list[str]]) -> Tree:
    return {"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in demands]}


def namespace(name: str, **labels: str) -> Tree:
    return {"metadata": {"name": name, "labels": labels}}


def local_queue(namespace: str, name: str = "q", made_by: str | None = None) -> Tree:
    notes = {} if made_by is None else {"kueue.x-k8s.io/created-by-clusterqueue": made_by}
    return {"metadata": {"name": name, "namespace": namespace, "annotations": notes}}


TEAM_A = {"matchLabels": {"team": "a"}}

# (what it shows, one selector, another, whether some namespace could match both)
SELECTORS = [
    ("the same labels", TEAM_A, TEAM_A, True),
    ("another value", TEAM_A, {"matchLabels": {"team": "b"}}, False),
    ("another key", TEAM_A, {"matchLabels": {"stage": "x"}}, True),
    ("more labels", TEAM_A, {"matchLabels": {"team": "a", "stage": "x"}}, True),
    ("another value and more labels", TEAM_A, {"matchLabels": {"team": "c", "stage": "x"}}, False),
    ("everything", TEAM_A, {}, True),
    ("nothing", TEAM_A, None, False),
    ("In and In with a common value", expressions(("t", "In", ["a", "b"])), expressions(("t", "In", ["b", "c"])), True),
    ("In and In apart", expressions(("t", "In", ["a", "b"])), expressions(("t", "In", ["c", "d"])), False),
    ("In and NotIn, one left", expressions(("t", "In", ["a", "b"])), expressions(("t", "NotIn", ["a"])), True),
    ("In and NotIn, none left", expressions(("t", "In", ["a", "b"])), expressions(("t", "NotIn", ["a", "b"])), False),
    ("NotIn and NotIn", expressions(("t", "NotIn", ["a"])), expressions(("t", "NotIn", ["b"])), True),
    ("Exists and DoesNotExist", expressions(("t", "Exists", [])), expressions(("t", "DoesNotExist", [])), False),
    ("Exists and NotIn", expressions(("t", "Exists", [])), expressions(("t", "NotIn", ["a"])), True),
    ("DoesNotExist and NotIn", expressions(("t", "DoesNotExist", [])), expressions(("t", "NotIn", ["a"])), True),
    ("DoesNotExist and In", expressions(("t", "DoesNotExist", [])), expressions(("t", "In", ["a"])), False),
    ("a label and In", {"matchLabels": {"t": "a"}}, expressions(("t", "In", ["a", "b"])), True),
    ("a label and NotIn", {"matchLabels": {"t": "a"}}, expressions(("t", "NotIn", ["a"])), False),
    ("a label and DoesNotExist", {"matchLabels": {"t": "a"}}, expressions(("t", "DoesNotExist", [])), False),
    ("an unreadable selector", TEAM_A, {"matchLabels": 7}, False),
]


@pytest.mark.parametrize(("one", "other", "collide"), [row[1:] for row in SELECTORS], ids=[row[0] for row in SELECTORS])
def test_two_queues_collide_when_a_namespace_could_match_both(one: Any, other: Any, collide: bool) -> None:
    for new, there in ((one, other), (other, one)):
        errors = default_local_queue_conflicts(cluster_queue("new", new), [cluster_queue("there", there)], [], [])
        assert bool(errors) is collide
        for error in errors:
            assert (error.path, error.type) == ("spec.defaultLocalQueue.name", ErrorType.INVALID)
            assert "ClusterQueue there" in error.message


@pytest.mark.parametrize(
    "other",
    [
        cluster_queue("new", TEAM_A),
        cluster_queue("other", TEAM_A, queue="another"),
        cluster_queue("other", TEAM_A, queue=None),
        cluster_queue("other", TEAM_A, deletionTimestamp="2025-01-01T00:00:00Z"),
    ],
    ids=["the queue itself", "another name", "without the feature", "one that is going"],
)
def test_disjoint_selectors_do_not_conflict(other: Tree) -> None:
    assert default_local_queue_conflicts(cluster_queue("new", TEAM_A), [other], [], []) == []


def test_every_other_cluster_queue_is_named_in_order() -> None:
    others = [cluster_queue(name, {}) for name in ("b", "a")]
    errors = default_local_queue_conflicts(cluster_queue("new", {}), others, [], [])
    assert [error.message.split()[1] for error in errors] == ["a", "b"]


def test_a_local_queue_of_that_name_in_a_matched_namespace_is_in_the_way() -> None:
    (error,) = default_local_queue_conflicts(
        cluster_queue("new", TEAM_A), [], [namespace("n1", team="a"), namespace("n2", team="b")], [local_queue("n1")]
    )
    assert error.path == "spec.defaultLocalQueue.name"
    assert error.message == "a LocalQueue of this name exists in namespace n1"


@pytest.mark.parametrize(
    ("namespaces", "queues"),
    [
        ([namespace("n", team="b")], [local_queue("n")]),
        ([namespace("n", team="a")], [local_queue("n", name="another")]),
        ([namespace("n", team="a")], [local_queue("n", made_by="new")]),
        ([{"metadata": {"name": "n", "labels": {"team": "a"}, "deletionTimestamp": "t"}}], [local_queue("n")]),
    ],
    ids=["namespace not matched", "another name", "its own", "namespace going"],
)
def test_what_is_not_in_the_way(namespaces: list[Tree], queues: list[Tree]) -> None:
    assert default_local_queue_conflicts(cluster_queue("new", TEAM_A), [], namespaces, queues) == []


def test_local_queue_of_another_owner_is_a_conflict() -> None:
    errors = default_local_queue_conflicts(
        cluster_queue("new", {}), [], [namespace("n")], [local_queue("n", made_by="other")]
    )
    assert len(errors) == 1


def test_five_namespaces_are_named_and_the_rest_is_counted() -> None:
    names = [f"n{number}" for number in range(8)]
    (error,) = default_local_queue_conflicts(
        cluster_queue("new", {}), [], [namespace(name) for name in names], [local_queue(name) for name in names]
    )
    assert error.message == "a LocalQueue of this name exists in namespaces n0, n1, n2, n3, n4 and 3 more"


def test_a_cluster_queue_that_is_being_deleted_is_never_refused() -> None:
    going = cluster_queue("new", {}, deletionTimestamp="2025-01-01T00:00:00Z")
    assert default_local_queue_conflicts(going, [cluster_queue("b", {})], [namespace("n")], [local_queue("n")]) == []
