"""Correlation of new values with old ones in an update, and whether they are equal.

Two features depend on it: ratcheting (an update may keep what was invalid before), and rules with `oldSelf`, which see
the old value that correlates with `self`. Properties correlate by name, the items of a list only where the
list is a map with keys.
"""

from __future__ import annotations

from collections.abc import Callable

from kubemachinery.structural.node import ABSENT, Json, SchemaNode


def same(left: Json, right: Json) -> bool:
    """Equality of JSON values, in which true is not 1 and 1 is not 1.0."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return len(left) == len(right) and all(name in right and same(item, right[name]) for name, item in left.items())
    if type(left) is list:
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def unchanged(node: SchemaNode, value: Json, old: Json) -> bool:
    """Whether a value is unchanged; a list with keys may have been reordered."""
    if type(value) is list and type(old) is list and node.list_type == "map":
        find = old_items(node, old)
        return len(value) == len(old) and all(unchanged(node.items or SchemaNode(), item, find(item)) for item in value)
    if type(value) is dict and type(old) is dict:
        return len(value) == len(old) and all(
            name in old and unchanged(node.child(name) or SchemaNode(), item, old[name]) for name, item in value.items()
        )
    return same(value, old)


def old_items(node: SchemaNode, old: Json) -> Callable[[Json], Json]:
    """A function that finds the old item for a new item; ABSENT when there is none, or the list has no keys."""
    if node.list_type != "map" or type(old) is not list:
        return lambda item: ABSENT
    by_key: dict[object, Json] = {}
    for item in old:
        key = _key(node, item)
        if key is not None:
            by_key.setdefault(key, item)
    return lambda item: ABSENT if (key := _key(node, item)) is None else by_key.get(key, ABSENT)


def _key(node: SchemaNode, item: Json) -> object:
    if type(item) is not dict:
        return None
    values = [item.get(name, ABSENT) for name in node.list_keys]
    if any(value is ABSENT or type(value) is dict or type(value) is list for value in values):
        return None
    return tuple((type(value), value) for value in values)
