"""Objects that the webhook cannot decode are refused before any rule is evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api.validation import filled, unreadable

Tree = dict[str, Any]


def tree(kind: str, version: str = "v1beta2", **spec: Any) -> Tree:
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def quota(value: Any) -> Tree:
    resources = [{"name": "cpu", "nominalQuota": value}]
    return tree("ClusterQueue", resourceGroups=[{"flavors": [{"name": "f", "resources": resources}]}])


def container(requests: Tree) -> Tree:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    return tree("Workload", podSets=[{"name": "main", "template": template}])


@pytest.mark.parametrize("value", ["5", "5000m", 3, "-1", None])
def test_quantities_are_read_whatever_they_are_worth(value: Any) -> None:
    assert unreadable(quota(value)) is None


@pytest.mark.parametrize(
    ("sent", "begins"),
    [
        (quota("five"), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: 'five' is not a quantity"),
        (container({"cpu": "many"}), "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: 'many'"),
        (tree("Workload", priority="high"), "spec.priority: "),
        (tree("Workload", podSets=[{"count": 2**31}]), "spec.podSets[0].count: 2147483648 has more than the 32 bits"),
        (tree("ClusterQueue", resourceGroups={}), "spec.resourceGroups: "),
        (tree("ResourceFlavor", nodeLabels=["a"]), "spec.nodeLabels: "),
    ],
)
def test_undecodable_value_is_reported_with_its_path(sent: Tree, begins: str) -> None:
    assert str(unreadable(sent)).startswith(begins)


@pytest.mark.parametrize(
    "sent",
    [tree("Cohort", parentName=7), tree("ClusterQueue", "v1beta1", cohort=7), {"kind": "Job"}, {}],
    ids=["no webhook fills it in", "the older version", "not ours", "nothing"],
)
def test_kinds_without_a_webhook_are_left_to_the_schema(sent: Tree) -> None:
    assert unreadable(sent) is None


def test_a_null_in_a_list_is_read_as_something_empty() -> None:
    """It may be refused for what it lacks, but not for being there."""
    sent = tree("ResourceFlavor", nodeTaints=[None, {"key": "a", "effect": "NoSchedule"}])
    assert str(unreadable(sent)).startswith("spec.nodeTaints[0]: ")
    assert filled(sent)["spec"]["nodeTaints"] == [{}, {"key": "a", "effect": "NoSchedule"}]
    assert unreadable(filled(sent)) is None
    assert filled(tree("ClusterQueue", resourceGroups=[{"coveredResources": [None]}]))["spec"]["resourceGroups"] == [
        {"coveredResources": [""]}
    ]
