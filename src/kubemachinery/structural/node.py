"""An OpenAPI v3 schema parsed to a typed tree.

Parsing is lenient (a keyword of the wrong type counts as absent); `check_schema` reports such errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import msgspec

Json = Any  # a result of `json.loads`: dict, list, str, int, float, bool, None


class _Absent:
    """The marker for an absent value, which differs from null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

# The fields that every resource has, whether or not its schema declares them.
RESOURCE_FIELDS: Final = ("apiVersion", "kind", "metadata")

NUMBER_TYPES: Final = frozenset({"integer", "number"})


class CelRule(msgspec.Struct, frozen=True):
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool | None = None


class SchemaNode(msgspec.Struct, frozen=True):
    """One schema and, below it, those of its properties, items and alternatives."""

    type: str = ""
    nullable: bool = False
    default: Json = ABSENT
    enum: tuple[Json, ...] = ()
    format: str = ""
    pattern: str = ""
    minimum: int | float | None = None
    maximum: int | float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()
    properties: Mapping[str, SchemaNode] | None = None
    additional: SchemaNode | None = None
    additional_forbidden: bool = False
    items: SchemaNode | None = None
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    not_: SchemaNode | None = None
    preserve_unknown: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str = ""
    rules: tuple[CelRule, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        if self.int_or_string:
            return ("integer", "string")
        return (self.type,) if self.type else ()

    @property
    def fields(self) -> Mapping[str, SchemaNode]:
        return self.properties or {}

    def child(self, name: str) -> SchemaNode | None:
        """The schema of a property: by name, or else that of additional properties."""
        return self.fields.get(name) or self.additional


def read(schema: Json) -> SchemaNode:
    """The schema as a tree of nodes."""
    if not isinstance(schema, dict):
        return SchemaNode()
    additional = schema.get("additionalProperties")
    properties = schema.get("properties")
    return SchemaNode(
        type=_text(schema.get("type")),
        nullable=schema.get("nullable") is True,
        default=default if (default := schema.get("default")) is not None else ABSENT,
        enum=tuple(_list(schema.get("enum"))),
        format=_text(schema.get("format")),
        pattern=_text(schema.get("pattern")),
        minimum=_number(schema.get("minimum")),
        maximum=_number(schema.get("maximum")),
        exclusive_minimum=schema.get("exclusiveMinimum") is True,
        exclusive_maximum=schema.get("exclusiveMaximum") is True,
        multiple_of=_number(schema.get("multipleOf")),
        min_length=_count(schema.get("minLength")),
        max_length=_count(schema.get("maxLength")),
        min_items=_count(schema.get("minItems")),
        max_items=_count(schema.get("maxItems")),
        unique_items=schema.get("uniqueItems") is True,
        min_properties=_count(schema.get("minProperties")),
        max_properties=_count(schema.get("maxProperties")),
        required=_texts(schema.get("required")),
        properties={name: read(child) for name, child in properties.items()} if isinstance(properties, dict) else None,
        additional=read(additional) if isinstance(additional, dict) else SchemaNode() if additional is True else None,
        additional_forbidden=additional is False,
        items=read(schema["items"]) if isinstance(schema.get("items"), dict) else None,
        all_of=_nodes(schema.get("allOf")),
        any_of=_nodes(schema.get("anyOf")),
        one_of=_nodes(schema.get("oneOf")),
        not_=read(schema["not"]) if isinstance(schema.get("not"), dict) else None,
        preserve_unknown=schema.get("x-kubernetes-preserve-unknown-fields") is True,
        embedded=schema.get("x-kubernetes-embedded-resource") is True,
        int_or_string=schema.get("x-kubernetes-int-or-string") is True,
        list_type=_text(schema.get("x-kubernetes-list-type")),
        list_keys=_texts(schema.get("x-kubernetes-list-map-keys")),
        map_type=_text(schema.get("x-kubernetes-map-type")),
        rules=tuple(_rule(entry) for entry in _list(schema.get("x-kubernetes-validations")) if isinstance(entry, dict)),
    )


def _rule(entry: dict[str, Json]) -> CelRule:
    optional = entry.get("optionalOldSelf")
    return CelRule(
        rule=_text(entry.get("rule")),
        message=_text(entry.get("message")),
        message_expression=_text(entry.get("messageExpression")),
        reason=_text(entry.get("reason")),
        field_path=_text(entry.get("fieldPath")),
        optional_old_self=optional if isinstance(optional, bool) else None,
    )


def is_number(value: Json) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Json) -> int | float | None:
    return value if is_number(value) else None


def _count(value: Json) -> int | None:
    return int(value) if is_number(value) and value == value and abs(value) < 2**63 else None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(entry for entry in _list(value) if isinstance(entry, str))


def _nodes(value: Json) -> tuple[SchemaNode, ...]:
    return tuple(read(entry) for entry in _list(value) if isinstance(entry, dict))


def new_parts(tree: Json, old: Json) -> Json:
    """The tree without the fields that are identical objects in `old`."""
    if type(tree) is not dict or type(old) is not dict:
        return tree
    return {name: part for name, part in tree.items() if old.get(name, ABSENT) is not part}
