"""A proxy on loopback that carries every request out, loses some of the answers to writes, and lets watches run behind.

    async with faulty_proxy.between(server, Faults(lost=0.05, watch_lag_seconds=0.2), random.Random(1)) as proxy:
        ...  # proxy.kubeconfig() leads through it

A lost answer looks as it does in the wild: half of the time the connection breaks, half of the time a proxy in between
times out with 504. The write has happened either way. Watches that run behind are those of a busy server: who
takes a lost answer for a refusal has time to give away again what was given already.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web

from cluster import real

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_GAVE_UP: Final = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":504,"reason":"Timeout"}'
# Headers of one connection, or of the body before it was read.
_NOT_PASSED_ON: Final = frozenset(
    {"host", "connection", "transfer-encoding", "content-length", "content-encoding", "accept-encoding"}
)


@dataclass(frozen=True)
class Faults:
    """How often answers are lost, and how late watches are."""

    lost: float = 0.0  # the share of answers to writes
    watch_lag_seconds: float = 0.0
    patience_seconds: float = 0.1  # until an answer is given up


@dataclass(frozen=True)
class Write:
    at: float  # by the monotonic clock
    method: str
    path: str


@dataclass
class FaultyProxy:
    server: real.Client
    faults: Faults
    rng: random.Random
    url: str = ""
    writes: list[Write] = field(default_factory=list)
    lost: int = 0

    def kubeconfig(self) -> str:
        return real.Client(self.url, self.server.token).kubeconfig()

    async def answer(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        body = await request.read()
        if request.method in _WRITES:
            self.writes.append(Write(time.monotonic(), request.method, request.path))
        async with session.request(request.method, request.path_qs, data=body or None, headers=headers) as found:
            if request.query.get("watch") == "true" and found.status == 200:
                return await self._watched(request, found)
            answered = await found.read()
        if request.method in _WRITES and found.status < 300 and self.rng.random() < self.faults.lost:
            return await self._lose(request)
        return web.Response(status=found.status, body=answered, headers=_passed_on(found))

    async def _lose(self, request: web.Request) -> web.Response:
        self.lost += 1
        await asyncio.sleep(self.faults.patience_seconds)
        if self.rng.random() < 0.5:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=504, body=_GAVE_UP, content_type="application/json")

    async def _watched(self, request: web.Request, found: aiohttp.ClientResponse) -> web.StreamResponse:
        passed = web.StreamResponse(status=found.status, headers=_passed_on(found))
        await passed.prepare(request)
        with suppress(ConnectionError):  # the client of the watch has disconnected
            async for chunk in found.content.iter_any():
                await asyncio.sleep(self.faults.watch_lag_seconds)  # what arrives meanwhile comes with the next chunk
                await passed.write(chunk)
        return passed


@asynccontextmanager
async def between(server: real.Client, faults: Faults, rng: random.Random) -> AsyncIterator[FaultyProxy]:
    """A proxy before `server`."""
    assert server.ca is not None
    proxy = FaultyProxy(server, faults, rng)
    tls = ssl.create_default_context(cadata=server.ca.decode())
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(server.url, connector=connector, timeout=timeout) as session:

        async def answer(request: web.Request) -> web.StreamResponse:
            return await proxy.answer(session, request)

        application = web.Application(client_max_size=8 * 2**20)
        application.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            await runner.cleanup()


def _passed_on(found: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in found.headers.items() if name.lower() not in _NOT_PASSED_ON}
