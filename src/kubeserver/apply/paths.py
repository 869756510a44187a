"""Sets of field paths, kept in the very form in which managedFields carries them.

A set is a tree of dicts whose keys are path elements: `f:NAME` a field, `k:{"name":"x"}` the list item with these keys,
`v:"x"` a set's own value, `i:0` a position. A path is in the set if its node is empty or holds `.`:

    {"f:spec": {"f:replicas": {}, "f:template": {".": {}, "f:name": {}}}}

holds `.spec.replicas`, `.spec.template` and `.spec.template.name`, but not `.spec`. So nothing is ever encoded or
decoded, equality is `==`, and a set read from an object is ready for use. Sets are never changed once handed out, and
what this room makes has its keys in order: what is stored does not depend on how it came about.
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
    """Is the path that leads to this node itself in the set?"""
    return not node or SELF in node


def node_of(member: bool, children: PathSet) -> PathSet | None:
    """The node with these children (and without `.`), or None where there is nothing to hold."""
    if not children:
        return MEMBER if member else None
    return {**_INSIDE, **children} if member else children


def union(left: PathSet, right: PathSet) -> PathSet:
    """What is in either set."""
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
    """What is in both sets."""
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
    """What is in `left` and not, at exactly that path, in `right`."""
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
    """What is in `left` and neither at nor below a path of `right`."""
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
    """Is every path of `left` also in `right`?"""
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


# The public server's JSON can stand in a web page. Elements are compared as texts, so theirs and ours must be one.
_UNSAFE: Final = re.compile("[<>&\u2028\u2029]")


def _json(value: Any) -> str:
    text = _encode(value).decode()
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) if _UNSAFE.search(text) else text


def key_element(keys: Mapping[str, Any]) -> str:
    """The element of a list item that is told from its siblings by these keys."""
    return "k:" + _json(keys)


@lru_cache(maxsize=4096)
def name_element(key: str, name: str) -> str:
    """The same for one key that is a text. Most lists are told apart by names, and most names come again."""
    return key_element({key: name})


def value_element(value: Any) -> str:
    """The element of an item of a set."""
    return "v:" + _json(value)


def is_element(text: str) -> bool:
    """Is this text a path element in the one spelling that this module writes?"""
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
    """Can this JSON value, which came from a client, be taken as a set of paths as it stands?"""
    if not isinstance(tree, dict) or depth == 0:
        return False
    return all(
        isinstance(element, str) and is_element(element) and is_path_set(child, depth - 1)
        for element, child in tree.items()
    )


# --- for people -------------------------------------------------------------------------------------------------------


def spelt(paths: PathSet, prefix: str = "") -> Iterator[str]:
    """Every path in the set as people read it: `.spec.containers[name="main"].image`."""
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
