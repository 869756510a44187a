"""Making and applying patches to JSON trees: merge patches (RFC 7386) and JSON patches (RFC 6902).

Trees are neither changed in place nor copied whole. A patch copies the containers along its path; everything else is
shared with the original tree. Therefore callers must never modify a tree in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import msgspec

Tree: TypeAlias = Any
"""A JSON value: null, booleans, numbers, strings, lists and maps with string keys."""

Operation: TypeAlias = dict[str, Any]
"""One step of a JSON patch: `op`, `path`, and `value` or `from`."""

MOST_OPERATIONS: Final = 10_000
# Copies of copies double a tree with every step, so their total is bounded, as the size of a request is.
MOST_COPIED_BYTES: Final = 3 * 2**20
_DEEPEST_POINTER: Final = 512
# Request bodies have at most 100 levels; functions that walk a tree by recursion read about 500.
DEPTH_MAX: Final = 500


class Fault(Enum):
    """Why a patch could not be applied."""

    MALFORMED = auto()
    """The patch is malformed, independent of the target."""
    NOT_APPLICABLE = auto()
    """A path does not exist in the target."""
    TEST_FAILED = auto()
    """A test operation found another value."""


class PatchError(ValueError):
    """A patch that could not be applied: which operation, at which pointer, and why."""

    def __init__(self, fault: Fault, why: str, index: int | None = None, pointer: str | None = None) -> None:
        self.fault = fault
        self.why = why
        self.index = index
        self.pointer = pointer
        place = f"operation {index}" if index is not None else "the patch"
        super().__init__(f"{place}{f' at {pointer!r}' if pointer is not None else ''}: {why}")


def same(a: Tree, b: Tree) -> bool:
    """Whether two trees are the same JSON. Unlike Python's ==, true is not 1; the order of keys does not matter."""
    if a is b:
        return True
    if isinstance(a, dict):
        return isinstance(b, dict) and len(a) == len(b) and all(k in b and same(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return isinstance(a, bool) is isinstance(b, bool) and bool(a == b)


# --- Merge patches ----------------------------------------------------------------------------------------------------


def merge(target: Tree, patch: Tree) -> Tree:
    """The target with a merge patch applied: maps merge key by key, null removes a key, any other value replaces."""
    try:
        return _merge(target, patch)
    except RecursionError:
        raise PatchError(Fault.MALFORMED, "is nested too deeply") from None


def _merge(target: Tree, patch: Tree) -> Tree:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def make_merge(before: Tree, after: Tree) -> Tree:
    """The merge patch that turns `before` into `after`; {} when they are equal.

    A merge patch cannot express a key with the value null: such keys become absent.
    """
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    patch: dict[str, Tree] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            patch[key] = value
        elif not same(before[key], value):
            patch[key] = make_merge(before[key], value)
    return patch


# --- JSON patches: pointers -------------------------------------------------------------------------------------------

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_BAD_ESCAPE: Final = re.compile(r"~(?![01])")


def pointer(*parts: str | int) -> str:
    """The JSON pointer to what these keys and indices lead to."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _parts(text: object) -> list[str]:
    if not isinstance(text, str):
        raise _Refusal(Fault.MALFORMED, "the pointer must be a text")
    if text and not text.startswith("/"):
        raise _Refusal(Fault.MALFORMED, "a pointer is empty or starts with '/'")
    if _BAD_ESCAPE.search(text):
        raise _Refusal(Fault.MALFORMED, "in a pointer, '~' is followed by 0 or 1")
    parts = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    if len(parts) > _DEEPEST_POINTER:
        raise _Refusal(Fault.MALFORMED, f"the pointer has more than {_DEEPEST_POINTER} parts")
    return parts


class _Refusal(Exception):
    """A `PatchError` without the index of its operation."""

    def __init__(self, fault: Fault, why: str) -> None:
        self.fault = fault
        self.why = why


def _at(container: list[Tree], part: str, length: int) -> int:
    if _INDEX.fullmatch(part) is None:
        raise _Refusal(Fault.NOT_APPLICABLE, f"{part!r} is not an index of a list")
    index = int(part)
    if index >= length:
        raise _Refusal(Fault.NOT_APPLICABLE, f"the list has {len(container)} items and none at {index}")
    return index


def _child(container: Tree, part: str) -> Tree:
    if isinstance(container, list):
        return container[_at(container, part, len(container))]
    if not isinstance(container, dict):
        raise _Refusal(Fault.NOT_APPLICABLE, f"there is nothing below {container!r:.40} for {part!r}")
    if part not in container:
        raise _Refusal(Fault.NOT_APPLICABLE, f"there is no {part!r}")
    return container[part]


# --- JSON patches: applying -------------------------------------------------------------------------------------------


def apply(target: Tree, operations: Sequence[Operation]) -> Tree:
    """The target with every operation of a JSON patch applied in order. Raises `PatchError`: then none is applied."""
    if not isinstance(operations, list | tuple):
        raise PatchError(Fault.MALFORMED, "a JSON patch is a list of operations")
    if len(operations) > MOST_OPERATIONS:
        raise PatchError(Fault.MALFORMED, f"has {len(operations)} operations; at most {MOST_OPERATIONS} are allowed")
    draft = _Draft(target)
    for index, operation in enumerate(operations):
        path = operation.get("path") if isinstance(operation, dict) else None
        place = path if isinstance(path, str) else None
        try:
            draft.perform(operation)
        except _Refusal as refusal:
            raise PatchError(refusal.fault, refusal.why, index, place) from None
        except RecursionError:
            raise PatchError(Fault.MALFORMED, "is nested too deeply", index, place) from None
    # Moves can put one deep tree below another again and again, until no program can read or write the result.
    if draft.moved and _is_deeper(draft.root, DEPTH_MAX):
        raise PatchError(
            Fault.MALFORMED, f"makes a tree that is nested too deeply; at most {DEPTH_MAX} levels are allowed"
        )
    return draft.root


def _is_deeper(tree: Tree, levels: int) -> bool:
    """Whether a tree has more levels than these. Without recursion, the depth of which differs by Python version."""
    level = [tree]
    for _ in range(levels):
        level = [child for each in level if isinstance(each, dict | list) for child in _children(each)]
        if not level:
            return False
    return True


def _children(container: Tree) -> Iterable[Tree]:
    return container.values() if isinstance(container, dict) else container


class _Draft:
    """A tree under change. Containers created here are changed in place; others are first copied, that one level only.
    Own containers are recorded by identity, and kept alive so that no identity is used twice."""

    def __init__(self, root: Tree) -> None:
        self.root = root
        self.moved = False
        self._ours: dict[int, Tree] = {}
        self._copied_bytes = 0

    def perform(self, operation: object) -> None:
        if not isinstance(operation, dict):
            raise _Refusal(Fault.MALFORMED, "an operation is an object")
        name = operation.get("op")
        act = _ACTS.get(name) if isinstance(name, str) else None
        if act is None:
            raise _Refusal(Fault.MALFORMED, f"op must be one of {', '.join(_ACTS)}")
        act(self, operation)

    def add(self, operation: Operation) -> None:
        self._put(_parts(operation.get("path")), _value(operation))

    def remove(self, operation: Operation) -> None:
        self._take(_parts(operation.get("path")))

    def replace(self, operation: Operation) -> None:
        parts, value = _parts(operation.get("path")), _value(operation)
        if not parts:
            self.root = value
            return
        parent = self._owned(parts[:-1])
        _child(parent, parts[-1])
        parent[int(parts[-1]) if isinstance(parent, list) else parts[-1]] = value

    def move(self, operation: Operation) -> None:
        source, target = _parts(operation.get("from")), _parts(operation.get("path"))
        if source == target:
            self._look(source)
            return
        if target[: len(source)] == source:
            raise _Refusal(Fault.NOT_APPLICABLE, "a value cannot be moved into itself")
        self._put(target, self._take(source))
        self.moved = True

    def copy(self, operation: Operation) -> None:
        value = self._look(_parts(operation.get("from")))
        self._copied_bytes += len(msgspec.json.encode(value))
        if self._copied_bytes > MOST_COPIED_BYTES:
            raise _Refusal(Fault.MALFORMED, f"copies more than {MOST_COPIED_BYTES} bytes")
        self._put(_parts(operation.get("path")), value)
        # The value is now in two places, so no container in it may be changed in place any more.
        self._ours.clear()

    def test(self, operation: Operation) -> None:
        expected = _value(operation)
        parts = _parts(operation.get("path"))
        # RFC 6902 refuses a missing member; kube-apiserver takes it for null, which tests that it is absent.
        if parts and expected is None:
            parent = self._look(parts[:-1])
            if isinstance(parent, dict) and parts[-1] not in parent:
                return
        found = self._look(parts)
        if not same(found, expected):
            raise _Refusal(Fault.TEST_FAILED, "the value is another one than the test expects")

    def _look(self, parts: list[str]) -> Tree:
        found = self.root
        for part in parts:
            found = _child(found, part)
        return found

    def _owned(self, parts: list[str]) -> Tree:
        """The container at `parts`, copied together with all containers above it."""
        here = self.root = self._own(self.root)
        for part in parts:
            child = self._own(_child(here, part))
            here[int(part) if isinstance(here, list) else part] = child
            here = child
        return here

    def _own(self, container: Tree) -> Tree:
        if id(container) in self._ours or not isinstance(container, dict | list):
            return container
        mine = container.copy()
        self._ours[id(mine)] = mine
        return mine

    def _put(self, parts: list[str], value: Tree) -> None:
        if not parts:
            self.root = value
            return
        parent, last = self._owned(parts[:-1]), parts[-1]
        if isinstance(parent, list):
            parent.insert(len(parent) if last == "-" else _at(parent, last, len(parent) + 1), value)
        elif isinstance(parent, dict):
            parent[last] = value
        else:
            raise _Refusal(Fault.NOT_APPLICABLE, f"there is nothing below {parent!r:.40} for {last!r}")

    def _take(self, parts: list[str]) -> Tree:
        if not parts:
            taken, self.root = self.root, None
            return taken
        parent, last = self._owned(parts[:-1]), parts[-1]
        value = _child(parent, last)
        del parent[int(last) if isinstance(parent, list) else last]
        return value


def _value(operation: Operation) -> Tree:
    if "value" not in operation:
        raise _Refusal(Fault.MALFORMED, f"{operation['op']} needs a value")
    return operation["value"]


_ACTS: Final[dict[str, Callable[[_Draft, Operation], None]]] = {
    "add": _Draft.add,
    "remove": _Draft.remove,
    "replace": _Draft.replace,
    "move": _Draft.move,
    "copy": _Draft.copy,
    "test": _Draft.test,
}


# --- JSON patches: making ---------------------------------------------------------------------------------------------


def make(before: Tree, after: Tree) -> list[Operation]:
    """Operations that turn `before` into `after`; none when they are equal. Lists keep equal items at both ends."""
    return list(_differences(before, after, ""))


def _differences(before: Tree, after: Tree, path: str) -> Iterator[Operation]:
    if same(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from ({"op": "remove", "path": path + pointer(key)} for key in before if key not in after)
        for key, value in after.items():
            if key in before:
                yield from _differences(before[key], value, path + pointer(key))
            else:
                yield {"op": "add", "path": path + pointer(key), "value": value}
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_differences(before, after, path)
    else:
        yield {"op": "replace", "path": path, "value": after}


def _list_differences(before: list[Tree], after: list[Tree], path: str) -> Iterator[Operation]:
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if not same(before[i], after[i])), shorter)
    tail = next((i for i in range(shorter - head) if not same(before[-1 - i], after[-1 - i])), shorter - head)
    for index in range(head, shorter - tail):
        yield from _differences(before[index], after[index], path + pointer(index))
    for index in reversed(range(shorter - tail, len(before) - tail)):
        yield {"op": "remove", "path": path + pointer(index)}
    for index in range(shorter - tail, len(after) - tail):
        yield {"op": "add", "path": path + pointer(index), "value": after[index]}
