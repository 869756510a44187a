"""Requests over HTTP/1.1 with connections that are kept, on the event loop and with the standard library alone.

A connection carries one request at a time. The bytes of a request are written in one call, in the turn of the event
loop that checks its fence; the response is parsed by `http1` as it arrives. Redirects are not followed: an API server
sends none.

A server may close a kept connection at any time, also while a request is on its way. A read is then repeated on another
connection, if no byte of its response has arrived. A write is not, because it may have been applied; before a write,
the socket is looked at, so that a connection that is closed already is not used for it.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kubemachinery import http1
from kubemachinery.client import errors
from kubemachinery.client.errors import Unanswered
from kubemachinery.client.http_connections import Connection, ConnectionPool, Connector, NotConnected
from kubemachinery.client.transport import (
    BODY_BYTES,
    CONNECT_SECONDS,
    DEFAULT_CONNECTION,
    LINE_BYTES,
    ApiRequest,
    ApiResponse,
    ConnectionOptions,
    Lines,
    reason_of,
    target_of,
)

# What may be unpacked at once while a stream is read; what is not compressed is held back at LINE_BYTES.
_STREAM_BYTES: Final = 4 * LINE_BYTES
# Requests have few combinations of media types, and each has the same headers every time.
_HEADS_MAX: Final = 64


class HttpTransport:
    """Requests over HTTP with connections that are kept."""

    def __init__(self, server: str, options: ConnectionOptions = DEFAULT_CONNECTION, *, connections: int = 128) -> None:
        self._server = server.rstrip("/")
        self._options = options
        address = urllib.parse.urlsplit(self._server)
        self._prefix = address.path
        self._host = host_header(address)
        self._heads: dict[tuple[str, str, bool], str] = {}  # the lines of headers that are no credentials
        self._pool = ConnectionPool(Connector(address, options, CONNECT_SECONDS), connections)

    async def send(self, request: ApiRequest) -> ApiResponse:
        timeout = self._options.timeout_of(request)
        try:
            async with asyncio.timeout(timeout):
                data = await self._bytes_of(request, self._options.compressed)
                connection = await self._exchange(request, data, BODY_BYTES, whole=True)
                response = connection.response
                body = b"".join(response.take_body())
                self._pool.give_back(connection)
                return ApiResponse(response.status, body, response.headers)
        except NotConnected as error:
            raise self._unreachable(error) from None
        except (ConnectionError, TimeoutError, http1.Malformed) as error:
            is_late = isinstance(error, TimeoutError) and timeout
            why = f"not within {timeout:g} s" if is_late else str(error) or repr(error)
            raise Unanswered(f"{self._server} does not answer {request.method} {request.path}: {why}") from None

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        try:
            data = await self._bytes_of(request, False)
            connection = await self._exchange(request, data, _STREAM_BYTES, whole=False)
            try:
                response = connection.response
                if response.status >= 300:
                    body = b"".join([line async for line in connection.lines()])
                    raise errors.from_response(response.status, body, response.headers.get("Retry-After", ""))
                yield connection.lines()
            finally:
                self._pool.give_back(connection)
        except NotConnected as error:
            raise self._unreachable(error) from None
        except (ConnectionError, TimeoutError, http1.Malformed, ValueError) as error:
            raise Unanswered(f"{request.path}: the stream broke: {error}", applied=False) from None

    async def _exchange(self, request: ApiRequest, data: bytes, body_bytes: int, *, whole: bool) -> Connection:
        """The connection on which the response has arrived, all of it or its head."""
        is_read, is_repeated = request.method == "GET", False
        while True:
            connection = await self._pool.take(is_read=is_read, is_repeated=is_repeated)
            was_kept = connection.is_kept
            try:
                connection.write(
                    request, data, http1.ResponseParser(request.method, body_bytes=body_bytes), whole=whole
                )
                await connection.arrived()
            except ConnectionError:
                self._pool.give_back(connection)
                if is_repeated or not is_read or not was_kept or connection.has_answered or self._pool.is_closed:
                    raise
                is_repeated = True
            except BaseException:
                self._pool.give_back(connection)
                raise
            else:
                return connection

    async def _bytes_of(self, request: ApiRequest, compressed: bool) -> bytes:
        lines = self._heads.get((request.accept, request.content_type, compressed))
        if lines is None:
            lines = self._lines_of(request, compressed)
        if self._options.credentials is not None:
            lines += http1.header_lines(await self._options.credentials())
        return http1.request_with_lines(request.method, target_of(self._prefix, request), lines, request.body)

    def _lines_of(self, request: ApiRequest, compressed: bool) -> str:
        encoding = [("Accept-Encoding", "gzip")] if compressed else []
        headers = self._options.headers_of(request.accept, request.content_type)
        lines = http1.header_lines([("Host", self._host), *headers, *encoding])
        if len(self._heads) >= _HEADS_MAX:
            self._heads.clear()
        self._heads[request.accept, request.content_type, compressed] = lines
        return lines

    def _unreachable(self, error: NotConnected) -> Unanswered:
        return Unanswered(f"{self._server} cannot be reached: {reason_of(error.reason)}", applied=False)

    async def close(self) -> None:
        await self._pool.close()


def host_header(address: urllib.parse.SplitResult) -> str:
    """The value of the Host header of requests to this address."""
    host = address.hostname or ""
    host = f"[{host}]" if ":" in host else host if host.isascii() else host.encode("idna").decode()
    is_default = address.port in (None, 443 if address.scheme == "https" else 80)
    return host if is_default else f"{host}:{address.port}"
