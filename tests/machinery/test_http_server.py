"""The one HTTP adapter, seen from the other end of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import logging
import resource
import socket
import ssl
import warnings
from pathlib import Path

import pytest

from kubemachinery import http_connection, http_messages, http_server
from kubeserver.protocol import server_credentials
from waiting import PATIENCE_SECONDS, eventually


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 100\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"],
    ids=["counted", "chunked"],
)
async def test_a_client_that_hangs_up_in_the_middle_of_its_body_is_one_quiet_line(
    caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    begun = asyncio.Event()

    async def answer(request: http_messages.Request) -> http_messages.Response:
        begun.set()
        return http_messages.Response(body=await request.read(1000))

    server = await http_server.serve(answer, "127.0.0.1", 0)
    try:
        with caplog.at_level(logging.DEBUG):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST /somewhere HTTP/1.1\r\nHost: here\r\n" + body)
            await begun.wait()
            writer.close()
            await writer.wait_closed()
            await eventually(lambda: "POST /somewhere: the client closed the connection" in caplog.text)
    finally:
        await server.close()
    assert [record.name for record in caplog.records if record.levelno > logging.INFO] == []


# --- Connections ------------------------------------------------------------------------------------------------------

TOKEN = "s3cr3t-t0ken"


async def _hello(request: http_messages.Request) -> http_messages.Response:
    if request.headers.get("authorization") == f"Bearer {TOKEN}":
        request.identified()
    return http_messages.Response(body=b"hello")


async def _ask(
    server: http_server.HttpServer, lines: str = "", *, path: str = "/"
) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    """One request and its answer, on a connection that stays open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    return await _again(reader, writer, lines, path), reader, writer


async def _again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: str = "", path: str = "/") -> bytes:
    writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return head + await reader.readexactly(size)


async def test_a_connection_without_a_handshake_is_closed_in_time(tmp_path: Path) -> None:
    credentials = server_credentials.prepare(tmp_path, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    tls = server_credentials.server_context(credentials.server, None, credentials.ca)
    limits = http_server.ConnectionLimits(handshake_seconds=0.2)
    server = await http_server.serve(_hello, "127.0.0.1", 0, tls=tls, limits=limits)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        await eventually(lambda: server.open_connections == 0)
        writer.close()
    finally:
        await server.close()


async def test_a_server_that_stops_closes_connections_whose_clients_do_not_answer(tmp_path: Path) -> None:
    """The client never reads the server's part of the TLS closing, so it does not send its own."""
    credentials = server_credentials.prepare(tmp_path, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    tls = server_credentials.server_context(credentials.server, None, credentials.ca)
    server = await http_server.serve(_hello, "127.0.0.1", 0, tls=tls)
    trusting = ssl.create_default_context(cadata=credentials.ca.decode())

    def connected() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
        wrapped = trusting.wrap_socket(plain, server_hostname="127.0.0.1")
        wrapped.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        assert wrapped.recv(1000)
        return wrapped

    with await asyncio.to_thread(connected):
        assert server.open_connections == 1
        await server.close()
        assert server.open_connections == 0


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_while_the_server_stops_is_closed(tmp_path: Path, turns: int) -> None:
    """At whatever turn of the event loop: before it is accepted, before its handshake has begun, or in it."""
    credentials = server_credentials.prepare(tmp_path, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    tls = server_credentials.server_context(credentials.server, None, credentials.ca)
    server = await http_server.serve(_hello, "127.0.0.1", 0, tls=tls)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        assert server.open_connections == 0
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(each.message) for each in caught if "socket" in str(each.message)] == []


async def test_a_closed_connection_is_released_without_the_garbage_collector(tmp_path: Path) -> None:
    """A process that serves collects garbage rarely, and each TLS connection has large buffers."""
    credentials = server_credentials.prepare(tmp_path, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    tls = server_credentials.server_context(credentials.server, None, credentials.ca)
    server = await http_server.serve(_hello, "127.0.0.1", 0, tls=tls)
    trusting = ssl.create_default_context(cadata=credentials.ca.decode())

    def ask_once() -> None:
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS)
        with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
            wrapped.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert wrapped.recv(1000)

    def connections() -> int:
        """How many objects there are of the classes of this module; those of a connection refer to its transport."""
        modules = (http_server.__name__, http_connection.__name__)
        return sum(type(each).__module__ in modules for each in gc.get_objects())

    gc.collect()
    before = connections()
    gc.disable()
    try:
        for _ in range(3):
            await asyncio.to_thread(ask_once)
        await eventually(lambda: server.open_connections == 0 and connections() == before)
    finally:
        gc.enable()
        await server.close()


@pytest.mark.parametrize("after", [0, 1], ids=["the first request", "a later request"])
async def test_a_request_whose_headers_do_not_end_is_cut_off(after: int, caplog: pytest.LogCaptureFixture) -> None:
    limits = http_server.ConnectionLimits(header_seconds=0.2, sweep_seconds=0.05)
    server = await http_server.serve(_hello, "127.0.0.1", 0, limits=limits)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(after):
            await _again(reader, writer)
        writer.write(b"GET / HTTP/1.1\r\nHost: he")
        assert await reader.read() == b""
        writer.close()
        assert "1 connections closed: no complete request in time" in caplog.text
    finally:
        await server.close()


async def test_a_connection_on_which_nothing_comes_is_closed_and_an_idle_one_lives_longer() -> None:
    limits = http_server.ConnectionLimits(silent_seconds=0.2, idle_seconds=3600, sweep_seconds=0.05)
    server = await http_server.serve(_hello, "127.0.0.1", 0, limits=limits)
    try:
        _, idle_reader, idle_writer = await _ask(server)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        assert b"hello" in await _again(idle_reader, idle_writer)
        for one in (writer, idle_writer):
            one.close()
    finally:
        await server.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"], ids=["nothing", "half a request"])
async def test_clients_without_credentials_cannot_lock_out_those_with_credentials(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = await http_server.serve(_hello, "127.0.0.1", 0, limits=http_server.ConnectionLimits(connections_max=16))
    try:
        known = f"Authorization: Bearer {TOKEN}\r\n"
        _, reader, writer = await _ask(server, known)
        crowd = []
        for _ in range(100):
            _, stranger = await asyncio.open_connection("127.0.0.1", server.port)
            stranger.write(sent)
            crowd.append(stranger)
        assert b"hello" in await _again(reader, writer, known), "the known client lost its connection"
        answer, _, another = await _ask(server, known)
        assert b"hello" in answer, "a new client is not served"
        assert server.open_connections <= 16
        assert "closed one of a client without credentials" in caplog.text
        assert len([line for line in caplog.messages if "connections are open" in line]) < 5, (
            "one line for each of them"
        )
        for one in (*crowd, writer, another):
            one.close()
    finally:
        await server.close()


async def test_a_new_connection_is_not_given_up_for_a_later_one_while_older_strangers_stay() -> None:
    server = await http_server.serve(_hello, "127.0.0.1", 0, limits=http_server.ConnectionLimits(connections_max=16))
    try:
        crowd = [(await _ask(server))[2] for _ in range(16)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        crowd += [(await _ask(server))[2] for _ in range(8)]
        assert b"hello" in await _again(reader, writer, f"Authorization: Bearer {TOKEN}\r\n")
        for one in (*crowd, writer):
            one.close()
    finally:
        await server.close()


async def test_a_full_server_of_busy_known_clients_refuses_more_connections() -> None:
    begun, go_on = 0, asyncio.Event()

    async def slow(request: http_messages.Request) -> http_messages.Response:
        nonlocal begun
        request.identified()
        begun += 1
        await go_on.wait()
        return http_messages.Response(body=b"hello")

    server = await http_server.serve(slow, "127.0.0.1", 0, limits=http_server.ConnectionLimits(connections_max=16))
    try:
        asking = [asyncio.create_task(_ask(server)) for _ in range(16)]
        await eventually(lambda: begun == 16)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        go_on.set()
        for answer, _, one in await asyncio.gather(*asking):
            assert b"hello" in answer
            one.close()
        writer.close()
    finally:
        await server.close()


async def test_a_stream_ends_when_its_client_hangs_up() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def forever(write: http_messages.Write) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def answer(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response(stream=forever)

    server = await http_server.serve(answer, "127.0.0.1", 0)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await begun.wait()
        writer.close()
        await eventually(ended.is_set)
        await eventually(lambda: server.open_connections == 0)
    finally:
        await server.close()


MALFORMED = [
    f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization : Bearer {TOKEN}\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}\x01\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: \x00Bearer {TOKEN}\r\n\r\n",
    f"GET /?t={TOKEN}\x00 HTTP/1.1\r\nHost: here\r\n\r\n",
    f"{TOKEN} / HTTP/1.1\r\nHost: here\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: -1\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: {TOKEN}\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {TOKEN}{'x' * 20_000}\r\n\r\n",
    f"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nX: {TOKEN}\r\n\r\n{TOKEN}\r\n\r\n",
]


async def test_a_malformed_request_is_neither_logged_nor_sent_back(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response(body=await request.read(1000))

    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "asyncio")
    server = await http_server.serve(answer, "127.0.0.1", 0)
    try:
        for text in MALFORMED * 3:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(text.encode("latin-1"))
            writer.write_eof()
            answered = await reader.read()
            assert answered == b"" or b" 400 " in answered or b" 500 " in answered, answered
            assert TOKEN.encode() not in answered
            writer.close()
    finally:
        await server.close()
    assert TOKEN not in caplog.text
    assert "refused a malformed request from 127.0.0.1" in caplog.text
    assert len(caplog.text.splitlines()) < 30, "clients write the log"


async def test_answers_name_no_program_and_forbid_guessing_their_type() -> None:
    async def answer(request: http_messages.Request) -> http_messages.Response:
        async def stream(write: http_messages.Write) -> None:
            await write(b"x")

        if request.path == "/stream":
            return http_messages.Response(stream=stream)
        return http_messages.Response(body=b"x" * (http_connection.PIECE_BYTES + 1 if request.path == "/large" else 1))

    server = await http_server.serve(answer, "127.0.0.1", 0)
    try:
        for path in ("/", "/large", "/stream"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert b"\r\nserver:" not in head
            assert b"x-content-type-options: nosniff" in head
            writer.close()
    finally:
        await server.close()


async def test_two_authorization_headers_are_refused() -> None:
    server = await http_server.serve(_hello, "127.0.0.1", 0)
    try:
        answer, _, writer = await _ask(server, f"Authorization: Bearer bad\r\nAuthorization: Bearer {TOKEN}\r\n")
        assert b" 400 " in answer
        assert b"hello" not in answer
        writer.close()
    finally:
        await server.close()


def test_connections_leave_file_descriptors_to_the_rest_of_the_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else 10**9
    lowered = min(1024, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        assert http_server.connections_possible(100_000) == lowered - 128
        http_server.raise_open_files_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(65_536, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
