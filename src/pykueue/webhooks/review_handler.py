"""The HTTPS handler of reviews, on the paths of the table."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kubemachinery import http_messages
from pykueue.webhooks import facts, limits, review_codec
from pykueue.webhooks.review import (
    AdmissionFacts,
    AdmissionRefusal,
    AdmissionRequest,
    AdmissionResponse,
    Phase,
    WebhookOptions,
    excessive,
    review,
)
from pykueue.webhooks.table import CONVERT, endpoints
from pykueue.webhooks.workers import AtCapacity, WorkerPool, WorkerPools

log = logging.getLogger(__name__)

# An API server waits ten seconds for a webhook, unless it is configured otherwise.
BODY_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1


def handler(choices: WebhookOptions, sources: facts.AdmissionSources) -> http_messages.Handler:
    """Answers reviews for every kind of the table, and conversions.

    The event loop reads requests and facts; bodies are decoded, decided and encoded in the threads of `workers`.
    """
    phases: Final[dict[str, Phase]] = {endpoint.path: endpoint.phase for endpoint in endpoints(choices)}
    lanes: Final = WorkerPools()

    async def answer(request: http_messages.Request) -> http_messages.Response:
        phase = phases.get(request.path)
        if phase is None and request.path != CONVERT:
            return _plain_text(404, f"no webhook is served at {request.path}")
        if request.method != "POST":
            return _plain_text(405, f"{request.path} accepts only POST")
        most = limits.CONVERSION_BYTES_MAX if phase is None else limits.REVIEW_BYTES_MAX
        size = _size(request)
        if size is not None and size > most:
            return _plain_text(413, f"the review has {size} bytes; the maximum is {most} bytes")
        lane = lanes.of(size)
        try:
            if lane is lanes.ordinary:
                # A client that sends slowly must not occupy a place meanwhile.
                body = await _body(request, most)
                with lane.place():
                    return http_messages.Response(body=await reviewed(body, phase, lane))
            with lane.place():
                return http_messages.Response(body=await reviewed(await _body(request, most), phase, lane))
        except AtCapacity:
            busy = _plain_text(429, "too many reviews are in flight")
            busy.headers["Retry-After"] = str(RETRY_SECONDS)
            return busy
        except review_codec.MalformedReview as error:
            return _plain_text(400, str(error))
        except http_messages.BodyTooLarge:
            return _plain_text(413, f"the review has more than {most} bytes, which is the maximum")
        except (http_messages.BodyTooSlow, TimeoutError):
            return _plain_text(408, "the review did not arrive in time")

    async def reviewed(body: bytes, phase: Phase | None, lane: WorkerPool) -> bytes:
        if phase is None:
            return await lane.run(review_codec.convert, body)
        try:
            uid, asked = await lane.run(review_codec.read_admission, body, phase)
        except review_codec.OversizedReview as found:
            return review_codec.admission_answer(found.uid, {}, excessive(found.error))
        try:
            # Facts are read from the caches of informers, which belong to the event loop.
            known = await facts.gather(asked, sources, choices)
            return await lane.run(_decision, uid, asked, known, choices)
        except Exception as error:
            # A bug refuses this one write, and is logged.
            what = f"{asked.object.get('kind')} {asked.namespace}/{asked.name}"
            log.exception("the webhook could not decide about %s", what)
            refusal = AdmissionRefusal(500, "InternalError", f"no decision about {what}: {error!r}")
            return review_codec.admission_answer(uid, {}, AdmissionResponse(refusal=refusal))

    return answer


def _decision(uid: str, asked: AdmissionRequest, known: AdmissionFacts, choices: WebhookOptions) -> bytes:
    return review_codec.admission_answer(uid, asked.object, review(asked, known, choices))


async def _body(request: http_messages.Request, most: int) -> bytes:
    async with asyncio.timeout(BODY_SECONDS):
        return await request.read(most)


def _size(request: http_messages.Request) -> int | None:
    """The Content-Length of the request; None if it is absent or the body is compressed."""
    announced = request.headers.get("content-length", "")
    if request.headers.get("content-encoding", "identity") != "identity" or not announced.isdecimal():
        return None
    return int(announced)


def _plain_text(code: int, message: str) -> http_messages.Response:
    return http_messages.Response(code, message.encode() + b"\n", "text/plain; charset=utf-8")
