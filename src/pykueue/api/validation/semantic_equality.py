"""Whether two JSON values mean the same, which is less than being spelt the same.

A client that reads an object into its own types and writes it back leaves out what is empty and may spell a quantity
another way. Neither is a change.
"""

from __future__ import annotations

from typing import Any, Final

from pykueue.api.validation import quotas

# The maps of a pod and of an assignment with quantities as values.
_OF_QUANTITIES: Final = frozenset({"requests", "limits", "overhead", "resourceUsage"})


def same(first: object, second: object) -> bool:
    """Equal, where an empty text, list or object is as good as none, and quantities count by their worth."""
    try:
        return _same(first, second)
    except RecursionError:
        # Nested deeper than any server accepts: treated as changed.
        return False


def _same(first: object, second: object) -> bool:
    if first is second:
        return True
    if _empty(first) or _empty(second):
        return _empty(first) and _empty(second)
    if isinstance(first, dict) and isinstance(second, dict):
        return all(_same_field(key, first.get(key), second.get(key)) for key in first.keys() | second.keys())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return type(first) is type(second) and first == second


def _same_field(key: str, first: Any, second: Any) -> bool:
    if key in _OF_QUANTITIES and isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same_worth(first[name], second[name]) for name in first)
    return _same(first, second)


def _same_worth(first: object, second: object) -> bool:
    worths = quotas.amount(first), quotas.amount(second)
    return _same(first, second) if None in worths else worths[0] == worths[1]


def _empty(value: object) -> bool:
    # Not `not value`: 0 and false are set values.
    return value is None or (isinstance(value, str | list | dict) and not value)
