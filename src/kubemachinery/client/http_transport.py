"""Requests over HTTP with connections that are kept; with `http_server`, the only importer of the HTTP library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from kubemachinery.client import errors
from kubemachinery.client.errors import Fenced, Unanswered
from kubemachinery.client.transport import (
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
)

_NEVER_CONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class HttpTransport:
    """Requests over HTTP with connections that are kept."""

    def __init__(self, server: str, options: ConnectionOptions = DEFAULT_CONNECTION, *, connections: int = 128) -> None:
        self._server = server.rstrip("/")
        self._options = options
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=options.tls if options.tls is not None else True),
            skip_auto_headers=() if options.compressed else ("Accept-Encoding",),
            read_bufsize=LINE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),  # an API server sets none
        )

    async def send(self, request: ApiRequest) -> ApiResponse:
        timeout = self._options.timeout_of(request)
        try:
            async with asyncio.timeout(timeout):
                async with self._request(request, await self._options.headers_of(request)) as response:
                    return ApiResponse(response.status, await response.read(), response.headers)
        except _NEVER_CONNECTED as error:
            raise Unanswered(f"{self._server} cannot be reached: {reason_of(error)}", applied=False) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            if isinstance(error.__cause__, Fenced):  # raised by `_FencedBody`, whose bytes were not sent
                raise error.__cause__ from None
            is_late = isinstance(error, TimeoutError) and timeout
            why = f"not within {timeout:g} s" if is_late else str(error) or repr(error)
            raise Unanswered(f"{self._server} does not answer {request.method} {request.path}: {why}") from None

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        try:
            async with self._request(request, await self._options.headers_of(request)) as response:
                if response.status >= 300:
                    raise errors.from_response(
                        response.status, await response.read(), response.headers.get("Retry-After", "")
                    )
                try:
                    yield _lines(response.content)
                finally:
                    _abort(response)
        except _NEVER_CONNECTED as error:
            raise Unanswered(f"{self._server} cannot be reached: {reason_of(error)}", applied=False) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
            why = "the server closed the connection" if isinstance(error, aiohttp.ClientPayloadError) else error
            raise Unanswered(f"{request.path}: the stream broke: {why}", applied=False) from None

    def _request(self, request: ApiRequest, headers: Headers) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(
            request.method,
            self._server + request.path,
            params=request.query,
            data=_FencedBody(request) if request.fence is not None else request.body or None,
            headers=headers,
            server_hostname=self._options.server_hostname,
        )

    async def close(self) -> None:
        await self._session.close()


class _FencedBody(aiohttp.BytesPayload):
    """A body that checks the fence when it is written. Without the body the server discards the headers.

    aiohttp writes the body in a task of its own, as the last step of a request: many requests can be waiting for that
    step when a process is stopped.
    """

    def __init__(self, request: ApiRequest) -> None:
        super().__init__(request.body)
        self._api_request = request

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        check_fence(self._api_request)
        await super().write_with_length(writer, content_length)


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a stream that was not read to its end.

    Closing it by the TLS protocol would wait for the server, and can take longer than the event loop runs.
    """
    if (connection := response.connection) is not None and connection.transport is not None:
        connection.transport.abort()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    while line := await content.readline():
        yield line
