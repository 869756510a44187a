"""Validation of objects, in three steps; each runs only when the one before has no errors:

* `unreadable`: whether a new object can be decoded. The defaulting webhook runs first, and responds with 400.
* `structural_errors`: the schema with its limits and CEL rules, transition rules included. The API server checks these
  itself and responds with 422.
* `validate_create`, `validate_update`: the rules that a schema cannot express. The webhook checks these, in v1beta2,
  and responds with 403. Kinds that are not in the table below have only a schema.

`validate` runs the last two, without a server. `warnings` are sentences about what is allowed and probably not
intended. None of these raises, for any JSON; each returns a list that is empty for a valid object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import conversion, own_schemas
from pykueue.api.validation import budget, cluster_queue, cohort, metadata, quota_schedule, resource_flavor, workload
from pykueue.api.validation.default_local_queue import asks_for_local_queues, default_local_queue_conflicts
from pykueue.api.validation.gates import ValidationGates
from pykueue.api.validation.reading import filled, unreadable

__all__ = [
    "ValidationGates",
    "asks_for_local_queues",
    "default_local_queue_conflicts",
    "filled",
    "structural_errors",
    "unreadable",
    "validate",
    "validate_create",
    "validate_update",
    "warnings",
]

_GATES: Final = ValidationGates()


class _Rules(Protocol):
    """The functions of the module of a kind."""

    def validate_create(self, tree: Tree, gates: ValidationGates) -> Iterator[FieldError]: ...

    def validate_update(self, new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]: ...


_BY_KIND: Final[dict[str, _Rules]] = {
    "Budget": budget,
    "ClusterQueue": cluster_queue,
    "Cohort": cohort,
    "QuotaSchedule": quota_schedule,
    "ResourceFlavor": resource_flavor,
    "Workload": workload,
}


def structural_errors(tree: Tree, old: Tree | None = None) -> list[FieldError]:
    """The errors of `tree` by the schema of its version; with `old`, of the update."""
    schema = own_schemas.find(tree)
    if schema is None:
        return []
    return [*metadata.object_metadata(tree), *schema.validate(tree, old)]


def validate_create(tree: Tree, gates: ValidationGates = _GATES) -> list[FieldError]:
    """The errors of the webhook on creation of `tree`."""
    rules = _BY_KIND.get(unstructured.text(tree.get("kind")))
    return [] if rules is None else list(rules.validate_create(_hub(tree), gates))


def validate_update(new: Tree, old: Tree, gates: ValidationGates = _GATES) -> list[FieldError]:
    """The errors of the webhook on update of `old` to `new`, or of a status update."""
    rules = _BY_KIND.get(unstructured.text(new.get("kind")))
    return [] if rules is None else list(rules.validate_update(_hub(new), _hub(old), gates))


def validate(tree: Tree, old: Tree | None = None, gates: ValidationGates = _GATES) -> list[FieldError]:
    """The errors of a server with the webhook: of the schema, and if there are none, of the rules."""
    errors = structural_errors(tree, old)
    if errors:
        return errors
    return validate_create(tree, gates) if old is None else validate_update(tree, old, gates)


def warnings(tree: Tree, gates: ValidationGates = _GATES, *, only_declared: bool = False) -> list[str]:
    """Warnings about `tree` that follow from its values; `effects.warnings` has those about fields without effect."""
    if tree.get("kind") != "ClusterQueue":
        return []
    return list(cluster_queue.warnings(_hub(tree), gates, only_declared=only_declared))


def _hub(tree: Tree) -> Tree:
    # An API server converts for a webhook that supports one version only.
    return conversion.convert(tree, conversion.HUB)
