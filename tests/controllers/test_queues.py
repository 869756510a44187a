"""What queues say of themselves, and what is kept while others need it."""

from __future__ import annotations

import time
from collections import Counter

from controllers.conftest import Story
from kubemachinery.unstructured import get


async def _status(story: Story, kind: str, name: str, *path: str) -> object:
    return get(await story.read(kind, name), "status", *path)


async def test_counts_and_usage_follow_the_workloads(story: Story) -> None:
    await story.queues(cpu="1")
    async with story.manager():
        await story.workload("runs")
        await story.workload("waits", cpu="1")

        async def counted() -> bool:
            queues = [await _status(story, *which) for which in (("ClusterQueue", "cq"), ("LocalQueue", "lq"))]
            return all(
                [get(one, each) for each in ("admittedWorkloads", "reservingWorkloads", "pendingWorkloads")]
                == [1, 1, 1]
                for one in queues
            )

        await story.until(counted)
        used = await _status(story, "ClusterQueue", "cq", "flavorsUsage")
        assert used == [{"name": "plain", "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}]


async def test_an_admission_is_one_write_and_a_rush_of_them_a_few_more_for_its_queues(story: Story) -> None:
    many = 60
    await story.queues(cpu=str(many))
    async with story.manager() as manager:
        await story.until_said("cq", "Active", "True/Ready", "ClusterQueue")
        await story.until_quiet(manager)
        before, began = Counter(manager.client.sent), time.monotonic()
        for number in range(many):
            await story.workload(f"w{number}")

        async def counted() -> bool:
            return await _status(story, "ClusterQueue", "cq", "admittedWorkloads") == many

        await story.until(counted)
        sent, seconds = Counter(manager.client.sent) - before, time.monotonic() - began
    assert sent["PATCH", "workloads"] == many
    assert sent["PATCH", "clusterqueues"] <= seconds + 1
    assert sent["PATCH", "localqueues"] <= seconds + 1


async def test_a_queue_whose_flavor_is_missing_says_so_and_admits_when_it_comes(story: Story) -> None:
    quota = {"name": "late", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await story.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await story.create("LocalQueue", "lq", {"clusterQueue": "cq"})
    async with story.manager():
        await story.workload("early")
        await story.until_said("cq", "Active", "False/FlavorNotFound", "ClusterQueue")
        await story.until_said("lq", "Active", "False/ClusterQueueIsInactive", "LocalQueue")
        await story.create("ResourceFlavor", "late", {})
        await story.until_said("early", "Admitted", "True/Admitted")
        await story.until_said("lq", "Active", "True/Ready", "LocalQueue")


async def test_a_queue_is_kept_while_somebody_holds_its_quota(story: Story) -> None:
    await story.queues()
    async with story.manager() as manager:
        await story.workload("runs")
        await story.until_said("runs", "Admitted", "True/Admitted")
        await story.delete("ClusterQueue", "cq")
        await story.until_said("cq", "Active", "False/Terminating", "ClusterQueue")
        await story.until_quiet(manager)
        assert await story.find("ClusterQueue", "cq") is not None
        await story.finish("runs")

        async def gone() -> bool:
            return await story.find("ClusterQueue", "cq") is None

        await story.until(gone)


async def test_a_flavor_is_kept_while_a_queue_lists_it(story: Story) -> None:
    await story.queues()
    async with story.manager() as manager:
        await story.delete("ResourceFlavor", "plain")
        await story.until_quiet(manager)
        assert await story.find("ResourceFlavor", "plain") is not None
        await story.delete("ClusterQueue", "cq")

        async def gone() -> bool:
            return await story.find("ResourceFlavor", "plain") is None

        await story.until(gone)


async def test_a_drained_queue_evicts_and_a_held_one_does_not(story: Story) -> None:
    await story.queues()
    async with story.manager() as manager:
        await story.workload("runs")
        await story.until_said("runs", "Admitted", "True/Admitted")
        await story.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "Hold"}})
        await story.until_said("cq", "Active", "False/Stopped", "ClusterQueue")
        await story.until_quiet(manager)
        assert await story.condition("runs", "Evicted") == ""
        await story.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await story.until_said("runs", "Evicted", "True/ClusterQueueStopped")


async def test_a_class_whose_value_changes_changes_its_workloads(story: Story) -> None:
    await story.queues(cpu="0")
    await story.create_class("team", 1)
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "team"}
    async with story.manager():
        await story.workload("waits", priority=1, priorityClassRef=reference)
        await story.patch("WorkloadPriorityClass", "team", {"value": 7})

        async def follows() -> bool:
            return get(await story.read("Workload", "waits"), "spec", "priority") == 7

        await story.until(follows)
