"""Validation of a Cohort beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.validation import quotas
from pykueue.api.validation.gates import ValidationGates


def validate_create(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    spec = unstructured.mapping(tree.get("spec"))
    # A cohort has quota for its members too, so it may lend more than is nominally its own.
    limits = quotas.QuotaContext("parent", has_parent=bool(spec.get("parentName")), lends_at_most_nominal=False)
    yield from quotas.fair_sharing(spec.get("fairSharing"), "spec.fairSharing")
    yield from quotas.resource_groups(spec.get("resourceGroups"), "spec.resourceGroups", limits)


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    return validate_create(new, gates)
