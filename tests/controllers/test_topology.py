"""Pods of a placed Job pass their gate to their node, and a lost node is replaced."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controllers.conftest import Environment, pod_set, template
from kubemachinery import codec
from kubemachinery.clock import SystemClock
from kubemachinery.meta import SECOND, format_time
from kubemachinery.unstructured import get
from pykueue.api import kube, kueue, registry, topology_encoding
from pykueue.controllers import topology

HOST = "kubernetes.io/hostname"
RACK = "example.com/rack"
POD = registry.KUBERNETES.of(kube.Pod)


async def _fleet(env: Environment) -> None:
    for name in ("n1", "n2", "n3"):
        await env.create("Node", name, {}, labels={"pool": "tas", RACK: "r1", HOST: name})
        status = {
            "allocatable": {"cpu": "1", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Fine"}],
        }
        await env.patch("Node", name, {"status": status}, "status")
        await env.patch("Node", name, {"spec": {"taints": None}})
    await env.create("Topology", "t", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})
    await env.create("ResourceFlavor", "tas", {"nodeLabels": {"pool": "tas"}, "topologyName": "t"})
    quota = {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "10"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await env.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})


async def _placed_job(env: Environment) -> str:
    """A Job of two pods that is admitted; the name of its Workload."""
    marks = {"kueue.x-k8s.io/podset-required-topology": RACK}
    spec = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": {**template("1"), "metadata": {"annotations": marks}},
    }
    await env.create("Job", "two", spec, labels={"kueue.x-k8s.io/queue-name": "lq"})
    await env.until(lambda: env.admitted())
    return (await env.admitted())[0]


async def _pod(env: Environment, index: int, workload: str) -> None:
    """Play the Job controller."""
    made = template("1")["spec"]
    await env.create(
        "Pod",
        f"two-{index}",
        {**made, "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]},
        labels={"batch.kubernetes.io/job-completion-index": str(index), "kueue.x-k8s.io/podset": "main"},
        annotations={"kueue.x-k8s.io/workload": workload, "kueue.x-k8s.io/podset-required-topology": RACK},
    )


async def _node_of(env: Environment, index: int) -> Any:
    found = await env.read("Pod", f"two-{index}")
    return None if get(found, "spec", "schedulingGates") else get(found, "spec", "nodeSelector", HOST)


async def test_every_pod_passes_to_the_node_of_its_rank(env: Environment) -> None:
    await _fleet(env)
    async with env.manager():
        workload = await _placed_job(env)
        for index in (1, 0):
            await _pod(env, index, workload)
        await env.until(lambda: _node_of(env, 0))
        await env.until(lambda: _node_of(env, 1))
        assert [await _node_of(env, 0), await _node_of(env, 1)] == ["n1", "n2"]


async def test_a_node_that_is_gone_is_replaced_by_another_of_the_rack(env: Environment) -> None:
    await _fleet(env)
    async with env.manager():
        workload = await _placed_job(env)
        await env.delete("Node", "n2")

        async def moved() -> bool:
            found = await env.read("Workload", workload)
            where = str(get(found, "status", "admission", "podSetAssignments")[0]["topologyAssignment"])
            return "n3" in where or "3" in where

        await env.until(moved)
        assert get(await env.read("Workload", workload), "status", "unhealthyNodes") is None
        assert await env.condition(workload, "Evicted") == ""


async def test_a_failed_placement_on_the_first_flavor_is_reported_though_the_next_one_fits(
    env: Environment,
) -> None:
    await _fleet(env)
    await env.create("ResourceFlavor", "empty", {"nodeLabels": {"pool": "none"}, "topologyName": "t"})
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "10"}]} for name in ("empty", "tas")]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})
    await env.workload("w", podSets=[{**pod_set("1"), "topologyRequest": {"required": RACK}}])
    async with env.manager():
        await env.until_condition("w", "Admitted", "True/Admitted")

        async def is_notified() -> bool:
            found = (await env.client.list(registry.KUBERNETES.of(kube.Event), "default")).items
            return any(msgspec.json.decode(item)["reason"] == "TopologyPlacementFailed" for item in found)

        await env.until(is_notified)


@pytest.mark.parametrize("by_prefix", [True, False])
async def test_assignments_are_split_by_host_name_prefix_only_with_the_gate(env: Environment, by_prefix: bool) -> None:
    pools = ("gke-cluster-a-rather-long-name", "gke-cluster-another-quite-different-name")
    names = [f"{pool}-node-{number:04}" for pool in pools for number in range(6)]
    for name in names:
        await env.create("Node", name, {}, labels={"pool": "tas", HOST: name})
        ready = [{"type": "Ready", "status": "True", "reason": "Fine"}]
        status = {"allocatable": {"cpu": "1", "pods": "10"}, "conditions": ready}
        await env.patch("Node", name, {"status": status}, "status")
        await env.patch("Node", name, {"spec": {"taints": None}})
    await env.create("Topology", "t", {"levels": [{"nodeLabel": HOST}]})
    await env.create("ResourceFlavor", "tas", {"nodeLabels": {"pool": "tas"}, "topologyName": "t"})
    quota = {"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "20"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await env.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})
    async with env.manager(featureGates={"TASAssignmentsEncodingByHostnamePrefix": by_prefix}):
        await env.create("Workload", "wide", {"queueName": "lq", "podSets": [pod_set("1", count=len(names))]})
        await env.until(env.admitted)
        (assigned,) = get(await env.read("Workload", "wide"), "status", "admission", "podSetAssignments")
    assert len(assigned["topologyAssignment"]["slices"]) == (2 if by_prefix else 1)
    assert len(topology_encoding.decode(assigned["topologyAssignment"]) or ()) == len(names)


# --- Nodes that ail ---------------------------------------------------------------------------------------------------

WITHOUT_TERMINATION = {"featureGates": {"TASReplaceNodeOnPodTermination": False}}


async def _gates_off(env: Environment, workload: str) -> None:
    """Both pods of the Job are past the gate, to n1 and n2."""
    for index in (0, 1):
        await _pod(env, index, workload)
        await env.until(lambda index=index: _node_of(env, index))  # type: ignore[misc]


async def _runs(env: Environment, index: int) -> None:
    """Play the scheduler and the kubelet."""
    name, node = f"two-{index}", await _node_of(env, index)
    binding = {"metadata": {"name": name, "namespace": "default"}, "target": {"kind": "Node", "name": node}}
    await env.client.create(POD, binding, subresource="binding")
    await env.patch("Pod", name, {"status": {"phase": "Running"}}, "status")


async def _not_ready(env: Environment, name: str, since: str | None = None) -> None:
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": since}
    await env.patch("Node", name, {"status": {"conditions": [condition]}}, "status")


async def _taint(env: Environment, name: str, effect: str = "NoSchedule") -> None:
    await env.patch("Node", name, {"spec": {"taints": [{"key": "broken", "value": "yes", "effect": effect}]}})


async def _placed_on(env: Environment, workload: str) -> set[str]:
    found = codec.from_tree(await env.read("Workload", workload), kueue.Workload)
    return set(topology._hosts(found))


async def _is_failed(env: Environment, name: str) -> bool:
    """Whether a pod was failed by the manager, with its condition and its Event."""
    found = await env.read("Pod", name)
    conditions = {one["type"]: one for one in get(found, "status", "conditions") or ()}
    mark = conditions.get("TerminatedByKueue")
    if get(found, "status", "phase") != "Failed" or mark is None:
        return False
    assert (mark["status"], mark["reason"]) == ("True", "UnschedulableOnAssignedNode")
    events = [event for event in await env.all("Event") if event["regarding"]["name"] == name]
    return "PodTerminatedByKueue" in [event["reason"] for event in events]


async def test_a_tainted_node_is_replaced_once_none_of_its_pods_goes_on(env: Environment) -> None:
    await _fleet(env)
    async with env.manager() as manager:
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _runs(env, 1)
        await _taint(env, "n2", "NoExecute")
        await env.until_quiet(manager)
        assert await _placed_on(env, workload) == {"n1", "n2"}, "a pod of it still runs there"
        await env.patch("Pod", "two-1", {"status": {"phase": "Failed"}}, "status")

        async def moved() -> bool:
            return await _placed_on(env, workload) == {"n1", "n3"}

        await env.until(moved)


async def test_pods_that_wait_for_an_ailing_node_are_failed(env: Environment) -> None:
    await _fleet(env)
    async with env.manager():
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _taint(env, "n2")
        await env.until(lambda: _is_failed(env, "two-1"))
        assert get(await env.read("Pod", "two-0"), "status", "phase") == "Pending"


async def test_a_pod_that_waits_for_an_ailing_node_is_failed_while_another_runs_there(env: Environment) -> None:
    await _fleet(env)
    async with env.manager():
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _runs(env, 1)
        await _taint(env, "n2")
        await _stray(env, workload, nodeSelector={HOST: "n2"})
        await env.until(lambda: _is_failed(env, "stray"))
        assert await _placed_on(env, workload) == {"n1", "n2"}


async def test_a_tolerated_taint_costs_nothing(env: Environment) -> None:
    await _fleet(env)
    tolerated = [{"key": "broken", "operator": "Exists"}]
    await env.patch("ResourceFlavor", "tas", {"spec": {"tolerations": tolerated}})
    async with env.manager() as manager:
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _taint(env, "n2")
        await env.until_quiet(manager)
        assert await _placed_on(env, workload) == {"n1", "n2"}
        assert get(await env.read("Pod", "two-1"), "status", "phase") == "Pending"


async def test_taints_are_ignored_without_their_gate(env: Environment) -> None:
    await _fleet(env)
    async with env.manager(featureGates={"TASReplaceNodeOnNodeTaints": False}) as manager:
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _taint(env, "n2")
        await env.until_quiet(manager)
        assert await _placed_on(env, workload) == {"n1", "n2"}


@pytest.mark.parametrize("how", ["not ready", "tainted"])
async def test_without_pod_termination_an_ailing_node_is_replaced_although_pods_run_there(
    env: Environment, how: str
) -> None:
    await _fleet(env)
    async with env.manager(**WITHOUT_TERMINATION):
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _runs(env, 1)
        if how == "tainted":
            await _taint(env, "n2")
        else:
            await _not_ready(env, "n2", "2020-01-01T00:00:00Z")

        async def moved() -> bool:
            return await _placed_on(env, workload) == {"n1", "n3"}

        await env.until(moved)


async def test_without_pod_termination_a_node_may_be_not_ready_for_half_a_minute(env: Environment) -> None:
    await _fleet(env)
    async with env.manager(**WITHOUT_TERMINATION) as manager:
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _not_ready(env, "n2", format_time(SystemClock().now() + 3600 * SECOND))
        await env.until_quiet(manager)
        assert await _placed_on(env, workload) == {"n1", "n2"}


async def test_after_a_fixed_time_a_node_that_is_not_ready_is_replaced_although_pods_run_there(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another event: its time is up a second after it turned so."""
    monkeypatch.setattr(topology, "_NOT_READY_NANOSECONDS", SECOND)
    await _fleet(env)
    async with env.manager(featureGates={"TASReplaceNodeDueToNotReadyOverFixedTime": True}):
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _runs(env, 1)
        await _not_ready(env, "n2", format_time(SystemClock().now()))

        async def moved() -> bool:
            return await _placed_on(env, workload) == {"n1", "n3"}

        await env.until(moved)
        assert get(await env.read("Pod", "two-1"), "status", "phase") == "Running"


async def test_before_the_fixed_time_a_node_is_replaced_once_none_of_its_pods_goes_on(env: Environment) -> None:
    await _fleet(env)
    async with env.manager(featureGates={"TASReplaceNodeDueToNotReadyOverFixedTime": True}) as manager:
        workload = await _placed_job(env)
        await _gates_off(env, workload)
        await _runs(env, 1)
        await _not_ready(env, "n2", format_time(SystemClock().now() + 3600 * SECOND))
        await env.until_quiet(manager)
        assert await _placed_on(env, workload) == {"n1", "n2"}, "a pod of it still runs there"
        await env.patch("Pod", "two-1", {"status": {"phase": "Failed"}}, "status")

        async def moved() -> bool:
            return await _placed_on(env, workload) == {"n1", "n3"}

        await env.until(moved)


async def test_a_node_that_recovers_is_not_listed_any_more(env: Environment) -> None:
    await _fleet(env)
    await env.delete("Node", "n3")  # there is no replacement
    async with env.manager(featureGates={"TASFailedNodeReplacementFailFast": False}):
        workload = await _placed_job(env)

        async def listed() -> list[str]:
            found = get(await env.read("Workload", workload), "status", "unhealthyNodes")
            return [node["name"] for node in found or ()]

        async def recovered() -> bool:
            return not await listed()

        await _taint(env, "n2")
        await env.until(listed)
        assert await listed() == ["n2"]
        await env.patch("Node", "n2", {"spec": {"taints": None}})
        await env.until(recovered)
        assert await _placed_on(env, workload) == {"n1", "n2"}
        # The watch may show the list only when the node has recovered.
        await env.patch("Workload", workload, {"status": {"unhealthyNodes": [{"name": "n1"}]}}, "status")
        await env.until(recovered)


async def test_a_placement_on_a_node_that_was_lost_meanwhile_is_replaced(env: Environment) -> None:
    await _fleet(env)
    async with env.manager() as manager:
        workload = await _placed_job(env)
        await _taint(env, "n3")
        await env.until_quiet(manager)
        admission = get(await env.read("Workload", workload), "status", "admission")
        (assigned,) = admission["podSetAssignments"]
        placed = [topology_encoding.EncodedDomain((name,), 1) for name in ("n1", "n3")]
        assigned["topologyAssignment"] = topology_encoding.encode([HOST], placed)
        await env.patch("Workload", workload, {"status": {"admission": admission}}, "status")

        async def moved() -> bool:
            return await _placed_on(env, workload) == {"n1", "n2"}

        await env.until(moved)


async def _stray(env: Environment, workload: str, **spec: Any) -> None:
    """A pod that was made late, from a template of before a replacement."""
    marks = {"kueue.x-k8s.io/workload": workload, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    made = {**template("1")["spec"], "nodeSelector": {HOST: "n3"}, **spec}
    await env.create("Pod", "stray", made, annotations=marks)


async def test_a_pod_on_a_node_outside_of_the_assignment_is_failed(env: Environment) -> None:
    await _fleet(env)
    async with env.manager():
        workload = await _placed_job(env)
        await _stray(env, workload)
        await env.until(lambda: _is_failed(env, "stray"))
        assert await _placed_on(env, workload) == {"n1", "n2"}


async def test_a_pinned_pod_of_a_workload_that_is_not_admitted_is_failed(env: Environment) -> None:
    await _fleet(env)
    await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "Hold"}})
    await env.workload("w")
    async with env.manager():
        await _stray(env, "w")
        await env.until(lambda: _is_failed(env, "stray"))


@pytest.mark.parametrize("why", ["gated", "scheduled", "not by topology", "no such Workload"])
async def test_other_pods_outside_of_the_assignment_are_left_alone(env: Environment, why: str) -> None:
    await _fleet(env)
    async with env.manager() as manager:
        workload = await _placed_job(env)
        more: dict[str, Any] = {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]} if why == "gated" else {}
        more |= {"nodeName": "n3"} if why == "scheduled" else {}
        if why == "not by topology":
            marks = {"kueue.x-k8s.io/workload": workload}
            pinned = {**template("1")["spec"], "nodeSelector": {HOST: "n3"}}
            await env.create("Pod", "stray", pinned, annotations=marks)
        else:
            await _stray(env, "other" if why == "no such Workload" else workload, **more)
        await _taint(env, "n3")
        await env.until_quiet(manager)
        assert get(await env.read("Pod", "stray"), "status", "phase") == "Pending"
