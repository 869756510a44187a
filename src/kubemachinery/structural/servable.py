"""Validation of the schema of a CRD: what kube-apiserver refuses at creation, each with its path.

A schema is *structural* when the shape of an object (types, properties, items) is declared once, outside of `allOf`,
`anyOf`, `oneOf` and `not`, and those only narrow it. That is what makes pruning and defaulting possible. Beyond that,
defaults must be valid, and rules must compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kubemachinery import cel
from kubemachinery.cel import re2
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.structural.correlation import same
from kubemachinery.structural.declarations import Declarations, field_path
from kubemachinery.structural.node import ABSENT, RESOURCE_FIELDS, Json, SchemaNode, is_number, read
from kubemachinery.structural.pruning import compile_part_pruning
from kubemachinery.structural.rules import compile_rule, compile_rules
from kubemachinery.structural.values import compile_values

Schema = dict[str, Any]
Errors = Iterator[FieldError]


def check_schema(schema: Json, path: str = "openAPIV3Schema") -> list[FieldError]:
    """The errors of the schema of a resource; empty when it can be served."""
    try:
        errors = list(_misshapen(schema, path))
        if errors:
            return errors
        # Later checks rely on the results of earlier ones.
        for stage in ((_structure, _complete, _each_schema), (_defaults,), (_rules,)):
            errors = [error for check in stage for error in check(schema, path)]
            if errors:
                return errors
        return []
    except RecursionError:
        return [FieldError(path, ErrorType.INVALID, "the schema is nested too deeply")]


def _invalid(path: str, value: object, message: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, message, value)


def _forbidden(path: str, message: str) -> FieldError:
    return FieldError(path, ErrorType.FORBIDDEN, message)


def _required(path: str, message: str) -> FieldError:
    return FieldError(path, ErrorType.REQUIRED, message)


def _unsupported(path: str, value: object, options: tuple[str, ...]) -> FieldError:
    return FieldError(
        path, ErrorType.NOT_SUPPORTED, "supported values: " + ", ".join(f'"{option}"' for option in options), value
    )


# --- Keywords of the wrong type -----------------------------------------------------------------------------------


def _is_count(value: Json) -> bool:
    return type(value) is int


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _are_texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


_KEYWORDS: Final[dict[str, tuple[str, Callable[[Json], bool]]]] = {
    **dict.fromkeys(
        ("type", "format", "pattern", "title", "description", "x-kubernetes-list-type", "x-kubernetes-map-type"),
        ("a string", _is_text),
    ),
    **dict.fromkeys(
        (
            *("nullable", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum"),
            *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
        ),
        ("true or false", _is_flag),
    ),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), ("an integer", _is_count)
    ),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), ("a number", is_number)),
    **dict.fromkeys(("properties", "not"), ("an object", _is_object)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "enum", "x-kubernetes-validations"), ("a list", _is_list)),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), ("a list of strings", _are_texts)),
}
_RULE_KEYWORDS: Final[dict[str, tuple[str, Callable[[Json], bool]]]] = {
    **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), ("a string", _is_text)),
    "optionalOldSelf": ("true or false", _is_flag),
}


def _misshapen(schema: Json, path: str) -> Errors:
    if not isinstance(schema, dict):
        yield FieldError(path, ErrorType.TYPE_INVALID, "must be an object", type(schema).__name__)
        return
    yield from _keywords(schema, path, _KEYWORDS)
    for child, child_path in _subschemas(schema, path):
        yield from _misshapen(child, child_path)
    for index, rule in enumerate(_list(schema, "x-kubernetes-validations")):
        place = f"{path}.x-kubernetes-validations[{index}]"
        if isinstance(rule, dict):
            yield from _keywords(rule, place, _RULE_KEYWORDS)
        else:
            yield FieldError(place, ErrorType.TYPE_INVALID, "must be an object", type(rule).__name__)


def _keywords(schema: Schema, path: str, keywords: dict[str, tuple[str, Callable[[Json], bool]]]) -> Errors:
    for keyword, value in schema.items():
        words, fits = keywords.get(keyword, ("", None))
        if fits is not None and value is not None and not fits(value):
            yield FieldError(f"{path}.{keyword}", ErrorType.TYPE_INVALID, f"must be {words}", value)


def _list(schema: Schema, keyword: str) -> list[Json]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _object(schema: Schema, keyword: str) -> dict[str, Json]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _shape_schemas(schema: Schema, path: str) -> Iterator[tuple[Json, str]]:
    """The schemas that declare the shape of nested values: properties, additional properties, items."""
    for name, child in _object(schema, "properties").items():
        yield child, f"{path}.properties[{name}]"
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"], f"{path}.additionalProperties"
    if isinstance(schema.get("items"), dict):
        yield schema["items"], f"{path}.items"


def _narrowing_schemas(schema: Schema, path: str) -> Iterator[tuple[Json, str]]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, child in enumerate(_list(schema, keyword)):
            yield child, f"{path}.{keyword}[{index}]"
    if isinstance(schema.get("not"), dict):
        yield schema["not"], f"{path}.not"


def _subschemas(schema: Schema, path: str) -> Iterator[tuple[Json, str]]:
    yield from _shape_schemas(schema, path)
    yield from _narrowing_schemas(schema, path)


# --- Structure ----------------------------------------------------------------------------------------------------

_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_WITHOUT_TYPE: Final = {
    "root": "must not be empty at the root",
    "items": "must not be empty for the items of a list",
    "field": "must not be empty for a field",
}
# The keywords that declare shape, which are forbidden where a schema only narrows.
_SHAPING: Final = (
    *("type", "additionalProperties", "default", "title", "description", "nullable"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
    *("x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-validations"),
)


def _structure(schema: Schema, path: str, level: str = "root") -> Errors:
    type_ = schema.get("type") or ""
    embedded = schema.get("x-kubernetes-embedded-resource") is True
    int_or_string = schema.get("x-kubernetes-int-or-string") is True
    preserving = schema.get("x-kubernetes-preserve-unknown-fields") is True
    additional = schema.get("additionalProperties")
    if type_ == "array" and not isinstance(schema.get("items"), dict):
        yield _required(f"{path}.items", "must be specified for a list")
    for child, child_path in _shape_schemas(schema, path):
        yield from _structure(child, child_path, "items" if child_path == f"{path}.items" else "field")
    if additional is not None and level == "root":
        yield _forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if additional is not None and embedded:
        yield _forbidden(f"{path}.additionalProperties", "must not be used in an embedded resource")
    for keyword, is_set in (("preserve-unknown-fields", preserving), ("embedded-resource", embedded)):
        if int_or_string and is_set:
            yield _invalid(f"{path}.x-kubernetes-{keyword}", True, "must be false with x-kubernetes-int-or-string")
    if embedded and type_ != "object":
        yield _invalid(f"{path}.type", type_, "must be object for an embedded resource")
    elif not type_ and not int_or_string and not preserving:
        yield _required(f"{path}.type", _WITHOUT_TYPE[level])
    if level == "root" and type_ and type_ != "object":
        yield _invalid(f"{path}.type", type_, "must be object at the root")
    if embedded and not preserving and not _object(schema, "properties"):
        yield _required(
            f"{path}.properties", "must not be empty for an embedded resource that does not preserve unknown fields"
        )
    yield from _identity(schema, path, level, embedded)
    yield from _narrowing(schema, path)


def _identity(schema: Schema, path: str, level: str, embedded: bool) -> Errors:
    """apiVersion, kind and metadata are fixed; a schema may at most restrict names."""
    properties = _object(schema, "properties")
    if level == "root" or embedded:
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type") != "string":
                yield _invalid(f"{path}.properties[{name}].type", properties[name].get("type"), "must be string")
        if "metadata" in properties and properties["metadata"].get("type") != "object":
            yield _invalid(f"{path}.properties[metadata].type", properties["metadata"].get("type"), "must be object")
    if level == "root" and "metadata" in properties:
        metadata = properties["metadata"]
        inside = set(_object(metadata, "properties")) - {"name", "generateName"}
        if inside or set(metadata) - {"type", "description", "properties"}:
            yield _forbidden(f"{path}.properties[metadata]", "may only restrict name and generateName")


def _narrowing(schema: Schema, path: str) -> Errors:
    pattern = schema.get("pattern")
    if pattern:
        try:
            re2.compile(pattern)
        except re2.PatternError as error:
            yield _invalid(f"{path}.pattern", pattern, f"must be a regular expression: {error}")
    # The two forms of "integer or string", in which types are allowed.
    for child, child_path in _narrowing_schemas(schema, path):
        if child_path.startswith(f"{path}.anyOf") and schema.get("anyOf") == _INT_OR_STRING:
            continue
        excused = child_path == f"{path}.allOf[0]" and child.get("anyOf") == _INT_OR_STRING
        yield from _nested(child, child_path, excused=excused)


def _nested(schema: Schema, path: str, *, excused: bool = False) -> Errors:
    for keyword in _SHAPING:
        if schema.get(keyword) not in (None, False, "", []):
            yield _forbidden(f"{path}.{keyword}", "must not be set where a schema only narrows")
    if "metadata" in _object(schema, "properties"):
        yield _forbidden(f"{path}.properties[metadata]", "must not be specified where a schema only narrows")
    for child, child_path in _shape_schemas(schema, path):
        if child_path != f"{path}.additionalProperties":
            yield from _nested(child, child_path)
    yield from _narrowing({**schema, "anyOf": None} if excused else schema, path)


def _complete(schema: Schema, path: str) -> Errors:
    """Every value that a narrowing schema mentions must have its shape declared outside of it."""
    for child, child_path in _narrowing_schemas(schema, path):
        yield from _covered(child, schema, child_path, path)


def _covered(narrowing: Schema, shape: Schema, narrowing_path: str, path: str) -> Errors:
    for name, child in _object(narrowing, "properties").items():
        outside = _object(shape, "properties").get(name)
        inner_path, inner_shape = f"{narrowing_path}.properties[{name}]", f"{path}.properties[{name}]"
        if outside is None:
            yield _required(inner_shape, f"because it is used in {inner_path}")
        else:
            yield from _covered(child, outside, inner_path, inner_shape)
    if isinstance(narrowing.get("items"), dict):
        if not isinstance(shape.get("items"), dict):
            yield _required(f"{path}.items", f"because it is used in {narrowing_path}.items")
        else:
            yield from _covered(narrowing["items"], shape["items"], f"{narrowing_path}.items", f"{path}.items")
    for child, child_path in _narrowing_schemas(narrowing, narrowing_path):
        yield from _covered(child, shape, child_path, path)


# --- Each schema by itself ----------------------------------------------------------------------------------------

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSERVED: Final = ("id", "$ref", "$schema", "additionalItems", "patternProperties", "definitions", "dependencies")
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


class _Where(msgspec.Struct, frozen=True):
    """The keywords that the context of a schema forbids."""

    root: bool = False
    in_metadata: bool = False
    default_forbidden: str = ""


_AT_ROOT: Final = _Where(root=True)


def _each_schema(schema: Schema, path: str, where: _Where = _AT_ROOT) -> Errors:
    if where.root and schema.get("nullable"):
        yield _forbidden(f"{path}.nullable", "cannot be true at the root")
    type_ = schema.get("type")
    if type_ == "null":
        yield _forbidden(f"{path}.type", "cannot be null, use nullable instead")
    if type_ and type_ not in _TYPES:
        yield _unsupported(f"{path}.type", type_, _TYPES)
    for keyword in _UNSERVED:
        if schema.get(keyword):
            yield _forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if isinstance(schema.get("items"), list):
        yield _forbidden(f"{path}.items", "must be one schema, not a list of them")
    if schema.get("default") is not None and where.default_forbidden:
        yield _forbidden(f"{path}.default", f"must not be set {where.default_forbidden}")
    if schema.get("uniqueItems"):
        yield _forbidden(f"{path}.uniqueItems", "cannot be true, use x-kubernetes-list-type: set instead")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield _invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or absent")
    if where.in_metadata and schema.get("x-kubernetes-embedded-resource"):
        yield _forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside metadata")
    if _object(schema, "properties") and schema.get("additionalProperties") not in (None, True):
        yield _forbidden(f"{path}.additionalProperties", "and properties exclude each other")
    yield from _map_type(schema, path)
    yield from _list_type(schema, path)
    yield from _rule_texts(schema, path)
    for child, child_path in _subschemas(schema, path):
        yield from _each_schema(child, child_path, _inside(schema, path, child_path, where))


def _inside(schema: Schema, path: str, child_path: str, where: _Where) -> _Where:
    resource = where.root or schema.get("x-kubernetes-embedded-resource") is True
    name = next((name for name in RESOURCE_FIELDS if child_path == f"{path}.properties[{name}]"), "")
    inner = replace(where, root=False)
    if resource and name:
        reason = f"in the {name} of a resource" if where.root else where.default_forbidden
        return replace(inner, in_metadata=True, default_forbidden=reason)
    if where.in_metadata and child_path == f"{path}.additionalProperties":
        return replace(inner, default_forbidden="inside additionalProperties of metadata")
    return inner


def _map_type(schema: Schema, path: str) -> Errors:
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is None:
        return
    if schema.get("type") != "object":
        yield _invalid(f"{path}.type", schema.get("type") or "", "must be object with x-kubernetes-map-type")
    if map_type not in ("atomic", "granular"):
        yield _unsupported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))


def _list_type(schema: Schema, path: str) -> Errors:
    list_type = schema.get("x-kubernetes-list-type")
    keys = _list(schema, "x-kubernetes-list-map-keys")
    items = _object(schema, "items")
    if keys and list_type is None:
        yield _required(f"{path}.x-kubernetes-list-type", "must be map with x-kubernetes-list-map-keys")
    elif keys and list_type != "map":
        yield _invalid(f"{path}.x-kubernetes-list-type", list_type, "must be map with x-kubernetes-list-map-keys")
    if list_type is None:
        return
    if schema.get("type") != "array":
        yield _invalid(f"{path}.type", schema.get("type") or "", "must be array with x-kubernetes-list-type")
    if list_type not in ("atomic", "set", "map"):
        yield _unsupported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if list_type in ("set", "map") and items.get("nullable"):
        yield _forbidden(f"{path}.items.nullable", f"cannot be true in a {list_type}")
    if list_type == "set":
        yield from _set_items(items, path)
    elif list_type == "map":
        yield from _map_items(items, keys, path)


def _set_items(items: Schema, path: str) -> Errors:
    """The items of a set are owned as a whole, so no part of them may be owned separately."""
    if items.get("type") == "array" and items.get("x-kubernetes-list-type") not in (None, "atomic"):
        yield _invalid(
            f"{path}.items.x-kubernetes-list-type", items["x-kubernetes-list-type"], "must be atomic in a set"
        )
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        found = items.get("x-kubernetes-map-type") or ""
        yield _invalid(f"{path}.items.x-kubernetes-map-type", found, "must be atomic in a set")


def _map_items(items: Schema, keys: list[Json], path: str) -> Errors:
    if not keys:
        yield _required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    if items.get("type") != "object":
        yield _invalid(f"{path}.items.type", items.get("type") or "", "must be object in a map")
        return
    if len(set(keys)) < len(keys):
        yield _invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not name a key twice")
    for key in keys:
        found = _object(items, "properties").get(key)
        place = f"{path}.items.properties[{key}]"
        if found is None:
            yield _invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must name properties of the items")
            continue
        if found.get("type") in ("array", "object"):
            yield _invalid(f"{place}.type", found["type"], "must be a scalar, it is a key")
        if key not in _list(items, "required") and found.get("default") is None:
            yield _required(f"{place}.default", "a key must be required or have a default")
        if found.get("nullable"):
            yield _forbidden(f"{place}.nullable", "a key cannot be nullable")


def _rule_texts(schema: Schema, path: str) -> Errors:
    node = read(schema)
    for index, rule in enumerate(node.rules):
        place = f"{path}.x-kubernetes-validations[{index}]"
        if not rule.rule.strip():
            yield _required(f"{place}.rule", "must not be empty")
        elif rule.message and not rule.message.strip():
            yield _invalid(f"{place}.message", rule.message, "must not be blank")
        elif "\n" in rule.message.strip():
            yield _invalid(f"{place}.message", rule.message, "must not contain line breaks")
        elif "\n" in rule.rule.strip() and not rule.message.strip():
            yield _required(f"{place}.message", "must be there if the rule has several lines")
        if rule.message_expression and not rule.message_expression.strip():
            yield _required(f"{place}.messageExpression", "must not be blank")
        if rule.reason and rule.reason not in _REASONS:
            yield _unsupported(f"{place}.reason", rule.reason, _REASONS)
        if rule.field_path and field_path(node, rule.field_path) is None:
            yield _invalid(f"{place}.fieldPath", rule.field_path, "must be a path to a field")


# --- Defaults -----------------------------------------------------------------------------------------------------


def _defaults(schema: Schema, path: str) -> Errors:
    default = schema.get("default")
    if default is not None:
        yield from _default(read(schema), default, f"{path}.default")
    for child, child_path in _shape_schemas(schema, path):
        if child_path != f"{path}.additionalProperties":
            yield from _defaults(child, child_path)


def _default(node: SchemaNode, default: Json, path: str) -> Errors:
    unknown: list[str] = []
    if not same(compile_part_pruning(node)(default, None, unknown), default):
        yield _invalid(path, default, f"must not have unknown fields: {', '.join(unknown)}")
    findings = compile_values(node)(default, ABSENT) or []
    for finding in findings:
        finding.steps.append(f".{path}")
        yield finding.error()
    rules = compile_rules(node, resource=False)
    if rules is not None and not findings:
        # As a new value, and as one that an update keeps.
        for error in rules(default, ABSENT) or rules(default, default):
            yield msgspec.structs.replace(error, path=f"{path}.{error.path}" if error.path else path)


# --- Rules --------------------------------------------------------------------------------------------------------


def _rules(schema: Schema, path: str) -> Errors:
    yield from _rules_of(read(schema), path, Declarations(), "", root=True)


def _rules_of(
    node: SchemaNode, path: str, declarations: Declarations, uncorrelated: str, *, root: bool = False
) -> Errors:
    """`uncorrelated`: the list around this schema in which no old item corresponds to a new one, if there is one."""
    self_type = declarations.type_of(node, root=root)
    for index, rule in enumerate(node.rules):
        place = f"{path}.x-kubernetes-validations[{index}]"
        if self_type is None:
            yield _invalid(
                f"{place}.rule", rule.rule, "cannot be checked, the schema does not declare the type of the value"
            )
            continue
        compiled = compile_rule(rule, node, self_type)
        if isinstance(compiled.program, cel.CompileError):
            yield _invalid(f"{place}.rule", rule.rule, f"does not compile: {compiled.program}")
        if isinstance(compiled.message, cel.CompileError):
            yield _invalid(
                f"{place}.messageExpression", rule.message_expression, f"does not compile: {compiled.message}"
            )
        if compiled.uses_old_self and uncorrelated:
            yield _invalid(f"{place}.rule", rule.rule, f"oldSelf cannot be used inside {uncorrelated}")
        if not compiled.uses_old_self and rule.optional_old_self is not None:
            yield _invalid(f"{place}.optionalOldSelf", rule.optional_old_self, "has no effect without oldSelf")
    for name, child in node.fields.items():
        yield from _rules_of(child, f"{path}.properties[{name}]", declarations, uncorrelated)
    if node.additional is not None:
        yield from _rules_of(node.additional, f"{path}.additionalProperties", declarations, uncorrelated)
    if node.items is not None:
        inside = uncorrelated if node.list_type == "map" else uncorrelated or path
        yield from _rules_of(node.items, f"{path}.items", declarations, inside)
