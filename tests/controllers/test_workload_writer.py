"""Who wrote something knows it before the watch shows it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controllers.conftest import Environment
from kubemachinery.client.client import ApiClient
from kubemachinery.client.informer import ObjectKey
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.clock import SystemClock
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer


class Deaf:
    """Shows no deletion."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, call: ApiRequest) -> ApiResponse:
        return await self._inner.send(call)

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(call) as lines:
            yield (line async for line in lines if not line.startswith(b'{"type":"DELETED"'))

    async def close(self) -> None:
        await self._inner.close()


async def test_a_workload_that_was_deleted_is_gone_though_the_watch_still_shows_it(env: Environment) -> None:
    """A job would be started once more by what its last Workload had been given."""
    client = ApiClient(Deaf(env.transport()), random.Random(3))
    manager = Manager(client, manager_options(settings.defaults()), SystemClock(), random.Random(3))
    key = ObjectKey("default", "alpha")
    await env.workload("alpha")
    async with manager.reading():
        before = manager.writer.current(key)
        assert before is not None
        await manager.writer.workload(before, (RemoveFinalizer(), DeleteWorkload()), "test", 0)
        assert manager.informers.workloads.get("alpha", "default") is not None
        assert manager.writer.current(key) is None
        await env.workload("alpha")

        async def is_known() -> bool:
            found = manager.writer.current(key)
            return found is not None and found.metadata.uid != before.metadata.uid

        await env.until(is_known)
