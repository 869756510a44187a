"""Choices, reviews and a server in memory, with short words for all of them."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubemachinery import http_messages, patches
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.kinds import Kind
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, Serving, api_server
from kubeserver.storage.sqlite import Durability
from pykueue import settings
from pykueue.api import registry
from pykueue.app.options import webhook_options
from pykueue.app.server import kueue_parts
from pykueue.webhooks.review import WebhookOptions

Tree = dict[str, Any]

GROUP = "kueue.x-k8s.io/v1beta2"


def choices(**configuration: Any) -> WebhookOptions:
    """What webhooks are handed for a Configuration."""
    chosen = {"integrations": {"frameworks": ["batch/job", "pod"]}, **configuration}
    loaded = settings.load({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **chosen})
    return webhook_options(loaded)


def cluster_queue(name: str = "cq", quota: object = "5", **spec: Any) -> Tree:
    flavor = {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": quota}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    return {
        "apiVersion": GROUP,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


async def shown_certificate(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unverified)
    found: ssl.SSLObject = writer.get_extra_info("ssl_object")
    der = found.getpeercert(binary_form=True)
    writer.close()
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der).encode()


def job(name: str = "train", **labels: str) -> Tree:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }


class StoredObjects:
    """Objects by kind, to read facts from."""

    def __init__(self, *objects: Tree) -> None:
        self.objects_ = objects

    async def find(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        found = (one for one in await self.objects(kind) if one["metadata"]["name"] == name)
        return next((one for one in found if one["metadata"].get("namespace", "") == namespace), None)

    async def owner(self, kind: Kind, name: str, namespace: str) -> Tree | None:
        return await self.find(kind, name, namespace)

    async def objects(self, kind: Kind) -> Iterable[Tree]:
        return [one for one in self.objects_ if (one["apiVersion"], one["kind"]) == (kind.api_version, kind.kind)]

    def is_former_leader(self, manager: str) -> bool:
        return manager == "an old leader"


DEFAULT_NAMESPACE: Tree = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}},
}


def admission_review(tree: Tree, old: Tree | None = None, operation: str = "") -> Tree:
    """As an API server posts it."""
    metadata = tree["metadata"]
    request: Tree = {
        "uid": "0b4a",
        "operation": operation or ("CREATE" if old is None else "UPDATE"),
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "object": tree,
    }
    if old is not None:
        request["oldObject"] = old
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def post(handler: http_messages.Handler, path: str, body: object) -> tuple[int, Any]:
    """The answer of a handler without a socket: JSON where it is, text where it is not."""
    sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
    answer = await handler(http_messages.Request("POST", path, read=http_messages.body_of(sent)))
    return answer.status, msgspec.json.decode(answer.body) if "json" in answer.content_type else answer.body.decode()


def patched(tree: Tree, response: Tree) -> Tree:
    """The object that an API server goes on with after this response."""
    if "patch" not in response:
        return tree
    assert response["patchType"] == "JSONPatch"
    result: Tree = patches.apply(tree, msgspec.json.decode(base64.b64decode(response["patch"])))
    return result


def kind(name: str) -> Kind:
    found = registry.ALL.named(name)
    assert found is not None
    return found


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """An API server with our kinds and without our hooks, as any other would be."""
    place = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(place, kueue_parts(), rng=random.Random(1)) as running:
        yield running


@pytest.fixture
async def client(server: Serving) -> ApiClient:
    return ApiClient(LocalTransport(partial(server.embedded.server.handle_as, authentication.ADMIN)), random.Random(1))
