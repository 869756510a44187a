"""The compiled schemas of pykueue's kinds: one per kind and version, compiled on first use."""

from __future__ import annotations

from functools import lru_cache

from kubemachinery import structural, unstructured
from kubemachinery.kinds import Kind
from kubemachinery.structural import Structural
from pykueue.api import registry, schema


def find(tree: object) -> Structural | None:
    """The schema of the `apiVersion` and `kind` of `tree`; `None` for other kinds."""
    api_version, kind = (
        unstructured.text(unstructured.get(tree, "apiVersion")),
        unstructured.text(unstructured.get(tree, "kind")),
    )
    found = registry.KUEUE.find(api_version, kind)
    if found is None:
        return None
    row, version = found
    return _compiled(row, version.name)


@lru_cache(maxsize=64)
def _compiled(row: Kind, version: str) -> Structural:
    return structural.compile(schema.of(row, version))
