"""Answers on their way out: documents and objects in the form that was asked for, and every failure as a Status."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Any, Final

from kubemachinery import status
from kubemachinery.http_server import BodyTooLarge, BodyTooSlow, Request, Response
from kubemachinery.serving.negotiation import Representation
from kubeserver.protocol import bodies

log = logging.getLogger(__name__)

GZIP_BYTES: Final = 128 * 1024
WARNING_RUNES: Final = 256
WARNINGS_BYTES: Final = 4 * 1024


def json(tree: Any) -> Response:
    return Response(body=bodies.encode(tree))


async def formed(body: bytes, form: Representation, code: int = 200) -> Response:
    if form.yaml:
        # Off the loop: it takes a hundred times as long as JSON.
        body = await asyncio.to_thread(bodies.to_yaml, body)
    return Response(status=code, body=body, content_type=form.content_type)


def only_get(request: Request, what: str = "") -> None:
    """Refuse everything else where kube-apiserver does: of resources and of discovery, not even HEAD is known."""
    if request.method != "GET":
        raise status.method_not_allowed(request.method, what or request.path[:200])


def only_reading(request: Request, what: str = "") -> None:
    """Refuse to change what can only be looked at."""
    if request.method != "HEAD":
        only_get(request, what)


def failure(request: Request, error: Exception) -> Response:
    """Every failure as a Status. What nobody foresaw is logged, and is the only 500 there is."""
    headers: dict[str, str] = {}
    match error:
        case status.StatusError():
            told = error
        case BodyTooLarge():
            # The rest of the body is not read, so the connection cannot be used again.
            told, headers = status.too_large(bodies.BODY_BYTES), {"Connection": "close"}
        case BodyTooSlow():
            told = status.StatusError(408, "Timeout", "the body of the request did not arrive in time")
            headers = {"Connection": "close"}
        case ConnectionError():
            told = status.bad_request("the connection broke before the request was complete")
        case _:
            log.error("%s %s failed", request.method, request.path[:200], exc_info=error)
            told = status.internal("the request met an error in the server; its log has the details")
    return Response(status=told.code, body=told.encode(), headers={**told.headers, **headers})


def warning_header(warnings: list[str]) -> str:
    """`299 - "text"`, each bounded, all of them bounded, and nothing in them that could start another header."""
    shown: list[str] = []
    size = 0
    for text in dict.fromkeys(warnings):
        cleaned = "".join(c for c in text[:WARNING_RUNES] if c.isprintable() and ord(c) < 0x10000)
        quoted = cleaned.replace("\\", "\\\\").replace('"', '\\"').encode("latin-1", "replace").decode("latin-1")
        size += len(quoted) + 10
        if size > WARNINGS_BYTES:
            break
        shown.append(f'299 - "{quoted}"')
    return ", ".join(shown)


async def compressed(request: Request, response: Response) -> Response:
    """A large answer, packed for whoever can unpack it."""
    if response.stream is not None or len(response.body) < GZIP_BYTES:
        return response
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    # Off the loop: a megabyte takes long enough to be felt by everybody else.
    response.body = await asyncio.to_thread(gzip.compress, response.body, 1)
    response.headers["Content-Encoding"] = "gzip"
    return response
