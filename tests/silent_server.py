"""A server that accepts connections and answers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def silent_server() -> AsyncIterator[tuple[str, int]]:
    """Host and port of the server. Its connections are closed at the end."""
    accepted: list[asyncio.StreamWriter] = []

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield host, port
    finally:
        server.close()
        for writer in accepted:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in accepted), return_exceptions=True)
        await server.wait_closed()
