"""The schemas of our own kinds, compiled: one per kind and version, made when first asked for."""

from __future__ import annotations

from functools import lru_cache

from pykueue.api import registry, schema, structural, trees
from pykueue.api.kinds import Kind
from pykueue.api.structural import Structural


def find(tree: object) -> Structural | None:
    """The schema that `tree` claims to follow; `None` when that is none of ours."""
    api_version, kind = trees.text(trees.get(tree, "apiVersion")), trees.text(trees.get(tree, "kind"))
    found = registry.KUEUE.find(api_version, kind)
    if found is None:
        return None
    row, version = found
    return _compiled(row, version.name)


@lru_cache(maxsize=64)
def _compiled(row: Kind, version: str) -> Structural:
    return structural.compile(schema.of(row, version))
