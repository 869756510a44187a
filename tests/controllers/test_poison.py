"""One poison object does not stop the others."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from controllers.conftest import Environment
from kubemachinery import codec
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.clock import SystemClock
from pykueue import settings
from pykueue.api import kueue
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager


class GarblingTransport:
    """Passes everything through, except that objects called `bad` have content that cannot be decoded."""

    def __init__(self, inner: Transport, sense: bytes, nonsense: bytes) -> None:
        self._inner = inner
        self._sense, self._nonsense = sense, nonsense

    async def send(self, call: ApiRequest) -> ApiResponse:
        return await self._inner.send(call)

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(call) as lines:
            yield self._garbled(lines)

    async def _garbled(self, lines: Lines) -> AsyncIterator[bytes]:
        async for line in lines:
            yield line.replace(self._sense, self._nonsense) if b'"name":"bad"' in line else line

    async def close(self) -> None:
        await self._inner.close()


@pytest.mark.parametrize(
    ("sense", "nonsense"),
    [
        pytest.param(b'"cpu":"1"', b'"cpu":"a lot"', id="a-quantity-that-is-none"),
        pytest.param(b'"count":1', b'"count":"one"', id="a-number-that-is-none"),
        pytest.param(b'"count":1', b'"count":-1', id="fewer-than-no-pods"),
        pytest.param(b'"priority":5', b'"priority":1e99', id="a-number-that-is-too-large"),
    ],
)
async def test_an_unreadable_workload_does_not_stop_others(env: Environment, sense: bytes, nonsense: bytes) -> None:
    await env.queues(cpu="1")
    await env.workload("bad", priority=5)
    client = ApiClient(GarblingTransport(env.transport(), sense, nonsense), random.Random(3))
    manager = Manager(client, manager_options(settings.defaults()), SystemClock(), random.Random(3))
    async with manager.reading():
        leading = asyncio.create_task(manager.lead())
        await env.workload("good")
        await env.until_condition("good", "Admitted", "True/Admitted")
        await env.finish("good")
        await env.workload("better")
        await env.until_condition("better", "Admitted", "True/Admitted")
        assert not leading.done()
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)


async def test_an_exception_of_the_scheduler_is_logged_with_traceback_and_workload(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    await env.queues(cpu="1")
    async with env.manager() as manager:
        await env.until_quiet(manager)
        bad = codec.from_tree(await env.workload("bad", cpu="2"), kueue.Workload)
        # A minimum that is no number: read only once the full count turns out not to fit.
        pod_set = msgspec.structs.replace(bad.spec.pod_sets[0], count=3, min_count=cast(Any, "two"))
        spec = msgspec.structs.replace(bad.spec, pod_sets=(pod_set,))
        metadata = msgspec.structs.replace(bad.metadata, name="worse")
        with caplog.at_level(logging.ERROR):
            manager.scheduler.world.put(msgspec.structs.replace(bad, spec=spec, metadata=metadata), 0)
            manager.scheduler.wake()
            await env.until_quiet(manager)
    [line] = [each for each in caplog.records if "default/worse" in each.getMessage()]
    assert line.exc_info is not None
    assert line.exc_info[0] is TypeError
    assert line.exc_info[2] is not None
