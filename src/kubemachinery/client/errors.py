"""The errors of a request, by what the caller can do about them.

KubeError
├── Unanswered        no response. `applied`: whether the request may have been carried out
├── Fenced            not sent, because the fence is closed: the sender is no longer the leader
└── ApiError          the server answered with a Status
    ├── NotFound      404: there is no such object
    │   └── NoSuchKind  404 that names no object: the server does not serve the kind in this version
    ├── AlreadyExists 409, reason AlreadyExists
    ├── Conflict      409: the object has changed since it was read
    ├── Expired       410: the requested revision is no longer available; list again
    ├── Invalid       422, with causes
    └── Busy          429, 503, 504: the same request may be sent again later
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubemachinery.errors import ProgramError


class KubeError(ProgramError):
    """A request that failed."""


class Unanswered(KubeError):
    """No response. With `applied` None it is unknown whether it was carried out: read the object before a retry."""

    def __init__(self, message: str, *, applied: bool | None = None) -> None:
        super().__init__(message)
        self.applied = applied


class Fenced(KubeError):
    """A write that was not sent, because its fence was closed."""


class ApiError(KubeError):
    """The server refused the request with a Status."""

    def __init__(self, code: int, reason: str, message: str, *, causes: tuple[str, ...] = (), retry_after: float = 0.0):
        super().__init__(message or f"{code} {reason}")
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after


class NotFound(ApiError):
    pass


class NoSuchKind(NotFound):
    """The server does not serve the resource: the response is a plain page, or a Status that names no object."""


class AlreadyExists(ApiError):
    pass


class Conflict(ApiError):
    pass


class Expired(ApiError):
    pass


class Invalid(ApiError):
    pass


class Busy(ApiError):
    pass


_BY_REASON: Final[dict[str, type[ApiError]]] = {
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "Invalid": Invalid,
    "TooManyRequests": Busy,
    "ServiceUnavailable": Busy,
    "ServerTimeout": Busy,
    "Timeout": Busy,
}
_BY_CODE: Final[dict[int, type[ApiError]]] = {
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Busy,
    503: Busy,
    504: Busy,
}


class _Cause(msgspec.Struct, frozen=True):
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    causes: list[_Cause] = []
    retry_after_seconds: float = 0.0


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def from_response(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """The error of a response. A body that is no Status, such as a page of a proxy, is quoted."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = _Status(message=body[:200].decode(errors="replace").strip())
    return _error(status, code, retry_after)


def from_status(status: Any) -> ApiError:
    """The error in an ERROR event of a watch."""
    try:
        return _error(msgspec.convert(status, _Status), 0, "")
    except msgspec.ValidationError:
        return ApiError(500, "InternalError", f"the watch ended with {status!r}"[:200])


def _error(status: _Status, code: int, retry_after: str) -> ApiError:
    details = status.details or _Details()
    code = code or status.code
    wait = float(retry_after) if retry_after.isdigit() else details.retry_after_seconds
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(code, ApiError)
    if kind is NotFound and not details.name:
        kind = NoSuchKind
    causes = tuple(f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in details.causes)
    return kind(code, status.reason, status.message, causes=causes, retry_after=wait)
