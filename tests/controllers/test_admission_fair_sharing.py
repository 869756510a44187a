"""Admission fair sharing: the recent usage of a LocalQueue counts when the next Workload is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controllers.conftest import Environment, environment, pod_set
from kubemachinery.unstructured import get

REASONS = {"stopped": "Stopped", "no-cluster-queue": "ClusterQueueDoesNotExist"}
SHARING: dict[str, Any] = {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1s"}}


async def test_the_queue_that_has_used_less_goes_first(tmp_path: Path) -> None:
    async with environment(tmp_path, **SHARING) as env:
        await env.queues(cpu="1", admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
        await env.create("LocalQueue", "other", {"clusterQueue": "cq"})
        async with env.manager(**SHARING):
            await env.workload("greedy")
            await env.until_condition("greedy", "Admitted", "True/Admitted")
            await env.workload("again", priority=5)
            await env.until_condition("again", "QuotaReserved", "False/WaitingForQuota")
            modest = {"queueName": "other", "podSets": [pod_set("1")]}
            await env.create("Workload", "modest", modest)
            await env.finish("greedy")
            await env.until_condition("modest", "Admitted", "True/Admitted")
            assert await env.admitted() == ["modest"]  # though the other has the higher priority
            await env.until(lambda: _has_figures(env))


async def _has_figures(env: Environment) -> bool:
    found = await env.read("LocalQueue", "lq")
    return bool(get(found, "status", "fairSharing", "admissionFairSharingStatus", "consumedResources", "cpu"))


async def test_every_local_queue_is_sampled_also_without_an_admission_scope(tmp_path: Path) -> None:
    async with environment(tmp_path, **SHARING) as env:
        await env.queues(cpu="1")
        async with env.manager(**SHARING):
            await env.workload("one", cpu="500m")
            await env.until_condition("one", "Admitted", "True/Admitted")
            await env.until(lambda: _has_figures(env))


async def test_resources_of_a_local_queue_that_has_used_nothing_are_zero(tmp_path: Path) -> None:
    async with environment(tmp_path, **SHARING) as env:
        await env.queues(cpu="1")
        async with env.manager(**SHARING):
            await env.until(lambda: _has_figures(env))
            found = await env.read("LocalQueue", "lq")
            consumed = get(found, "status", "fairSharing", "admissionFairSharingStatus", "consumedResources")
            assert consumed == {"cpu": "0"}


@pytest.mark.parametrize("why", ["stopped", "no-cluster-queue", "no-fair-sharing"])
async def test_the_figures_of_a_local_queue_that_is_not_sampled_stay(tmp_path: Path, why: str) -> None:
    """Its history is not lost while it is stopped, its ClusterQueue is missing, or the Configuration lacks the block."""
    figures = {"consumedResources": {"cpu": "3"}, "lastUpdate": "2026-01-01T00:00:00Z"}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": figures}}
    async with environment(tmp_path, **SHARING) as env:
        await env.queues(cpu="1")
        await env.patch("LocalQueue", "lq", {"status": status}, "status")
        if why == "stopped":
            await env.patch("LocalQueue", "lq", {"spec": {"stopPolicy": "Hold"}})
        if why == "no-cluster-queue":
            await env.delete("ClusterQueue", "cq")
        async with env.manager(**({} if why == "no-fair-sharing" else SHARING)) as manager:
            active = "True/Ready" if why == "no-fair-sharing" else f"False/{REASONS[why]}"
            await env.until_condition("lq", "Active", active, "LocalQueue")
            await env.until_quiet(manager)
            found = await env.read("LocalQueue", "lq")
            assert get(found, "status", "fairSharing", "admissionFairSharingStatus") == figures
