"""AdmissionChecks of MultiKueue, which is not implemented: inactive with a reason, and no quota is held for them."""

from __future__ import annotations

from controllers.conftest import Environment
from kubemachinery.unstructured import get

MULTIKUEUE = {"controllerName": "kueue.x-k8s.io/multikueue"}
WHY = "MultiKueue is not implemented in this version"


async def _activity(env: Environment, kind: str, name: str) -> tuple[str, str, str]:
    for condition in get(await env.read(kind, name), "status", "conditions") or []:
        if condition["type"] == "Active":
            return condition["status"], condition["reason"], condition["message"]
    return "", "", ""


async def test_a_multikueue_check_is_inactive_with_a_reason(env: Environment) -> None:
    await env.create("AdmissionCheck", "mk", MULTIKUEUE)
    await env.create("AdmissionCheck", "other", {"controllerName": "example.com/budget"})
    async with env.manager() as manager:

        async def has_condition() -> bool:
            return await _activity(env, "AdmissionCheck", "mk") == ("False", "MultiKueueNotImplemented", WHY)

        await env.until(has_condition)
        await env.until_quiet(manager)
        assert await _activity(env, "AdmissionCheck", "other") == ("", "", "")


async def test_a_check_that_kueue_left_active_closes_its_queue(env: Environment) -> None:
    await env.create("AdmissionCheck", "mk", MULTIKUEUE)
    await env.set_condition("AdmissionCheck", "mk", "Active", "True", "Active")
    await env.queues(admissionChecksStrategy={"admissionChecks": [{"name": "mk"}]})
    async with env.manager():
        await env.job("waits")

        async def is_closed() -> bool:
            return (await _activity(env, "ClusterQueue", "cq"))[:2] == ("False", "AdmissionCheckInactive")

        async def is_free() -> bool:
            return bool(await env.all("Workload")) and not await env.admitted()

        await env.until(is_closed)
        # It may have reserved quota before the check was seen; that is released.
        await env.until(is_free)
