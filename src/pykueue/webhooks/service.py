"""The door over HTTPS: reviews come in on the paths of the table, answers go out."""

from __future__ import annotations

import logging
from typing import Final

from pykueue import serving
from pykueue.webhooks import facts, wire
from pykueue.webhooks.review import AdmissionRequest, AdmissionResponse, Choices, Phase, Refusal, review
from pykueue.webhooks.table import CONVERT, endpoints

log = logging.getLogger(__name__)

# An API server takes objects of 3 MiB at most, and posts the old one beside the new.
BODY_BYTES_MAX: Final = 7 * 1024 * 1024


def handler(choices: Choices, sources: facts.Sources) -> serving.Handler:
    """Answers reviews for every kind of the table, and conversions."""
    phases: Final[dict[str, Phase]] = {endpoint.path: endpoint.phase for endpoint in endpoints(choices)}

    async def answer(request: serving.Request) -> serving.Response:
        phase = phases.get(request.path)
        if phase is None and request.path != CONVERT:
            return _plainly(404, f"nobody is asked at {request.path}")
        if request.method != "POST":
            return _plainly(405, f"{request.path} takes reviews by POST")
        try:
            body = await request.read(BODY_BYTES_MAX)
            if phase is None:
                return serving.Response(body=wire.convert(body))
            uid, asked = wire.read_admission(body, phase)
        except wire.Unreadable as why:
            return _plainly(400, str(why))
        except serving.BodyTooLarge:
            return _plainly(413, f"a review has at most {BODY_BYTES_MAX} bytes")
        except serving.BodyTooSlow:
            return _plainly(408, "the review did not arrive in time")
        return serving.Response(body=wire.admission_answer(uid, asked, await decide(asked, sources, choices)))

    return answer


async def decide(request: AdmissionRequest, sources: facts.Sources, choices: Choices) -> AdmissionResponse:
    """Read the facts and decide. What goes wrong on the way is a refusal of this one write, and a line in the log."""
    try:
        return review(request, await facts.gather(request, sources, choices), choices)
    except Exception as error:
        what = f"{request.object.get('kind')} {request.namespace}/{request.name}"
        log.exception("the webhook could not decide about %s", what)
        return AdmissionResponse(refusal=Refusal(500, "InternalError", f"no decision about {what}: {error!r}"))


def _plainly(code: int, message: str) -> serving.Response:
    return serving.Response(code, message.encode() + b"\n", "text/plain; charset=utf-8")
