"""Constructors of field errors, one per error type: `field_error.required("spec.name", "must be set")`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.meta import Messages

NOT_NEGATIVE: Final = "must not be negative"
IMMUTABLE: Final = "must not change"


def invalid(path: str, value: object, why: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, why, value)


def invalid_each(path: str, value: object, messages: Messages) -> Iterable[FieldError]:
    return [invalid(path, value, message) for message in messages]


def immutable(path: str, value: object) -> FieldError:
    return invalid(path, value, IMMUTABLE)


def required(path: str, why: str) -> FieldError:
    return FieldError(path, ErrorType.REQUIRED, why)


def forbidden(path: str, why: str) -> FieldError:
    return FieldError(path, ErrorType.FORBIDDEN, why)


def duplicate(path: str, value: object, why: str = "") -> FieldError:
    return FieldError(path, ErrorType.DUPLICATE, why, value)


def too_long(path: str, why: str) -> FieldError:
    return FieldError(path, ErrorType.TOO_LONG, why)


def unknown(path: str, value: object) -> FieldError:
    """A reference to an object that does not exist."""
    return FieldError(path, ErrorType.NOT_FOUND, "", value)


def unsupported(path: str, value: object, supported: Iterable[str], none: str = "no value is supported") -> FieldError:
    """A value that is not among the supported ones; `none` is the reason where there are none."""
    choices = ", ".join(f'"{choice}"' for choice in sorted(supported))
    why = f"must be one of {choices}" if choices else none
    return FieldError(path, ErrorType.NOT_SUPPORTED, why, value)
