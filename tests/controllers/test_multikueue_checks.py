"""AdmissionChecks of MultiKueue, which is not implemented: inactive with a reason, and no quota is held for them."""

from __future__ import annotations

from controllers.conftest import Story
from kubemachinery.unstructured import get

MULTIKUEUE = {"controllerName": "kueue.x-k8s.io/multikueue"}
WHY = "MultiKueue is not implemented in this version"


async def _activity(story: Story, kind: str, name: str) -> tuple[str, str, str]:
    for condition in get(await story.read(kind, name), "status", "conditions") or []:
        if condition["type"] == "Active":
            return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


async def test_a_check_of_multikueue_is_inactive_and_says_why(story: Story) -> None:
    await story.create("AdmissionCheck", "mk", MULTIKUEUE)
    await story.create("AdmissionCheck", "other", {"controllerName": "example.com/budget"})
    async with story.manager() as manager:

        async def is_said() -> bool:
            return await _activity(story, "AdmissionCheck", "mk") == ("False", "MultiKueueNotImplemented", WHY)

        await story.until(is_said)
        await story.until_quiet(manager)
        assert await _activity(story, "AdmissionCheck", "other") == ("", "", "")


async def test_a_check_that_kueue_left_active_closes_its_queue(story: Story) -> None:
    await story.create("AdmissionCheck", "mk", MULTIKUEUE)
    await story.say("AdmissionCheck", "mk", "Active", "True", "Active")
    await story.queues(admissionChecksStrategy={"admissionChecks": [{"name": "mk"}]})
    async with story.manager():
        await story.job("waits")

        async def is_closed() -> bool:
            return (await _activity(story, "ClusterQueue", "cq"))[:2] == ("False", "AdmissionCheckInactive")

        async def is_free() -> bool:
            return bool(await story.all("Workload")) and not await story.admitted()

        await story.until(is_closed)
        # It may have reserved quota before the check was seen; that is released.
        await story.until(is_free)
