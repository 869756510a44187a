"""kubectl's templates of JSONPath: text, and in braces a path, quoted text, or a range over what a path finds.

`{range .items[*]}{.metadata.name}{"\\n"}{end}` prints a line for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from kubemachinery import jsonpath
from kubemachinery.errors import UsageError
from kubemachinery.jsonpath import PathError
from pykueue.cli.gotemplate import verbs
from pykueue.cli.gotemplate.quoting import unquoted

# (what paths start from, whether keys may be missing) -> values, for each part that was printed.
Part: TypeAlias = Callable[[Any, bool], Iterator[list[Any]]]

_QUOTES: Final = "'\""


class Template:
    """A template, ready to be filled in. What is wrong with it is a `UsageError`."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._parts = _read(_pieces(text))
        except ValueError as error:
            raise self._refused(error) from None

    def fill(self, tree: Any, *, allow_missing: bool = True) -> str:
        """The text; several values of one path have a space between them."""
        return "".join(" ".join(map(_plain, values)) for values in self._values(tree, allow_missing))

    def fill_as_json(self, tree: Any, *, allow_missing: bool = True) -> str:
        """A list for each path, and for each text between them."""
        return "".join(f"{_json(values, indent=4)}\n" for values in self._values(tree, allow_missing))

    def _values(self, tree: Any, allow_missing: bool) -> list[list[Any]]:
        try:
            return list(_found(self._parts, tree, allow_missing))
        except PathError as error:
            raise self._refused(error) from None

    def _refused(self, error: ValueError) -> UsageError:
        return UsageError(f"jsonpath {self._text!r}: {error}")


def _found(parts: list[Part], here: Any, allow_missing: bool) -> Iterator[list[Any]]:
    for part in parts:
        yield from part(here, allow_missing)


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    return _json(value) if isinstance(value, list | dict) else verbs.plain(value)


def _json(value: Any, indent: int | None = None) -> str:
    """As Go writes it: keys in order, and nothing that a page of HTML would take for its own."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(_whole(value), indent=indent, separators=separators, ensure_ascii=False, sort_keys=True)
    return text.translate(_IN_HTML)


_IN_HTML: Final = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def _whole(value: Any) -> Any:
    """A tree whose fractions are written without a point where they need none."""
    match value:
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case float() if value.is_integer() and abs(value) < 1e21:
            return int(value)
    return value


# --- Reading ----------------------------------------------------------------------------------------------------------


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Whether it is in braces, and what it is. A brace in quotes is no brace."""
    outside, inside, quote = "", None, ""
    for letter in text:
        if inside is None:
            if letter == "{":
                yield False, outside
                outside, inside = "", ""
            else:
                outside += letter
        elif letter == "}" and not quote:
            yield True, inside.strip()
            inside = None
        else:
            inside += letter
            if letter in _QUOTES and not inside.endswith(f"\\{letter}"):
                quote = "" if letter == quote else quote or letter
    if inside is not None:
        raise PathError("a brace is not closed")
    yield False, outside


def _read(pieces: Iterator[tuple[bool, str]], *, in_range: bool = False) -> list[Part]:
    parts: list[Part] = []
    for is_expression, text in pieces:
        if not is_expression:
            parts += [_said(text)] if text else []
        elif text == "end":
            if not in_range:
                raise PathError("an end without a range")
            return parts
        elif text.startswith("range "):
            parts.append(_range(text.removeprefix("range "), _read(pieces, in_range=True)))
        elif text[:1] in _QUOTES and text[1:].endswith(text[:1]) and text:
            parts.append(_said(unquoted(text)))
        else:
            parts.append(_path(text))
    if in_range:
        raise PathError("a range without an end")
    return parts


def _said(text: str) -> Part:
    return lambda here, allow_missing: iter(([text],))


def _path(text: str) -> Part:
    path = jsonpath.read(text)
    return lambda here, allow_missing: iter((path.find(here, allow_missing=allow_missing),))


def _range(text: str, body: list[Part]) -> Part:
    path = jsonpath.read(text)

    def each(here: Any, allow_missing: bool) -> Iterator[list[Any]]:
        for item in path.find(here, allow_missing=allow_missing):
            yield from _found(body, item, allow_missing)

    return each
