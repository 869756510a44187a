"""Quantities of new Kueue objects are stored in canonical form: `5000m` becomes `5`, the number 1 the string "1".

Kueue's webhooks decode an object into Go types and encode it again, so clients find quantities in this form. Their
places are read from the schema of each kind, once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from kubemachinery import quantity, unstructured
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import registry, schema


class _Here(msgspec.Struct, frozen=True):
    """The value is a quantity."""


class _Within(msgspec.Struct, frozen=True):
    """Quantities are further down: below some fields, or in every entry."""

    fields: tuple[tuple[str, _Place], ...] = ()
    entries: _Place | None = None


_Place: TypeAlias = _Here | _Within


def canonical(tree: Tree) -> Tree:
    """`tree` with canonical quantities; the same object if they are canonical."""
    found = registry.CUSTOM.find(unstructured.text(tree.get("apiVersion")), unstructured.text(tree.get("kind")))
    place = _places(found[0]) if found is not None and found[1].storage else None
    rewritten = tree if place is None else _rewritten(tree, place)
    return rewritten if isinstance(rewritten, dict) else tree


def _rewritten(value: Any, place: _Place) -> Any:
    if isinstance(place, _Here):
        return _spelt(value)
    changed: dict[Any, Any] = {}
    if isinstance(value, dict):
        for name, below in place.fields:
            if name in value:
                changed[name] = _rewritten(value[name], below)
        if place.entries is not None:
            changed = {name: _rewritten(entry, place.entries) for name, entry in value.items()}
        same = all(value[name] is entry for name, entry in changed.items())
        return value if same else {**value, **changed}
    if isinstance(value, list) and place.entries is not None:
        entries = [_rewritten(entry, place.entries) for entry in value]
        return value if all(new is old for new, old in zip(entries, value, strict=True)) else entries
    return value


def _spelt(value: Any) -> Any:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return value
    try:
        text = quantity.parse(value).canonical
    except quantity.QuantityError:
        return value
    return value if text == value else text


@lru_cache(maxsize=32)
def _places(row: Kind) -> _Place | None:
    return _place(schema.of(row, row.storage.name))


def _place(shape: Any) -> _Place | None:
    if unstructured.get(shape, "x-kubernetes-int-or-string"):
        return _Here()
    fields = tuple(
        (name, found)
        for name, below in unstructured.mapping(unstructured.get(shape, "properties")).items()
        if (found := _place(below)) is not None
    )
    of_entries = unstructured.get(shape, "items") or unstructured.get(shape, "additionalProperties")
    entries = _place(of_entries) if isinstance(of_entries, dict) else None
    return _Within(fields, entries) if fields or entries else None
