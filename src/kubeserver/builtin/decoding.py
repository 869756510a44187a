"""Decoding of an object as its Go type would: the JSON that is sent, and the JSON that kube-apiserver returns.

The public types are structs. What a struct does not know is dropped; null is nothing; an empty value of an optional
field vanishes, while a mandatory field is written even when it is empty; quantities and times come back in their one
canonical spelling. Clients compare what they sent with what they get, so these things are part of the API.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from kubemachinery import meta, quantity
from kubeserver.builtin_types.types import FieldType, message

_DEEPEST: Final = 100
_RANGES: Final = {"int32": 2**31, "int64": 2**63}


class DecodingError(ValueError):
    """A value that the type cannot hold; the message has the path and the expected type."""


def read(name: str, tree: Any) -> dict[str, Any]:
    """The object as the message of this name would read it and write it back. Raises `DecodingError`."""
    return _read_message(name, tree, "", _DEEPEST)


def zero(name: str) -> dict[str, Any]:
    """Return the zero value of a message."""
    return read(name, {})


def unknown(name: str, tree: Any, path: str = "") -> Iterator[str]:
    """The fields that the message does not know: `spec.zzz`, `spec.containers[0].zzz`."""
    kind = FieldType(name)
    # Nearly every object has known fields only; that takes a fraction of the time of finding the path of one.
    return iter(()) if _is_known(kind, tree) else _unknown(kind, tree, path)


def _is_known(kind: FieldType, tree: Any) -> bool:
    """Whether the type knows every field."""
    if kind.item is not None:
        if isinstance(tree, list) and _may_have_fields(kind.item):
            for item in tree:
                if not _is_known(kind.item, item):
                    return False
    elif isinstance(tree, dict):
        if kind.value is not None:
            if _may_have_fields(kind.value):
                for value in tree.values():
                    if not _is_known(kind.value, value):
                        return False
        elif kind.is_message:
            fields = message(kind.name).fields
            for key, value in tree.items():
                field = fields.get(key)
                if field is None or (isinstance(value, (dict, list)) and not _is_known(field.type, value)):
                    return False
    return True


@cache
def _may_have_fields(kind: FieldType) -> bool:
    return kind.is_message or kind.item is not None or kind.value is not None


def _unknown(kind: FieldType, tree: Any, path: str) -> Iterator[str]:
    if kind.item is not None:
        for index, item in enumerate(tree if isinstance(tree, list) else ()):
            yield from _unknown(kind.item, item, f"{path}[{index}]")
    elif kind.value is not None:
        for key, value in (tree if isinstance(tree, dict) else {}).items():
            yield from _unknown(kind.value, value, f"{path}.{key}" if path else key)
    elif kind.is_message and isinstance(tree, dict):
        fields = message(kind.name).fields
        for key, value in tree.items():
            place = f"{path}.{key}" if path else key
            field = fields.get(key)
            if field is None:
                yield place
            else:
                yield from _unknown(field.type, value, place)


class _FieldPlan(NamedTuple):
    """How a field of a message is read, decided once: `position` is its place in the order of the fields."""

    position: int
    name: str
    # A value of this very Python type is its own reading: texts and truth values, most of an object.
    plain: type | None
    type: FieldType
    is_collection: bool
    # An empty value is written all the same.
    keeps_empty: bool


class _MessagePlan(NamedTuple):
    fields: dict[str, _FieldPlan]
    # The fields that are written even where they are absent.
    always: dict[str, _FieldPlan]


@cache
def _plan(name: str) -> _MessagePlan:
    fields: dict[str, _FieldPlan] = {}
    always: dict[str, _FieldPlan] = {}
    for position, field in enumerate(message(name).fields.values()):
        kind = field.type
        # Messages and quantities have no empty value.
        keeps_empty = field.always or kind.pointer or kind.is_message or kind.name == "Quantity"
        is_collection = kind.item is not None or kind.value is not None
        plain = None if is_collection else _PLAIN.get(kind.name)
        plan = fields[field.name] = _FieldPlan(position, field.name, plain, kind, is_collection, keeps_empty)
        if field.always:
            always[field.name] = plan
    return _MessagePlan(fields, always)


def _read_message(name: str, tree: Any, path: str, depth: int) -> dict[str, Any]:
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise DecodingError(f"{path or 'the object'}: expected an object of type {name}, got {_sort(tree)}")
    if depth == 0:
        raise DecodingError(f"{path}: nested more than {_DEEPEST} levels deep")
    fields, always = _plan(name)
    # Types have many fields and objects few, so the object decides which are looked at; the type decides the order.
    given = [field for key in tree if (field := fields.get(key)) is not None]
    given += [field for key, field in always.items() if key not in tree]
    given.sort()
    out: dict[str, Any] = {}
    for _, key, plain, kind, is_collection, keeps_empty in given:
        value = tree.get(key)
        if plain is not None and type(value) is plain:
            if value or keeps_empty:
                out[key] = value
            continue
        if value is not None:
            value = _read_value(kind, value, f"{path}.{key}" if path else key, depth)
            if is_collection and not value:
                value = None  # the stored form does not distinguish an empty list from an absent one
        elif key not in always:
            continue
        elif not kind.pointer:
            value = _zero(kind, depth)
        if value or keeps_empty:
            out[key] = value
    return out


def _zero(kind: FieldType, depth: int) -> Any:
    if kind.is_message:
        return _read_message(kind.name, {}, "", depth - 1)
    return _ZEROS.get(kind.name)


_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "Quantity": "0",
    "IntOrString": 0,
    "Duration": "0s",
}


def _read_value(kind: FieldType, value: Any, path: str, depth: int) -> Any:
    if kind.item is not None:
        if not isinstance(value, list):
            raise DecodingError(f"{path}: expected a list, got {_sort(value)}")
        item = kind.item
        return [
            _zero(item, depth) if one is None else _read_value(item, one, f"{path}[{index}]", depth)
            for index, one in enumerate(value)
        ]
    if kind.value is not None:
        if not isinstance(value, dict):
            raise DecodingError(f"{path}: expected a map, got {_sort(value)}")
        held = kind.value
        if held.name == "string" and held.item is None and held.value is None and _are_texts(value.values()):
            return dict(value)
        return {
            key: _zero(held, depth) if one is None else _read_value(held, one, f"{path}.{key}", depth)
            for key, one in value.items()
        }
    reader = _READERS.get(kind.name)
    return reader(value, path) if reader is not None else _read_message(kind.name, value, path, depth - 1)


def _are_texts(values: Iterable[Any]) -> bool:
    for value in values:  # noqa: SIM110 - twice as fast as all()
        if type(value) is not str:
            return False
    return True


def _sort(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case list():
            return "a list"
    return "an object"


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise DecodingError(f"{path}: expected a string, got {_sort(value)}")
    return value


def _bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise DecodingError(f"{path}: expected true or false, got {_sort(value)}")
    return value


def _integer(width: str) -> Callable[[Any, str], int]:
    limit = _RANGES[width]

    def read_integer(value: Any, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise DecodingError(f"{path}: expected a whole number, got {_sort(value)}")
        if not -limit <= value < limit:
            raise DecodingError(f"{path}: {value} does not fit into {width}")
        return value

    return read_integer


def _float(value: Any, path: str) -> float | int:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise DecodingError(f"{path}: expected a number, got {_sort(value)}")
    return value


def _bytes(value: Any, path: str) -> str:
    if isinstance(value, list) and all(isinstance(one, int) and 0 <= one < 256 for one in value):
        return base64.b64encode(bytes(value)).decode()  # bytes may also be written as numbers
    text = _string(value, path)
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodingError(f"{path}: not valid base64") from None
    return text


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise DecodingError(f"{path}: expected a quantity, got {_sort(value)}")
    try:
        return str(quantity.parse(value))
    except quantity.QuantityError as wrong:
        raise DecodingError(f"{path}: {wrong}") from None


def _int_or_string(value: Any, path: str) -> int | str:
    return value if isinstance(value, str) else _READERS["int32"](value, path)


# Where the time is kept to the microsecond, all six digits must be there.
_MICROSECONDS: Final = re.compile(r"\.[0-9]{6}(?![0-9])")


def _micro_time(value: Any, path: str) -> str:
    text = _string(value, path)
    if not _MICROSECONDS.search(text):
        raise DecodingError(f"{path}: expected a time with six digits after the seconds, got {text!r}")
    _time(text, path)
    return meta.format_micro_time(meta.parse_time(text))


def _time(value: Any, path: str) -> str:
    text = _string(value, path)
    try:
        return meta.format_time(meta.parse_time(text))
    except meta.TimeError as wrong:
        raise DecodingError(f"{path}: {wrong}") from None


def _anything(value: Any, _path: str) -> Any:
    return value


def _schema_or(*others: type) -> Callable[[Any, str], Any]:
    """Decode a schema in a CRD, or another value that may be in its place."""

    def read_schema(value: Any, path: str) -> Any:
        if isinstance(value, others):
            return [read_schema(one, path) for one in value] if isinstance(value, list) else value
        return _read_message("apiextensions.v1.JSONSchemaProps", value, path, _DEEPEST)

    return read_schema


_PLAIN: Final[dict[str, type]] = {"string": str, "bool": bool}

_READERS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "string": _string,
    "bool": _bool,
    "bytes": _bytes,
    "int32": _integer("int32"),
    "int64": _integer("int64"),
    "float64": _float,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Time": _time,
    "MicroTime": _micro_time,
    "Duration": _string,
    "FieldsV1": _anything,
    "RawExtension": _anything,
    "JSON": _anything,
    "JSONSchemaPropsOrBool": _schema_or(bool),
    "JSONSchemaPropsOrArray": _schema_or(list),
    "JSONSchemaPropsOrStringArray": _schema_or(list, str),
}
