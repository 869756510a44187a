"""Bounds on what a review may hold, checked before the work that they bound. Pure.

    REVIEW_BYTES_MAX       of an AdmissionReview. etcd stores objects of 1.5 MiB at most, and the review of an update
                           holds the old object beside the new one: 3 MiB, and the envelope
    CONVERSION_BYTES_MAX   of a ConversionReview, which may hold a page of a list
    CONVERSIONS_MAX        objects of a ConversionReview: twice the page that kubectl and client-go ask for
    lists                  of Kueue's kinds: `_TOLERANCE` times what the schema allows

Schema validation runs after mutating webhooks, so an object with 40,000 pod sets reaches them. A list that is a
little too long is left to the schema, whose message users know; an excessive one is refused here, by its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from kubemachinery import unstructured
from kubemachinery.field_errors import ErrorType, FieldError
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import registry, schema

REVIEW_BYTES_MAX: Final = 3 * 1024 * 1024 + 128 * 1024
CONVERSION_BYTES_MAX: Final = 7 * 1024 * 1024
CONVERSIONS_MAX: Final = 1000
_TOLERANCE: Final = 4
_SECTIONS: Final = ("spec", "status")


class _Outline(msgspec.Struct, frozen=True, rename="camel"):
    """An object whose fields are not decoded."""

    api_version: str = ""
    kind: str = ""
    spec: dict[str, msgspec.Raw] | None = None
    status: dict[str, msgspec.Raw] | None = None


_read_outline: Final = msgspec.json.Decoder(_Outline).decode
_read_entries: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def excess_in_json(encoded: msgspec.Raw | bytes) -> FieldError | None:
    """The first excessive list of an encoded object; None if there is none. Decodes no entry."""
    try:
        outline = _read_outline(encoded)
    except msgspec.DecodeError:
        return None  # not an object of Kueue, and refused where it is decoded of it

    def count(section: str, name: str) -> int:
        fields: dict[str, msgspec.Raw] | None = getattr(outline, section)
        encoded_list = (fields or {}).get(name)
        if encoded_list is None:
            return 0
        try:
            return len(_read_entries(encoded_list))
        except msgspec.DecodeError:
            return 0

    return _excess(outline.api_version, outline.kind, count)


def excess(tree: Tree) -> FieldError | None:
    """The same for an object that is decoded already."""

    def count(section: str, name: str) -> int:
        value: Any = unstructured.get(tree, section, name)
        return len(value) if isinstance(value, list) else 0

    return _excess(unstructured.text(tree.get("apiVersion")), unstructured.text(tree.get("kind")), count)


def _excess(api_version: str, kind: str, count: Callable[[str, str], int]) -> FieldError | None:
    row = registry.CUSTOM.find(api_version, kind)
    for section, name, maximum in _bounded(row[0], row[1].name) if row is not None else ():
        found = count(section, name)
        if found > maximum * _TOLERANCE:
            return FieldError(
                f"{section}.{name}", ErrorType.TOO_MANY, f"must have at most {maximum} items", value=found
            )
    return None


@lru_cache(maxsize=64)
def _bounded(row: Kind, version: str) -> tuple[tuple[str, str, int], ...]:
    """The lists of a kind of ours that its schema bounds, with their bounds."""
    return tuple(_bounds(schema.of(row, version)))


def _bounds(shape: Tree) -> Iterator[tuple[str, str, int]]:
    for section in _SECTIONS:
        for name, below in unstructured.mapping(unstructured.get(shape, "properties", section, "properties")).items():
            maximum = unstructured.integer(unstructured.get(below, "maxItems"))
            if maximum is not None:
                yield section, name, maximum
