"""From bytes to typed values and back.

A typed value is for reading: it knows the fields this program looks at, and decoding one is fast because the rest is
skipped. Who changes an object that others write to as well sends a patch of the difference (`patches`), or the tree it
came as: what no type names would be lost on the way through one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

Tree: TypeAlias = dict[str, Any]
S = TypeVar("S", bound=msgspec.Struct)


class DecodeError(ValueError):
    """Bytes that are not the object they should be. The message says where and why in one sentence."""


# --- Decoding ---------------------------------------------------------------------------------------------------------


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _unreadable(error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return DecodeError("nested more deeply than any object of the API")
    return DecodeError(f"not JSON: {error}")


@lru_cache(maxsize=256)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(data: bytes | str, type_: type[S]) -> S:
    """The object in `data`, seen as `type_`. Whether it says so itself is not asked."""
    try:
        return cast(S, _decoder(type_).decode(data))
    except msgspec.ValidationError:
        # Kubernetes treats null as absent, and clients write it in the oddest places. That is rare enough to be slow.
        return from_tree(tree(data), type_)
    except _UNREADABLE as error:
        raise _unreadable(error) from None


def tree(data: bytes | str) -> Tree:
    """The object in `data` as plain dicts and lists."""
    try:
        found = msgspec.json.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(error) from None
    if not isinstance(found, dict):
        raise DecodeError("expected an object, got something else")
    return found


def from_tree(raw: Mapping[str, Any], type_: type[S]) -> S:
    """A tree, seen as `type_`; null means absent, as everywhere in Kubernetes."""
    try:
        return msgspec.convert(without_nulls(raw), type_)
    except msgspec.ValidationError as error:
        raise DecodeError(_sentence(str(error))) from None
    except RecursionError as error:
        raise _unreadable(error) from None


def without_nulls(value: Any) -> Any:
    """The same tree without the entries of mappings that are null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value


_PLACE: Final = re.compile(r"^(?P<what>.*) - at `(?:key in )?\$\.?(?P<place>.*)`$", re.DOTALL)


def _sentence(message: str) -> str:
    """msgspec's complaint with the place in front, spelt as in every other error of this program."""
    found = _PLACE.match(message)
    if found is None:
        return message
    what = found["what"].replace("`", "")
    place = found["place"].replace("[...]", "[*]")
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else f"{what[:1].lower()}{what[1:]}"


# --- Encoding ---------------------------------------------------------------------------------------------------------

_ENCODER: Final = msgspec.json.Encoder()


def encode(value: msgspec.Struct) -> bytes:
    """A typed value as JSON: what is absent stays out, what the API requires is always there."""
    return _ENCODER.encode(value)


def to_tree(value: msgspec.Struct) -> Tree:
    """A typed value as plain dicts and lists."""
    # By way of JSON, since `to_builtins` would leave tuples as they are.
    return cast(Tree, msgspec.json.decode(_ENCODER.encode(value)))
