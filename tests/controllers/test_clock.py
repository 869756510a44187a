"""Timers follow the clock, also when it is set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controllers.conftest import pod_set
from kubemachinery import quantity
from kubemachinery.client.client import ApiClient
from kubemachinery.kinds import Kind
from kubemachinery.meta import format_time, parse_time
from pykueue import settings
from pykueue.api import registry
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager
from pykueue.testing.virtual_loop import VirtualClock
from virtual import server, virtual_time

VERSION = "config.kueue.x-k8s.io/v1beta2"


@virtual_time
async def test_timers_are_evaluated_again_when_the_clock_is_set() -> None:
    async with world(maximumExecutionTimeSeconds=600) as (client, clock), leading(client, clock):
        await asyncio.sleep(5)
        clock.wrong_by_seconds = 600
        await asyncio.sleep(20)
        assert "DeactivatedDueToMaximumExecutionTimeExceeded" in await reasons(client)


@virtual_time
async def test_a_wait_that_began_on_a_slow_clock_ends_when_it_is_over_on_the_right_one() -> None:
    """Also when it is wrong for a moment only, which is visible only to reads in that moment."""
    workloads, kept = kind("Workload"), {"workloads": {"afterFinished": "600s"}}
    async with world() as (client, clock), leading(client, clock, {"objectRetentionPolicies": kept}):
        await asyncio.sleep(5)
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        finished["lastTransitionTime"] = format_time(clock.now())
        clock.wrong_by_seconds = -3600
        found = await client.get(workloads, "w", "default")
        patch = {"status": {"conditions": [*found["status"]["conditions"], finished]}}
        await client.patch(workloads, "w", patch, "default", subresource="status")
        await asyncio.sleep(2)
        clock.wrong_by_seconds = 0
        await asyncio.sleep(580)
        assert await client.find(workloads, "w", "default") is not None
        await asyncio.sleep(30)
        assert await client.find(workloads, "w", "default") is None


@virtual_time
async def test_a_job_that_was_given_up_is_deleted_in_time_though_the_clock_was_slow() -> None:
    kept = {"workloads": {"afterDeactivatedByKueue": "60s"}}
    labels = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/max-exec-time-seconds": "10"}
    spec = {"parallelism": 1, "completions": 1, "template": pod_set("0")["template"]}
    metadata = {"name": "j", "namespace": "default", "labels": labels}
    jobs = kind("Job")
    configuration: dict[str, object] = {"objectRetentionPolicies": kept}
    async with world() as (client, clock):
        await client.create(jobs, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
        async with leading(client, clock, configuration):
            await asyncio.sleep(20)
        clock.wrong_by_seconds = -3600
        async with leading(client, clock, configuration):
            await asyncio.sleep(4)
            clock.wrong_by_seconds = 0
            await asyncio.sleep(20)
            assert await client.find(jobs, "j", "default") is not None
            await asyncio.sleep(50)
            assert await client.find(jobs, "j", "default") is None


@virtual_time
async def test_usage_is_sampled_after_a_clock_that_was_ahead_is_put_back() -> None:
    """[CS6] Of admission fair sharing."""
    sharing = {"usageHalfLifeTime": "60s", "usageSamplingInterval": "10s"}

    async def figures() -> tuple[str, str]:
        found = await client.get(kind("LocalQueue"), "lq", "default")
        status = found["status"]["fairSharing"]["admissionFairSharingStatus"]
        return status["lastUpdate"], status["consumedResources"]["cpu"]

    async with world() as (client, clock), leading(client, clock, {"admissionFairSharing": sharing}):
        await asyncio.sleep(25)
        clock.wrong_by_seconds = 86_400
        await asyncio.sleep(15)
        await client.delete(kind("Workload"), "w", "default")
        await asyncio.sleep(1)
        clock.wrong_by_seconds = 0
        _, before = await figures()
        await asyncio.sleep(65)
        last, after = await figures()
        assert parse_time(last) <= clock.now()
        assert quantity.parse(after) < quantity.parse(before)


# --- A manager on a clock that can be set -----------------------------------------------------------------------------


@asynccontextmanager
async def world(**spec: object) -> AsyncIterator[tuple[ApiClient, VirtualClock]]:
    """One queue, one Workload in it, and a clock."""
    quota = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    group = {"coveredResources": ["cpu"], "flavors": [quota]}
    objects: tuple[tuple[str, str, str, dict[str, object]], ...] = (
        ("ResourceFlavor", "plain", "", {}),
        ("ClusterQueue", "cq", "", {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("LocalQueue", "lq", "default", {"clusterQueue": "cq"}),
        ("Workload", "w", "default", {"queueName": "lq", "podSets": [pod_set("1")], **spec}),
    )
    async with server() as client:
        for name_of_kind, name, namespace, spec in objects:
            row = kind(name_of_kind)
            metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
            tree = {"apiVersion": row.api_version, "kind": name_of_kind, "metadata": metadata, "spec": spec}
            await client.create(row, tree)
        yield client, VirtualClock(asyncio.get_running_loop())


@asynccontextmanager
async def leading(
    client: ApiClient, clock: VirtualClock, configuration: dict[str, object] | None = None
) -> AsyncIterator[None]:
    """A new manager."""
    chosen = settings.load({"apiVersion": VERSION, "kind": "Configuration", **(configuration or {})})
    manager = Manager(client, manager_options(chosen), clock, random.Random(3))
    async with manager.reading():
        task = asyncio.create_task(manager.lead())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def kind(name: str) -> Kind:
    row = registry.ALL.named(name)
    assert row is not None
    return row


async def reasons(client: ApiClient) -> list[str]:
    found = await client.get(kind("Workload"), "w", "default")
    return [each["reason"] for each in found["status"]["conditions"]]
