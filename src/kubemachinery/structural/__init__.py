"""Structural schemas of CRDs, compiled to the operations of a server: prune, default, validate.

    schema = structural.compile(version["schema"]["openAPIV3Schema"])
    unknown = schema.unknown_fields(tree)         # for fieldValidation Strict and Warn
    tree = schema.default(schema.prune(tree))
    errors = schema.validate(tree, old)           # old: the stored object, on update

Trees are plain JSON values. No operation changes its argument; results share the unchanged parts. Parts that a new
object shares with the stored one (`old`) are skipped: they have been validated before, so a status write does not walk
the spec. `check_schema` returns why a schema cannot be served; `compile` accepts any schema and never raises.

Each operation is compiled when it is first used, and its modules are imported then: validation compiles CEL rules and
patterns, which takes far longer than to prune and default, and short commands only do these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from kubemachinery.field_errors import FieldError
from kubemachinery.structural.defaulting import compile_defaulting
from kubemachinery.structural.node import Json, SchemaNode, new_parts, read
from kubemachinery.structural.pruning import compile_pruning

if TYPE_CHECKING:
    from kubemachinery.structural.validation import Validation

__all__ = ["Structural", "check_schema", "compile"]


class Structural:
    """A compiled schema of a whole resource."""

    def __init__(self, node: SchemaNode) -> None:
        self._node = node

    @cached_property
    def _prune(self) -> Callable[[Json, Json, list[str]], Json]:
        return compile_pruning(self._node)

    @cached_property
    def _default(self) -> Callable[[Json], Json]:
        return compile_defaulting(self._node)

    @cached_property
    def _validation(self) -> Validation:
        from kubemachinery.structural import validation

        return validation.Validation(self._node)

    def unknown_fields(self, tree: Json, old: Json = None) -> list[str]:
        """The sorted paths of unknown fields, which `prune` would remove."""
        unknown: list[str] = []
        self._prune(new_parts(tree, old), None, unknown)
        return sorted(unknown)

    def prune(self, tree: Json) -> Json:
        """The tree without unknown fields."""
        return self._prune(tree, None, [])

    def default(self, tree: Json, old: Json = None) -> Json:
        """The tree with the defaults of absent fields, and without nulls where null is not allowed."""
        new = new_parts(tree, old)
        if new is tree:
            return self._default(tree)
        return {**self._default(new), **{name: part for name, part in tree.items() if name not in new}}

    def validate(self, tree: Json, old: Json = None) -> list[FieldError]:
        """The errors of the tree; with `old`, of an update, which may keep values that were invalid before."""
        return self._validation.errors(tree, old)


def compile(schema: Json) -> Structural:
    """Compiles the schema of a resource (the `openAPIV3Schema` of one version of a CRD)."""
    return Structural(read(schema))


def check_schema(schema: Json, path: str = "openAPIV3Schema") -> list[FieldError]:
    """Why a server cannot serve the schema; empty if it can."""
    from kubemachinery.structural import servable

    return servable.check_schema(schema, path)
