"""Values that may be absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubemachinery.cel.errors import CelError
from kubemachinery.cel.values import NONE, Duration, Optional, Timestamp, Value, some


def _is_zero(value: Value) -> bool:
    if isinstance(value, Duration | Timestamp):
        return value.nanoseconds == 0
    return value is None or (isinstance(value, bool | int | float | str | bytes | list | dict) and not value)


def _value(optional: Optional) -> Value:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "optional::of(T) -> optional<T>": some,
    "optional::none() -> optional<T>": lambda: NONE,
    "optional::ofNonZeroValue(T) -> optional<T>": lambda value: NONE if _is_zero(value) else some(value),
    "optional<T>.hasValue() -> bool": lambda optional: optional.present,
    "optional<T>.value() -> T": _value,
    "optional<T>.or(optional<T>) -> optional<T>": lambda optional, other: optional if optional.present else other,
    "optional<T>.orValue(T) -> T": lambda optional, other: optional.value if optional.present else other,
}
