"""One connection of the HTTP server: requests one after the other, bodies of all forms, and clients that misbehave.

Each test sends bytes and compares bytes, on the event loop of asyncio and on uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from event_loops import on_both_loops
from kubemachinery import http_connection, http_server
from kubemachinery.http_messages import Handler, Request, Response, Write
from waiting import PATIENCE_SECONDS, eventually


async def _echo(request: Request) -> Response:
    """The method, the path and the body, so often as `times` has it. /unread does not read the body."""
    if request.path == "/unread":
        return Response(413, b"too large")
    body = await request.read(1_000_000)
    if request.path == "/none":
        return Response(204, b"not sent")
    if request.path == "/stream":
        return Response(stream=functools.partial(_stream, body.split(b" ")))
    if request.path == "/fails":
        raise KeyError("the secret of the handler")
    if request.path == "/fails/later":
        return Response(stream=_failing)
    times = int(request.first("times", "1"))
    return Response(body=b" ".join((request.method.encode(), request.path.encode(), body)) * times)


async def _stream(parts: list[bytes], write: Write) -> None:
    for part in parts:
        await write(part)


async def _failing(write: Write) -> None:
    await write(b"part")
    raise KeyError("the secret of the handler")


@asynccontextmanager
async def connected(
    handler: Handler = _echo,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, http_server.HttpServer]]:
    server = await http_server.serve(handler, "127.0.0.1", 0, shutdown_seconds=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield reader, writer, server
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        await server.close()


async def answer(reader: asyncio.StreamReader, *, head_only: bool = False) -> tuple[int, str, bytes]:
    """The status, the head and the body of one response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status = int(head.split()[1])
    if head_only or status in (100, 204):
        return status, head, b""
    if found := re.search(r"Content-Length: (\d+)", head):
        return status, head, await reader.readexactly(int(found[1]))
    if "Transfer-Encoding: chunked" not in head:
        return status, head, await reader.read()
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return status, head, body


def request(target: str = "/", body: bytes = b"", *, method: str = "POST", lines: str = "") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {target} HTTP/1.1\r\nHost: here\r\n{length}{lines}\r\n".encode() + body


@on_both_loops
async def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    """Also those that were sent before the first response, whatever the bodies of the others."""
    sent = b"".join(request(f"/{number}", b"x" * number * 100) for number in range(30))
    chunked = request("/chunked", lines="Transfer-Encoding: chunked\r\n") + b"3\r\nabc\r\n0\r\n\r\n"
    async with connected() as (reader, writer, server):
        writer.write(sent + chunked + request("/last", method="GET"))
        for number in range(30):
            status, head, body = await answer(reader)
            assert (status, body) == (200, b"POST /%d " % number + b"x" * number * 100)
            assert "Connection:" not in head
            assert re.search(r"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", head)
        assert (await answer(reader))[2] == b"POST /chunked abc"
        assert (await answer(reader))[2] == b"GET /last "
        assert server.open_connections == 1


@on_both_loops
async def test_a_body_that_arrives_in_pieces_is_one_body() -> None:
    async with connected() as (reader, writer, _):
        for piece in (request("/", b"x" * 300_000)[start : start + 7_777] for start in range(0, 300_100, 7_777)):
            writer.write(piece)
            await asyncio.sleep(0)
        assert (await answer(reader))[2] == b"POST / " + b"x" * 300_000


@on_both_loops
async def test_more_than_the_handler_takes_is_left_in_the_socket() -> None:
    """A client cannot make the server hold what was not asked for."""
    go_on = asyncio.Event()

    async def slow(asked: Request) -> Response:
        await go_on.wait()
        return Response(body=str(len(await asked.read(50_000_000))).encode())

    async with connected(slow) as (reader, writer, server):
        writer.write(request("/", b"x" * 40_000_000))
        await asyncio.sleep(0.3)
        (accepted,) = server._connections.open
        assert accepted.connection is not None
        assert accepted.connection._parser.held_bytes < 1_000_000
        go_on.set()
        assert (await answer(reader))[2] == b"40000000"


@on_both_loops
async def test_requests_sent_ahead_are_left_in_the_socket() -> None:
    go_on = asyncio.Event()

    async def slow(asked: Request) -> Response:
        await go_on.wait()
        return Response(body=asked.path.encode())

    async with connected(slow) as (reader, writer, server):
        count = 100_000
        writer.write(request("/path", method="GET") * count)
        await asyncio.sleep(0.3)
        (accepted,) = server._connections.open
        assert accepted.connection is not None
        assert len(accepted.connection._parser.more) < 1_000_000
        go_on.set()
        for _ in range(1000):
            assert (await answer(reader))[2] == b"/path"


@on_both_loops
async def test_a_client_that_waits_for_permission_gets_it_when_the_body_is_read() -> None:
    async with connected() as (reader, writer, _):
        writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert (await answer(reader))[0] == 100
        writer.write(b"abc" + request("/next", method="GET"))
        assert (await answer(reader))[2] == b"POST /x abc"
        assert (await answer(reader))[2] == b"GET /next "


@on_both_loops
async def test_a_client_without_permission_gets_the_response_and_the_end() -> None:
    async with connected() as (reader, writer, _):
        writer.write(b"POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""


@on_both_loops
async def test_a_body_that_is_not_read_does_not_become_the_next_request() -> None:
    hidden = request("/hidden", method="GET")
    async with connected() as (reader, writer, _):
        writer.write(request("/unread", hidden) + request("/next", method="GET"))
        assert (await answer(reader))[0] == 413
        assert (await answer(reader))[2] == b"GET /next "


@on_both_loops
async def test_a_client_that_never_sends_the_rest_of_a_body_gets_the_response_and_the_end() -> None:
    async with connected() as (reader, writer, server):
        writer.write(b"POST /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\n\r\nabc")
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""
        await eventually(lambda: server.open_connections == 0)


@on_both_loops
async def test_streams_are_sent_in_chunks_and_empty_parts_do_not_end_them() -> None:
    async with connected() as (reader, writer, _):
        writer.write(request("/stream", b"one  two") + request("/next", method="GET"))
        status, head, body = await answer(reader)
        assert (status, body) == (200, b"onetwo")
        assert "Content-Length" not in head
        assert (await answer(reader))[2] == b"GET /next "


@on_both_loops
async def test_old_clients_get_no_chunks_and_stay_only_if_they_ask() -> None:
    async with connected() as (reader, writer, _):
        old = b"POST %b HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\none"
        writer.write(old % b"/x")
        status, head, body = await answer(reader)
        assert (status, body) == (200, b"POST /x one")
        assert "Connection: keep-alive" in head
        writer.write(old % b"/stream")
        status, head, body = await answer(reader)
        assert (status, body) == (200, b"one")
        assert "Connection: close" in head
        assert "Transfer-Encoding" not in head


@on_both_loops
async def test_responses_without_a_body_have_none() -> None:
    async with connected() as (reader, writer, _):
        for target, status in (("/", 200), ("/stream", 200), ("/?times=100000", 200)):
            writer.write(request(target, method="HEAD"))
            assert (await answer(reader, head_only=True))[0] == status
        writer.write(request("/none", method="GET") + request("/next", method="GET"))
        status, head, _ = await answer(reader)
        assert status == 204
        assert "Content-Length" not in head
        assert (await answer(reader))[2] == b"GET /next "


@on_both_loops
async def test_a_large_response_reaches_a_client_that_reads_slowly() -> None:
    async with connected() as (reader, writer, _):
        times = 3 * http_connection.PIECE_BYTES
        writer.write(request(f"/?times={times}", method="GET") + request("/next", method="GET"))
        await asyncio.sleep(0.1)
        assert (await answer(reader))[2] == b"GET / " * times
        assert (await answer(reader))[2] == b"GET /next "


@on_both_loops
async def test_a_client_that_asks_for_the_end_gets_it_after_the_response() -> None:
    async with connected() as (reader, writer, _):
        writer.write(request("/", lines="Connection: close\r\n") + request("/not-served"))
        status, head, _ = await answer(reader)
        assert status == 200
        assert "Connection: close" in head
        assert await reader.read() == b""


@on_both_loops
async def test_a_body_that_is_malformed_is_refused_and_ends_the_connection() -> None:
    async with connected() as (reader, writer, _):
        writer.write(request("/", lines="Transfer-Encoding: chunked\r\n") + b"3\r\nabc\r\nzzz\r\n" + request("/next"))
        status, head, body = await answer(reader)
        assert (status, body) == (400, b"malformed request\n")
        assert "Connection: close" in head
        assert await reader.read() == b""


def test_an_error_of_the_handler_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with connected() as (reader, writer, _):
            writer.write(request("/fails", method="GET"))
            status, _, body = await answer(reader)
            assert (status, body) == (500, b"internal error\n")
        async with connected() as (reader, writer, _):
            writer.write(request("/fails/later", method="GET"))
            head_and_part = await reader.read()
            assert head_and_part.endswith(b"4\r\npart\r\n"), "a stream that failed must not look complete"

    with asyncio.Runner() as runner:
        runner.run(run())
    assert caplog.text.count("KeyError: 'the secret of the handler'") == 2
    assert "GET /fails: the handler failed" in caplog.text


@on_both_loops
async def test_a_server_that_stops_lets_a_response_end_and_then_closes() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(asked: Request) -> Response:
        begun.set()
        await go_on.wait()
        return Response(body=b"done")

    server = await http_server.serve(slow, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request("/", method="GET"))
    await begun.wait()
    stopping = asyncio.create_task(server.close(PATIENCE_SECONDS))
    await asyncio.sleep(0.05)
    go_on.set()
    status, head, body = await answer(reader)
    assert (status, body) == (200, b"done")
    assert "Connection: close" in head
    assert await reader.read() == b""
    await stopping
    writer.close()
