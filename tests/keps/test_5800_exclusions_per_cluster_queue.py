"""KEP-5800: a ClusterQueue leaves resources out of its quota, on top of the global list."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from keps.autoscaler import Autoscaler
from keps.engines import Engine
from keps.system import System, gates, system
from kubemachinery import meta
from kubemachinery.client.errors import Invalid
from kubemachinery.unstructured import get
from pykueue.api import kube
from pykueue.cli import explain
from pykueue.core import requests
from pykueue.core.policy import SchedulingPolicy
from pykueue.state.pod_set_requests import WorkloadShapes
from pykueue.webhooks.review import NO_FACTS, AdmissionRequest, Phase, review
from webhooks.conftest import choices, cluster_queue

ON = gates("ClusterQueueExcludeResourcePrefixes")
GLOBAL = {"resources": {"excludeResourcePrefixes": ["example.com"]}}
NET = {"cpu": "1", "vendor.example/net": "1"}


async def charged(env: System, name: str) -> dict[str, str]:
    found = await env.read("Workload", name)
    (assignment,) = get(found, "status", "admission", "podSetAssignments") or [{}]
    usage: dict[str, str] = assignment.get("resourceUsage", {})
    return usage


# --- Test Plan, Integration tests -------------------------------------------------------------------------------------


async def test_only_what_is_not_excluded_is_checked_against_quota(engine: Engine) -> None:
    """1. Basic functionality: admitted though it asks for more than there is."""
    async with system(engine, **ON) as env:
        quota = {"cpu": "5", "memory": "8Gi", "ephemeral-storage": "1Gi"}
        await env.queue(quota, excludeResourcePrefixes=["ephemeral-storage"])
        await env.asks("w", {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "50Gi"})
        await env.until_condition("w", "Admitted", "True/Admitted")
        assert (await charged(env, "w")).keys() == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("resource", "admitted"),
    [
        ("example.com/gpu", True),  # by the global list
        ("hugepages-2Mi", True),  # by the queue's own
        ("other.example/x", False),  # by neither
    ],
)
async def test_the_effective_list_is_the_union(engine: Engine, resource: str, admitted: bool) -> None:
    """2. Union behavior with global config."""
    async with system(engine, **ON, **GLOBAL) as env:
        await env.queue(excludeResourcePrefixes=["hugepages-"])
        await env.asks("w", {"cpu": "1", resource: "1"})
        if admitted:
            await env.until_condition("w", "Admitted", "True/Admitted")
            assert await charged(env, "w") == {"cpu": "1"}
        else:
            await env.until_condition("w", "QuotaReserved", "False/NoMatchingFlavor")


async def test_a_change_applies_to_pending_workloads_at_once(engine: Engine) -> None:
    """3. Dynamic updates, and Update behavior: immediately, without a restart."""
    async with system(engine, **ON) as env:
        await env.queue()
        await env.asks("w", NET)
        await env.until_condition("w", "QuotaReserved", "False/NoMatchingFlavor")
        await env.patch("ClusterQueue", "cq", {"spec": {"excludeResourcePrefixes": ["vendor.example/"]}})
        await env.until_condition("w", "Admitted", "True/Admitted")


async def test_an_admitted_workload_keeps_its_charged_usage(engine: Engine) -> None:
    """Update behavior: existing admitted workloads are not affected."""
    async with system(engine, **ON) as env:
        await env.queue({"cpu": "5", "vendor.example/net": "1"})
        await env.asks("before", NET)
        await env.until_condition("before", "Admitted", "True/Admitted")
        await env.quiet()
        revision = (await env.read("Workload", "before"))["metadata"]["resourceVersion"]
        await env.patch("ClusterQueue", "cq", {"spec": {"excludeResourcePrefixes": ["vendor.example/"]}})
        await env.asks("after", NET)
        await env.until_condition("after", "Admitted", "True/Admitted")
        await env.quiet()
        assert await charged(env, "before") == NET
        assert (await env.read("Workload", "before"))["metadata"]["resourceVersion"] == revision
        # A list that is taken back: what was let in with it is charged nothing for it now either.
        await env.patch("ClusterQueue", "cq", {"spec": {"excludeResourcePrefixes": None}})
        await env.quiet()
        await env.asks("last", NET)
        await env.until_condition("last", "QuotaReserved", "False/WaitingForQuota")
        assert await charged(env, "after") == {"cpu": "1"}


async def test_each_cluster_queue_has_its_own_list(engine: Engine) -> None:
    """4. Multiple ClusterQueues with different exclusions."""
    async with system(engine, **ON) as env:
        await env.queue(excludeResourcePrefixes=["vendor.example/"])
        await env.cluster_queue("other")
        await env.create("LocalQueue", "other", {"clusterQueue": "other"})
        await env.asks("here", NET)
        await env.asks("there", NET, queue="other")
        await env.until_condition("here", "Admitted", "True/Admitted")
        await env.until_condition("there", "QuotaReserved", "False/NoMatchingFlavor")


async def test_a_list_matches_by_plain_prefix(engine: Engine) -> None:
    """5. Prefix matching behavior."""
    async with system(engine, **ON) as env:
        await env.queue({"cpu": "5", "other.com/resource": "5"}, excludeResourcePrefixes=["example.com"])
        wanted = {"example.com/gpu": "2", "example.com/memory": "3", "other.com/resource": "4"}
        await env.asks("w", {"cpu": "1", **wanted})
        await env.until_condition("w", "Admitted", "True/Admitted")
        assert await charged(env, "w") == {"cpu": "1", "other.com/resource": "4"}


async def test_with_the_gate_off_the_list_is_kept_and_does_nothing(engine: Engine) -> None:
    async with system(engine) as env:
        await env.queue(excludeResourcePrefixes=["vendor.example/"])
        await env.asks("w", NET)
        await env.until_condition("w", "QuotaReserved", "False/NoMatchingFlavor")
        assert get(await env.read("ClusterQueue", "cq"), "spec", "excludeResourcePrefixes") == ["vendor.example/"]


# --- Behavior: Validation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefixes", "place"),
    [
        ([""], r"excludeResourcePrefixes\[0\]"),
        (["a", "b", "a"], r"excludeResourcePrefixes\[2\]"),
        ([f"p{number}" for number in range(65)], "excludeResourcePrefixes"),
    ],
    ids=["an empty one", "one twice", "more than 64"],
)
async def test_a_list_that_makes_no_sense_is_refused(engine: Engine, prefixes: list[str], place: str) -> None:
    async with system(engine, **ON) as env:
        with pytest.raises(Invalid, match=place):
            await env.queue(excludeResourcePrefixes=prefixes)


@pytest.mark.parametrize(
    ("prefix", "warns"), [("cpu", "cpu"), ("mem", "memory"), ("nvidia.com", "nvidia.com/gpu"), ("hugepages-", "")]
)
def test_excluding_a_critical_resource_is_warned_of(prefix: str, warns: str) -> None:
    tree = cluster_queue(excludeResourcePrefixes=[prefix])
    request = AdmissionRequest(phase=Phase.VALIDATE, operation="CREATE", object=tree)
    found: Any = review(request, NO_FACTS, choices(**ON))
    assert found.refusal is None
    assert [warns in each for each in found.warnings] == ([True] if warns else [])


# --- Risks and Mitigations: which resources are excluded and why ------------------------------------------------------


async def test_excluded_resources_and_their_list_are_reported_at_reservation(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async with system(engine, **ON, **GLOBAL) as env:
        await env.queue(excludeResourcePrefixes=["vendor.example/"])
        with caplog.at_level(logging.INFO, "pykueue"):
            await env.asks("w", {**NET, "example.com/gpu": "1"})
            await env.until_condition("w", "Admitted", "True/Admitted")
            await env.quiet()
        (event,) = await env.events("w", "QuotaReserved")
        by_global = "example.com/gpu (prefix 'example.com' of the configuration)"
        by_queue = "vendor.example/net (prefix 'vendor.example/' of the ClusterQueue)"
        assert f"not counted: {by_global}, {by_queue}" in event["note"]
        assert [each for each in caplog.messages if by_global in each and by_queue in each and "default/w" in each]
        await env.asks("plain", {"cpu": "1"})
        await env.until_condition("plain", "Admitted", "True/Admitted")
        await env.quiet()
        (event,) = await env.events("plain", "QuotaReserved")
        assert "not counted" not in event["note"]


async def test_what_was_left_out_is_logged_once_however_long_a_workload_waits(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async with system(engine, **ON) as env:
        await env.queue({"cpu": "1"}, excludeResourcePrefixes=["vendor.example/"])
        await env.asks("first", {"cpu": "1"})
        await env.until_condition("first", "Admitted", "True/Admitted")
        with caplog.at_level(logging.INFO, "pykueue"):
            await env.asks("w", NET)
            for prefix in ("a.example/", "b.example/"):  # each change has it considered again
                await env.until_condition("w", "QuotaReserved", "False/WaitingForQuota")
                prefixes = ["vendor.example/", prefix]
                await env.patch("ClusterQueue", "cq", {"spec": {"excludeResourcePrefixes": prefixes}})
                await env.quiet()
            await env.finish("first")
            await env.until_condition("w", "Admitted", "True/Admitted")
            await env.quiet()
        assert len([each for each in caplog.messages if each.startswith("default/w: not counted")]) == 1


async def test_what_was_left_out_is_reported_once_though_quota_is_reserved_again(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async with system(engine, **ON) as env:
        await env.queue({"cpu": "1"}, excludeResourcePrefixes=["vendor.example/"])
        with caplog.at_level(logging.INFO, "pykueue"):
            await env.asks("w", NET)
            await env.until_condition("w", "Admitted", "True/Admitted")
            await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
            await env.until_condition("w", "Evicted", "True/ClusterQueueStopped")
            await env.release("w")
            await env.patch("ClusterQueue", "cq", {"spec": {"stopPolicy": "None"}})
            await env.until_condition("w", "Admitted", "True/Admitted")
            await env.quiet()
        notes = [event["note"] for event in await env.events("w", "QuotaReserved")]
        assert len([note for note in notes if "not counted" in note]) == 1
        assert len([each for each in caplog.messages if each.startswith("default/w: not counted")]) == 1


@pytest.mark.parametrize("waits", [True, False])
async def test_explain_shows_what_is_left_out_and_by_which_list(engine: Engine, waits: bool) -> None:
    async with system(engine, **ON, **GLOBAL) as env:
        await env.queue({"cpu": "1"}, excludeResourcePrefixes=["vendor.example/"])
        cpu = "8" if waits else "1"
        await env.asks("w", {**NET, "cpu": cpu, "example.com/gpu": "1"})
        await env.until_condition(
            "w", *(("QuotaReserved", "False/ExceedsMaxQuota") if waits else ("Admitted", "True/Admitted"))
        )
        found = await env.explain("w", **ON, **GLOBAL)
        text = "\n".join(explain.lines(found.tree()))
        assert "\nNot counted against quota\n  example.com/gpu (prefix 'example.com' of the configuration)\n" in text
        assert "\n  vendor.example/net (prefix 'vendor.example/' of the ClusterQueue)" in text
        assert found.tree()["notCounted"] == [
            {"resource": "example.com/gpu", "reason": "Excluded", "prefix": "example.com", "list": "Configuration"},
            {
                "resource": "vendor.example/net",
                "reason": "Excluded",
                "prefix": "vendor.example/",
                "list": "ClusterQueue",
            },
        ]


# --- Behavior: excluded resources are not included in admission checks ------------------------------------------------


async def test_no_nodes_are_requested_for_excluded_resources(engine: Engine) -> None:
    disk = {"cpu": "1", "ephemeral-storage": "1Gi"}
    async with system(engine, **ON) as env:
        autoscaler = Autoscaler(env)
        await autoscaler.install()
        settings = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}
        managed = {**settings, "managedResources": ["ephemeral-storage"]}
        await env.create("ProvisioningRequestConfig", "nodes", managed)
        reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "nodes"}
        spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": reference}
        await env.create("AdmissionCheck", "nodes", spec)
        checked = {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}}
        await env.queue({"cpu": "5", "ephemeral-storage": "9Gi"}, **checked)
        await env.until_condition("nodes", "Active", "True/Active", "AdmissionCheck")
        await env.asks("counted", disk)
        await autoscaler.asked("counted-nodes-1")
        await env.patch("ClusterQueue", "cq", {"spec": {"excludeResourcePrefixes": ["ephemeral-"]}})
        await env.asks("excluded", disk)
        await env.until_condition("excluded", "Admitted", "True/Admitted")
        await env.quiet()
        assert "excluded-nodes-1" not in await autoscaler.requests()


# --- Risks and Mitigations: compiled lists ----------------------------------------------------------------------------


def test_a_list_is_compiled_once_for_each_cluster_queue_and_list() -> None:
    demands = WorkloadShapes(SchedulingPolicy(queue_exclusions=True), requests.accounting(["example.com"]))
    first = demands.accounting(("vendor.example/",))
    demands.put_limit_range(kube.LimitRange(metadata=meta.ObjectMeta(name="l", namespace="n")))
    assert demands.accounting(("vendor.example/",)) is first
    assert first.excluded == ("example.com", "vendor.example/")
    assert demands.accounting(("other.example/",)) is not first
    assert demands.accounting(()).excluded == ("example.com",)
