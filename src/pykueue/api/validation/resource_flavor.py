"""Validation of a ResourceFlavor beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.validation import metadata, scheduling
from pykueue.api.validation.gates import ValidationGates


def validate_create(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    spec = unstructured.mapping(tree.get("spec"))
    yield from metadata.label_map(spec.get("nodeLabels"), "spec.nodeLabels")
    yield from scheduling.taints(spec.get("nodeTaints"), "spec.nodeTaints")
    yield from scheduling.tolerations(spec.get("tolerations"), "spec.tolerations")


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    return validate_create(new, gates)
