"""CEL declarations of a schema: the type of `self`, and the escaped names of properties in expressions."""

from __future__ import annotations

import re
from typing import Final

from kubemachinery.cel import types
from kubemachinery.cel.lexer import RESERVED
from kubemachinery.structural.node import SchemaNode

_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED: Final = re.compile(r"__|[-./]")
_NAMEABLE: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")

_TEXT: Final = SchemaNode(type="string")
_RESOURCE_FIELDS: Final = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": SchemaNode(type="object", properties={"name": _TEXT, "generateName": _TEXT}),
}
_STRING_TYPES: Final = {
    "byte": types.BYTES,
    "date": types.TIMESTAMP,
    "date-time": types.TIMESTAMP,
    "duration": types.DURATION,
}
_SCALAR_TYPES: Final = {"boolean": types.BOOL, "number": types.DOUBLE, "integer": types.INT}


def escape(name: str) -> str | None:
    """The escaped property name for expressions; None when it cannot be escaped."""
    if name in RESERVED:
        return f"__{name}__"
    if not _NAMEABLE.fullmatch(name):
        return None
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name)


class Declarations:
    """The types of all nodes of a schema. Each node has one type, so that `self` and a field of its parent agree."""

    def __init__(self) -> None:
        self._types: dict[int, tuple[SchemaNode, types.CelType | None]] = {}

    def type_of(self, node: SchemaNode, *, root: bool = False) -> types.CelType | None:
        """The type; None when rules cannot see values of this schema, because it declares no type for them."""
        known = self._types.get(id(node))
        if known is None:
            # The node is kept with its type, so that its id is not reused.
            known = self._types[id(node)] = (node, self._declare(node, root or node.embedded))
        return known[1]

    def _declare(self, node: SchemaNode, resource: bool) -> types.CelType | None:
        if node.int_or_string:
            return types.DYN
        match node.type:
            case "array":
                item = self.type_of(node.items) if node.items is not None else None
                return types.list_of(item, _shape(node)) if item is not None else None
            case "object" if node.additional is not None and node.additional != SchemaNode():
                value = self.type_of(node.additional)
                return types.map_of(types.STRING, value) if value is not None else None
            case "object":
                return self._object(node, resource)
            case "string":
                return _STRING_TYPES.get(node.format, types.STRING)
            case other:
                return _SCALAR_TYPES.get(other)

    def _object(self, node: SchemaNode, resource: bool) -> types.CelType:
        properties = {**node.fields, **_RESOURCE_FIELDS} if resource else node.fields
        fields: dict[str, types.CelField] = {}
        for name, child in properties.items():
            type_, spelling = self.type_of(child), escape(name)
            if type_ is not None and spelling is not None:
                fields[spelling] = types.CelField(name, type_)
        return types.ObjectType("object", fields=fields)


def _shape(node: SchemaNode) -> types.CelListShape | None:
    if node.list_type == "set":
        return types.CelListShape()
    return types.CelListShape(node.list_keys) if node.list_type == "map" and node.list_keys else None


# --- Paths to fields ----------------------------------------------------------------------------------------------

_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]")
_UNQUOTED: Final = {**dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)), "'": "'", "\\": "\\"}


def field_path(node: SchemaNode, text: str) -> str | None:
    """The path of a rule's `fieldPath` (`.spec['a/b']`) in the form of errors, relative to `node`; None when the
    schema has no such path.
    """
    steps: list[str] = []
    at = 0
    current: SchemaNode | None = node
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or current is None:
            return None
        name = match["name"] if match["name"] is not None else _unquote(match["quoted"])
        if name is None:
            return None
        if current.properties:
            current = current.fields.get(name)
            if current is None:
                return None
            steps.append(f".{name}")
        elif current.additional is not None:
            current = current.additional
            steps.append(f"[{name}]")
        else:
            return None
        at = match.end()
    return "".join(steps) or None


def _unquote(text: str) -> str | None:
    parts = re.split(r"\\(.)", text)
    if any(mark not in _UNQUOTED for mark in parts[1::2]):
        return None
    return "".join(_UNQUOTED[part] if i % 2 else part for i, part in enumerate(parts))
