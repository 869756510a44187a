"""Requests as bytes, and bytes as responses: what is accepted, what is refused, and that cuts do not matter."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.http1 import (
    CHUNK_LINE_BYTES,
    HEAD_BYTES,
    ClosedEarly,
    LineSplitter,
    Malformed,
    ResponseParser,
    request_bytes,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LIMIT = 100_000


class Parsed(NamedTuple):
    status: int
    body: bytes
    is_reusable: bool


def with_length(body: bytes, *headers: bytes) -> bytes:
    return OK + b"".join(header + b"\r\n" for header in headers) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def parsed(pieces: list[bytes], method: str = "GET", body_bytes: int = LIMIT) -> Parsed | str:
    """The response, or why there is none, after the pieces and the end of the connection."""
    parser, body = ResponseParser(method, body_bytes=body_bytes), b""
    try:
        for piece in pieces:
            parser.feed(piece)
        parser.end()
    except (Malformed, ClosedEarly) as error:
        return str(error)
    body = b"".join(parser.take_body())
    assert parser.is_complete
    return Parsed(parser.status, body, parser.is_reusable)


PACKED = gzip.compress(b"a list" * 50)
NOT_HTTP = "the response is not HTTP/1.1"
CLOSED = "the server closed the connection"
NO_HEADER = "the response has a line that is no header"
TRANSFER = "the response has a Transfer-Encoding other than chunked, or a Content-Length beside it"

RESPONSES: dict[str, tuple[bytes, Parsed | str]] = {
    "length": (with_length(b"hello"), Parsed(200, b"hello", True)),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", Parsed(200, b"", True)),
    "empty": (with_length(b""), Parsed(200, b"", True)),
    "line breaks in the body": (with_length(b"\r\n\r\n0\r\n\r\n"), Parsed(200, b"\r\n\r\n0\r\n\r\n", True)),
    "names in any case": (OK + b"cONTENT-lENGTH:3\r\n\r\nabc", Parsed(200, b"abc", True)),
    "length given twice": (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", Parsed(200, b"abc", True)),
    "close": (with_length(b"x", b"Connection: Close"), Parsed(200, b"x", False)),
    "close among others": (with_length(b"x", b"Connection: x, close"), Parsed(200, b"x", False)),
    "keep-alive": (with_length(b"x", b"Connection: keep-alive"), Parsed(200, b"x", True)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", Parsed(200, b"x", False)),
    "until close": (OK + b"\r\nall that comes", Parsed(200, b"all that comes", False)),
    "until close, empty": (OK + b"\r\n", Parsed(200, b"", False)),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", Parsed(204, b"", True)),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Parsed(304, b"", True)),
    "chunks": (CHUNKED + b"3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n", Parsed(200, b"abc0123456789", True)),
    "no chunk": (CHUNKED + b"0\r\n\r\n", Parsed(200, b"", True)),
    "chunk extensions": (CHUNKED + b'3 ; a="b"\r\nabc\r\n0;last\r\n\r\n', Parsed(200, b"abc", True)),
    "trailers": (CHUNKED + b"1\r\na\r\n0\r\nX-Sum: 1\r\nX-Other:\r\n\r\n", Parsed(200, b"a", True)),
    "chunked in any case": (OK + b"transfer-encoding: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", Parsed(200, b"a", True)),
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n" + with_length(b"x"), Parsed(200, b"x", True)),
    "103 twice": (
        2 * b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n" + with_length(b"x"),
        Parsed(200, b"x", True),
    ),
    "gzip": (with_length(PACKED, b"Content-Encoding: gzip"), Parsed(200, b"a list" * 50, True)),
    "gzip in chunks": (
        OK + b"Content-Encoding: GZIP\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (9, PACKED[:9], len(PACKED) - 9, PACKED[9:]),
        Parsed(200, b"a list" * 50, True),
    ),
    "gzip until close": (OK + b"Content-Encoding: gzip\r\n\r\n" + PACKED, Parsed(200, b"a list" * 50, False)),
    "gzip in two members": (with_length(2 * PACKED, b"Content-Encoding: gzip"), Parsed(200, b"a list" * 100, True)),
    "gzip, empty": (with_length(b"", b"Content-Encoding: gzip"), Parsed(200, b"", True)),
    "identity": (with_length(b"x", b"Content-Encoding: identity"), Parsed(200, b"x", True)),
    "more than the response": (with_length(b"x") + b"HTTP/1.1 200 OK\r\n", Parsed(200, b"x", False)),
    # Refused
    "nothing": (b"", CLOSED),
    "cut in the head": (b"HTTP/1.1 200 OK\r\nContent-", CLOSED),
    "cut in the body": (with_length(b"hello")[:-1], CLOSED),
    "cut in a chunk": (CHUNKED + b"5\r\nabc", CLOSED),
    "cut before the last chunk": (CHUNKED + b"1\r\na\r\n", CLOSED),
    "cut in the trailers": (CHUNKED + b"1\r\na\r\n0\r\nX: 1\r\n", CLOSED),
    "only an interim response": (b"HTTP/1.1 100 Continue\r\n\r\n", CLOSED),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", NOT_HTTP),
    "HTTP/2": (b"HTTP/2 200\r\n\r\n", NOT_HTTP),
    "status of two digits": (b"HTTP/1.1 20 OK\r\n\r\n", NOT_HTTP),
    "status of four digits": (b"HTTP/1.1 2000 OK\r\n\r\n", NOT_HTTP),
    "header without a colon": (OK + b"Content-Length\r\n\r\n", NO_HEADER),
    "space before the colon": (OK + b"Content-Length : 1\r\n\r\nx", NO_HEADER),
    "folded header": (OK + b"A: b\r\n c\r\nContent-Length: 1\r\n\r\nx", NO_HEADER),
    "line feed in a header": (OK + b"A: b\nContent-Length: 1\r\n\r\nx", NO_HEADER),
    "two lengths": (
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        "the response has the Content-Length '1, 2'",
    ),
    "negative length": (OK + b"Content-Length: -1\r\n\r\n", "the response has the Content-Length '-1'"),
    "length with a sign": (OK + b"Content-Length: +1\r\n\r\nx", "the response has the Content-Length '+1'"),
    "length and chunks": (OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", TRANSFER),
    "unknown transfer coding": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", TRANSFER),
    "unknown content coding": (
        with_length(b"x", b"Content-Encoding: br"),
        "the response has the Content-Encoding 'br'",
    ),
    "size that is no number": (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", "the size of a chunk is not a number"),
    "size without a number": (CHUNKED + b"\r\nhello\r\n0\r\n\r\n", "the size of a chunk is not a number"),
    "chunk longer than its size": (CHUNKED + b"4\r\nhello\r\n0\r\n\r\n", "a chunk is longer than its size"),
    "trailer without a colon": (CHUNKED + b"0\r\nnothing\r\n\r\n", NO_HEADER),
    "upgrade": (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "the server changed the protocol"),
    "gzip that is none": (
        with_length(b"hello", b"Content-Encoding: gzip"),
        "the response is not gzip: Error -3 while decompressing data: incorrect header check",
    ),
    "gzip cut": (
        with_length(PACKED[:-1], b"Content-Encoding: gzip"),
        "the compressed response is not complete",
    ),
}
NAMES = pytest.mark.parametrize("name", RESPONSES)


@NAMES
def test_response_is_the_same_wherever_it_is_cut_in_two(name: str) -> None:
    data, expected = RESPONSES[name]
    assert parsed([data]) == expected
    for cut in range(len(data) + 1):
        assert parsed([data[:cut], data[cut:]]) == expected, cut


@NAMES
def test_response_is_the_same_byte_by_byte(name: str) -> None:
    data, expected = RESPONSES[name]
    assert parsed([data[at : at + 1] for at in range(len(data))]) == expected


@given(st.sampled_from(sorted(RESPONSES)), st.lists(st.integers(0, 300), max_size=8))
def test_response_is_the_same_however_it_is_cut(name: str, cuts: list[int]) -> None:
    data, expected = RESPONSES[name]
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert parsed([data[start:end] for start, end in pairwise(bounds)]) == expected


@given(st.lists(st.binary(max_size=40) | st.sampled_from([OK, CHUNKED, b"\r\n", b"5\r\n", b"A: b\r\n"]), max_size=8))
def test_any_bytes_are_a_response_or_are_refused_and_cuts_do_not_matter(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert parsed(pieces) == parsed([data]) == parsed([data[at : at + 1] for at in range(len(data))])


def test_answer_to_head_has_no_body() -> None:
    assert parsed([OK + b"Content-Length: 5\r\n\r\n"], "HEAD") == Parsed(200, b"", True)
    assert parsed([CHUNKED], "HEAD") == Parsed(200, b"", True)


def test_headers_are_found_in_any_case_and_repeated_ones_are_joined() -> None:
    parser = ResponseParser("GET", body_bytes=LIMIT)
    parser.feed(with_length(b"", b"retry-after: \t7 ", b"Warning: a", b"WARNING: b"))
    assert (parser.headers["Retry-After"], parser.headers.get("warning")) == ("7", "a, b")
    assert "X-Missing" not in parser.headers
    assert sorted(parser.headers) == ["content-length", "retry-after", "warning"]


def test_headers_are_bounded() -> None:
    too_large = f"the headers of the response have more than {HEAD_BYTES} bytes"
    fits = HEAD_BYTES - len(OK + b"A: \r\n\r\n")
    for size, expected in ((fits, Parsed(200, b"", False)), (fits + 1, too_large)):
        assert parsed([OK + b"A: " + b"x" * size + b"\r\n\r\n"]) == expected
        assert parsed([OK, b"A: " + b"x" * size + b"\r\n\r", b"\n"]) == expected
    assert parsed([OK + b"A: " + b"x" * HEAD_BYTES]) == too_large
    assert parsed([b"HTTP/1.1 100 Continue\r\n\r\n"] * HEAD_BYTES) == too_large
    assert parsed([CHUNKED + b"0\r\n", *[b"A: b\r\n"] * HEAD_BYTES]) == too_large


def test_line_of_a_chunk_is_bounded() -> None:
    extension = b"0;" + b"x" * (CHUNK_LINE_BYTES - 2)
    for line, expected in (
        (extension, Parsed(200, b"", True)),
        (extension + b"x", f"the size of a chunk has more than {CHUNK_LINE_BYTES} bytes"),
    ):
        assert parsed([CHUNKED + line + b"\r\n\r\n"]) == expected
        assert parsed([CHUNKED + line, b"\r", b"\n\r\n"]) == expected
    assert parsed([CHUNKED + extension + b"xx"]) == f"the size of a chunk has more than {CHUNK_LINE_BYTES} bytes"


def test_body_is_bounded() -> None:
    assert parsed([with_length(b"x" * 10)], body_bytes=10) == Parsed(200, b"x" * 10, True)
    assert parsed([with_length(b"x" * 11)], body_bytes=10) == "the response has more than 10 bytes"
    assert parsed([OK + b"\r\n", *[b"x"] * 11], body_bytes=10) == "the response has more than 10 bytes"


def test_small_response_that_unpacks_to_a_large_one_is_refused_before_it_is_unpacked() -> None:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join([*(packer.compress(bytes(2**20)) for _ in range(200)), packer.flush()])
    tracemalloc.start()
    try:
        refused = parsed([with_length(bomb, b"Content-Encoding: gzip")], body_bytes=2**20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused == f"the response has more than {2**20} bytes"
    assert peak_bytes < 8 * 2**20


def test_body_that_is_taken_does_not_count() -> None:
    parser = ResponseParser("GET", body_bytes=10)
    parser.feed(OK + b"\r\n")
    for _ in range(5):
        parser.feed(b"x" * 10)
        assert (parser.held_bytes, parser.take_body(), parser.held_bytes) == (10, [b"x" * 10], 0)


@given(st.lists(st.sampled_from([b"", b"a", b"bc\n", b"\n", b"\r", b"d\ne", b"{}\n{}\n"]), max_size=12))
def test_lines_are_those_of_the_whole_body(pieces: list[bytes]) -> None:
    splitter = LineSplitter(100)
    lines = [line for piece in pieces for line in splitter.split(piece)]
    whole = b"".join(pieces)
    assert b"".join(lines) + splitter.last() == whole
    assert len(lines) == whole.count(b"\n")
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


@pytest.mark.parametrize("pieces", [[b"12345\n"], [b"123", b"45\n"], [b"12345"], [b"123", b"45"]])
def test_line_that_is_too_long_is_an_error_also_before_its_end(pieces: list[bytes]) -> None:
    splitter = LineSplitter(4)
    with pytest.raises(ValueError, match="a line has more than 4 bytes"):
        [line for piece in pieces for line in splitter.split(piece)]
    assert list(LineSplitter(4).split(b"123\n")) == [b"123\n"]


def test_request_is_one_value() -> None:
    headers = [("Host", "a:1"), ("Accept", "application/json"), ("Impersonate-Group", "a"), ("Impersonate-Group", "ö")]
    assert (
        request_bytes("PATCH", "/a?b=c", headers, b"{}")
        == (
            "PATCH /a?b=c HTTP/1.1\r\nHost: a:1\r\nAccept: application/json\r\n"
            "Impersonate-Group: a\r\nImpersonate-Group: ö\r\nContent-Length: 2\r\n\r\n{}"
        ).encode()
    )


@pytest.mark.parametrize(("method", "length"), [("POST", b"Content-Length: 0"), ("GET", b""), ("DELETE", b"")])
def test_request_without_a_body(method: str, length: bytes) -> None:
    assert (
        request_bytes(method, "/", [], b"")
        == method.encode() + b" / HTTP/1.1\r\n" + (length and length + b"\r\n") + b"\r\n"
    )


@pytest.mark.parametrize(
    ("method", "target", "header"),
    [
        ("GET", "/", ("Authorization", "Bearer secret\r\nX-Remote-User: admin")),
        ("GET", "/", ("Authorization", "Bearer secret\n")),
        ("GET", "/", ("Authorization", "Bearer secret\r")),
        ("GET", "/", ("Authorization", "Bearer secret\0")),
        ("GET", "/", ("X: secret\r\nY", "")),
        ("GET", "/", ("", "secret")),
        ("GET", "/ HTTP/1.1\r\nX: y", ("A", "b")),
        ("GET", "/a b", ("A", "b")),
        ("GET", "", ("A", "b")),
        ("GET /\r\n", "/", ("A", "b")),
    ],
)
def test_request_that_would_become_two_is_refused(method: str, target: str, header: tuple[str, str]) -> None:
    with pytest.raises(ValueError) as refused:
        request_bytes(method, target, [("Host", "a"), header], b"")
    assert header[0] == "X: secret\r\nY" or "secret" not in str(refused.value)
