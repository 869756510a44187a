"""The transport of commands: the parts in which it differs from the one of long-running programs."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from kubemachinery.client.thread_transport import ThreadTransport
from kubemachinery.client.transport import ApiRequest
from scripted_server import answering, request_head


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
