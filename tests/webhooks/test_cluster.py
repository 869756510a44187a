"""Against a real kube-apiserver: install, serve beside it, be asked, convert, install again, uninstall."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from cluster import assets, real
from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError
from kubemachinery.clock import SystemClock
from kubemachinery.errors import UsageError
from pykueue import settings
from pykueue.install import apply, manifests
from pykueue.webhooks import facts, webhook_server
from waiting import eventually
from webhooks.conftest import choices, cluster_queue, job, kind

pytestmark = pytest.mark.cluster

Tree = dict[str, Any]

QUEUE = "kueue.x-k8s.io/queue-name"
OLD_ROW = kind("ClusterQueue")
OLD = replace(OLD_ROW, versions=tuple(replace(one, storage=one.name == "v1beta1") for one in OLD_ROW.versions))


@pytest.fixture(scope="module")
def cluster() -> Iterator[client_config.ClientConfig]:
    try:
        assets.ensure()
    except assets.AssetsError as wrong:
        pytest.fail(str(wrong))
    with real.started() as server:
        user = {"token": server.token}
        yield client_config.ClientConfig(
            server.url, "default", {"insecure-skip-tls-verify": True}, user, assets.folder()
        )


@contextlib.asynccontextmanager
async def connected(target: client_config.ClientConfig) -> AsyncIterator[ApiClient]:
    client = ApiClient(client_config.connect(target, SystemClock()), random.Random(1))
    try:
        yield client
    finally:
        await client.close()


async def installed(client: ApiClient, namespace: str = "kueue-system") -> list[str]:
    output: list[str] = []
    await apply.install(client, manifests.all_manifests(manifests.InstallPlan(namespace=namespace)), output.append)
    return output


async def until_asked(client: ApiClient) -> None:
    """An API server learns of webhooks a moment after they are written."""

    async def is_asked() -> bool:
        with contextlib.suppress(ApiError):
            await client.create(kind("ClusterQueue"), cluster_queue("probe"), dry_run=True)
            return True
        return False

    await eventually(is_asked, 0.05)


async def test_installation_of_another_manager_is_not_overwritten(cluster: client_config.ClientConfig) -> None:
    """A public Kueue has the same names; ours is known by a label."""
    async with connected(cluster) as client:
        wanted = list(manifests.all_manifests(manifests.InstallPlan(namespace="default")))
        deployment = next(one for one in wanted if one["kind"] == "Deployment")
        name = deployment["metadata"]["name"]
        theirs = {**deployment, "metadata": {"name": name, "namespace": "default"}}
        await client.create(apply.kind_of(deployment), theirs)
        output: list[str] = []
        with pytest.raises(UsageError, match="was not installed by pykueue; delete it first"):
            await apply.install(client, wanted, output.append)
        assert output == []
        # A migration deletes the Deployment, and nothing else (docs/operations/migration.md).
        await client.delete(apply.kind_of(deployment), name, "default")
        await apply.install(client, wanted, output.append)
        assert f"deployment.apps/{name} created" in output
        await apply.uninstall(client, wanted, output.append, kinds_too=True)


async def test_from_install_to_uninstall(cluster: client_config.ClientConfig) -> None:
    async with connected(cluster) as client:
        output = await installed(client)
        assert "deployment.apps/kueue-controller-manager created" in output

        async def is_refused() -> bool:
            try:
                await client.create(kind("ClusterQueue"), cluster_queue(), dry_run=True)
            except ApiError as error:
                return "failed calling webhook" in str(error)
            return False

        await eventually(is_refused, 0.05)
        with pytest.raises(ApiError, match="failed calling webhook"):
            # No webhook answers yet, so that writes are refused.
            await client.create(kind("ClusterQueue"), cluster_queue())

        sources, configuration = facts.InformerSources(client, ()), settings.defaults().configuration
        async with webhook_server.webhooks(
            client,
            choices(),
            sources,
            await webhook_server.beside(client, configuration),
            SystemClock(),
            "kueue-system",
        ) as served:
            await served.register()
            await until_asked(client)

            made = await client.create(kind("ClusterQueue"), cluster_queue(quota="5000m", cohortName="team"))
            assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

            async def is_converted() -> bool:
                with contextlib.suppress(ApiError):
                    return bool((await client.get(OLD, "cq"))["spec"].get("cohort") == "team")
                return False

            await eventually(is_converted, 0.05)

            with pytest.raises(ApiError) as caught:
                await client.create(kind("ClusterQueue"), cluster_queue("bad", quota="-1"))
            assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
            assert caught.value.causes[0].startswith("spec.resourceGroups[0].flavors[0].resources[0].nominalQuota")
            with pytest.raises(ApiError) as caught:
                await client.create(kind("ClusterQueue"), cluster_queue("bad", quota="ten"))
            assert caught.value.code == 400

            held = await client.create(kind("Job"), job(**{QUEUE: "lq"}))
            assert held["spec"]["suspend"] is True
            free = await client.create(kind("Job"), job("free"))
            assert free["spec"]["suspend"] is False

            await installed(client)
            await until_asked(client)  # conversion and webhooks still lead to us
            assert (await client.get(OLD, "cq"))["spec"]["cohort"] == "team"
            again = await installed(client)
            # Two webhook configurations and three APIServices.
            assert sum("maintained by the manager" in line for line in again) == 5
            assert sum(line.endswith(" unchanged") for line in again) == len(again) - 6

        gone: list[str] = []
        objects = manifests.all_manifests(manifests.InstallPlan())
        await apply.uninstall(client, objects, gone.append, kinds_too=False)
        assert await client.find(kind("ClusterQueue"), "cq") is not None
        await apply.uninstall(client, objects, gone.append, kinds_too=True)

        async def is_gone() -> bool:
            return await client.find(kind("ClusterQueue"), "cq") is None

        await eventually(is_gone, 0.1)


async def test_upgrade_keeps_objects_of_users(
    cluster: client_config.ClientConfig,
) -> None:
    """Another image, a kind with a new field, rights that are no longer needed: each changes, and nothing else does."""
    older = manifests.all_manifests(manifests.InstallPlan(namespace="batch-system", image="pykueue:older"))
    for one in older:
        if one["metadata"]["name"] == "kueue-manager-role":
            one["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]})
        if one["metadata"]["name"] == "clusterqueues.kueue.x-k8s.io":
            for version in one["spec"]["versions"]:
                del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["stopPolicy"]
    async with connected(cluster) as client:
        await apply.install(client, older, lambda line: None)
        sources, configuration = (
            facts.InformerSources(client, ()),
            settings.defaults(namespace="batch-system").configuration,
        )
        async with webhook_server.webhooks(
            client,
            choices(),
            sources,
            await webhook_server.beside(client, configuration),
            SystemClock(),
            "batch-system",
        ) as served:
            await served.register()
            await until_asked(client)
            before = await client.create(kind("ClusterQueue"), cluster_queue("kept", stopPolicy="Hold"))
            assert "stopPolicy" not in before["spec"]

            output = await installed(client, "batch-system")
            # Of the CRDs, those with conversion are left to the manager.
            changed = [line for line in output if line.endswith(" configured") and "customresource" not in line]
            assert changed == [
                "clusterrole.rbac.authorization.k8s.io/kueue-manager-role configured",
                "deployment.apps/kueue-controller-manager configured",
            ]
            role = next(one for one in older if one["metadata"]["name"] == "kueue-manager-role")
            rules = (await client.get(apply.kind_of(role), "kueue-manager-role"))["rules"]
            assert not any(rule["resources"] == ["secrets"] for rule in rules)

            assert (await client.get(kind("ClusterQueue"), "kept"))["metadata"] == before["metadata"]

            async def is_held() -> bool:
                """Whether the server keeps the new field by now, which it forgets until it has read the new kind."""
                with contextlib.suppress(ApiError):
                    found = await client.get(kind("ClusterQueue"), "kept")
                    found["spec"]["stopPolicy"] = "Hold"
                    return "stopPolicy" in (await client.replace(kind("ClusterQueue"), found))["spec"]
                return False

            await eventually(is_held, 0.2)
        await apply.uninstall(client, older, lambda line: None, kinds_too=True)
