"""What is refused, and why. Three parties ask, one after the other, each only when the one before is content:

* `unreadable`: whether a new object can be read at all. Our defaulting webhook comes first, and answers 400.
* `structural_errors`: the schema with its limits and CEL rules, transition rules included. An API server asks these
  itself and answers 422.
* `validate_create`, `validate_update`: the rules that a schema cannot state. Our webhook asks these, in v1beta2, and
  the refusal is a 403. Kinds that are not in the table below have a schema and nothing more.

`validate` asks the last two, for those who have no server. `warnings` are sentences about what is allowed and probably
not meant. None of these raises, whatever JSON comes along; each answers with a list that is empty when all is well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from kubemachinery import unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api import conversion, own_schemas
from pykueue.api.validation import cluster_queue, cohort, metadata, resource_flavor, workload
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
    """What the module of a kind offers."""

    def validate_create(self, tree: Tree, gates: ValidationGates) -> Iterator[FieldError]: ...

    def validate_update(self, new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]: ...


_BY_KIND: Final[dict[str, _Rules]] = {
    "ClusterQueue": cluster_queue,
    "Cohort": cohort,
    "ResourceFlavor": resource_flavor,
    "Workload": workload,
}


def structural_errors(tree: Tree, old: Tree | None = None) -> list[FieldError]:
    """What the schema of `tree`'s own version says of it; with `old`, of the change."""
    schema = own_schemas.find(tree)
    if schema is None:
        return []
    return [*metadata.object_metadata(tree), *schema.validate(tree, old)]


def validate_create(tree: Tree, gates: ValidationGates = _GATES) -> list[FieldError]:
    """What our webhook has against creating `tree`."""
    rules = _BY_KIND.get(unstructured.text(tree.get("kind")))
    return [] if rules is None else list(rules.validate_create(_hub(tree), gates))


def validate_update(new: Tree, old: Tree, gates: ValidationGates = _GATES) -> list[FieldError]:
    """What our webhook has against `new` in place of `old`, or a status against the one before."""
    rules = _BY_KIND.get(unstructured.text(new.get("kind")))
    return [] if rules is None else list(rules.validate_update(_hub(new), _hub(old), gates))


def validate(tree: Tree, old: Tree | None = None, gates: ValidationGates = _GATES) -> list[FieldError]:
    """What a server with our webhook would have against `tree`, first the schema and then the rules."""
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
    # An API server converts for a webhook that knows one version only.
    return conversion.convert(tree, conversion.HUB)
