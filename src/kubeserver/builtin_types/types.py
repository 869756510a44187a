"""The types of the built-in API, one line per field, from `fields.json`.

A line reads `NUMBER TYPE FLAG...`: `"ports": "6 []ContainerPort list=containerPort,protocol merge=containerPort"`.
The number is the field's number in protobuf (0: not there). A type is a plain one, one of the special ones below, or
the name of a message, with its package where that is another one; before it stand `*` (may be absent though its zero
means something), `[]` (a list) and `{}` (a map from strings). The flags:

- `always`: written even if it is empty. `required`: required by the OpenAPI document.
- `list=set` or `list=KEYS`: how the list merges; without it, it is one value. `map=atomic`: the map is one value.
- `merge` or `merge=KEY`, `retainKeys`: what a strategic merge patch does.
- `default=JSON`, `enum=A|B`.

A name that begins with `+` is a message whose fields belong to this one in JSON, though not on the wire. The entry `=`
is `atomic` where every value of the message is one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple

import msgspec

PLAIN: Final = frozenset({"string", "bytes", "bool", "int32", "int64", "float64"})
# Types whose JSON is not the JSON of their fields.
SPECIAL: Final = frozenset(
    {
        "Quantity",
        "IntOrString",
        "Time",
        "MicroTime",
        "Duration",
        "FieldsV1",
        "RawExtension",
        "JSON",
        "JSONSchemaPropsOrBool",
        "JSONSchemaPropsOrArray",
        "JSONSchemaPropsOrStringArray",
    }
)


class FieldType(NamedTuple):
    """What a field holds. `name` is a plain or special type or a qualified message; it is "" for a list or a map."""

    name: str
    pointer: bool = False
    item: FieldType | None = None  # of a list
    value: FieldType | None = None  # of a map

    @property
    def is_message(self) -> bool:
        return bool(self.name) and self.name not in PLAIN and self.name not in SPECIAL


class MessageField(NamedTuple):
    """One field of a message, parsed from its line."""

    name: str
    number: int
    type: FieldType
    always: bool = False
    required: bool = False
    list_set: bool = False
    list_keys: tuple[str, ...] = ()
    map_atomic: bool = False
    merge: bool = False
    merge_key: str = ""
    retain_keys: bool = False
    default: Any = None
    enum: tuple[str, ...] = ()


class MessageType(NamedTuple):
    """A type of the API: its fields in JSON, and the same by their numbers on the wire."""

    name: str
    fields: Mapping[str, MessageField]
    numbers: Mapping[int, MessageField]
    # The messages that lie inside this one on the wire, and whose fields are this one's own in JSON.
    inlined: Mapping[int, str]
    atomic: bool


@cache
def _lines() -> dict[str, dict[str, dict[str, str]]]:
    text = resources.files(__package__).joinpath("fields.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, dict[str, str]]])


@cache
def message(name: str) -> MessageType:
    """The message of this qualified name: `core.v1.PodSpec`."""
    package, _, own = name.rpartition(".")
    fields: dict[str, MessageField] = {}
    numbers: dict[int, MessageField] = {}
    inlined: dict[int, str] = {}
    atomic = False
    for key, line in _lines()[package][own].items():
        if key == "=":
            atomic = True
        elif key[0] == "+":
            other = _qualified(key[1:], package)
            fields.update(message(other).fields)
            if number := int(line):
                inlined[number] = other
        else:
            found = fields[key] = _field(key, line, package)
            if found.number:
                numbers[found.number] = found
    return MessageType(name, fields, numbers, inlined, atomic)


def messages() -> list[str]:
    """Every message, by qualified name."""
    return [f"{package}.{name}" for package, types in _lines().items() for name in types]


@cache
def of_kind(api_version: str, kind: str) -> str | None:
    """The message that holds objects of this kind: `core.v1.Pod` for a Pod of `v1`; None where there is none."""
    group, _, version = api_version.rpartition("/")
    package = f"{group.partition('.')[0] or 'core'}.{version}"
    return f"{package}.{kind}" if kind in _lines().get(package, {}) else None


def _field(name: str, line: str, package: str) -> MessageField:
    number, spelling, *flags = line.split(" ")
    found: dict[str, Any] = {}
    for flag in flags:
        word, _, value = flag.partition("=")
        match word:
            case "always" | "required":
                found[word] = True
            case "list":
                found.update(list_set=True) if value == "set" else found.update(list_keys=tuple(value.split(",")))
            case "map":
                found["map_atomic"] = True
            case "merge":
                found.update(merge=True, merge_key=value)
            case "retainKeys":
                found["retain_keys"] = True
            case "default":
                found["default"] = msgspec.json.decode(value.encode())
            case "enum":
                found["enum"] = tuple(value.split("|"))
            case _:
                raise ValueError(f"fields.json: {package}: field {name} has the unknown flag {flag}")
    return MessageField(name, int(number), _type(spelling, package), **found)


def _type(spelling: str, package: str, *, pointer: bool = False) -> FieldType:
    if spelling[0] == "*":
        return _type(spelling[1:], package, pointer=True)
    if spelling[:2] == "[]":
        return FieldType("", pointer, item=_type(spelling[2:], package))
    if spelling[:2] == "{}":
        return FieldType("", pointer, value=_type(spelling[2:], package))
    return FieldType(_qualified(spelling, package), pointer)


def _qualified(name: str, package: str) -> str:
    if name in PLAIN or name in SPECIAL or "." in name:
        return name
    return f"{package}.{name}"
