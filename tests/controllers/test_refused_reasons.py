"""The reason why a Workload is pending reaches its status, also if the write is refused at first."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager

import pytest

from controllers.conftest import Environment
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.clock import SystemClock
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers.assembly import Manager


class Refusing:
    """Refuses the first few writes of a Workload's status with one code, and carries nothing of them out."""

    def __init__(self, inner: Transport, code: int, reason: str, times: int) -> None:
        self._inner = inner
        self._refusal = ApiResponse(code, f'{{"kind":"Status","code":{code},"reason":"{reason}"}}'.encode())
        self.left = times

    async def send(self, call: ApiRequest) -> ApiResponse:
        if self.left and call.method == "PATCH" and "/workloads/" in call.path and call.path.endswith("/status"):
            self.left -= 1
            return self._refusal
        return await self._inner.send(call)

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        return self._inner.stream(call)

    async def close(self) -> None:
        await self._inner.close()


@pytest.mark.parametrize(("code", "reason"), [(409, "Conflict"), (500, "InternalError")])
async def test_a_reason_whose_writing_is_refused_is_written_again(env: Environment, code: int, reason: str) -> None:
    """Nothing else would bring it up: a Workload that was decided about waits until something changes."""
    await env.queues(cpu="1")
    refusing = Refusing(env.transport(), code, reason, 3)
    choices = manager_options(settings.defaults())
    manager = Manager(ApiClient(refusing, random.Random(3)), choices, SystemClock(), random.Random(3))
    async with manager.reading():
        leading = asyncio.create_task(manager.lead())
        await env.workload("big", cpu="5")
        await env.until_condition("big", "QuotaReserved", "False/ExceedsMaxQuota")
        assert not refusing.left
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
