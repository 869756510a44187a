"""A manager that comes back finds everything in the cluster, and changes nothing that was settled."""

from __future__ import annotations

from controllers.conftest import Environment


async def test_a_restart_admits_nothing_new(env: Environment) -> None:
    await env.queues(cpu="2")
    async with env.manager() as first:
        for name in ("a", "b", "c"):
            await env.workload(name)
        await env.until_condition("c", "QuotaReserved", "False/WaitingForQuota")
        await env.until_quiet(first)
        running = await env.admitted()
    before = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await env.all("Workload")}
    async with env.manager() as second:
        await env.until_quiet(second, looks=50)
        assert await env.admitted() == running
        after = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await env.all("Workload")}
        assert after == before  # not even a condition is written again


async def test_what_changed_without_a_manager_is_read_at_start(env: Environment) -> None:
    await env.queues(cpu="1")
    async with env.manager():
        await env.workload("a")
        await env.until_condition("a", "Admitted", "True/Admitted")
        await env.workload("b")
        await env.until_condition("b", "QuotaReserved", "False/WaitingForQuota")
    await env.finish("a")
    async with env.manager():
        await env.until_condition("b", "Admitted", "True/Admitted")
