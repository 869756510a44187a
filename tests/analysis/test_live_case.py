"""The Configuration of a running manager: where it is found, and the message where it is not."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.transport import ApiRequest, ApiResponse
from kubeserver.protocol import authentication
from kubeserver.serve import ServerSettings, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.analysis import lint, live_case
from pykueue.api import config, kube, registry
from pykueue.app.server import kueue_parts
from pykueue.install import names

CONFIG_MAP = registry.ALL.of(kube.ConfigMap)
FAIR = {
    "apiVersion": config.V1BETA2,
    "kind": config.KIND,
    "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[ApiClient]:
    server = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(server, kueue_parts()) as serving:
        yield ApiClient(
            LocalTransport(partial(serving.embedded.server.handle_as, authentication.ADMIN)), random.Random(1)
        )


async def install(client: ApiClient, namespace: str, tree: dict[str, Any]) -> None:
    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await client.create(registry.ALL.of(kube.Namespace), head)
    metadata = {"name": names.CONFIG_MAP, "namespace": namespace}
    data = {names.CONFIG_FILE: yaml.safe_dump(tree)}
    await client.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


@pytest.mark.parametrize("namespace", ["kueue-system", "queues"])
async def test_the_configuration_is_found_where_the_manager_is_installed(client: ApiClient, namespace: str) -> None:
    await install(client, namespace, FAIR)
    assert await live_case.configuration_of(client) == (FAIR, (), False)
    assert (await live_case.case(client, report=lambda _: None)).configured.policy.fair_sharing


async def test_of_several_configurations_the_choice_is_named(client: ApiClient) -> None:
    await install(client, "queues", FAIR)
    await install(client, "another", FAIR)
    found = await live_case.configuration_of(client)
    assert found.notices == ("several managers have a Configuration (another, queues); that of another is used",)


async def test_without_a_configuration_the_defaults_are_named_as_assumed(client: ApiClient) -> None:
    case = await live_case.case(client, report=lambda _: None)
    (notice,) = case.notices
    assert notice.startswith("no ConfigMap kueue-manager-config")
    assert "the result assumes the default Configuration" in notice
    assert ("unread-configuration", notice) in [(each.rule, each.sentence) for each in lint.lint(case)]


async def test_a_configuration_that_may_not_be_read_is_named(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = client._transport.send

    async def refuses(call: ApiRequest) -> ApiResponse:
        if "configmaps" in call.path:
            return ApiResponse(
                403, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"you may not look"}', {}
            )
        return await send(call)

    monkeypatch.setattr(client._transport, "send", refuses)
    (notice,) = (await live_case.configuration_of(client)).notices
    assert "cannot be read: you may not look" in notice
