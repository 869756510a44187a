"""The compiled schemas of pykueue's kinds: one per kind and version, compiled on first use."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kubemachinery import unstructured
from kubemachinery.kinds import Kind
from pykueue.api import registry, schema

if TYPE_CHECKING:
    from kubemachinery.structural import Structural


def find(tree: object) -> Structural | None:
    """The schema of the `apiVersion` and `kind` of `tree`; `None` for other kinds."""
    api_version, kind = (
        unstructured.text(unstructured.get(tree, "apiVersion")),
        unstructured.text(unstructured.get(tree, "kind")),
    )
    found = registry.CUSTOM.find(api_version, kind)
    if found is None:
        return None
    row, version = found
    return _compiled(row, version.name)


@lru_cache(maxsize=64)
def _compiled(row: Kind, version: str) -> Structural:
    # Imported on first use: commands such as `pykueue queue` compile no schema, and must start fast.
    from kubemachinery import structural

    return structural.compile(schema.of(row, version))
