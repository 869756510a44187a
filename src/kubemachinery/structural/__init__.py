"""Structural schemas of CRDs, compiled to the operations of a server: prune, default, validate.

    schema = structural.compile(version["schema"]["openAPIV3Schema"])
    unknown = schema.unknown_fields(tree)         # for fieldValidation Strict and Warn
    tree = schema.default(schema.prune(tree))
    errors = schema.validate(tree, old)           # old: the stored object, on update

Trees are plain JSON values. No operation changes its argument; results share the unchanged parts. Parts that a new
object shares with the stored one (`old`) are skipped: they have been validated before, so a status write does not walk
the spec. `check_schema` returns why a schema cannot be served; `compile` accepts any schema and never raises.
"""

from __future__ import annotations

from typing import Final

from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.structural.defaulting import compile_defaulting
from kubemachinery.structural.embedded import compile_embedded
from kubemachinery.structural.node import ABSENT, Json, SchemaNode, read
from kubemachinery.structural.pruning import compile_pruning
from kubemachinery.structural.rules import compile_rules
from kubemachinery.structural.servable import check_schema
from kubemachinery.structural.uniqueness import compile_uniqueness
from kubemachinery.structural.values import Finding, compile_values

__all__ = ["Structural", "check_schema", "compile"]

# After these errors CEL rules are not evaluated: they could only fail on the same value.
_BLOCKING: Final = frozenset(
    {
        ErrorType.NOT_SUPPORTED,
        ErrorType.REQUIRED,
        ErrorType.TOO_LONG,
        ErrorType.TOO_MANY,
        ErrorType.TYPE_INVALID,
    }
)
_RULES_NOT_ASKED: Final = FieldError(
    "", ErrorType.INVALID, "the validation rules were not checked, because the object is invalid without them", None
)
_TOO_DEEP: Final = FieldError("", ErrorType.INVALID, "the object is nested too deeply")


class Structural:
    """A compiled schema of a whole resource."""

    def __init__(self, node: SchemaNode) -> None:
        self._prune = compile_pruning(node)
        self._default = compile_defaulting(node)
        self._values = compile_values(node, root=True)
        self._embedded = compile_embedded(node)
        self._uniqueness = compile_uniqueness(node)
        self._rules = compile_rules(node)

    def unknown_fields(self, tree: Json, old: Json = None) -> list[str]:
        """The sorted paths of unknown fields, which `prune` would remove."""
        unknown: list[str] = []
        self._prune(_new_parts(tree, old), None, unknown)
        return sorted(unknown)

    def prune(self, tree: Json) -> Json:
        """The tree without unknown fields."""
        return self._prune(tree, None, [])

    def default(self, tree: Json, old: Json = None) -> Json:
        """The tree with the defaults of absent fields, and without nulls where null is not allowed."""
        new = _new_parts(tree, old)
        if new is tree:
            return self._default(tree)
        return {**self._default(new), **{name: part for name, part in tree.items() if name not in new}}

    def validate(self, tree: Json, old: Json = None) -> list[FieldError]:
        """The errors of the tree; with `old`, of an update, which may keep values that were invalid before."""
        try:
            errors = self._structure(tree, old)
            if self._rules is None:
                return errors
            if any(error.type in _BLOCKING for error in errors):
                return [*errors, _RULES_NOT_ASKED]
            return errors + self._rules(tree, ABSENT if old is None else old)
        except RecursionError:
            return [_TOO_DEEP]

    def _structure(self, tree: Json, old: Json) -> list[FieldError]:
        findings: list[Finding] = self._values(tree, ABSENT if old is None else old) or []
        if self._embedded is not None:
            findings += self._embedded(tree)
        if self._uniqueness is not None:
            duplicates = self._uniqueness(_new_parts(tree, old))
            if duplicates and (old is None or not self._uniqueness(old)):
                findings += duplicates
        if not findings:
            return []
        errors: list[FieldError] = []
        for finding in findings:
            error = finding.error()
            if error not in errors:
                errors.append(error)
        return errors


def _new_parts(tree: Json, old: Json) -> Json:
    """The tree without the fields that are identical objects in `old`."""
    if type(tree) is not dict or type(old) is not dict:
        return tree
    return {name: part for name, part in tree.items() if old.get(name, ABSENT) is not part}


def compile(schema: Json) -> Structural:
    """Compiles the schema of a resource (the `openAPIV3Schema` of one version of a CRD)."""
    return Structural(read(schema))
