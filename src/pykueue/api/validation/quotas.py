"""Validation of resource groups and weights, shared by ClusterQueue and Cohort."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from kubemachinery import quantity, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.quantity import Quantity
from pykueue.api.validation import field_error, metadata

# A weight this small would become 0 in the arithmetic of shares.
_VANISHING_WEIGHT: Final = quantity.parse("1n")


class QuotaContext(msgspec.Struct, frozen=True):
    """The context of the groups: the parent, and what may be lent."""

    parent_word: str
    has_parent: bool
    lends_at_most_nominal: bool


def amount(value: object) -> Quantity | None:
    """The quantity of a JSON value, or `None`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return quantity.parse(value)
    except ValueError:
        return None


def not_negative(value: object, path: str) -> Iterator[FieldError]:
    """The value must be a quantity and not negative; absent is valid."""
    if value is None:
        return
    read = amount(value)
    if read is None:
        yield field_error.invalid(path, value, "is not a quantity such as 100m, 1.5Gi or 2e3")
    elif read < quantity.ZERO:
        yield field_error.invalid(path, value, field_error.NOT_NEGATIVE)


def resource_groups(value: object, path: str, limits: QuotaContext) -> Iterator[FieldError]:
    """No resource or flavor in two groups; quotas in the order of the covered resources."""
    seen_resources: set[str] = set()
    seen_flavors: set[str] = set()
    for i, group in enumerate(map(unstructured.mapping, unstructured.sequence(value))):
        covered = [unstructured.text(name) for name in unstructured.sequence(group.get("coveredResources"))]
        for j, name in enumerate(covered):
            place = f"{path}[{i}].coveredResources[{j}]"
            yield from metadata.label_name(name, place)
            if name in seen_resources:
                yield field_error.duplicate(place, name)
            seen_resources.add(name)
        for j, flavor in unstructured.entries(group, "flavors"):
            place = f"{path}[{i}].flavors[{j}]"
            yield from _flavor_quotas(flavor, covered, place, limits)
            name = unstructured.text(flavor.get("name"))
            if name in seen_flavors:
                yield field_error.duplicate(f"{place}.name", name)
            seen_flavors.add(name)


def _flavor_quotas(
    flavor: Mapping[str, Any], covered: list[str], path: str, limits: QuotaContext
) -> Iterator[FieldError]:
    # Lists of different lengths are for the schema to refuse.
    for (k, quota), name in zip(unstructured.entries(flavor, "resources"), covered, strict=False):
        place = f"{path}.resources[{k}]"
        if quota.get("name") != name:
            yield field_error.invalid(
                f"{place}.name", quota.get("name"), f"must be {name}, as coveredResources has it here"
            )
        yield from not_negative(quota.get("nominalQuota"), f"{place}.nominalQuota")
        for field in ("borrowingLimit", "lendingLimit"):
            yield from _limit(quota.get(field), f"{place}.{field}", limits)
        if limits.lends_at_most_nominal:
            yield from _lending(quota, f"{place}.lendingLimit")


def _limit(value: object, path: str, limits: QuotaContext) -> Iterator[FieldError]:
    if value is None:
        return
    yield from not_negative(value, path)
    if not limits.has_parent:
        yield field_error.invalid(path, value, f"must be absent while there is no {limits.parent_word}")


def _lending(quota: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    lent, nominal = amount(quota.get("lendingLimit")), amount(quota.get("nominalQuota"))
    if lent is not None and lent > (nominal or quantity.ZERO):
        yield field_error.invalid(path, quota.get("lendingLimit"), "must not be more than nominalQuota")


def fair_sharing(value: object, path: str) -> Iterator[FieldError]:
    """A weight is not negative, and either 0 or more than 1n, which arithmetic would round to 0."""
    weight = unstructured.get(value, "weight")
    errors = list(not_negative(weight, path))
    yield from errors
    read = amount(weight)
    if not errors and read and read <= _VANISHING_WEIGHT:
        yield field_error.invalid(path, weight, "a weight must be 0 or more than 1n")


def flavors(groups: object) -> list[str]:
    """The flavors of all groups, in their order."""
    return [
        unstructured.text(flavor.get("name"))
        for group in map(unstructured.mapping, unstructured.sequence(groups))
        for _, flavor in unstructured.entries(group, "flavors")
    ]
