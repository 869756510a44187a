"""Validation of an object against a compiled schema: values, embedded objects, uniqueness, then CEL rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.structural.embedded import compile_embedded
from kubemachinery.structural.node import ABSENT, Json, SchemaNode, new_parts
from kubemachinery.structural.uniqueness import compile_uniqueness
from kubemachinery.structural.values import Finding, compile_values

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


def _has_rules(node: SchemaNode) -> bool:
    below = (*node.fields.values(), node.additional, node.items)
    return bool(node.rules) or any(_has_rules(each) for each in below if each is not None)


def _rules(node: SchemaNode) -> Callable[[Json, Json], list[FieldError]] | None:
    """The evaluation of the rules below the node; CEL is imported for the first schema that has rules."""
    if not _has_rules(node):
        return None
    from kubemachinery.structural.rules import compile_rules

    return compile_rules(node)


class Validation:
    """The checks of one schema."""

    def __init__(self, node: SchemaNode) -> None:
        self._values = compile_values(node, root=True)
        self._embedded = compile_embedded(node)
        self._uniqueness = compile_uniqueness(node)
        self._rules = _rules(node)

    def errors(self, tree: Json, old: Json) -> list[FieldError]:
        """The errors of the tree; with `old`, of an update."""
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
            duplicates = self._uniqueness(new_parts(tree, old))
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
