"""Every failure as a `v1 Status`: the code, the reason that clients evaluate, and one cause for each field.

StatusError
├── made by the functions below, one for each row of the contract: not_found, conflict, invalid ...
└── raised anywhere between the socket and the store, encoded as a response in one place
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kubemachinery.field_errors import FieldError

Tree = dict[str, Any]


class StatusError(Exception):
    """A failed request. `code` and `reason` are for programs, `message` is for users."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    def tree(self) -> Tree:
        body: Tree = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body

    def encode(self) -> bytes:
        return msgspec.json.encode(self.tree())


def success(details: Mapping[str, Any] | None = None) -> Tree:
    """The Status that a finished deletion is answered with."""
    body: Tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = dict(details)
    return body


def _of(group: str, kind: str, name: str = "", **more: Any) -> Tree:
    details: Tree = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in details.items() if value}


def _titled(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(
        401, "Unauthorized", "Unauthorized", headers={"WWW-Authenticate": 'Bearer realm="kubernetes-embedded"'}
    )


def forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> StatusError:
    subject = f'{_titled(group, plural)} "{name}"' if plural else f'"{name}"' if name else "request"
    return StatusError(
        403, "Forbidden", f"{subject} is forbidden: {why}", details=_of(group, plural, name, causes=list(causes))
    )


def not_found(group: str, plural: str, name: str) -> StatusError:
    return StatusError(
        404, "NotFound", f'{_titled(group, plural)} "{name}" not found', details=_of(group, plural, name)
    )


def no_such_path(path: str, why: str = "") -> StatusError:
    message = why or f"the server could not find the requested resource: {path}"
    return StatusError(404, "NotFound", message, details={"causes": [{"reason": "UnexpectedServerResponse"}]})


def method_not_allowed(method: str, what: str) -> StatusError:
    return StatusError(405, "MethodNotAllowed", f"{method} is not supported on {what}")


def not_acceptable() -> StatusError:
    return StatusError(
        406, "NotAcceptable", "only the following media types are accepted: application/json, application/yaml"
    )


def already_exists(group: str, plural: str, name: str) -> StatusError:
    return StatusError(
        409, "AlreadyExists", f'{_titled(group, plural)} "{name}" already exists', details=_of(group, plural, name)
    )


def generated_name_taken(group: str, plural: str, name: str) -> StatusError:
    error = already_exists(group, plural, name)
    error.message += ", the server was not able to generate a unique name for the object"
    error.details["retryAfterSeconds"] = 1
    error.headers["Retry-After"] = "1"
    return error


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {_titled(group, plural)} "{name}": {why}',
        details=_of(group, plural, name),
    )


def apply_conflict(message: str, causes: Sequence[Mapping[str, str]]) -> StatusError:
    return StatusError(409, "Conflict", message, details={"causes": list(causes)})


def modified(group: str, plural: str, name: str) -> StatusError:
    """Optimistic concurrency conflict: another write came first."""
    return conflict(
        group,
        plural,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"the request is larger than the {limit} bytes that are accepted")


def unsupported_media_type(given: str, accepted: Sequence[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format ({given or 'none'}) - accepted media types include: "
        + ", ".join(accepted),
    )


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422: one cause for each field. `details.kind` is the Kind here, where the other errors have the plural."""
    sentences = [str(error) for error in errors]
    message = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]" if sentences else "unknown"
    causes = [{"reason": error.type.value, "message": error.cause, "field": error.path} for error in errors]
    titled = f"{kind}.{group}" if group else kind
    return StatusError(
        422, "Invalid", f'{titled} "{name}" is invalid: {message}', details=_of(group, kind, name, causes=causes)
    )


def too_many_requests(why: str, retry_seconds: int = 1) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        why,
        details={"retryAfterSeconds": retry_seconds},
        headers={"Retry-After": str(retry_seconds)},
    )


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}")


def unavailable(why: str, retry_seconds: int | None = None) -> StatusError:
    """503. A retry hint is given only where the very same request is safe to repeat."""
    headers = {"Retry-After": str(retry_seconds)} if retry_seconds else {}
    details = {"retryAfterSeconds": retry_seconds} if retry_seconds else {}
    return StatusError(503, "ServiceUnavailable", why, details=details, headers=headers)


def revision_too_large(asked: int, current: int) -> StatusError:
    """504: the client has seen a revision that this server has not reached yet."""
    return StatusError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"Retry-After": "1"},
    )


def timeout(why: str) -> StatusError:
    return StatusError(504, "Timeout", f"Timeout: {why}")
