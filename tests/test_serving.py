"""The one HTTP adapter, seen from the other end of the wire."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pykueue import serving
from waiting import eventually


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 100\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"],
    ids=["counted", "chunked"],
)
async def test_a_client_that_hangs_up_in_the_middle_of_its_body_is_one_quiet_line(
    caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    begun = asyncio.Event()

    async def answer(request: serving.Request) -> serving.Response:
        begun.set()
        return serving.Response(body=await request.read(1000))

    server = await serving.serve(answer, "127.0.0.1", 0)
    try:
        with caplog.at_level(logging.DEBUG):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST /somewhere HTTP/1.1\r\nHost: here\r\n" + body)
            await begun.wait()
            writer.close()
            await writer.wait_closed()
            await eventually(lambda: "POST /somewhere: the client hung up" in caplog.text)
    finally:
        await server.close()
    assert [record.name for record in caplog.records if record.levelno > logging.INFO] == []
