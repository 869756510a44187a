"""StatefulSets on a running system; the test plays the StatefulSet controller and the kubelet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from controllers.conftest import Environment, environment, pod_set
from controllers.late_watch import Late
from controllers.parents import (
    INTEGRATIONS,
    STATEFUL_SET,
    events,
    gates,
    patch,
    read,
    set_pods,
    stateful_set,
    until_gone,
    until_started,
    until_workloads,
    workloads,
)
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError
from kubemachinery.clock import SystemClock
from kubemachinery.unstructured import get
from pykueue import settings
from pykueue.api import labels
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager

MANAGER = INTEGRATIONS
API_VERSION = "config.kueue.x-k8s.io/v1beta2"


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[Environment]:
    async with environment(tmp_path, **INTEGRATIONS) as env:
        await env.queues(cpu="3")
        yield env


async def started(env: Environment, replicas: int = 2) -> str:
    """A set of which every pod runs; returns the name of its Workload."""
    await stateful_set(env, replicas)
    (workload,) = await until_workloads(env, 1)
    await set_pods(env)
    await until_started(env, *(f"web-{index}" for index in range(replicas)))
    return str(workload["metadata"]["name"])


async def test_set_is_admitted_as_one_group_and_starts(env: Environment) -> None:
    async with env.manager(**MANAGER):
        made = await stateful_set(env)
        assert get(made, "spec", "template", "metadata", "annotations") == {labels.POD_SUSPENDING_PARENT: "statefulset"}
        await set_pods(env)
        await until_started(env, "web-0", "web-1")
        (workload,) = await workloads(env)
        assert get(workload, "status", "admission", "podSetAssignments")[0]["count"] == 2
        await env.until_condition(workload["metadata"]["name"], "PodsReady", "True/Started")

        async def is_reported() -> bool:
            return "CreatedWorkload" in await events(env, "StatefulSet")

        await env.until(is_reported)


async def test_pods_wait_at_their_gate_while_there_is_no_quota(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await stateful_set(env, 4)
        (workload,) = await until_workloads(env, 1)
        await set_pods(env)
        await env.until_condition(workload["metadata"]["name"], "QuotaReserved", "False/ExceedsMaxQuota")
        assert labels.ADMISSION_GATE in await gates(env, "web-0")


async def test_eviction_deletes_the_pods_and_new_ones_wait_for_the_same_workload(env: Environment) -> None:
    async with env.manager(**MANAGER):
        name = await started(env)
        await env.patch("Workload", name, {"spec": {"active": False}})
        await until_gone(env, "web-0", "web-1")
        await env.until_condition(name, "QuotaReserved", "False/Deactivated")
        await set_pods(env)
        assert labels.ADMISSION_GATE in await gates(env, "web-0")
        await env.patch("Workload", name, {"spec": {"active": True}})
        await until_started(env, "web-0", "web-1")
        assert [each["metadata"]["name"] for each in await workloads(env)] == [name]


async def test_higher_priority_preempts_a_set_that_has_no_pods_yet(env: Environment) -> None:
    """[PP10]"""
    await env.patch("ClusterQueue", "cq", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    await env.create_class("high", 10)
    async with env.manager(**MANAGER):
        await stateful_set(env, 3)
        (workload,) = await until_workloads(env, 1)
        await env.until_condition(workload["metadata"]["name"], "Admitted", "True/Admitted")
        await env.job("urgent", **{labels.PRIORITY_CLASS: "high"})

        async def is_admitted() -> bool:
            return get(await env.read("Job", "urgent"), "spec", "suspend") is False

        await env.until(is_admitted)


async def test_scale_to_zero_releases_quota_and_scale_up_queues_with_the_new_count(env: Environment) -> None:
    async with env.manager(**MANAGER):
        name = await started(env)
        await patch(env, STATEFUL_SET, "web", {"spec": {"replicas": 0}})
        for pod in ("web-1", "web-0"):
            await env.delete("Pod", pod)
        await env.until_condition(name, "QuotaReserved", "False/OnHold")
        await patch(env, STATEFUL_SET, "web", {"spec": {"replicas": 3}})
        await set_pods(env)
        await until_started(env, "web-0", "web-1", "web-2")
        assert get(await env.read("Workload", name), "spec", "podSets")[0]["count"] == 3


async def test_restarted_manager_changes_nothing_of_a_running_set(env: Environment) -> None:
    async with env.manager(**MANAGER) as first:
        name = await started(env)
        await env.until_condition(name, "PodsReady", "True/Started")
        await env.until_quiet(first)
        before = [each["metadata"]["resourceVersion"] for each in (*await env.all("Pod"), *await workloads(env))]
    async with env.manager(**MANAGER) as second:
        await env.until_quiet(second, looks=50)
        after = [each["metadata"]["resourceVersion"] for each in (*await env.all("Pod"), *await workloads(env))]
        assert after == before


async def test_pods_created_while_no_manager_ran_are_started_by_the_next(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await stateful_set(env)
        await until_workloads(env, 1)
    await set_pods(env)
    async with env.manager(**MANAGER):
        await until_started(env, "web-0", "web-1")


async def test_quota_of_pods_that_no_watch_has_shown_yet_is_kept_until_they_have_ended(env: Environment) -> None:
    """The manager that led before has started them."""
    late = Late(env.transport(), "pods")
    choices = manager_options(settings.load({"apiVersion": API_VERSION, "kind": "Configuration", **MANAGER}))
    second = Manager(ApiClient(late, random.Random(3)), choices, SystemClock(), random.Random(3))
    async with AsyncExitStack() as lives:
        async with env.manager(**MANAGER) as first:
            await stateful_set(env)
            await until_workloads(env, 1)
            await lives.enter_async_context(second.reading())
            late.go_on.clear()
            await set_pods(env)
            await until_started(env, "web-0", "web-1")
            (workload,) = await workloads(env)
            name = workload["metadata"]["name"]
            await env.until_condition(name, "PodsReady", "True/Started")
            await env.until_quiet(first)
        await patch(env, STATEFUL_SET, "web", {"spec": {"replicas": 0}})
        group = await lives.enter_async_context(asyncio.TaskGroup())
        leading = group.create_task(second.take_over())
        await env.workload("another", cpu="0")
        await env.until_condition("another", "Admitted", "True/Admitted")
        await env.until_quiet(second)
        assert await env.condition(name, "QuotaReserved") == "True/QuotaReserved"
        late.go_on.set()
        for pod in ("web-1", "web-0"):
            await env.delete("Pod", pod)
        await env.until_condition(name, "QuotaReserved", "False/OnHold")
        leading.cancel()


async def test_deleted_set_takes_its_workload_along(env: Environment) -> None:
    async with env.manager(**MANAGER):
        await started(env)
        await env.client.delete(STATEFUL_SET, "web", "default")
        await until_gone(env, "web-0", "web-1")
        await until_workloads(env, 0)


async def test_set_that_is_created_again_runs_the_orphans_of_the_earlier_one_on_their_quota(env: Environment) -> None:
    """[SS13]"""
    async with env.manager(**MANAGER) as manager:
        name = await started(env)
        await env.client.delete(STATEFUL_SET, "web", "default", propagation="Orphan")

        async def are_orphans() -> bool:
            sets = (await env.client.list(STATEFUL_SET)).items
            return not sets and not any("ownerReferences" in each["metadata"] for each in await env.all("Pod"))

        await env.until(are_orphans)
        later = await stateful_set(env)
        await env.until_quiet(manager)
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": later["metadata"]["uid"]}
        for pod in ("web-0", "web-1"):
            await env.patch("Pod", pod, {"metadata": {"ownerReferences": [{**reference, "controller": True}]}})
        await env.until_quiet(manager)
        (workload,) = await workloads(env)
        assert workload["metadata"]["name"] == name
        assert later["metadata"]["uid"] in {owner["uid"] for owner in workload["metadata"]["ownerReferences"]}
        assert await events(env, "StatefulSet") == ["CreatedWorkload"]
        await env.job("beside")

        async def is_admitted() -> bool:
            return get(await env.read("Job", "beside"), "spec", "suspend") is False

        await env.until(is_admitted)
        await env.client.delete(STATEFUL_SET, "web", "default")
        await until_gone(env, "web-0", "web-1")
        await until_workloads(env, 1)


async def test_set_that_was_created_without_the_webhook_is_marked(tmp_path: Path) -> None:
    """[PP12]"""
    async with environment(tmp_path, integrations={"frameworks": ["batch/job"]}) as env:
        await env.queues(cpu="3")
        made = await stateful_set(env)
        assert get(made, "spec", "template", "metadata", "annotations") is None
        async with env.manager(**MANAGER):

            async def is_marked() -> bool:
                found = await read(env, STATEFUL_SET, "web")
                return bool(get(found, "spec", "template", "metadata", "annotations"))

            await env.until(is_marked)


async def test_shape_and_size_of_a_managed_set_cannot_change(env: Environment) -> None:
    await stateful_set(env)
    with pytest.raises(ApiError) as scaled:
        await patch(env, STATEFUL_SET, "web", {"spec": {"replicas": 3}})
    assert "spec.replicas: Invalid value: 3" in str(scaled.value)
    with pytest.raises(ApiError) as removed:
        await patch(env, STATEFUL_SET, "web", {"metadata": {"labels": {labels.QUEUE_NAME: None}}})
    assert f"metadata.labels[{labels.QUEUE_NAME}]" in str(removed.value)


async def test_image_of_a_managed_set_may_change(env: Environment) -> None:
    await stateful_set(env)
    container = {"name": "c", "image": "registry.example/app:2", "resources": {"requests": {"cpu": "1"}}}
    after = await patch(env, STATEFUL_SET, "web", {"spec": {"template": {"spec": {"containers": [container]}}}})
    assert get(after, "spec", "template", "spec", "containers")[0]["image"] == "registry.example/app:2"


async def test_workload_of_a_kind_that_is_not_enabled_is_left_alone(tmp_path: Path) -> None:
    async with environment(tmp_path) as env:
        await env.queues(cpu="3")
        made = await stateful_set(env)
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": made["metadata"]["uid"]}
        spec = {"queueName": "lq", "podSets": [pod_set("1")]}
        async with env.manager() as manager:
            mark = {labels.IS_GROUP_WORKLOAD: "true"}
            await env.create("Workload", "old", spec, ownerReferences=[reference], annotations=mark)
            await env.until_condition("old", "Admitted", "True/Admitted")
            await env.until_quiet(manager)
