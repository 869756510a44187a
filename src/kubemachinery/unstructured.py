"""Reading and changing JSON trees that nobody has checked yet.

Defaulting, conversion and validation work on what a client sent, before anything is known about its shape. The readers
here answer for any JSON at all: what has the wrong type reads as absent, and it is for the schema to complain.
Changes never touch the tree they are given; they return a new one that shares whatever did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

Tree: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]


class _Absent:
    """The answer for a place that a tree does not have, which is not the same as one that holds null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def integer(value: object) -> int | None:
    """A whole number, and `None` for everything else; a truth value is not a number, whatever Python thinks."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(value: object) -> dict[str, str]:
    """The entries of a mapping whose values are text, as labels and annotations are."""
    return {key: entry for key, entry in mapping(value).items() if isinstance(entry, str)}


def get(tree: object, *path: str) -> Any:
    """The value at `path`, or `None` where the tree does not go that far."""
    for key in path:
        tree = mapping(tree).get(key)
    return tree


def find(tree: object, path: Path) -> Any:
    """The value at `path`, or `ABSENT`; unlike `get` it tells null from nothing."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return ABSENT
        tree = tree[key]
    return tree


def entries(tree: object, *path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects in the list at `path` with their positions; what is not an object reads as an empty one."""
    for index, entry in enumerate(sequence(get(tree, *path))):
        yield index, mapping(entry)


def put(tree: Tree, path: Path, value: object) -> Tree:
    """`tree` with `value` at `path`, making the mappings on the way; a tree that has no room for it stays as it is."""
    head, *rest = path
    if not rest:
        return {**tree, head: value}
    below = tree.get(head, {})
    return {**tree, head: put(below, tuple(rest), value)} if isinstance(below, dict) else tree


def without(tree: Tree, path: Path) -> Tree:
    """`tree` without what stands at `path`. The mapping that held it stays, even when it is empty now."""
    if find(tree, path) is ABSENT:
        return tree
    head, *rest = path
    if rest:
        return {**tree, head: without(tree[head], tuple(rest))}
    return {key: value for key, value in tree.items() if key != head}


def changed(tree: Tree, path: Path, change: Callable[[Any], Any]) -> Tree:
    """`tree` with `change(value)` in place of the value at `path`; what is absent stays absent."""
    value = find(tree, path)
    return tree if value is ABSENT else put(tree, path, change(value))


def each(change: Callable[[Tree], Tree]) -> Callable[[Any], Any]:
    """`change` for every object of a list; whatever is not a list of objects passes unchanged."""

    def change_all(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [change(entry) if isinstance(entry, dict) else entry for entry in value]

    return change_all
