"""Lists."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cmp_to_key, reduce
from itertools import pairwise
from typing import Final

from kubemachinery.cel.errors import CelError, no_such_overload
from kubemachinery.cel.library.standard import checked_int, checked_uint
from kubemachinery.cel.library.times import checked_duration
from kubemachinery.cel.values import (
    NONE,
    Duration,
    Optional,
    StepBudget,
    UInt,
    UnorderedList,
    Value,
    compare,
    equal,
    identity,
    some,
)

_RANGE_MAX: Final = 100_000
_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE: Final = ("int", "uint", "double", "duration")


def _same(left: Value, right: Value) -> bool:
    # The arguments are paid for by the call; comparing two items of one list costs what those items hold.
    return equal(StepBudget(1_000_000), left, right)


def _concatenate(left: list[Value], right: list[Value]) -> list[Value]:
    """Adds lists; to a set or a map of Kubernetes it adds what is new, and of a map it replaces what has the same
    key.
    """
    if not isinstance(left, UnorderedList):
        return [*left, *right]
    merged = {identity(left.key(item)): item for item in left}
    for item in right:
        key = identity(left.key(item))
        if left.shape.keys or key not in merged:
            merged[key] = item
    return UnorderedList(merged.values(), left.shape)


def _is_sorted(items: list[Value]) -> bool:
    return all(compare(one, next_) <= 0 for one, next_ in pairwise(items))


def _sum(items: list[Value]) -> Value:
    if not items:
        return 0
    first = items[0]
    if any(type(item) is not type(first) for item in items) or isinstance(first, bool):
        raise no_such_overload("sum")
    if isinstance(first, Duration):
        return checked_duration(sum(item.nanoseconds for item in items))
    total = reduce(operator.add, items)
    if isinstance(first, float):
        return total
    return checked_uint(total) if isinstance(first, UInt) else checked_int(total)


def _extreme(sign: int) -> Callable[[list[Value]], Value]:
    def get(items: list[Value]) -> Value:
        if not items:
            raise CelError("min and max need a list with items")
        best = items[0]
        for item in items[1:]:
            if compare(item, best) == sign:
                best = item
        return best

    return get


def _index_of(items: list[Value], item: Value) -> int:
    return next((at for at, other in enumerate(items) if _same(other, item)), -1)


def _last_index_of(items: list[Value], item: Value) -> int:
    return next((at for at in reversed(range(len(items))) if _same(items[at], item)), -1)


def _distinct(items: list[Value]) -> list[Value]:
    kept: dict[object, Value] = {}
    for item in items:
        kept.setdefault(identity(item), item)
    return list(kept.values())


def _flatten(items: list[Value], depth: int = 1) -> list[Value]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Value] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            flat += _flatten(item, depth - 1)
        else:
            flat.append(item)
    return flat


def _slice(items: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0 or start > end or end > len(items):
        raise CelError(f"cannot slice ({start}, {end}) of {len(items)} items")
    return items[start:end]


def sort(items: list[Value]) -> list[Value]:
    if items and any(type(item) is not type(items[0]) for item in items):
        raise CelError("list elements must have the same type")
    return sorted(items, key=cmp_to_key(compare))


def _range(size: int) -> list[Value]:
    if size > _RANGE_MAX:
        raise CelError(f"lists.range() makes at most {_RANGE_MAX} items")
    return list(range(size))


def _ends(at: int) -> Callable[[list[Value]], Optional]:
    return lambda items: some(items[at]) if items else NONE


FUNCTIONS: Final[dict[str, Callable[..., Value]]] = {
    "_+_(list<T>, list<T>) -> list<T>": _concatenate,
    **{f"list<{item}>.isSorted() -> bool": _is_sorted for item in _COMPARABLE},
    **{f"list<{item}>.sum() -> {item}": _sum for item in _SUMMABLE},
    **{f"list<{item}>.min() -> {item}": _extreme(-1) for item in _COMPARABLE},
    **{f"list<{item}>.max() -> {item}": _extreme(1) for item in _COMPARABLE},
    "list<T>.indexOf(T) -> int": _index_of,
    "list<T>.lastIndexOf(T) -> int": _last_index_of,
    "list<T>.distinct() -> list<T>": _distinct,
    "list<dyn>.flatten() -> list<dyn>": _flatten,
    "list<dyn>.flatten(int) -> list<dyn>": _flatten,
    "list<T>.slice(int, int) -> list<T>": _slice,
    "list<T>.reverse() -> list<T>": lambda items: items[::-1],
    **{f"list<{item}>.sort() -> list<{item}>": sort for item in _COMPARABLE},
    "lists::range(int) -> list<int>": _range,
    "list<T>.first() -> optional<T>": _ends(0),
    "list<T>.last() -> optional<T>": _ends(-1),
}
