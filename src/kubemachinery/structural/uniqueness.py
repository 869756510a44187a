"""Uniqueness in lists of type set and map: no duplicate values, no duplicate keys.

An update of an object that already had duplicates may keep them; kube-apiserver then checks no list of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubemachinery.field_errors import ErrorType
from kubemachinery.structural.node import Json, SchemaNode
from kubemachinery.structural.values import Finding, identity_of, within

Search = Callable[[Json], list[Finding]]


def compile_uniqueness(node: SchemaNode) -> Search | None:
    """The search for duplicates at and below a node; None when no list below must be unique."""
    in_object = _in_object(node)
    in_list = _in_list(node)
    if in_object is None and in_list is None:
        return None

    def search(value: Json) -> list[Finding]:
        if type(value) is dict and in_object is not None:
            return in_object(value)
        if type(value) is list and in_list is not None:
            return in_list(value)
        return []

    return search


def _in_object(node: SchemaNode) -> Search | None:
    children = {name: found for name, child in node.fields.items() if (found := compile_uniqueness(child))}
    additional = compile_uniqueness(node.additional) if node.additional is not None else None
    if not children and additional is None:
        return None

    def search(value: dict[str, Json]) -> list[Finding]:
        findings: list[Finding] = []
        for name, item in value.items():
            if additional is not None and (found := additional(item)):
                findings += within(f"[{name}]", found)
            if name in children and (found := children[name](item)):
                findings += within(f".{name}", found)
        return findings

    return search


def _in_list(node: SchemaNode) -> Search | None:
    items = compile_uniqueness(node.items) if node.items is not None else None
    if items is None and node.list_type not in ("set", "map"):
        return None

    def search(value: list[Json]) -> list[Finding]:
        findings: list[Finding] = []
        if node.list_type == "set":
            findings += _duplicates(value)
        elif node.list_type == "map":
            findings += _duplicate_keys(node.list_keys, value)
        if items is not None:
            for index, item in enumerate(value):
                if found := items(item):
                    findings += within(f"[{index}]", found)
        return findings

    return search


def _duplicate_keys(names: tuple[str, ...], value: list[Json]) -> Iterator[Finding]:
    for index, item in enumerate(value):
        if item is not None and type(item) is not dict:
            yield Finding(ErrorType.INVALID, "must be an object, the list is a map", item, [f"[{index}]"])
            return
    if len(names) == 1 and _distinct([item.get(names[0]) if item else None for item in value]):
        return
    keys = [{name: item[name] for name in names if name in item} if item else {} for item in value]
    yield from _duplicates(keys)


def _distinct(values: list[Json]) -> bool:
    """Whether these are distinct strings: a fast path for the usual case."""
    return set(map(type, values)) <= {str} and len(set(values)) == len(values)


def _duplicates(values: list[Json]) -> Iterator[Finding]:
    """Report the first duplicate only."""
    if _distinct(values):
        return
    seen: dict[object, int] = {}
    for index, item in enumerate(values):
        identity = identity_of(item)
        times = seen[identity] = seen.get(identity, 0) + 1
        if times == 2:
            yield Finding(ErrorType.DUPLICATE, "", item, [f"[{index}]"])
