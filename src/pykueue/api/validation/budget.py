"""Validation of a Budget beyond its schema. The time zone is checked by `pykueue.calendars`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kubemachinery import quantity, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.unstructured import Tree
from pykueue.api.budget import BudgetPer
from pykueue.api.validation import field_error, metadata, quotas
from pykueue.api.validation.gates import ValidationGates

# More than all the processors of the world in a year; larger numbers are slips.
_HOURS_MAX: Final = quantity.parse("1e18")
_UNSPENT_MAX: Final = 100
_TOTAL: Final = "total"
_NAMES_OF_LOCAL_QUEUE: Final = re.compile("[^/]+/[^/]+")


def validate_create(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    spec = unstructured.mapping(tree.get("spec"))
    known = set()
    for i, amount in unstructured.entries(spec, "amounts"):
        resource = unstructured.text(amount.get("resource"))
        known.add(resource)
        # The same rule as for coveredResources: no ClusterQueue can have another name, so that nothing would count.
        yield from metadata.label_name(resource, f"spec.amounts[{i}].resource")
        yield from _hours(amount.get("hours"), f"spec.amounts[{i}].hours")
    per = unstructured.text(spec.get("per"))
    for i, override in unstructured.entries(spec, "overrides"):
        yield from _group(unstructured.text(override.get("group")), per, f"spec.overrides[{i}].group")
        for j, amount in unstructured.entries(override, "amounts"):
            path = f"spec.overrides[{i}].amounts[{j}]"
            resource = unstructured.text(amount.get("resource"))
            if resource not in known:
                yield field_error.invalid(f"{path}.resource", resource, "is not a resource of spec.amounts")
            yield from _hours(amount.get("hours"), f"{path}.hours")
    unspent = unstructured.text(unstructured.get(spec, "rollover", "unspentUpTo")) or "0%"
    if unspent.removesuffix("%").isdecimal() and int(unspent.removesuffix("%")) > _UNSPENT_MAX:
        yield field_error.invalid("spec.rollover.unspentUpTo", unspent, f"must be at most {_UNSPENT_MAX}%")


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    return validate_create(new, gates)


def _hours(value: object, path: str) -> Iterator[FieldError]:
    """Hours are not negative, not absurd, and whole thousandths: accounts are integers."""
    yield from quotas.not_negative(value, path)
    read = quotas.amount(value)
    if read is None or read < quantity.ZERO:
        return
    if read > _HOURS_MAX:
        yield field_error.invalid(path, value, "must be at most 1e18")
    elif quantity.Quantity(read.rounded(-3), -3) != read:
        yield field_error.invalid(path, value, "must have at most three decimals")


def _group(group: str, per: str, path: str) -> Iterator[FieldError]:
    """The group has the form of the groups of `spec.per`."""
    if per == BudgetPer.LOCAL_QUEUE and not _NAMES_OF_LOCAL_QUEUE.fullmatch(group):
        yield field_error.invalid(path, group, "must be NAMESPACE/LOCALQUEUE, because spec.per is LocalQueue")
    elif per in (BudgetPer.CLUSTER_QUEUE, BudgetPer.NAMESPACE) and "/" in group:
        yield field_error.invalid(path, group, f"must be the name of a {per}, because spec.per is {per}")
    elif per == BudgetPer.TOTAL and group != _TOTAL:
        yield field_error.invalid(path, group, f"must be {_TOTAL}, because spec.per is Total")
