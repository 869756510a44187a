"""The HTTP server: accepts connections on a port, within limits, and has a handler serve their requests.

Requests and responses are the values of `http_messages`; `http_connection` reads and writes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import msgspec

from kubemachinery.http_connection import HttpConnection, ServedHandler
from kubemachinery.http_messages import Handler

log = logging.getLogger(__name__)


class HttpServer:
    """A handler that is being served. `port` is the actual one when 0 was requested."""

    def __init__(
        self,
        served: ServedHandler,
        connections: _Connections,
        listening: socket.socket,
        host: str,
        shutdown_seconds: float,
    ) -> None:
        self._served = served
        self._connections = connections
        self._shutdown_seconds = shutdown_seconds
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
        await self._served.stop(self._shutdown_seconds if shutdown_seconds is None else shutdown_seconds)
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
    served = ServedHandler(handler)
    listening = _listen(host, port)
    connections = _Connections(served, listening, tls, limits or ConnectionLimits())
    connections.start()
    return HttpServer(served, connections, listening, host, shutdown_seconds)


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
    """One accepted connection, from `accept` to its end: a `ConnectionOwner`."""

    __slots__ = ("_arrived", "_on_lost", "connecting", "connection", "socket")

    def __init__(self, accepted: socket.socket, now: float, on_lost: Callable[[_Accepted], None]) -> None:
        self.socket = accepted
        self.connecting: asyncio.Task[None] | None = None
        self.connection: HttpConnection | None = None  # after the handshake
        self._arrived = now
        self._on_lost = on_lost

    def made(self, connection: HttpConnection) -> None:
        self.connection = connection

    def lost(self) -> None:
        self.connection = None
        self._on_lost(self)

    @property
    def since(self) -> float:
        return self._arrived if self.connection is None else self.connection.since

    @property
    def stage(self) -> _Stage:
        connection = self.connection
        if connection is None:
            return _Stage.UNKNOWN_IDLE
        is_busy = connection.serving is not None
        if connection.is_known:
            return _Stage.KNOWN_BUSY if is_busy else _Stage.KNOWN_IDLE
        return _Stage.UNKNOWN_BUSY if is_busy else _Stage.UNKNOWN_IDLE

    def is_late(self, now: float, limits: ConnectionLimits) -> bool:
        """Whether the client exceeded the time limit of its state. The handshake has a timer of its own."""
        connection = self.connection
        if connection is None or connection.serving is not None:
            return False
        if connection.begun is not None:
            return now - connection.begun > limits.header_seconds
        return now - connection.since > (limits.idle_seconds if connection.requests else limits.silent_seconds)

    def drop(self) -> None:
        """Close it at once; data that is not sent yet is discarded."""
        if self.connection is not None:
            self.connection.abort()
        elif self.connecting is not None:
            self.connecting.cancel()


class _Connections:
    """Accepts connections, counts them, and closes those of lowest priority when there are too many.

    Accepting is done here and not by `loop.create_server`, which neither counts connections in their handshake nor
    stops accepting before the process is out of file descriptors.
    """

    def __init__(
        self, served: ServedHandler, listening: socket.socket, tls: ssl.SSLContext | None, limits: ConnectionLimits
    ) -> None:
        self._served = served
        self._listening = listening
        self._tls = tls
        self._limits = limits
        self._max = connections_possible(limits.connections_max)
        self._seldom = served.seldom
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
        for accepted in [one for one in self.open if one.connection is None]:
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
        accepted = _Accepted(incoming, now, self._lost)
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
            lambda: HttpConnection(self._served, accepted, loop),
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
            if began := sum(one.connection is not None and one.connection.begun is not None for one in late):
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
