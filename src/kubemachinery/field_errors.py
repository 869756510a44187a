"""Field errors: the result type of every validation."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class ErrorType(StrEnum):
    """The types of field error, spelt as the causes of a Kubernetes `Status`."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    NOT_SUPPORTED = "FieldValueNotSupported"
    DUPLICATE = "FieldValueDuplicate"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_FOUND = "FieldValueNotFound"
    INTERNAL = "InternalError"


# The text between the path and the value, as kubectl users know it.
_TITLES: Final = {
    ErrorType.INVALID: "Invalid value",
    ErrorType.REQUIRED: "Required value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.TYPE_INVALID: "Invalid value",
    ErrorType.NOT_FOUND: "Not found",
    ErrorType.INTERNAL: "Internal error",
}

_WITHOUT_VALUE: Final = frozenset({ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL})


def _shown(value: object) -> str:
    """The value as JSON. An integer beyond 64 bits is JSON too, although the encoder does not write it."""
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, TypeError, ValueError, RecursionError):
        return repr(value)


class FieldError(msgspec.Struct, frozen=True):
    """One invalid field: its path (`spec.podSets[0].count`), the error type, the reason, and the value found."""

    path: str
    type: ErrorType
    message: str
    value: object = msgspec.UNSET

    @property
    def cause(self) -> str:
        """The message without the path, as in `details.causes[].message`."""
        title = _TITLES[self.type]
        if self.value is not msgspec.UNSET and self.type not in _WITHOUT_VALUE:
            title = f"{title}: {_shown(self.value)}"
        return f"{title}: {self.message}" if self.message else title

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}" if self.path else self.cause
