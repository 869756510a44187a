"""From bytes to typed values and back, without losing what the types do not name.

A typed value is for reading: it knows the fields this program looks at, and decoding one is fast because the rest is
skipped. Who wants to change an object keeps the tree it came as; `write_back` carries over exactly what is different
between two typed views of it and leaves everything else alone, at any depth.

    workload = codec.decode(data, Workload)
    raw = codec.tree(data)
    changed = codec.write_back(raw, before=workload, after=msgspec.structs.replace(workload, spec=…))
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from pykueue.api.fields import Field
from pykueue.api.kinds import Kinds
from pykueue.api.meta import ApiStruct, ListMeta

Tree: TypeAlias = dict[str, Any]
S = TypeVar("S", bound=msgspec.Struct)


class DecodeError(ValueError):
    """Bytes that are not the object they should be. The message says where and why in one sentence."""


class TypeMeta(ApiStruct, frozen=True):
    """What an object says it is."""

    api_version: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Listing(Generic[S]):
    """A list as it was read. An entry that cannot be read is told apart and stops none of the others."""

    metadata: ListMeta
    items: tuple[S, ...]
    refused: tuple[DecodeError, ...] = ()


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


def decode_any(data: bytes | str, kinds: Kinds) -> msgspec.Struct:
    """The object in `data`, seen as the type that `kinds` has for its apiVersion and kind."""
    meta = decode(data, TypeMeta)
    found = kinds.find(meta.api_version, meta.kind)
    if found is None:
        raise DecodeError(f"unknown kind {meta.kind!r} in apiVersion {meta.api_version!r}")
    row, version = found
    if version.type is None:
        raise DecodeError(f"{meta.kind} in apiVersion {meta.api_version} must be converted to {row.api_version} first")
    return decode(data, version.type)


def decode_list(data: bytes | str, type_: type[S]) -> Listing[S]:
    """A list as the API server answers it."""
    try:
        quick = _decoder(_Items[type_]).decode(data)  # type: ignore[valid-type]
        return Listing(quick.metadata, quick.items)
    except _UNREADABLE:
        pass
    slow = decode(data, _RawItems)
    items: list[S] = []
    refused: list[DecodeError] = []
    for index, raw in enumerate(slow.items):
        try:
            items.append(decode(bytes(raw), type_))
        except DecodeError as error:
            refused.append(DecodeError(f"items[{index}]: {error}"))
    return Listing(slow.metadata, tuple(items), tuple(refused))


class _Items(ApiStruct, Generic[S], frozen=True):
    metadata: ListMeta = ListMeta()
    items: tuple[S, ...] = ()


class _RawItems(ApiStruct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


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


# --- Writing back -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a change is merged into a value of some type."""

    # Fields by their names on the wire. A value without is replaced as a whole.
    fields: Mapping[str, _Shape] | None = None
    # For lists and maps, the shape of each entry.
    entries: _Shape | None = None
    # For lists whose entries have names: the fields that name one, each with what it means when absent.
    keys: tuple[tuple[str, Any], ...] = ()


_WHOLE: Final = _Shape()


@lru_cache(maxsize=512)
def _shape_of(type_: type[msgspec.Struct]) -> _Shape:
    return _Shape(fields={member.encode_name: _shape(member.type) for member in msgspec.structs.fields(type_)})


def _shape(annotation: Any, keys: tuple[str, ...] = ()) -> _Shape:
    if get_origin(annotation) is Annotated:
        inner, *said = get_args(annotation)
        named = [more.list_map_keys for more in said if isinstance(more, Field) and more.list_map_keys]
        return _shape(inner, named[-1] if named else keys)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _shape_of(annotation)
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    origin = get_origin(annotation)
    if origin is tuple:
        return _Shape(entries=_shape(arguments[0]), keys=_keys(arguments[0], keys))
    if origin is dict:
        return _Shape(entries=_shape(arguments[1]))
    # What remains with one argument is `X | None`.
    return _shape(arguments[0], keys) if len(arguments) == 1 else _WHOLE


def _keys(entry: Any, names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    if not (isinstance(entry, type) and issubclass(entry, msgspec.Struct)):
        return ()
    members = {member.encode_name: member for member in msgspec.structs.fields(entry)}
    return tuple((name, _absent(members[name])) for name in names)


def _absent(member: msgspec.structs.FieldInfo) -> Any:
    if member.default is not msgspec.NODEFAULT:
        return member.default
    return cast(Any, member.default_factory)()


def write_back(raw: Tree, before: S, after: S) -> Tree:
    """`raw` with exactly the changes that lead from `before`, which is `raw` as a typed value, to `after`.

    What the types do not name stays, at any depth: entries of keyed lists are found again by their keys, those of other
    lists where they are unchanged, or in the same place of a list as long as before. `raw` itself is not touched.
    """
    merged = _merge(_shape_of(type(after)), raw, to_tree(before), to_tree(after))
    return cast(Tree, merged)


def _merge(shape: _Shape, raw: Any, before: Any, after: Any) -> Any:
    if before == after:
        return raw
    if isinstance(raw, dict) and isinstance(before, dict) and isinstance(after, dict):
        if shape.fields is not None:
            return _merge_entries(shape.fields, _WHOLE, raw, before, after)
        return _merge_entries({}, shape.entries or _WHOLE, raw, before, after)
    if isinstance(raw, list) and isinstance(before, list) and isinstance(after, list):
        return _merge_list(shape, raw, before, after)
    return after


def _merge_entries(shapes: Mapping[str, _Shape], other: _Shape, raw: Tree, before: Tree, after: Tree) -> Tree:
    merged = {key: value for key, value in raw.items() if key in after or key not in before}
    for key, value in after.items():
        if key not in before or before[key] != value:
            merged[key] = _merge(shapes.get(key, other), raw.get(key), before.get(key), value)
    return merged


def _merge_list(shape: _Shape, raw: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    # Texts and numbers hold nothing that the types do not name; only objects are worth finding again.
    entries = shape.entries
    if entries is None or entries.fields is None or len(raw) != len(before):
        return after
    origins = _by_key(shape.keys, before, after) if shape.keys else _by_content(before, after)
    return [
        entry if origin is None else _merge(entries, raw[origin], before[origin], entry)
        for entry, origin in zip(after, origins, strict=True)
    ]


def _by_key(keys: tuple[tuple[str, Any], ...], before: list[Tree], after: list[Tree]) -> list[int | None]:
    """For each entry of `after`, where the entry of its name was in `before`."""

    def name(entry: Tree) -> tuple[Any, ...]:
        return tuple(entry.get(key, absent) for key, absent in keys)

    return _paired([name(entry) for entry in before], [name(entry) for entry in after])


def _by_content(before: list[Tree], after: list[Tree]) -> list[int | None]:
    """For each entry of `after`, where it was in `before`: unchanged, or changed in place."""
    origins = _paired([_ENCODER.encode(entry) for entry in before], [_ENCODER.encode(entry) for entry in after])
    if len(before) == len(after):
        taken = set(origins)
        return [place if origin is None and place not in taken else origin for place, origin in enumerate(origins)]
    return origins


def _paired(before: list[Any], after: list[Any]) -> list[int | None]:
    """Each of `after` with an equal one of `before`: the one in the same place, or else the first that is left."""
    stayed = {place for place, (old, new) in enumerate(zip(before, after, strict=False)) if old == new}
    left: dict[Any, deque[int]] = {}
    for place, mark in enumerate(before):
        if place not in stayed:
            left.setdefault(mark, deque()).append(place)
    return [
        place if place in stayed else left[mark].popleft() if left.get(mark) else None
        for place, mark in enumerate(after)
    ]
