"""A transport of which the watch of one kind can be held up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubemachinery.client.transport import ApiRequest, ApiResponse, Lines, Transport


class Late:
    """Delivers no events of a kind, by default of Workloads, until the test allows it."""

    def __init__(self, inner: Transport, plural: str = "workloads") -> None:
        self._inner = inner
        self._plural = plural
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def send(self, call: ApiRequest) -> ApiResponse:
        return await self._inner.send(call)

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        async with self._inner.stream(call) as lines:
            yield self._held_up(lines) if call.path.endswith(f"/{self._plural}") else lines

    async def _held_up(self, lines: Lines) -> AsyncIterator[bytes]:
        async for line in lines:
            await self.go_on.wait()
            yield line

    async def close(self) -> None:
        await self._inner.close()
