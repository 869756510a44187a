"""Sending a request: over HTTP, or to a server in the same process. The request is a value; sending it is done here.

Two ways to send: `send` for one answer, `stream` for a watch. Both raise `Unanswered` when nothing comes back, and say
whether the server can have carried the request out: a connection that was never made cannot, one that broke may have.

A write may have a fence, which is asked in the same breath in which its bytes go out. Whoever asks earlier may be held
up (by a limit, a full pool, a handshake, a stopped process) until what it was told is old.
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

# A line of a watch holds a whole object, and an object may have 1.5 MiB.
_LINE_BYTES: Final = 4 * 1024 * 1024
_CONNECT_SECONDS: Final = 10.0
_NEVER_CONNECTED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


# Whether a write may still go out.
Fence: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request."""

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
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Lines: TypeAlias = AsyncIterator[bytes]
# Names and values; a name may occur more than once.
Headers: TypeAlias = Sequence[tuple[str, str]]
# The headers that say who calls; asked before every request, because a token may be renewed meanwhile.
Credentials: TypeAlias = Callable[[], Awaitable[Headers]]


class Transport(Protocol):
    async def send(self, call: ApiRequest) -> ApiResponse:
        """The answer to a call; `Fenced` where its fence is closed."""
        ...

    def stream(self, call: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        """The lines of a streaming answer. An answer that is no success raises its `ApiError`."""
        ...

    async def close(self) -> None: ...


class HttpTransport:
    """Requests over HTTP with connections that are kept."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
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

    async def send(self, call: ApiRequest) -> ApiResponse:
        patience = call.timeout_seconds if self._timeout_seconds is None else self._timeout_seconds or None
        try:
            async with asyncio.timeout(patience):
                async with self._request(call, await self._headers(call)) as response:
                    return ApiResponse(response.status, await response.read(), response.headers)
        except _NEVER_CONNECTED as error:
            raise Unanswered(f"{self._server} cannot be reached: {_reason(error)}", applied=False) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            if isinstance(error.__cause__, Fenced):  # raised by `_FencedBody`, whose bytes stayed here
                raise error.__cause__ from None
            is_late = isinstance(error, TimeoutError) and patience
            why = f"not within {patience:g} s" if is_late else str(error) or repr(error)
            raise Unanswered(f"{self._server} does not answer {call.method} {call.path}: {why}") from None

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        try:
            async with self._request(call, await self._headers(call)) as response:
                if response.status >= 300:
                    raise errors.from_answer(
                        response.status, await response.read(), response.headers.get("Retry-After", "")
                    )
                yield _lines(response.content)
        except _NEVER_CONNECTED as error:
            raise Unanswered(f"{self._server} cannot be reached: {_reason(error)}", applied=False) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
            why = "the server hung up" if isinstance(error, aiohttp.ClientPayloadError) else error
            raise Unanswered(f"{call.path}: the stream broke: {why}", applied=False) from None

    def _request(self, call: ApiRequest, headers: Headers) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(
            call.method,
            self._server + call.path,
            params=call.query,
            data=_FencedBody(call) if call.fence is not None else call.body or None,
            headers=headers,
            server_hostname=self._server_hostname,
        )

    async def _headers(self, call: ApiRequest) -> Headers:
        content = [("Content-Type", call.content_type)] if call.content_type else []
        proof = await self._credentials() if self._credentials is not None else ()
        return [("Accept", call.accept), *content, *proof]

    async def close(self) -> None:
        await self._session.close()


def _reason(error: Exception) -> str:
    """What the system has to say, which is shorter than what the library makes of it."""
    match getattr(error, "certificate_error", None) or getattr(error, "os_error", None):
        case ssl.SSLCertVerificationError(verify_message=message):
            return f"its certificate is not to be trusted: {message}"
        case ssl.SSLError(reason=str(reason)):
            return f"TLS: {reason}"
        case OSError(errno=int(code)) if code in errno.errorcode:
            return os.strerror(code)
        case socket.gaierror(strerror=str(words)):
            return words
        case _:
            return str(error)


class _FencedBody(aiohttp.BytesPayload):
    """A body that asks the fence when it is written. The headers go out with it, or are cut off and void without it.

    aiohttp has the body written by a task of its own, after everything else that can be asked about a request: many
    requests can be waiting for that turn when a process is stopped.
    """

    def __init__(self, call: ApiRequest) -> None:
        super().__init__(call.body)
        self._call = call

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        _ask(self._call)
        await super().write_with_length(writer, content_length)


def _ask(call: ApiRequest) -> None:
    if call.fence is not None and not call.fence():
        raise Fenced(f"{call.method} {call.path}: not sent, because the right to write has run out")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    while line := await content.readline():
        yield line


class LocalTransport:
    """Requests to a handler in the same process: no sockets, no copies, no threads."""

    def __init__(self, handler: http_server.Handler, user_agent: str = "pykueue") -> None:
        self._handler = handler
        self._user_agent = user_agent

    async def send(self, call: ApiRequest) -> ApiResponse:
        _ask(call)
        response = await self._handler(self._request(call))
        return ApiResponse(response.status, response.body, response.headers)

    @asynccontextmanager
    async def stream(self, call: ApiRequest) -> AsyncIterator[Lines]:
        response = await self._handler(self._request(call))
        if response.stream is None:
            raise errors.from_answer(response.status, response.body, response.headers.get("Retry-After", ""))
        # A reader that falls this far behind is dropped by the server itself; the bound is the server's, not ours.
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        pump = asyncio.get_running_loop().create_task(_pump(response.stream, arrived))
        try:
            yield _arrivals(arrived)
        finally:
            pump.cancel()
            # Not awaited itself: whoever is cancelled here must hear of it, or he would go on for ever.
            await asyncio.wait({pump})

    def _request(self, call: ApiRequest) -> http_server.Request:
        headers = {"accept": call.accept, "user-agent": self._user_agent}
        if call.content_type:
            headers["content-type"] = call.content_type
        return http_server.Request(call.method, call.path, list(call.query), headers, http_server.body_of(call.body))

    async def close(self) -> None:
        """Nothing is held open between requests."""


async def _pump(stream: http_server.Stream, arrived: asyncio.Queue[bytes | None]) -> None:
    try:
        with contextlib.suppress(http_server.StreamDropped):
            await stream(arrived.put)
    finally:
        arrived.put_nowait(None)


async def _arrivals(arrived: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    """Whole lines, however the server cut them."""
    rest = b""
    while (chunk := await arrived.get()) is not None:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest
