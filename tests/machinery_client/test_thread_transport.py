"""The transport of commands: the parts in which it differs from the one of long-running programs."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import pytest

from kubemachinery.client.errors import ApiError, Fenced, Unanswered
from kubemachinery.client.thread_transport import ThreadTransport
from kubemachinery.client.transport import ApiRequest

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """The address of a server that answers each connection with `answer`, and then closes the connection."""
    answered: list[asyncio.Task[None]] = []

    async def answer_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
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
    return await reader.readuntil(b"\r\n\r\n")


async def test_idle_connection_is_used_again() -> None:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for number in range(2):
            await request_head(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)

    async with answering(answer) as url:
        transport = ThreadTransport(url)
        bodies = [(await transport.send(ApiRequest("GET", "/"))).body for _ in range(2)]
        await transport.close()
    assert (bodies, connections) == ([b"0", b"1"], 1)


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_read_is_repeated_when_the_server_closed_an_idle_connection_and_a_write_is_not(method: str) -> None:
    heads: list[bytes] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await request_head(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with answering(answer_once) as url:
        transport = ThreadTransport(url)
        await transport.send(ApiRequest("GET", "/first"))
        if method == "GET":
            assert (await transport.send(ApiRequest(method, "/second"))).body == b"{}"
        else:
            with pytest.raises(Unanswered) as caught:
                await transport.send(ApiRequest(method, "/second", body=b"{}"))
            assert caught.value.applied is None
        await transport.close()
    assert len(heads) == (2 if method == "GET" else 1)


async def test_compressed_response_is_unpacked() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        body = gzip.compress(b"a list")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with answering(answer) as url:
        transport = ThreadTransport(url)
        assert (await transport.send(ApiRequest("GET", "/"))).body == b"a list"
        await transport.close()


async def test_write_behind_a_closed_fence_sends_nothing() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.put_nowait(await reader.read())

    async with answering(keep) as url:
        transport = ThreadTransport(url)
        with pytest.raises(Fenced):
            await transport.send(ApiRequest("PUT", "/", body=b"{}", fence=lambda: False))
        await transport.close()
        assert await received.get() == b""


async def test_refused_stream_raises_the_error_of_the_server_with_its_delay() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        writer.write(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nContent-Length: 4\r\n\r\nbusy")

    async with answering(answer) as url:
        transport = ThreadTransport(url)
        with pytest.raises(ApiError) as caught:
            async with transport.stream(ApiRequest("GET", "/watch")):
                pass
        await transport.close()
    assert (caught.value.code, caught.value.retry_after) == (429, 7.0)


async def test_cancelled_request_ends_its_thread() -> None:
    """A command that is interrupted must not wait for a server that does not answer."""
    is_asked = asyncio.Event()

    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_head(reader)
        is_asked.set()
        assert await reader.read() == b""

    async with answering(answer_nothing) as url:
        transport = ThreadTransport(url)
        task = asyncio.create_task(transport.send(ApiRequest("GET", "/", timeout_seconds=600)))
        await is_asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await transport.close()
        for thread in threading.enumerate():
            if thread.name.startswith("request"):
                thread.join(10)
                assert not thread.is_alive()


async def test_request_cancelled_after_its_answer_leaves_no_open_socket() -> None:
    """The thread is done, and the task is cancelled before the event loop resumes it."""
    is_answered = threading.Event()

    def answer_once(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(65536)
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            is_answered.set()
            assert accepted.recv(1) == b""

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as server:
        answering = server.submit(answer_once, listener)
        transport = ThreadTransport(f"http://127.0.0.1:{listener.getsockname()[1]}")
        task = asyncio.create_task(transport.send(ApiRequest("GET", "/")))
        while not is_answered.is_set():
            await asyncio.sleep(0)
        threading.Event().wait(0.05)  # the event loop stands still while the thread reads the answer
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await transport.close()
        answering.result(10)
    # A socket that is collected open is a ResourceWarning, which fails the test.
    del transport, task
    gc.collect()


def test_commands_import_neither_the_http_library_nor_cel_nor_the_scheduler() -> None:
    """A command must start fast: these imports cost more than everything else that `queue` and `submit` do."""
    code = "import sys, pykueue.client.job_service, kubemachinery.client.thread_transport; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "kubemachinery.cel", "pykueue.core.cycle", "pykueue.state.world", "cryptography"} & set(
        modules
    )
