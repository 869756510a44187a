"""The functions that templates may call: Go's own and the two that kubectl adds.

A function is handed values: what a field that is missing gives is `None`, like `nil`. What it cannot do is a
ValueError.
"""

from __future__ import annotations

import base64
import binascii
import html
import operator
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from pykueue.cli.gotemplate import verbs
from pykueue.cli.gotemplate.verbs import type_name


class Function(NamedTuple):
    call: Callable[..., Any]
    least: int
    most: int | None = None  # None: as many as there are
    first_is_text: bool = False
    # Handed one iterator, which works values out as they are asked for.
    is_lazy: bool = False


def _first(*, is_true: bool) -> Callable[[Iterator[Any]], Any]:
    """`or` and `and`: the first value that is true, or that is not, and else the last; those after it are not looked
    at. What is empty, zero or nothing is not true."""

    def first(values: Iterator[Any]) -> Any:
        value = None
        for value in values:
            if bool(value) is is_true:
                break
        return value

    return first


# --- Into things ------------------------------------------------------------------------------------------------------


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(bytes_: bytes) -> str:
    return bytes_.decode("utf-8", "surrogateescape")


def _len(item: Any) -> int:
    match item:
        case str():
            return len(_bytes(item))
        case list() | dict():
            return len(item)
    raise ValueError(f"{type_name(item)} has no length")


def _index(item: Any, *places: Any) -> Any:
    if item is None:
        raise ValueError(f"nothing can be found in {type_name(item)}")
    for place in places:
        match item:
            case dict():
                if not isinstance(place, str):
                    raise ValueError(f"the keys of a map are texts, and not {type_name(place)}")
                item = item.get(place)
            case list() | str():
                held = _bytes(item) if isinstance(item, str) else item
                item = held[_place(place, len(held) - 1)]
            case _:
                raise ValueError(f"nothing can be found in {type_name(item)}")
    return item


def _place(place: Any, last: int) -> int:
    if type(place) is not int:
        raise ValueError(f"places are numbers, and not {type_name(place)}")
    if not 0 <= place <= last:
        raise ValueError(f"there is no place {place}")
    return place


def _slice(item: Any, *places: Any) -> Any:
    if not isinstance(item, str | list):
        raise ValueError(f"{type_name(item)} cannot be sliced")
    if len(places) > (2 if isinstance(item, str) else 3):
        raise ValueError("too many places")
    held = _bytes(item) if isinstance(item, str) else item
    bounds = [_place(place, len(held)) for place in places]
    if bounds != sorted(bounds):
        raise ValueError(f"a slice cannot go from {bounds[0]} to {bounds[-1]}")
    part = slice(bounds[0] if bounds else 0, bounds[1] if len(bounds) > 1 else None)
    return _text(held[part]) if isinstance(held, bytes) else held[part]


def _exists(item: Any, *places: Any) -> bool:
    """Whether something is at these places. Without places the answer is yes, in kubectl as well."""
    try:
        return not places or _index(item, *places) is not None
    except ValueError:
        return False


# --- Comparing --------------------------------------------------------------------------------------------------------


def _eq(first: Any, *others: Any) -> bool:
    """Whether it equals one of the others."""
    return any(_is_equal(first, other) for other in others)


def _is_equal(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    if type(first) is not type(second) or isinstance(first, list | dict):
        raise ValueError(f"{type_name(first)} and {type_name(second)} cannot be compared")
    return bool(first == second)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(first: Any, second: Any) -> bool:
        if type(first) is not type(second) or not isinstance(first, str | int | float) or isinstance(first, bool):
            raise ValueError(f"{type_name(first)} and {type_name(second)} have no order")
        return compare(first, second)

    return compared


# --- Text -------------------------------------------------------------------------------------------------------------


def _as_text(values: tuple[Any, ...]) -> str:
    return verbs.joined(["<no value>" if value is None else value for value in values])


def _html(*values: Any) -> str:
    escaped = html.escape(_as_text(values), quote=True)
    return escaped.replace("&quot;", "&#34;").replace("&#x27;", "&#39;").replace("\0", "\ufffd")


_IN_SCRIPTS: Final = {"\\": "\\\\", "'": "\\'", '"': '\\"'}


def _js(*values: Any) -> str:
    def said(letter: str) -> str:
        if letter in _IN_SCRIPTS:
            return _IN_SCRIPTS[letter]
        return f"\\u{ord(letter):04X}" if letter in "<>&=" or not letter.isprintable() else letter

    return "".join(map(said, _as_text(values)))


def _urlquery(*values: Any) -> str:
    return urllib.parse.quote_plus(_bytes(_as_text(values)))


def _base64decode(text: str) -> str:
    try:
        return _text(base64.b64decode(text.translate({10: None, 13: None}), validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("the text is no base64") from None


def _call(item: Any, *arguments: Any) -> Any:
    """What is read from JSON holds no functions, so there is nothing that could be called."""
    raise ValueError(f"{type_name(item)} is no function")


FUNCTIONS: Final[dict[str, Function]] = {
    "and": Function(_first(is_true=False), 1, is_lazy=True),
    "or": Function(_first(is_true=True), 1, is_lazy=True),
    "not": Function(operator.not_, 1, 1),
    "len": Function(_len, 1, 1),
    "index": Function(_index, 1),
    "slice": Function(_slice, 1),
    "exists": Function(_exists, 1),
    "call": Function(_call, 1),
    "eq": Function(_eq, 2),
    "ne": Function(lambda first, second: not _is_equal(first, second), 2, 2),
    "lt": Function(_ordered(operator.lt), 2, 2),
    "le": Function(_ordered(operator.le), 2, 2),
    "gt": Function(_ordered(operator.gt), 2, 2),
    "ge": Function(_ordered(operator.ge), 2, 2),
    "print": Function(lambda *values: verbs.joined(values), 0),
    "println": Function(lambda *values: " ".join(map(verbs.plain, values)) + "\n", 0),
    "printf": Function(lambda form, *values: verbs.formatted(form, values), 1, first_is_text=True),
    "html": Function(_html, 0),
    "js": Function(_js, 0),
    "urlquery": Function(_urlquery, 0),
    "base64decode": Function(_base64decode, 1, 1, first_is_text=True),
}
