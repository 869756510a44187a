"""Bytes as requests: what is accepted, what is refused, and that cuts do not matter."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubemachinery.http1 import (
    REQUEST_HEAD_BYTES,
    REQUEST_LINE_BYTES,
    Malformed,
    RequestParser,
    response_head,
)

HOST = b"Host: here\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST
POST = b"POST /somewhere?x=1 HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


class Parsed(NamedTuple):
    method: str
    target: str
    body: bytes = b""
    is_kept: bool = True
    more: bytes = b""


def parsed(pieces: list[bytes]) -> Parsed | str:
    """The request, or why there is none."""
    parser = RequestParser()
    try:
        for piece in pieces:
            parser.feed(piece)
    except Malformed as error:
        return str(error)
    if not parser.is_complete:
        return "not complete"
    return Parsed(parser.method, parser.target, b"".join(parser.take_body()), parser.is_reusable, parser.more)


NOT_HTTP = "the request is not HTTP/1.1"
NO_HEADER = "the request has a line that is no header"
TRANSFER = "the request has a Transfer-Encoding other than chunked, or a Content-Length beside it"
NOT_ONE_HOST = "the request does not have one Host"

REQUESTS: dict[str, tuple[bytes, Parsed | str]] = {
    "without a body": (GET + b"\r\n", Parsed("GET", "/")),
    "after a line break": (b"\r\n" + GET + b"\r\n", Parsed("GET", "/")),
    "after two line breaks": (b"\r\n\r\n" + GET + b"\r\n", NOT_HTTP),
    "with a length": (POST + b"Content-Length: 3\r\n\r\nabc", Parsed("POST", "/somewhere?x=1", b"abc")),
    "with a length of 0": (POST + b"Content-Length: 0\r\n\r\n", Parsed("POST", "/somewhere?x=1")),
    "with the same length twice": (
        POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        Parsed("POST", "/somewhere?x=1", b"abc"),
    ),
    "with two lengths": (
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "the request has the Content-Length '3, 4'",
    ),
    "with a length below 0": (POST + b"Content-Length: -1\r\n\r\n", "the request has the Content-Length '-1'"),
    "with a length that has a sign": (POST + b"Content-Length: +1\r\n\r\nx", "the request has the Content-Length '+1'"),
    "with a length in Arabic digits": (
        POST + "Content-Length: ٣\r\n\r\nabc".encode(),
        "the request has the Content-Length '٣'",
    ),
    "in chunks": (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", Parsed("POST", "/somewhere?x=1", b"abcde")),
    "in chunks with trailers": (
        CHUNKED + b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        Parsed("POST", "/somewhere?x=1", b"abc"),
    ),
    "in chunks with a length": (
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        TRANSFER,
    ),
    "in another coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", TRANSFER),
    "in chunks twice": (
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        TRANSFER,
    ),
    "in chunks, of an old client": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", TRANSFER),
    "with a chunk of no size": (CHUNKED + b"x\r\nabc\r\n0\r\n\r\n", "the size of a chunk is not a number"),
    "with a chunk that is longer than its size": (CHUNKED + b"2\r\nabc\r\n", "a chunk is longer than its size"),
    "with another behind it": (GET + b"\r\nGET /next", Parsed("GET", "/", more=b"GET /next")),
    "with another behind its body": (
        POST + b"Content-Length: 3\r\n\r\nabcGET /next",
        Parsed("POST", "/somewhere?x=1", b"abc", more=b"GET /next"),
    ),
    "of a client that closes": (GET + b"Connection: x, Close\r\n\r\n", Parsed("GET", "/", is_kept=False)),
    "of an old client": (b"GET / HTTP/1.0\r\n\r\n", Parsed("GET", "/", is_kept=False)),
    "of an old client that stays": (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Parsed("GET", "/")),
    "with a target of other letters": ("GET /ä HTTP/1.1\r\nHost: h\r\n\r\n".encode(), Parsed("GET", "/ä")),
    "that is not whole": (GET + b"X: y\r\n", "not complete"),
    "whose body is not whole": (POST + b"Content-Length: 3\r\n\r\nab", "not complete"),
    "without a Host": (b"GET / HTTP/1.1\r\n\r\n", NOT_ONE_HOST),
    "with two Hosts": (GET + b"Host: there\r\n\r\n", NOT_ONE_HOST),
    "with a space before the colon": (GET + b"X : y\r\n\r\n", NO_HEADER),
    "with a folded header": (GET + b"X: y\r\n z\r\n\r\n", NO_HEADER),
    "with a header without a name": (GET + b": y\r\n\r\n", NO_HEADER),
    "with a control character": (GET + b"X: y\x01\r\n\r\n", NO_HEADER),
    "with a zero": (GET + b"X: y\x00\r\n\r\n", NO_HEADER),
    "with a bare line feed": (GET + b"X: y\nZ: z\r\n\r\n", NO_HEADER),
    "with a bare carriage return": (GET + b"X: y\rZ: z\r\n\r\n", NO_HEADER),
    "of another version": (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", NOT_HTTP),
    "without a version": (b"GET /\r\n" + HOST + b"\r\n", NOT_HTTP),
    "with a space in its target": (b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", NOT_HTTP),
    "with a zero in its target": (b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n", NOT_HTTP),
    "in small letters": (b"get / HTTP/1.1\r\n" + HOST + b"\r\n", NOT_HTTP),
    "that is TLS": (b"\x16\x03\x01\x02\x00", NOT_HTTP),
    "with a long header": (
        GET + b"X: " + b"y" * REQUEST_LINE_BYTES + b"\r\n\r\n",
        "a header of the request has too many bytes",
    ),
    "with a long target": (b"GET /" + b"y" * REQUEST_LINE_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n", NOT_HTTP),
}
SHORT = {name: case for name, case in REQUESTS.items() if len(case[0]) < 1000}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_read_or_refused(name: str) -> None:
    data, expected = REQUESTS[name]
    assert parsed([data]) == expected


@pytest.mark.parametrize("name", SHORT)
def test_request_is_the_same_wherever_it_is_cut_in_two(name: str) -> None:
    data, expected = SHORT[name]
    for cut in range(1, len(data)):
        assert parsed([data[:cut], data[cut:]]) == expected, cut


@given(st.sampled_from(sorted(SHORT)), st.lists(st.integers(0, 200)))
def test_request_is_the_same_however_it_is_cut(name: str, cuts: list[int]) -> None:
    data, expected = SHORT[name]
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    assert parsed([data[start:end] for start, end in pairwise(places)]) == expected


def test_headers_of_a_request_are_bounded() -> None:
    line = b"X: yyyyyyyyyyyyyyyyyyyyyyyy\r\n"
    head = GET + line * (REQUEST_HEAD_BYTES // len(line))
    assert (
        parsed([head]) == parsed([head[:1000], head[1000:]]) == "the headers of the request have more than 32768 bytes"
    )


def test_headers_keep_their_lines_and_are_joined_by_name() -> None:
    parser = RequestParser()
    parser.feed(GET + b"X-A:  1 \r\nx-a: 2\r\nY:\r\n\r\n")
    assert parser.lines == [("Host", "here"), ("X-A", "1"), ("x-a", "2"), ("Y", "")]
    assert parser.headers == {"host": "here", "x-a": "1, 2", "y": ""}


def test_a_body_that_is_not_read_is_not_kept() -> None:
    parser = RequestParser()
    parser.feed(POST + b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000)
    assert parser.held_bytes == 50_000
    parser.drop_body()
    parser.feed(b"x" * 50_000 + b"GET")
    assert parser.is_complete
    assert parser.held_bytes == 0
    assert parser.take_body() == []
    assert parser.more == b"GET"


@pytest.mark.parametrize(("name", "value"), [("X", "a\r\nSet-Cookie: b"), ("X\r\nY", "a"), ("X", "a\0"), ("", "a")])
def test_a_header_that_would_begin_another_line_is_not_sent(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="not allowed in headers"):
        response_head(200, [(name, value)])
