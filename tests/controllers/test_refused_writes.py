"""A decision that could not be written is not repeated at once: it is taken again after an event, or after a delay."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controllers.conftest import Environment, pod_set
from kubemachinery.client.client import ApiClient
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport
from kubemachinery.clock import SystemClock
from pykueue import settings
from pykueue.app.options import manager_options
from pykueue.controllers import eviction_writer, reservation_writer
from pykueue.controllers.assembly import Manager
from pykueue.webhooks import table

_LARGEST = str(2**63 - 1)

FORBIDDEN = ApiResponse(403, b'{"kind":"Status","code":403,"reason":"Forbidden","message":"not you"}')


class RefusingTransport:
    """Refuses every write that contains a text, if one is set, and shows no event of one object."""

    def __init__(self, inner: Transport, refused: bytes = b"") -> None:
        self._inner = inner
        self._refused = refused
        self.hidden = b""
        self.writes: list[ApiRequest] = []

    async def send(self, call: ApiRequest) -> ApiResponse:
        if call.method == "PATCH":
            self.writes.append(call)
            if self._refused and self._refused in call.body:
                return FORBIDDEN
        return await self._inner.send(call)

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(call) as lines:
            yield self._shown(lines)

    async def _shown(self, lines: Lines) -> AsyncIterator[bytes]:
        async for line in lines:
            if not self.hidden or self.hidden not in line:
                yield line

    async def close(self) -> None:
        await self._inner.close()

    def having(self, word: bytes) -> list[ApiRequest]:
        return [call for call in self.writes if word in call.body]


@asynccontextmanager
async def managed(env: Environment, transport: Transport) -> AsyncIterator[Manager]:
    choices = manager_options(settings.defaults())
    manager = Manager(ApiClient(transport, random.Random(3)), choices, SystemClock(), random.Random(3))
    async with manager.reading(), asyncio.TaskGroup() as group:
        leading = group.create_task(manager.lead())
        yield manager
        leading.cancel()


async def test_an_eviction_that_conflicts_is_retried_before_the_watch_shows_the_other_write(env: Environment) -> None:
    refusing = RefusingTransport(env.transport())
    await env.queues(cpu="1", preemption={"withinClusterQueue": "LowerPriority"})
    async with managed(env, refusing):
        await env.workload("low", priority=1)
        await env.until_condition("low", "Admitted", "True/Admitted")
        refusing.hidden = b'"name":"low"'
        await env.patch("Workload", "low", {"metadata": {"labels": {"changed": "meanwhile"}}})
        await env.workload("high", priority=2)
        await env.until_condition("low", "Evicted", "True/Preempted")
    assert len(refusing.having(b'"Preempted"')) == 2


@pytest.mark.parametrize("word", [b'"admission"', b'"Preempted"'], ids=["reservation", "eviction"])
async def test_what_the_server_refuses_waits_a_while(
    env: Environment, word: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction_writer, "_REFUSED_PAUSE_SECONDS", 3600)
    monkeypatch.setattr(reservation_writer, "_REFUSED_PAUSE_SECONDS", 3600)
    refusing = RefusingTransport(env.transport(), refused=word)
    await env.queues(cpu="1", preemption={"withinClusterQueue": "LowerPriority"})
    await env.workload("low", priority=1)
    async with env.manager():
        await env.until_condition("low", "Admitted", "True/Admitted")
    if word == b'"admission"':
        await env.finish("low")
    async with managed(env, refusing):
        await env.workload("high", priority=2)
        await env.until(lambda: asyncio.sleep(0, len(refusing.having(word)) > 0))
        await asyncio.sleep(0.3)
        assert len(refusing.having(word)) == 1


async def test_a_reservation_that_our_webhook_denies_is_decided_once(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    """Its usage saturates and cannot be divided by its count, which only a change of the Workload can mend. Others of
    the queue go on."""
    await env.queues(cpu=_LARGEST)
    async with env.manager() as manager:
        await env.workload("huge", podSets=[pod_set(_LARGEST, count=2**31 - 1)], priority=9)
        await env.until_condition("huge", "QuotaReserved", "False/PendingEvaluation")
        found = await env.read("Workload", "huge")
        [reserved] = [each for each in found["status"]["conditions"] if each["type"] == "QuotaReserved"]
        assert "cannot be shared evenly" in reserved["message"]
        await env.workload("small")
        await env.until_condition("small", "Admitted", "True/Admitted")
        await env.until_quiet(manager)
        assert sum("cannot be shared evenly" in line for line in caplog.messages) == 1
        await env.patch("Workload", "huge", {"spec": {"podSets": [pod_set("1")]}})
        await env.until_condition("huge", "Admitted", "True/Admitted")


def test_the_webhook_that_may_deny_a_reservation_has_the_name_it_is_registered_by() -> None:
    assert any(f'"{each.name}"' in reservation_writer._DENIED_BY_OUR_WEBHOOK for each in table.OWN)
