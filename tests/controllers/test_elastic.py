"""An elastic Job that grows: its new pods wait at their gate until the larger slice is admitted."""

from __future__ import annotations

from controllers.conftest import Story, template
from pykueue.api.trees import get


async def _pod(story: Story, name: str) -> None:
    """Play the Job controller: a pod as the template of the Job says."""
    made = get(await story.read("Job", "grows"), "spec", "template")
    marks = made.get("metadata") or {}
    await story.create(
        "Pod", name, made["spec"], labels=marks.get("labels") or {}, annotations=marks.get("annotations") or {}
    )


async def _gates(story: Story, name: str) -> list[str]:
    return [gate["name"] for gate in get(await story.read("Pod", name), "spec", "schedulingGates") or []]


async def test_a_job_that_grows_gets_its_new_pods_with_its_new_slice(story: Story) -> None:
    await story.queues(cpu="3")
    async with story.manager():
        spec = {"parallelism": 1, "completions": 9, "template": template("1")}
        await story.create(
            "Job",
            "grows",
            spec,
            labels={"kueue.x-k8s.io/queue-name": "lq"},
            annotations={"kueue.x-k8s.io/elastic-job": "true"},
        )

        async def runs() -> bool:
            return get(await story.read("Job", "grows"), "spec", "suspend") is False

        await story.until(runs)
        await _pod(story, "grows-1")
        assert await _gates(story, "grows-1")

        async def first_passed() -> bool:
            return not await _gates(story, "grows-1")

        await story.until(first_passed)
        await _pod(story, "grows-2")
        assert await _gates(story, "grows-2")  # one pod is admitted, and it runs
        await story.patch("Job", "grows", {"spec": {"parallelism": 2}})

        async def second_passed() -> bool:
            return not await _gates(story, "grows-2")

        await story.until(second_passed)
        held = [get(each, "status", "admission", "podSetAssignments")[0]["count"] for each in await _slices(story)]
        assert held == [2]


async def _slices(story: Story) -> list[dict[str, object]]:
    """The slices that are not replaced."""
    names = await story.admitted()
    return [each for each in await story.all("Workload") if each["metadata"]["name"] in names]
