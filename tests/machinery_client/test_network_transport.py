"""The contract of the transports over a socket, against a server whose every byte is scripted."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from event_loops import on_both_loops
from kubemachinery import http_messages, http_server
from kubemachinery.client import http_connections
from kubemachinery.client.errors import ApiError, Fenced, Unanswered
from kubemachinery.client.http_transport import HttpTransport
from kubemachinery.client.transport import LINE_BYTES, ApiRequest, ConnectionOptions, Headers
from kubeserver.protocol import server_credentials
from scripted_server import answering, request_head
from waiting import PATIENCE_SECONDS, eventually

GET = ApiRequest("GET", "/", timeout_seconds=PATIENCE_SECONDS)
PATCH = ApiRequest("PATCH", "/", body=b"{}", timeout_seconds=PATIENCE_SECONDS)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def connected(url: str, options: ConnectionOptions | None = None) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(url, options or ConnectionOptions())
    try:
        yield transport
    finally:
        await transport.close()


async def read_all(transport: HttpTransport, seen: list[bytes]) -> None:
    async with transport.stream(GET) as lines:
        async for line in lines:
            seen.append(line)


def body(content: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


class Script:
    """Answers each request with the next value; None closes the connection instead, b"" leaves it silent."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.ended = 0
        self.heads: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append(await request_head(reader))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended += 1


# --- Responses --------------------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (body(b"a list"), b"a list"),
        (CHUNKED + b'6;x="y"\r\na list\r\n0\r\nX-Trailer: 1\r\n\r\n', b"a list"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + body(b"a list"), b"a list"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(packed := gzip.compress(b"a list")), packed),
            b"a list",
        ),
    ],
    ids=["length", "chunks", "interim", "none", "gzip"],
)
async def test_response_is_read_and_the_connection_used_again(answer: bytes, content: bytes) -> None:
    script = Script(answer, answer)
    async with answering(script) as url, connected(url) as transport:
        responses = [await transport.send(GET) for _ in range(2)]
        assert [response.body for response in responses] == [content] * 2
    assert script.connections == 1


@on_both_loops
async def test_103_is_an_interim_response() -> None:
    script = Script(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + body(b"a list"))
    async with answering(script) as url, connected(url) as transport:
        assert (await transport.send(GET)).body == b"a list"


@on_both_loops
async def test_body_until_the_end_of_the_connection() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\nno ")
        await writer.drain()
        writer.write(b"backend")

    async with answering(answer) as url, connected(url) as transport:
        response = await transport.send(PATCH)
    assert (response.status, response.body) == (502, b"no backend")


@on_both_loops
async def test_headers_are_looked_up_as_kubernetes_writes_them() -> None:
    script = Script(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n")
    async with answering(script) as url, connected(url) as transport:
        assert (await transport.send(GET)).headers.get("Retry-After") == "7"


@on_both_loops
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        CHUNKED + b"5\r\nshort",
        CHUNKED + b"none\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain",
    ],
    ids=["garbage", "short", "short chunk", "no chunk", "no gzip"],
)
async def test_broken_response_leaves_unknown_whether_a_write_was_applied(answer: bytes) -> None:
    async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(answer)

    async with answering(answer_and_close) as url, connected(url) as transport:
        with pytest.raises(Unanswered, match=f"{url} does not answer PATCH /: .") as caught:
            await transport.send(PATCH)
    assert caught.value.applied is None


@on_both_loops
async def test_malformed_response_closes_the_connection_and_names_the_reason() -> None:
    script = Script(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", body(b"next"))
    async with answering(script) as url, connected(url) as transport:
        with pytest.raises(Unanswered, match="the response has the Content-Length '1, 2'"):
            await transport.send(GET)
        await eventually(lambda: script.ended == 1)
        assert (await transport.send(GET)).body == b"next"
    assert script.connections == 2


@on_both_loops
async def test_small_response_that_unpacks_to_a_large_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubemachinery.client.http_transport.BODY_BYTES", 2**16)
    packed = gzip.compress(bytes(2**24))
    script = Script(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)
    async with answering(script) as url, connected(url) as transport:
        with pytest.raises(Unanswered, match="the response has more than 65536 bytes"):
            await transport.send(GET)


# --- Kept connections -------------------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("request_", [GET, PATCH], ids=["GET", "PATCH"])
async def test_read_is_repeated_when_a_kept_connection_breaks_and_a_write_is_not(request_: ApiRequest) -> None:
    """The server closes the connection when it gets the second request."""
    script = Script(body(b"first"), None, body(b"repeated"))
    async with answering(script) as url, connected(url) as transport:
        await transport.send(GET)
        if request_ is GET:
            assert (await transport.send(request_)).body == b"repeated"
        else:
            with pytest.raises(Unanswered) as caught:
                await transport.send(request_)
            assert caught.value.applied is None
    assert len(script.heads) == (3 if request_ is GET else 2)


@on_both_loops
async def test_read_is_not_repeated_on_a_new_connection_or_after_the_response_began() -> None:
    script = Script(None, body(b""), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")

    accepted = 0

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        serving = asyncio.ensure_future(script(reader, writer))
        await eventually(lambda: serving.done() or not script.answers)
        serving.cancel()
        await asyncio.wait({serving})

    async with answering(cut) as url, connected(url) as transport:
        with pytest.raises(Unanswered):
            await transport.send(GET)
        await transport.send(GET)
        with pytest.raises(Unanswered):
            await transport.send(GET)
    assert (len(script.heads), accepted) == (3, 2)


@on_both_loops
@pytest.mark.parametrize("has_the_loop_run", [True, False])
async def test_connection_that_the_server_closed_while_idle_is_not_used_for_a_write(has_the_loop_run: bool) -> None:
    """Also if the event loop was busy and has not read the end of the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_SECONDS)
        loop = asyncio.get_running_loop()

        def answer() -> socket.socket:
            accepted, _ = listening.accept()
            accepted.settimeout(PATIENCE_SECONDS)
            while not accepted.recv(65536).endswith(b"{}"):
                pass
            accepted.sendall(body(b"done"))
            return accepted

        transport = HttpTransport(f"http://127.0.0.1:{listening.getsockname()[1]}")
        for _ in range(2):
            answering = loop.run_in_executor(None, answer)
            assert (await transport.send(PATCH)).body == b"done"
            (await answering).close()
            if has_the_loop_run:
                await eventually(lambda: not transport._pool._idle[-1].is_open())
        await transport.close()


@on_both_loops
async def test_connection_that_was_idle_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", 0.05)
    script = Script(body(b"1"), body(b"2"))
    async with answering(script) as url, connected(url) as transport:
        await transport.send(GET)
        await eventually(lambda: script.ended == 1)
        await transport.send(GET)
    assert script.connections == 2


@on_both_loops
async def test_connection_that_was_idle_for_long_is_not_used() -> None:
    """The event loop was busy when the connection should have been closed."""
    script = Script(body(b"1"), body(b"2"))
    async with answering(script) as url:
        transport = HttpTransport(url)
        await transport.send(GET)
        transport._pool._idle[-1].idle_since -= 2 * http_connections.IDLE_SECONDS
        await transport.send(GET)
        await transport.close()
    assert script.connections == 2


@on_both_loops
async def test_connection_is_not_used_again_when_the_server_asks_so() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    script = Script(closing, closing)
    async with answering(script) as url, connected(url) as transport:
        for _ in range(2):
            await transport.send(PATCH)
    assert script.connections == 2


@on_both_loops
async def test_bytes_after_a_response_are_not_taken_for_the_next_one() -> None:
    script = Script(body(b"first") + body(b"not asked for"), body(b"second"))
    async with answering(script) as url, connected(url) as transport:
        assert [(await transport.send(GET)).body for _ in range(2)] == [b"first", b"second"]
    assert script.connections == 2


# --- The limit of connections -----------------------------------------------------------------------------------------


@on_both_loops
async def test_requests_above_the_limit_wait_in_order() -> None:
    served: list[bytes] = []
    open_now = most = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        try:
            while True:
                served.append((await request_head(reader)).split()[1])
                await asyncio.sleep(0.001)
                writer.write(body(b""))
        except asyncio.IncompleteReadError:
            open_now -= 1

    async with answering(answer) as url:
        transport = HttpTransport(url, connections=1)
        await asyncio.gather(*(transport.send(ApiRequest("GET", f"/{number}")) for number in range(10)))
        assert served == [b"/%d" % number for number in range(10)]
        await transport.close()
        transport = HttpTransport(url, connections=3)
        await asyncio.gather(*(transport.send(ApiRequest("GET", f"/{number}")) for number in range(20)))
        await transport.close()
    assert most == 3


@on_both_loops
async def test_timeout_covers_the_wait_for_a_connection_and_leaves_the_place_to_others() -> None:
    script = Script(CHUNKED, body(b"later"))
    async with answering(script) as url:
        transport = HttpTransport(url, connections=1)
        async with transport.stream(GET):
            with pytest.raises(Unanswered, match=r"not within 0\.05 s"):
                await transport.send(ApiRequest("GET", "/", timeout_seconds=0.05))
            cancelled, waiting = (asyncio.create_task(transport.send(GET)) for _ in range(2))
            await asyncio.sleep(0)
            cancelled.cancel()
        assert (await waiting).body == b"later"
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await transport.close()


@on_both_loops
@pytest.mark.parametrize("is_usable", [True, False])
async def test_request_cancelled_when_it_was_handed_a_connection_gives_it_back(is_usable: bool) -> None:
    script = Script(body(b"after"))
    async with answering(script) as url:
        transport = HttpTransport(url, connections=1)
        taken = await transport._pool.take(is_read=True, is_repeated=False)
        waiting = asyncio.create_task(transport.send(GET))
        await asyncio.sleep(0)
        if not is_usable:
            taken.abort()
        transport._pool.give_back(taken)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await transport.send(ApiRequest("GET", "/", timeout_seconds=10))).body == b"after"
        await transport.close()


@on_both_loops
async def test_connections_that_fail_do_not_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    transport = HttpTransport(url, connections=1)
    for _ in range(3):
        with pytest.raises(Unanswered, match="cannot be reached: Connection refused") as caught:
            await transport.send(PATCH)
        assert caught.value.applied is False
    await transport.close()


# --- Ending early -----------------------------------------------------------------------------------------------------


@on_both_loops
async def test_cancelled_request_closes_its_connection() -> None:
    is_asked, is_closed = asyncio.Event(), asyncio.Event()

    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        is_asked.set()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        is_closed.set()

    async with answering(answer_nothing) as url, connected(url) as transport:
        task = asyncio.create_task(transport.send(GET))
        await is_asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await is_closed.wait()


@on_both_loops
async def test_request_that_is_late_closes_its_connection() -> None:
    script = Script(b"", body(b"next"))
    async with answering(script) as url, connected(url) as transport:
        with pytest.raises(Unanswered, match=r"not within 0\.05 s") as caught:
            await transport.send(ApiRequest("PATCH", "/", timeout_seconds=0.05))
        await eventually(lambda: script.ended == 1)
        assert caught.value.applied is None
        assert (await transport.send(GET)).body == b"next"


@on_both_loops
async def test_closing_the_transport_ends_requests_and_refuses_further_ones() -> None:
    script = Script(body(b""), b"")
    async with answering(script) as url:
        transport = HttpTransport(url, connections=1)
        await transport.send(GET)
        sent, waiting = asyncio.create_task(transport.send(GET)), asyncio.create_task(transport.send(PATCH))
        await eventually(lambda: len(script.heads) == 2)
        await transport.close()
        with pytest.raises(Unanswered) as in_progress:
            await sent
        with pytest.raises(Unanswered) as not_sent:
            await waiting
        with pytest.raises(RuntimeError, match="closed"):
            await transport.send(GET)
    assert (in_progress.value.applied, not_sent.value.applied) == (None, False)


@on_both_loops
async def test_write_behind_a_closed_fence_sends_nothing() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.put_nowait(await reader.read())

    async with answering(keep) as url, connected(url) as transport:
        with pytest.raises(Fenced):
            await transport.send(ApiRequest("PUT", "/", body=b"{}", fence=lambda: False))
        await transport.close()
        assert await received.get() == b""


@on_both_loops
async def test_closed_fence_keeps_the_connection() -> None:
    script = Script(body(b"read"))
    async with answering(script) as url, connected(url) as transport:
        with pytest.raises(Fenced):
            await transport.send(ApiRequest("PUT", "/", body=b"{}", fence=lambda: False))
        assert (await transport.send(GET)).body == b"read"
    assert script.connections == 1


@on_both_loops
async def test_header_with_a_line_break_is_refused_before_anything_is_sent() -> None:
    token = "a\r\nImpersonate-User: admin"

    async def credentials() -> Headers:
        return [("Authorization", f"Bearer {token}")]

    received = b""

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        while line := await reader.readline():
            received += line
            if line == b"\r\n":
                writer.write(body(b""))

    options = ConnectionOptions(credentials=credentials)
    async with answering(keep) as url, connected(url, options) as transport:
        with pytest.raises(ValueError):
            await transport.send(GET)
        with pytest.raises(Unanswered):
            async with transport.stream(GET):
                pass
        token = "b"
        await transport.send(GET)
        await transport.close()
    assert (received.count(b"HTTP/1.1"), b"Impersonate-User" in received) == (1, False)


@on_both_loops
async def test_credentials_are_asked_for_each_request() -> None:
    asked = 0

    async def credentials() -> Headers:
        nonlocal asked
        asked += 1
        return [("Authorization", f"Bearer {asked}")]

    script = Script(body(b""), body(b""))
    async with (
        answering(script) as url,
        connected(url + "/prefix", ConnectionOptions(credentials=credentials)) as transport,
    ):
        for _ in range(2):
            await transport.send(ApiRequest("PATCH", "/a b", (("fieldManager", "a/b c"),), b"{}", "text/plain"))
    for number, head in enumerate(script.heads, 1):
        first, *headers = head.decode().split("\r\n")
        assert first == "PATCH /prefix/a%20b?fieldManager=a%2Fb+c HTTP/1.1"
        assert {
            f"Authorization: Bearer {number}",
            f"Host: {url.removeprefix('http://')}",
            "User-Agent: pykueue",
            "Accept: application/json",
            "Content-Type: text/plain",
            "Content-Length: 2",
        } <= set(headers)


# --- Connecting -------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_server_is_found_by_its_name() -> None:
    """A name may have several addresses; the server listens at one of them."""
    script = Script(body(b"found"))
    async with answering(script) as url:
        port = url.rpartition(":")[2]
        async with connected(f"http://localhost:{port}") as transport:
            assert (await transport.send(GET)).body == b"found"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    async with connected(f"http://localhost:{port}") as transport:
        with pytest.raises(Unanswered, match=f"http://localhost:{port} cannot be reached: Connection refused"):
            await transport.send(GET)


@on_both_loops
@pytest.mark.parametrize(
    ("trusted", "hostname", "message"),
    [
        (True, None, "it is not valid for '127.0.0.1'|IP address mismatch"),
        (True, "kueue.example", ""),
        (False, "kueue.example", "unable to get local issuer certificate|self.signed"),
    ],
    ids=["wrong name", "name of the kubeconfig", "unknown authority"],
)
async def test_certificate_is_checked(trusted: bool, hostname: str | None, message: str, tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    served = server_credentials.prepare(tmp_path / "served", ["kueue.example"], now)
    other = served if trusted else server_credentials.prepare(tmp_path / "other", ["kueue.example"], now)
    tls = server_credentials.server_context(served.server, None, served.ca)
    trusting = ssl.create_default_context(cadata=other.ca.decode())
    loop = asyncio.get_running_loop()
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await request_head(reader)
        writer.write(body(b"secret"))

    loop.set_exception_handler(lambda *_: None)  # a refused handshake
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with connected(url, ConnectionOptions(tls=trusting, server_hostname=hostname)) as transport:
            if message:
                with pytest.raises(
                    Unanswered, match=rf"cannot be reached: its certificate is not trusted: .*({message})"
                ) as caught:
                    await transport.send(PATCH)
                assert caught.value.applied is False
            else:
                assert (await transport.send(GET)).body == b"secret"
        for writer in writers:
            writer.close()


@on_both_loops
async def test_reads_over_tls_share_a_buffer_at_both_ends(tmp_path: Path) -> None:
    """Otherwise the TLS protocol allocates 256 KiB for each read, which the kernel maps and unmaps each time."""

    async def echo(request: http_messages.Request) -> http_messages.Response:
        return http_messages.Response(body=await request.read(2 * len(large)))

    large = bytes(range(256)) * 4096
    served = server_credentials.prepare(tmp_path, ["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    tls = server_credentials.server_context(served.server, None, served.ca)
    server = await http_server.serve(echo, "127.0.0.1", 0, tls=tls)
    trusting = ssl.create_default_context(cadata=served.ca.decode())
    try:
        async with connected(f"https://127.0.0.1:{server.port}", ConnectionOptions(tls=trusting)) as transport:
            assert (await transport.send(replace(PATCH, body=large))).body == large
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            assert (await transport.send(PATCH)).body == PATCH.body
            assert tracemalloc.get_traced_memory()[1] - before < 128 * 1024
    finally:
        tracemalloc.stop()
        await server.close()


# --- Streams ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_lines_of_a_stream_do_not_depend_on_chunks() -> None:
    content = b'{"a":1}\n{"b":"\\r"}\r\n\n{"c":3}'
    script = Script(CHUNKED + b"".join(chunk(content[at : at + 4]) for at in range(0, len(content), 4)) + b"0\r\n\r\n")
    async with answering(script) as url, connected(url) as transport, transport.stream(GET) as lines:
        assert [line async for line in lines] == [b'{"a":1}\n', b'{"b":"\\r"}\r\n', b"\n", b'{"c":3}']


@on_both_loops
async def test_refused_stream_raises_the_error_of_the_server_with_its_delay() -> None:
    script = Script(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nContent-Length: 4\r\n\r\nbusy")
    async with answering(script) as url, connected(url) as transport:
        with pytest.raises(ApiError) as caught:
            async with transport.stream(GET):
                pass
    assert (caught.value.code, caught.value.retry_after, str(caught.value)) == (429, 7.0, "busy")


@on_both_loops
async def test_broken_stream_gives_the_lines_before_the_break() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(CHUNKED + chunk(b"{}\n") + chunk(b"{"))

    seen: list[bytes] = []
    async with answering(answer) as url, connected(url) as transport:
        with pytest.raises(Unanswered, match="/: the stream broke: the server closed the connection") as caught:
            await read_all(transport, seen)
    assert (seen, caught.value.applied) == ([b"{}\n"], False)


@on_both_loops
async def test_line_that_is_too_long_breaks_the_stream() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(CHUNKED + chunk(b"{}\n" + b"x" * (LINE_BYTES + 1)))
        with suppress(ConnectionError):
            await reader.read()

    seen: list[bytes] = []
    async with answering(answer) as url, connected(url) as transport:
        with pytest.raises(Unanswered, match="/: the stream broke: a line has more than 4194304 bytes"):
            await read_all(transport, seen)
    assert seen == [b"{}\n"]


@on_both_loops
async def test_line_of_the_largest_size_is_read() -> None:
    longest = b"x" * (LINE_BYTES - 1) + b"\n"
    script = Script(CHUNKED + chunk(longest) + chunk(longest) + b"0\r\n\r\n")
    async with answering(script) as url, connected(url) as transport, transport.stream(GET) as lines:
        assert [len(line) async for line in lines] == [LINE_BYTES] * 2


@on_both_loops
async def test_stream_that_is_left_early_closes_its_connection() -> None:
    script = Script(CHUNKED + chunk(b"{}\n"))
    async with answering(script) as url, connected(url) as transport:
        async with transport.stream(GET) as lines:
            assert await anext(lines) == b"{}\n"
        await eventually(lambda: script.ended == 1)


@on_both_loops
async def test_connection_of_a_stream_that_ended_is_used_again() -> None:
    script = Script(CHUNKED + chunk(b"{}\n") + b"0\r\n\r\n", body(b"next"))
    async with answering(script) as url, connected(url) as transport:
        async with transport.stream(GET) as lines:
            assert [line async for line in lines] == [b"{}\n"]
        assert (await transport.send(PATCH)).body == b"next"
    assert script.connections == 1


@on_both_loops
async def test_stream_is_begun_again_when_a_kept_connection_breaks() -> None:
    script = Script(body(b""), None, CHUNKED + chunk(b"{}\n") + b"0\r\n\r\n")
    async with answering(script) as url, connected(url) as transport:
        await transport.send(GET)
        async with transport.stream(GET) as lines:
            assert [line async for line in lines] == [b"{}\n"]


@on_both_loops
async def test_slow_consumer_of_a_stream_holds_the_server_back() -> None:
    line, total = b"x" * 65535 + b"\n", 2000
    written = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await request_head(reader)
        writer.write(CHUNKED)
        for _ in range(total):
            writer.write(chunk(line))
            await writer.drain()
            written += 1
        writer.write(b"0\r\n\r\n")

    def stands_still() -> Callable[[], bool]:
        seen: list[int] = []

        def asked() -> bool:
            seen.append(written)
            return len(seen) > 20 and seen[-20] == written

        return asked

    async with answering(answer) as url, connected(url) as transport, transport.stream(GET) as lines:
        assert await anext(lines) == line
        await eventually(stands_still())
        # What is held here, and what the sockets hold.
        assert written * len(line) < 2 * LINE_BYTES + 32 * 2**20 < total * len(line)
        assert [one async for one in lines] == [line] * (total - 1)
