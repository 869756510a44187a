"""The connections of `http_transport`: making them, reading a response from one, and keeping them between requests."""

from __future__ import annotations

import asyncio
import ipaddress
import select
import socket
import ssl
import urllib.parse
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, cast

from kubemachinery import http1
from kubemachinery.client.transport import LINE_BYTES, ApiRequest, ConnectionOptions, check_fence

# Shorter than the idle time after which servers and proxies close a connection.
IDLE_SECONDS: Final = 15.0
# As much as the TLS protocols of event loops read at once.
_READ_BYTES: Final = 256 * 1024


class NotConnected(Exception):
    """The connection was never made; `reason` is the error of the operating system."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Connector:
    """Makes connections to one server."""

    def __init__(self, address: urllib.parse.SplitResult, options: ConnectionOptions, connect_seconds: float) -> None:
        is_secure = address.scheme == "https"
        self._seconds = connect_seconds
        self._host = address.hostname or ""
        self._port = address.port or (443 if is_secure else 80)
        self._tls = (options.tls or ssl.create_default_context()) if is_secure else None
        self._server_hostname = (options.server_hostname or self._host) if is_secure else None
        self._buffer = memoryview(bytearray(_READ_BYTES))

    async def connect(self) -> Connection:
        """Try each address of the server; raise `NotConnected` with the last error."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        reason: Exception = TimeoutError(f"not connected within {self._seconds:g} s")
        hosts: list[str] = []
        try:
            async with asyncio.timeout_at(until):
                hosts = await self._addresses(loop)
        except (OSError, UnicodeError) as error:
            reason = error if str(error) else reason
        for number, host in enumerate(hosts):
            # An address that does not answer leaves time for those after it.
            share = (until - loop.time()) / (len(hosts) - number)
            try:
                async with asyncio.timeout(share):
                    _, connection = await loop.create_connection(
                        lambda: Connection(loop, self._buffer),
                        host,
                        self._port,
                        ssl=self._tls,
                        server_hostname=self._server_hostname,
                    )
                    return connection
            except OSError as error:
                reason = error if str(error) else reason
        raise NotConnected(reason)

    async def _addresses(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        try:
            return [str(ipaddress.ip_address(self._host))]
        except ValueError:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Connection(asyncio.BufferedProtocol):
    """One connection, used by one request at a time: `write`, then `arrived`, then `response` or `lines`.

    The event loop reads into `buffer` and calls `buffer_updated` at once, so that all connections of a loop may have
    the same buffer. Without one, the TLS protocol allocates 256 KiB for each read, and the C library takes them from
    the kernel and returns them each time.
    """

    __slots__ = (
        "_buffer",
        "_error",
        "_is_paused",
        "_is_whole",
        "_loop",
        "_poll",
        "_response",
        "_transport",
        "_waiter",
        "closed",
        "has_answered",
        "idle_since",
        "is_kept",
    )

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self._loop = loop
        self._buffer = buffer
        self._poll = select.poll()
        self._response: http1.ResponseParser | None = None  # of the request in progress
        self._error: Exception | None = None  # why the connection is over
        self._waiter: asyncio.Future[None] | None = None
        self._is_whole = self._is_paused = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self.has_answered = False  # whether a byte of the response has arrived
        self.is_kept = False  # whether it was used by an earlier request
        self.idle_since = 0.0

    @property
    def response(self) -> http1.ResponseParser:
        assert self._response is not None
        return self._response

    def write(self, request: ApiRequest, data: bytes, response: http1.ResponseParser, *, whole: bool) -> None:
        """Send a request. Its fence is checked here, because nothing can happen between the check and the write."""
        check_fence(request)
        self._transport.write(data)
        self._response, self._is_whole, self.has_answered = response, whole, False

    async def arrived(self) -> None:
        """Wait for the response, all of it or its head. Cancelled or not, the caller gives the connection back."""
        response, is_whole = self.response, self._is_whole
        while not (response.is_complete if is_whole else response.status):
            await self._changed()

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of the body as they arrive. What has arrived before an error is returned before it is raised."""
        response, splitter = self.response, http1.LineSplitter(LINE_BYTES)
        while True:
            if pieces := response.take_body():
                self._resume()
                for piece in pieces:
                    for line in splitter.split(piece):
                        yield line
            elif response.is_complete:
                if last := splitter.last():
                    yield last
                return
            else:
                await self._changed()

    async def _changed(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # --- Between requests ---

    def is_open(self) -> bool:
        return self._error is None and not self._transport.is_closing()

    def is_silent(self) -> bool:
        """Whether nothing waits to be read: between requests, that would be the end of the connection."""
        return not self._poll.poll(0)

    def release(self) -> bool:
        """End the request; return whether the connection may be used by another."""
        response, self._response = self._response, None
        if response is not None and not (response.is_complete and response.is_reusable):
            return False
        self._resume()
        self.is_kept = True
        return self.is_open()

    def abort(self) -> None:
        """Close without the exchange of the TLS protocol, which would wait for the server."""
        if self._error is None:
            self._error = ConnectionAbortedError("the connection was closed")
        self._transport.abort()
        self._wake()

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data, response = bytes(self._buffer[:nbytes]), self._response
        if response is None:
            self._end(http1.Malformed("the server sent a response without a request"))
            self._transport.abort()
            return
        self.has_answered = True
        try:
            response.feed(data)
        except http1.Malformed as error:
            self._end(error)
            self._transport.abort()
            return
        if self._is_whole:
            if response.is_complete:
                self._wake()
        else:
            if response.held_bytes > LINE_BYTES and not self._transport.is_closing():
                self._is_paused = True
                self._transport.pause_reading()
            self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def _end(self, error: Exception | None) -> None:
        """The connection is over; without an error, the server has closed it."""
        if self._error is not None:
            return
        if error is None:
            error = http1.ClosedEarly()
            if self._response is not None:
                try:
                    self._response.end()
                except http1.Malformed as malformed:
                    error = malformed
                except http1.ClosedEarly:
                    pass
        is_ours = isinstance(error, ConnectionError | http1.Malformed)
        self._error = error if is_ours else ConnectionError(str(error) or repr(error))
        self._wake()


class ConnectionPool:
    """At most `limit` connections. A request that finds none free waits, in order.

    While a request waits, no connection is idle and none more may be made: what is given back goes to the first one.
    """

    def __init__(self, connector: Connector, limit: int) -> None:
        self._connector = connector
        self._unused = limit  # how many more connections may be made
        self._idle: list[Connection] = []  # the one used last at the end
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False

    async def take(self, *, is_read: bool, is_repeated: bool) -> Connection:
        """A connection for one request. `is_repeated`: the server closed a kept one, so that no other is tried."""
        if self.is_closed:
            raise RuntimeError("the transport is closed")
        earliest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            kept = self._idle.pop()
            is_good = kept.is_open() and kept.idle_since >= earliest and not is_repeated
            if is_good and (is_read or kept.is_silent()):
                return kept
            self._drop(kept)
        if self._unused:
            self._unused -= 1
        elif (handed := await self._wait()) is not None:
            if handed.is_open() and (is_read or handed.is_silent()):
                return handed
            handed.abort()  # the connection that is made below takes its place
        return await self._connect()

    def give_back(self, connection: Connection) -> None:
        """End a request, in whatever state its connection is."""
        if not connection.release() or self.is_closed:
            self._drop(connection)
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._keep(connection)

    def _keep(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(IDLE_SECONDS, self._drop_idle)

    def _drop_idle(self) -> None:
        self._timer = None
        earliest = asyncio.get_running_loop().time() - IDLE_SECONDS
        kept, self._idle = self._idle, []
        for connection in kept:
            if connection.is_open() and connection.idle_since > earliest:
                self._idle.append(connection)
            else:
                self._drop(connection)
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._drop_idle)

    async def _connect(self) -> Connection:
        try:
            connection = await self._connector.connect()
        except BaseException:
            self._allow_one_more()
            raise
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        if self.is_closed:
            self._drop(connection)
            raise NotConnected(ConnectionAbortedError("the transport is closed"))
        return connection

    def _drop(self, connection: Connection) -> None:
        connection.abort()
        self._allow_one_more()

    def _allow_one_more(self) -> None:
        if (waiter := self._next_waiter()) is not None:
            waiter.set_result(None)
        else:
            self._unused += 1

    # --- Waiting ---

    async def _wait(self) -> Connection | None:
        """A connection that was given back, or None: one more may be made."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # Handed over in the turn in which the request was cancelled.
                handed = waiter.result()
                self._allow_one_more() if handed is None else self.give_back(handed)
            raise

    def _next_waiter(self) -> asyncio.Future[Connection | None] | None:
        while self._waiters:
            if not (waiter := self._waiters.popleft()).done():
                return waiter
        return None

    async def close(self) -> None:
        """Break the connections, also those in use, and wait until their sockets are closed."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(NotConnected(ConnectionAbortedError("the transport is closed")))
        for connection in self._open:
            connection.abort()
        await asyncio.gather(*(connection.closed for connection in self._open))
