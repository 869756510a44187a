"""Quota is never given twice, whatever happens to the answers of the server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controllers.conftest import Environment
from kubemachinery.client.client import ApiClient
from kubemachinery.client.errors import Unanswered
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.clock import SystemClock
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager


class LosingTransport:
    """Carries everything out, but loses the first answer to a reservation, and is slow to show it in the watch."""

    def __init__(self, inner: Transport, *, gives_up: bool) -> None:
        self._inner = inner
        self._gives_up = gives_up
        self._is_lost = False
        self.lose = asyncio.Event()
        self.show = asyncio.Event()

    async def send(self, call: ApiRequest) -> ApiResponse:
        answer = await self._inner.send(call)
        if self._is_lost or not (call.method == "PATCH" and b'"admission"' in call.body):
            return answer
        self._is_lost = True
        await self.lose.wait()
        if self._gives_up:
            return ApiResponse(504, b'{"kind":"Status","code":504,"reason":"Timeout","message":"gave up waiting"}')
        raise Unanswered("the connection broke")

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(call) as lines:
            yield self._slow(lines) if call.path.endswith("/workloads") else lines

    async def _slow(self, lines: Lines) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        async for line in lines:
            if b'"podSetAssignments"' in line:
                held.append(line)
            else:
                yield line
            while held and self.show.is_set():
                yield held.pop(0)

    async def close(self) -> None:
        await self._inner.close()


@pytest.mark.parametrize("gives_up", [False, True], ids=["connection-broken", "gateway-timeout"])
async def test_quota_of_a_reservation_without_an_answer_is_not_given_twice(env: Environment, gives_up: bool) -> None:
    losing = LosingTransport(env.transport(), gives_up=gives_up)
    choices = manager_options(settings.defaults())
    manager = Manager(ApiClient(losing, random.Random(3)), choices, SystemClock(), random.Random(3))
    await env.queues(cpu="1")
    async with manager.reading():
        leading = asyncio.create_task(manager.lead())
        await env.workload("low", priority=1)
        await env.until_condition("low", "Admitted", "True/Admitted")  # on the server; the manager has not read it
        await env.workload("high", priority=2)
        await env.until_condition("high", "QuotaReserved", "False/WaitingForQuota")
        losing.lose.set()
        await env.until_quiet(manager, looks=50)
        assert await env.admitted() == ["low"]
        losing.show.set()
        await env.finish("low")
        await env.until_condition("high", "Admitted", "True/Admitted")
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
