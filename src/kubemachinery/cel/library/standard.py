"""Operators and conversions of the language itself."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from kubemachinery.cel.errors import CelError
from kubemachinery.cel.library.times import duration_text, parse_duration, parse_timestamp, timestamp_text
from kubemachinery.cel.values import Duration, Timestamp, UInt, Value, compare, type_of

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> UInt:
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise CelError("unsigned integer overflow")


def _quotient(left: int, right: int) -> int:
    """Division that drops the fraction, as CEL has it; Python's rounds down."""
    if right == 0:
        raise CelError("division by zero")
    return -(-left // right) if (left < 0) is not (right < 0) else left // right


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    return int(left) - _quotient(int(left), int(right)) * int(right)


def _float_quotient(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _on_ints(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda left, right: checked_int(function(left, right))


def _on_uints(function: Callable[[int, int], int]) -> Callable[[int, int], UInt]:
    return lambda left, right: checked_uint(function(int(left), int(right)))


def _to_int(value: Value) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", value):
            raise CelError(f"cannot read {value!r} as an int")
        return checked_int(int(value))
    if isinstance(value, float) and not INT_MIN <= value < 2.0**63:
        raise CelError("integer overflow")
    return checked_int(int(value))


def _to_uint(value: Value) -> UInt:
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9]{1,30}", value):
            raise CelError(f"cannot read {value!r} as a uint")
        return checked_uint(int(value))
    if isinstance(value, float) and not 0 <= value < 2.0**64:
        raise CelError("unsigned integer overflow")
    return checked_uint(int(value))


_DOUBLE: Final = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|inf|infinity|nan)", re.I
)


def _to_double(value: str) -> float:
    if not _DOUBLE.fullmatch(value):
        raise CelError(f"cannot read {value!r} as a double")
    return float(value)


_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _to_bool(value: str) -> bool:
    if value not in _BOOLS:
        raise CelError(f"cannot read {value!r} as a bool")
    return _BOOLS[value]


def double_text(value: float) -> str:
    """The shortest digits that read back as the same double; with an exponent from a million on, as Go prints it."""
    if not math.isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    text = "".join(map(str, digits))
    power = len(text) + exponent - 1
    minus = "-" if sign else ""
    if power < -4 or power >= 6:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return minus + format(Decimal(text).scaleb(exponent), "f")


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise CelError("the bytes are not UTF-8") from error


def _encode(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


_NUMBERS: Final = ("int", "uint", "double")
_COMPARABLE: Final = [
    *[(left, right) for left in _NUMBERS for right in _NUMBERS],
    *[(name, name) for name in ("bool", "string", "bytes", "timestamp", "duration")],
]
_ORDERS: Final[dict[str, Callable[[int, int], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


def _order(name: str) -> Callable[[Value, Value], bool]:
    holds = _ORDERS[name]

    return lambda left, right: holds(compare(left, right), 0)


def _identity(value: Value) -> Value:
    return value


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "!_(bool) -> bool": operator.not_,
    "-_(int) -> int": lambda value: checked_int(-value),
    "-_(double) -> double": operator.neg,
    "_+_(int, int) -> int": _on_ints(operator.add),
    "_-_(int, int) -> int": _on_ints(operator.sub),
    "_*_(int, int) -> int": _on_ints(operator.mul),
    "_/_(int, int) -> int": _on_ints(_quotient),
    "_%_(int, int) -> int": _on_ints(_remainder),
    "_+_(uint, uint) -> uint": _on_uints(operator.add),
    "_-_(uint, uint) -> uint": _on_uints(operator.sub),
    "_*_(uint, uint) -> uint": _on_uints(operator.mul),
    "_/_(uint, uint) -> uint": _on_uints(_quotient),
    "_%_(uint, uint) -> uint": _on_uints(_remainder),
    "_+_(double, double) -> double": operator.add,
    "_-_(double, double) -> double": operator.sub,
    "_*_(double, double) -> double": operator.mul,
    "_/_(double, double) -> double": _float_quotient,
    "_+_(string, string) -> string": operator.add,
    "_+_(bytes, bytes) -> bytes": operator.add,
    **{f"{name}({left}, {right}) -> bool": _order(name) for name in _ORDERS for left, right in _COMPARABLE},
    "size(string) -> int": len,
    "size(bytes) -> int": len,
    "size(list<T>) -> int": len,
    "size(map<K, V>) -> int": len,
    "string.size() -> int": len,
    "bytes.size() -> int": len,
    "list<T>.size() -> int": len,
    "map<K, V>.size() -> int": len,
    "type(T) -> type": type_of,
    "dyn(T) -> dyn": _identity,
    "bool(bool) -> bool": _identity,
    "bool(string) -> bool": _to_bool,
    "int(int) -> int": _identity,
    "int(uint) -> int": _to_int,
    "int(double) -> int": _to_int,
    "int(string) -> int": _to_int,
    "int(timestamp) -> int": lambda value: value.nanoseconds // 10**9,
    "int(duration) -> int": lambda value: value.nanoseconds,
    "uint(uint) -> uint": _identity,
    "uint(int) -> uint": _to_uint,
    "uint(double) -> uint": _to_uint,
    "uint(string) -> uint": _to_uint,
    "double(double) -> double": _identity,
    "double(int) -> double": float,
    "double(uint) -> double": float,
    "double(string) -> double": _to_double,
    "string(string) -> string": _identity,
    "string(bool) -> string": lambda value: "true" if value else "false",
    "string(int) -> string": str,
    "string(uint) -> string": lambda value: str(int(value)),
    "string(double) -> string": double_text,
    "string(bytes) -> string": _bytes_text,
    "string(timestamp) -> string": timestamp_text,
    "string(duration) -> string": duration_text,
    "bytes(bytes) -> bytes": _identity,
    "bytes(string) -> bytes": _encode,
    "timestamp(timestamp) -> timestamp": _identity,
    "timestamp(string) -> timestamp": parse_timestamp,
    "timestamp(int) -> timestamp": lambda value: Timestamp(value * 10**9),
    "duration(duration) -> duration": _identity,
    "duration(string) -> duration": parse_duration,
    "duration(int) -> duration": Duration,
}
