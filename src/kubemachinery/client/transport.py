"""Transports: send a request over HTTP, or to a server in the same process. The request is a value.

Two ways to send: `send` for one response, `stream` for a watch. Both raise `Unanswered` when there is no response, with
`applied` False if the connection was never made: the server cannot have carried the request out. A connection that
broke may have delivered it.

A write may have a fence, which is checked at the moment its bytes are sent. An earlier check could be out of date when
the request is delayed after it (by a rate limit, a full pool, a handshake, a stopped process).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from kubemachinery import http_server
from kubemachinery.client import errors
from kubemachinery.client.errors import Fenced, Unanswered

# A line of a watch contains a whole object, and an object may have 1.5 MiB.
_LINE_BYTES: Final = 4 * 1024 * 1024
_CONNECT_SECONDS: Final = 10.0
_NEVER_CONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


# Returns whether a write may still be sent.
Fence: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to an API server."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""
    accept: str = "application/json"
    timeout_seconds: float = 30.0
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Lines: TypeAlias = AsyncIterator[bytes]
# Names and values; a name may occur more than once.
Headers: TypeAlias = Sequence[tuple[str, str]]
# Returns the authentication headers; called before every request, because a token may be renewed meanwhile.
AuthHeaders: TypeAlias = Callable[[], Awaitable[Headers]]


class Transport(Protocol):
    async def send(self, request: ApiRequest) -> ApiResponse:
        """Return the response; raise `Fenced` when the fence of the request is closed."""
        ...

    def stream(self, request: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        """The lines of a streaming response. A response that is no success raises its `ApiError`."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """Requests over HTTP with connections that are kept."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: AuthHeaders | None = None,
        user_agent: str = "pykueue",
        server_hostname: str | None = None,
        connections: int = 128,
        timeout_seconds: float | None = None,
        compressed: bool = True,
    ) -> None:
        self._server = server.rstrip("/")
        self._timeout_seconds = timeout_seconds  # for every request, in place of its own; 0 is none
        self._credentials = credentials
        self._server_hostname = server_hostname
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=tls if tls is not None else True),
            headers={"User-Agent": user_agent},
            skip_auto_headers=() if compressed else ("Accept-Encoding",),
            read_bufsize=_LINE_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=True,
        )

    async def send(self, request: ApiRequest) -> ApiResponse:
        timeout = request.timeout_seconds if self._timeout_seconds is None else self._timeout_seconds or None
        try:
            async with asyncio.timeout(timeout):
                async with self._request(request, await self._headers(request)) as response:
                    return ApiResponse(response.status, await response.read(), response.headers)
        except _NEVER_CONNECTED as error:
            raise Unanswered(f"{self._server} cannot be reached: {_reason(error)}", applied=False) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            if isinstance(error.__cause__, Fenced):  # raised by `_FencedBody`, whose bytes were not sent
                raise error.__cause__ from None
            is_late = isinstance(error, TimeoutError) and timeout
            why = f"not within {timeout:g} s" if is_late else str(error) or repr(error)
            raise Unanswered(f"{self._server} does not answer {request.method} {request.path}: {why}") from None

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        try:
            async with self._request(request, await self._headers(request)) as response:
                if response.status >= 300:
                    raise errors.from_response(
                        response.status, await response.read(), response.headers.get("Retry-After", "")
                    )
                try:
                    yield _lines(response.content)
                finally:
                    _abort(response)
        except _NEVER_CONNECTED as error:
            raise Unanswered(f"{self._server} cannot be reached: {_reason(error)}", applied=False) from None
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
            server_hostname=self._server_hostname,
        )

    async def _headers(self, request: ApiRequest) -> Headers:
        content = [("Content-Type", request.content_type)] if request.content_type else []
        auth = await self._credentials() if self._credentials is not None else ()
        return [("Accept", request.accept), *content, *auth]

    async def close(self) -> None:
        await self._session.close()


def _reason(error: Exception) -> str:
    """The error text of the operating system, which is shorter than that of the library."""
    match getattr(error, "certificate_error", None) or getattr(error, "os_error", None):
        case ssl.SSLCertVerificationError(verify_message=message):
            return f"its certificate is not trusted: {message}"
        case ssl.SSLError(reason=str(reason)):
            return f"TLS: {reason}"
        case OSError(errno=int(code)) if code in errno.errorcode:
            return os.strerror(code)
        case socket.gaierror(strerror=str(text)):
            return text
        case _:
            return str(error)


class _FencedBody(aiohttp.BytesPayload):
    """A body that checks the fence when it is written. Without the body the server discards the headers.

    aiohttp writes the body in a task of its own, as the last step of a request: many requests can be waiting for that
    step when a process is stopped.
    """

    def __init__(self, request: ApiRequest) -> None:
        super().__init__(request.body)
        self._api_request = request

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        _check_fence(self._api_request)
        await super().write_with_length(writer, content_length)


def _check_fence(request: ApiRequest) -> None:
    if request.fence is not None and not request.fence():
        raise Fenced(f"{request.method} {request.path}: not sent, because the lease is no longer held")


def _abort(response: aiohttp.ClientResponse) -> None:
    """Close the connection of a stream that was not read to its end.

    Closing it by the TLS protocol would wait for the server, and can take longer than the event loop runs.
    """
    if (connection := response.connection) is not None and connection.transport is not None:
        connection.transport.abort()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    while line := await content.readline():
        yield line


class LocalTransport:
    """Requests to a handler in the same process: no sockets, no copies, no threads."""

    def __init__(self, handler: http_server.Handler, user_agent: str = "pykueue") -> None:
        self._handler = handler
        self._user_agent = user_agent

    async def send(self, request: ApiRequest) -> ApiResponse:
        _check_fence(request)
        response = await self._handler(self._request(request))
        return ApiResponse(response.status, response.body, response.headers)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        response = await self._handler(self._request(request))
        if response.stream is None:
            raise errors.from_response(response.status, response.body, response.headers.get("Retry-After", ""))
        # Unbounded here: the server itself drops a reader that falls too far behind.
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        pump = asyncio.get_running_loop().create_task(_pump(response.stream, arrived))
        try:
            yield _arrivals(arrived)
        finally:
            pump.cancel()
            # Not awaited directly: a cancellation of this task must be raised here, not lost with that of the pump.
            await asyncio.wait({pump})

    def _request(self, request: ApiRequest) -> http_server.Request:
        headers = {"accept": request.accept, "user-agent": self._user_agent}
        if request.content_type:
            headers["content-type"] = request.content_type
        return http_server.Request(
            request.method, request.path, list(request.query), headers, http_server.body_of(request.body)
        )

    async def close(self) -> None:
        """Nothing to close: no connection stays open between requests."""


async def _pump(stream: http_server.Stream, arrived: asyncio.Queue[bytes | None]) -> None:
    try:
        with contextlib.suppress(http_server.StreamDropped):
            await stream(arrived.put)
    finally:
        arrived.put_nowait(None)


async def _arrivals(arrived: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    """Whole lines, however the server splits its chunks."""
    rest = b""
    while (chunk := await arrived.get()) is not None:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
