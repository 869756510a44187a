"""kubectl's templates of JSONPath: text, and in braces a path, quoted text, or a range over what a path finds.

`{range .items[*]}{.metadata.name}{"\\n"}{end}` prints a line for each.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from pykueue.apiserver.jsonpath import PathError, compile_path
from pykueue.errors import UsageError

# (the whole, what the path starts from) -> what is found there.
Part: TypeAlias = Callable[[Any, Any], Iterator[Any]]

_QUOTES: Final = "'\""


class Template:
    """A template, ready to be filled in."""

    def __init__(self, text: str) -> None:
        try:
            self._parts = _read(_pieces(text))
        except (PathError, SyntaxError, ValueError) as error:
            raise UsageError(f"jsonpath {text!r}: {error}") from None

    def fill(self, tree: Any) -> str:
        return "".join(map(_text, _found(self._parts, tree, tree)))

    def values(self, tree: Any) -> list[Any]:
        """What the paths find, without the text between them."""
        return [value for each in _found(self._parts, tree, tree) if isinstance(each, list) for value in each]


def _found(parts: list[Part], whole: Any, here: Any) -> Iterator[Any]:
    for part in parts:
        yield from part(whole, here)


def _text(found: Any) -> str:
    """Several values of one path have a space between them."""
    return " ".join(map(_plain, found)) if isinstance(found, list) else str(found)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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
            parts.append(_said(text))
        elif text == "end":
            if not in_range:
                raise PathError("an end without a range")
            return parts
        elif text.startswith("range "):
            parts.append(_range(text.removeprefix("range ").strip(), _read(pieces, in_range=True)))
        elif text[:1] in _QUOTES and text:
            parts.append(_said(str(ast.literal_eval(text))))
        else:
            parts.append(_path(text))
    if in_range:
        raise PathError("a range without an end")
    return parts


def _said(text: str) -> Part:
    return lambda whole, here: iter((text,))


def _path(text: str) -> Part:
    find, is_absolute = compile_path(text), text.startswith("$")
    return lambda whole, here: iter((find(whole if is_absolute else here),))


def _range(text: str, body: list[Part]) -> Part:
    path = _path(text)

    def each(whole: Any, here: Any) -> Iterator[Any]:
        for found in path(whole, here):
            for item in found:
                yield from _found(body, whole, item)

    return each
