"""Whether an object can be decoded to the types of its kind.

An API server sends a new object to the defaulting webhook before it validates the schema. A webhook that cannot decode
the object responds with 400, and no rule is checked. Not decodable are a value of the wrong type, a number with more
bits than its field, and an invalid quantity; all other values are decoded, and may be refused later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from kubemachinery import codec, unstructured
from kubemachinery.kinds import Kind
from kubemachinery.unstructured import Tree
from pykueue.api import registry, schema
from pykueue.api.validation import quotas

# The kinds with a defaulting webhook on creation.
READ_ON_CREATE: Final = frozenset({"ClusterQueue", "ResourceFlavor", "Workload"})

_INT32: Final = range(-(2**31), 2**31)
_EMPTY: Final[Mapping[str, Any]] = {"object": {}, "string": "", "integer": 0}


def unreadable(tree: Tree) -> str | None:
    """Why a new object in v1beta2 cannot be decoded, in a sentence; `None` when it can, or its kind is not decoded."""
    kind = unstructured.text(tree.get("kind"))
    found = registry.CUSTOM.find(unstructured.text(tree.get("apiVersion")), kind)
    if kind not in READ_ON_CREATE or found is None or found[1].type is None:
        return None
    try:
        codec.from_tree(tree, found[1].type)
    except codec.DecodeError as error:
        return str(error)
    return next(_unreadable_amounts(tree, _schema(found[0]), ""), None)


def filled(tree: Tree) -> Tree:
    """A new object with every null in a list replaced by an empty text, a zero or an empty object."""
    found = registry.CUSTOM.find(unstructured.text(tree.get("apiVersion")), unstructured.text(tree.get("kind")))
    return tree if found is None else dict(_filled(tree, _schema(found[0])))


def _filled(value: Any, shape: Any) -> Any:
    if isinstance(value, dict):
        named, others = (
            unstructured.mapping(unstructured.get(shape, "properties")),
            unstructured.get(shape, "additionalProperties"),
        )
        return {key: _filled(entry, named.get(key, others)) for key, entry in value.items()}
    if isinstance(value, list):
        entries = unstructured.get(shape, "items")
        empty = _EMPTY.get(unstructured.text(unstructured.get(entries, "type")))
        return [empty if entry is None else _filled(entry, entries) for entry in value]
    return value


@lru_cache(maxsize=16)
def _schema(row: Kind) -> schema.Schema:
    return schema.of(row, row.storage.name)


def _unreadable_amounts(value: Any, shape: Any, path: str) -> Iterator[str]:
    if shape is None:
        return
    if unstructured.get(shape, "x-kubernetes-int-or-string"):
        if value is not None and quotas.amount(value) is None:
            yield f"{path}: {value!r} is not a quantity such as 100m, 1.5Gi or 2e3"
    elif isinstance(value, int):
        if value not in _INT32 and unstructured.get(shape, "format") == "int32":
            yield f"{path}: {value} has more than the 32 bits of this field"
    elif isinstance(value, dict):
        named, others = (
            unstructured.mapping(unstructured.get(shape, "properties")),
            unstructured.get(shape, "additionalProperties"),
        )
        for key, entry in value.items():
            if isinstance(entry, str) and not unstructured.get(named.get(key, others), "x-kubernetes-int-or-string"):
                continue  # most of an object
            place = f"{path}[{key}]" if others else f"{path}.{key}" if path else key
            yield from _unreadable_amounts(entry, named.get(key, others), place)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _unreadable_amounts(entry, unstructured.get(shape, "items"), f"{path}[{index}]")
