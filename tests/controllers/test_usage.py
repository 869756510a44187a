"""Admission fair sharing: what a LocalQueue has used lately counts when the next Workload is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controllers.conftest import Story, pod_set, told
from pykueue.api.trees import get

SHARING: dict[str, Any] = {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1s"}}


async def test_the_queue_that_has_used_less_goes_first(tmp_path: Path) -> None:
    async with told(tmp_path, **SHARING) as story:
        await story.queues(cpu="1", admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
        await story.create("LocalQueue", "other", {"clusterQueue": "cq"})
        async with story.manager(**SHARING):
            await story.workload("greedy")
            await story.until_said("greedy", "Admitted", "True/Admitted")
            await story.workload("again", priority=5)
            await story.until_said("again", "QuotaReserved", "False/WaitingForQuota")
            modest = {"queueName": "other", "podSets": [pod_set("1")]}
            await story.create("Workload", "modest", modest)
            await story.finish("greedy")
            await story.until_said("modest", "Admitted", "True/Admitted")
            assert await story.admitted() == ["modest"]  # though the other has the higher priority
            await story.until(lambda: _has_figures(story))


async def _has_figures(story: Story) -> bool:
    found = await story.read("LocalQueue", "lq")
    return bool(get(found, "status", "fairSharing", "admissionFairSharingStatus", "consumedResources", "cpu"))
