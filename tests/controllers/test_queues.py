"""The status of queues, and the finalizers of objects that are in use."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from controllers.conftest import Environment
from kubemachinery.unstructured import get
from pykueue.api import labels


async def _status(env: Environment, kind: str, name: str, *path: str) -> object:
    return get(await env.read(kind, name), "status", *path)


async def test_counts_and_usage_follow_the_workloads(env: Environment) -> None:
    await env.queues(cpu="1")
    async with env.manager():
        await env.workload("runs")
        await env.workload("waits", cpu="1")

        async def counted() -> bool:
            queues = [await _status(env, *which) for which in (("ClusterQueue", "cq"), ("LocalQueue", "lq"))]
            return all(
                [get(one, each) for each in ("admittedWorkloads", "reservingWorkloads", "pendingWorkloads")]
                == [1, 1, 1]
                for one in queues
            )

        await env.until(counted)
        used = await _status(env, "ClusterQueue", "cq", "flavorsUsage")
        assert used == [{"name": "plain", "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}]


async def test_an_admission_is_one_write_and_a_rush_of_them_a_few_more_for_its_queues(env: Environment) -> None:
    many = 60
    await env.queues(cpu=str(many))
    async with env.manager() as manager:
        await env.until_condition("cq", "Active", "True/Ready", "ClusterQueue")
        await env.until_quiet(manager)
        before, began = Counter(manager.client.sent), time.monotonic()
        for number in range(many):
            await env.workload(f"w{number}")

        async def counted() -> bool:
            return await _status(env, "ClusterQueue", "cq", "admittedWorkloads") == many

        await env.until(counted)
        sent, seconds = Counter(manager.client.sent) - before, time.monotonic() - began
    assert sent["PATCH", "workloads"] == many
    assert sent["PATCH", "clusterqueues"] <= seconds + 1
    assert sent["PATCH", "localqueues"] <= seconds + 1


async def test_a_queue_with_a_missing_flavor_is_inactive_until_it_is_created(env: Environment) -> None:
    quota = {"name": "late", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    await env.create("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups})
    await env.create("LocalQueue", "lq", {"clusterQueue": "cq"})
    async with env.manager():
        await env.workload("early")
        await env.until_condition("cq", "Active", "False/FlavorNotFound", "ClusterQueue")
        await env.until_condition("lq", "Active", "False/ClusterQueueIsInactive", "LocalQueue")
        await env.create("ResourceFlavor", "late", {})
        await env.until_condition("early", "Admitted", "True/Admitted")
        await env.until_condition("lq", "Active", "True/Ready", "LocalQueue")


async def test_a_queue_is_kept_while_a_workload_holds_its_quota(env: Environment) -> None:
    await env.queues()
    async with env.manager() as manager:
        await env.workload("runs")
        await env.until_condition("runs", "Admitted", "True/Admitted")
        await env.delete("ClusterQueue", "cq")
        await env.until_condition("cq", "Active", "False/Terminating", "ClusterQueue")
        await env.until_quiet(manager)
        assert await env.find("ClusterQueue", "cq") is not None
        await env.finish("runs")

        async def gone() -> bool:
            return await env.find("ClusterQueue", "cq") is None

        await env.until(gone)


async def test_a_flavor_is_kept_while_a_queue_lists_it(env: Environment) -> None:
    await env.queues()
    async with env.manager() as manager:
        await env.delete("ResourceFlavor", "plain")
        await env.until_quiet(manager)
        assert await env.find("ResourceFlavor", "plain") is not None
        await env.delete("ClusterQueue", "cq")

        async def gone() -> bool:
            return await env.find("ResourceFlavor", "plain") is None

        await env.until(gone)


@pytest.mark.parametrize("kind", ["ResourceFlavor", "AdmissionCheck"])
async def test_an_object_in_use_can_be_deleted_after_its_finalizer_was_removed(env: Environment, kind: str) -> None:
    """[OC6] Changes of it and of the ClusterQueue that lists it do not set the finalizer again."""
    await env.queues()
    await env.create("AdmissionCheck", "check", {"controllerName": "example.com/check"})
    checks = {"admissionChecks": [{"name": "check"}]}
    await env.patch("ClusterQueue", "cq", {"spec": {"admissionChecksStrategy": checks}})
    name = {"ResourceFlavor": "plain", "AdmissionCheck": "check"}[kind]

    async def is_protected() -> bool:
        return labels.RESOURCE_IN_USE_FINALIZER in (get(await env.read(kind, name), "metadata", "finalizers") or ())

    async with env.manager() as manager:
        await env.until(is_protected)
        await env.patch(kind, name, {"metadata": {"finalizers": None}})
        await env.patch(kind, name, {"metadata": {"labels": {"changed": "true"}}})
        await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "Hold"}})
        await env.until_condition("cq", "Active", "False/Stopped", "ClusterQueue")
        await env.until_quiet(manager)
        await env.delete(kind, name)
        assert await env.find(kind, name) is None


async def test_a_flavor_is_deleted_when_the_last_queue_lists_it_no_more(env: Environment) -> None:
    await env.queues()
    await env.create("ResourceFlavor", "other", {})
    async with env.manager() as manager:
        await env.delete("ResourceFlavor", "plain")
        await env.until_quiet(manager)
        assert await env.find("ResourceFlavor", "plain") is not None
        quota = {"name": "other", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})

        async def gone() -> bool:
            return await env.find("ResourceFlavor", "plain") is None

        await env.until(gone)


async def test_a_drained_queue_evicts_and_a_held_one_does_not(env: Environment) -> None:
    await env.queues()
    async with env.manager() as manager:
        await env.workload("runs")
        await env.until_condition("runs", "Admitted", "True/Admitted")
        await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "Hold"}})
        await env.until_condition("cq", "Active", "False/Stopped", "ClusterQueue")
        await env.until_quiet(manager)
        assert await env.condition("runs", "Evicted") == ""
        await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await env.until_condition("runs", "Evicted", "True/ClusterQueueStopped")


async def test_a_class_whose_value_changes_changes_its_workloads(env: Environment) -> None:
    await env.queues(cpu="0")
    await env.create_class("team", 1)
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "team"}
    async with env.manager():
        await env.workload("waits", priority=1, priorityClassRef=reference)
        await env.patch("WorkloadPriorityClass", "team", {"value": 7})

        async def follows() -> bool:
            return bool(get(await env.read("Workload", "waits"), "spec", "priority") == 7)

        await env.until(follows)
