"""The JSONPath of kubectl and of printed columns: fields, indexes, slices, unions, wildcards, `..`, and filters such as
`[?(@.type=="Ready")]`.

A path is compiled once into steps; each step turns a list of values into the next. A key that is missing gives nothing;
a step that makes no sense for a value is an error, which a printed column shows as nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec


class PathError(ValueError):
    """A text that is not a path this module can follow, or a value through which it does not lead."""


class TooMuch(PathError):
    """A path that visits more values than it may: a few `..` in a row visit each value once for every way to it."""


class Walk:
    """One search: whether keys may be missing, and how many more values may be visited."""

    __slots__ = ("allow_missing", "left")

    def __init__(self, allow_missing: bool, values_max: int) -> None:
        self.allow_missing = allow_missing
        self.left = values_max

    def visit(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooMuch("the path visits too many values")


# What one path of a command may visit: a few seconds' worth.
VALUES_MAX: Final = 2_000_000

Step: TypeAlias = Callable[[list[Any], Walk], list[Any]]
Find: TypeAlias = Callable[[Any, Walk], list[Any]]

# These characters select where a path starts; space means nothing.
_NOTHING: Final = re.compile(r"[\s$@]+")
_FIELD: Final = re.compile(r"\.(?P<name>(?:[^.,\[\]\\{}()$@\s]|\\.)+)")
_DEEP: Final = re.compile(r"\.(?=\.\w)|\.\.")
_CONSTANT: Final = re.compile(r"""(?P<text>(['"])(?:(?!\2)[^\\]|\\.)*\2)|(?P<word>[+-]?\d[\d.]*|(?:true|false)\b)""")
_FILTER: Final = re.compile(r"\[\?\(")
_COMPARISON: Final = re.compile(r"(?P<left>[^!<>=]+)(?P<sign>[!<>=]+)(?P<right>.+)", re.DOTALL)
_PART: Final = re.compile(
    r"""\s*(?:(?P<key>(['"])(?:(?!\2)[^\\]|\\.)*\2)|(?P<index>-?\d{1,9})|(?P<all>\*)
    |(?P<first>-?\d{0,9}):(?P<last>-?\d{0,9})(?::(?P<step>-?\d{0,9}))?)\s*(?P<end>[,\]])""",
    re.VERBOSE,
)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


class Path(msgspec.Struct, frozen=True):
    steps: tuple[Step, ...]

    def find(self, tree: Any, *, allow_missing: bool = True, values_max: int = VALUES_MAX) -> list[Any]:
        """What the path leads to. Raises PathError where it does not lead through, or through too many values."""
        return self.found(tree, Walk(allow_missing, values_max))

    def found(self, tree: Any, walk: Walk) -> list[Any]:
        values = [tree]
        for step in self.steps:
            walk.visit(len(values))
            values = step(values, walk)
        return values


@lru_cache(maxsize=1024)
def read(text: str) -> Path:
    """A path. Raises PathError for what is not understood."""
    return Path(tuple(_steps(text)))


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Find:
    """The function that finds the values of a printed column's path, which may have braces around it and need not begin
    with a point; what it does not lead through has none."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    found = read(text if text[:1] in ("", ".", "[", "$", "@") else f".{text}")

    def find(tree: Any, walk: Walk) -> list[Any]:
        try:
            return found.found(tree, walk)
        except PathError:
            return []

    return find


# --- Reading ----------------------------------------------------------------------------------------------------------


def _steps(text: str) -> Iterator[Step]:
    at = 0
    while at < len(text):
        if found := _NOTHING.match(text, at):
            pass
        elif found := _DEEP.match(text, at):
            yield _deep
        elif text.startswith(".*", at):
            yield _everything
            at += 2
            continue
        elif found := _FIELD.match(text, at):
            yield _field(_unescaped(found["name"]))
        elif found := _FILTER.match(text, at):
            end = _closing(text, found.end())
            yield _filter(text[found.end() : end])
            at = end + 2
            continue
        elif text[at] == "[":
            step, at = _union(text, at)
            yield step
            continue
        elif found := _CONSTANT.match(text, at):
            yield _constant(_value(found))
        elif text.strip() == ".":
            return
        else:
            raise PathError(f"{text!r} is not understood from {text[at:]!r} on")
        at = found.end()


def _union(text: str, start: int) -> tuple[Step, int]:
    """What is in brackets: keys, indexes and slices, and where it ends."""
    steps: list[Step] = []
    at = start + 1
    while found := _PART.match(text, at):
        steps.append(_part(found))
        at = found.end()
        if found["end"] == "]":
            return (steps[0] if len(steps) == 1 else _all_of(steps)), at
    raise PathError(f"{text!r} is not understood from {text[start:]!r} on")


def _part(found: re.Match[str]) -> Step:
    if found["key"] is not None:
        return _field(_unescaped(found["key"][1:-1]))
    if found["index"] is not None:
        return _index(int(found["index"]))
    first, last, step = (int(bound) if bound else None for bound in found.group("first", "last", "step"))
    return _slice(first, last, 1 if step is None else step)


def _closing(text: str, start: int) -> int:
    """Where the `)]` of a filter is; quotes may hold anything."""
    quote = ""
    for position in range(start, len(text)):
        character = text[position]
        if quote:
            quote = "" if character == quote and text[position - 1] != "\\" else quote
        elif character in "'\"":
            quote = character
        elif text.startswith(")]", position):
            return position
    raise PathError(f"{text!r} has a filter without an end")


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _value(found: re.Match[str]) -> Any:
    if found["text"] is not None:
        return _unescaped(found["text"][1:-1])
    word = found["word"]
    if word in ("true", "false"):
        return word == "true"
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        raise PathError(f"{word} is no number") from None


# --- Steps ------------------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Step:
    return lambda values, walk: [value]


def _field(name: str) -> Step:
    def step(values: list[Any], walk: Walk) -> list[Any]:
        found = [value[name] for value in values if isinstance(value, dict) and name in value]
        if values and not found and not walk.allow_missing:
            raise PathError(f"there is no {name}")
        return found

    return step


def _index(place: int) -> Step:
    def step(values: list[Any], walk: Walk) -> list[Any]:
        found = []
        for value in _lists(values):
            if not -len(value) <= place < len(value):
                raise PathError(f"there is no place {place} in a list of {len(value)}")
            found.append(value[place])
        return found

    return step


def _slice(first: int | None, last: int | None, stride: int) -> Step:
    def step(values: list[Any], walk: Walk) -> list[Any]:
        found = []
        for value in _lists(values):
            start, end = _from_the_start(first or 0, value), _from_the_start(last, value)
            if start == end:
                continue
            if not 0 <= start < end <= len(value):
                raise PathError(f"there is no part {start}:{end} of a list of {len(value)}")
            walk.visit(end - start)
            found += value[start:end:stride]
        return found

    if stride < 1:
        raise PathError(f"a step of {stride} leads nowhere")
    return step


def _from_the_start(bound: int | None, value: list[Any]) -> int:
    if bound is None:
        return len(value)
    return bound + len(value) if bound < 0 else bound


def _lists(values: list[Any]) -> Iterator[list[Any]]:
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            raise PathError(f"{_sort(value)} is no list")


def _all_of(steps: list[Step]) -> Step:
    def step(values: list[Any], walk: Walk) -> list[Any]:
        found: list[Any] = []
        for one in steps:
            walk.visit(len(values))
            found += one(values, walk)
        return found

    return step


def _everything(values: list[Any], walk: Walk) -> list[Any]:
    found: list[Any] = []
    for value in values:
        held = _held(value)
        walk.visit(len(held))
        found += held
    return found


def _held(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _deep(values: list[Any], walk: Walk) -> list[Any]:
    """The values and everything below them, as far as there is something in it; each before what it holds."""
    found: list[Any] = []
    todo = values[::-1]
    while todo:
        value = todo.pop()
        walk.visit(1)
        if isinstance(value, dict | list | str) and value:
            found.append(value)
            held = _held(value)
            walk.visit(len(held))
            todo += reversed([*held])
    return found


def _filter(condition: str) -> Step:
    compared = _COMPARISON.fullmatch(condition)
    if compared is None:
        exists = read(condition)
        return lambda values, walk: [
            each for value in _filtered(values, walk) for each in value if exists.found(each, _leniently(walk))
        ]
    left, right = read(compared["left"]), read(compared["right"])
    if compared["sign"] not in _OPERATORS:
        raise PathError(f"{compared['sign']} compares nothing")
    compare = _OPERATORS[compared["sign"]]

    def matches(item: Any, walk: Walk) -> bool:
        ours, theirs = left.found(item, walk), right.found(item, walk)
        if not ours or not theirs:
            return False
        if len(ours) > 1 or len(theirs) > 1:
            raise PathError("only one value can be compared with one other")
        return compare(*_comparable(ours[0], theirs[0]))

    return lambda values, walk: [each for value in _filtered(values, walk) for each in value if matches(each, walk)]


def _leniently(walk: Walk) -> Walk:
    """The same search for something that may be missing."""
    return walk if walk.allow_missing else _Lenient(walk)


class _Lenient(Walk):
    """Visits on the account of another search."""

    __slots__ = ("_account",)

    def __init__(self, account: Walk) -> None:
        super().__init__(True, 0)
        self._account = account

    def visit(self, count: int) -> None:
        self._account.visit(count)


def _filtered(values: list[Any], walk: Walk) -> Iterator[list[Any]]:
    for value in values:
        if not isinstance(value, list):
            raise PathError(f"{_sort(value)} is no list, and cannot be filtered")
        walk.visit(len(value))
        yield value


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    if type(left) is not type(right) or not isinstance(left, str | int | float):
        raise PathError(f"{_sort(left)} and {_sort(right)} cannot be compared")
    return left, right


_SORTS: Final = {
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a fraction",
    list: "a list",
    dict: "a map",
}


def _sort(value: Any) -> str:
    return _SORTS.get(type(value), "null")
