"""The one HTTP adapter: a handler and a port; and a letter box for those who are called back. No other module knows
which library speaks HTTP.

A handler takes a `Request` and gives a `Response`, both plain values, so that it also answers requests that never
see a socket: make a `Request` and await the handler. A response either has a body or a `stream`, a coroutine that is
handed a function to write with and runs until the stream ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import aiohttp
from aiohttp import web

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 30.0
# Longer bodies are sent piece by piece: encrypting one of many megabytes at once would be felt by everybody else.
PIECE_BYTES: Final = 256 * 1024
SILENT_SECONDS: Final = 30.0

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Stream: TypeAlias = Callable[[Write], Awaitable[None]]


class BodyTooLarge(Exception):
    """The client sent more than it may."""


class BodyTooSlow(Exception):
    """The client did not send what it announced in time."""


class StreamDropped(Exception):
    """Raised by a stream to break the connection at once, so that the client notices that something is missing."""


async def _no_body(limit: int) -> bytes:
    return b""


def body_of(content: bytes) -> Callable[[int], Awaitable[bytes]]:
    """The reader of a body that is already there."""

    async def read(limit: int) -> bytes:
        if len(content) > limit:
            raise BodyTooLarge
        return content

    return read


@dataclass(slots=True)
class Request:
    """What a client asks. `path` is as it came, percent signs and all; header names are in lower case."""

    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[int], Awaitable[bytes]] = _no_body
    # The subject of the certificate that the client proved to own: {"CN": [...], "O": [...]}.
    certificate: Mapping[str, list[str]] | None = None
    remote: str = ""
    secure: bool = False
    # Every line of the headers as it came, for those that may be there more than once.
    lines: Iterable[tuple[str, str]] = ()

    def first(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        if not self.query:
            return default
        return next((value for key, value in self.query if key == name), default)

    def every(self, header: str) -> list[str]:
        """The values of a header, one for each line that has it."""
        return [value for name, value in self.lines if name.lower() == header.lower()]


@dataclass(slots=True)
class Response:
    """What it is told."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: Stream | None = None


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """A handler that is being served. `port` is the one it got when 0 was asked for."""

    def __init__(self, runner: web.ServerRunner, doorman: asyncio.Task[None], host: str, port: int) -> None:
        self._runner = runner
        self._doorman = doorman
        self.host = host
        self.port = port

    async def close(self) -> None:
        """Take no more connections, let answers finish for a moment, then close what is left."""
        self._doorman.cancel()
        await self._runner.cleanup()


async def serve(
    handler: Handler, host: str, port: int, *, tls: ssl.SSLContext | None = None, shutdown_seconds: float = 2.0
) -> HttpServer:
    """Serve `handler`; returns when connections are taken."""

    spoken: set[Any] = set()

    async def answer(incoming: web.BaseRequest) -> web.StreamResponse:
        spoken.add(incoming.protocol)
        return await _answer(handler, incoming)

    server = web.Server(answer, access_log=None, keepalive_timeout=75.0, lingering_time=1.0)
    runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=shutdown_seconds)
    await runner.setup()
    listening = _listen(host, port)
    try:
        await web.SockSite(runner, listening, ssl_context=tls, backlog=1024).start()
    except BaseException:
        listening.close()
        await runner.cleanup()
        raise
    doorman = asyncio.create_task(_send_away_the_silent(server, spoken))
    return HttpServer(runner, doorman, host, listening.getsockname()[1])


async def _send_away_the_silent(server: web.Server, spoken: set[Any]) -> None:
    """Close connections on which no request ever became complete: opening many of them must not keep others out."""
    loop = asyncio.get_running_loop()
    since: dict[Any, float] = {}
    while True:
        await asyncio.sleep(SILENT_SECONDS / 4)
        here = server.connections
        spoken.intersection_update(here)
        silent = [connection for connection in here if connection not in spoken]
        since = {connection: since.get(connection, loop.time()) for connection in silent}
        for connection, first_seen in since.items():
            if loop.time() - first_seen >= SILENT_SECONDS:
                connection.force_close()


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


async def _answer(handler: Handler, incoming: web.BaseRequest) -> web.StreamResponse:
    try:
        request = _request(incoming)
    except ValueError:
        return web.Response(status=400, text="the query has too many parameters")
    try:
        response = await handler(request)
    except ConnectionError:
        if incoming.transport is not None:
            raise
        log.debug("%s %s: the client hung up before all of it had come", request.method, request.path)
        return web.Response(status=400)
    if response.stream is not None:
        return await _stream(incoming, response, response.stream)
    if len(response.body) > PIECE_BYTES and request.method != "HEAD":
        return await _stream(incoming, response, _in_pieces(response.body), size=len(response.body))
    return web.Response(
        status=response.status,
        body=response.body,
        headers={**response.headers, "Content-Type": response.content_type},
    )


def _in_pieces(body: bytes) -> Stream:
    async def send(write: Write) -> None:
        for start in range(0, len(body), PIECE_BYTES):
            await write(body[start : start + PIECE_BYTES])
            await asyncio.sleep(0)

    return send


async def _stream(
    incoming: web.BaseRequest, response: Response, stream: Stream, *, size: int | None = None
) -> web.StreamResponse:
    outgoing = web.StreamResponse(
        status=response.status, headers={**response.headers, "Content-Type": response.content_type}
    )
    if size is None:
        outgoing.enable_chunked_encoding()
    else:
        outgoing.content_length = size
    await outgoing.prepare(incoming)
    try:
        await stream(outgoing.write)
        await outgoing.write_eof()
    except StreamDropped:
        _abort(incoming)
    except (ConnectionError, asyncio.CancelledError):
        # The client went away, or we do. There is nobody left to tell.
        _abort(incoming)
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
    return outgoing


def _abort(incoming: web.BaseRequest) -> None:
    transport = incoming.transport
    if transport is not None:
        transport.abort()


def _request(incoming: web.BaseRequest) -> Request:
    path, _, query = incoming.raw_path.partition("?")
    transport = incoming.transport
    peer: Any = transport.get_extra_info("peercert") if transport is not None else None
    return Request(
        method=incoming.method,
        path=path,
        query=parse_qsl(query, keep_blank_values=True, max_num_fields=1000) if query else [],
        headers={name.lower(): value for name, value in incoming.headers.items()},
        read=lambda limit: _read(incoming, limit),
        certificate=_subject(peer) if peer else None,
        remote=incoming.remote or "",
        secure=incoming.secure,
        lines=incoming.headers.items(),
    )


def _subject(peer: Mapping[str, Any]) -> dict[str, list[str]]:
    short = {"commonName": "CN", "organizationName": "O"}
    subject: dict[str, list[str]] = {}
    for part in peer.get("subject", ()):
        for name, value in part:
            subject.setdefault(short.get(name, name), []).append(value)
    return subject


async def _read(incoming: web.BaseRequest, limit: int) -> bytes:
    if not incoming.body_exists:
        return b""
    if (incoming.content_length or 0) > limit:
        raise BodyTooLarge
    if incoming.content.is_eof():
        # It came with its headers, as most do: nothing to wait for.
        whole = incoming.content.read_nowait()
        if len(whole) > limit:
            raise BodyTooLarge
        return whole
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while chunk := await incoming.content.readany():
                size += len(chunk)
                if size > limit:
                    raise BodyTooLarge
                chunks.append(chunk)
    except TimeoutError:
        raise BodyTooSlow from None
    return b"".join(chunks)


# --- Calling back -----------------------------------------------------------------------------------------------------


class SendError(Exception):
    """Nobody answered, or not in a way that can be used; the message says why."""


class Sender:
    """Posts small documents to callbacks that others have registered: no redirects, bounded time and size."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self, url: str, body: bytes, *, tls: ssl.SSLContext, timeout_seconds: float, bytes_max: int
    ) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises SendError; TimeoutError where it took too long."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=64), headers={"User-Agent": self._agent}, auto_decompress=False
            )
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                self._session.post(url, data=body, headers=headers, ssl=tls, allow_redirects=False) as response,
            ):
                answer = bytearray()
                while chunk := await response.content.readany():
                    answer += chunk
                    if len(answer) > bytes_max:
                        raise SendError(f"its answer is longer than {bytes_max} bytes")
                return response.status, bytes(answer)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise SendError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
