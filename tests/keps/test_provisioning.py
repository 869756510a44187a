"""The check that comes with the manager: a cluster autoscaler is asked for nodes before a job's pods are made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from keps.autoscaler import REQUEST, Autoscaler
from keps.engines import Embedded, Engine
from keps.system import System, Tree, system
from kubemachinery.unstructured import get
from pykueue.api import labels

CLASS = "check-capacity.autoscaling.x-k8s.io"
PATIENT = {"retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 60}}


async def config(env: System, **spec: Any) -> None:
    await env.create("ProvisioningRequestConfig", "nodes", {"provisioningClassName": CLASS, **spec})


async def check(env: System, **spec: Any) -> None:
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "nodes"}
    await env.create(
        "AdmissionCheck",
        "nodes",
        {"controllerName": labels.PROVISIONING_CONTROLLER, "parameters": reference, **spec},
    )


@asynccontextmanager
async def provisioned(engine: Engine, **spec: Any) -> AsyncIterator[tuple[System, Autoscaler]]:
    """A queue of five cores behind the check, with these settings."""
    gates = spec.pop("gates", {})
    async with system(engine, featureGates=gates) as env:
        autoscaler = Autoscaler(env)
        await autoscaler.install()
        await config(env, **spec)
        await check(env)
        await env.queue(admissionChecksStrategy={"admissionChecks": [{"name": "nodes"}]})
        await env.until_condition("nodes", "Active", "True/Active", "AdmissionCheck")
        yield env, autoscaler


async def pods_of(env: System, request: Tree) -> list[tuple[Tree, int]]:
    """The templates of a request, each with its count."""
    return [
        (await env.read("PodTemplate", entry["podTemplateRef"]["name"]), entry["count"])
        for entry in request["spec"]["podSets"]
    ]


def needs(asked: Tree) -> Tree:
    """Devices are not shared, so their limit is required."""
    return {"requests": asked, "limits": asked}


def several(*pod_sets: tuple[str, int, Tree]) -> list[Tree]:
    """Pod sets by name, count and what one pod asks for."""
    return [
        {
            "name": name,
            "count": count,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": name, "image": "registry.example/app:1", "resources": needs(asked)}],
                }
            },
        }
        for name, count, asked in pod_sets
    ]


async def check_state(env: System, workload: str, check_name: str = "nodes") -> Tree:
    found = await env.read("Workload", workload)
    return next(each for each in found["status"]["admissionChecks"] if each["name"] == check_name)


async def until_message(env: System, workload: str, words: str) -> None:
    async def has_message() -> bool:
        return words in (await check_state(env, workload))["message"]

    await env.until(has_message)


# --- The check --------------------------------------------------------------------------------------------------------


async def test_the_check_is_active_once_its_settings_are_there(engine: Engine) -> None:
    async with system(engine) as env:
        await Autoscaler(env).install()
        await check(env)
        await env.until_condition("nodes", "Active", "False/BadParametersRef", "AdmissionCheck")
        await config(env)
        await env.until_condition("nodes", "Active", "True/Active", "AdmissionCheck")
        await env.delete("ProvisioningRequestConfig", "nodes")
        await env.until_condition("nodes", "Active", "False/BadParametersRef", "AdmissionCheck")


async def test_without_an_autoscaler_the_check_is_inactive_with_a_reason(tmp_path: Path) -> None:
    """Only here: a real server keeps the CRD of earlier tests."""
    async with system(Embedded(tmp_path)) as env:
        await config(env)
        await check(env)
        await env.until_condition("nodes", "Active", "False/ProvisioningRequestsNotServed", "AdmissionCheck")
        (active,) = (await env.read("AdmissionCheck", "nodes"))["status"]["conditions"]
        assert active["message"] == "The API server does not serve ProvisioningRequest of autoscaling.x-k8s.io/v1"


# --- One request per Workload, check and attempt ----------------------------------------------------------------------


async def test_a_request_is_made_when_quota_is_there_and_names_the_pods(engine: Engine) -> None:
    async with provisioned(engine, parameters={"ValidUntilSeconds": "3600", "zone": "a"}) as (env, autoscaler):
        await env.create("ResourceFlavor", "labelled", {"nodeLabels": {"pool": "elastic"}})
        flavor = {"name": "labelled", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})
        await env.quiet()
        limited = {"name": "c", "image": "registry.example/app:1", "resources": {"limits": {"cpu": "1"}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [limited], "hostNetwork": False}}
        await env.asks("w", podSets=[{"name": "main", "count": 3, "template": template}])
        request = await autoscaler.asked("w-nodes-1")
        assert request["spec"]["provisioningClassName"] == CLASS
        assert request["spec"]["parameters"] == {"ValidUntilSeconds": "3600", "zone": "a"}
        assert request["metadata"]["labels"] == {labels.MANAGED: "true"}
        ((mould, count),) = await pods_of(env, request)
        assert (mould["metadata"]["name"], count) == ("ppt-w-nodes-1-main", 3)
        assert mould["template"]["spec"]["nodeSelector"] == {"pool": "elastic"}
        # The limit counts as a request, as it would for a pod.
        assert mould["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
        assert (await env.condition("w", "QuotaReserved")) == "True/QuotaReserved"
        await env.quiet()
        (event,) = await env.events("w", "ProvisioningRequestCreated")
        assert event["reportingController"] == "kueue-provisioning-request-controller"


async def test_the_job_gives_parameters_of_its_own(engine: Engine) -> None:
    async with provisioned(engine, parameters={"zone": "a", "spot": "no"}) as (env, autoscaler):
        job = {"template": several(("main", 1, {"cpu": "1"}))[0]["template"]}
        notes = {f"{labels.PROVISIONING_PREFIX}zone": "b", "unrelated": "x"}
        await env.create("Job", "j", job, labels={labels.QUEUE_NAME: "lq"}, annotations=notes)
        await env.until(lambda: _has_any(autoscaler))
        (request,) = (await autoscaler.requests()).values()
        assert request["spec"]["parameters"] == {"zone": "b", "spot": "no"}
        await env.quiet()
        assert len(await autoscaler.requests()) == 1  # it is the current one though the settings have changed


async def test_the_request_owns_its_templates_and_the_workload_the_request(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        made = await env.asks("w")
        request = await autoscaler.asked("w-nodes-1")
        (owner,) = request["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Workload", made["metadata"]["uid"], True)
        await env.quiet()
        ((mould, _),) = await pods_of(env, request)
        (owner,) = mould["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("ProvisioningRequest", request["metadata"]["uid"])


async def test_only_pods_that_ask_for_managed_resources_need_nodes(engine: Engine) -> None:
    async with provisioned(engine, managedResources=["example.com/gpu"]) as (env, autoscaler):
        await env.patch(
            "ClusterQueue",
            "cq",
            {
                "spec": {
                    "resourceGroups": [
                        {
                            "coveredResources": ["cpu", "example.com/gpu"],
                            "flavors": [
                                {
                                    "name": "plain",
                                    "resources": [
                                        {"name": "cpu", "nominalQuota": "9"},
                                        {"name": "example.com/gpu", "nominalQuota": "9"},
                                    ],
                                }
                            ],
                        }
                    ]
                }
            },
        )
        await env.asks("plain")
        await env.until_condition("plain", "Admitted", "True/Admitted")
        assert await autoscaler.requests() == {}
        pod_sets = several(("driver", 1, {"cpu": "1"}), ("worker", 2, {"cpu": "1", "example.com/gpu": "1"}))
        await env.asks("mixed", podSets=pod_sets)
        request = await autoscaler.asked("mixed-nodes-1")
        assert [entry["podTemplateRef"]["name"] for entry in request["spec"]["podSets"]] == ["ppt-mixed-nodes-1-worker"]
        await autoscaler.reports("mixed-nodes-1", "Provisioned")
        await env.until_condition("mixed", "Admitted", "True/Admitted")
        assert [each["name"] for each in (await check_state(env, "mixed"))["podSetUpdates"]] == ["worker"]


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        ({}, {"a": 1, "b": 1, "c": 1}),
        ({"podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements"}, {"a": 2, "c": 1}),
        ({"podSetMergePolicy": "IdenticalPodTemplates"}, {"a": 1, "b": 1, "c": 1}),
    ],
    ids=["none", "by requirements", "by template"],
)
async def test_similar_pod_sets_share_an_entry_and_every_one_is_led_to_its_nodes(
    engine: Engine, policy: Tree, counts: dict[str, int]
) -> None:
    """The containers are called differently, so that only their requirements are alike."""
    async with provisioned(engine, **policy) as (env, autoscaler):
        await env.asks("w", podSets=several(("a", 1, {"cpu": "1"}), ("b", 1, {"cpu": "1000m"}), ("c", 1, {"cpu": "2"})))
        request = await autoscaler.asked("w-nodes-1")
        found = {entry["podTemplateRef"]["name"]: entry["count"] for entry in request["spec"]["podSets"]}
        assert found == {f"ppt-w-nodes-1-{name}": count for name, count in counts.items()}
        await autoscaler.reports("w-nodes-1", "Provisioned")
        await env.until_condition("w", "Admitted", "True/Admitted")
        assert [each["name"] for each in (await check_state(env, "w"))["podSetUpdates"]] == ["a", "b", "c"]


# --- What the autoscaler answers --------------------------------------------------------------------------------------


async def test_an_accepted_request_is_pending_with_its_estimate(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.reports("w-nodes-1", "Accepted", "!Provisioned", message="in about 4 minutes")

        await until_message(env, "w", "in about 4 minutes")
        assert await env.states("w") == {"nodes": "Pending"}


async def test_provisioned_admits_and_leads_the_pods_to_their_nodes(engine: Engine) -> None:
    updates = {"nodeSelector": [{"key": "group", "valueFromProvisioningClassDetail": "NodeGroup"}]}
    async with provisioned(engine, podSetUpdates=updates) as (env, autoscaler):
        job = {"template": several(("main", 1, {"cpu": "1"}))[0]["template"]}
        await env.create("Job", "j", job, labels={labels.QUEUE_NAME: "lq"})
        await env.until(lambda: _has_any(autoscaler))
        (name,) = await autoscaler.requests()
        await autoscaler.reports(name, "Accepted", "Provisioned", NodeGroup="g-17")

        async def runs() -> bool:
            return not get(await env.read("Job", "j"), "spec", "suspend")

        await env.until(runs)
        pod = (await env.read("Job", "j"))["spec"]["template"]
        assert pod["spec"]["nodeSelector"] == {"group": "g-17"}
        assert pod["metadata"]["annotations"][labels.CONSUME_PROVISIONING_REQUEST] == name
        assert pod["metadata"]["annotations"][labels.PROVISIONING_CLASS_NAME] == CLASS


@pytest.mark.parametrize("why", ["Failed", "BookingExpired"])
async def test_what_came_to_nothing_is_tried_again_by_the_clock_and_then_never(engine: Engine, why: str) -> None:
    """`retryStrategy`: one more attempt, a second later; after that the Workload is deactivated."""
    async with provisioned(engine, **PATIENT) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.reports("w-nodes-1", why, message="no room in the zone")
        await env.until_condition("w", "Evicted", "True/AdmissionCheck")
        await autoscaler.until()  # an eviction cleans up
        await env.release("w")
        await autoscaler.asked("w-nodes-2")
        assert (await check_state(env, "w"))["retryCount"] == 1
        await autoscaler.reports("w-nodes-2", why, message="no room anywhere")
        await env.until_condition("w", "Evicted", "True/DeactivatedDueToAdmissionCheck")
        assert get(await env.read("Workload", "w"), "spec", "active") is False
        left = await check_state(env, "w")
        assert (left["state"], left["retryCount"]) == ("Pending", 1)

        async def has_event() -> bool:
            return any("no room anywhere" in each["note"] for each in await env.events("w", "AdmissionCheckUpdated"))

        await env.until(has_event)


async def test_a_booking_that_expires_under_running_pods_means_nothing(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.reports("w-nodes-1", "Provisioned")
        await env.until_condition("w", "Admitted", "True/Admitted")
        await autoscaler.reports("w-nodes-1", "Provisioned", "BookingExpired")
        await env.quiet()
        assert await env.states("w") == {"nodes": "Ready"}
        await autoscaler.until("w-nodes-1")


async def test_nodes_that_are_taken_away_stop_a_running_workload(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.reports("w-nodes-1", "Provisioned")
        await env.until_condition("w", "Admitted", "True/Admitted")
        await autoscaler.reports("w-nodes-1", "Provisioned", "CapacityRevoked", message="the zone is gone")
        await env.until_condition("w", "Evicted", "True/DeactivatedDueToAdmissionCheck")


# --- Settings that change, and what is cleaned up ---------------------------------------------------------------------


async def test_other_settings_mean_another_request(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        before = await autoscaler.asked("w-nodes-1")
        await env.patch("ProvisioningRequestConfig", "nodes", {"spec": {"provisioningClassName": "other.example"}})

        async def is_another() -> bool:
            found = await autoscaler.requests()
            return [each["spec"]["provisioningClassName"] for each in found.values()] == ["other.example"]

        await env.until(is_another)
        after = await autoscaler.asked("w-nodes-1")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        await env.quiet()
        ((mould, _),) = await pods_of(env, after)
        assert mould["metadata"]["ownerReferences"][0]["uid"] == after["metadata"]["uid"]


async def test_a_check_whose_settings_go_is_asked_again_when_they_are_back(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.asked("w-nodes-1")
        await env.delete("ProvisioningRequestConfig", "nodes")
        await autoscaler.until()
        await until_message(env, "w", "not active")
        await config(env)
        await autoscaler.until("w-nodes-1")


async def test_requests_go_when_the_workload_is_done(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.reports("w-nodes-1", "Provisioned")
        await env.until_condition("w", "Admitted", "True/Admitted")
        await env.finish("w")
        await autoscaler.until()


async def test_a_request_waits_for_an_earlier_one_of_its_name_to_be_gone_without_a_message(engine: Engine) -> None:
    """The autoscaler may keep a request for a while that is deleted with an eviction."""
    async with provisioned(engine) as (env, autoscaler):
        await env.asks("w")
        before = await autoscaler.asked("w-nodes-1")
        held = {"metadata": {"finalizers": ["example.com/autoscaler"]}}
        await env.client.patch(REQUEST, "w-nodes-1", held, "default")
        await env.patch("Workload", "w", {"spec": {"active": False}})

        async def is_going() -> bool:
            return "deletionTimestamp" in (await autoscaler.asked("w-nodes-1"))["metadata"]

        await env.until(is_going)
        await env.release("w")
        await env.patch("Workload", "w", {"spec": {"active": True}})
        await env.until_condition("w", "QuotaReserved", "True/QuotaReserved")
        await env.quiet()
        assert "Error creating" not in (await check_state(env, "w"))["message"]
        assert await env.events("w", "FailedCreate") == []
        await env.client.patch(REQUEST, "w-nodes-1", {"metadata": {"finalizers": None}}, "default")

        async def is_new() -> bool:
            requests = await autoscaler.requests()
            return "w-nodes-1" in requests and requests["w-nodes-1"]["metadata"]["uid"] != before["metadata"]["uid"]

        await env.until(is_new)


async def test_without_the_gate_requests_outlive_an_eviction(engine: Engine) -> None:
    off = {"CleanupProvisioningRequestsOnEviction": False}
    async with provisioned(engine, gates=off, **PATIENT) as (env, autoscaler):
        await env.asks("w")
        await autoscaler.reports("w-nodes-1", "Failed")
        await env.until_condition("w", "Evicted", "True/AdmissionCheck")
        await env.quiet()
        await autoscaler.until("w-nodes-1")
        await env.release("w")
        await autoscaler.until("w-nodes-2")  # the next attempt takes its place


async def test_a_refused_request_is_reported_and_retried(engine: Engine) -> None:
    """The stand-in CRD allows values of 255 characters; annotations may be longer."""
    async with provisioned(engine) as (env, autoscaler):
        job = {"template": several(("main", 1, {"cpu": "1"}))[0]["template"]}
        notes = {f"{labels.PROVISIONING_PREFIX}essay": "x" * 300}
        await env.create("Job", "j", job, labels={labels.QUEUE_NAME: "lq"}, annotations=notes)

        async def has_message() -> bool:
            (workload,) = await env.all("Workload") or ({"metadata": {"name": ""}},)
            return bool(await env.events(workload["metadata"]["name"], "FailedCreate"))

        await env.until(has_message)
        (workload,) = await env.all("Workload")
        await until_message(env, workload["metadata"]["name"], "essay")
        await until_message(env, workload["metadata"]["name"], "Error creating ProvisioningRequest")
        assert await autoscaler.requests() == {}


async def test_two_checks_ask_each_for_themselves(engine: Engine) -> None:
    async with provisioned(engine) as (env, autoscaler):
        await env.create("ProvisioningRequestConfig", "more", {"provisioningClassName": "other.example"})
        reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "more"}
        await env.create(
            "AdmissionCheck", "more", {"controllerName": labels.PROVISIONING_CONTROLLER, "parameters": reference}
        )
        both = {"admissionChecks": [{"name": "nodes"}, {"name": "more"}]}
        await env.patch("ClusterQueue", "cq", {"spec": {"admissionChecksStrategy": both}})
        await env.until_condition("more", "Active", "True/Active", "AdmissionCheck")
        await env.asks("w")
        await autoscaler.until("w-nodes-1", "w-more-1")
        await autoscaler.reports("w-nodes-1", "Provisioned")
        await env.until_states("w", nodes="Ready", more="Pending")
        await autoscaler.reports("w-more-1", "Provisioned")
        # Both name the request that pods are to consume, and there can be only one.
        await env.until_states("w", nodes="Ready", more="Ready")


# --- With topology ----------------------------------------------------------------------------------------------------


async def test_a_place_is_chosen_once_the_nodes_exist(engine: Engine) -> None:
    """`delayedTopologyRequest`: quota first, nodes next, and a place on them last."""
    async with provisioned(engine) as (env, autoscaler):
        await env.create("Topology", "racks", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
        await env.create("ResourceFlavor", "placed", {"nodeLabels": {"pool": "elastic"}, "topologyName": "racks"})
        flavor = {"name": "placed", "resources": [{"name": "cpu", "nominalQuota": "5"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        await env.patch("ClusterQueue", "cq", {"spec": {"resourceGroups": groups}})
        await env.quiet()
        await env.asks("w", {"cpu": "1"})
        await autoscaler.asked("w-nodes-1")

        async def assigned() -> Tree:
            found: Tree = (await env.read("Workload", "w"))["status"]["admission"]["podSetAssignments"][0]
            return found

        assert (await assigned())["delayedTopologyRequest"] == "Pending"
        await env.node("fresh", {"cpu": "4"}, pool="elastic")
        await env.quiet()
        await autoscaler.reports("w-nodes-1", "Provisioned")
        await env.until_condition("w", "Admitted", "True/Admitted")
        found = await assigned()
        assert found["delayedTopologyRequest"] == "Ready"
        assert found["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]


async def _has_any(autoscaler: Autoscaler) -> bool:
    return bool(await autoscaler.requests())
