"""The types of CEL, and how one is read from a signature such as `list<T>.indexOf(T) -> int`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec


@dataclass(frozen=True)
class CelType:
    """A type by its name and parameters. `shape` determines how a list from a schema compares; equality ignores it."""

    name: str
    params: tuple[CelType, ...] = ()
    shape: CelListShape | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})" if self.params else self.name


class CelListShape(msgspec.Struct, frozen=True):
    """A list that Kubernetes treats as a set (no keys) or as a map with keys: its order is not significant."""

    keys: tuple[str, ...] = ()


class CelField(msgspec.Struct, frozen=True):
    """A field of an object: the name in JSON, which an expression may have to spell differently, and its type."""

    json_name: str
    type: CelType


@dataclass(frozen=True, eq=False)
class ObjectType(CelType):
    """An object with declared fields. Object types are equal only when identical."""

    fields: Mapping[str, CelField] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class TypeParam(CelType):
    """A type variable of a signature."""


DYN: Final = CelType("dyn")
BOOL: Final = CelType("bool")
INT: Final = CelType("int")
UINT: Final = CelType("uint")
DOUBLE: Final = CelType("double")
STRING: Final = CelType("string")
BYTES: Final = CelType("bytes")
NULL: Final = CelType("null_type")
TYPE: Final = CelType("type")
TIMESTAMP: Final = CelType("google.protobuf.Timestamp")
DURATION: Final = CelType("google.protobuf.Duration")

# The types that Kubernetes adds. Only functions return values of these.
URL: Final = CelType("kubernetes.URL")
IP: Final = CelType("net.IP")
CIDR: Final = CelType("net.CIDR")
QUANTITY: Final = CelType("kubernetes.Quantity")
SEMVER: Final = CelType("kubernetes.Semver")
FORMAT: Final = CelType("kubernetes.NamedFormat")

_OPAQUE: Final = frozenset({URL, IP, CIDR, QUANTITY, SEMVER, FORMAT})
_NULLABLE: Final = _OPAQUE | {TIMESTAMP, DURATION}


def list_of(item: CelType, shape: CelListShape | None = None) -> CelType:
    return CelType("list", (item,), shape)


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType("map", (key, value))


def optional_of(value: CelType) -> CelType:
    return CelType("optional_type", (value,))


# Names of types that are values in an expression, as in `type(x) == string`.
TYPE_NAMES: Final = {
    type_.name: type_
    for type_ in (
        *(BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, TYPE, TIMESTAMP, DURATION),
        *(CelType("list"), CelType("map"), CelType("optional_type"), *sorted(_OPAQUE, key=str)),
    )
}


def accepts_null(type_: CelType) -> bool:
    """Whether null is assignable to this type."""
    return isinstance(type_, ObjectType) or type_ in _NULLABLE or type_.name == "optional_type"


# --- Unification --------------------------------------------------------------------------------------------------

Bindings = dict[str, CelType]


def resolve(type_: CelType, bound: Bindings) -> CelType:
    """The type with its variables replaced by their bindings; by dyn where they are free."""
    if isinstance(type_, TypeParam):
        known = bound.get(type_.name)
        return DYN if known is None else resolve(known, bound)
    if not type_.params:
        return type_
    return CelType(type_.name, tuple(resolve(param, bound) for param in type_.params), type_.shape)


def assignable(actual: CelType, expected: CelType, bound: Bindings) -> bool:
    """Whether `actual` is assignable to `expected`; type variables are bound on the way."""
    if isinstance(expected, TypeParam):
        known = bound.get(expected.name)
        if known is None:
            bound[expected.name] = actual
            return True
        if assignable(actual, known, bound):
            if known == NULL or _is_vaguer(known, actual):
                bound[expected.name] = actual
            return True
        if assignable(known, actual, bound):
            bound[expected.name] = actual
            return True
        return False
    if DYN in (actual, expected):
        return True
    if actual == NULL:
        return expected == NULL or accepts_null(expected)
    if expected == NULL:
        return False
    if isinstance(expected, ObjectType) or isinstance(actual, ObjectType):
        return actual is expected
    return (
        actual.name == expected.name
        and (len(actual.params) == len(expected.params))
        and all(assignable(a, e, bound) for a, e in zip(actual.params, expected.params, strict=True))
    )


def _is_vaguer(known: CelType, actual: CelType) -> bool:
    """Whether `known` has dyn where `actual` is more specific, as in list(dyn), the type of an empty list."""
    return known != DYN and DYN in known.params and actual != known and actual != DYN


def join(left: CelType, right: CelType) -> CelType | None:
    """The common type of the two; None when there is none."""
    bound: Bindings = {}
    either = TypeParam("T")
    if assignable(left, either, bound) and assignable(right, either, bound):
        if DYN in (left, right):
            return DYN
        return resolve(either, bound)
    return None


# --- Signatures ---------------------------------------------------------------------------------------------------


class Signature(msgspec.Struct, frozen=True):
    """A function's name, its parameters (the receiver first, if it is called on one), and its result."""

    name: str
    member: bool
    params: tuple[CelType, ...]
    result: CelType


_SIGNATURE: Final = re.compile(
    r"(?:(?P<receiver>[A-Za-z][\w<>, ]*)\.)?(?P<name>[^\s(.]+)\((?P<params>.*)\) -> (?P<result>.+)"
)
_SHORT_NAMES: Final = {
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "null": NULL,
    "dyn": DYN,
    "URL": URL,
    "IP": IP,
    "CIDR": CIDR,
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "Format": FORMAT,
    **{name: type_ for name, type_ in TYPE_NAMES.items() if "." not in name},
}


def signature(text: str) -> Signature:
    """Reads `string.charAt(int) -> string`, `size(list<T>) -> int`, `sets::contains(list<T>, list<T>) -> bool`."""
    match = _SIGNATURE.fullmatch(text.replace("::", "@"))
    assert match is not None, text
    params = [_type(param) for param in _split(match["params"])]
    if match["receiver"]:
        params.insert(0, _type(match["receiver"]))
    name = match["name"].replace("@", ".")
    return Signature(name, bool(match["receiver"]), tuple(params), _type(match["result"]))


def _type(text: str) -> CelType:
    name, _, rest = text.strip().partition("<")
    if rest:
        params = tuple(_type(param) for param in _split(rest[:-1]))
        return CelType("optional_type" if name == "optional" else name, params)
    if len(name) == 1 and name.isupper():
        return TypeParam(name)
    return _SHORT_NAMES[name]


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
