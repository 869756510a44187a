"""Pruning: the paths of unknown fields, and the tree without them.

One walk computes both. The tree is copied only where a field is removed; a tree without unknown fields is returned as
the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Final

from kubemachinery.structural.node import RESOURCE_FIELDS, Json, SchemaNode

# The path of a value: its parent's path and its own name or index. Formatted only when there is something to report.
Place = tuple["Place", str | int] | None

# Takes a value and its path, reports unknown fields below it, and returns the value without them.
Walk = Callable[[Json, Place, list[str]], Json]

_OBJECT_META_FIELDS: Final = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


def compile_pruning(root: SchemaNode) -> Walk:
    """The walk for a whole resource; its apiVersion, kind and metadata are kept."""
    return _walk(root, preserve=root.preserve_unknown, resource="root")


def _walk(node: SchemaNode, *, preserve: bool, resource: str) -> Walk:
    """`resource` is "root" or "embedded" for an object with apiVersion, kind and metadata, else empty."""
    children = {name: compile_part_pruning(child) for name, child in node.fields.items()}
    additional = compile_part_pruning(node.additional) if node.additional is not None else None
    items = _items(node, preserve)

    def prune_object(value: dict[str, Json], place: Place, unknown: list[str]) -> dict[str, Json]:
        kept = value
        for name, item in value.items():
            if resource and name in RESOURCE_FIELDS:
                if resource == "embedded" and name == "metadata":
                    pruned = _prune_metadata(item, (place, name), unknown)
                else:
                    continue
            elif (walk := children.get(name, additional)) is not None:
                if type(item) is not dict and type(item) is not list:
                    continue
                pruned = walk(item, (place, name), unknown)
            elif preserve:
                continue
            else:
                unknown.append(_spell((place, name)))
                kept = dict(value) if kept is value else kept
                del kept[name]
                continue
            if pruned is not item:
                kept = dict(value) if kept is value else kept
                kept[name] = pruned
        return kept

    def prune(value: Json, place: Place, unknown: list[str]) -> Json:
        if type(value) is dict:
            return prune_object(value, place, unknown)
        if type(value) is list and items is not None:
            pruned = [
                items(item, (place, index), unknown) if type(item) is dict or type(item) is list else item
                for index, item in enumerate(value)
            ]
            return _original_if_same(value, pruned)
        return value

    return prune


def compile_part_pruning(node: SchemaNode) -> Walk:
    """The walk for a value inside a resource."""
    return _walk(node, preserve=node.preserve_unknown, resource="embedded" if node.embedded else "")


def _items(node: SchemaNode, preserve: bool) -> Walk | None:
    """The walk for items of a list: by their schema; without one all their fields are unknown, or none is."""
    if node.items is None:
        return None if preserve else _walk_unknown
    resource = "embedded" if node.items.embedded else ""
    # Preservation of unknown fields is inherited by the items of a list, but not by the properties of an object.
    return _walk(node.items, preserve=preserve or node.items.preserve_unknown, resource=resource)


def _walk_unknown(value: Json, place: Place, unknown: list[str]) -> Json:
    if type(value) is dict and value:
        unknown.extend(_spell((place, name)) for name in value)
        return {}
    if type(value) is list:
        pruned = [_walk_unknown(item, (place, index), unknown) for index, item in enumerate(value)]
        return _original_if_same(value, pruned)
    return value


def _original_if_same(original: list[Json], pruned: list[Json]) -> list[Json]:
    return original if all(map(is_, pruned, original)) else pruned


def _prune_metadata(value: Json, place: Place, unknown: list[str]) -> Json:
    if type(value) is not dict:
        return value
    dropped = [name for name in value if name not in _OBJECT_META_FIELDS]
    unknown.extend(_spell((place, name)) for name in dropped)
    if "creationTimestamp" in value and value["creationTimestamp"] is None:
        dropped.append("creationTimestamp")  # the zero value that Go clients write
    return {name: item for name, item in value.items() if name not in dropped} if dropped else value


def _spell(place: Place) -> str:
    segments: list[str] = []
    while place is not None:
        place, step = place
        segments.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "".join(reversed(segments)).removeprefix(".")
