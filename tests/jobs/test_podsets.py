"""What admission defines for pods, how it is injected into a template, and how the template is restored."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jobs.job_harness import OPTIONS, flavor
from kubemachinery import codec
from kubemachinery.unstructured import Tree
from pykueue.api import kueue, labels
from pykueue.jobs import podsets
from pykueue.jobs.interface import PodSetTemplate
from pykueue.jobs.podsets import Missing, PodSetConflict, PodSetInfo, StartContext

BLUE = flavor("blue", nodeLabels={"pool": "blue"}, tolerations=[{"key": "blue", "operator": "Exists"}])
GREEN = flavor("green", nodeLabels={"arch": "arm"}, tolerations=[{"key": "green", "operator": "Exists"}])
FLAVORS = {"blue": BLUE, "green": GREEN}


def admitted(
    assignment: Tree,
    checks: tuple[Tree, ...] = (),
    cluster_queue: str = "cq",
    marks: Tree | None = None,
    **pod_set: Any,
) -> Any:
    """How the pods of a Workload with one pod set of five are started."""
    entry = {"name": "main", "count": 5, "template": {"spec": {"containers": []}}, **pod_set}
    tree: dict[str, Any] = {
        "metadata": {"name": "w", "namespace": "main", "labels": marks or {}},
        "spec": {"queueName": "lq", "podSets": [entry]},
        "status": {
            "admission": {"clusterQueue": cluster_queue, "podSetAssignments": [{"name": "main", **assignment}]},
            "admissionChecks": [
                {"name": f"c{i}", "state": "Ready", "lastTransitionTime": "", "message": "", "podSetUpdates": [update]}
                for i, update in enumerate(checks)
            ],
        },
    }
    found = podsets.admitted(codec.from_tree(tree, kueue.Workload), StartContext(FLAVORS))
    return found[0] if isinstance(found, tuple) else found


# --- From an admission ------------------------------------------------------------------------------------------------


def test_labels_and_tolerations_of_all_flavors_come_together_each_flavor_once() -> None:
    info = admitted({"flavors": {"cpu": "blue", "memory": "blue", "gpu": "green"}})
    assert info.node_selector == {"pool": "blue", "arch": "arm"}
    assert [toleration["key"] for toleration in info.tolerations] == ["blue", "green"]


def test_count_is_the_granted_one() -> None:
    assert admitted({"flavors": {"cpu": "blue"}, "count": 3}).count == 3
    assert admitted({"flavors": {"cpu": "blue"}}).count == 5


def test_queue_name_that_is_no_label_value_is_not_copied() -> None:
    """Edge case 32"""
    marks = admitted({"flavors": {"cpu": "blue"}}, cluster_queue="team.a").labels
    assert marks == {labels.PODSET: "main", labels.LOCAL_QUEUE_NAME: "lq"}


def test_pods_of_a_workload_that_a_manager_cluster_created_are_marked() -> None:
    """[JP1]"""
    mark = "kueue.x-k8s.io/multikueue-worker-workload-pod"
    dispatched = admitted({"flavors": {"cpu": "blue"}}, marks={labels.MULTIKUEUE_ORIGIN: "multikueue"})
    assert dispatched.labels[mark] == "true"
    assert mark not in admitted({"flavors": {"cpu": "blue"}}).labels


def test_an_assigned_place_holds_pods_until_they_are_sent_there() -> None:
    place = {"levels": ["kubernetes.io/hostname"], "slices": []}
    info = admitted({"flavors": {"cpu": "blue"}, "topologyAssignment": place})
    assert info.scheduling_gates == ({"name": labels.TOPOLOGY_GATE},)
    assert info.annotations[labels.PODSET_UNCONSTRAINED_TOPOLOGY] == "true"
    asked = admitted(
        {"flavors": {"cpu": "blue"}, "topologyAssignment": place},
        topologyRequest={"required": "kubernetes.io/hostname"},
    )
    assert labels.PODSET_UNCONSTRAINED_TOPOLOGY not in asked.annotations


@pytest.mark.parametrize(
    ("assigned", "pools"),
    [
        ([("a", "blue"), ("b", "green")], [{"pool": "blue"}, {"arch": "arm"}]),
        ([("b", "green"), ("a", "blue")], [{"pool": "blue"}, {"arch": "arm"}]),
        ([("x", "green"), ("y", "blue")], [{"arch": "arm"}, {"pool": "blue"}]),
        ([("b", "green"), ("y", "blue")], [{"arch": "arm"}, {"pool": "blue"}]),
    ],
    ids=["in order", "out of order", "other names", "some other names"],
)
def test_assignments_belong_to_pod_sets_by_name_and_by_position_where_names_differ(
    assigned: list[tuple[str, str]], pools: list[Tree]
) -> None:
    entries = [{"name": name, "flavors": {"cpu": flavor}} for name, flavor in assigned]
    pod_sets: list[dict[str, Any]] = [
        {"name": name, "count": 1, "template": {"spec": {"containers": []}}} for name in ("a", "b")
    ]
    tree: dict[str, Any] = {
        "metadata": {"name": "w", "namespace": "main"},
        "spec": {"podSets": pod_sets},
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": entries}},
    }
    infos = podsets.admitted(codec.from_tree(tree, kueue.Workload), StartContext(FLAVORS))
    assert isinstance(infos, tuple)
    assert [(info.name, info.node_selector) for info in infos] == list(zip(("a", "b"), pools, strict=True))
    del tree["status"]["admission"]["podSetAssignments"][1]
    assert isinstance(podsets.admitted(codec.from_tree(tree, kueue.Workload), StartContext(FLAVORS)), PodSetConflict)


def test_missing_flavor_is_retried() -> None:
    assert isinstance(admitted({"flavors": {"cpu": "red"}}), Missing)


@pytest.mark.parametrize("field", ["labels", "annotations", "nodeSelector"])
def test_checks_may_agree_but_not_contradict_each_other(field: str) -> None:
    """Edge case 31"""
    one, same = {"name": "main", field: {"k": "1"}}, {"name": "main", field: {"k": "1"}}
    other = {"name": "main", field: {"k": "2"}}
    assert isinstance(admitted({"flavors": {"cpu": "blue"}}, (one, same)), PodSetInfo)
    found = admitted({"flavors": {"cpu": "blue"}}, (one, other))
    assert isinstance(found, PodSetConflict)
    assert "c1" in found.message


# --- Into a template --------------------------------------------------------------------------------------------------

TEMPLATE: Tree = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "t"}], "containers": []},
}


def test_admission_is_added_to_the_template_of_the_user() -> None:
    info = PodSetInfo("main", 1, node_selector={"pool": "blue"}, tolerations=({"key": "t"}, {"key": "u"}))
    found = podsets.injected(TEMPLATE, info)
    assert not isinstance(found, PodSetConflict)
    assert found["spec"]["nodeSelector"] == {"zone": "a", "pool": "blue"}
    assert found["spec"]["tolerations"] == [{"key": "t"}, {"key": "u"}]
    assert TEMPLATE["spec"]["nodeSelector"] == {"zone": "a"}


@pytest.mark.parametrize(
    ("written", "added", "is_added"),
    [
        ({"key": "t", "value": "v"}, {"key": "t", "operator": "Equal", "value": "v"}, False),
        ({"key": "t", "operator": "Equal", "value": "v"}, {"key": "t", "value": "v"}, False),
        ({"key": "t", "operator": "Exists", "tolerationSeconds": 9}, {"key": "t", "operator": "Exists"}, False),
        ({"key": "t", "value": "v"}, {"key": "t", "value": "w"}, True),
        ({"key": "t", "value": "v"}, {"key": "t", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "t"}, {"key": "t", "operator": "Exists"}, True),
    ],
    ids=["operator added", "operator left out", "seconds", "value", "effect", "operator"],
)
def test_a_toleration_is_added_once(written: Tree, added: Tree, is_added: bool) -> None:
    """[LC83] Key, operator, value and effect decide; no operator is the operator Equal."""
    template = {**TEMPLATE, "spec": {"tolerations": [written]}}
    found = podsets.injected(template, PodSetInfo("main", 1, tolerations=(added,)))
    assert not isinstance(found, PodSetConflict)
    assert found["spec"]["tolerations"] == ([written, added] if is_added else [written])


def test_a_value_of_the_user_is_never_overwritten() -> None:
    found = podsets.injected(TEMPLATE, PodSetInfo("main", 1, node_selector={"zone": "b"}))
    assert isinstance(found, PodSetConflict)
    assert "'a'" in found.message
    assert "'b'" in found.message


def test_the_mark_of_an_earlier_slice_gives_way() -> None:
    marked = podsets.injected(
        TEMPLATE, PodSetInfo("main", 1, annotations={labels.WORKLOAD_SLICE_NAME: "s", labels.WORKLOAD: "w1"})
    )
    assert not isinstance(marked, PodSetConflict)
    requeue_after = podsets.injected(
        marked, PodSetInfo("main", 1, annotations={labels.WORKLOAD_SLICE_NAME: "s", labels.WORKLOAD: "w2"})
    )
    assert not isinstance(requeue_after, PodSetConflict)
    assert requeue_after["metadata"]["annotations"][labels.WORKLOAD] == "w2"


def test_restoring_replaces_and_keeps_given_labels() -> None:
    running = {
        "metadata": {"labels": {"app": "x", "mine": "1", labels.PODSET: "main"}, "annotations": {"a": "b"}},
        "spec": {"nodeSelector": {"pool": "blue"}, "schedulingGates": [{"name": "g"}], "containers": []},
    }
    back = podsets.restored(running, PodSetInfo("main", 1, labels={"app": "x"}), ("mine",))
    assert back == {"metadata": {"labels": {"app": "x", "mine": "1"}}, "spec": {"containers": []}}


# --- Topology requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({}, {}),
        ({labels.PODSET_REQUIRED_TOPOLOGY: "rack"}, {"required": "rack"}),
        ({labels.PODSET_PREFERRED_TOPOLOGY: "rack"}, {"preferred": "rack"}),
        ({labels.PODSET_UNCONSTRAINED_TOPOLOGY: "true"}, {"unconstrained": True}),
        (
            {labels.PODSET_SLICE_REQUIRED_TOPOLOGY: "rack", labels.PODSET_SLICE_SIZE: "4"},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
        ),
        (
            {labels.PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: '[{"topology": "rack", "size": 4}]'},
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 4}]},
        ),
    ],
)
def test_annotations_become_a_topology_request(annotations: Tree, request_: Tree) -> None:
    metadata = {"annotations": annotations}
    assert podsets.topology_request(metadata, PodSetTemplate("main", (), 8)) == request_


def test_without_the_gate_there_is_no_topology_request() -> None:
    template = PodSetTemplate("main", ("spec", "template"), 1, pod_index_label="index")
    job = {"spec": {"template": TEMPLATE}}
    assert podsets.build(job, template, OPTIONS)["topologyRequest"] == {"podIndexLabel": "index"}
    assert "topologyRequest" not in podsets.build(job, template, replace(OPTIONS, topology=False))


# --- Places in trees --------------------------------------------------------------------------------------------------


def test_a_spot_may_lead_through_lists() -> None:
    tree = {"spec": {"steps": [{"template": {"spec": 1}}, {"template": {"spec": 2}}]}}
    spot = ("spec", "steps", 1, "template")
    assert podsets.at(tree, spot) == {"spec": 2}
    assert podsets.put_at(tree, spot, {"spec": 3})["spec"]["steps"] == [
        {"template": {"spec": 1}},
        {"template": {"spec": 3}},
    ]
    assert podsets.at(tree, ("spec", "steps", 7, "template")) == {}
