"""KEP-3589: one namespace selector decides, for all kinds of jobs, which jobs without a queue name are managed."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.conftest import template
from keps.engines import Engine
from keps.system import System, gates, system
from kubemachinery.kinds import Kind, Version
from kubemachinery.object_view import ObjectView
from kubemachinery.unstructured import get
from pykueue import settings
from pykueue.api import labels
from pykueue.errors import ConfigurationError
from pykueue.jobs import kinds, selection
from pykueue.jobs.kinds import JobIntegration
from pykueue.jobs.options import IntegrationOptions

SELECTOR = {"managedJobsNamespaceSelector": {"matchLabels": {"managed": "yes"}}}
FRAMEWORKS = {"integrations": {"frameworks": ["batch/job", "pod"]}}
WIDE: dict[str, Any] = {"manageJobsWithoutQueueName": True, **SELECTOR, **FRAMEWORKS}
NARROW: dict[str, Any] = {"manageJobsWithoutQueueName": False, **SELECTOR, **FRAMEWORKS}
NAMED = {labels.QUEUE_NAME: "lq"}


async def namespaces_with_queues(env: System) -> None:
    """A namespace that the selector takes in, one that it does not, and a way to quota from both."""
    await env.namespace("in", managed="yes")
    await env.namespace("out", managed="no")
    await env.cluster_queue("cq")
    for namespace in ("in", "out"):
        await env.create("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace=namespace)


async def job(env: System, namespace: str, name: str, label: dict[str, str] | None = None, **metadata: Any) -> Any:
    return await env.create(
        "Job", name, {"template": template("1")}, namespace=namespace, labels=label or {}, **metadata
    )


async def is_suspended(env: System, namespace: str, name: str) -> bool:
    return bool(get(await env.find_in(namespace, "Job", name), "spec", "suspend"))


async def workloads(env: System) -> list[str]:
    """Whose Workloads there are."""
    found = [(each["metadata"], owner) for each in await env.all("Workload") for owner in _owners(each)]
    return sorted(f"{metadata['namespace']}/{owner['name']}" for metadata, owner in found)


def _owners(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return list(get(tree, "metadata", "ownerReferences") or [])


# --- Proposal ---------------------------------------------------------------------------------------------------------


async def test_without_the_switch_exactly_the_named_jobs_are_managed(engine: Engine) -> None:
    """1. managedJobsNamespaceSelector has no effect."""
    async with system(engine, **NARROW) as env:
        await namespaces_with_queues(env)
        for namespace in ("in", "out"):
            await job(env, namespace, "named", NAMED)
            await job(env, namespace, "plain")
        await env.until(lambda: _has(env, ["in/named", "out/named"]))
        await env.quiet()
        assert await workloads(env) == ["in/named", "out/named"]
        assert not await is_suspended(env, "in", "plain")


async def test_with_the_switch_jobs_without_queue_are_managed_in_selected_namespaces(engine: Engine) -> None:
    """2. (a) all with a queue name, (b) those without in namespaces that match."""
    async with system(engine, **WIDE) as env:
        await namespaces_with_queues(env)
        for namespace in ("in", "out"):
            await job(env, namespace, "named", NAMED)
            await job(env, namespace, "plain")
        await env.until(lambda: _has(env, ["in/named", "in/plain", "out/named"]))
        await env.quiet()
        assert await workloads(env) == ["in/named", "in/plain", "out/named"]
        assert await is_suspended(env, "in", "plain")  # it has no queue to be admitted through
        assert not await is_suspended(env, "out", "plain")


async def _has(env: System, names: list[str]) -> bool:
    return set(names) <= set(await workloads(env))


async def test_pods_follow_the_same_rule(engine: Engine) -> None:
    async with system(engine, **WIDE) as env:
        await namespaces_with_queues(env)
        spec = template("1")["spec"]
        for namespace in ("in", "out"):
            await env.create("Pod", "named", spec, namespace=namespace, labels=NAMED)
            await env.create("Pod", "plain", spec, namespace=namespace)
        gated = {}
        for namespace in ("in", "out"):
            for name in ("named", "plain"):
                found = await env.find_in(namespace, "Pod", name)
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
    row: JobIntegration, configuration: dict[str, Any], named: bool, selected: bool, managed: bool
) -> None:
    """Implementation: all Job webhooks, and the reconciler, ask one function."""
    tree = {
        "apiVersion": row.kind.api_version,
        "kind": row.kind.kind,
        "metadata": {"name": "x", "labels": NAMED if named else {}},
    }
    namespace = {"managed": "yes" if selected else "no"}
    assert selection.is_managed(row, ObjectView(tree), namespace, options(**configuration)) is managed


def options(version: str = "v1beta2", **configuration: Any) -> IntegrationOptions:
    found = load(version, **configuration)
    return IntegrationOptions.of(found.configuration, found.gates, found.pod_namespace_selector)


def load(version: str = "v1beta2", **configuration: Any) -> settings.Settings:
    return settings.load(
        {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration", **configuration},
        "test",
        namespace="queueing",
    )


# --- API: jobs created before the manager started ---------------------------------------------------------------------


async def test_a_job_that_no_webhook_saw_is_suspended_by_the_reconciler(engine: Engine) -> None:
    async with engine.bare() as env:
        await namespaces_with_queues(env)
        for namespace in ("in", "out"):
            await job(env, namespace, "early")
        assert not await is_suspended(env, "in", "early")
        async with env.manager(**WIDE) as env.running:
            await env.until(lambda: is_suspended(env, "in", "early"))
            await env.quiet()
            assert not await is_suspended(env, "out", "early")


async def test_pods_that_no_webhook_saw_are_left_alone(engine: Engine) -> None:
    """A pod that runs cannot be suspended: the pod integration marks what is its own when it is made."""
    async with engine.bare() as env:
        await namespaces_with_queues(env)
        await env.create("Pod", "early", template("1")["spec"], namespace="in")
        async with env.manager(**WIDE) as env.running:
            await env.quiet()
            assert await workloads(env) == []
            assert await env.find_in("in", "Pod", "early") is not None


async def test_a_namespace_that_is_labelled_later_counts_from_then_on(engine: Engine) -> None:
    async with system(engine, **WIDE) as env:
        await namespaces_with_queues(env)
        await job(env, "out", "before")
        await env.relabel("out", managed="yes")
        await env.quiet()
        await job(env, "out", "after")
        await env.until(lambda: is_suspended(env, "out", "after"))
        await env.relabel("in", managed=None)
        await env.quiet()
        await job(env, "in", "free")
        await env.quiet()
        assert not await is_suspended(env, "in", "free")


# --- Alternatives: what a managed job owns ----------------------------------------------------------------------------


async def test_a_child_of_a_managed_job_is_not_managed_a_second_time(engine: Engine) -> None:
    """Directly, or through a chain of owners."""
    async with system(engine, **WIDE) as env:
        await namespaces_with_queues(env)
        parent = await job(env, "in", "parent", NAMED)

        async def runs() -> bool:
            return not await is_suspended(env, "in", "parent")

        await env.until(runs)
        child = await job(env, "in", "child", ownerReferences=[_owner(parent)])
        await job(env, "in", "grandchild", ownerReferences=[_owner(child)])
        await env.quiet()
        assert await workloads(env) == ["in/parent"]
        assert not await is_suspended(env, "in", "child")
        assert not await is_suspended(env, "in", "grandchild")


REPLICA_SETS = Kind("apps", "ReplicaSet", "replicasets", (Version("v1", storage=True),))


def _owner(tree: dict[str, Any]) -> dict[str, Any]:
    return _reference("batch/v1", "Job", tree["metadata"]["name"], tree["metadata"]["uid"])


def _reference(api_version: str, kind: str, name: str, uid: str = "0") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


async def test_the_pods_of_a_deployment_go_by_the_chain_of_their_owners(engine: Engine) -> None:
    """A pod of a ReplicaSet of a Deployment: no Deployment controller runs here, so that the pod itself is managed."""
    async with system(engine, **WIDE) as env:
        await namespaces_with_queues(env)
        spec, marks = template("1")["spec"], {"app": "web"}
        for namespace in ("in", "out"):
            pods = {
                "replicas": 0,  # a controller of ReplicaSets would create others
                "selector": {"matchLabels": marks},
                "template": {"metadata": {"labels": marks}, "spec": {**spec, "restartPolicy": "Always"}},
            }
            metadata = {"name": "web-1", "namespace": namespace}
            replicas = await env.client.create(REPLICA_SETS, {"metadata": metadata, "spec": pods})
            chain = [_reference("apps/v1", "ReplicaSet", "web-1", replicas["metadata"]["uid"])]
            await env.create("Pod", "web-1-a", spec, namespace=namespace, ownerReferences=chain)
        marked = {
            namespace: get(await env.find_in(namespace, "Pod", "web-1-a"), "metadata", "labels", labels.MANAGED)
            for namespace in ("in", "out")
        }
        assert marked == {"in": "true", "out": None}


# --- Story 1, and Implementation: the configuration -------------------------------------------------------------------


def test_by_default_the_system_and_the_manager_itself_are_left_out() -> None:
    found = options(manageJobsWithoutQueueName=True)
    name = "kubernetes.io/metadata.name"
    assert [found.namespaces.matches({name: each}) for each in ("kube-system", "queueing", "team")] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("selector", "managed"),
    [
        (
            {
                "matchExpressions": [
                    {"key": labels.NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", "queueing"]}
                ]
            },
            ["team", "labelled"],
        ),
        ({"matchLabels": {"kueue.x-k8s.io/managed-namespace": "true"}}, ["labelled"]),
    ],
    ids=["all but some", "those that are labelled"],
)
def test_administrators_name_those_that_are_exempt_or_those_that_are_not(selector: Any, managed: list[str]) -> None:
    """Story 1, in both of its forms."""
    found = options(manageJobsWithoutQueueName=True, managedJobsNamespaceSelector=selector)
    namespaces: dict[str, dict[str, str]] = {name: {} for name in ("kube-system", "queueing", "team")}
    namespaces["labelled"] = {"kueue.x-k8s.io/managed-namespace": "true"}
    assert managed == [
        name for name, marks in namespaces.items() if found.namespaces.matches({labels.NAMESPACE_NAME: name, **marks})
    ]


def test_the_old_selector_is_accepted_in_v1beta1_with_a_notice_and_intersected() -> None:
    old = {"integrations": {"podOptions": {"namespaceSelector": {"matchLabels": {"pods": "yes"}}}}}
    configuration: dict[str, Any] = {"manageJobsWithoutQueueName": True, **SELECTOR, **old}
    assert any("podOptions.namespaceSelector" in notice for notice in load("v1beta1", **configuration).notices)
    found = options("v1beta1", **configuration)
    both, one = {"managed": "yes", "pods": "yes"}, {"managed": "yes"}
    by_framework = {row.framework: row for row in EVERY_KIND}
    taken = {
        name: [selection.selects(row, labels, found) for labels in (both, one)] for name, row in by_framework.items()
    }
    assert [name for name, answers in taken.items() if answers == [True, False]] == ["pod", "deployment", "statefulset"]
    assert all(answers[0] for answers in taken.values())


def test_in_v1beta2_it_is_an_unknown_field_and_the_message_names_its_replacement() -> None:
    with pytest.raises(ConfigurationError, match="managedJobsNamespaceSelector"):
        load(integrations={"podOptions": {"namespaceSelector": {}}})


# --- Where today's system differs -------------------------------------------------------------------------------------


async def test_with_the_gate_the_selector_overrules_the_queue_name(engine: Engine) -> None:
    """ManagedJobsNamespaceSelectorAlwaysRespected: on and locked elsewhere, a choice here.

    The webhook holds such a job all the same: it asked for a queue, so to let it run freely would be worse.
    """
    async with system(engine, **NARROW, **gates("ManagedJobsNamespaceSelectorAlwaysRespected")) as env:
        await namespaces_with_queues(env)
        await job(env, "in", "named", NAMED)
        await job(env, "out", "named", NAMED)
        await env.until(lambda: _has(env, ["in/named"]))
        await env.quiet()
        assert await workloads(env) == ["in/named"]
        assert await is_suspended(env, "out", "named")
