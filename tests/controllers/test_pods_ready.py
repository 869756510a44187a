"""waitForPodsReady.blockAdmission: one after the other."""

from __future__ import annotations

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
