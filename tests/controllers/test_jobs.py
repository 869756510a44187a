"""From a Job that somebody submits to its end."""

from __future__ import annotations

from pathlib import Path

from controllers.conftest import Story, told
from kubemachinery.unstructured import get


async def _is_suspended(story: Story, name: str) -> bool:
    return bool(get(await story.read("Job", name), "spec", "suspend"))


async def _workload_of(story: Story, job: str) -> str:
    """The name of the one Workload that a Job owns."""

    async def owned() -> list[str]:
        return [
            each["metadata"]["name"]
            for each in await story.all("Workload")
            if any(owner["name"] == job for owner in each["metadata"].get("ownerReferences") or [])
        ]

    await story.until(owned)
    found = await owned()
    assert len(found) == 1
    return found[0]


async def _starts(story: Story, name: str) -> None:
    async def runs() -> bool:
        return not await _is_suspended(story, name)

    await story.until(runs)


async def test_a_job_is_suspended_at_the_door_and_started_when_there_is_room(story: Story) -> None:
    await story.queues(cpu="1")
    assert get(await story.job("first"), "spec", "suspend") is True
    async with story.manager():
        await _starts(story, "first")
        await story.job("second")
        waiting = await _workload_of(story, "second")
        await story.until_said(waiting, "QuotaReserved", "False/WaitingForQuota")
        assert await _is_suspended(story, "second")
        done = {"type": "Complete", "status": "True", "reason": "", "message": ""}
        finished = {
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:00:00Z",
            "succeeded": 1,
            "uncountedTerminatedPods": {},
            "conditions": [{**done, "type": "SuccessCriteriaMet"}, done],
        }
        await story.patch("Job", "first", {"status": finished}, "status")
        await story.until_said(await _workload_of(story, "first"), "Finished", "True/Succeeded")
        await _starts(story, "second")


async def test_a_preempted_job_is_stopped_and_waits_again(story: Story) -> None:
    await story.create_class("urgent", 100)
    await story.queues(cpu="1", preemption={"withinClusterQueue": "LowerPriority"})
    async with story.manager():
        await story.job("low")
        await _starts(story, "low")
        await story.job("high", **{"kueue.x-k8s.io/priority-class": "urgent"})
        await _starts(story, "high")
        low = await _workload_of(story, "low")
        await story.until_said(low, "QuotaReserved", "False/WaitingForQuota")
        assert await _is_suspended(story, "low")


async def test_a_job_whose_workload_is_deactivated_stops(story: Story) -> None:
    await story.queues()
    async with story.manager():
        await story.job("first")
        await _starts(story, "first")
        workload = await _workload_of(story, "first")
        await story.patch("Workload", workload, {"spec": {"active": False}})
        await story.until(lambda: _is_suspended(story, "first"))
        await story.until_said(workload, "Evicted", "True/Deactivated")


async def test_a_job_that_was_let_in_while_nobody_looked_is_stopped_until_there_is_room(story: Story) -> None:
    await story.queues(cpu="1")
    await story.job("sneaky", cpu="5")
    await story.patch("Job", "sneaky", {"spec": {"suspend": False}})
    async with story.manager():
        await story.until(lambda: _is_suspended(story, "sneaky"))


async def test_a_group_whose_name_was_taken_gets_its_workload_when_the_stranger_is_gone(tmp_path: Path) -> None:
    frameworks = {"integrations": {"frameworks": ["pod"]}}
    async with told(tmp_path, **frameworks) as story, story.manager(**frameworks) as manager:
        await story.queues("1")
        await story.workload("crew", active=False)
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
        marks = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/pod-group-name": "crew"}
        total = {"kueue.x-k8s.io/pod-group-total-count": "1"}
        await story.create("Pod", "one", spec, labels=marks, annotations=total)
        await story.until_quiet(manager, 0.5)
        assert "ownerReferences" not in (await story.read("Workload", "crew"))["metadata"]

        await story.delete("Workload", "crew")
        await story.until_said("crew", "Admitted", "True/Admitted")
