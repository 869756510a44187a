"""AdmissionReview and ConversionReview (both v1) as JSON: the request of an API server, and the response."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kubemachinery import patches
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import conversion
from pykueue.webhooks import limits
from pykueue.webhooks.review import AdmissionRefusal, AdmissionRequest, AdmissionResponse, Phase

ADMISSION: Final = "admission.k8s.io/v1"
CONVERSION: Final = "apiextensions.k8s.io/v1"


class MalformedReview(ValueError):
    """The body is not a review of the kind that the path is for."""


class OversizedReview(ValueError):
    """The object under review has an excessive list."""

    def __init__(self, uid: str, error: FieldError) -> None:
        super().__init__(str(error))
        self.uid = uid
        self.error = error


# --- AdmissionReview --------------------------------------------------------------------------------------------------


# Objects are decoded after their lists were measured.
_NOTHING: Final = msgspec.Raw(b"null")


class _Options(msgspec.Struct, frozen=True, rename="camel"):
    field_manager: str = ""


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str = ""
    sub_resource: str = ""
    namespace: str = ""
    name: str = ""
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING
    options: _Options | None = None
    user_info: _UserInfo | None = None


class _AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    request: _Request
    api_version: str = ""
    kind: str = ""


_read_admission: Final = msgspec.json.Decoder(_AdmissionReview).decode
_read_object: Final = msgspec.json.Decoder(Tree | None).decode


def read_admission(body: bytes, phase: Phase) -> tuple[str, AdmissionRequest]:
    """The UID of a review, and its request."""
    found: _AdmissionReview = _decoded(_read_admission, body, ADMISSION, "AdmissionReview")
    asked = found.request
    for encoded in (asked.object, asked.old_object):
        if (error := limits.excess_in_json(encoded)) is not None:
            raise OversizedReview(asked.uid, error)
    return asked.uid, AdmissionRequest(
        phase=phase,
        operation=asked.operation,
        object=_object(asked.object) or {},
        old=_object(asked.old_object),
        namespace=asked.namespace,
        name=asked.name,
        subresource=asked.sub_resource,
        manager=asked.options.field_manager if asked.options is not None else "",
        user=asked.user_info.username if asked.user_info is not None else "",
    )


def _object(encoded: msgspec.Raw) -> Tree | None:
    try:
        decoded: Tree | None = _read_object(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"the object under review is not an object: {error}") from None
    return decoded


def admission_answer(uid: str, before: Tree, response: AdmissionResponse) -> bytes:
    """The response as a review; a change of the object `before` is a JSON patch."""
    answer: Tree = {"uid": uid, "allowed": response.refusal is None}
    if response.refusal is not None:
        answer["status"] = _status(response.refusal)
    elif response.object is not None and (patch := patches.make(before, response.object)):
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    if response.warnings:
        answer["warnings"] = list(response.warnings)
    return msgspec.json.encode({"apiVersion": ADMISSION, "kind": "AdmissionReview", "response": answer})


def _status(refusal: AdmissionRefusal) -> Tree:
    status: Tree = {
        "metadata": {},
        "status": "Failure",
        "code": refusal.code,
        "reason": refusal.reason,
        "message": refusal.message,
    }
    if refusal.causes:
        status["details"] = {"causes": refusal.causes}
    return status


# --- ConversionReview -------------------------------------------------------------------------------------------------


class _ConversionAsked(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    desired_api_version: str = msgspec.field(default="", name="desiredAPIVersion")
    objects: list[msgspec.Raw] = []


class _ConversionReview(msgspec.Struct, frozen=True, rename="camel"):
    request: _ConversionAsked
    api_version: str = ""
    kind: str = ""


_read_conversion: Final = msgspec.json.Decoder(_ConversionReview).decode


def convert(body: bytes) -> bytes:
    """The response to a ConversionReview: every object in the desired version, or none of them and the reason."""
    review: _ConversionReview = _decoded(_read_conversion, body, CONVERSION, "ConversionReview")
    asked = review.request
    wanted, problem, objects = asked.desired_api_version, None, []
    if len(asked.objects) > limits.CONVERSIONS_MAX:
        problem = f"{len(asked.objects)} objects in one review; at most {limits.CONVERSIONS_MAX} are converted at once"
    else:
        objects = [_object(encoded) or {} for encoded in asked.objects]
        problem = next(filter(None, (conversion.problem(tree, wanted) for tree in objects)), None)
    answer: Tree = {"uid": asked.uid, "result": {"status": "Success"}, "convertedObjects": []}
    if problem is None:
        answer["convertedObjects"] = [conversion.convert(tree, wanted) for tree in objects]
    else:
        answer["result"] = {"status": "Failure", "message": problem}
    return msgspec.json.encode({"apiVersion": CONVERSION, "kind": "ConversionReview", "response": answer})


def _decoded(read: Callable[[bytes], Any], body: bytes, api_version: str, kind: str) -> Any:
    try:
        found = read(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedReview(f"the body is not a {kind}: {error}") from None
    if (found.api_version, found.kind) != (api_version, kind):
        raise MalformedReview(f"the body is a {found.api_version} {found.kind}, not a {api_version} {kind}")
    return found
