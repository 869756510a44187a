"""LeaderWorkerSets on a running system; the test plays the controllers below them and the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controllers.conftest import Environment, environment
from controllers.parents import (
    INTEGRATIONS,
    LWS,
    gates,
    group_pod,
    install_lws,
    leader_worker_set_of,
    patch,
    until_gone,
    until_started,
    until_workloads,
    workloads,
)
from kubemachinery.client.errors import ApiError
from kubemachinery.unstructured import get
from pykueue.api import labels

MANAGER = INTEGRATIONS


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[Environment]:
    async with environment(tmp_path, **INTEGRATIONS) as env:
        await env.queues(cpu="4")
        await install_lws(env)
        yield env


async def test_each_group_is_admitted_by_itself_and_leaders_start_before_their_workers(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await leader_worker_set_of(env, replicas=3, size=2)
        found = await until_workloads(env, 3)
        assert [[(each["name"], each["count"]) for each in get(one, "spec", "podSets")] for one in found] == [
            [("leader", 1), ("worker", 1)]
        ] * 3

        async def two_are() -> bool:
            return len(await env.admitted()) == 2

        await env.until(two_are)
        admitted = {
            get(each, "metadata", "annotations")[labels.COMPONENT_WORKLOAD_INDEX]
            for each in await workloads(env)
            if get(each, "status", "admission")
        }
        group = int(min(admitted))
        await until_started(env, await group_pod(env, group, 0))
        await until_started(env, await group_pod(env, group, 1))
        (waiting,) = {"0", "1", "2"} - admitted
        pod = await group_pod(env, int(waiting), 0)
        assert labels.ADMISSION_GATE in await gates(env, pod)


async def test_pods_of_a_set_without_a_queue_name_start_where_the_selector_for_pods_does_not_match(
    tmp_path: Path,
) -> None:
    """[JF34] The selector of v1beta1 does not concern LeaderWorkerSets, and their pods follow them."""
    narrow = {"namespaceSelector": {"matchLabels": {"pods": "queued"}}}
    configuration: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "manageJobsWithoutQueueName": True,
        "integrations": {**INTEGRATIONS["integrations"], "podOptions": narrow},
    }
    async with environment(tmp_path, **configuration) as env:
        await env.queues(cpu="4")
        await install_lws(env)
        async with env.manager(**configuration):
            await leader_worker_set_of(env, replicas=1, labels={})
            (workload,) = await until_workloads(env, 1)
            pod = await group_pod(env, 0, 0)
            assert labels.ADMISSION_GATE in await gates(env, pod)
            await env.patch("Workload", workload["metadata"]["name"], {"spec": {"queueName": "lq"}})
            await until_started(env, pod)


async def test_scaling_creates_and_deletes_workloads(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await leader_worker_set_of(env, replicas=1)
        await until_workloads(env, 1)
        await patch(env, LWS, "serve", {"spec": {"replicas": 3}})
        await until_workloads(env, 3)
        await patch(env, LWS, "serve", {"spec": {"replicas": 1}})
        (left,) = await until_workloads(env, 1)
        assert get(left, "metadata", "annotations")[labels.COMPONENT_WORKLOAD_INDEX] == "0"


async def test_workload_without_owner_references_is_adopted_and_follows_the_set(env: Environment) -> None:
    """[LW10] Without the label of its owner: with it, it is an orphan as well, and may be finished first [LC92]."""
    async with env.manager(**MANAGER):
        made = await leader_worker_set_of(env, replicas=1)
        (workload,) = await until_workloads(env, 1)
        name = workload["metadata"]["name"]
        await until_started(env, await group_pod(env, 0, 0), await group_pod(env, 0, 1))
        await env.patch("Workload", name, {"metadata": {"ownerReferences": None, "labels": {labels.JOB_UID: None}}})

        async def is_adopted() -> bool:
            metadata, uid = get(await env.read("Workload", name), "metadata"), made["metadata"]["uid"]
            owners = {owner["uid"] for owner in metadata.get("ownerReferences") or []}
            return uid in owners and len(owners) == 3 and get(metadata, "labels", labels.JOB_UID) == uid

        await env.until(is_adopted)
        await env.until_condition(name, "Admitted", "True/Admitted")
        await patch(env, LWS, "serve", {"spec": {"replicas": 0}})
        for pod in ("serve-0", "serve-0-1"):
            await env.delete("Pod", pod)
        await until_workloads(env, 0)


async def test_evicted_group_is_started_again_by_another_manager(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await leader_worker_set_of(env, replicas=1)
        (workload,) = await until_workloads(env, 1)
        name = workload["metadata"]["name"]
        await until_started(env, await group_pod(env, 0, 0), await group_pod(env, 0, 1))
        await env.patch("Workload", name, {"spec": {"active": False}})
        await until_gone(env, "serve-0", "serve-0-1")
        await env.until_condition(name, "QuotaReserved", "False/Deactivated")
    await env.patch("Workload", name, {"spec": {"active": True}})
    async with env.manager(**MANAGER):
        await until_started(env, await group_pod(env, 0, 0))
        await until_started(env, await group_pod(env, 0, 1))


async def test_crd_that_comes_later_is_picked_up(tmp_path: Path) -> None:
    async with environment(tmp_path, **INTEGRATIONS) as env:
        await env.queues(cpu="4")
        async with env.manager(**MANAGER):
            await env.job("other")
            await until_workloads(env, 1)
            await install_lws(env)
            await leader_worker_set_of(env, replicas=1)
            await until_workloads(env, 2)


async def test_deleted_set_takes_its_workloads_along(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await leader_worker_set_of(env, replicas=2)
        await until_workloads(env, 2)
        await group_pod(env, 0, 0)
        await env.client.delete(LWS, "serve", "default")
        await until_gone(env, "serve-0")
        await until_workloads(env, 0)


async def test_size_of_a_managed_group_cannot_change(env: Environment) -> None:
    await leader_worker_set_of(env)
    with pytest.raises(ApiError) as refused:
        await patch(env, LWS, "serve", {"spec": {"leaderWorkerTemplate": {"size": 9}}})
    assert "spec.leaderWorkerTemplate.size: Invalid value: 9" in str(refused.value)
