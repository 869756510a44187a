"""Reading and changing JSON trees that have not been validated.

Defaulting, conversion and validation work on the tree that a client sent. The readers here accept any JSON: a value of
the wrong type reads as absent, and the schema reports it. Changes do not modify their argument; they return a new tree
that shares the unchanged parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

Tree: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]


class _Absent:
    """The value of a path that the tree does not have, which differs from null."""

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
    """A whole number, or `None` for any other value; a bool is not a number here."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(value: object) -> dict[str, str]:
    """The entries of a mapping with text values, such as labels and annotations."""
    return {key: entry for key, entry in mapping(value).items() if isinstance(entry, str)}


def get(tree: object, *path: str) -> Any:
    """The value at `path`, or `None` if the tree does not have it."""
    for key in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def find(tree: object, path: Path) -> Any:
    """The value at `path`, or `ABSENT`; unlike `get` it distinguishes null from absent."""
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
    """`tree` with `value` at `path`, creating mappings on the way; unchanged if another value is in the way."""
    head, *rest = path
    if not rest:
        return {**tree, head: value}
    below = tree.get(head, {})
    return {**tree, head: put(below, tuple(rest), value)} if isinstance(below, dict) else tree


def without(tree: Tree, path: Path) -> Tree:
    """`tree` without the value at `path`. The mapping that contained it stays, even when it is empty."""
    if find(tree, path) is ABSENT:
        return tree
    head, *rest = path
    if rest:
        return {**tree, head: without(tree[head], tuple(rest))}
    return {key: value for key, value in tree.items() if key != head}


def changed(tree: Tree, path: Path, change: Callable[[Any], Any]) -> Tree:
    """`tree` with `change(value)` at `path`; an absent value stays absent."""
    value = find(tree, path)
    return tree if value is ABSENT else put(tree, path, change(value))


def each(change: Callable[[Tree], Tree]) -> Callable[[Any], Any]:
    """A list with `change` applied to every object; a value that is not a list of objects is returned unchanged."""

    def change_all(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [change(entry) if isinstance(entry, dict) else entry for entry in value]

    return change_all
