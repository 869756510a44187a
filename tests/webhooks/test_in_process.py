"""In-process and HTTPS webhooks decide alike: the embedded server answers as another API server does."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.clock import SystemClock
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.app import in_process_webhooks
from pykueue.app.server import kueue_parts
from pykueue.webhooks import facts, webhook_server
from pykueue.webhooks.certificate import InMemoryStore
from webhooks.conftest import GROUP, choices, cluster_queue, job, kind

Tree = dict[str, Any]

QUEUE = "kueue.x-k8s.io/queue-name"


@pytest.fixture(params=["in the process", "over HTTPS"])
async def behind_webhooks(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A server whose writes are reviewed in the process or over HTTPS."""
    parts = kueue_parts()
    inside = request.param == "in the process"
    if inside:
        plugins = parts.plugins
        parts = replace(parts, plugins=lambda find: (*plugins(find), *in_process_webhooks.hooks(choices(), find)))
    place = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(place, parts, rng=random.Random(1)) as server:
        client = ApiClient(
            LocalTransport(partial(server.embedded.server.handle_as, authentication.ADMIN)), random.Random(1)
        )
        if inside:
            yield client
            return
        sources = facts.InformerSources(client, ())
        async with webhook_server.webhooks(
            client, choices(), sources, webhook_server.on_loopback(InMemoryStore()), SystemClock(), "kueue-system"
        ) as served:
            await served.register()
            yield client


async def refusal(client: ApiClient, tree: Tree) -> tuple[int, str, list[str]]:
    with pytest.raises(ApiError) as caught:
        await client.create(kind(tree["kind"]), tree)
    return caught.value.code, str(caught.value), [cause.partition(":")[0] for cause in caught.value.causes]


async def test_a_new_object_gets_its_defaults(behind_webhooks: ApiClient) -> None:
    made = await behind_webhooks.create(kind("ClusterQueue"), cluster_queue(quota="5000m"))
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert made["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "5"


async def test_an_object_of_the_older_version_gets_them_as_well_and_keeps_its_words(behind_webhooks: ApiClient) -> None:
    old = {**cluster_queue(), "apiVersion": "kueue.x-k8s.io/v1beta1"}
    old["spec"] = {**old["spec"], "cohort": "team"}
    row = kind("ClusterQueue")
    older = replace(row, versions=tuple(replace(one, storage=one.name == "v1beta1") for one in row.versions))
    made = await behind_webhooks.create(older, old)
    assert made["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert made["spec"]["cohort"] == "team"


async def test_a_broken_rule_is_a_403_with_the_name_of_the_webhook_and_the_field(behind_webhooks: ApiClient) -> None:
    code, message, fields = await refusal(behind_webhooks, cluster_queue(quota="-1"))
    assert code == 403
    assert message.startswith('admission webhook "vclusterqueue.kb.io" denied the request: spec.resourceGroups[0]')
    assert fields == ["spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"]


async def test_what_cannot_be_read_is_a_400(behind_webhooks: ApiClient) -> None:
    code, message, fields = await refusal(behind_webhooks, cluster_queue(quota="ten"))
    assert (code, fields) == (400, [])
    assert message.startswith('admission webhook "mclusterqueue.kb.io" denied the request: ')


async def test_only_the_workload_status_is_reviewed(behind_webhooks: ApiClient) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
    workload = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": "w", "namespace": "default"}}
    await behind_webhooks.create(kind("Workload"), {**workload, "spec": spec})
    pods = {"status": {"reclaimablePods": [{"name": "main", "count": 2}]}}
    with pytest.raises(ApiError) as caught:
        await behind_webhooks.patch(kind("Workload"), "w", pods, "default", subresource="status")
    assert caught.value.code == 403
    assert "reclaimablePods" in str(caught.value)


async def test_a_job_in_a_namespace_with_a_default_queue_is_held(behind_webhooks: ApiClient) -> None:
    """The namespace, the LocalQueue and the owners are looked up on the server itself."""
    place = {"name": "default", "namespace": "default"}
    queue = {"apiVersion": GROUP, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": "cq"}}
    await behind_webhooks.create(kind("LocalQueue"), queue)
    made = await behind_webhooks.create(kind("Job"), job())
    assert (made["metadata"]["labels"][QUEUE], made["spec"]["suspend"]) == ("default", True)


async def test_a_pod_that_names_a_queue_is_gated(behind_webhooks: ApiClient) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "namespace": "default", "labels": {QUEUE: "lq"}}
    made = await behind_webhooks.create(
        kind("Pod"), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    assert {"name": "kueue.x-k8s.io/admission"} in made["spec"]["schedulingGates"]


async def test_a_pod_is_seen_as_it_will_be_kept_so_that_its_role_is_the_same_everywhere(
    behind_webhooks: ApiClient,
) -> None:
    """Its priority and what it tolerates by default are part of its shape; these digits are Kueue's on a cluster."""
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}
    metadata = {"name": "p", "namespace": "default", "labels": {QUEUE: "lq"}}
    made = await behind_webhooks.create(
        kind("Pod"), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    )
    assert made["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] == "c3465716"


async def test_deletion_is_not_reviewed(behind_webhooks: ApiClient) -> None:
    await behind_webhooks.create(kind("Job"), job(**{QUEUE: "lq"}))
    await behind_webhooks.delete(kind("Job"), "train", "default")
