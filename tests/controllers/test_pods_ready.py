"""waitForPodsReady.blockAdmission: one after the other."""

from __future__ import annotations

from controllers.conftest import Story


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
