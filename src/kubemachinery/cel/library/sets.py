"""Functions on lists as sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubemachinery.cel.values import Value, identity


def _distinct(items: list[Value]) -> set[object]:
    return {identity(item) for item in items}


def _contains(items: list[Value], wanted: list[Value]) -> bool:
    return _distinct(wanted) <= _distinct(items)


def _equivalent(left: list[Value], right: list[Value]) -> bool:
    return _distinct(left) == _distinct(right)


def _intersects(left: list[Value], right: list[Value]) -> bool:
    return not _distinct(left).isdisjoint(_distinct(right))


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "sets::contains(list<T>, list<T>) -> bool": _contains,
    "sets::equivalent(list<T>, list<T>) -> bool": _equivalent,
    "sets::intersects(list<T>, list<T>) -> bool": _intersects,
}
