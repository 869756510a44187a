"""A server on a socket whose every byte a test decides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """The address of a server that answers each connection with `answer`, and then closes the connection."""
    answered: list[asyncio.Task[None]] = []

    async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
            with suppress(ConnectionError):
                await writer.drain()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered.append(asyncio.create_task(answer_and_close(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*answered)


async def request_head(reader: asyncio.StreamReader) -> bytes:
    """The head of a request. Its body is read as well: a connection that is closed with bytes unread is reset, and the
    client may lose the response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)\r\n", head, re.IGNORECASE)
    await reader.readexactly(int(length[1]) if length is not None else 0)
    return head
