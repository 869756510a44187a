"""Decoding of JSON to typed values, and encoding.

A typed value is for reading: it has the fields that this program reads, and decoding is fast because the rest is
skipped. To change an object that other clients write as well, send a patch of the difference (`patches`) or the tree as
it was read: fields that no type declares would be lost in a typed value.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

Tree: TypeAlias = dict[str, Any]
S = TypeVar("S", bound=msgspec.Struct)

_ENCODER: Final = msgspec.json.Encoder()


class DecodeError(ValueError):
    """Bytes that do not decode to the expected type. The message has the path and the reason in one sentence."""


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
    """Decode `data` as `type_`. Its `apiVersion` and `kind` are not checked."""
    try:
        return cast(S, _decoder(type_).decode(data))
    except msgspec.ValidationError:
        # Kubernetes treats null as absent, and clients write it in unexpected places. The slow path is rare.
        return from_tree(tree(data), type_)
    except _UNREADABLE as error:
        raise _unreadable(error) from None


def tree(data: bytes | str) -> Tree:
    """Decode `data` to plain dicts and lists."""
    try:
        found = msgspec.json.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(error) from None
    if not isinstance(found, dict):
        raise DecodeError("expected an object, got something else")
    return found


# Informers of one process receive the same change at about the same time: those of the manager and of the runner.
_SHARED_MAX: Final = 128


@lru_cache(maxsize=_SHARED_MAX)
def shared_tree(data: bytes) -> Tree:
    """Decode `data` as `tree` does; equal bytes that come soon again give the same tree, which no caller may change."""
    return tree(data)


def from_tree(raw: Mapping[str, Any], type_: type[S]) -> S:
    """Convert a tree to `type_`; null means absent, as everywhere in Kubernetes."""
    try:
        return msgspec.convert(without_nulls(raw), type_)
    except msgspec.ValidationError as error:
        raise DecodeError(_sentence(str(error))) from None
    except RecursionError as error:
        raise _unreadable(error) from None


def from_json_tree(raw: Tree, type_: type[S]) -> S:
    """Convert a tree that was decoded from JSON, so that its keys are texts: as `from_tree`, in a sixth of the time."""
    # What does not fit, or is nested too deeply for this stack, is converted again, for the message.
    with contextlib.suppress(*_UNREADABLE):
        encoded = _ENCODER.encode(raw)
        if _NULL not in encoded:
            return cast(S, _decoder(type_).decode(encoded))
    return from_tree(raw, type_)


def without_nulls(value: Any) -> Any:
    """The same tree without the entries of mappings that are null."""
    if isinstance(value, str | int):  # most of a tree; the check for a Mapping takes longer
        return value
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    if isinstance(value, dict | Mapping):  # in this order: most are dicts
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return value


_NULL: Final = b"null"

_PLACE: Final = re.compile(r"^(?P<what>.*) - at `(?:key in )?\$\.?(?P<place>.*)`$", re.DOTALL)


def _sentence(message: str) -> str:
    """The message of msgspec, with the path in front in the form of a field error."""
    found = _PLACE.match(message)
    if found is None:
        return message
    what = found["what"].replace("`", "")
    place = found["place"].replace("[...]", "[*]")
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else f"{what[:1].lower()}{what[1:]}"


# --- Encoding ---------------------------------------------------------------------------------------------------------


def encode(value: msgspec.Struct) -> bytes:
    """Encode a typed value to JSON: absent fields are omitted, fields that the API requires are always written."""
    return _ENCODER.encode(value)


def to_tree(value: msgspec.Struct) -> Tree:
    """Convert a typed value to plain dicts and lists."""
    # Through JSON, because `to_builtins` leaves tuples as they are.
    return cast(Tree, msgspec.json.decode(_ENCODER.encode(value)))
