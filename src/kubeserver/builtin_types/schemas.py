"""OpenAPI v3 of the built-in types, made from their table of fields.

`inlined(name)` is one structural schema without references, as a CRD carries it: for pruning, merging and patching.
`components(name)` is the same with `$ref`, and everything that it leads to, as an OpenAPI document has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

from kubeserver.builtin_types.types import FieldType, MessageField, message

Schema: TypeAlias = dict[str, Any]

_STRING: Final = {"type": "string"}
_PLAIN: Final[dict[str, Schema]] = {
    "string": _STRING,
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "Duration": _STRING,
    "Quantity": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
    "IntOrString": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
    # One value whatever it holds.
    "FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-map-type": "atomic"},
    "RawExtension": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-map-type": "atomic",
    },
    # Any JSON at all.
    "JSON": {"x-kubernetes-preserve-unknown-fields": True},
    "JSONSchemaPropsOrBool": {"x-kubernetes-preserve-unknown-fields": True},
    "JSONSchemaPropsOrArray": {"x-kubernetes-preserve-unknown-fields": True},
    "JSONSchemaPropsOrStringArray": {"x-kubernetes-preserve-unknown-fields": True},
}

# Those of the plain types that have a name of their own, which `kubectl explain` shows.
_NAMED: Final = {
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
}

# A type inside itself (the schema of a CRD) is as far as inlining goes.
_RECURSION: Final[Schema] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_Refer: TypeAlias = Callable[[str], Schema]


@cache
def inlined(name: str) -> Schema:
    """The structural schema of a message, with every other message written out. Callers must not change it."""
    return _inlined(name, ())


def _inlined(name: str, above: tuple[str, ...]) -> Schema:
    if name in _PLAIN:
        return _PLAIN[name]
    if name in above:
        return _RECURSION
    return _message(name, lambda other: _inlined(other, (*above, name)))


@cache
def components(name: str) -> dict[str, Schema]:
    """The schema of a message and of all that it refers to, by their public names. Callers must not change them."""
    named = {public: _PLAIN[plain] for plain, public in _NAMED.items()}
    return {**named, **{public_name(other): _component(other) for other in _referenced(name)}}


@cache
def _component(name: str) -> Schema:
    return _message(name, _reference)


def _reference(name: str) -> Schema:
    if name in _PLAIN and name not in _NAMED:
        return _PLAIN[name]
    return {"$ref": f"#/components/schemas/{_NAMED.get(name) or public_name(name)}"}


def public_name(name: str) -> str:
    """The name of a message in OpenAPI documents: `io.k8s.api.core.v1.PodSpec`."""
    package, _, _ = name.partition(".")
    if package == "meta":
        return f"io.k8s.apimachinery.pkg.apis.{name}"
    if package == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.{name}"
    return f"io.k8s.api.{name}"


def _referenced(name: str) -> list[str]:
    """This message and every message it leads to, each once."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        found[name] = None
        for field in message(name).fields.values():
            kind: FieldType | None = field.type
            while kind is not None:
                if kind.is_message:
                    visit(kind.name)
                kind = kind.item or kind.value

    visit(name)
    return list(found)


def _message(name: str, refer: _Refer) -> Schema:
    fields = message(name).fields
    out: Schema = {"type": "object"}
    if fields:
        out["properties"] = {field.name: _field(field, refer) for field in fields.values()}
    if required := [field.name for field in fields.values() if field.required]:
        out["required"] = required
    if message(name).atomic:
        out["x-kubernetes-map-type"] = "atomic"
    return out


def _field(field: MessageField, refer: _Refer) -> Schema:
    out = dict(_type(field.type, refer))
    if field.type.item is not None:
        if field.list_keys:
            out["x-kubernetes-list-type"] = "map"
            out["x-kubernetes-list-map-keys"] = list(field.list_keys)
        else:
            out["x-kubernetes-list-type"] = "set" if field.list_set else "atomic"
    if field.map_atomic:
        out["x-kubernetes-map-type"] = "atomic"
    if strategies := [word for word, on in (("merge", field.merge), ("retainKeys", field.retain_keys)) if on]:
        out["x-kubernetes-patch-strategy"] = ",".join(strategies)
    if field.merge_key:
        out["x-kubernetes-patch-merge-key"] = field.merge_key
    if field.default is not None:
        out["default"] = field.default
    if field.enum:
        out["enum"] = list(field.enum)
    return out


def _type(kind: FieldType, refer: _Refer) -> Schema:
    if kind.item is not None:
        return {"type": "array", "items": _type(kind.item, refer)}
    if kind.value is not None:
        return {"type": "object", "additionalProperties": _type(kind.value, refer)}
    return refer(kind.name)
