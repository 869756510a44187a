"""Strategic merge patches: merge patches that merge lists item by item where the schema has a merge key.

    merge(tree, patch, schema)

A list with the strategy `merge` merges the items of the patch one by one: by the key that the schema names, or by value
where the items are scalars. Five directives can occur in a patch:

| directive | where | effect |
| --- | --- | --- |
| `$patch: replace` | a map, or an item of its own in a list | the value in the patch replaces the original |
| `$patch: delete` | a map, or an item with its key | it is deleted |
| `$retainKeys: [..]` | a map | all other keys of the map are deleted |
| `$setElementOrder/F: [..]` | beside the list F | the order of its items |
| `$deleteFromPrimitiveList/F: [..]` | beside the list F of scalars | these values are deleted |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from kubemachinery.patches import Fault, PatchError, same

Tree: TypeAlias = dict[str, Any]
Schema: TypeAlias = Mapping[str, Any]

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"
_ABSENT: Final = object()


def merge(tree: Tree, patch: Any, schema: Schema) -> Tree:
    """The tree with the patch applied; neither is changed. Raises `PatchError` for a malformed patch."""
    if not isinstance(patch, dict):
        raise PatchError(Fault.MALFORMED, "a strategic merge patch is an object")
    try:
        return _merge_map(tree, patch, schema)
    except RecursionError:
        raise PatchError(Fault.MALFORMED, "is nested too deeply") from None


def _malformed(why: str) -> PatchError:
    return PatchError(Fault.MALFORMED, why)


# --- maps -------------------------------------------------------------------------------------------------------------


def _merge_map(original: Tree, patch: Tree, schema: Schema) -> Tree:
    if _PATCH in patch:
        match patch[_PATCH]:
            case "replace":
                return {key: value for key, value in patch.items() if key != _PATCH}
            case "delete":
                return {}
            case other:
                raise _malformed(f"supports {_PATCH}: replace and delete for an object, not {other!r}")
    out = _retained(original, patch)
    ordered = {key.removeprefix(_ORDER) for key in patch if key.startswith(_ORDER)}
    for field in ordered:
        _merge_in_order(out, field, patch, _child(schema, field))
    for key, value in patch.items():
        if key == _RETAIN or key.startswith(_ORDER) or key in ordered:
            continue
        if key.startswith(_DELETE):
            _delete_values(out, key.removeprefix(_DELETE), value)
        elif value is None:
            out.pop(key, None)
        else:
            _merge_value(out, key, value, _child(schema, key))
    return out


def _merge_value(out: Tree, key: str, value: Any, schema: Schema) -> None:
    before = out.get(key)
    if isinstance(before, dict) and isinstance(value, dict):
        out[key] = _merge_map(before, value, schema)
        return
    if isinstance(before, list) and isinstance(value, list):
        out[key] = _merge_list(before, value, schema) if _merges(schema) else value
        return
    kept = _plain(value)
    if kept is _ABSENT:
        out.pop(key, None)
    else:
        out[key] = kept


def _retained(original: Tree, patch: Tree) -> Tree:
    """The original without the keys that `$retainKeys` excludes."""
    if _RETAIN not in patch:
        return dict(original)
    wanted = patch[_RETAIN]
    if not isinstance(wanted, list):
        raise _malformed(f"{_RETAIN} is a list of keys")
    for key, value in patch.items():
        if key != _RETAIN and value is not None and not key.startswith((_ORDER, _DELETE)) and key not in wanted:
            raise _malformed(f"sets {key!r}, which its own {_RETAIN} does not list")
    return {key: value for key, value in original.items() if key in wanted}


def _plain(value: Any) -> Any:
    """A new value without nulls and directives; `_ABSENT` when it was only a directive."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _ABSENT
        kept = {key: _plain(inner) for key, inner in value.items() if inner is not None}
        return {key: inner for key, inner in kept.items() if inner is not _ABSENT}
    if isinstance(value, list):
        items = (_plain(item) for item in value)
        return [item for item in items if item is not _ABSENT]
    return value


# --- schemas ----------------------------------------------------------------------------------------------------------


def _child(schema: Schema, field: str) -> Schema:
    found: Schema | None = (schema.get("properties") or {}).get(field)
    if found is None:
        additional = schema.get("additionalProperties")
        found = additional if isinstance(additional, Mapping) else {}
    return found


def _merges(schema: Schema) -> bool:
    return "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(",")


def _merge_key(schema: Schema) -> str:
    return str(schema.get("x-kubernetes-patch-merge-key", ""))


# --- lists ------------------------------------------------------------------------------------------------------------


def _merge_list(original: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    if not original and not patch:
        return original
    if not _holds_objects(original, patch):
        merged = _distinct([*original, *patch])
        return _in_order(merged, patch, original, "")
    key = _merge_key(schema)
    if not key:
        raise _malformed("merges a list of objects for which the schema names no key")
    base, additions, replaces = _special_items(original, patch, key)
    if replaces:
        return base
    merged = _merge_items(base, additions, key, schema.get("items") or {})
    return _in_order(merged, additions, base, key)


def _holds_objects(*lists: Sequence[Any]) -> bool:
    sorts = {isinstance(item, dict) for one in lists for item in one}
    if len(sorts) > 1 or any(isinstance(item, list) for one in lists for item in one):
        raise _malformed("merges a list with items of different types")
    return sorts == {True}


def _special_items(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any], bool]:
    """The original without deleted items, the patch without directives, and whether it replaces the list."""
    additions: list[Any] = []
    base = original
    replaces = False
    for item in patch:
        match item.get(_PATCH, _ABSENT):
            case "delete":
                if key not in item:
                    raise _malformed(f"deletes an item of a list without its {key!r}")
                base = [one for one in base if not same(one.get(key, _ABSENT), item[key])]
            case "replace":
                replaces = True
            case word if word is _ABSENT:
                additions.append(item)
            case word:
                raise _malformed(f"supports {_PATCH}: replace and delete for an item of a list, not {word!r}")
    return (additions if replaces else base), additions, replaces


def _merge_items(base: list[Any], additions: list[Any], key: str, schema: Schema) -> list[Any]:
    merged = list(base)
    for item in additions:
        if key not in item:
            raise _malformed(f"has an item of a list without its {key!r}")
        place = next((at for at, one in enumerate(merged) if same(one.get(key, _ABSENT), item[key])), None)
        if place is None:
            merged.append(item)
        else:
            merged[place] = _merge_map(merged[place], item, schema)
    return merged


def _merge_in_order(out: Tree, field: str, patch: Tree, schema: Schema) -> None:
    """Merge a list together with its `$setElementOrder`."""
    order = patch[_ORDER + field]
    if not isinstance(order, list):
        raise _malformed(f"{_ORDER}{field} is a list")
    before, changes = out.get(field, _ABSENT), patch.get(field, _ABSENT)
    for value in (before, changes):
        if value is not _ABSENT and not isinstance(value, list):
            raise _malformed(f"orders {field!r}, which is no list")
    key = _merge_key(schema)
    _check_order(changes if isinstance(changes, list) else [], order, key, field)
    known: Sequence[Any] = ()
    if isinstance(before, list):
        known = before
        if not isinstance(changes, list):
            merged = before
        elif not _merges(schema):
            merged = changes
        else:
            merged = _merge_list(before, changes, schema)
            if key and len(merged) and _holds_objects(before, changes):
                # kube-apiserver uses as the old order what its own merge left in the old list: deleted items
                # free positions, and new items count as old up to that number. kubectl shows it on a rename.
                base, additions, _ = _special_items(before, changes, key)
                fresh = [item for item in additions if _position(item, base, key) < 0]
                known = [*base, *fresh][: len(before)]
    elif isinstance(changes, list):
        merged = _plain(changes)
    else:
        return
    out[field] = _in_order(merged, order, known, key)


def _check_order(changes: list[Any], order: list[Any], key: str, field: str) -> None:
    """The items of the patch must be in the order of its `$setElementOrder`."""
    if not order or not changes:
        return
    wanted = iter(order)
    for item in changes:
        if isinstance(item, dict) and _PATCH in item:
            continue
        if not any(_is_same_item(item, other, key) for other in wanted):
            raise _malformed(f"has items of {field!r} in another order than its own {_ORDER}{field}")


def _delete_values(out: Tree, field: str, values: Any) -> None:
    if not isinstance(values, list):
        raise _malformed(f"{_DELETE}{field} is a list")
    if isinstance(out.get(field), list):
        out[field] = [one for one in out[field] if not any(same(one, value) for value in values)]


def _is_same_item(item: Any, other: Any, key: str) -> bool:
    if not key or not isinstance(item, dict) or not isinstance(other, dict):
        return same(item, other)
    return same(item.get(key), other.get(key))


def _position(item: Any, order: Sequence[Any], key: str) -> int:
    return next((at for at, other in enumerate(order) if _is_same_item(item, other, key)), -1)


def _distinct(values: list[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if not any(same(value, one) for one in out):
            out.append(value)
    return out


def _in_order(merged: list[Any], order: Sequence[Any], before: Sequence[Any], key: str) -> list[Any]:
    """Items that the patch names get the order of the patch; the others keep their position between them.

    Both groups are sorted separately and then merged: an unnamed item precedes a named one where it did so in the
    original.
    """
    if key and any(isinstance(item, dict) and key not in item for item in (*merged, *order)):
        raise _malformed(f"has an item of a list without its {key!r}")
    named = [item for item in merged if _position(item, order, key) >= 0]
    named.sort(key=lambda item: _position(item, order, key))
    others = [item for item in merged if _position(item, order, key) < 0]
    others.sort(key=lambda item: _position(item, before, key))
    out: list[Any] = []
    while named and others:
        first, second = _position(others[0], before, key), _position(named[0], before, key)
        out.append(others.pop(0) if 0 <= first < second else named.pop(0))
    return [*out, *named, *others]
