"""Webhooks beside an API server, from one start to the next."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from kubemachinery import http_messages, http_server, key_pairs
from kubemachinery.certificates import CertificateAuthority
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import ApiError
from kubemachinery.clock import SystemClock
from kubemachinery.errors import UsageError
from pykueue import settings
from pykueue.webhooks import facts, registration, webhook_server
from pykueue.webhooks.certificate import DirectoryStore
from pykueue.webhooks.certificate_bundle import CertificateBundle
from pykueue.webhooks.certificate_renewal import renewed
from pykueue.webhooks.webhook_server import ServingOptions, WebhookServer
from webhooks.conftest import admission_review, choices, cluster_queue, kind, shown_certificate

CONFIGURATION = settings.defaults().configuration
NAMESPACE = "kueue-system"
NAMESPACE_OF_USER = "team"


@pytest.fixture
async def installed(client: ApiClient) -> ApiClient:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await client.create(kind("Namespace"), namespace)
    return client


@asynccontextmanager
async def served(client: ApiClient, place: ServingOptions, **configuration: Any) -> AsyncIterator[WebhookServer]:
    sources, options = facts.InformerSources(client, ()), choices(**configuration)
    async with webhook_server.webhooks(client, options, sources, place, SystemClock(), NAMESPACE) as made:
        yield made


async def revision(client: ApiClient) -> str:
    found = await client.get(registration.CRD, kind("Workload").name)
    text: str = found["metadata"]["resourceVersion"]
    return text


async def test_writes_are_refused_while_webhooks_are_down(installed: ApiClient) -> None:
    async with served(installed, await webhook_server.beside(installed, CONFIGURATION)) as first:
        await first.register()
        await installed.create(kind("ClusterQueue"), cluster_queue("a"))
    with pytest.raises(ApiError, match="failed calling webhook"):
        await installed.create(kind("ClusterQueue"), cluster_queue("b"))


async def test_the_next_start_takes_the_same_port_and_authority_so_that_kinds_need_no_change(
    installed: ApiClient,
) -> None:
    async with served(installed, await webhook_server.beside(installed, CONFIGURATION)) as first:
        await first.register()
        port, before = first.port, await revision(installed)
    async with served(installed, await webhook_server.beside(installed, CONFIGURATION)) as second:
        await second.register()
        assert second.port == port
        assert await revision(installed) == before
        await installed.create(kind("ClusterQueue"), cluster_queue("b"))


async def test_where_the_port_is_taken_another_will_do(installed: ApiClient) -> None:
    async with served(installed, await webhook_server.beside(installed, CONFIGURATION)) as first:
        await first.register()
        async with served(installed, await webhook_server.beside(installed, CONFIGURATION)) as second:
            assert second.port != first.port
            await second.register()
        # The new leader registers again, and its webhooks are called from then on.
        await first.register()
        await installed.create(kind("ClusterQueue"), cluster_queue("c"))


@pytest.mark.parametrize("frameworks", [["statefulset"], ["batch/job"]])
async def test_pods_of_a_set_are_gated_in_every_namespace(installed: ApiClient, frameworks: list[str]) -> None:
    """The set names a queue, so that it is managed everywhere; its pods have a mark of the template, and no label."""
    chosen = {"integrations": {"frameworks": frameworks}, "managedJobsNamespaceSelector": {"matchLabels": {"a": "b"}}}
    async with served(installed, await webhook_server.beside(installed, CONFIGURATION), **chosen) as server:
        await server.register()

        async def gates(name: str, **annotations: str) -> list[str]:
            metadata = {"name": name, "namespace": NAMESPACE_OF_USER, "annotations": annotations}
            spec = {"containers": [{"name": "main", "image": "busybox"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            stored = await installed.create(kind("Pod"), pod)
            return [gate["name"] for gate in stored["spec"].get("schedulingGates", ())]

        await installed.create(
            kind("Namespace"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_OF_USER}}
        )
        assert await gates("plain") == []
        marked = await gates("marked", **{"kueue.x-k8s.io/pod-suspending-parent": "statefulset"})
        assert ("kueue.x-k8s.io/admission" in marked) is ("statefulset" in frameworks)


async def test_in_a_cluster_the_service_is_named_and_the_secret_shared(installed: ApiClient) -> None:
    place = webhook_server.in_cluster(installed, CONFIGURATION)
    assert (place.host, place.port) == ("0.0.0.0", 9443)
    assert place.reach_at(9443, b"ca").client_config("/convert")["service"] == {
        "namespace": NAMESPACE,
        "name": "kueue-webhook-service",
        "path": "/convert",
        "port": 443,
    }
    now = datetime.datetime.now(datetime.UTC)
    kept = await place.keeper.current(place.hosts, now)
    assert (
        renewed(
            kept,
            ("kueue-webhook-service.kueue-system.svc", "kueue-webhook-service.kueue-system.svc.cluster.local"),
            now,
        )
        is kept
    )
    assert kept != CertificateBundle()


async def test_all_servers_of_the_manager_show_a_replaced_certificate(installed: ApiClient, tmp_path: Path) -> None:
    """Also after the files were seen while only one of them had been replaced."""
    now = datetime.datetime.now(datetime.UTC)
    first, second = (renewed(CertificateBundle(), ["localhost"], now) for _ in range(2))
    files = {name: tmp_path / name for name in ("tls.crt", "tls.key")}

    async def answer(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response()

    def write(**content: bytes) -> None:
        for name, each in content.items():
            files[name.replace("_", ".")].write_bytes(each)

    write(tls_crt=first.certificate, tls_key=first.key)
    place = webhook_server.on_loopback(DirectoryStore(tmp_path))
    async with served(installed, place) as made:
        metrics = await http_server.serve(answer, "127.0.0.1", 0, tls=made.another_context())
        try:
            ports = made.port, metrics.port
            assert [await shown_certificate(port) for port in ports] == [first.certificate] * 2
            write(tls_crt=second.certificate)
            with pytest.raises(UsageError, match=r"webhook\.certDir"):
                await made.renew()
            assert [await shown_certificate(port) for port in ports] == [first.certificate] * 2
            write(tls_key=second.key)
            await made.renew()
            assert [await shown_certificate(port) for port in ports] == [second.certificate] * 2
        finally:
            await metrics.close()


async def test_client_without_the_required_certificate_is_not_answered(installed: ApiClient, tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    ours, other = CertificateAuthority.make("front", now), CertificateAuthority.make("other", now)
    known = tmp_path / "ca.crt"
    known.write_bytes(ours.key_pair.certificate)
    place = replace(await webhook_server.beside(installed, CONFIGURATION), client_authority=known)

    async def asked(port: int, by: CertificateAuthority | None) -> int:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if by is not None:
            key_pairs.load_into(tls, by.issue("kube-apiserver", (), now))
        url = f"https://127.0.0.1:{port}/mutate-kueue-x-k8s-io-v1beta2-clusterqueue"
        review = admission_review(cluster_queue())
        async with aiohttp.ClientSession() as session, session.post(url, json=review, ssl=tls) as answer:
            return answer.status

    async with served(installed, place) as made:
        assert await asked(made.port, ours) == 200
        for stranger in (None, other):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await asked(made.port, stranger)


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), ("nothing", "holds no certificate")])
async def test_unusable_client_authority_is_refused_with_the_reason(
    installed: ApiClient, tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    place = replace(await webhook_server.beside(installed, CONFIGURATION), client_authority=path)
    with pytest.raises(UsageError, match=why):
        async with served(installed, place):
            pass
