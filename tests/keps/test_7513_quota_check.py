"""KEP-7513: quota counts everything that is requested, or only what a ClusterQueue declares."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from keps.engines import Engine
from keps.system import gates, system
from kubemachinery.unstructured import get
from pykueue import settings
from pykueue.cli import explain
from pykueue.errors import ConfigurationError
from pykueue.webhooks.review import NO_FACTS, AdmissionRequest, Phase, review
from webhooks.conftest import choices, cluster_queue

BOTH = gates("QuotaCheck", "ClusterQueueExcludeResourcePrefixes")
ONLY_DECLARED: dict[str, Any] = {**gates("QuotaCheck"), "resources": {"quotaCheck": "OnlyDeclared"}}
FPGA = {"cpu": "1", "vendor.example/fpga": "1"}


def load(**configuration: Any) -> settings.Settings:
    return settings.load(
        {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration}, "test"
    )


# --- Test Plan, Integration Tests -------------------------------------------------------------------------------------


async def test_only_declared_admits_what_asks_for_undeclared_resources(engine: Engine) -> None:
    async with system(engine, **ONLY_DECLARED) as env:
        await env.queue()
        await env.asks("w", FPGA)
        await env.until_condition("w", "Admitted", "True/Admitted")
        (assigned,) = get(await env.read("Workload", "w"), "status", "admission", "podSetAssignments")
        assert assigned["flavors"] == {"cpu": "plain"}


async def test_what_is_declared_is_checked_as_ever(engine: Engine) -> None:
    async with system(engine, **ONLY_DECLARED) as env:
        await env.queue({"cpu": "5", "vendor.example/fpga": "1"})
        await env.asks("fits", FPGA)
        await env.asks("too-many", {"cpu": "1", "vendor.example/fpga": "2"})
        await env.until_condition("fits", "Admitted", "True/Admitted")
        await env.until_condition("too-many", "QuotaReserved", "False/ExceedsMaxQuota")


async def test_what_is_declared_and_not_asked_for_is_skipped(engine: Engine) -> None:
    async with system(engine, **ONLY_DECLARED) as env:
        await env.queue({"cpu": "5", "vendor.example/fpga": "1"})
        await env.asks("w", {"cpu": "1"})
        await env.until_condition("w", "Admitted", "True/Admitted")


@pytest.mark.parametrize(
    "configuration",
    [{**gates("QuotaCheck"), "resources": {"quotaCheck": "All"}}, {"resources": {"quotaCheck": "OnlyDeclared"}}, {}],
    ids=["All", "the gate off", "no setting"],
)
async def test_otherwise_undeclared_resources_block(engine: Engine, configuration: dict[str, Any]) -> None:
    """All is the default; Feature Gate: while it is off the field is ignored."""
    async with system(engine, **configuration) as env:
        await env.queue()
        await env.asks("w", FPGA)
        await env.until_condition("w", "QuotaReserved", "False/NoMatchingFlavor")


# --- Interaction with excludeResourcePrefixes -------------------------------------------------------------------------


async def test_with_all_the_list_of_exclusions_counts(engine: Engine) -> None:
    resources = {"quotaCheck": "All", "excludeResourcePrefixes": ["vendor.example/"]}
    async with system(engine, **gates("QuotaCheck"), resources=resources) as env:
        await env.queue()
        await env.asks("w", FPGA)
        await env.until_condition("w", "Admitted", "True/Admitted")


async def test_with_only_declared_neither_list_of_exclusions_counts(engine: Engine) -> None:
    """The field is ignored and has no effect; so is a ClusterQueue's own (KEP-5800)."""
    resources = {"quotaCheck": "OnlyDeclared", "excludeResourcePrefixes": ["vendor.example/"]}
    async with system(engine, **BOTH, resources=resources) as env:
        quota = {"cpu": "5", "vendor.example/fpga": "1", "example.com/gpu": "1"}
        await env.queue(quota, excludeResourcePrefixes=["example.com"])
        await env.asks("by-the-global-list", {"vendor.example/fpga": "2"})
        await env.asks("by-the-queues-own", {"example.com/gpu": "2"})
        await env.until_condition("by-the-global-list", "QuotaReserved", "False/ExceedsMaxQuota")
        await env.until_condition("by-the-queues-own", "QuotaReserved", "False/ExceedsMaxQuota")


def test_both_together_are_accepted_with_one_warning() -> None:
    resources = {"quotaCheck": "OnlyDeclared", "excludeResourcePrefixes": ["vendor.example/"]}
    (notice,) = load(**gates("QuotaCheck"), resources=resources).notices
    assert notice.startswith("resources.excludeResourcePrefixes: has no effect")
    (notice,) = load(**gates("QuotaCheck"), resources={**resources, "quotaCheck": "All"}).notices
    assert "has no effect" not in notice


def test_a_cluster_queue_with_a_list_of_its_own_is_warned_of() -> None:
    tree = cluster_queue(excludeResourcePrefixes=["vendor.example/"])
    request = AdmissionRequest(phase=Phase.VALIDATE, operation="CREATE", object=tree)
    found = review(request, NO_FACTS, choices(**BOTH, resources={"quotaCheck": "OnlyDeclared"}))
    assert found.refusal is None
    (warning,) = found.warnings
    assert "has no effect" in warning


# --- The other spelling -----------------------------------------------------------------------------------------------


async def test_ignore_undeclared_means_the_same(engine: Engine) -> None:
    async with system(engine, resources={"quotaCheckStrategy": "IgnoreUndeclared"}) as env:
        await env.queue()
        await env.asks("w", FPGA)
        await env.until_condition("w", "Admitted", "True/Admitted")


def test_two_spellings_with_different_meanings_are_refused() -> None:
    resources = {"quotaCheck": "OnlyDeclared", "quotaCheckStrategy": "BlockUndeclared"}
    with pytest.raises(ConfigurationError, match="quotaCheck"):
        load(**gates("QuotaCheck"), resources=resources)
    agreeing = {"quotaCheck": "OnlyDeclared", "quotaCheckStrategy": "IgnoreUndeclared"}
    assert load(**gates("QuotaCheck"), resources=agreeing).ignores_undeclared


# --- Risks and Mitigations: logging with resources that are being skipped ---------------------------------------------


async def test_skipped_resources_are_reported_and_logged_once(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    async with system(engine, **ONLY_DECLARED) as env:
        await env.queue({"cpu": "1"})
        with caplog.at_level(logging.INFO, "pykueue"):
            await env.asks("first", FPGA)
            await env.until_condition("first", "Admitted", "True/Admitted")
            await env.asks("second", FPGA)
            await env.until_condition("second", "QuotaReserved", "False/WaitingForQuota")
            await env.finish("first")
            await env.until_condition("second", "Admitted", "True/Admitted")
            await env.quiet()
        skipped = "not counted: vendor.example/fpga (not declared)"
        assert [each for each in caplog.messages if skipped in each] == [
            f"default/{name}: {skipped}" for name in ("first", "second")
        ]
        (event,) = await env.events("second", "QuotaReserved")
        assert skipped in event["note"]


async def test_explain_shows_what_is_skipped(engine: Engine) -> None:
    async with system(engine, **ONLY_DECLARED) as env:
        await env.queue({"cpu": "1"})
        await env.asks("w", FPGA)
        await env.until_condition("w", "Admitted", "True/Admitted")
        found = await env.explain("w", **ONLY_DECLARED)
        assert "\nNot counted against quota\n  vendor.example/fpga (not declared)" in "\n".join(
            explain.lines(found.tree())
        )
        assert found.tree()["notCounted"] == [{"resource": "vendor.example/fpga", "reason": "NotDeclared"}]


# --- Goals: one option, and the list of exclusions is deprecated ------------------------------------------------------


def test_list_of_exclusions_is_deprecated_where_the_gate_is_on() -> None:
    listed = {"resources": {"excludeResourcePrefixes": ["example.com"]}}
    (notice,) = load(**gates("QuotaCheck"), **listed).notices
    assert notice.startswith("resources.excludeResourcePrefixes: is deprecated (KEP-7513)")
    assert load(**listed).notices == (), "KEP-5800 keeps the list, and without the gate it is not replaced"


def test_all_is_the_default_that_config_check_shows() -> None:
    listed = {"resources": {"excludeResourcePrefixes": ["example.com"]}}
    assert load(**gates("QuotaCheck"), **listed).tree["resources"]["quotaCheck"] == "All"
    assert "quotaCheck" not in load(**listed).tree["resources"]
    ignores = {"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}
    assert "quotaCheck" not in load(**gates("QuotaCheck"), **ignores).tree["resources"]


# --- Non-Goals: placement ---------------------------------------------------------------------------------------------


async def test_a_place_is_looked_for_by_everything_that_is_asked_for(engine: Engine) -> None:
    """What quota ignores, a node must have all the same."""
    async with system(engine, **ONLY_DECLARED) as env:
        await env.create("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
        await env.create("ResourceFlavor", "plain", {"nodeLabels": {"pool": "a"}, "topologyName": "hosts"})
        await env.node("bare", {"cpu": "8"}, pool="a")
        await env.queue()
        await env.asks("w", FPGA)
        await env.until_condition("w", "QuotaReserved", "False/TopologyPlacementFailed")
        await env.node("equipped", {"cpu": "8", "vendor.example/fpga": "2"}, pool="a")
        await env.until_condition("w", "Admitted", "True/Admitted")
