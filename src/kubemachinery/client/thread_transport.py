"""Requests over HTTP with `http.client`, each in a thread.

A command sends a handful of requests and ends. This transport keeps idle connections, and needs one thread for each
request or stream in progress; a program that sends many at once uses `http_transport`.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
import threading
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from kubemachinery import http1
from kubemachinery.client import errors
from kubemachinery.client.errors import Unanswered
from kubemachinery.client.transport import (
    BODY_BYTES,
    CONNECT_SECONDS,
    DEFAULT_CONNECTION,
    LINE_BYTES,
    ApiRequest,
    ApiResponse,
    ConnectionOptions,
    Headers,
    Lines,
    check_fence,
    reason_of,
    target_of,
)

_THREADS: Final = 64

T = TypeVar("T")


class _NotConnected(Exception):
    """The connection was never made; the cause is the error of the operating system."""


class _Connection:
    """One connection, used by one thread at a time. `abort` may be called by any thread.

    The thread that uses the connection closes it; while no thread uses it, `abort` does.
    """

    def __init__(self, address: urllib.parse.SplitResult, tls: ssl.SSLContext | None, server_hostname: str | None):
        self._host, self._port = address.hostname or "", address.port
        self._tls, self._server_hostname = tls, server_hostname
        self._aborted = self._is_running = False
        self._lock = threading.Lock()
        self.http = http.client.HTTPConnection(self._host, self._port or (443 if tls else 80))

    def connect(self) -> None:
        """Make the connection, unless it is kept from an earlier request."""
        if self.http.sock is not None:
            return
        try:
            plain = socket.create_connection((self.http.host, self.http.port), CONNECT_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.http.sock = plain
            if self._tls is not None:
                self.http.sock = self._tls.wrap_socket(plain, server_hostname=self._server_hostname or self._host)
        except OSError as error:
            raise _NotConnected from error
        if self._aborted:
            raise _NotConnected from ConnectionAbortedError("the request was cancelled")

    def run(self, work: Callable[[], T]) -> T:
        """Run `work` in this thread, and close the connection after an error or an abort."""
        self._begin()
        try:
            result = work()
        except BaseException:
            self._end(is_usable=False)
            raise
        self._end(is_usable=True)
        return result

    def _begin(self) -> None:
        with self._lock:
            if self._aborted:
                raise _NotConnected from ConnectionAbortedError("the request was cancelled")
            self._is_running = True

    def _end(self, *, is_usable: bool) -> None:
        with self._lock:
            self._is_running = False
            if self._aborted or not is_usable:
                self.http.close()

    def abort(self) -> None:
        """Break the connection: the thread that reads from it or writes to it ends at once."""
        with self._lock:
            self._aborted = True
            if not self._is_running:
                self.http.close()
            elif (found := self.http.sock) is not None:
                with suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)

    def exchange(self, request: ApiRequest, target: str, headers: Headers, seconds: float | None) -> _Response:
        self.connect()
        self.http.sock.settimeout(seconds)
        check_fence(request)
        self.http.putrequest(request.method, target, skip_accept_encoding=True)
        for name, value in headers:
            self.http.putheader(name, value)
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            self.http.putheader("Content-Length", str(len(request.body)))
        self.http.endheaders(request.body or None)
        return _Response(self.http.getresponse())


class _Response:
    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.found = found
        # The names are looked up as Kubernetes writes them, such as `Retry-After`.
        self.headers: Mapping[str, str] = {name.title(): value for name, value in found.headers.items()}

    def body(self) -> bytes:
        content = self.found.read()
        if self.headers.get("Content-Encoding", "") != "gzip":
            return content
        unpacker = http1.Unpacker()
        content = unpacker.unpack(content, BODY_BYTES)
        if len(content) > BODY_BYTES:
            raise http1.Malformed(f"the response has more than {BODY_BYTES} bytes")
        if not unpacker.is_at_end:
            raise http1.Malformed("the compressed response is not complete")
        return content


class ThreadTransport:
    """Requests over HTTP, each in a thread."""

    def __init__(self, server: str, options: ConnectionOptions = DEFAULT_CONNECTION) -> None:
        self._server = server.rstrip("/")
        self._address = urllib.parse.urlsplit(self._server)
        self._options = options
        needs_default = options.tls is None and self._address.scheme == "https"
        self._tls = ssl.create_default_context() if needs_default else options.tls
        self._idle: list[_Connection] = []
        self._in_use: set[_Connection] = set()
        self._threads: Final = ThreadPoolExecutor(_THREADS, "request")

    async def send(self, request: ApiRequest) -> ApiResponse:
        timeout = self._options.timeout_of(request)
        encoding = [("Accept-Encoding", "gzip")] if self._options.compressed else []
        headers = [*await self._options.headers_of(request), *encoding]
        was_kept = bool(self._idle)
        try:
            async with asyncio.timeout(timeout):
                try:
                    return await self._sent(request, headers, timeout)
                except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                    # The server closes idle connections. Only a read may be repeated: a write may have been applied.
                    if not was_kept or request.method != "GET":
                        raise
                    return await self._sent(request, headers, timeout, fresh=True)
        except _NotConnected as error:
            raise self._unreachable(error) from None
        except (OSError, http.client.HTTPException, http1.Malformed) as error:
            is_late = isinstance(error, TimeoutError) and timeout
            why = f"not within {timeout:g} s" if is_late else str(error) or repr(error)
            raise Unanswered(f"{self._server} does not answer {request.method} {request.path}: {why}") from None

    async def _sent(
        self, request: ApiRequest, headers: Headers, seconds: float | None, *, fresh: bool = False
    ) -> ApiResponse:
        connection = self._idle.pop() if self._idle and not fresh else self._new()

        def exchange() -> ApiResponse:
            response = connection.exchange(request, target_of(self._address.path, request), headers, seconds)
            return ApiResponse(response.found.status, response.body(), response.headers)

        answer = await self._in_thread(connection, exchange)
        if connection.http.sock is not None:  # closed by http.client when the server asked for it
            self._idle.append(connection)
        return answer

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        headers = await self._options.headers_of(request)
        connection = self._new()
        try:
            response = await self._in_thread(
                connection, lambda: connection.exchange(request, target_of(self._address.path, request), headers, None)
            )
            if response.found.status >= 300:
                body = await self._in_thread(connection, response.body)
                raise errors.from_response(response.found.status, body, response.headers.get("Retry-After", ""))
            yield self._lines(connection, response.found)
        except _NotConnected as error:
            raise self._unreachable(error) from None
        except (OSError, http.client.HTTPException, http1.Malformed, ValueError) as error:
            is_cut = isinstance(error, http.client.IncompleteRead | ConnectionError)
            why = "the server closed the connection" if is_cut else error
            raise Unanswered(f"{request.path}: the stream broke: {why}", applied=False) from None
        finally:
            connection.abort()

    async def _lines(self, connection: _Connection, response: http.client.HTTPResponse) -> AsyncIterator[bytes]:
        # `readline` takes the end of the connection for the end of the last chunk.
        read = response.read1 if response.chunked else response.readline
        splitter = http1.LineSplitter(LINE_BYTES)
        while piece := await self._in_thread(connection, lambda: read(LINE_BYTES)):
            for line in splitter.split(piece):
                yield line
        if last := splitter.last():
            yield last

    async def _in_thread(self, connection: _Connection, work: Callable[[], T]) -> T:
        """Run `work` in a thread; a cancellation breaks the connection, so that the thread ends."""
        self._in_use.add(connection)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, connection.run, work)
        except asyncio.CancelledError:
            connection.abort()
            raise
        finally:
            self._in_use.discard(connection)

    def _new(self) -> _Connection:
        return _Connection(self._address, self._tls, self._options.server_hostname)

    def _unreachable(self, error: _NotConnected) -> Unanswered:
        cause = error.__cause__
        why = reason_of(cause) if isinstance(cause, Exception) else "unknown"
        return Unanswered(f"{self._server} cannot be reached: {why}", applied=False)

    async def close(self) -> None:
        for connection in self._in_use:
            connection.abort()
        for connection in self._idle:
            connection.http.close()
        self._idle.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
