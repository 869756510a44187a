"""waitForPodsReady.blockAdmission: one after the other."""

from __future__ import annotations

import pytest

from controllers.conftest import Story, pod_set


async def test_nobody_is_let_in_before_the_pods_of_everybody_who_was_are_ready(story: Story) -> None:
    await story.queues(cpu="3")
    for name in ("a", "b"):
        await story.workload(name)
    async with story.manager(waitForPodsReady={"blockAdmission": True}) as manager:
        await story.until_quiet(manager)
        first = (await story.admitted())[0]
        second = "b" if first == "a" else "a"
        assert await story.condition(second, "QuotaReserved") == "False/WaitingForPodsReady"
        await story.say("Workload", first, "PodsReady", "True", "Started")
        await story.until_said(second, "Admitted", "True/Admitted")


@pytest.mark.parametrize("cohort", ["all", ""])
@pytest.mark.parametrize("first", ["a", "z"])
@pytest.mark.parametrize("by", ["priority", "age"])
async def test_block_admission_admits_the_first_in_scheduling_order(
    story: Story, cohort: str, first: str, by: str
) -> None:
    """By priority, then age, whatever the ClusterQueues are called and whether or not they share a cohort."""
    await story.create("ResourceFlavor", "plain", {})
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group], **({"cohortName": cohort} if cohort else {})}
    second = "z" if first == "a" else "a"
    for name in (first, second):
        await story.create("ClusterQueue", name, queue)
        await story.create("LocalQueue", name, {"clusterQueue": name})
    if by == "priority":
        for name, priority in ((second, 0), (first, 1)):
            await story.workload(name, queueName=name, priority=priority)
    else:
        await story.workload(first, queueName=first)
        created = (await story.read("Workload", first))["metadata"]["creationTimestamp"]

        async def is_younger() -> bool:
            await story.workload(second, queueName=second)
            if (await story.read("Workload", second))["metadata"]["creationTimestamp"] != created:
                return True
            await story.delete("Workload", second)
            return False

        await story.until(is_younger)
    async with story.manager(waitForPodsReady={"blockAdmission": True}):
        await story.until_said(second, "QuotaReserved", "False/WaitingForPodsReady")
        assert await story.admitted() == [first]
        await story.say("Workload", first, "PodsReady", "True", "Started")
        await story.until_said(second, "Admitted", "True/Admitted")


async def test_whoever_has_lost_his_node_gets_another_while_others_wait_for_his_pods(story: Story) -> None:
    """Finding a place is a decision as well: with none made before his pods are ready, they never would be."""
    await story.create("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    await story.queues(cpu="3")
    await story.patch("ResourceFlavor", "plain", {"spec": {"nodeLabels": {"pool": "a"}, "topologyName": "hosts"}})
    for node in ("n1", "n2"):
        await story.create("Node", node, {}, labels={"pool": "a", "kubernetes.io/hostname": node})
        await story.patch("Node", node, {"spec": {"taints": None}})
        ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
        status = {"allocatable": {"cpu": "1", "pods": "9"}, "conditions": [ready]}
        await story.patch("Node", node, {"status": status}, "status")
    request = {"required": "kubernetes.io/hostname"}
    await story.workload("first", podSets=[{**pod_set("1"), "topologyRequest": request}])
    async with story.manager(waitForPodsReady={"blockAdmission": True}):
        await story.until_said("first", "Admitted", "True/Admitted")
        await story.workload("second", podSets=[{**pod_set("1"), "topologyRequest": request}])
        await story.until_said("second", "QuotaReserved", "False/WaitingForPodsReady")
        lost = "n1" if "n1" in str((await story.read("Workload", "first"))["status"]["admission"]) else "n2"
        await story.delete("Node", lost)

        async def is_moved() -> bool:
            given = str((await story.read("Workload", "first"))["status"]["admission"])
            return lost not in given and ("n1" in given or "n2" in given)

        await story.until(is_moved)
