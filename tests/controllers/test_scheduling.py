"""From a Workload that somebody made to its end, with nobody but the manager."""

from __future__ import annotations

from controllers.conftest import Story


async def test_a_workload_is_admitted_and_its_end_makes_room_for_the_next(story: Story) -> None:
    async with story.manager():
        await story.queues(cpu="1")
        await story.workload("first")
        await story.until_said("first", "Admitted", "True/Admitted")
        await story.workload("second")
        await story.until_said("second", "QuotaReserved", "False/WaitingForQuota")
        await story.finish("first")
        await story.until_said("second", "Admitted", "True/Admitted")


async def test_quota_and_admission_are_one_write_of_the_status(story: Story) -> None:
    async with story.manager() as manager:
        await story.queues()
        before = int((await story.workload("only"))["metadata"]["resourceVersion"])
        await story.until_said("only", "Admitted", "True/Admitted")
        await story.until_quiet(manager)
        writes = manager.client.sent["PATCH", "workloads"]
        assert writes == 1, before


async def test_a_workload_of_higher_priority_takes_the_place_of_a_lower_one(story: Story) -> None:
    async with story.manager():
        await story.queues(cpu="1", preemption={"withinClusterQueue": "LowerPriority"})
        await story.workload("low", priority=1)
        await story.until_said("low", "Admitted", "True/Admitted")
        await story.workload("high", priority=2)
        await story.until_said("low", "Evicted", "True/Preempted")
        await story.until_said("high", "QuotaReserved", "False/WaitingForPreemptedWorkloads")
        assert await story.admitted() == ["low"]  # its quota stays taken until whoever runs it has stopped
