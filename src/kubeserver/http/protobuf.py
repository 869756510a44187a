"""Request bodies in Kubernetes' protobuf, for the built-in kinds: kubectl and Go clients send nothing else.

A body is four magic bytes, an envelope that names the kind, and the kind's own message. The numbers of the fields come
from the same table as everything else about the built-in types. What a client sends is read whole or refused: a field
that this server does not know is named in the refusal, for to drop it would be to store something else than was asked.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from kubemachinery import meta
from kubeserver.builtin_types import types
from kubeserver.builtin_types.types import FieldType, MessageField, MessageType

Tree: TypeAlias = dict[str, Any]

MAGIC: Final = b"k8s\x00"
_DEEPEST: Final = 100
_DELETE_OPTIONS: Final = "meta.v1.DeleteOptions"
_INT64_SIGN: Final = 1 << 63

# Two of the four ways in which a field can lie on the wire; the others are a number (0) and four bytes (5).
_FIXED64: Final = 1
_BYTES: Final = 2


class ProtobufError(ValueError):
    """A body that cannot be decoded; the message has the place and the reason."""


def decode(body: bytes) -> Tree:
    """Decode the object in a protobuf body into its JSON form. Raises `ProtobufError`."""
    if not body.startswith(MAGIC):
        raise ProtobufError("the body does not begin with the magic bytes of Kubernetes' protobuf")
    api_version = kind = ""
    raw = b""
    for part in _parts(body[len(MAGIC) :], "the envelope"):
        match part.number:
            case 1:
                named = {
                    inner.number: _text(inner.content(), "the envelope") for inner in _parts(part.content(), "kind")
                }
                api_version, kind = named.get(1, ""), named.get(2, "")
            case 2:
                raw = part.content()
            case 3 | 4:
                if part.content():
                    raise ProtobufError("the body has an encoding inside of its envelope, which is not supported")
            case number:
                raise ProtobufError(f"the envelope has the unknown field number {number}")
    name = _DELETE_OPTIONS if kind == "DeleteOptions" else types.of_kind(api_version, kind)
    if name is None:
        raise ProtobufError(f"{kind or 'an object without a kind'} of {api_version!r} is not read as protobuf")
    return {"apiVersion": api_version, "kind": kind, **_message(types.message(name), raw, kind, _DEEPEST)}


# --- the wire ---------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """One field on the wire: its number, and a number or bytes."""

    number: int
    sort: int
    value: int | bytes
    path: str

    def content(self) -> bytes:
        if not isinstance(self.value, bytes):
            raise ProtobufError(f"{self.path}: field number {self.number} is a number where bytes are expected")
        return self.value

    def integer(self) -> int:
        if not isinstance(self.value, int):
            raise ProtobufError(f"{self.path}: field number {self.number} is bytes where a number is expected")
        return self.value


def _parts(data: bytes, path: str) -> Iterator[_Part]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at, path)
        number, sort = tag >> 3, tag & 7
        match sort:
            case 0:
                value, at = _varint(data, at, path)
                yield _Part(number, sort, value, path)
            case 2:
                length, at = _varint(data, at, path)
                yield _Part(number, sort, _slice(data, at, length, path), path)
                at += length
            case 1 | 5:
                length = 8 if sort == _FIXED64 else 4
                yield _Part(number, sort, _slice(data, at, length, path), path)
                at += length
            case _:
                raise ProtobufError(f"{path}: wire type {sort} is not one that is read")


def _slice(data: bytes, at: int, length: int, path: str) -> bytes:
    if at + length > len(data):
        raise ProtobufError(f"{path}: the data ends in the middle of a field")
    return data[at : at + length]


def _varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError(f"{path}: a number is cut off or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & (2**64 - 1), at
        shift += 7


def _signed(value: int) -> int:
    return value - 2**64 if value >= _INT64_SIGN else value


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProtobufError(f"{path}: a text is not valid UTF-8") from None


# --- messages ---------------------------------------------------------------------------------------------------------


def _message(kind: MessageType, data: bytes, path: str, depth: int) -> Tree:
    if depth == 0:
        raise ProtobufError(f"{path}: nested more than {_DEEPEST} levels deep")
    out: Tree = {}
    for part in _parts(data, path):
        inlined = kind.inlined.get(part.number)
        if inlined is not None:
            out.update(_message(types.message(inlined), part.content(), path, depth - 1))
            continue
        field = kind.numbers.get(part.number)
        if field is None:
            raise ProtobufError(
                f"{path}: {kind.name} has no field number {part.number} in this server's version of the API; "
                "send the object as JSON, or use an older client"
            )
        _put(out, field, part, f"{path}.{field.name}", depth)
    return out


def _put(out: Tree, field: MessageField, part: _Part, path: str, depth: int) -> None:
    kind = field.type
    if kind.item is not None:
        items = out.setdefault(field.name, [])
        if kind.item.name in ("int32", "int64") and part.sort == _BYTES:
            items.extend(_packed(part.content(), path))
        else:
            items.append(_value(kind.item, part, path, depth))
    elif kind.value is not None:
        key, value = _entry(kind.value, part.content(), path, depth)
        out.setdefault(field.name, {})[key] = value
    else:
        out[field.name] = _value(kind, part, path, depth)


def _packed(data: bytes, path: str) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at, path)
        yield _signed(value)


def _entry(kind: FieldType, data: bytes, path: str, depth: int) -> tuple[str, Any]:
    key, value = "", None
    for part in _parts(data, path):
        match part.number:
            case 1:
                key = _text(part.content(), path)
            case 2 if kind.item is not None:
                # A list inside of a map has a message of its own around it, with one field.
                value = [_value(kind.item, inner, path, depth) for inner in _parts(part.content(), path)]
            case 2:
                value = _value(kind, part, path, depth)
            case number:
                raise ProtobufError(f"{path}: an entry of a map has the unknown field number {number}")
    return key, value


def _value(kind: FieldType, part: _Part, path: str, depth: int) -> Any:
    if kind.is_message:
        return _message(types.message(kind.name), part.content(), path, depth - 1)
    return _READERS[kind.name](part, path)


# --- plain and special types ------------------------------------------------------------------------------------------


def _fields(part: _Part, path: str, *known: int) -> dict[int, _Part]:
    """Return the fields of a small message by number."""
    found = {inner.number: inner for inner in _parts(part.content(), path)}
    for number in found.keys() - set(known):
        raise ProtobufError(f"{path}: unknown field number {number}")
    return found


def _string(part: _Part, path: str) -> str:
    return _text(part.content(), path)


def _bytes(part: _Part, _path: str) -> str:
    return base64.b64encode(part.content()).decode()


def _bool(part: _Part, _path: str) -> bool:
    return part.integer() != 0


def _int(part: _Part, _path: str) -> int:
    return _signed(part.integer())


def _float(part: _Part, path: str) -> float:
    content = part.content()
    if part.sort != _FIXED64:
        raise ProtobufError(f"{path}: expected a number of eight bytes")
    found: float = struct.unpack("<d", content)[0]
    return found


def _quantity(part: _Part, path: str) -> str:
    found = _fields(part, path, 1)
    return _text(found[1].content(), path) if 1 in found else "0"


def _int_or_string(part: _Part, path: str) -> int | str:
    found = _fields(part, path, 1, 2, 3)
    if 1 in found and found[1].integer() == 1:
        return _text(found[3].content(), path) if 3 in found else ""
    return _signed(found[2].integer()) if 2 in found else 0


def _time(spell: Callable[[int], str]) -> Callable[[_Part, str], str | None]:
    def read(part: _Part, path: str) -> str | None:
        found = {number: _signed(inner.integer()) for number, inner in _fields(part, path, 1, 2).items()}
        moment = found.get(1, 0) * meta.SECOND + found.get(2, 0)
        if moment == 0:
            return None  # the zero time is no time
        try:
            return spell(moment)
        except meta.TimeError as wrong:
            raise ProtobufError(f"{path}: {wrong}") from None

    return read


def _duration(part: _Part, path: str) -> str:
    found = _fields(part, path, 1)
    return meta.format_duration(_signed(found[1].integer()) if 1 in found else 0)


def _raw_json(part: _Part, path: str) -> Any:
    found = _fields(part, path, 1)
    data = found[1].content() if 1 in found else b""
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProtobufError(f"{path}: the JSON in it cannot be read") from None


def _schema(part: _Part, path: str) -> Any:
    return _message(types.message("apiextensions.v1.JSONSchemaProps"), part.content(), path, _DEEPEST)


def _schema_or_bool(part: _Part, path: str) -> Any:
    found = _fields(part, path, 1, 2)
    return _schema(found[2], path) if 2 in found else 1 in found and found[1].integer() != 0


def _schema_or_list(read_item: Callable[[_Part, str], Any]) -> Callable[[_Part, str], Any]:
    def read(part: _Part, path: str) -> Any:
        items = []
        for inner in _parts(part.content(), path):
            if inner.number == 1:
                return _schema(inner, path)
            items.append(read_item(inner, path))
        return items

    return read


_READERS: Final[dict[str, Callable[[_Part, str], Any]]] = {
    "string": _string,
    "bytes": _bytes,
    "bool": _bool,
    "int32": _int,
    "int64": _int,
    "float64": _float,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Time": _time(meta.format_time),
    "MicroTime": _time(meta.format_micro_time),
    "Duration": _duration,
    "FieldsV1": _raw_json,
    "RawExtension": _raw_json,
    "JSON": _raw_json,
    "JSONSchemaPropsOrBool": _schema_or_bool,
    "JSONSchemaPropsOrArray": _schema_or_list(_schema),
    "JSONSchemaPropsOrStringArray": _schema_or_list(_string),
}
