"""One connection of the HTTP server: its requests, one after the other, and their responses.

A request is given to the handler as soon as its head has arrived. Its body is read from the socket only as fast as the
handler takes it, and so are requests that are sent ahead of a response.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl

from kubemachinery import http1
from kubemachinery.http_messages import (
    BodyTooLarge,
    BodyTooSlow,
    Handler,
    Request,
    Response,
    SharedChunk,
    Stream,
    StreamDropped,
    Write,
)

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 30.0
# Longer bodies are sent in pieces: encrypting many megabytes at once would delay all other requests.
PIECE_BYTES: Final = 256 * 1024
# Of a body, or of further requests, that have arrived and were not asked for yet.
_HELD_BYTES: Final = 64 * 1024
# Of the buffer that a connection is read into.
_READ_BYTES: Final = 64 * 1024
# For so long the rest of a body is read and dropped after the response: a client that still sends would see a broken
# connection instead of the response.
_DROPPING_SECONDS: Final = 1.0
_QUERY_MAX: Final = 1000
# Browsers must not guess the content type; the name of the server is not sent.
_FIXED_HEADERS: Final = (("X-Content-Type-Options", "nosniff"),)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class SeldomLog:
    """Log lines that clients can cause: each kind at most once in `seconds`, with the number of those suppressed."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, sort: str, text: str, *arguments: object) -> None:
        now = time.monotonic()
        if now - self._since.get(sort, -self._seconds) < self._seconds:
            self._left_out[sort] = self._left_out.get(sort, 0) + 1
            return
        self._since[sort] = now
        left_out = self._left_out.pop(sort, 0)
        log.warning(text + (f" ({left_out} more were not logged)" if left_out else ""), *arguments)


class ServedHandler:
    """A handler, and the connections on which it is served."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.seldom = SeldomLog()
        self.is_stopping = False
        self.connections: dict[HttpConnection, None] = {}
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self._date = (0, "")

    def date(self) -> str:
        """The value of the Date header, made once in a second."""
        now = int(time.time())
        if now != self._date[0]:
            at = time.gmtime(now)
            day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year}"
            self._date = (now, f"{day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT")
        return self._date[1]

    async def stop(self, seconds: float) -> None:
        """Close connections without a request, give responses so long to end, and close the rest."""
        self.is_stopping = True
        for connection in tuple(self.connections):
            if connection.serving is None:
                connection.close()
        serving = [each.serving for each in self.connections if each.serving is not None]
        if serving:
            await asyncio.wait(serving, timeout=seconds)
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
        for connection in tuple(self.connections):
            connection.close()


class ConnectionOwner(Protocol):
    """Who accepted a connection."""

    def made(self, connection: HttpConnection) -> None:
        """Its handshake has ended."""

    def lost(self) -> None:
        """It is over."""


class _MalformedBody(ConnectionError):
    """The rest of a request is not HTTP/1.1."""


class HttpConnection(asyncio.BufferedProtocol):
    """One connection. `since` is when it entered its state: idle, or serving a request.

    The event loop reads into a buffer that all connections share, as those of `client.http_connections` do.
    """

    __slots__ = (
        "_certificate",
        "_error",
        "_has_answered",
        "_is_paused",
        "_is_reading_paused",
        "_loop",
        "_losing",
        "_owner",
        "_parser",
        "_remote",
        "_resumed",
        "_served",
        "_waiter",
        "begun",
        "is_known",
        "is_secure",
        "requests",
        "serving",
        "since",
        "transport",
    )

    def __init__(self, served: ServedHandler, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._served = served
        self._owner = owner
        self._loop = loop
        self._parser = http1.RequestParser()
        self._error: ConnectionError | None = None  # why no more of the request arrives
        self._waiter: asyncio.Future[None] | None = None  # for more of it
        self._resumed: asyncio.Future[None] | None = None  # for more to be written
        self._losing: asyncio.Future[None] | None = None  # the stream that ends with the connection
        self._is_paused = self._is_reading_paused = self._has_answered = False
        self._remote = ""
        self._certificate: Mapping[str, list[str]] | None = None
        self.serving: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.is_secure = self.is_known = False
        self.requests = 0
        self.since = 0.0
        self.begun: float | None = None  # when the first byte of a request arrived whose head has not ended

    # --- Called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.since = self._loop.time()
        peer = transport.get_extra_info("peername")
        self._remote = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.is_secure = transport.get_extra_info("sslcontext") is not None
        if certificate := transport.get_extra_info("peercert"):
            self._certificate, self.is_known = _subject(certificate), True
        self._served.connections[self] = None
        self._owner.made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._served.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.transport is None or self._error is not None:
            return
        data, parser = bytes(self._served.buffer[:nbytes]), self._parser
        if self.serving is None and self.begun is None:
            self.begun = self._loop.time()
        try:
            parser.feed(data)
        except http1.Malformed as error:
            self._error = _MalformedBody("the rest of the request is malformed")
            if self.serving is None:
                self._refuse(error)
            self._wake()
            return
        if self.serving is None:
            if parser.method:
                self.serving = self._loop.create_task(self._serve())
        else:
            self._wake()
        if parser.held_bytes + len(parser.more) > _HELD_BYTES and not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        if self._losing is not None and self.transport is not None:
            # The reader of a stream closed the connection: unsent data must not keep it open.
            self.transport.abort()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._end_waiting()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._served.connections.pop(self, None)
        # Without the reference of its owner: a cycle would keep the buffers of TLS, some 300 KiB for each connection,
        # until the garbage collector runs, which is rarely in a process that serves.
        self.transport = None
        self._owner.lost()
        self._error = self._error or ConnectionResetError("the client closed the connection")
        self._end_waiting()
        self._wake()
        if self._losing is not None:
            self._losing.cancel()

    # --- State --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        # After a second `close`, `abort` would do nothing on a TLS connection of asyncio.
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    @property
    def is_paused(self) -> bool:
        """Whether the client does not take more at present."""
        return self._is_paused

    def identify(self) -> None:
        """Mark the client of this connection as authenticated."""
        self.is_known = True

    async def drained(self) -> None:
        """Wait until the connection takes more, or is lost."""
        while self.transport is not None and self._is_paused:
            if self._resumed is None:
                self._resumed = self._loop.create_future()
            await asyncio.shield(self._resumed)

    def _end_waiting(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _arrived(self) -> None:
        """Wait until more of the request has arrived."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    # --- Requests -----------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Serve the requests that have arrived."""
        try:
            while await self._exchange():
                pass
        finally:
            self.serving = None

    async def _exchange(self) -> bool:
        """Serve one request; return whether another has arrived."""
        parser = self._parser
        self.begun, self._has_answered = None, False
        self.requests += 1
        try:
            is_kept = await self._answer(parser)
        except ConnectionError:
            is_kept = False
        except Exception:
            log.exception("%s %s: the handler failed", parser.method, parser.target.partition("?")[0])
            is_kept = False
            if self._has_answered:
                self.abort()
            else:
                self._send_text(parser, 500, "internal error\n")
        self.since = self._loop.time()
        if not parser.is_complete and not await self._drop_body(parser):
            is_kept = False
        if not is_kept or not self.is_open:
            self.close()
            return False
        return self._begin_next(parser.more)

    def _begin_next(self, data: bytes) -> bool:
        """Read what was sent ahead; return whether it has the head of a request."""
        self._parser = parser = http1.RequestParser()
        self._resume_reading()
        self.since = self._loop.time()
        if not data:
            return False
        self.begun = self.since
        try:
            parser.feed(data)
        except http1.Malformed as error:
            self._refuse(error)
            return False
        return bool(parser.method)

    async def _drop_body(self, parser: http1.RequestParser) -> bool:
        """Read and drop the rest of a body; return whether it has ended."""
        if parser.expects_continue:
            return False  # it may never be sent
        parser.drop_body()
        self._resume_reading()
        try:
            async with asyncio.timeout(_DROPPING_SECONDS):
                while not parser.is_complete:
                    await self._arrived()
        except (TimeoutError, ConnectionError):
            return False
        return True

    def _refuse(self, error: http1.Malformed) -> None:
        """Answer what is not a request. It is neither logged nor returned: it may contain a token."""
        self._served.seldom.warn(
            "malformed", "refused a malformed request from %s: %s", self._remote, type(error).__name__
        )
        self._send_text(self._parser, 400, "malformed request\n")
        self.close()

    def _request(self, parser: http1.RequestParser) -> Request:
        path, _, query = parser.target.partition("?")
        return Request(
            method=parser.method,
            path=path,
            query=parse_qsl(query, keep_blank_values=True, max_num_fields=_QUERY_MAX) if query else [],
            headers={name.lower(): value for name, value in parser.lines},
            read=lambda limit: self._read(parser, limit),
            certificate=self._certificate,
            remote=self._remote,
            secure=self.is_secure,
            lines=parser.lines,
            identified=self.identify,
        )

    async def _read(self, parser: http1.RequestParser, limit: int) -> bytes:
        if parser.length > limit:
            raise BodyTooLarge
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(None if parser.is_complete else BODY_SECONDS):
                while True:
                    pieces = parser.take_body()
                    size += sum(map(len, pieces))
                    if size > limit:
                        raise BodyTooLarge
                    chunks += pieces
                    if parser.is_complete:
                        return b"".join(chunks)
                    if parser.expects_continue and not size and self.transport is not None:
                        parser.expects_continue = False
                        self.transport.write(_CONTINUE)
                    self._resume_reading()
                    await self._arrived()
        except TimeoutError:
            raise BodyTooSlow from None

    # --- Responses ----------------------------------------------------------------------------------------------------

    async def _answer(self, parser: http1.RequestParser) -> bool:
        """Answer one request; return whether the connection may be used for another."""
        if sum(name.lower() == "authorization" for name, _ in parser.lines) > 1:
            # Refuse rather than choose one: a proxy in between may have used the other.
            return self._send_text(parser, 400, "more than one Authorization header")
        try:
            request = self._request(parser)
        except ValueError:
            return self._send_text(parser, 400, "the query has too many parameters")
        try:
            response = await self._served.handler(request)
        except _MalformedBody:
            return self._send_text(parser, 400, "malformed request\n")
        except ConnectionError:
            if self.is_open:
                raise
            log.debug(
                "%s %s: the client closed the connection before the whole request had arrived",
                request.method,
                request.path,
            )
            return False
        if response.stream is not None:
            return await self._stream(parser, response, response.stream)
        if len(response.body) > PIECE_BYTES and request.method != "HEAD":
            return await self._stream(parser, response, _in_pieces(response.body), size=len(response.body))
        is_kept = self._send(parser, response)
        if self._is_paused:
            await self.drained()
        return is_kept

    def _send_text(self, parser: http1.RequestParser, status: int, text: str) -> bool:
        return self._send(parser, Response(status, text.encode(), "text/plain; charset=utf-8"))

    def _send(self, parser: http1.RequestParser, response: Response) -> bool:
        is_kept = self._may_keep(parser)
        has_body = response.status >= 200 and response.status not in (204, 304)
        framing = (("Content-Length", str(len(response.body))),) if has_body else ()
        head = self._head(parser, response, framing, is_kept=is_kept)
        self._has_answered = True
        if self.transport is not None:
            self.transport.write(head + response.body if has_body and parser.method != "HEAD" else head)
        return is_kept

    async def _stream(
        self, parser: http1.RequestParser, response: Response, stream: Stream, *, size: int | None = None
    ) -> bool:
        is_chunked = size is None and parser.is_1_1
        is_kept = self._may_keep(parser) and (is_chunked or size is not None)
        framing = ("Content-Length", str(size)) if size is not None else ("Transfer-Encoding", "chunked")
        head = self._head(parser, response, (framing,) if is_chunked or size is not None else (), is_kept=is_kept)
        self._has_answered = True
        if self.transport is None:
            return False
        self.transport.write(head)
        if parser.method == "HEAD":
            return is_kept
        write: Write = _ChunkWriter(self) if is_chunked else self._write
        try:
            if await self._run_stream(stream(write)):
                if is_chunked and self.transport is not None:
                    self.transport.write(b"0\r\n\r\n")
                return is_kept
        except StreamDropped:
            self.abort()
        except (ConnectionError, asyncio.CancelledError):
            # The client or this server closes the connection. There is no reader for a response.
            self.abort()
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
        return False

    async def _run_stream(self, stream: Awaitable[None]) -> bool:
        """Run a stream until it or the connection ends; return whether the stream ended by itself."""
        running = self._losing = asyncio.ensure_future(stream)
        if self.transport is None:
            running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.transport is not None or (task is not None and task.cancelling()):
                raise
            return False
        finally:
            self._losing = None
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
        return True

    async def _write(self, data: bytes) -> None:
        self.write_now(data)
        if self._is_paused:
            await self.drained()

    def write_now(self, data: bytes) -> None:
        """Write without waiting; raises ConnectionResetError after the end of the connection."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        self.transport.write(data)

    def _may_keep(self, parser: http1.RequestParser) -> bool:
        return parser.is_reusable and self._error is None and not self._served.is_stopping

    def _head(
        self, parser: http1.RequestParser, response: Response, framing: tuple[tuple[str, str], ...], *, is_kept: bool
    ) -> bytes:
        connection: tuple[tuple[str, str], ...] = ()
        if not is_kept:
            connection = (("Connection", "close"),)
        elif not parser.is_1_1:
            connection = (("Connection", "keep-alive"),)
        return http1.response_head(
            response.status,
            (
                ("Date", self._served.date()),
                *_FIXED_HEADERS,
                *response.headers.items(),
                ("Content-Type", response.content_type),
                *framing,
                *connection,
            ),
        )


def _in_pieces(body: bytes) -> Stream:
    async def send(write: Write) -> None:
        for start in range(0, len(body), PIECE_BYTES):
            await write(body[start : start + PIECE_BYTES])
            await asyncio.sleep(0)

    return send


class _ChunkWriter:
    """Writes the chunks of a streamed response: a `PromptWrite`."""

    __slots__ = ("_connection",)

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    async def __call__(self, data: bytes, /) -> None:
        if data:  # an empty chunk would end the response
            self._connection.write_now(_framed(data))
            await self._connection.drained()

    def prompt(self, chunk: SharedChunk) -> bool:
        if not self._connection.is_open or self._connection.is_paused:
            return False
        if chunk.framed is None:
            chunk.framed = _framed(chunk.data)
        self._connection.write_now(chunk.framed)
        return True

    async def drained(self) -> None:
        await self._connection.drained()
        if not self._connection.is_open:
            raise ConnectionResetError("the client closed the connection")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _subject(certificate: Mapping[str, Any]) -> dict[str, list[str]]:
    short = {"commonName": "CN", "organizationName": "O"}
    subject: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            subject.setdefault(short.get(name, name), []).append(value)
    return subject
