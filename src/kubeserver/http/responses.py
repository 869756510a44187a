"""Responses: documents and objects in the representation that was asked for, and every failure as a Status."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import Any, Final

from kubemachinery import status
from kubemachinery.http_messages import BodyTooLarge, BodyTooSlow, Request, Response
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
        # In a thread: it takes a hundred times as long as JSON.
        body = await asyncio.to_thread(bodies.to_yaml, body)
    return Response(status=code, body=body, content_type=form.content_type)


def only_get(request: Request, what: str = "") -> None:
    """Refuse every method but GET, also HEAD, where kube-apiserver does: for resources and discovery."""
    if request.method != "GET":
        raise status.method_not_allowed(request.method, what or request.path[:200])


def only_reading(request: Request, what: str = "") -> None:
    """Refuse methods that write where a path is read-only."""
    if request.method != "HEAD":
        only_get(request, what)


def failure(request: Request, error: Exception) -> Response:
    """Return every failure as a Status. An unexpected exception is logged, and is the only source of code 500."""
    headers: dict[str, str] = {}
    match error:
        case status.StatusError():
            failed = error
        case BodyTooLarge():
            # The rest of the body is not read, so the connection cannot be used again.
            failed, headers = status.too_large(bodies.BODY_BYTES), {"Connection": "close"}
        case BodyTooSlow():
            failed = status.StatusError(408, "Timeout", "the body of the request did not arrive in time")
            headers = {"Connection": "close"}
        case ConnectionError():
            failed = status.bad_request("the connection broke before the request was complete")
        case _:
            log.error("%s %s failed", request.method, request.path[:200], exc_info=error)
            failed = status.internal("the request met an error in the server; its log has the details")
    return Response(status=failed.code, body=failed.encode(), headers={**failed.headers, **headers})


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
    """Compress a large response for a client that accepts gzip."""
    if response.stream is not None or len(response.body) < GZIP_BYTES:
        return response
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    # In a thread: a megabyte takes long enough to delay other requests.
    response.body = await asyncio.to_thread(gzip.compress, response.body, 1)
    response.headers["Content-Encoding"] = "gzip"
    return response
