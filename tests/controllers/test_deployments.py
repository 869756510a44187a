"""Deployments on a running system; the test plays the Deployment and ReplicaSet controllers and the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.conftest import Environment, environment
from controllers.parents import (
    DEPLOYMENT,
    INTEGRATIONS,
    deployment,
    gates,
    make_pod,
    patch,
    replica_set,
    until_gone,
    until_started,
    until_workloads,
)
from kubemachinery.client.errors import ApiError
from kubemachinery.unstructured import get
from pykueue.api import labels
from pykueue.jobs.kinds import REPLICA_SET

MANAGER = INTEGRATIONS


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[Environment]:
    async with environment(tmp_path, **INTEGRATIONS) as env:
        await env.queues(cpu="1")
        yield env


async def test_each_pod_has_a_workload_and_waits_for_quota_of_its_own(env: Environment) -> None:
    """[DP3] [DP6]"""
    async with env.manager(**MANAGER):
        await deployment(env)
        owner = await replica_set(env)
        for name in ("web-1-a", "web-1-b"):
            await make_pod(env, name, owner["spec"]["template"], owner, REPLICA_SET)
        found = await until_workloads(env, 2)

        async def one_waits() -> bool:
            gated = [name for name in ("web-1-a", "web-1-b") if await gates(env, name)]
            return len(await env.admitted()) == len(gated) == 1

        await env.until(one_waits)
        owners = [[each["kind"] for each in get(one, "metadata", "ownerReferences")] for one in found]
        assert owners == [["Pod"], ["Pod"]]


async def test_evicted_pod_is_deleted_with_its_workload_and_its_successor_has_another(env: Environment) -> None:
    """E67"""
    async with env.manager(**MANAGER):
        await deployment(env, 1)
        owner = await replica_set(env)
        await make_pod(env, "web-1-a", owner["spec"]["template"], owner, REPLICA_SET)
        await until_started(env, "web-1-a")
        (first,) = await until_workloads(env, 1)
        await env.patch("Workload", first["metadata"]["name"], {"spec": {"active": False}})
        await until_gone(env, "web-1-a")
        await make_pod(env, "web-1-b", owner["spec"]["template"], owner, REPLICA_SET)
        await until_started(env, "web-1-b")


async def test_queue_label_cannot_be_removed_and_reaches_the_template_when_it_changes(env: Environment) -> None:
    """[DP1] [DP5] E65"""
    await deployment(env)
    with pytest.raises(ApiError) as refused:
        await patch(env, DEPLOYMENT, "web", {"metadata": {"labels": {labels.QUEUE_NAME: None}}})
    assert f"metadata.labels[{labels.QUEUE_NAME}]" in str(refused.value)
    after = await patch(env, DEPLOYMENT, "web", {"metadata": {"labels": {labels.QUEUE_NAME: "other"}}})
    assert get(after, "spec", "template", "metadata", "labels")[labels.QUEUE_NAME] == "other"


async def test_default_queue_is_for_new_deployments_only(env: Environment) -> None:
    """[PP11]"""
    await deployment(env, labels={})
    await env.create("LocalQueue", "default", {"clusterQueue": "cq"})
    after = await patch(env, DEPLOYMENT, "web", {"spec": {"replicas": 5}})
    assert labels.QUEUE_NAME not in (get(after, "metadata", "labels") or {})
    made = await deployment(env, name="new", labels={})
    assert get(made, "metadata", "labels")[labels.QUEUE_NAME] == "default"


async def test_pods_that_are_not_of_a_parent_are_left_alone_by_the_implied_pod_framework(env: Environment) -> None:
    """[JF2]"""
    async with env.manager(**MANAGER):
        made = await env.create(
            "Pod", "plain", {"containers": [{"name": "c", "image": "a"}]}, labels={labels.QUEUE_NAME: "lq"}
        )
        assert get(made, "spec", "schedulingGates") is None
