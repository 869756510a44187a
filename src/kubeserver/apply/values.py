"""Recursions over a value and its shape: the paths it owns, differences, merging, removal.

None of them changes its arguments; results share every part that did not change with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kubemachinery import patches
from kubeserver.apply import paths
from kubeserver.apply.paths import MEMBER, SELF, PathSet
from kubeserver.apply.shape import ListShape, MapShape, MissingListKey, Shape


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

_NONE: Final[PathSet] = {}

# Most values have one of these types and need no recursion, so they are tested first.
_PLAIN: Final = frozenset({str, int, bool, float})


# --- which alternative of a shape a value takes -----------------------------------------------------------------------


def _map_of(value: Any, shape: Shape) -> MapShape | None:
    """Return the rules of a granular map; None where the value is atomic or no map."""
    rules = shape.map
    if rules is None or rules.atomic:
        return None
    return rules if value is None or isinstance(value, dict) else None


def _list_of(value: Any, shape: Shape) -> ListShape | None:
    rules = shape.list
    if rules is None or rules.atomic:
        return None
    if value is None:
        return rules if shape.map is None and shape.scalar is None else None
    return rules if isinstance(value, list) else None


def _elements(rules: ListShape, items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the items that have a path element. Items without one were refused before, or are in no manager's set."""
    for item in items:
        try:
            yield rules.element(item), item
        except MissingListKey:
            continue


def _repeated(pairs: Sequence[tuple[str, Any]]) -> frozenset[str]:
    if len({element for element, _ in pairs}) == len(pairs):
        return frozenset()
    counts = Counter(element for element, _ in pairs)
    return frozenset(element for element, count in counts.items() if count > 1)


# --- what is wrong with a configuration -------------------------------------------------------------------------------


_TAKE_TEXT: Final = frozenset({"string", "any"})


def problems(value: Any, shape: Shape, path: str = "") -> Iterable[str]:
    """Yield why this value cannot be merged by this shape: undeclared fields, wrong types, repeated keys."""
    if value is None:
        return ()
    if isinstance(value, dict):
        return _of_map(value, shape, path)
    if isinstance(value, list):
        return _of_list(value, shape, path)
    return () if _is_scalar(value, shape.scalar) else (f"{path}: expected {_expected(shape)}, got {value!r}",)


def _of_map(value: dict[str, Any], shape: Shape, path: str) -> Iterator[str]:
    if shape.map is None:
        yield f"{path}: expected {_expected(shape)}, got an object"
        return
    for field, child in value.items():
        child_shape = shape.map.child(field)
        if child_shape is None:
            yield f"{path}.{field}: field not declared in schema"
        elif child.__class__ is not str or child_shape.scalar not in _TAKE_TEXT:
            yield from problems(child, child_shape, f"{path}.{field}")


def _of_list(value: list[Any], shape: Shape, path: str) -> Iterator[str]:
    if shape.list is None:
        yield f"{path}: expected {_expected(shape)}, got a list"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        if not shape.list.atomic:
            try:
                element = shape.list.element(item)
            except MissingListKey as reason:
                yield f"{place}: {reason}"
                return
            if element in seen:
                yield f"{path}: duplicate entries for key {next(paths.spelt({element: MEMBER}))}"
            seen.add(element)
        yield from problems(item, shape.list.item, place)


def _is_scalar(value: Any, sort: str | None) -> bool:
    match sort:
        case None:
            return False
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
    return True


def _expected(shape: Shape) -> str:
    if shape.scalar is not None:
        return f"a {shape.scalar}" if shape.scalar != "any" else "a plain value"
    return "an object" if shape.map is not None else "a list"


# --- what a configuration owns ----------------------------------------------------------------------------------------


def owned(value: Any, shape: Shape) -> PathSet:
    """Return the paths that applying this value owns: its leaves, and every list item and map key that it names."""
    map_rules = _map_of(value, shape)
    if map_rules is not None:
        out: PathSet = {}
        fields: dict[str, Any] = value or _NONE
        for field in sorted(fields):
            child, child_shape = fields[field], map_rules.child(field)
            if child_shape is None:
                continue
            if child.__class__ in _PLAIN:
                out[f"f:{field}"] = MEMBER
                continue
            member = _is_leaf(child, child_shape) or child is None or child == {} or not map_rules.is_named(field)
            node = paths.node_of(member, owned(child, child_shape))
            if node is not None:
                out[f"f:{field}"] = node
        return out
    list_rules = _list_of(value, shape)
    if list_rules is not None and value:
        pairs = list(_elements(list_rules, value))
        repeated = _repeated(pairs)
        # An item is a member whatever it holds.
        nodes = {
            element: MEMBER if element in repeated else paths.node_of(True, owned(item, list_rules.item)) or MEMBER
            for element, item in pairs
        }
        return paths.in_order(nodes)
    return _NONE


def _is_leaf(value: Any, shape: Shape) -> bool:
    """Whether this value is owned as a whole, whatever it contains."""
    return _map_of(value, shape) is None and _list_of(value, shape) is None


def _everything(value: Any, shape: Shape) -> PathSet:
    """Return the node of a value that was added or removed as a whole, with every path below it."""
    children: PathSet = {}
    map_rules = _map_of(value, shape)
    if map_rules is not None:
        fields: dict[str, Any] = value or _NONE
        for field in sorted(fields):
            child_shape = map_rules.child(field)
            if child_shape is not None:
                child = fields[field]
                children[f"f:{field}"] = MEMBER if child.__class__ in _PLAIN else _everything(child, child_shape)
    else:
        list_rules = _list_of(value, shape)
        if list_rules is not None and value:
            for element, item in _elements(list_rules, value):
                # Items that share a key count as one value.
                children[element] = MEMBER if element in children else _everything(item, list_rules.item)
            children = paths.in_order(children)
    return {SELF: MEMBER, **children} if children else MEMBER


# --- what changed -----------------------------------------------------------------------------------------------------


class FieldChanges(NamedTuple):
    """The difference between two objects; no path is in two of the sets."""

    removed: PathSet
    modified: PathSet
    added: PathSet

    def ignoring(self, ignored: PathSet) -> FieldChanges:
        """The same without what lies at or below the paths of `ignored`."""
        if not ignored:
            return self
        return FieldChanges(*(paths.without_below(part, ignored) for part in self))


NO_CHANGE: Final = FieldChanges(_NONE, _NONE, _NONE)
_MODIFIED: Final = FieldChanges(_NONE, {SELF: MEMBER}, _NONE)


def compare(old: Any, new: Any, shape: Shape) -> FieldChanges:
    """Return the difference between two objects."""
    found = _compare(old, new, shape)
    return FieldChanges(*({e: n for e, n in part.items() if e != SELF} if SELF in part else part for part in found))


_encode = msgspec.json.Encoder().encode


def same(old: Any, new: Any) -> bool:
    """Whether two values are equal as JSON. In Python True == 1 == 1.0, so a positive answer is checked again."""
    if old is new:
        return True
    return bool(old == new) and (_encode(old) == _encode(new) or patches.same(old, new))


def _compare(old: Any, new: Any, shape: Shape) -> FieldChanges:
    """Compare two present values. `.` in a set: the value itself changed; `_attach` puts it under its element."""
    if same(old, new):
        return NO_CHANGE
    old_map, new_map = _map_of(old, shape), _map_of(new, shape)
    if old_map is not None and new_map is not None:
        if not old and not new:  # an empty map became null, or the reverse
            return _MODIFIED
        return _compare_maps(old or _NONE, new or _NONE, new_map)
    old_list, new_list = _list_of(old, shape), _list_of(new, shape)
    if old_list is not None and new_list is not None:
        if not old and not new:
            return _MODIFIED
        return _compare_lists(old or (), new or (), new_list)
    if (old_map or old_list or new_map or new_list) is None:
        return _MODIFIED
    # The form of the value changed, for example from map to scalar: granular parts were removed or added, the value
    # modified.
    removed = _below(_everything(old, shape)) if old_map or old_list else _NONE
    added = _below(_everything(new, shape)) if new_map or new_list else _NONE
    return FieldChanges(removed, _MODIFIED.modified, added)


def _below(node: PathSet) -> PathSet:
    return {element: child for element, child in node.items() if element != SELF}


def _compare_maps(old: dict[str, Any], new: dict[str, Any], rules: MapShape) -> FieldChanges:
    removed: PathSet = {}
    modified: PathSet = {}
    added: PathSet = {}
    for field, value in new.items():
        before = old.get(field, ABSENT)
        if before is value:
            continue
        shape = rules.child(field)
        if shape is None:
            continue
        element = f"f:{field}"
        if before is ABSENT:
            added[element] = _everything(value, shape)
        else:
            _attach(element, _compare(before, value, shape), removed, modified, added)
    for field, value in old.items():
        if field not in new:
            shape = rules.child(field)
            if shape is not None:
                removed[f"f:{field}"] = _everything(value, shape)
    return FieldChanges(*map(paths.in_order, (removed, modified, added)))


def _compare_lists(old: Sequence[Any], new: Sequence[Any], rules: ListShape) -> FieldChanges:
    removed: PathSet = {}
    modified: PathSet = {}
    added: PathSet = {}
    before: dict[str, list[Any]] = {}
    for element, item in _elements(rules, old):
        before.setdefault(element, []).append(item)
    after: dict[str, list[Any]] = {}
    for element, item in _elements(rules, new):
        after.setdefault(element, []).append(item)
    for element in {**before, **after}:
        olds, news = before.get(element, []), after.get(element, [])
        if len(olds) <= 1 and len(news) <= 1:
            if not olds:
                added[element] = _everything(news[0], rules.item)
            elif not news:
                removed[element] = _everything(olds[0], rules.item)
            else:
                _attach(element, _compare(olds[0], news[0], rules.item), removed, modified, added)
        elif len(olds) > 1 and len(news) > 1:
            # Items that share a key count as one value: which of them changed is not decidable.
            if not same(olds, news):
                modified[element] = MEMBER
        elif len(olds) > 1:
            removed[element] = MEMBER
            if news:
                added[element] = _everything(news[0], rules.item)
        else:
            added[element] = MEMBER
            if olds:
                removed[element] = _everything(olds[0], rules.item)
    return FieldChanges(*map(paths.in_order, (removed, modified, added)))


def _attach(element: str, changes: FieldChanges, removed: PathSet, modified: PathSet, added: PathSet) -> None:
    for below, into in zip(changes, (removed, modified, added), strict=True):
        if below:
            into[element] = MEMBER if below.keys() == {SELF} else below


# --- merging a configuration ------------------------------------------------------------------------------------------


def merge(live: Any, configuration: Any, shape: Shape) -> Any:
    """Return the live value with the configuration merged in: what the configuration names wins, the rest stays."""
    if live is ABSENT:
        return configuration
    map_rules = _map_of(configuration, shape)
    if map_rules is not None:
        below = live if isinstance(live, dict) else _NONE
        if configuration is None or not below:
            # Applying null does not remove a map that has content.
            return configuration if not below else live
        out = dict(below)
        for field, value in configuration.items():
            child = map_rules.child(field)
            if child is not None:
                plain = value.__class__ in _PLAIN
                out[field] = value if plain else merge(below.get(field, ABSENT), value, child)
        return out
    list_rules = _list_of(configuration, shape)
    if list_rules is not None:
        items = live if isinstance(live, list) else []
        if configuration is None or not items:
            return configuration if not items else live
        return _merge_lists(items, configuration, list_rules)
    return configuration


def _merge_lists(live: list[Any], configuration: list[Any], rules: ListShape) -> list[Any]:
    """Merge items by key. Items of both lists take the configuration's order; the others are copied as they come.

    Two pointers walk the lists. A live item that the configuration has too is skipped until the configuration reaches
    it; an item of the live list alone is copied when the walk reaches it. So live [a, x, b] and configuration [a, b]
    give [a, x, b], and configuration [b, a] gives [x, b, a].
    """
    ours = list(_elements(rules, live))
    theirs = list(_elements(rules, configuration))
    repeated = _repeated(ours)
    # A key that occurs twice in the live list cannot be merged with: the configuration replaces the items.
    live_by = {element: (None if element in repeated else item) for element, item in ours}
    theirs_by = dict(theirs)
    if not repeated and live_by.keys() == theirs_by.keys():
        # Both lists have the same keys: the order of the configuration is the result.
        return [merge(live_by[element], item, rules.item) for element, item in theirs]

    shared = [element for element, _ in theirs if element in live_by]
    shared.reverse()  # the next one is at the end
    out: list[Any] = []
    taken: set[str] = set()
    left = right = 0

    def take(element: str) -> None:
        taken.add(element)
        out.append(merge(live_by.get(element, ABSENT), theirs_by[element], rules.item))
        if shared and shared[-1] == element:
            shared.pop()

    while left < len(ours) or right < len(theirs):
        if left < len(ours):
            element, item = ours[left]
            if right < len(theirs):
                if element == theirs[right][0]:
                    take(element)
                    left += 1
                    right += 1
                    continue
                if element in theirs_by and shared and shared[-1] != element:
                    # Not the next shared item: the configuration places it later.
                    left += 1
                    continue
            if element not in theirs_by:
                # Only the live list has it.
                out.append(item)
                left += 1
                continue
            if element in taken:
                left += 1
        if right < len(theirs):
            take(theirs[right][0])
            right += 1
    return out


# --- removing paths ---------------------------------------------------------------------------------------------------


def without(value: Any, gone: PathSet, shape: Shape) -> Any:
    """Return the value without the parts at the paths of `gone`; a map or list that becomes empty becomes null."""
    if isinstance(value, dict):
        rules = shape.map
        if rules is None or rules.atomic:
            return None
        out: dict[str, Any] = {}
        for field, child in value.items():
            node = gone.get(f"f:{field}")
            if node is None:
                out[field] = child
            elif not paths.is_member(node):
                child_shape = rules.child(field)
                out[field] = child if child_shape is None else without(child, node, child_shape)
        return out or None
    if isinstance(value, list):
        list_rules = shape.list
        if list_rules is None or list_rules.atomic:
            return None
        items: list[Any] = []
        for item in value:
            try:
                node = gone.get(list_rules.element(item))
            except MissingListKey:
                node = None
            if node is None:
                items.append(item)
            elif not paths.is_member(node):
                items.append(without(item, node, list_rules.item))
        return items or None
    return value


# --- sets and shapes --------------------------------------------------------------------------------------------------


def with_named_fields(owned_paths: PathSet, shape: Shape | None) -> PathSet:
    """Return the set with every named field on the way to its paths: an owner of `.a.b` also keeps `.a`."""
    out: PathSet = {}
    for element, node in owned_paths.items():
        if not node:
            out[element] = node
            continue
        named = False
        child: Shape | None = None
        if shape is not None:
            if element[0] == "f" and shape.map is not None:
                field = element[2:]
                named = shape.map.is_named(field)
                child = shape.map.child(field)
            elif element[0] == "k" and shape.list is not None:
                child = shape.list.item
        below = with_named_fields(node, child)
        out[element] = {SELF: MEMBER, **below} if named and SELF not in below else below
    return out


def reconciled(owned_paths: PathSet, shape: Shape) -> PathSet:
    """Return the set under the current schema: what has become atomic is owned as a whole."""
    if shape.deduced:
        return owned_paths
    changed: PathSet = {}
    for element, node in owned_paths.items():
        if not node:
            continue
        child: Shape | None = None
        if shape.map is not None:
            if element[0] == "f":
                child = shape.map.child(element[2:])
        elif shape.list is not None and shape.scalar is None:
            child = shape.list.item
        if child is None:
            continue
        if child.map is not None:
            collapse = child.map.atomic
        else:
            collapse = child.scalar is None and child.list is not None and child.list.atomic
        new = MEMBER if collapse else reconciled(node, child)
        if new is not node:
            changed[element] = new
    return {**owned_paths, **changed} if changed else owned_paths
