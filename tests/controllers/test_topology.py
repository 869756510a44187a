"""Pods of a placed Job pass their gate to their node, and a lost node is replaced."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controllers.conftest import Story, pod_set, template
from pykueue.api import kube, registry, topology_encoding
from pykueue.api.trees import get

HOST = "kubernetes.io/hostname"
RACK = "example.com/rack"


async def _fleet(story: Story) -> None:
    for name in ("n1", "n2", "n3"):
        await story.create("Node", name, {}, labels={"pool": "tas", RACK: "r1", HOST: name})
        status = {
            "allocatable": {"cpu": "1", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Fine"}],
        }
        await story.patch("Node", name, {"status": status}, "status")
        await story.patch("Node", name, {"spec": {"taints": None}})
    await story.create("Topology", "t", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    await story.create("ResourceFlavor", "tas", {"nodeLabels": {"pool": "tas"}, "topologyName": "t"})
    quota = {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "10"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await story.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await story.create("LocalQueue", "lq", {"clusterQueue": "cq"})


async def _placed_job(story: Story) -> str:
    """A Job of two pods that is admitted; the name of its Workload."""
    marks = {"kueue.x-k8s.io/podset-required-topology": RACK}
    spec = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": {**template("1"), "metadata": {"annotations": marks}},
    }
    await story.create("Job", "two", spec, labels={"kueue.x-k8s.io/queue-name": "lq"})
    await story.until(lambda: story.admitted())
    return (await story.admitted())[0]


async def _pod(story: Story, index: int, workload: str) -> None:
    """Play the Job controller."""
    made = template("1")["spec"]
    await story.create(
        "Pod",
        f"two-{index}",
        {**made, "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]},
        labels={"batch.kubernetes.io/job-completion-index": str(index), "kueue.x-k8s.io/podset": "main"},
        annotations={"kueue.x-k8s.io/workload": workload, "kueue.x-k8s.io/podset-required-topology": RACK},
    )


async def _node_of(story: Story, index: int) -> Any:
    found = await story.read("Pod", f"two-{index}")
    return None if get(found, "spec", "schedulingGates") else get(found, "spec", "nodeSelector", HOST)


async def test_every_pod_passes_to_the_node_of_its_rank(story: Story) -> None:
    await _fleet(story)
    async with story.manager():
        workload = await _placed_job(story)
        for index in (1, 0):
            await _pod(story, index, workload)
        await story.until(lambda: _node_of(story, 0))
        await story.until(lambda: _node_of(story, 1))
        assert [await _node_of(story, 0), await _node_of(story, 1)] == ["n1", "n2"]


async def test_a_node_that_is_gone_is_replaced_by_another_of_the_rack(story: Story) -> None:
    await _fleet(story)
    async with story.manager():
        workload = await _placed_job(story)
        await story.delete("Node", "n2")

        async def moved() -> bool:
            found = await story.read("Workload", workload)
            where = str(get(found, "status", "admission", "podSetAssignments")[0]["topologyAssignment"])
            return "n3" in where or "3" in where

        await story.until(moved)
        assert get(await story.read("Workload", workload), "status", "unhealthyNodes") is None
        assert await story.condition(workload, "Evicted") == ""


async def test_that_there_was_no_place_of_the_first_flavor_is_told_though_the_next_one_has_one(story: Story) -> None:
    await _fleet(story)
    await story.create("ResourceFlavor", "empty", {"nodeLabels": {"pool": "none"}, "topologyName": "t"})
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "10"}]} for name in ("empty", "tas")]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    await story.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})
    await story.workload("w", podSets=[{**pod_set("1"), "topologyRequest": {"required": RACK}}])
    async with story.manager():
        await story.until_said("w", "Admitted", "True/Admitted")

        async def is_told() -> bool:
            found = (await story.client.list(registry.KUBERNETES.of(kube.Event), "default")).items
            return any(msgspec.json.decode(item)["reason"] == "TopologyPlacementFailed" for item in found)

        await story.until(is_told)


@pytest.mark.parametrize("by_prefix", [True, False])
async def test_assignments_are_split_by_host_name_prefix_only_with_the_gate(story: Story, by_prefix: bool) -> None:
    pools = ("gke-cluster-a-rather-long-name", "gke-cluster-another-quite-different-name")
    names = [f"{pool}-node-{number:04}" for pool in pools for number in range(6)]
    for name in names:
        await story.create("Node", name, {}, labels={"pool": "tas", HOST: name})
        ready = [{"type": "Ready", "status": "True", "reason": "Fine"}]
        status = {"allocatable": {"cpu": "1", "pods": "10"}, "conditions": ready}
        await story.patch("Node", name, {"status": status}, "status")
        await story.patch("Node", name, {"spec": {"taints": None}})
    await story.create("Topology", "t", {"levels": [{"nodeLabel": HOST}]})
    await story.create("ResourceFlavor", "tas", {"nodeLabels": {"pool": "tas"}, "topologyName": "t"})
    quota = {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "20"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await story.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await story.create("LocalQueue", "lq", {"clusterQueue": "cq"})
    async with story.manager(featureGates={"TASAssignmentsEncodingByHostnamePrefix": by_prefix}):
        await story.create("Workload", "wide", {"queueName": "lq", "podSets": [pod_set("1", count=len(names))]})
        await story.until(story.admitted)
        (assigned,) = get(await story.read("Workload", "wide"), "status", "admission", "podSetAssignments")
    assert len(assigned["topologyAssignment"]["slices"]) == (2 if by_prefix else 1)
    assert len(topology_encoding.decode(assigned["topologyAssignment"]) or ()) == len(names)
