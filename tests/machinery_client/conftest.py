"""A server in memory, reached in both ways: over a socket with TLS, and in the same process."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from kubemachinery.client import client_config
from kubemachinery.client.client import ApiClient
from kubemachinery.client.local_transport import LocalTransport
from kubemachinery.client.transport import Transport
from kubemachinery.clock import SystemClock
from kubeserver.protocol import authentication as server_access
from kubeserver.serve import ServerSettings, Serving, api_server
from kubeserver.storage.sqlite import Durability
from pykueue.app.server import kueue_parts


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    settings = ServerSettings(data_dir=tmp_path, durability=Durability.MEMORY)
    async with api_server(settings, kueue_parts()) as serving:
        yield serving


def http(serving: Serving) -> Transport:
    return client_config.connect(client_config.from_files([serving.kubeconfig]), SystemClock())


def local(serving: Serving) -> Transport:
    return LocalTransport(partial(serving.embedded.server.handle_as, server_access.ADMIN))


@pytest.fixture(params=[http, local], ids=["http", "in-process"])
async def transport(serving: Serving, request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    transport = request.param(serving)
    yield transport
    await transport.close()


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


@pytest.fixture
def client(transport: Transport, rng: random.Random) -> ApiClient:
    return ApiClient(transport, rng)
