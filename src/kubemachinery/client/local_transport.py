"""Requests to a server in the same process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubemachinery import http_messages
from kubemachinery.client import errors
from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, check_fence


class LocalTransport:
    """Requests to a handler in the same process: no sockets, no copies, no threads."""

    def __init__(self, handler: http_messages.Handler, user_agent: str = "pykueue") -> None:
        self._handler = handler
        self._user_agent = user_agent

    async def send(self, request: ApiRequest) -> ApiResponse:
        check_fence(request)
        response = await self._handler(self._request(request))
        return ApiResponse(response.status, response.body, response.headers)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        response = await self._handler(self._request(request))
        if response.stream is None:
            raise errors.from_response(response.status, response.body, response.headers.get("Retry-After", ""))
        # Unbounded here: the server itself drops a reader that falls too far behind.
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        pump = asyncio.get_running_loop().create_task(_pump(response.stream, arrived))
        try:
            yield _arrivals(arrived)
        finally:
            pump.cancel()
            # Not awaited directly: a cancellation of this task must be raised here, not lost with that of the pump.
            await asyncio.wait({pump})

    def _request(self, request: ApiRequest) -> http_messages.Request:
        headers = {"accept": request.accept, "user-agent": self._user_agent}
        if request.content_type:
            headers["content-type"] = request.content_type
        return http_messages.Request(
            request.method, request.path, list(request.query), headers, http_messages.body_of(request.body)
        )

    async def close(self) -> None:
        """Nothing to close: no connection stays open between requests."""


async def _pump(stream: http_messages.Stream, arrived: asyncio.Queue[bytes | None]) -> None:
    try:
        with contextlib.suppress(http_messages.StreamDropped):
            await stream(arrived.put)
    finally:
        arrived.put_nowait(None)


async def _arrivals(arrived: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    """Whole lines, however the server splits its chunks."""
    rest = b""
    while (chunk := await arrived.get()) is not None:
        *whole, rest = (rest + chunk).split(b"\n")
        # Not kept until the next chunk comes: after many changes that may be long, and a chunk has 256 KiB.
        del chunk
        whole.reverse()
        while whole:
            yield whole.pop() + b"\n"
    if rest:
        yield rest
