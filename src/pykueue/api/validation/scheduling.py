"""Taints and tolerations: the rules that the schema does not have."""

from __future__ import annotations

from collections.abc import Iterator

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from pykueue.api.validation import field_error, metadata


def taints(value: object, path: str) -> Iterator[FieldError]:
    """Well-formed keys and values, and no key twice with the same effect."""
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(map(unstructured.mapping, unstructured.sequence(value))):
        place = f"{path}[{i}]"
        key, written, effect = (unstructured.text(taint.get(field)) for field in ("key", "value", "effect"))
        yield from metadata.label_name(key, f"{place}.key")
        yield from field_error.invalid_each(f"{place}.value", written, meta.check_label_value(written))
        if (key, effect) in seen:
            yield field_error.duplicate(place, dict(taint), "no two taints may have the same key and effect")
        seen.add((key, effect))


def tolerations(value: object, path: str) -> Iterator[FieldError]:
    """Well-formed keys; an empty key tolerates everything."""
    for i, toleration in enumerate(map(unstructured.mapping, unstructured.sequence(value))):
        if unstructured.text(toleration.get("key")):
            yield from metadata.label_name(toleration.get("key"), f"{path}[{i}].key")
