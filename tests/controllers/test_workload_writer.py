"""Who wrote something knows it before the watch shows it."""

from __future__ import annotations

import asyncio
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
from pykueue.controllers.workload_writer import WorkloadWriter
from pykueue.lifecycle.workload_changes import DeleteWorkload, RemoveFinalizer
from waiting import PATIENCE_SECONDS


class HidesDeletions:
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
    client = ApiClient(HidesDeletions(env.transport()), random.Random(3))
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


def writer_of(env: Environment) -> WorkloadWriter:
    client = ApiClient(env.transport(), random.Random(3))
    return Manager(client, manager_options(settings.defaults()), SystemClock(), random.Random(3)).writer


async def test_turns_of_a_workload_are_taken_one_after_the_other_in_the_order_of_arrival(env: Environment) -> None:
    writer, taken = writer_of(env), list[str]()

    async def take(key: ObjectKey, name: str) -> None:
        async with writer.turn(key):
            taken.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            taken.append(f"{name} ends")

    alpha, beta = ObjectKey("default", "alpha"), ObjectKey("default", "beta")
    await asyncio.gather(take(alpha, "1"), take(alpha, "2"), take(beta, "other"), take(alpha, "3"))
    of_alpha = [each for each in taken if not each.startswith("other")]
    assert of_alpha == ["1 begins", "1 ends", "2 begins", "2 ends", "3 begins", "3 ends"]
    assert taken.index("other begins") < taken.index("1 ends")
    assert not writer._locks


async def test_a_cancelled_task_leaves_the_turn_of_a_workload_to_the_next(env: Environment) -> None:
    """Also one that is cancelled in the iteration of the loop in which it gets the turn, and one that waits."""
    writer, key = writer_of(env), ObjectKey("default", "alpha")
    taken: list[int] = []

    async def take(number: int) -> None:
        async with writer.turn(key):
            taken.append(number)

    first = writer.turn(key)
    await first.__aenter__()
    waiting = [asyncio.ensure_future(take(number)) for number in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await first.__aexit__(None, None, None)
    waiting[0].cancel()
    await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
    assert taken == [2, 3]
    assert not writer._locks
