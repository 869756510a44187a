"""Sets of field paths, in the form in which managedFields carries them (FieldsV1).

A set is a tree of dicts whose keys are path elements: `f:NAME` a field, `k:{"name":"x"}` the list item with these keys,
`v:"x"` a set's own value, `i:0` a position. A path is in the set if its node is empty or holds `.`:

    {"f:spec": {"f:replicas": {}, "f:template": {".": {}, "f:name": {}}}}

holds `.spec.replicas`, `.spec.template` and `.spec.template.name`, but not `.spec`. So nothing is ever encoded or
decoded, equality is `==`, and a set read from an object is ready for use. Sets are immutable once returned, and
their keys are sorted: the stored bytes do not depend on the order of writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

PathSet: TypeAlias = dict[str, "PathSet"]

SELF: Final = "."
MEMBER: Final[PathSet] = {}
_INSIDE: Final[PathSet] = {SELF: MEMBER}

_encode = msgspec.json.Encoder(order="sorted").encode


def is_member(node: PathSet) -> bool:
    """Whether the path of this node itself is in the set."""
    return not node or SELF in node


def node_of(member: bool, children: PathSet) -> PathSet | None:
    """Return the node with these children (and without `.`), or None for an empty non-member."""
    if not children:
        return MEMBER if member else None
    return {**_INSIDE, **children} if member else children


def union(left: PathSet, right: PathSet) -> PathSet:
    """Return the paths that are in either set."""
    if not left or left is right:
        return right
    if not right:
        return left
    out = dict(left)
    for element, theirs in right.items():
        ours = left.get(element)
        out[element] = theirs if ours is None else _union_node(ours, theirs)
    return in_order(out) if len(out) > len(left) else out


def _union_node(left: PathSet, right: PathSet) -> PathSet:
    if left is right or left == right:
        return left
    # One of the two has children; an empty node is a member without any.
    merged = union(left, right)
    if SELF not in merged and (not left or not right):
        merged = {**_INSIDE, **merged}
    return merged


def intersection(left: PathSet, right: PathSet) -> PathSet:
    """Return the paths that are in both sets."""
    out: PathSet = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is None or element == SELF:
            continue
        node = node_of(is_member(ours) and is_member(theirs), intersection(ours, theirs))
        if node is not None:
            out[element] = node
    return out


def difference(left: PathSet, right: PathSet) -> PathSet:
    """Return the paths of `left` that are not, at exactly that path, in `right`."""
    if not right:
        return left
    out: PathSet = {}
    for element, ours in left.items():
        if element == SELF:
            continue
        theirs = right.get(element)
        if theirs is None:
            out[element] = ours
            continue
        node = node_of(is_member(ours) and not is_member(theirs), difference(_children(ours), _children(theirs)))
        if node is not None:
            out[element] = node
    return out


def without_below(left: PathSet, right: PathSet) -> PathSet:
    """Return the paths of `left` that are neither at nor below a path of `right`."""
    if not right:
        return left
    out: PathSet = {}
    for element, ours in left.items():
        theirs = right.get(element)
        if theirs is None:
            out[element] = ours
        elif not is_member(theirs):
            node = node_of(is_member(ours), without_below(_children(ours), theirs))
            if node is not None:
                out[element] = node
    return out


def _children(node: PathSet) -> PathSet:
    if SELF not in node:
        return node
    return {element: child for element, child in node.items() if element != SELF}


def is_within(left: PathSet, right: PathSet) -> bool:
    """Whether every path of `left` is also in `right`."""
    for element, ours in left.items():
        if element == SELF:
            continue
        theirs = right.get(element)
        if theirs is None or (is_member(ours) and not is_member(theirs)):
            return False
        if ours and theirs is not ours and not is_within(ours, theirs):
            return False
    return True


def from_fields(*paths: tuple[str, ...]) -> PathSet:
    """The set of these paths of plain fields."""
    out: PathSet = {}
    for path in paths:
        branch: PathSet = MEMBER
        for field in reversed(path):
            branch = {f"f:{field}": branch}
        out = union(out, branch)
    return out


def in_order(paths: PathSet) -> PathSet:
    """The same set with its first elements in order; those below are in order already."""
    return {element: paths[element] for element in sorted(paths)} if len(paths) > 1 else paths


# --- path elements ----------------------------------------------------------------------------------------------------


# kube-apiserver escapes these characters in JSON. Elements are compared as strings, so this server must do the same.
_UNSAFE: Final = re.compile("[<>&\u2028\u2029]")


def _json(value: Any) -> str:
    text = _encode(value).decode()
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if _UNSAFE.search(text) else text


def key_element(keys: Mapping[str, Any]) -> str:
    """Return the path element of a list item with these keys."""
    return "k:" + _json(keys)


@lru_cache(maxsize=1024)
def name_element(key: str, name: str) -> str:
    """Return the same for one string key, cached: most lists are keyed by name, and most names recur. Owners are keyed
    by UID, which recurs while they exist."""
    return key_element({key: name})


def value_element(value: Any) -> str:
    """The element of an item of a set."""
    return "v:" + _json(value)


def is_element(text: str) -> bool:
    """Whether this string is a path element in the canonical form of this module."""
    sort, colon, rest = text[:1], text[1:2], text[2:]
    if colon != ":":
        return text == SELF
    match sort:
        case "f":
            return True
        case "i":
            return rest.isascii() and rest.isdigit()
        case "k" | "v":
            try:
                value = msgspec.json.decode(rest.encode())
            except (msgspec.DecodeError, UnicodeEncodeError):
                return False
            return isinstance(value, dict) is (sort == "k") and _json(value) == rest
    return False


def is_path_set(tree: object, depth: int = 100) -> bool:
    """Whether a JSON value from a client is a valid set of paths in canonical form."""
    if not isinstance(tree, dict) or depth == 0:
        return False
    return all(
        isinstance(element, str) and is_element(element) and is_path_set(child, depth - 1)
        for element, child in tree.items()
    )


# --- messages ---------------------------------------------------------------------------------------------------------


def spelt(paths: PathSet, prefix: str = "") -> Iterator[str]:
    """Yield every path in the set as messages show it: `.spec.containers[name="main"].image`."""
    for element in sorted(paths):
        if element == SELF:
            continue
        node = paths[element]
        path = prefix + _element_spelt(element)
        if is_member(node):
            yield path
        yield from spelt(node, path)


def _element_spelt(element: str) -> str:
    sort, rest = element[0], element[2:]
    match sort:
        case "f":
            return "." + rest
        case "k":
            keys = msgspec.json.decode(rest.encode())
            return "[" + ",".join(f"{name}={_encode(value).decode()}" for name, value in sorted(keys.items())) + "]"
        case "v":
            return f"[={_encode(msgspec.json.decode(rest.encode())).decode()}]"
    return f"[{rest}]"
