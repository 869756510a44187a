"""Tables, as kubectl prints them: cells of any list of objects, from the printer columns of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kubemachinery.jsonpath import PathError, Walk, compile_path
from kubemachinery.meta import SECOND, TimeError, parse_time
from kubeserver.registry.strategy import Resource, ServedColumn, Tree

# How many values the paths of all columns may visit for one row: some milliseconds' worth.
ROW_VALUES_MAX: Final = 10_000

NAME: Final = ServedColumn(
    name="Name", path=".metadata.name", format="name", description="The name, unique among its kind in a namespace."
)
AGE: Final = ServedColumn(
    name="Age", path=".metadata.creationTimestamp", type="date", description="How long ago the object was created."
)


def definitions(resource: Resource) -> list[Tree]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in _columns(resource)
    ]


def _columns(resource: Resource) -> Sequence[ServedColumn]:
    if resource.columns is None:
        return (NAME, AGE)
    if not resource.custom:
        return resource.columns
    return (NAME, *resource.columns)


def cells(resource: Resource, tree: Tree, now: int) -> list[Any]:
    """Return the cells of one row."""
    if resource.cells is not None:
        return list(resource.cells(tree, now))
    walk = Walk(True, ROW_VALUES_MAX)
    return [cell(column, tree, now, walk) for column in _columns(resource)]


def cell(column: ServedColumn, tree: Tree, now: int, walk: Walk) -> Any:
    """Return one cell. It is null where the value is absent or not of the column's type, or lies behind a path that
    visits more values than are left to the row."""
    try:
        found = compile_path(column.path)(tree, walk)
    except PathError:
        return None
    if not found:
        return None
    value = found[0]
    match column.type:
        case "string":
            return _text(value)
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
    return None


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
    return msgspec.json.encode(value).decode()


def age(time: str, now: int) -> str:
    """Return how long ago a time is, as a short duration."""
    try:
        return duration((now - parse_time(time)) // SECOND)
    except TimeError:
        return "<unknown>"


# Below so many seconds, print these units; the second one only where it is not zero.
_SPANS: Final = (
    (120, (1, "s"), None),
    (600, (60, "m"), (1, "s")),
    (3 * 3600, (60, "m"), None),
    (8 * 3600, (3600, "h"), (60, "m")),
    (48 * 3600, (3600, "h"), None),
    (8 * 86_400, (86_400, "d"), (3600, "h")),
    (2 * 365 * 86_400, (86_400, "d"), None),
    (8 * 365 * 86_400, (365 * 86_400, "y"), (86_400, "d")),
)


def duration(seconds: int) -> str:
    """Return `45s`, `5m20s`, `90m`, `7h5m`, `2d3h`, `120d`: the larger, the less precise."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for below, (size, unit), finer in _SPANS:
        if seconds < below:
            rest = seconds % size // finer[0] if finer else 0
            return f"{seconds // size}{unit}{rest}{finer[1]}" if finer and rest else f"{seconds // size}{unit}"
    return f"{seconds // (365 * 86_400)}y"


def table(resource: Resource, metadata: Tree, api_version: str = "meta.k8s.io/v1") -> Tree:
    """Return a Table without its rows."""
    return {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": definitions(resource),
    }


def row(cells: list[Any], beside: Any) -> Tree:
    """Return one row: its cells, and the object beside them (or None)."""
    return {"cells": cells, "object": beside}


def partial(tree: Tree, api_version: str = "meta.k8s.io/v1") -> Tree:
    """Return the metadata of an object alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": tree.get("metadata", {})}
