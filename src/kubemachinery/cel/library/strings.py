"""Text. Positions and sizes count code points."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kubemachinery.cel.errors import CelError, no_such_overload
from kubemachinery.cel.library.standard import double_text
from kubemachinery.cel.library.times import duration_text, timestamp_text
from kubemachinery.cel.values import Duration, Timestamp, Value

# No single function makes a longer text than this; a request is limited to less.
TEXT_MAX: Final = 4 * 1024 * 1024

_ASCII_LOWER: Final = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})
_ASCII_UPPER: Final = str.maketrans({chr(code + 32): chr(code) for code in range(ord("A"), ord("Z") + 1)})
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise CelError(f"index out of range: {start}")
    return text.find(part, start) if part else start


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is not None and start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return len(text) if start is None else start
    return text.rfind(part) if start is None else text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    if start > end:
        raise CelError(f"invalid substring range: start {start}, end {end}")
    return text[start:end]


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    times = text.count(old) if limit < 0 else min(limit, text.count(old))
    if len(text) + times * (len(new) - len(old)) > TEXT_MAX:
        raise CelError("the text becomes too long")
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if not separator:
        chars = list(text)
        return chars if limit < 0 or len(chars) <= limit else [*chars[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _join(parts: list[Value], separator: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise no_such_overload("join")
    if sum(map(len, parts)) + len(separator) * len(parts) > TEXT_MAX:
        raise CelError("the text becomes too long")
    return separator.join(parts)


_QUOTED: Final = {
    **{ord(char): f"\\{name}" for char, name in zip("\a\b\f\n\r\t\v", "abfnrtv", strict=True)},
    ord("\\"): "\\\\",
    ord('"'): '\\"',
}


def quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


# --- format -------------------------------------------------------------------------------------------------------

_CLAUSE: Final = re.compile(r"%(?:(%)|(?:\.([0-9]{1,3}))?(.)?)", re.DOTALL)


_NOTHING: Final = object()


def _format(template: str, args: list[Value]) -> str:
    remaining = iter(args)

    def clause(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        write = _CLAUSES.get(match[3] or "")
        if write is None:
            raise CelError(f"unrecognized formatting clause {match[3] or ''!r}")
        try:
            value = next(remaining)
        except StopIteration:
            raise CelError("there are more formatting clauses than arguments") from None
        return write(value, None if match[2] is None else int(match[2]))

    text = _CLAUSE.sub(clause, template)
    if next(remaining, _NOTHING) is not _NOTHING:
        raise CelError("there are more arguments than formatting clauses")
    if len(text) > TEXT_MAX:
        raise CelError("the text becomes too long")
    return text


def _as_text(value: Value, precision: int | None = None, *, within: bool = False) -> str:
    match value:
        case str():
            return quote(value) if within else value
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case list():
            return f"[{', '.join(_as_text(item, within=True) for item in value)}]"
        case dict():
            entries = [(_as_text(key, within=True), _as_text(item, within=True)) for key, item in value.items()]
            return "{" + ", ".join(f"{key}:{item}" for key, item in sorted(entries)) + "}"
        case _:
            return _scalar_text(value)


def _scalar_text(value: Value) -> str:
    match value:
        case float():
            return double_text(value)
        case int():
            return str(int(value))
        case bytes():
            return value.decode("utf-8", "replace")
        case Timestamp():
            return timestamp_text(value)
        case Duration():
            return duration_text(value)
        case _:
            return str(value)


def _as_decimal(value: Value, precision: int | None) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CelError("%d takes an integer")
    return str(int(value))


def _as_fixed(value: Value, precision: int | None) -> str:
    return _in_digits(value, f".{6 if precision is None else precision}f")


def _as_scientific(value: Value, precision: int | None) -> str:
    """As kube-apiserver prints it: six digits, and an exponent of at least two, raised."""
    mantissa, _, exponent = _in_digits(value, ".6e").partition("e")
    return f"{mantissa}×10{exponent.removeprefix('+').translate(_RAISED)}" if exponent else mantissa


_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _in_digits(value: Value, spec: str) -> str:
    if not isinstance(value, float):
        raise CelError("the formatting clause takes a double")
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return format(value, spec)


def _in_base(spec: str, *, of_text: bool = False) -> Callable[[Value, int | None], str]:
    def write(value: Value, precision: int | None) -> str:
        if isinstance(value, bool):
            if spec != "b":
                raise CelError(f"%{spec} does not take a bool")
            return "1" if value else "0"
        if isinstance(value, int):
            return format(int(value), spec)
        if of_text and isinstance(value, str | bytes):
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            return data.hex() if spec == "x" else data.hex().upper()
        raise CelError(f"%{spec} does not take such a value")

    return write


_CLAUSES: Final[dict[str, Callable[[Value, int | None], str]]] = {
    "s": _as_text,
    "d": _as_decimal,
    "f": _as_fixed,
    "e": _as_scientific,
    "b": _in_base("b"),
    "o": _in_base("o"),
    "x": _in_base("x", of_text=True),
    "X": _in_base("X", of_text=True),
}

FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "string.contains(string) -> bool": lambda text, part: part in text,
    "string.startsWith(string) -> bool": str.startswith,
    "string.endsWith(string) -> bool": str.endswith,
    "string.charAt(int) -> string": _char_at,
    "string.indexOf(string) -> int": _index_of,
    "string.indexOf(string, int) -> int": _index_of,
    "string.lastIndexOf(string) -> int": _last_index_of,
    "string.lastIndexOf(string, int) -> int": _last_index_of,
    "string.lowerAscii() -> string": lambda text: text.translate(_ASCII_LOWER),
    "string.upperAscii() -> string": lambda text: text.translate(_ASCII_UPPER),
    "string.replace(string, string) -> string": _replace,
    "string.replace(string, string, int) -> string": _replace,
    "string.split(string) -> list<string>": _split,
    "string.split(string, int) -> list<string>": _split,
    "string.substring(int) -> string": _substring,
    "string.substring(int, int) -> string": _substring,
    "string.trim() -> string": lambda text: text.strip(_SPACE),
    "list<string>.join() -> string": _join,
    "list<string>.join(string) -> string": _join,
    "string.format(list<dyn>) -> string": _format,
    "strings::quote(string) -> string": quote,
}
