"""Requests to an API server as values, and the interface of transports.

Two ways to send: `send` for one response, `stream` for a watch. Both raise `Unanswered` when there is no response, with
`applied` False if the connection was never made: the server cannot have carried the request out. A connection that
broke may have delivered it.

A write may have a fence, which is checked at the moment its bytes are sent. An earlier check could be out of date when
the request is delayed after it (by a rate limit, a full pool, a handshake, a stopped process).

| transport | module | for |
| --- | --- | --- |
| `HttpTransport` | `http_transport` | a server on the network |
| `LocalTransport` | `local_transport` | a server in the same process |
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import msgspec

from kubemachinery.client.errors import Fenced

# A line of a watch contains a whole object, and an object may have 1.5 MiB.
LINE_BYTES: Final = 4 * 1024 * 1024
# The largest response, unpacked: a small one can unpack to any size.
BODY_BYTES: Final = 1024 * 1024 * 1024
CONNECT_SECONDS: Final = 10.0
SAFE: Final = "/:@!$&'()*+,;=~%"
# A path that percent-encoding leaves as it is.
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_.\-~/]*")


# Returns whether a write may still be sent.
Fence: TypeAlias = Callable[[], bool]


class ApiRequest(msgspec.Struct, frozen=True):
    """One request to an API server."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""
    accept: str = "application/json"
    timeout_seconds: float = 30.0
    fence: Fence | None = None


class ApiResponse(msgspec.Struct, frozen=True):
    """One response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


Lines: TypeAlias = AsyncIterator[bytes]
# Names and values; a name may occur more than once.
Headers: TypeAlias = Sequence[tuple[str, str]]
# Returns the authentication headers; called before every request, because a token may be renewed meanwhile.
AuthHeaders: TypeAlias = Callable[[], Awaitable[Headers]]


class ConnectionOptions(msgspec.Struct, frozen=True):
    """How a server is connected to: what the transports over HTTP have in common."""

    tls: ssl.SSLContext | None = None
    credentials: AuthHeaders | None = None
    user_agent: str = "pykueue"
    server_hostname: str | None = None
    timeout_seconds: float | None = None  # for every request, in place of its own; 0 is none
    compressed: bool = True

    def timeout_of(self, request: ApiRequest) -> float | None:
        return request.timeout_seconds if self.timeout_seconds is None else self.timeout_seconds or None

    def headers_of(self, accept: str, content_type: str) -> Headers:
        """The headers of a request without those of its credentials."""
        content = [("Content-Type", content_type)] if content_type else []
        return [("Accept", accept), ("User-Agent", self.user_agent), *content]


DEFAULT_CONNECTION: Final = ConnectionOptions()


class Transport(Protocol):
    async def send(self, request: ApiRequest) -> ApiResponse:
        """Return the response; raise `Fenced` when the fence of the request is closed."""
        ...

    def stream(self, request: ApiRequest) -> AbstractAsyncContextManager[Lines]:
        """The lines of a streaming response. A response that is no success raises its `ApiError`."""
        ...

    async def close(self) -> None: ...


def check_fence(request: ApiRequest) -> None:
    if request.fence is not None and not request.fence():
        raise Fenced(f"{request.method} {request.path}: not sent, because the lease is no longer held")


def target_of(prefix: str, request: ApiRequest) -> str:
    """The path and the query of a request, percent-encoded; `prefix` is the path in the address of the server."""
    path = prefix + request.path
    if not _PLAIN_PATH.fullmatch(path):
        path = urllib.parse.quote(path, safe=SAFE)
    return f"{path}?{_encoded(request.query)}" if request.query else path


@lru_cache(maxsize=256)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Most requests repeat the query of another, such as the field manager of a patch."""
    return urllib.parse.urlencode(query)


def reason_of(error: Exception) -> str:
    """The error text of the operating system for a connection that was not made; libraries wrap it in longer ones."""
    match getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error:
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
