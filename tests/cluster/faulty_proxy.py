"""A proxy on loopback that carries every request out, and loses some of the answers to writes.

    async with faulty_proxy.between(server, share=0.05, chance=random.Random(1)) as proxy:
        ...  # proxy.kubeconfig() leads through it

A lost answer looks as it does in the wild: half of the time the connection breaks, half of the time somebody on the way
gives up waiting and says 504. The write has happened either way. Watches run behind by a moment, as those of a busy
server do: who takes a lost answer for a refusal has time to give away again what was given already.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web

from cluster import real

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_GAVE_UP: Final = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":504,"reason":"Timeout"}'
# Headers that speak of one connection, or of a body as it was before it was read.
_NOT_PASSED_ON: Final = frozenset(
    {"host", "connection", "transfer-encoding", "content-length", "content-encoding", "accept-encoding"}
)


@dataclass
class FaultyProxy:
    server: real.Client
    share: float
    chance: random.Random
    lag_seconds: float
    url: str = ""
    writes: int = 0
    lost: int = 0

    def kubeconfig(self) -> str:
        return real.Client(self.url, self.server.token).kubeconfig()

    async def answer(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        body = await request.read()
        async with session.request(request.method, request.path_qs, data=body or None, headers=headers) as found:
            if request.query.get("watch") == "true" and found.status == 200:
                return await self._watched(request, found)
            answered = await found.read()
        if request.method in _WRITES and found.status < 300:
            self.writes += 1
            if self.chance.random() < self.share:
                return await self._lose(request)
        return web.Response(status=found.status, body=answered, headers=_passed_on(found))

    async def _lose(self, request: web.Request) -> web.Response:
        self.lost += 1
        await asyncio.sleep(self.lag_seconds / 2)  # nobody gives up at once
        if self.chance.random() < 0.5:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=504, body=_GAVE_UP, content_type="application/json")

    async def _watched(self, request: web.Request, found: aiohttp.ClientResponse) -> web.StreamResponse:
        passed = web.StreamResponse(status=found.status, headers=_passed_on(found))
        await passed.prepare(request)
        async for chunk in found.content.iter_any():
            await asyncio.sleep(self.lag_seconds)  # what arrives meanwhile comes with the next chunk
            await passed.write(chunk)
        return passed


@asynccontextmanager
async def between(
    server: real.Client, share: float, chance: random.Random, *, lag_seconds: float = 0.4
) -> AsyncIterator[FaultyProxy]:
    """A proxy before `server` that loses this share of the answers to writes."""
    assert server.ca is not None
    proxy = FaultyProxy(server, share, chance, lag_seconds)
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
            port = real.free_port()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            proxy.url = f"http://127.0.0.1:{port}"
            yield proxy
        finally:
            await runner.cleanup()


def _passed_on(found: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in found.headers.items() if name.lower() not in _NOT_PASSED_ON}
