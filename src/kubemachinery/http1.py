"""HTTP/1.1 without input and output: of a client, whose requests become bytes and bytes become responses, and of a
server, for which it is the reverse.

`ResponseParser` and `RequestParser` are given the bytes of one message in pieces of any size, and the result does not
depend on where they were cut. The states, in the order in which a message passes through them:

| state | ends with | then |
| --- | --- | --- |
| HEAD | an empty line | HEAD again after an interim response (1xx), else a state of the body, or COMPLETE |
| LENGTH | as many bytes as `Content-Length` has | COMPLETE |
| CHUNK_SIZE | a line | CHUNK_DATA, or TRAILERS after the last chunk |
| CHUNK_DATA | as many bytes as the size of the chunk | CHUNK_END |
| CHUNK_END | a line break | CHUNK_SIZE |
| TRAILERS | an empty line | COMPLETE |
| UNTIL_CLOSE (of a response) | the end of the connection | COMPLETE |

A message that could be read in two ways raises `Malformed`: two programs that disagree about where a message ends would
take the body of one for another message.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import Final

# The heads of interim responses and the trailers count too.
HEAD_BYTES: Final = 64 * 1024
# Of a request: its head, and each of its lines. Clients that have not proved who they are send these.
REQUEST_HEAD_BYTES: Final = 32 * 1024
REQUEST_LINE_BYTES: Final = 16 * 1024
CHUNK_LINE_BYTES: Final = 4 * 1024

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_NAME: Final = re.compile(_TOKEN)
_FORBIDDEN: Final = re.compile("[\r\n\0]")
_SPACE: Final = re.compile(r"[^\x21-\x7e]")
_STATUS_LINE: Final = re.compile(r"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n\0]*)?")
_PREFIX: Final = b"HTTP/1."
_REQUEST_LINE: Final = re.compile(r"([A-Z][A-Z-]{0,31}) ([^\x00-\x20\x7f]+) HTTP/1\.([01])")
_REQUEST_FIELDS: Final = re.compile(rf"(?:{_TOKEN}:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
_DECIMAL: Final = re.compile(r"[0-9]{1,18}")
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\0]*)?")
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_REASONS: Final = {each.value: each.phrase for each in HTTPStatus}
_WITH_LENGTH: Final = frozenset({"POST", "PUT", "PATCH"})
_METHODS: Final = _WITH_LENGTH | {"GET", "DELETE"}


class Malformed(Exception):
    """The message is not HTTP/1.1, or larger than allowed. The connection cannot be used further."""


class ClosedEarly(ConnectionError):
    """The connection ended before the response did."""

    def __init__(self) -> None:
        super().__init__("the server closed the connection")


class ResponseHeaders(Mapping[str, str]):
    """The headers of a response, looked up without regard to case. Values of a repeated name are joined by commas."""

    __slots__ = ("_by_name",)

    def __init__(self, by_name: dict[str, str]) -> None:
        self._by_name = by_name  # names in lower case

    def __getitem__(self, name: str) -> str:
        return self._by_name[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"ResponseHeaders({self._by_name!r})"


_NO_HEADERS: Final = ResponseHeaders({})


# --- Messages as bytes ------------------------------------------------------------------------------------------------


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Headers as they are sent, each with its line break. Raises ValueError for one that would begin another line."""
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name) or _FORBIDDEN.search(value):
            # Without the value: it may be a credential.
            raise ValueError(f"the header {name!r} contains a character that is not allowed in headers")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def request_bytes(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """A request as one value. Raises ValueError for a header or a target that would begin another line."""
    return request_with_lines(method, target, header_lines(headers), body)


def request_with_lines(method: str, target: str, lines: str, body: bytes) -> bytes:
    """The same with headers that `header_lines` has returned. Raises ValueError for the method and the target."""
    if (method not in _METHODS and not _NAME.fullmatch(method)) or not target or _SPACE.search(target):
        raise ValueError(f"{method!r} {target!r} is not the method and the target of a request")
    length = f"Content-Length: {len(body)}\r\n" if body or method in _WITH_LENGTH else ""
    return f"{method} {target} HTTP/1.1\r\n{lines}{length}\r\n".encode() + body


def response_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    """The head of a response. Raises ValueError for a header that would begin another line."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}"]
    for name, value in headers:
        if not _NAME.fullmatch(name) or _FORBIDDEN.search(value):
            raise ValueError(f"the header {name!r} contains a character that is not allowed in headers")
        lines.append(f"{name}: {value}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


# --- Parsers ----------------------------------------------------------------------------------------------------------


class _State(Enum):
    HEAD = auto()
    LENGTH = auto()
    CHUNK_SIZE = auto()
    CHUNK_DATA = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    UNTIL_CLOSE = auto()
    COMPLETE = auto()


# As plain names, because they are compared three times for each chunk of a watch.
_HEAD: Final = _State.HEAD
_LENGTH: Final = _State.LENGTH
_CHUNK_SIZE: Final = _State.CHUNK_SIZE
_CHUNK_DATA: Final = _State.CHUNK_DATA
_CHUNK_END: Final = _State.CHUNK_END
_TRAILERS: Final = _State.TRAILERS
_UNTIL_CLOSE: Final = _State.UNTIL_CLOSE
_COMPLETE: Final = _State.COMPLETE


class _MessageParser:
    """What the parsers of requests and of responses share: the states, and the body.

    `feed` raises `Malformed`; the parser cannot be used after that. `body_bytes` is the largest number of bytes,
    unpacked, that may be held for `take_body`.
    """

    __slots__ = (
        "_head_left",
        "_left",
        "_pieces",
        "_rest",
        "_state",
        "_unpacker",
        "body_bytes",
        "held_bytes",
        "is_reusable",
    )

    _what: str  # the message, in errors
    _head_bytes: int

    def __init__(self, body_bytes: int) -> None:
        self.is_reusable = False  # whether the connection may be used again after this message
        self.held_bytes = 0
        self.body_bytes = body_bytes
        self._state = _HEAD
        self._head_left = self._head_bytes
        self._left = 0  # of the body or of the chunk
        self._rest = b""  # the beginning of a line or of a head
        self._pieces: list[bytes] = []
        self._unpacker: Unpacker | None = None

    @property
    def is_complete(self) -> bool:
        return self._state is _COMPLETE

    def take_body(self) -> list[bytes]:
        """The pieces of the body that have arrived since the last call."""
        pieces = self._pieces
        if pieces:
            self._pieces, self.held_bytes = [], 0
        return pieces

    def feed(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        position, size = 0, len(data)
        while position < size:
            state = self._state
            if state is _CHUNK_SIZE:
                after = self._read_chunk_size(data, position)
            elif state is _CHUNK_DATA or state is _LENGTH:
                after = self._read_counted(data, position)
            elif state is _CHUNK_END:
                after = self._read_chunk_end(data, position)
            elif state is _HEAD:
                after = self._read_head(data, position)
            elif state is _TRAILERS:
                after = self._read_trailers(data, position)
            elif state is _UNTIL_CLOSE:
                self._add(data[position:])
                return
            else:
                self._read_more(data[position:])
                return
            if after < 0:
                self._rest = data[position:]
                return
            position = after

    def _read_head(self, data: bytes, start: int) -> int:
        raise NotImplementedError

    def _read_more(self, data: bytes) -> None:
        """What came after the end of the message."""
        raise NotImplementedError

    def _find_head(self, data: bytes, start: int) -> int:
        """Where the head ends, before its empty line; -1 if more has to arrive."""
        end = data.find(b"\r\n\r\n", start)
        if (len(data) if end < 0 else end + 4) - start > self._head_left:
            raise Malformed(f"the headers of the {self._what} have more than {self._head_bytes} bytes")
        if end >= 0:
            self._head_left -= end + 4 - start
        return end

    def _find_length(self, is_1_1: bool, headers: Mapping[str, str]) -> int | None:
        """The length of the body; -1 if it comes in chunks, None if the head does not have it."""
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None:
            if _elements(coding) != ["chunked"] or not is_1_1 or length is not None:
                raise Malformed(
                    f"the {self._what} has a Transfer-Encoding other than chunked, or a Content-Length beside it"
                )
            return -1
        if length is None:
            return None
        if _DECIMAL.fullmatch(length):
            return int(length)
        lengths = set(length.replace(" ", "").split(","))
        if len(lengths) > 1 or not _DECIMAL.fullmatch(size := lengths.pop()):
            raise Malformed(f"the {self._what} has the Content-Length {length!r}")
        return int(size)

    def _begin(self, length: int) -> None:
        """Go on with a body of this length; -1: in chunks."""
        if length < 0:
            self._state = _CHUNK_SIZE
        elif length:
            self._state, self._left = _LENGTH, length
        else:
            self._complete()

    # --- Each returns the position after what it has read, or -1 if more has to arrive ---

    def _read_counted(self, data: bytes, start: int) -> int:
        piece = data[start : start + self._left]
        self._left -= len(piece)
        self._add(piece)
        if not self._left:
            if self._state is _CHUNK_DATA:
                self._state = _CHUNK_END
            else:
                self._complete()
        return start + len(piece)

    def _read_chunk_size(self, data: bytes, start: int) -> int:
        end = data.find(b"\r\n", start)
        # A line that has not ended may have the first half of its line break.
        if (len(data) - 1 if end < 0 else end) - start > CHUNK_LINE_BYTES:
            raise Malformed(f"the size of a chunk has more than {CHUNK_LINE_BYTES} bytes")
        if end < 0:
            return -1
        found = _CHUNK_LINE.fullmatch(data, start, end)
        if found is None:
            raise Malformed("the size of a chunk is not a number")
        start, size = end + 2, int(found[1], 16)
        after = start + size
        if size and data.startswith(b"\r\n", after):  # the chunk is whole, as are most of a watch
            self._add(data[start:after])
            return after + 2
        self._state, self._left = _CHUNK_DATA if size else _TRAILERS, size
        return start

    def _read_chunk_end(self, data: bytes, start: int) -> int:
        if len(data) - start < 2:
            return -1
        if not data.startswith(b"\r\n", start):
            raise Malformed("a chunk is longer than its size")
        self._state = _CHUNK_SIZE
        return start + 2

    def _read_trailers(self, data: bytes, start: int) -> int:
        """Trailers are checked and dropped: none of Kubernetes has a meaning."""
        end = data.find(b"\r\n", start)
        if (len(data) if end < 0 else end + 2) - start > self._head_left:
            raise Malformed(f"the headers of the {self._what} have more than {self._head_bytes} bytes")
        if end < 0:
            return -1
        self._head_left -= end + 2 - start
        if end == start:
            self._complete()
        else:
            _read_headers(data[start : end + 2].decode("latin-1"), self._what)
        return end + 2

    def _add(self, piece: bytes) -> None:
        if self._unpacker is not None:
            piece = self._unpacker.unpack(piece, self.body_bytes - self.held_bytes)
        self.held_bytes += len(piece)
        if self.held_bytes > self.body_bytes:
            raise Malformed(f"the {self._what} has more than {self.body_bytes} bytes")
        if piece:
            self._pieces.append(piece)

    def _complete(self) -> None:
        if self._unpacker is not None and not self._unpacker.is_at_end:
            raise Malformed(f"the compressed {self._what} is not complete")
        self._state = _COMPLETE


class ResponseParser(_MessageParser):
    """The parser of one response to a request with this method."""

    __slots__ = ("_is_answer_to_head", "headers", "status")

    _what = "response"
    _head_bytes = HEAD_BYTES

    def __init__(self, method: str, *, body_bytes: int) -> None:
        super().__init__(body_bytes)
        self.status = 0  # until the head has arrived
        self.headers = _NO_HEADERS
        self._is_answer_to_head = method == "HEAD"

    def end(self) -> None:
        """The connection has ended; raises `ClosedEarly` if the response has not."""
        if self._state is _UNTIL_CLOSE:
            self._complete()
        elif self._state is not _COMPLETE:
            raise ClosedEarly

    def _read_more(self, data: bytes) -> None:
        # No other request was sent on this connection.
        self.is_reusable = False

    def _read_head(self, data: bytes, start: int) -> int:
        if not data.startswith(_PREFIX[: len(data) - start], start):
            raise Malformed("the response is not HTTP/1.1")
        end = self._find_head(data, start)
        if end < 0:
            return -1
        first, _, fields = data[start : end + 2].decode("latin-1").partition("\r\n")
        found = _STATUS_LINE.fullmatch(first)
        if found is None:
            raise Malformed("the response is not HTTP/1.1")
        headers = _read_headers(fields, self._what)
        status = int(found[2])
        if status >= 200:
            self.status, self.headers = status, ResponseHeaders(headers)
            self._begin_body(found[1] == "1", headers)
        elif status == 101:
            raise Malformed("the server changed the protocol")
        return end + 4

    def _begin_body(self, is_1_1: bool, headers: Mapping[str, str]) -> None:
        connection = headers.get("connection")
        self.is_reusable = is_1_1 and (connection is None or "close" not in _elements(connection))
        length = self._find_length(is_1_1, headers)
        if self._is_answer_to_head or self.status in (204, 304):
            self._complete()
            return
        encoding = headers.get("content-encoding")
        if encoding is not None:
            match encoding.lower():
                case "gzip" | "x-gzip":
                    self._unpacker = Unpacker()
                case "identity" | "":
                    pass
                case other:
                    raise Malformed(f"the response has the Content-Encoding {other!r}")
        if length is None:
            self._state, self.is_reusable = _UNTIL_CLOSE, False
        else:
            self._begin(length)


class RequestParser(_MessageParser):
    """The parser of one request. Its errors may contain what was sent, such as a credential: they are not for the log.

    With `is_dropping`, what arrives of the body is not kept. `more` has what came after the request.
    """

    __slots__ = ("expects_continue", "headers", "is_1_1", "is_dropping", "length", "lines", "method", "more", "target")

    _what = "request"
    _head_bytes = REQUEST_HEAD_BYTES

    def __init__(self) -> None:
        # The reader of the body decides how much it takes, and the connection is read no faster.
        super().__init__(sys.maxsize)
        self.method = ""  # until the head has arrived
        self.target = ""
        self.lines: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.is_1_1 = True
        self.length = 0  # of the body; -1: not known
        self.expects_continue = False
        self.is_dropping = False
        self.more = b""

    def drop_body(self) -> None:
        """Keep nothing of the body."""
        self.is_dropping = True
        self.take_body()

    def _read_more(self, data: bytes) -> None:
        self.more += data

    def _read_head(self, data: bytes, start: int) -> int:
        if data.startswith(b"\r\n", start) and self._head_left == REQUEST_HEAD_BYTES:
            self._head_left -= 2
            return start + 2  # some clients end a body with a line break
        if not (65 <= data[start] <= 90 or data[start] == 13):
            raise Malformed("the request is not HTTP/1.1")
        end = self._find_head(data, start)
        if end < 0:
            return -1
        first, _, fields = data[start : end + 2].decode("utf-8", "surrogateescape").partition("\r\n")
        found = _REQUEST_LINE.fullmatch(first)
        if found is None or len(first) > REQUEST_LINE_BYTES:
            raise Malformed("the request is not HTTP/1.1")
        self.lines = _read_lines(fields, _REQUEST_FIELDS, self._what)
        if any(len(name) + len(value) > REQUEST_LINE_BYTES for name, value in self.lines):
            raise Malformed("a header of the request has too many bytes")
        self.headers = headers = _by_name(self.lines)
        self.method, self.target, self.is_1_1 = found[1], found[2], found[3] == "1"
        if "," in headers.get("host", "") or (self.is_1_1 and "host" not in headers):
            raise Malformed("the request does not have one Host")
        options = _elements(headers.get("connection", ""))
        self.is_reusable = "close" not in options and (self.is_1_1 or "keep-alive" in options)
        self.length = self._find_length(self.is_1_1, headers) or 0
        self.expects_continue = self.is_1_1 and headers.get("expect", "").lower() == "100-continue"
        self._begin(self.length)
        return end + 4

    def _add(self, piece: bytes) -> None:
        if not self.is_dropping:
            super()._add(piece)


def _read_lines(text: str, fields: re.Pattern[str], what: str) -> list[tuple[str, str]]:
    """Headers as they were sent; `text` has a line break after each."""
    if not fields.fullmatch(text):
        raise Malformed(f"the {what} has a line that is no header")
    split = (line.partition(":") for line in text.split("\r\n")[:-1])
    return [(name, value.strip(" \t")) for name, _, value in split]


def _by_name(lines: list[tuple[str, str]]) -> dict[str, str]:
    """Headers by their names in lower case. Values of a repeated name are joined by commas."""
    headers: dict[str, str] = {}
    for name, value in lines:
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _read_headers(text: str, what: str) -> dict[str, str]:
    """The headers of a response by their names; `text` has a line break after each. In one pass, and without a regular
    expression for all of the text: a client reads a head for each of its requests."""
    lines = text.split("\r\n")
    breaks = len(lines) - 1
    if lines.pop() or "\0" in text or text.count("\r") != breaks or text.count("\n") != breaks:
        raise Malformed(f"the {what} has a line that is no header")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        lower = _lower_name(name) if colon else ""
        if not lower:
            raise Malformed(f"the {what} has a line that is no header")
        value = value.strip(" \t")
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    return headers


@lru_cache(maxsize=256)
def _lower_name(name: str) -> str:
    """A name of a header in lower case; empty if it is none."""
    return name.lower() if _NAME.fullmatch(name) else ""


def _elements(value: str) -> list[str]:
    """The elements of a header that is a list, in lower case."""
    return [element for part in value.split(",") if (element := part.strip(" \t").lower())]


class Unpacker:
    """Unpacks gzip, in pieces and never more than the caller takes."""

    __slots__ = ("_has_begun", "_inflate")

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        self._has_begun = False

    @property
    def is_at_end(self) -> bool:
        """Whether what was unpacked is whole. An empty body is."""
        return self._inflate.eof or not self._has_begun

    def unpack(self, data: bytes, left: int) -> bytes:
        """Raises `Malformed` if `data` is not gzip; a result that is longer than `left` is cut after one byte more."""
        unpacked: list[bytes] = []
        self._has_begun = self._has_begun or bool(data)
        try:
            while data and left >= 0:
                if self._inflate.eof:  # several compressed files may follow one another
                    self._inflate = zlib.decompressobj(_GZIP_WINDOW)
                unpacked.append(self._inflate.decompress(data, left + 1))
                left -= len(unpacked[-1])
                data = self._inflate.unused_data
        except zlib.error as error:
            raise Malformed(f"the response is not gzip: {error}") from None
        return b"".join(unpacked)


class LineSplitter:
    """Splits a body into lines, which keep their line breaks. A line longer than `line_bytes` raises ValueError."""

    __slots__ = ("_line_bytes", "_rest", "_rest_bytes")

    def __init__(self, line_bytes: int) -> None:
        self._line_bytes = line_bytes
        self._rest: list[bytes] = []  # a line that has not ended
        self._rest_bytes = 0

    def split(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in `piece`."""
        start = 0
        while end := piece.find(b"\n", start) + 1:
            line = piece[start:end]
            start = end
            if self._rest:
                line = b"".join((*self._rest, line))
                self._rest, self._rest_bytes = [], 0
            self._check(len(line))
            yield line
        if start < len(piece):
            self._rest.append(piece[start:])
            self._rest_bytes += len(piece) - start
            self._check(self._rest_bytes)

    def last(self) -> bytes:
        """What came after the last line break."""
        return b"".join(self._rest)

    def _check(self, size: int) -> None:
        if size > self._line_bytes:
            raise ValueError(f"a line has more than {self._line_bytes} bytes")
