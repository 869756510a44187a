"""A Job from its submission to its end."""

from __future__ import annotations

from pathlib import Path

from controllers.conftest import Environment, environment
from kubemachinery.unstructured import get


async def _is_suspended(env: Environment, name: str) -> bool:
    return bool(get(await env.read("Job", name), "spec", "suspend"))


async def _workload_of(env: Environment, job: str) -> str:
    """The name of the one Workload that a Job owns."""

    async def owned() -> list[str]:
        return [
            each["metadata"]["name"]
            for each in await env.all("Workload")
            if any(owner["name"] == job for owner in each["metadata"].get("ownerReferences") or [])
        ]

    await env.until(owned)
    found = await owned()
    assert len(found) == 1
    return found[0]


async def _starts(env: Environment, name: str) -> None:
    async def runs() -> bool:
        return not await _is_suspended(env, name)

    await env.until(runs)


async def test_a_job_is_suspended_on_creation_and_started_when_it_fits(env: Environment) -> None:
    await env.queues(cpu="1")
    assert get(await env.job("first"), "spec", "suspend") is True
    async with env.manager():
        await _starts(env, "first")
        await env.job("second")
        waiting = await _workload_of(env, "second")
        await env.until_condition(waiting, "QuotaReserved", "False/WaitingForQuota")
        assert await _is_suspended(env, "second")
        done = {"type": "Complete", "status": "True", "reason": "", "message": ""}
        finished = {
            "startTime": "2026-01-01T00:00:00Z",
            "completionTime": "2026-01-01T00:00:00Z",
            "succeeded": 1,
            "uncountedTerminatedPods": {},
            "conditions": [{**done, "type": "SuccessCriteriaMet"}, done],
        }
        await env.patch("Job", "first", {"status": finished}, "status")
        await env.until_condition(await _workload_of(env, "first"), "Finished", "True/Succeeded")
        await _starts(env, "second")


async def test_a_preempted_job_is_stopped_and_waits_again(env: Environment) -> None:
    await env.create_class("urgent", 100)
    await env.queues(cpu="1", preemption={"withinClusterQueue": "LowerPriority"})
    async with env.manager():
        await env.job("low")
        await _starts(env, "low")
        await env.job("high", **{"kueue.x-k8s.io/priority-class": "urgent"})
        await _starts(env, "high")
        low = await _workload_of(env, "low")
        await env.until_condition(low, "QuotaReserved", "False/WaitingForQuota")
        assert await _is_suspended(env, "low")


async def test_a_job_whose_workload_is_deactivated_stops(env: Environment) -> None:
    await env.queues()
    async with env.manager():
        await env.job("first")
        await _starts(env, "first")
        workload = await _workload_of(env, "first")
        await env.patch("Workload", workload, {"spec": {"active": False}})
        await env.until(lambda: _is_suspended(env, "first"))
        await env.until_condition(workload, "Evicted", "True/Deactivated")


async def test_a_job_that_started_without_a_manager_is_suspended_until_quota_is_free(env: Environment) -> None:
    await env.queues(cpu="1")
    await env.job("sneaky", cpu="5")
    await env.patch("Job", "sneaky", {"spec": {"suspend": False}})
    async with env.manager():
        await env.until(lambda: _is_suspended(env, "sneaky"))


async def test_a_group_whose_name_was_taken_gets_its_workload_when_the_other_workload_is_deleted(
    tmp_path: Path,
) -> None:
    frameworks = {"integrations": {"frameworks": ["pod"]}}
    async with environment(tmp_path, **frameworks) as env, env.manager(**frameworks) as manager:
        await env.queues("1")
        await env.workload("crew", active=False)
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
        marks = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/pod-group-name": "crew"}
        total = {"kueue.x-k8s.io/pod-group-total-count": "1"}
        await env.create("Pod", "one", spec, labels=marks, annotations=total)
        await env.until_quiet(manager)
        assert "ownerReferences" not in (await env.read("Workload", "crew"))["metadata"]

        await env.delete("Workload", "crew")
        await env.until_condition("crew", "Admitted", "True/Admitted")
