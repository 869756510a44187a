"""A manager that comes back finds everything in the cluster, and changes nothing that was settled."""

from __future__ import annotations

from controllers.conftest import Story


async def test_a_restart_admits_nothing_new(story: Story) -> None:
    await story.queues(cpu="2")
    async with story.manager() as first:
        for name in ("a", "b", "c"):
            await story.workload(name)
        await story.until_said("c", "QuotaReserved", "False/WaitingForQuota")
        await story.until_quiet(first)
        running = await story.admitted()
    before = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await story.all("Workload")}
    async with story.manager() as second:
        await story.until_quiet(second, looks=50)
        assert await story.admitted() == running
        after = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await story.all("Workload")}
        assert after == before  # not even a condition is written again


async def test_what_was_decided_while_nobody_was_there_is_seen_at_once(story: Story) -> None:
    await story.queues(cpu="1")
    async with story.manager():
        await story.workload("a")
        await story.until_said("a", "Admitted", "True/Admitted")
        await story.workload("b")
        await story.until_said("b", "QuotaReserved", "False/WaitingForQuota")
    await story.finish("a")
    async with story.manager():
        await story.until_said("b", "Admitted", "True/Admitted")
