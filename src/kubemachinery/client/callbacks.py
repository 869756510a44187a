"""Posts documents to callbacks that others have registered, such as admission webhooks."""

from __future__ import annotations

import asyncio
import ssl
import urllib.parse
from typing import Final, TypeAlias

from kubemachinery import http1
from kubemachinery.client.http_connections import ConnectionPool, Connector, NotConnected
from kubemachinery.client.http_transport import host_header
from kubemachinery.client.transport import CONNECT_SECONDS, SAFE, ApiRequest, ConnectionOptions, reason_of

_CONNECTIONS: Final = 64  # to each server
_SERVERS: Final = 64

_Server: TypeAlias = tuple[str, str, ssl.SSLContext]


class SendError(Exception):
    """No response, or an unusable one; the message has the reason."""


class Sender:
    """Posts small documents: no redirects, bounded time and size. Connections are kept."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._pools: dict[_Server, ConnectionPool] = {}  # the one used last at the end

    async def post(
        self, url: str, body: bytes, *, tls: ssl.SSLContext, timeout_seconds: float, bytes_max: int
    ) -> tuple[int, bytes]:
        """Return the status and the body of the response. Raises SendError, or TimeoutError after the time limit."""
        try:
            address = urllib.parse.urlsplit(url)
            request = ApiRequest("POST", address.path or "/", body=body)
            data = self._bytes_of(address, body)
            pool = self._pool(address, tls)
            async with asyncio.timeout(timeout_seconds):
                connection = await pool.take(is_read=False, is_repeated=False)
                try:
                    response = http1.ResponseParser("POST", body_bytes=bytes_max)
                    connection.write(request, data, response, whole=True)
                    await connection.arrived()
                    return response.status, b"".join(response.take_body())
                finally:
                    pool.give_back(connection)
        except NotConnected as error:
            raise SendError(f"{url} cannot be reached: {reason_of(error.reason)}") from None
        except http1.Malformed as error:
            raise SendError(f"its answer cannot be read: {error}") from None
        except (OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise SendError(str(error) or type(error).__name__) from None

    def _bytes_of(self, address: urllib.parse.SplitResult, body: bytes) -> bytes:
        target = urllib.parse.quote(address.path or "/", safe=SAFE)
        if address.query:
            target += "?" + urllib.parse.quote(address.query, safe=SAFE + "?")
        headers = (
            ("Host", host_header(address)),
            ("User-Agent", self._agent),
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
        )
        return http1.request_bytes("POST", target, headers, body)

    def _pool(self, address: urllib.parse.SplitResult, tls: ssl.SSLContext) -> ConnectionPool:
        server = (address.scheme, address.netloc, tls)
        pool = self._pools.pop(server, None)
        if pool is None:
            connector = Connector(address, ConnectionOptions(tls=tls), CONNECT_SECONDS)
            pool = ConnectionPool(connector, _CONNECTIONS)
            if len(self._pools) >= _SERVERS:
                # Requests in progress end, and a pool closes connections that are idle by itself.
                del self._pools[next(iter(self._pools))]
        self._pools[server] = pool
        return pool

    async def close(self) -> None:
        pools, self._pools = tuple(self._pools.values()), {}
        for pool in pools:
            await pool.close()
