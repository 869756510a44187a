"""waitForPodsReady.blockAdmission: one after the other."""

from __future__ import annotations

import pytest

from controllers.conftest import Environment, pod_set
from pykueue.controllers.assembly import Manager


async def test_block_admission_waits_for_the_pods_of_all_admitted_workloads(env: Environment) -> None:
    await env.queues(cpu="3")
    for name in ("a", "b"):
        await env.workload(name)
    async with env.manager(waitForPodsReady={"blockAdmission": True}) as manager:
        await env.until_quiet(manager)
        first = (await env.admitted())[0]
        second = "b" if first == "a" else "a"
        assert await env.condition(second, "QuotaReserved") == "False/WaitingForPodsReady"
        await env.set_condition("Workload", first, "PodsReady", "True", "Started")
        await env.until_condition(second, "Admitted", "True/Admitted")


@pytest.mark.parametrize("cohort", ["all", ""])
@pytest.mark.parametrize("first", ["a", "z"])
@pytest.mark.parametrize("by", ["priority", "age"])
async def test_block_admission_admits_the_first_in_scheduling_order(
    env: Environment, cohort: str, first: str, by: str
) -> None:
    """By priority, then age, whatever the ClusterQueues are called and whether or not they share a cohort."""
    await env.create("ResourceFlavor", "plain", {})
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group], **({"cohortName": cohort} if cohort else {})}
    second = "z" if first == "a" else "a"
    for name in (first, second):
        await env.create("ClusterQueue", name, queue)
        await env.create("LocalQueue", name, {"clusterQueue": name})
    if by == "priority":
        for name, priority in ((second, 0), (first, 1)):
            await env.workload(name, queueName=name, priority=priority)
    else:
        await env.workload(first, queueName=first)
        created = (await env.read("Workload", first))["metadata"]["creationTimestamp"]

        async def is_younger() -> bool:
            await env.workload(second, queueName=second)
            if (await env.read("Workload", second))["metadata"]["creationTimestamp"] != created:
                return True
            await env.delete("Workload", second)
            return False

        await env.until(is_younger)
    async with env.manager(waitForPodsReady={"blockAdmission": True}):
        await env.until_condition(second, "QuotaReserved", "False/WaitingForPodsReady")
        assert await env.admitted() == [first]
        await env.set_condition("Workload", first, "PodsReady", "True", "Started")
        await env.until_condition(second, "Admitted", "True/Admitted")


async def test_a_failed_node_is_replaced_while_admission_is_blocked(env: Environment) -> None:
    """A second pass is a decision as well: if it waited for the pods to be ready, they never would be. The delay before
    it does not let another Workload have the node."""
    await env.create("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    await env.queues(cpu="3")
    await env.patch("ResourceFlavor", "plain", {"spec": {"nodeLabels": {"pool": "a"}, "topologyName": "hosts"}})
    for node in ("n1", "n2"):
        await env.create("Node", node, {}, labels={"pool": "a", "kubernetes.io/hostname": node})
        await env.patch("Node", node, {"spec": {"taints": None}})
        ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
        status = {"allocatable": {"cpu": "1", "pods": "9"}, "conditions": [ready]}
        await env.patch("Node", node, {"status": status}, "status")
    request = {"required": "kubernetes.io/hostname"}
    await env.workload("first", podSets=[{**pod_set("1"), "topologyRequest": request}])
    async with env.manager(waitForPodsReady={"blockAdmission": True}):
        await env.until_condition("first", "Admitted", "True/Admitted")
        await env.workload("second", podSets=[{**pod_set("1"), "topologyRequest": request}])
        await env.until_condition("second", "QuotaReserved", "False/WaitingForPodsReady")
        lost = "n1" if "n1" in str((await env.read("Workload", "first"))["status"]["admission"]) else "n2"
        await env.delete("Node", lost)

        async def is_moved() -> bool:
            given = str((await env.read("Workload", "first"))["status"]["admission"])
            return lost not in given and ("n1" in given or "n2" in given)

        await env.until(is_moved)
        # Tried after the second pass of the same cycle, which has taken the only node that is left.
        await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
        assert await env.admitted() == ["first"]


async def test_the_time_limit_of_a_deleted_workload_is_dropped(env: Environment) -> None:
    """Otherwise its key would be kept for the half hour in which its pods had to become ready."""
    await env.queues(cpu="3")
    await env.workload("a")
    async with env.manager(waitForPodsReady={"timeout": "30m"}) as manager:
        await env.until_condition("a", "Admitted", "True/Admitted")
        await env.until(lambda: _waits(manager))
        await env.delete("Workload", "a")
        await env.until(lambda: _waits_for_nothing(manager))


async def _waits(manager: Manager) -> bool:
    return any(loop.name == "workload" and not loop.queue.busy and not loop.queue.idle for loop in manager.loops)


async def _waits_for_nothing(manager: Manager) -> bool:
    return all(loop.queue.idle for loop in manager.loops if loop.name == "workload")
