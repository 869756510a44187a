"""What leads an API server to our webhooks, and how narrow it is."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec.structs import replace

from kubemachinery.client.client import ApiClient
from pykueue.webhooks import registration
from pykueue.webhooks.registration import CRD, KINDS, NAMES, WebhookClientConfig
from pykueue.webhooks.review import Phase
from webhooks.conftest import choices, kind

Tree = dict[str, Any]

NAMESPACE = "kueue-system"
SERVICE = WebhookClientConfig(namespace=NAMESPACE, service="kueue-webhook-service")
BESIDE = WebhookClientConfig(url="https://127.0.0.1:9443", ca=b"believe me")

BY_NAME = "kubernetes.io/metadata.name"
SPARED = {"key": BY_NAME, "operator": "NotIn", "values": ["kube-system", NAMESPACE]}


def webhooks(reach: WebhookClientConfig = SERVICE, **configuration: Any) -> dict[str, Tree]:
    made = registration.configurations(choices(**configuration), reach, NAMESPACE)
    return {webhook["name"]: webhook for one in made for webhook in one["webhooks"]}


def test_no_webhook_is_called_on_deletion() -> None:
    operations = {operation for one in webhooks().values() for rule in one["rules"] for operation in rule["operations"]}
    assert operations == {"CREATE", "UPDATE"}


def test_kueue_kinds_are_reviewed_in_every_namespace() -> None:
    found = webhooks()["vclusterqueue.kb.io"]
    assert (found["namespaceSelector"], found["objectSelector"]) == ({}, {})


def test_jobs_of_system_namespaces_are_not_reviewed() -> None:
    """Else a cluster could not start while we are down."""
    for name, webhook in webhooks().items():
        if "job" in name or "pod" in name:
            assert webhook["namespaceSelector"]["matchExpressions"] == [SPARED]


def test_in_other_namespaces_only_jobs_with_queue_name_are_reviewed() -> None:
    found = webhooks(managedJobsNamespaceSelector={"matchLabels": {"team": "red"}})
    assert found["mpod.kb.io"]["namespaceSelector"]["matchExpressions"] == [
        SPARED,
        {"key": "team", "operator": "In", "values": ["red"]},
    ]
    named = found["mpod-named.kb.io"]
    assert named["namespaceSelector"]["matchExpressions"] == [SPARED]
    assert named["objectSelector"]["matchExpressions"] == [{"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}]
    assert named["clientConfig"] == found["mpod.kb.io"]["clientConfig"]


def test_with_the_selector_always_respected_pods_elsewhere_are_left_alone() -> None:
    """Jobs are not: one that names a queue is held wherever it is."""
    chosen = choices(managedJobsNamespaceSelector={"matchLabels": {"team": "red"}})
    strict = replace(chosen, jobs=replace(chosen.jobs, selector_always_respected=True))
    mutating, _ = registration.configurations(strict, SERVICE, NAMESPACE)
    found = [webhook["name"] for webhook in mutating["webhooks"]]
    assert "mpod-named.kb.io" not in found
    assert "mjob-named.kb.io" in found


def test_pods_are_reviewed_only_with_the_integration() -> None:
    assert not [name for name in webhooks(integrations={"frameworks": ["batch/job"]}) if "pod" in name]


@pytest.mark.parametrize(
    ("reach", "wanted"),
    [
        (
            SERVICE,
            {
                "service": {
                    "namespace": NAMESPACE,
                    "name": "kueue-webhook-service",
                    "path": "/mutate-batch-v1-job",
                    "port": 443,
                }
            },
        ),
        (
            BESIDE,
            {
                "caBundle": base64.b64encode(b"believe me").decode(),
                "url": "https://127.0.0.1:9443/mutate-batch-v1-job",
            },
        ),
    ],
)
def test_in_a_cluster_a_service_leads_here_and_beside_it_a_url(reach: WebhookClientConfig, wanted: Tree) -> None:
    assert webhooks(reach)["mjob.kb.io"]["clientConfig"] == wanted


async def test_registering_changes_what_differs_and_then_nothing(client: ApiClient) -> None:
    first = await registration.register(client, choices(), BESIDE, NAMESPACE)
    assert len(first) == 8  # two configurations, and the six kinds that change shape
    assert await registration.register(client, choices(), BESIDE, NAMESPACE) == []
    fewer = choices(integrations={"frameworks": ["batch/job"]})
    assert len(await registration.register(client, fewer, BESIDE, NAMESPACE)) == 2
    stored = await client.get(KINDS[Phase.MUTATE], NAMES[Phase.MUTATE])
    assert "mpod.kb.io" not in [webhook["name"] for webhook in stored["webhooks"]]


async def test_registration_sets_conversion_and_keeps_other_fields(client: ApiClient) -> None:
    name = kind("ClusterQueue").name
    await client.patch(CRD, name, {"metadata": {"labels": {"team": "platform"}}})
    await registration.register(client, choices(), BESIDE, NAMESPACE)
    stored = await client.get(CRD, name)
    assert stored["spec"]["conversion"]["webhook"]["clientConfig"]["url"] == "https://127.0.0.1:9443/convert"
    assert stored["metadata"]["labels"] == {"team": "platform"}
