"""CRD and OpenAPI documents, derived from the types.

Descriptions, limits and rules come from the `Field`s in `kueue` and `kube`, names and columns from the table of kinds,
the differences of an older version from its table of changes. No field is described here.

    schema.of(row, "v1beta2")           -> the openAPIV3Schema of one kind in one version
    schema.crd(row, conversion=…)       -> the CustomResourceDefinition
    schema.describe(row, "v1beta2")     -> every field as a row, for the reference pages
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec

from kubemachinery.fields import NOTHING, Field, RequiredDefault, ValidationRule
from kubemachinery.kinds import Kind, PrinterColumn, Version
from kubemachinery.meta import ObjectMeta
from kubemachinery.versions import (
    FieldRenamed,
    FieldsAdded,
    FieldsRemoved,
    LimitsChanged,
    RequiredFields,
    RulesReplaced,
    VersionChange,
)
from pykueue.api.kube import PodTemplateSpec

Schema: TypeAlias = dict[str, Any]

# The API server validates `metadata` of an object. Inside a pod template this schema does, and these fields are kept.
_TEMPLATE_METADATA: Final = ("annotations", "finalizers", "labels", "name", "namespace")


# --- From types to schemas --------------------------------------------------------------------------------------------


def of(row: Kind, version: str) -> Schema:
    """The structural schema of a kind in one of its versions. The caller may change it."""
    schema: Schema = msgspec.json.decode(_derived(row, version))
    return schema


@lru_cache(maxsize=64)
def _derived(row: Kind, version: str) -> bytes:
    chosen = row.version(version)
    if chosen is None:
        raise LookupError(f"{row.name} has no version {version!r}")
    schema = _copy(_struct(row.type, open_=False))
    # The API server validates metadata itself, and requires this empty schema.
    schema["properties"]["metadata"] = {"type": "object"}
    for change in chosen.changes:
        _apply(change, schema)
    return msgspec.json.encode(schema)


def of_type(annotation: Any) -> Schema:
    """The schema of any type that fields of the API can have."""
    return _copy(_annotated(annotation, open_=False))


def _copy(schema: Schema) -> Schema:
    """The same document without parts that other schemas share."""
    copied: Schema = msgspec.json.decode(msgspec.json.encode(schema))
    return copied


def _unwrap(annotation: Any) -> tuple[Any, Field]:
    """The bare type behind `Annotated` and `| None`, and the merged `Field`s, the outermost winning."""
    if get_origin(annotation) is Annotated:
        inner, *annotations = get_args(annotation)
        bare, field = _unwrap(inner)
        for more in annotations:
            if isinstance(more, Field):
                field = field.refined_by(more)
        return bare, field
    if get_origin(annotation) in (Union, UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not NoneType]
        if len(choices) == 1:
            return _unwrap(choices[0])
    return annotation, NOTHING


def _annotated(annotation: Any, *, open_: bool) -> Schema:
    """`open_` keeps what the schema does not name, at every level."""
    bare, field = _unwrap(annotation)
    return {**({"description": field.meaning} if field.meaning else {}), **_bare(bare, field, open_), **_limits(field)}


def _bare(bare: Any, field: Field, open_: bool) -> Schema:
    if field.int_or_string:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if bare in _SCALARS:
        return {"type": _SCALARS[bare]}
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is tuple:
        return {"type": "array", "items": _annotated(arguments[0], open_=open_)}
    if origin is dict:
        if arguments[1] is Any:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return {"type": "object", "additionalProperties": _annotated(arguments[1], open_=open_)}
    if inspect.isclass(bare) and issubclass(bare, msgspec.Struct):
        schema = _struct(bare, open_=open_ or bare is PodTemplateSpec)
        return {name: part for name, part in schema.items() if name != "description" or not field.meaning}
    raise TypeError(f"no schema for {bare!r}")


_SCALARS: Final[dict[Any, str]] = {str: "string", int: "integer", bool: "boolean", float: "number"}


# Reading annotations is slow, and the same types turn up in many kinds and versions: their schemas share these parts.
@lru_cache(maxsize=512)
def _struct(type_: type[msgspec.Struct], *, open_: bool) -> Schema:
    schema: Schema = {"description": inspect.getdoc(type_) or "", "type": "object"}
    members = msgspec.structs.fields(type_)
    if type_ is ObjectMeta:
        members = tuple(member for member in members if member.encode_name in _TEMPLATE_METADATA)
    elif open_:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    schema["properties"] = {
        member.encode_name: _annotated(member.type, open_=open_)
        for member in sorted(members, key=lambda member: member.encode_name)
    }
    if required := sorted(m.encode_name for m in members if isinstance(m.default_factory, RequiredDefault)):
        schema["required"] = required
    if rules := getattr(type_, "RULES", ()):
        schema["x-kubernetes-validations"] = _rules(rules)
    return schema


def _rules(rules: tuple[ValidationRule, ...]) -> list[Schema]:
    return [
        {"rule": rule.cel, "message": rule.message, **({"fieldPath": rule.field_path} if rule.field_path else {})}
        for rule in rules
    ]


# How a limit of `Field` is spelt in a schema.
_SPELLING: Final[dict[str, str]] = {
    "format": "format",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
    "minimum": "minimum",
    "maximum": "maximum",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "list_type": "x-kubernetes-list-type",
    "map_type": "x-kubernetes-map-type",
}
# Also the limits with a default other than None, for an older version without one.
_SPELLINGS: Final[dict[str, str]] = {
    **_SPELLING,
    "default": "default",
    "enum": "enum",
    "list_map_keys": "x-kubernetes-list-map-keys",
    "rules": "x-kubernetes-validations",
}


def _limits(field: Field) -> Schema:
    schema: Schema = {
        spelling: value for name, spelling in _SPELLING.items() if (value := getattr(field, name)) is not None
    }
    if field.default is not msgspec.UNSET:
        schema["default"] = field.default
    if field.choices:
        schema["enum"] = list(field.choices)
    if field.list_map_keys:
        schema["x-kubernetes-list-map-keys"] = list(field.list_map_keys)
    if field.nullable:
        schema["nullable"] = True
    if field.preserve_unknown:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if field.rules:
        schema["x-kubernetes-validations"] = _rules(field.rules)
    return schema


# --- Older versions ---------------------------------------------------------------------------------------------------


def _apply(change: VersionChange, schema: Schema) -> None:
    """Make in `schema` the difference that an older version makes."""
    match change:
        case FieldRenamed(place, name):
            parent, _, old = place.rpartition(".")
            properties = _at(schema, parent)["properties"]
            properties[name] = properties.pop(old)
        case FieldsRemoved(place, names):
            holder = _at(schema, place)
            for name in names:
                del holder["properties"][name]
            _require(holder, [name for name in holder.get("required", ()) if name not in names])
        case FieldsAdded(place, fields):
            holder, more = _at(schema, place), _copy(_struct(fields, open_=False))
            holder["properties"] |= more["properties"]
            _require(holder, [*holder.get("required", ()), *more.get("required", ())])
        case LimitsChanged(place, without, field):
            holder = _at(schema, place)
            for name in without:
                holder.pop(_SPELLINGS[name], None)
            holder |= _limits(field)
            if field.meaning:
                holder["description"] = field.meaning
        case RequiredFields(place, names):
            _require(_at(schema, place), names)
        case RulesReplaced(place, rules):
            _at(schema, place)["x-kubernetes-validations"] = _rules(rules)


def _at(schema: Schema, place: str) -> Schema:
    for part in place.split(".") if place else ():
        name, *steps = part.split("[")
        schema = schema["properties"][name]
        for _ in steps:
            schema = schema["items"] if "items" in schema else schema["additionalProperties"]
    return schema


def _require(holder: Schema, names: Iterable[str]) -> None:
    if required := sorted(set(names)):
        holder["required"] = required
    else:
        holder.pop("required", None)


# --- CustomResourceDefinitions ----------------------------------------------------------------------------------------


def crd(row: Kind, *, webhook: Mapping[str, Any] | None = None) -> Schema:
    """The CustomResourceDefinition of a kind.

    `webhook` is the client configuration of the conversion webhook: a `service` in a cluster, a `url` elsewhere. It is
    used for kinds with versions of different structure; the others need no conversion.
    """
    names: Schema = {
        "kind": row.kind,
        "listKind": row.list_kind,
        "plural": row.plural,
        "singular": row.singular,
    }
    if row.short_names:
        names["shortNames"] = list(row.short_names)
    conversion: Schema = {"strategy": "None"}
    if row.converts and webhook is not None:
        conversion = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": copy.deepcopy(dict(webhook)), "conversionReviewVersions": ["v1"]},
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": row.name},
        "spec": {
            "group": row.group,
            "names": names,
            "scope": str(row.scope),
            "conversion": conversion,
            "versions": [_version(row, version) for version in row.versions],
        },
    }


def _version(row: Kind, version: Version) -> Schema:
    served: Schema = {"name": version.name, "served": version.served, "storage": version.storage}
    if version.deprecation is not None:
        served |= {"deprecated": True, "deprecationWarning": version.deprecation}
    served["schema"] = {"openAPIV3Schema": of(row, version.name)}
    if version.columns:
        served["additionalPrinterColumns"] = [_column(column) for column in version.columns]
    if version.selectable:
        served["selectableFields"] = [{"jsonPath": path} for path in version.selectable]
    # Subresources of other names belong to built-in kinds; a CRD can only declare these two.
    if declared := [name for name in row.subresources if name in ("status", "scale")]:
        served["subresources"] = {name: {} for name in declared}
    return served


def _column(column: PrinterColumn) -> Schema:
    shown: Schema = {"name": column.name, "jsonPath": column.path, "type": column.type}
    if column.priority:
        shown["priority"] = column.priority
    if column.description:
        shown["description"] = column.description
    return shown


# --- For people -------------------------------------------------------------------------------------------------------


_SHOWN: Final = tuple(
    spelling for name, spelling in _SPELLING.items() if name not in ("format", "list_type", "map_type")
)


class FieldDescription(msgspec.Struct, frozen=True):
    """One field, as a reference page shows it."""

    # As in an error message: `spec.podSets[].count`.
    path: str
    type: str
    meaning: str
    required: bool
    # As JSON; None for a field without a default.
    default: str | None
    choices: tuple[str, ...]
    # `maxItems: 18`, one each, as the schema spells them.
    limits: tuple[str, ...]
    # The sentences of the CEL rules that bind this value.
    rules: tuple[str, ...]


def describe(row: Kind, version: str = "") -> Iterator[FieldDescription]:
    """Every field of a kind below the object itself, parents before children, in the order of their names."""
    yield from _lines(of(row, version or row.storage.name), "")


def _lines(schema: Schema, path: str) -> Iterator[FieldDescription]:
    for name, member in schema.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        yield FieldDescription(
            path=place,
            type=_type(member),
            meaning=member.get("description", ""),
            required=name in schema.get("required", ()),
            default=msgspec.json.encode(member["default"]).decode() if "default" in member else None,
            choices=tuple(choice for part in _parts(member) for choice in part.get("enum", ())),
            limits=tuple(limit for part in _parts(member) for limit in _shown_limits(part)),
            rules=tuple(
                rule["message"] for part in _parts(member) for rule in part.get("x-kubernetes-validations", ())
            ),
        )
        below, brackets = member, ""
        while deeper := below.get("items") or below.get("additionalProperties"):
            below, brackets = deeper, brackets + "[]"
        yield from _lines(below, place + brackets)


def _parts(schema: Schema) -> Iterator[Schema]:
    """A value and, for a list or a map, its entries: the limits of both concern the user."""
    yield schema
    if entries := schema.get("items") or schema.get("additionalProperties"):
        yield entries


def _shown_limits(schema: Schema) -> Iterator[str]:
    # The pattern of a quantity follows from its type.
    if not schema.get("x-kubernetes-int-or-string"):
        yield from (f"{limit}: {schema[limit]}" for limit in _SHOWN if limit in schema)


def _type(schema: Schema) -> str:
    """`string`, `list of object`, `map of quantity` …"""
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema["type"])
