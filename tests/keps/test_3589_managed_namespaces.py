"""KEP-3589: one namespace selector decides, for all kinds of jobs, which jobs without a queue name are managed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controllers.conftest import template
from tests.keps.engines import Engine
from tests.keps.system import System, gates, system

from pykueue import settings
from pykueue.api import labels
from pykueue.api.trees import get
from pykueue.errors import ConfigurationError
from pykueue.jobs import kinds, selection
from pykueue.jobs.kinds import Row
from pykueue.jobs.options import Options

SELECTOR = {"managedJobsNamespaceSelector": {"matchLabels": {"managed": "yes"}}}
FRAMEWORKS = {"integrations": {"frameworks": ["batch/job", "pod"]}}
WIDE: dict[str, Any] = {"manageJobsWithoutQueueName": True, **SELECTOR, **FRAMEWORKS}
NARROW: dict[str, Any] = {"manageJobsWithoutQueueName": False, **SELECTOR, **FRAMEWORKS}
NAMED = {labels.QUEUE_NAME: "lq"}


async def rooms(story: System) -> None:
    """A namespace that the selector takes in, one that it does not, and a way to quota from both."""
    await story.namespace("in", managed="yes")
    await story.namespace("out", managed="no")
    await story.cluster_queue("cq")
    for namespace in ("in", "out"):
        await story.create("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace=namespace)


async def job(story: System, namespace: str, name: str, label: dict[str, str] | None = None, **metadata: Any) -> Any:
    return await story.create(
        "Job", name, {"template": template("1")}, namespace=namespace, labels=label or {}, **metadata
    )


async def is_suspended(story: System, namespace: str, name: str) -> bool:
    return bool(get(await story.find_in(namespace, "Job", name), "spec", "suspend"))


async def workloads(story: System) -> list[str]:
    """Whose Workloads there are."""
    found = [(each["metadata"], owner) for each in await story.all("Workload") for owner in _owners(each)]
    return sorted(f"{metadata['namespace']}/{owner['name']}" for metadata, owner in found)


def _owners(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return list(get(tree, "metadata", "ownerReferences") or [])


# --- Proposal ---------------------------------------------------------------------------------------------------------


async def test_without_the_switch_exactly_the_named_jobs_are_managed(engine: Engine) -> None:
    """1. managedJobsNamespaceSelector has no effect."""
    async with system(engine, **NARROW) as story:
        await rooms(story)
        for namespace in ("in", "out"):
            await job(story, namespace, "named", NAMED)
            await job(story, namespace, "plain")
        await story.until(lambda: _has(story, ["in/named", "out/named"]))
        await story.quiet()
        assert await workloads(story) == ["in/named", "out/named"]
        assert not await is_suspended(story, "in", "plain")


async def test_with_the_switch_the_others_are_managed_where_the_selector_says(engine: Engine) -> None:
    """2. (a) all with a queue name, (b) those without in namespaces that match."""
    async with system(engine, **WIDE) as story:
        await rooms(story)
        for namespace in ("in", "out"):
            await job(story, namespace, "named", NAMED)
            await job(story, namespace, "plain")
        await story.until(lambda: _has(story, ["in/named", "in/plain", "out/named"]))
        await story.quiet()
        assert await workloads(story) == ["in/named", "in/plain", "out/named"]
        assert await is_suspended(story, "in", "plain")  # it has no queue to be admitted through
        assert not await is_suspended(story, "out", "plain")


async def _has(story: System, names: list[str]) -> bool:
    return set(names) <= set(await workloads(story))


async def test_pods_follow_the_same_rule(engine: Engine) -> None:
    async with system(engine, **WIDE) as story:
        await rooms(story)
        spec = template("1")["spec"]
        for namespace in ("in", "out"):
            await story.create("Pod", "named", spec, namespace=namespace, labels=NAMED)
            await story.create("Pod", "plain", spec, namespace=namespace)
        gated = {}
        for namespace in ("in", "out"):
            for name in ("named", "plain"):
                found = await story.find_in(namespace, "Pod", name)
                marked = get(found, "metadata", "labels", "kueue.x-k8s.io/managed") == "true"
                gated[f"{namespace}/{name}"] = marked
        assert gated == {"in/named": True, "in/plain": True, "out/named": True, "out/plain": False}


EVERY_KIND = tuple(kinds.load())


@pytest.mark.parametrize("row", EVERY_KIND, ids=lambda row: row.framework)
@pytest.mark.parametrize(
    ("configuration", "named", "selected", "managed"),
    [
        (WIDE, True, True, True),
        (WIDE, True, False, True),
        (WIDE, False, True, True),
        (WIDE, False, False, False),
        (NARROW, True, False, True),
        (NARROW, False, True, False),
    ],
    ids=["named in", "named out", "plain in", "plain out", "named out, switch off", "plain in, switch off"],
)
def test_the_rule_is_the_same_for_every_integration(
    row: Row, configuration: dict[str, Any], named: bool, selected: bool, managed: bool
) -> None:
    """Implementation: all Job webhooks, and the reconciler, ask one function."""
    tree = {
        "apiVersion": row.kind.api_version,
        "kind": row.kind.kind,
        "metadata": {"name": "x", "labels": NAMED if named else {}},
    }
    namespace = {"managed": "yes" if selected else "no"}
    assert selection.is_managed(row, tree, namespace, options(**configuration)) is managed


def options(version: str = "v1beta2", **configuration: Any) -> Options:
    found = load(version, **configuration)
    return Options.of(found.configuration, found.gates, found.pod_namespace_selector)


def load(version: str = "v1beta2", **configuration: Any) -> settings.Settings:
    return settings.load(
        {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration", **configuration},
        "test",
        namespace="queueing",
    )


# --- API: jobs created before the manager started ---------------------------------------------------------------------


async def test_a_job_that_no_webhook_saw_is_suspended_by_the_reconciler(engine: Engine) -> None:
    async with engine.bare() as story:
        await rooms(story)
        for namespace in ("in", "out"):
            await job(story, namespace, "early")
        assert not await is_suspended(story, "in", "early")
        async with story.manager(**WIDE) as story.running:
            await story.until(lambda: is_suspended(story, "in", "early"))
            await story.quiet()
            assert not await is_suspended(story, "out", "early")


async def test_a_namespace_that_is_labelled_later_counts_from_then_on(engine: Engine) -> None:
    async with system(engine, **WIDE) as story:
        await rooms(story)
        await job(story, "out", "before")
        await story.relabel("out", managed="yes")
        await story.quiet()
        await job(story, "out", "after")
        assert await is_suspended(story, "out", "after")


# --- Alternatives: what a managed job owns ----------------------------------------------------------------------------


async def test_a_child_of_a_managed_job_is_not_managed_a_second_time(engine: Engine) -> None:
    """Directly, or through a chain of owners."""
    async with system(engine, **WIDE) as story:
        await rooms(story)
        parent = await job(story, "in", "parent", NAMED)

        async def runs() -> bool:
            return not await is_suspended(story, "in", "parent")

        await story.until(runs)
        child = await job(story, "in", "child", ownerReferences=[_owner(parent)])
        await job(story, "in", "grandchild", ownerReferences=[_owner(child)])
        await story.quiet()
        assert await workloads(story) == ["in/parent"]
        assert not await is_suspended(story, "in", "child")
        assert not await is_suspended(story, "in", "grandchild")


def _owner(tree: dict[str, Any]) -> dict[str, Any]:
    metadata = tree["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


# --- Story 1, and Implementation: the configuration -------------------------------------------------------------------


def test_by_default_the_system_and_the_manager_itself_are_left_out() -> None:
    found = options(manageJobsWithoutQueueName=True)
    name = "kubernetes.io/metadata.name"
    assert [found.namespaces.matches({name: each}) for each in ("kube-system", "queueing", "team")] == [
        False,
        False,
        True,
    ]


def test_the_old_selector_is_accepted_in_v1beta1_with_a_notice_and_intersected() -> None:
    old = {"integrations": {"podOptions": {"namespaceSelector": {"matchLabels": {"pods": "yes"}}}}}
    configuration: dict[str, Any] = {"manageJobsWithoutQueueName": True, **SELECTOR, **old}
    assert any("podOptions.namespaceSelector" in notice for notice in load("v1beta1", **configuration).notices)
    found = options("v1beta1", **configuration)
    both, one = {"managed": "yes", "pods": "yes"}, {"managed": "yes"}
    by_framework = {row.framework: row for row in EVERY_KIND}
    for framework in ("pod", "deployment", "statefulset"):
        row = by_framework.get(framework)
        if row is not None and row.implementation is not None:  # those that this version runs
            assert selection.selects(row, both, found)
            assert not selection.selects(row, one, found)
    assert selection.selects(by_framework["batch/job"], one, found)


def test_in_v1beta2_it_is_an_unknown_field_and_the_message_names_its_replacement() -> None:
    with pytest.raises(ConfigurationError, match="managedJobsNamespaceSelector"):
        load(integrations={"podOptions": {"namespaceSelector": {}}})


# --- Where today's system differs -------------------------------------------------------------------------------------


async def test_with_the_gate_the_selector_overrules_the_queue_name(engine: Engine) -> None:
    """ManagedJobsNamespaceSelectorAlwaysRespected: on and locked elsewhere, a choice here.

    The webhook holds such a job all the same: it asked for a queue, so to let it run freely would be worse.
    """
    async with system(engine, **NARROW, **gates("ManagedJobsNamespaceSelectorAlwaysRespected")) as story:
        await rooms(story)
        await job(story, "in", "named", NAMED)
        await job(story, "out", "named", NAMED)
        await story.until(lambda: _has(story, ["in/named"]))
        await story.quiet()
        assert await workloads(story) == ["in/named"]
        assert await is_suspended(story, "out", "named")
