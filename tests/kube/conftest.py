"""One server in memory, reached in both ways: over a socket with TLS, and in the same process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from pykueue import app
from pykueue.apiserver import access as server_access
from pykueue.apiserver.embedded import Embedded, Parts
from pykueue.apiserver.server import About
from pykueue.apiserver.store import Loaded, MemoryJournal
from pykueue.clock import SystemClock
from pykueue.kube import access
from pykueue.kube.client import Client
from pykueue.kube.transport import LocalTransport, Transport
from pykueue.simulate.loop import VirtualClock
from pykueue.simulate.server import installed


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[app.Serving]:
    settings = app.ServerSettings(data_dir=tmp_path, durability=app.Durability.MEMORY)
    async with app.api_server(settings, app.kueue_parts()) as serving:
        yield serving


def http(serving: app.Serving) -> Transport:
    return access.connect(access.from_files([serving.kubeconfig]), SystemClock())


def local(serving: app.Serving) -> Transport:
    return LocalTransport(partial(serving.embedded.server.handle_as, server_access.ADMIN))


@pytest.fixture(params=[http, local], ids=["http", "in-process"])
async def transport(serving: app.Serving, request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    transport = request.param(serving)
    yield transport
    await transport.close()


@pytest.fixture
def chance() -> random.Random:
    return random.Random(7)


@pytest.fixture
def client(transport: Transport, chance: random.Random) -> Client:
    return Client(transport, chance)


Base = tuple[Parts, Loaded]


@pytest.fixture
def base() -> Base:
    return installed()


@asynccontextmanager
async def jumping(base: Base) -> AsyncIterator[Client]:
    """A client of a server on the loop's own time, for tests on `virtual_time`."""
    parts, loaded = base
    clock, chance = VirtualClock(asyncio.get_running_loop()), random.Random(7)
    door = server_access.Access({}, ())
    embedded = Embedded(parts, MemoryJournal(), door, clock, chance, About("test"), loaded=loaded)
    await embedded.start()
    try:
        yield Client(LocalTransport(partial(embedded.server.handle_as, server_access.ADMIN)), chance)
    finally:
        await embedded.close()
