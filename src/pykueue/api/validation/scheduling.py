"""Taints and tolerations: the rules that the schema does not have."""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api import meta, trees
from pykueue.api.errors import FieldError
from pykueue.api.validation import metadata, wrong


def taints(value: object, path: str) -> Iterator[FieldError]:
    """Well-formed keys and values, and no key twice with the same effect."""
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(map(trees.mapping, trees.sequence(value))):
        place = f"{path}[{i}]"
        key, written, effect = (trees.text(taint.get(field)) for field in ("key", "value", "effect"))
        yield from metadata.label_name(key, f"{place}.key")
        yield from wrong.invalid_each(f"{place}.value", written, meta.check_label_value(written))
        if (key, effect) in seen:
            yield wrong.duplicate(place, dict(taint), "no two taints may have the same key and effect")
        seen.add((key, effect))


def tolerations(value: object, path: str) -> Iterator[FieldError]:
    """Well-formed keys; an empty key tolerates everything."""
    for i, toleration in enumerate(map(trees.mapping, trees.sequence(value))):
        if trees.text(toleration.get("key")):
            yield from metadata.label_name(toleration.get("key"), f"{path}[{i}].key")
