"""Preferred node affinity within one cycle (W10). The decisions as Kueue takes them were learned from its scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from kubemachinery import meta
from kubemachinery.yaml_documents import Document
from pykueue.analysis import planner

NOW = meta.parse_time("2026-01-01T00:00:00Z")
KUEUE = "kueue.x-k8s.io/v1beta2"
HOST = "kubernetes.io/hostname"


def node(name: str, disk: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, "disk": disk, "pool": "tas"}},
        "status": {"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def queue(name: str) -> list[dict[str, Any]]:
    quota = {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "10"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
    return [
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"clusterQueue": name},
        },
    ]


def workload(name: str, created: str, affinity: dict[str, Any], uid: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {"containers": [container], "affinity": {"nodeAffinity": affinity}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "creationTimestamp": created},
        "spec": {
            "queueName": name,
            "podSets": [
                {"name": "main", "count": 2, "template": {"spec": pod}, "topologyRequest": {"required": HOST}},
            ],
        },
    }


def documents() -> list[dict[str, Any]]:
    """Both Workloads are nominated on the small node with an SSD. The older one takes it, so the other, which prefers
    SSDs, is placed again: on the large node with an SSD if weights count, or on the small one without, the best fit."""
    on_ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    at_small = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["ssd-small"]}]}
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"TASRespectNodeAffinityPreferred": True},
    }
    topology = {"levels": [{"nodeLabel": HOST}]}
    flavor = {"nodeLabels": {"pool": "tas"}, "topologyName": "hosts"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [at_small]}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": on_ssd}]}
    return [
        configuration,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}},
        {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "hosts"}, "spec": topology},
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "tas"}, "spec": flavor},
        node("ssd-small", "ssd", "2"),
        node("ssd-large", "ssd", "4"),
        node("hdd-small", "hdd", "2"),
        *queue("a"),
        *queue("b"),
        workload("a", "2025-12-31T00:00:00Z", required, "a"),
        workload("b", "2025-12-31T00:00:01Z", preferred, "b"),
    ]


def node_of(name: str, *, departures: bool) -> str:
    case = planner.read([Document("case", {"apiVersion": "v1", "kind": "List", "items": documents()})])
    plan = planner.as_tree(planner.plan(case, NOW, departures=departures))
    (assigned,) = plan["assignments"][f"ns/{name}"]["podSetAssignments"]
    (part,) = assigned["topologyAssignment"]["slices"]
    (values,) = part["valuesPerLevel"]
    return str(values["universal"])


@pytest.mark.parametrize(
    ("departures", "second"),
    [(False, "hdd-small"), (True, "ssd-large")],
    ids=["as Kueue", "as the manager"],
)
def test_weights_count_in_a_repeated_placement_with_departures_only(departures: bool, second: str) -> None:
    assert node_of("a", departures=departures) == "ssd-small"
    assert node_of("b", departures=departures) == second
