"""Requests and responses of HTTP as plain values, and the handlers that serve them.

A handler gets a `Request` and returns a `Response`, so it also serves requests without a socket: create a `Request` and
await the handler. A response has either a body or a `stream`, a coroutine that gets a function to write with and runs
until the stream ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
Stream: TypeAlias = Callable[[Write], Awaitable[None]]


class SharedChunk(msgspec.Struct, eq=False):
    """Data that many streams send. `framed` is the form in which a server sends it, made once for all of them."""

    data: bytes
    framed: bytes | None = None


@runtime_checkable
class PromptWrite(Protocol):
    """A `Write` that can also write without waiting."""

    def __call__(self, data: bytes, /) -> Awaitable[None]: ...

    def prompt(self, chunk: SharedChunk) -> bool:
        """Write if the connection takes more at present; False: nothing was written."""

    async def drained(self) -> None:
        """Wait until the connection takes more."""


class BodyTooLarge(Exception):
    """The client sent more than it may."""


class BodyTooSlow(Exception):
    """The client did not send what it announced in time."""


class StreamDropped(Exception):
    """Raised by a stream to break the connection at once, so that the client notices that something is missing."""


async def _no_body(limit: int) -> bytes:
    return b""


def _nothing() -> None:
    return


def body_of(content: bytes) -> Callable[[int], Awaitable[bytes]]:
    """The reader of a body that is in memory."""

    async def read(limit: int) -> bytes:
        if len(content) > limit:
            raise BodyTooLarge
        return content

    return read


class Request(msgspec.Struct):
    """A request. `path` is as received, percent-encoded; header names are in lower case."""

    method: str
    path: str
    query: list[tuple[str, str]] = msgspec.field(default_factory=list)
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    read: Callable[[int], Awaitable[bytes]] = _no_body
    # The subject of the certificate that the client proved to own: {"CN": [...], "O": [...]}.
    certificate: Mapping[str, list[str]] | None = None
    remote: str = ""
    secure: bool = False
    # Every header line as received, for headers that may occur more than once.
    lines: Iterable[tuple[str, str]] = ()
    # Called by the handler when the client is authenticated: such a connection is kept longer than others.
    identified: Callable[[], None] = _nothing

    def first(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        if not self.query:
            return default
        return next((value for key, value in self.query if key == name), default)

    def every(self, header: str) -> list[str]:
        """The values of a header, one per header line."""
        return [value for name, value in self.lines if name.lower() == header.lower()]


class Response(msgspec.Struct):
    """A response."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    stream: Stream | None = None


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
