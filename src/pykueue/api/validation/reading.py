"""Whether an object can be read at all, by somebody who expects the types of its kind.

An API server shows a new object to the defaulting webhook before it asks the schema. A webhook that cannot read what it
is shown answers 400 with a sentence, and no rule is asked any more. What is unreadable is a value of the wrong type and
a quantity that spells no amount; everything else can be read, and may be refused later.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from pykueue.api import codec, registry, schema, trees
from pykueue.api.kinds import Kind
from pykueue.api.trees import Tree
from pykueue.api.validation import quotas

# The kinds whose new objects our webhook fills in.
READ_ON_CREATE: Final = frozenset({"ClusterQueue", "ResourceFlavor", "Workload"})


def unreadable(tree: Tree) -> str | None:
    """Why a new object in v1beta2 cannot be read, in a sentence; `None` when it can, or when nobody reads it."""
    kind = trees.text(tree.get("kind"))
    found = registry.KUEUE.find(trees.text(tree.get("apiVersion")), kind)
    if kind not in READ_ON_CREATE or found is None or found[1].type is None:
        return None
    try:
        codec.from_tree(tree, found[1].type)
    except codec.DecodeError as error:
        return str(error)
    return next(_unreadable_quantities(tree, _schema(found[0]), ""), None)


@lru_cache(maxsize=16)
def _schema(row: Kind) -> schema.Schema:
    return schema.of(row, row.storage.name)


def _unreadable_quantities(value: Any, shape: Any, path: str) -> Iterator[str]:
    if shape is None:
        return
    if trees.get(shape, "x-kubernetes-int-or-string"):
        if value is not None and quotas.amount(value) is None:
            yield f"{path}: {value!r} is not a quantity such as 100m, 1.5Gi or 2e3"
    elif isinstance(value, dict):
        named, others = trees.mapping(trees.get(shape, "properties")), trees.get(shape, "additionalProperties")
        for key, entry in value.items():
            place = f"{path}[{key}]" if others else f"{path}.{key}" if path else key
            yield from _unreadable_quantities(entry, named.get(key, others), place)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _unreadable_quantities(entry, trees.get(shape, "items"), f"{path}[{index}]")
