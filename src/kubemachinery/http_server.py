"""The HTTP server adapter: serves a handler on a port; and a client that posts to callbacks. The only
module that imports the HTTP library.

Requests and responses are the values of `http_messages`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, cast
from urllib.parse import parse_qsl

import aiohttp
import msgspec
from aiohttp import web

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


class HttpServer:
    """A handler that is being served. `port` is the actual one when 0 was requested."""

    def __init__(self, server: _Server, connections: _Connections, listening: socket.socket, host: str) -> None:
        self._server = server
        self._connections = connections
        self.host = host
        self.port: int = listening.getsockname()[1]

    @property
    def open_connections(self) -> int:
        """Accepted connections, those in their TLS handshake included."""
        return len(self._connections.open)

    async def close(self, shutdown_seconds: float | None = None) -> None:
        """Accept no more connections, give responses a moment to finish, then close the rest."""
        self._connections.stop()
        await asyncio.sleep(0)  # requests that arrived before are handled
        self._server.pre_shutdown()
        await self._server.shutdown(self._server.shutdown_seconds if shutdown_seconds is None else shutdown_seconds)
        await self._connections.stopped()


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    shutdown_seconds: float = 2.0,
    limits: ConnectionLimits | None = None,
) -> HttpServer:
    """Serve `handler`; return when connections are accepted."""
    raise_open_files_limit()
    server = _Server(handler, shutdown_seconds)
    listening = _listen(host, port)
    connections = _Connections(server, listening, tls, limits or ConnectionLimits())
    connections.start()
    return HttpServer(server, connections, listening, host)


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.setblocking(False)
        listening.listen(1024)
    except BaseException:
        listening.close()
        raise
    return listening


# --- Connections ------------------------------------------------------------------------------------------------------


class ConnectionLimits(msgspec.Struct, frozen=True):
    """How many connections there may be, and how long each stage of one may take.

    When `connections_max` is reached, a new connection replaces another: the oldest one of an unauthenticated client
    without a request in progress; then the oldest one of an unauthenticated client at all; then the longest idle one of
    an authenticated client. An authenticated client with a request in progress never loses its connection, so clients
    without credentials cannot lock out those with credentials.
    """

    connections_max: int = 2_000
    handshake_seconds: float = 10.0
    # From the end of the handshake to the first byte of a request.
    silent_seconds: float = 30.0
    # From the first byte of a request to the end of its headers.
    header_seconds: float = 10.0
    # Between two requests.
    idle_seconds: float = 75.0
    sweep_seconds: float = 1.0


# File descriptors that connections leave to the rest of the process: databases, logs, pipes, connections to others.
_OTHER_FILES: Final = 128
_OPEN_FILES_WANTED: Final = 65_536
# The kernel closes the connection of a peer that acknowledges nothing, or receives nothing, for so long.
_PEER_GONE_SECONDS: Final = 30
# A server that stops waits for so long until its clients have closed their side of a TLS connection.
_CLOSING_SECONDS: Final = 0.5
# Then other tasks run before more connections are accepted.
_ACCEPTED_AT_ONCE: Final = 100
# Without file descriptors left, accepting would fail again at once.
_ACCEPT_PAUSE_SECONDS: Final = 0.05


# The soft limit that this process was started with: programs that it starts get this one.
inherited_open_files: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files towards the hard one: the default of shells and units is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(_OPEN_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_possible(wanted: int) -> int:
    """`wanted`, or fewer where the limit of open files does not allow so many."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(16, min(wanted, soft - _OTHER_FILES))


class _SeldomLog:
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


class _Stage(IntEnum):
    """The state of a connection, in the order in which connections are closed in favour of new ones.

    A connection in its handshake counts as unauthenticated and idle. Among these the oldest is closed first: the newest
    may be that of a client that is about to send its credentials.
    """

    UNKNOWN_IDLE = 0
    UNKNOWN_BUSY = 1
    KNOWN_IDLE = 2
    KNOWN_BUSY = 3


class _Accepted:
    """One accepted connection, from `accept` to its end."""

    __slots__ = (
        "begun", "connecting", "is_busy", "is_known", "more_came",
        "protocol", "requests", "since", "socket", "transport",
    )  # fmt: skip

    def __init__(self, accepted: socket.socket, now: float) -> None:
        self.socket = accepted
        self.connecting: asyncio.Task[None] | None = None
        self.protocol: _Protocol | None = None
        self.transport: asyncio.Transport | None = None
        # When it entered its current state.
        self.since = now
        # When the first byte of the current request arrived.
        self.begun: float | None = None
        self.more_came = False
        self.is_busy = False
        self.is_known = False
        self.requests = 0

    @property
    def stage(self) -> _Stage:
        if self.is_known:
            return _Stage.KNOWN_BUSY if self.is_busy else _Stage.KNOWN_IDLE
        return _Stage.UNKNOWN_BUSY if self.is_busy else _Stage.UNKNOWN_IDLE

    def is_late(self, now: float, limits: ConnectionLimits) -> bool:
        """Whether the client exceeded the time limit of its state. The handshake has a timer of its own."""
        if self.protocol is None or self.is_busy:
            return False
        if self.begun is not None:
            return now - self.begun > limits.header_seconds
        return now - self.since > (limits.idle_seconds if self.requests else limits.silent_seconds)

    def drop(self) -> None:
        """Close it at once; data that is not sent yet is discarded."""
        if self.transport is not None:
            self.transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()


class _Connections:
    """Accepts connections, counts them, and closes those of lowest priority when there are too many.

    Accepting is done here and not by `loop.create_server`, which neither counts connections in their handshake nor
    stops accepting before the process is out of file descriptors.
    """

    def __init__(
        self, server: _Server, listening: socket.socket, tls: ssl.SSLContext | None, limits: ConnectionLimits
    ) -> None:
        self._server = server
        self._listening = listening
        self._tls = tls
        self._limits = limits
        self._max = connections_possible(limits.connections_max)
        self._seldom = server.seldom
        self._sweeping: asyncio.Task[None] | None = None
        self._paused: asyncio.TimerHandle | None = None
        # In the order of arrival.
        self.open: dict[_Accepted, None] = {}
        self._all_lost = asyncio.Event()

    def start(self) -> None:
        self._sweeping = asyncio.create_task(self._sweep())
        self._listen()

    def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._stop_listening()
        for accepted in [one for one in self.open if one.protocol is None]:
            accepted.drop()

    async def stopped(self) -> None:
        """Wait for connections that are closing, and drop those whose clients do not answer.

        A TLS connection waits for the client's part of the closing. Without the drop it would outlive the event loop,
        and its socket with it.
        """
        if self._sweeping is not None:
            await asyncio.gather(self._sweeping, return_exceptions=True)
        self._listening.close()
        await self._lose_all()
        for accepted in tuple(self.open):
            accepted.drop()
        await self._lose_all()

    async def _lose_all(self) -> None:
        self._all_lost.clear()
        if self.open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_lost.wait(), _CLOSING_SECONDS)

    def _accept_all(self) -> None:
        """Accept the connections that are waiting. A task that accepted could be cancelled before it received the
        socket, which would then not be closed."""
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                incoming, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._seldom.warn(
                    "accept", "cannot accept a connection, %d are open: %s", len(self.open), error.strerror
                )
                self._evict_one()
                self._stop_listening()
                self._paused = loop.call_later(_ACCEPT_PAUSE_SECONDS, self._listen)
                return
            self._take(incoming, loop.time())

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept_all)

    def _stop_listening(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
        asyncio.get_running_loop().remove_reader(self._listening.fileno())

    def _take(self, incoming: socket.socket, now: float) -> None:
        if len(self.open) >= self._max and not self._evict_one():
            self._seldom.warn("full", "%d connections are open, no more are accepted", len(self.open))
            incoming.close()
            return
        accepted = _Accepted(incoming, now)
        self.open[accepted] = None
        accepted.connecting = asyncio.create_task(self._connect(accepted))
        accepted.connecting.add_done_callback(lambda ended: self._connected(accepted, ended))

    def _evict_one(self) -> bool:
        """Close one connection; False when all are busy ones of authenticated clients."""
        # They are in the order of arrival, so this seldom examines more than the first.
        victim = next((one for one in self.open if one.stage is _Stage.UNKNOWN_IDLE), None)
        victim = victim or min(self.open, key=lambda one: (one.stage, one.since), default=None)
        if victim is None or victim.stage is _Stage.KNOWN_BUSY:
            return False
        self._seldom.warn(
            "evicted",
            "%d connections are open: closed one of %s to accept another",
            len(self.open),
            "a client without credentials" if victim.stage < _Stage.KNOWN_IDLE else "an idle client",
        )
        del self.open[victim]
        victim.drop()
        return True

    async def _connect(self, accepted: _Accepted) -> None:
        """Perform the handshake: from an accepted socket to a connection for requests."""
        loop = asyncio.get_running_loop()
        timeout = {"ssl_handshake_timeout": self._limits.handshake_seconds} if self._tls is not None else {}
        _keep_alive(accepted.socket)
        await loop.connect_accepted_socket(
            lambda: self._server.connection(accepted, self._lost),
            accepted.socket,
            ssl=self._tls,
            **timeout,
        )

    def _connected(self, accepted: _Accepted, ended: asyncio.Task[None]) -> None:
        """Close a connection whose handshake failed, or was cancelled, perhaps before it began."""
        accepted.connecting = None
        error = None if ended.cancelled() else ended.exception()
        if error is None and not ended.cancelled():
            return
        accepted.socket.close()
        self._lost(accepted)
        if isinstance(error, OSError | ssl.SSLError | TimeoutError) or error is None:
            # The client closed it, does not use TLS, took too long, or it was closed in favour of another.
            log.debug("connection not established: %s", "cancelled" if error is None else type(error).__name__)
        else:
            log.error("a connection could not be set up", exc_info=error)

    def _lost(self, accepted: _Accepted) -> None:
        self.open.pop(accepted, None)
        if not self.open:
            self._all_lost.set()

    async def _sweep(self) -> None:
        """Close connections whose clients take too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.sweep_seconds)
            now = loop.time()
            late = [one for one in self.open if one.is_late(now, self._limits)]
            if began := sum(one.begun is not None for one in late):
                self._seldom.warn("headers", "%d connections closed: no complete request in time", began)
            for one in late:
                one.drop()


def _keep_alive(accepted: socket.socket) -> None:
    """Let the kernel detect a peer that is gone or receives nothing."""
    accepted.setblocking(False)
    for option, seconds in (("TCP_KEEPIDLE", _PEER_GONE_SECONDS), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if (number := getattr(socket, option, None)) is not None:
            accepted.setsockopt(socket.IPPROTO_TCP, number, seconds)
    if (number := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        accepted.setsockopt(socket.IPPROTO_TCP, number, _PEER_GONE_SECONDS * 1000)


class _Server(web.Server):
    """Creates the protocol of each connection, and passes its requests to the handler."""

    def __init__(self, handler: Handler, shutdown_seconds: float) -> None:
        super().__init__(self._answer)
        self._handler = handler
        self.shutdown_seconds = shutdown_seconds
        self.seldom = _SeldomLog()

    def connection(self, accepted: _Accepted, lost: Callable[[_Accepted], None]) -> _Protocol:
        return _Protocol(self, accepted, lost, asyncio.get_running_loop())

    async def _answer(self, incoming: web.BaseRequest) -> web.StreamResponse:
        protocol: Any = incoming.protocol
        with protocol.answering():
            return await _answer(self._handler, incoming, protocol)


class _Protocol(web.RequestHandler):
    """One connection for requests: tracks its state, and is notified when it ends."""

    __slots__ = ("_accepted", "_losing", "_lost", "_resumed", "_server")

    def __init__(
        self, server: _Server, accepted: _Accepted, lost: Callable[[_Accepted], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(server, loop=loop, access_log=None, keepalive_timeout=75.0, lingering_time=1.0)  # type: ignore[arg-type]
        self._server = server
        self._accepted = accepted
        self._lost = lost
        self._losing: asyncio.Task[Any] | None = None
        self._resumed: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._accepted.protocol, self._accepted.transport = self, cast(asyncio.Transport, transport)
        self._accepted.since = self._loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        accepted = self._accepted
        if accepted.is_busy:
            request = self._current_request
            accepted.more_came |= request is None or request.content.is_eof()
        elif accepted.begun is None and data:
            accepted.begun = self._loop.time()
        super().data_received(data)

    def eof_received(self) -> None:
        if self._losing is not None and self.transport is not None:
            # The reader of a stream closed the connection: unsent data must not keep it open.
            self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_waiting()

    def _end_waiting(self) -> None:
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        self._resumed = None

    async def drained(self) -> None:
        """Wait until the connection takes more, or is lost."""
        while self.connected and self.writing_paused:
            if self._resumed is None:
                self._resumed = self._loop.create_future()
            await asyncio.shield(self._resumed)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost(self._accepted)
        self._end_waiting()
        if self._losing is not None:
            self._losing.cancel()
        super().connection_lost(exc)
        # These two refer back to it. A cycle would keep the buffers of TLS, some 300 KiB for each connection, until the
        # garbage collector runs, which is rarely in a process that serves.
        self._accepted.protocol = self._accepted.transport = None

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        accepted = self._accepted
        accepted.is_busy, accepted.begun, accepted.more_came = True, None, False
        accepted.requests += 1
        try:
            yield
        finally:
            accepted.is_busy = False
            accepted.since = self._loop.time()
            # Part of the next request may have arrived already; aiohttp does not expose how much.
            accepted.begun = accepted.since if accepted.more_came and not self._messages else None

    def identified(self) -> None:
        """Mark the client of this connection as authenticated."""
        self._accepted.is_known = True

    async def streaming(self, stream: Awaitable[None]) -> bool:
        """Run a stream until it or the connection ends; return whether the stream ended by itself."""
        running = self._losing = asyncio.ensure_future(stream)
        if not self.connected:
            running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.connected or (task is not None and task.cancelling()):
                raise
            return False
        finally:
            self._losing = None
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
        return True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to a request that cannot be parsed, or to an unexpected error.

        Unparsable input is neither logged nor returned: it may contain a token.
        """
        if status != 500:
            name = type(exc).__name__
            self._server.seldom.warn("malformed", "refused a malformed request from %s: %s", request.remote, name)
            refusal = _Whole(status=status, text="malformed request\n", headers=_FIXED_HEADERS)
            refusal.force_close()
            return refusal
        return super().handle_error(request, status, exc, message)


# Browsers must not guess the content type; the name of the server is not sent.
_FIXED_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}


class _Whole(web.Response):
    """A response without the name and the version of the server."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)


class _Streamed(web.StreamResponse):
    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)


async def _answer(handler: Handler, incoming: web.BaseRequest, protocol: _Protocol) -> web.StreamResponse:
    if len(incoming.headers.getall("Authorization", ())) > 1:
        # Refuse rather than choose one: a proxy in between may have used the other.
        return _Whole(status=400, text="more than one Authorization header", headers=_FIXED_HEADERS)
    try:
        request = _request(incoming, protocol)
    except ValueError:
        return _Whole(status=400, text="the query has too many parameters", headers=_FIXED_HEADERS)
    try:
        response = await handler(request)
    except ConnectionError:
        if incoming.transport is not None:
            raise
        log.debug(
            "%s %s: the client closed the connection before the whole request had arrived", request.method, request.path
        )
        return _Whole(status=400, headers=_FIXED_HEADERS)
    if response.stream is not None:
        return await _stream(incoming, protocol, response, response.stream)
    if len(response.body) > PIECE_BYTES and request.method != "HEAD":
        return await _stream(incoming, protocol, response, _in_pieces(response.body), size=len(response.body))
    return _Whole(
        status=response.status,
        body=response.body,
        headers={**_FIXED_HEADERS, **response.headers, "Content-Type": response.content_type},
    )


def _in_pieces(body: bytes) -> Stream:
    async def send(write: Write) -> None:
        for start in range(0, len(body), PIECE_BYTES):
            await write(body[start : start + PIECE_BYTES])
            await asyncio.sleep(0)

    return send


async def _stream(
    incoming: web.BaseRequest, protocol: _Protocol, response: Response, stream: Stream, *, size: int | None = None
) -> web.StreamResponse:
    outgoing = _Streamed(
        status=response.status,
        headers={**_FIXED_HEADERS, **response.headers, "Content-Type": response.content_type},
    )
    if size is None:
        outgoing.enable_chunked_encoding()
    else:
        outgoing.content_length = size
    await outgoing.prepare(incoming)
    write = outgoing.write if size is not None else _StreamWriter(outgoing, protocol)
    try:
        if await protocol.streaming(stream(write)):
            await outgoing.write_eof()
    except StreamDropped:
        _abort(incoming)
    except (ConnectionError, asyncio.CancelledError):
        # The client or this server closes the connection. There is no reader for a response.
        _abort(incoming)
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
    return outgoing


class _StreamWriter:
    """Writes the chunks of a streamed response: a `PromptWrite`."""

    __slots__ = ("_outgoing", "_protocol")

    def __init__(self, outgoing: web.StreamResponse, protocol: _Protocol) -> None:
        self._outgoing = outgoing
        self._protocol = protocol

    def __call__(self, data: bytes, /) -> Awaitable[None]:
        return self._outgoing.write(data)

    def prompt(self, chunk: SharedChunk) -> bool:
        transport = self._protocol.transport
        if transport is None or transport.is_closing() or self._protocol.writing_paused:
            return False
        if chunk.framed is None:
            chunk.framed = b"%x\r\n%b\r\n" % (len(chunk.data), chunk.data)
        # To the transport, which has sent the headers: the library would copy and frame the chunk for each stream.
        transport.write(chunk.framed)
        return True

    async def drained(self) -> None:
        await self._protocol.drained()
        if (transport := self._protocol.transport) is None or transport.is_closing():
            raise ConnectionResetError("the client closed the connection")


def _abort(incoming: web.BaseRequest) -> None:
    transport = incoming.transport
    if transport is not None:
        transport.abort()


def _request(incoming: web.BaseRequest, protocol: _Protocol) -> Request:
    path, _, query = incoming.raw_path.partition("?")
    transport = incoming.transport
    peer: Any = transport.get_extra_info("peercert") if transport is not None else None
    if peer:
        protocol.identified()
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
        identified=protocol.identified,
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
        # It arrived with its headers, as most do: nothing to wait for.
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
    """No response, or an unusable one; the message has the reason."""


class Sender:
    """Posts small documents to callbacks that others have registered: no redirects, bounded time and size."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self, url: str, body: bytes, *, tls: ssl.SSLContext, timeout_seconds: float, bytes_max: int
    ) -> tuple[int, bytes]:
        """Return the status and the body of the response. Raises SendError, or TimeoutError after the time limit."""
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
                        raise SendError(f"its response is longer than {bytes_max} bytes")
                return response.status, bytes(answer)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise SendError(str(error) or type(error).__name__) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
