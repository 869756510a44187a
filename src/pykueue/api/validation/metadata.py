"""Validation of names, labels and annotations, and of references to other objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubemachinery import meta, unstructured
from kubemachinery.field_errors import FieldError
from pykueue.api.validation import field_error

ANNOTATIONS_SIZE_MAX: Final = 256 * 1024


def label_map(value: object, path: str) -> Iterator[FieldError]:
    """Keys must be label keys and values label values. Errors have the path of the map, as in Kubernetes."""
    for key, entry in unstructured.mapping(value).items():
        yield from field_error.invalid_each(path, key, meta.check_qualified_name(key))
        yield from field_error.invalid_each(path, entry, meta.check_label_value(unstructured.text(entry)))


def annotation_map(value: object, path: str) -> Iterator[FieldError]:
    """Every key a qualified name, in either case; all of them together no larger than an object may carry."""
    notes = unstructured.texts(value)
    for key in unstructured.mapping(value):
        yield from field_error.invalid_each(path, key, meta.check_qualified_name(key.lower()))
    if sum(len(part.encode(errors="replace")) for note in notes.items() for part in note) > ANNOTATIONS_SIZE_MAX:
        yield field_error.too_long(path, f"must be no more than {ANNOTATIONS_SIZE_MAX} bytes all together")


def label_name(value: object, path: str) -> Iterator[FieldError]:
    """A qualified name, as keys of labels, taints and resources are."""
    name = unstructured.text(value)
    yield from field_error.invalid_each(path, name, meta.check_qualified_name(name))


def object_metadata(tree: object) -> Iterator[FieldError]:
    """The rules of an API server for the metadata of pykueue's objects: their names are subdomains."""
    name = unstructured.get(tree, "metadata", "name")
    if isinstance(name, str) and name:
        yield from field_error.invalid_each("metadata.name", name, meta.check_subdomain_name(name))
    elif not unstructured.get(tree, "metadata", "generateName"):
        yield field_error.required("metadata.name", "name or generateName is required")
    yield from label_map(unstructured.get(tree, "metadata", "labels"), "metadata.labels")
    yield from annotation_map(unstructured.get(tree, "metadata", "annotations"), "metadata.annotations")
