"""Validation of a QuotaSchedule beyond its schema. Time zones and cron are checked by `pykueue.calendars`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from kubemachinery.meta import Nanoseconds, TimeError
from kubemachinery.unstructured import Tree
from pykueue.api.validation import field_error, metadata, quotas
from pykueue.api.validation.gates import ValidationGates

_NOT_NEGATIVE = ("nominalQuota", "borrowingLimit", "lendingLimit")


def validate_create(tree: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    for i, window in unstructured.entries(unstructured.mapping(tree.get("spec")), "windows"):
        yield from _window(window, f"spec.windows[{i}]")
    yield from _targets(unstructured.mapping(tree.get("spec")))


def validate_update(new: Tree, old: Tree, gates: ValidationGates) -> Iterator[FieldError]:
    return validate_create(new, gates)


def _window(window: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """A window has a positive length."""
    if (duration := window.get("duration")) is not None:
        try:
            length = meta.parse_duration(unstructured.text(duration))
        except TimeError as error:
            yield field_error.invalid(f"{path}.duration", duration, str(error))
        else:
            if length <= 0:
                yield field_error.invalid(f"{path}.duration", duration, "must be longer than 0s")
    start, end = _time(window.get("start")), _time(window.get("end"))
    if start is not None and end is not None and end <= start:
        yield field_error.invalid(f"{path}.end", window.get("end"), "must be after start")


def _time(value: object) -> Nanoseconds | None:
    try:
        return None if value is None else meta.parse_time(unstructured.text(value))
    except TimeError:
        return None  # the schema refuses it


def _targets(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Amounts that are set are not negative; a flavor and resource of one object has one entry in a schedule."""
    seen: set[tuple[str, str, str, str]] = set()
    for i, target in unstructured.entries(spec, "targets"):
        kind = "clusterQueue" if target.get("clusterQueue") else "cohort"
        for j, flavor in unstructured.entries(target, "flavors"):
            for k, resource in unstructured.entries(flavor, "resources"):
                path = f"spec.targets[{i}].flavors[{j}].resources[{k}]"
                yield from metadata.label_name(unstructured.text(resource.get("name")), f"{path}.name")
                for name in _NOT_NEGATIVE:
                    yield from quotas.not_negative(resource.get(name), f"{path}.{name}")
                if resource.get("change") is not None and quotas.amount(resource["change"]) is None:
                    yield field_error.invalid(f"{path}.change", resource["change"], "is not a quantity such as -16")
                names = (unstructured.text(one.get("name")) for one in (flavor, resource))
                cell = (kind, unstructured.text(target.get(kind)), *names)
                if cell in seen:
                    yield field_error.duplicate(f"{path}.name", resource.get("name"))
                seen.add(cell)  # type: ignore[arg-type]
