"""Names, labels and annotations: what every object has, and what objects say about other objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykueue.api import meta, trees
from pykueue.api.errors import FieldError
from pykueue.api.validation import wrong

ANNOTATIONS_SIZE_MAX: Final = 256 * 1024


def label_map(value: object, path: str) -> Iterator[FieldError]:
    """Every key a label's key, every value a label's value. Complaints point at the map, as the API server's do."""
    for key, entry in trees.mapping(value).items():
        yield from wrong.invalid_each(path, key, meta.check_qualified_name(key))
        yield from wrong.invalid_each(path, entry, meta.check_label_value(trees.text(entry)))


def annotation_map(value: object, path: str) -> Iterator[FieldError]:
    """Every key a qualified name, in either case; all of them together no larger than an object may carry."""
    notes = trees.texts(value)
    for key in trees.mapping(value):
        yield from wrong.invalid_each(path, key, meta.check_qualified_name(key.lower()))
    if sum(len(part.encode(errors="replace")) for note in notes.items() for part in note) > ANNOTATIONS_SIZE_MAX:
        yield wrong.too_long(path, f"must be no more than {ANNOTATIONS_SIZE_MAX} bytes all together")


def label_name(value: object, path: str) -> Iterator[FieldError]:
    """A qualified name, as keys of labels, taints and resources are."""
    name = trees.text(value)
    yield from wrong.invalid_each(path, name, meta.check_qualified_name(name))


def object_metadata(tree: object) -> Iterator[FieldError]:
    """What an API server asks of the metadata of any object of ours: all of them are named by subdomains."""
    name = trees.get(tree, "metadata", "name")
    if isinstance(name, str) and name:
        yield from wrong.invalid_each("metadata.name", name, meta.check_subdomain_name(name))
    elif not trees.get(tree, "metadata", "generateName"):
        yield wrong.required("metadata.name", "name or generateName is required")
    yield from label_map(trees.get(tree, "metadata", "labels"), "metadata.labels")
    yield from annotation_map(trees.get(tree, "metadata", "annotations"), "metadata.annotations")
