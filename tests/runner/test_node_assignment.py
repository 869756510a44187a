"""A pod is assigned to the first node that fits; if none does, the reasons are counted."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.runner import node_assignment
from pykueue.runner.node_assignment import NodeAllocations


def node(name: str, cpu: str = "4", *, ready: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "3"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}], **spec},
    }


def test_first_node_with_free_capacity_is_selected() -> None:
    allocations = NodeAllocations()
    nodes = [node("a", "2"), node("b", "4")]
    assert node_assignment.select_node(pod("2"), nodes, allocations) == "a"
    allocations.take("u1", "a", pod("2"))
    assert node_assignment.select_node(pod("2"), nodes, allocations) == "b"
    assert allocations.free("u1")
    assert node_assignment.select_node(pod("2"), nodes, allocations) == "a"
    assert not allocations.free("u1"), "resources are released once"


def test_pod_is_counted_once() -> None:
    allocations = NodeAllocations()
    for _ in range(3):
        allocations.take("u1", "a", pod("2"))
    assert node_assignment.select_node(pod("2"), [node("a", "4")], allocations) == "a"


@pytest.mark.parametrize(
    ("wanted", "there", "why"),
    [
        (pod("8"), node("a"), "has too little cpu"),
        (pod(), node("a", ready=False), "is not ready"),
        (pod(), node("a", unschedulable=True), "is unschedulable"),
        (pod(nodeSelector={"zone": "x"}), node("a", labels={"zone": "y"}), "lacks the labels"),
        (pod(), node("a", taints=[{"key": "k", "effect": "NoSchedule"}]), "has taint k"),
    ],
)
def test_unfit_node_has_a_reason(wanted: Any, there: Any, why: str) -> None:
    with pytest.raises(LookupError, match=f"^no node fits: 1 of 1 {why}"):
        node_assignment.select_node(wanted, [there], NodeAllocations())


def test_number_of_pods_is_limited() -> None:
    allocations = NodeAllocations()
    for number in range(3):
        allocations.take(f"u{number}", "a", pod("0"))
    with pytest.raises(LookupError, match="has too many pods"):
        node_assignment.select_node(pod("0"), [node("a")], allocations)


def test_reasons_are_counted() -> None:
    there = [node("a"), node("b"), node("c", ready=False)]
    with pytest.raises(LookupError, match=r"^no node fits: 2 of 3 have too little cpu, 1 of 3 is not ready$"):
        node_assignment.select_node(pod("8"), there, NodeAllocations())


def test_without_nodes_no_node_fits() -> None:
    with pytest.raises(LookupError, match="there are no nodes"):
        node_assignment.select_node(pod(), [], NodeAllocations())
