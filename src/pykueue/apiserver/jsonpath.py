"""The JSONPath of printed columns: fields, indexes, wildcards, `..`, and filters such as `[?(@.type=="Ready")]`.

A path is compiled once into steps; each step turns a list of values into the next. What does not fit is skipped,
so that a path over an object without the field finds nothing and never fails.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias


class PathError(ValueError):
    """A text that is not a path this module can follow."""


Step: TypeAlias = Callable[[Any], Iterable[Any]]
Find: TypeAlias = Callable[[Any], list[Any]]

_FIELD: Final = re.compile(r"(?:[^.\[\]\\{}()\s]|\\.)+")
_QUOTED: Final = re.compile(r"\[\s*(['\"])((?:(?!\1)[^\\]|\\.)*)\1\s*\]")
_INDEX: Final = re.compile(r"\[\s*(-?\d{1,9})\s*\]")
_SLICE: Final = re.compile(r"\[\s*(-?\d{0,9})\s*:\s*(-?\d{0,9})\s*\]")
_WILDCARD: Final = re.compile(r"\.?\[\s*\*\s*\]|\.\*")
_FILTER: Final = re.compile(r"\[\?\(")
_COMPARISON: Final = re.compile(r"\s*@(?P<left>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<right>.+?))?\s*")

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Find:
    """The function that finds the values of `path` in a tree. Raises PathError for what is not understood."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text[:1] in ("$", "@"):
        text = text[1:]
    steps: list[Step] = []
    position = 0
    while position < len(text):
        position = _read_step(text, position, steps)

    def find(tree: Any) -> list[Any]:
        values = [tree]
        for step in steps:
            values = [found for value in values for found in step(value)]
            if not values:
                break
        return values

    return find


def _read_step(text: str, position: int, steps: list[Step]) -> int:
    if text.startswith("..", position):
        steps.append(_deep)
        return position + 1
    if found := _WILDCARD.match(text, position):
        steps.append(_all)
        return found.end()
    if found := _FILTER.match(text, position):
        end = _closing(text, found.end())
        steps.append(_filter(text[found.end() : end]))
        return end + 2
    if found := _QUOTED.match(text, position):
        steps.append(_field(_unescape(found[2])))
        return found.end()
    if found := _INDEX.match(text, position):
        steps.append(_index(int(found[1])))
        return found.end()
    if found := _SLICE.match(text, position):
        steps.append(_slice(*(int(bound) if bound else None for bound in found.group(1, 2))))
        return found.end()
    start = position + 1 if text[position] == "." else position
    if (position == 0 or start > position) and (found := _FIELD.match(text, start)):
        steps.append(_field(_unescape(found[0])))
        return found.end()
    if text == ".":
        return 1
    raise PathError(f"{text!r} is not understood from {text[position:]!r} on")


def _closing(text: str, start: int) -> int:
    """Where the `)]` of a filter is; quotes may hold anything."""
    quote = ""
    for position in range(start, len(text)):
        character = text[position]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif text.startswith(")]", position):
            return position
    raise PathError(f"{text!r} has a filter without an end")


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _field(name: str) -> Step:
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _index(position: int) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[position],) if isinstance(value, list) and -len(value) <= position < len(value) else ()

    return step


def _slice(first: int | None, last: int | None) -> Step:
    return lambda value: value[first:last] if isinstance(value, list) else ()


def _all(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _deep(value: Any) -> Iterable[Any]:
    """The value, and everything below it."""
    yield value
    for each in _all(value):
        yield from _deep(each)


def _filter(condition: str) -> Step:
    found = _COMPARISON.fullmatch(condition)
    if found is None:
        raise PathError(f"the filter {condition!r} is not understood")
    left = compile_path(found["left"])
    if found["op"] is None:
        return lambda value: [item for item in _all(value) if left(item)]
    compare, right = _OPERATORS[found["op"]], _operand(found["right"])

    def matches(item: Any) -> bool:
        values, wanted = left(item), right(item)
        if not values or not wanted:
            return False
        try:
            return compare(values[0], wanted[0])
        except TypeError:
            return False

    return lambda value: [item for item in _all(value) if matches(item)]


def _operand(text: str) -> Find:
    if text[:1] == "@":
        return compile_path(text[1:])
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        constant: Any = text[1:-1]
    elif text in ("true", "false"):
        constant = text == "true"
    else:
        try:
            constant = int(text)
        except ValueError:
            try:
                constant = float(text)
            except ValueError:
                raise PathError(f"{text!r} is neither text in quotes, a number nor a path") from None
    return lambda item: [constant]
